"""What lies between two parties that exchange frames: a wire for each direction of a link.

A frame that is put into a wire comes out after a while, once, in its turn: unless the weather is
bad. Then it is lost, or doubled, or overtaken, or it lies about somewhere and comes long after,
perhaps out of another link between the same two. Nothing happens by itself: `Wires.run` hands over
what is due.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from random import Random

import attrs


@attrs.define
class Weather:
    """How likely it is that something becomes of a frame."""

    lost: float = 0.0
    doubled: float = 0.0
    overtaken: float = 0.0
    late: float = 0.0  # one more copy comes long after
    late_ms: int = 3_600_000  # by at most that much
    latency_ms: int = 20
    victim: str = ""  # frames with this word are lost, as well
    victim_lost: float = 0.0


class Wire:
    """One direction of a link."""

    def __init__(self, wires: Wires, arrive: Callable[[object], None]) -> None:
        self._wires = wires
        self._arrive = arrive
        self._last_ms = 0
        self.cut = False  # what is on the way is gone
        self.silent = False  # what is put into it is gone, and no client is told

    def put(self, frame: object, word: str, stray: Callable[[object], None] | None = None) -> None:
        """Send a frame; `stray` is who is given a copy that comes long after."""
        wires, random = self._wires, self._wires.random
        weather = wires.weather
        if self.cut or self.silent:
            return
        if stray is not None and random.random() < weather.late:
            after_ms = random.randint(1_000, weather.late_ms)
            wires.at(wires.now_ms() + after_ms, lambda: stray(frame))
        chance = weather.victim_lost if word == weather.victim else weather.lost
        if random.random() < chance:
            return
        for _ in range(2 if random.random() < weather.doubled else 1):
            due_ms = wires.now_ms() + random.randint(1, weather.latency_ms)
            if random.random() < weather.overtaken:
                due_ms += random.randint(1, 50 * weather.latency_ms)
            else:
                due_ms = self._last_ms = max(due_ms, self._last_ms)
            wires.at(due_ms, lambda: self._hand_over(frame))

    def last(self, call: Callable[[], None]) -> None:
        """Called behind everything that is on the way."""
        due_ms = max(self._last_ms, self._wires.now_ms()) + 1
        self._wires.at(due_ms, call)

    def _hand_over(self, frame: object) -> None:
        if not self.cut:
            self._arrive(frame)


class Wires:
    """All that is on the way, and all else that has its time."""

    def __init__(self, random: Random, now_ms: Callable[[], int]) -> None:
        self.random = random
        self.now_ms = now_ms
        self.weather = Weather()
        self._serial = itertools.count()
        self._due: list[tuple[int, int, Callable[[], None]]] = []

    def wire(self, arrive: Callable[[object], None]) -> Wire:
        """A new one, and who is given what comes out of it."""
        return Wire(self, arrive)

    def at(self, due_ms: int, call: Callable[[], None]) -> None:
        """Call it then."""
        heapq.heappush(self._due, (due_ms, next(self._serial), call))

    def next_due(self) -> int | None:
        return self._due[0][0] if self._due else None

    def run(self) -> bool:
        """All that is due now. Says whether there was anything."""
        now_ms, found = self.now_ms(), False
        while self._due and self._due[0][0] <= now_ms:
            _, _, call = heapq.heappop(self._due)
            call()
            found = True
        return found
