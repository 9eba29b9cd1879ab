"""The long run: one broker, attacked in turn and at random, beside brisk clients.

Every attack comes once before any comes again, alone or with another, by one to a hundred
connections; after each there is quiet for a moment. What is demanded:

* no brisk client had an error: nothing was lost, doubled or refused, and no connection ended;
* the broker lives, and its log has no traceback;
* memory is flat: what the broker takes in the quiet phases at the end is at most 1.3 times what it
  took in those at the beginning, after a warm-up.

The seed chooses what comes when, but a machine's timing is no part of it.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from random import Random
from typing import Final, NamedTuple

from tests.soak.crew import Stage, pause
from tests.soak.figures import Figures

MIB: Final = 1 << 20
LINE_S: Final = 10.0
LOOK_S: Final = 0.25
TOGETHER: Final = 0.3  # of the phases have two attacks
CONNECTIONS: Final = (1, 10, 100)
WARM_UP: Final = 1 / 3  # of the time at most; else until every attack has come
ENDS: Final = 1 / 4  # of the time after it is its beginning, and as much its end
GROWTH_MAX: Final = 1.3
HEAD: Final = "   s |    p50     p99   p99.9   max ms |   MiB  cpu %  files | errors | beside"


class Pace(NamedTuple):
    """How long things take, in seconds."""

    phase_s: float = 4.0  # attacks
    quiet_s: float = 2.0  # after them
    rest_s: float = 10.0  # at the end


class Phase(NamedTuple):
    """Attacks, until `quiet_s`, and the quiet after them, until `end_s`."""

    attacks: tuple[tuple[str, int], ...]  # names and connections
    begin_s: float
    quiet_s: float
    end_s: float

    def __str__(self) -> str:
        return " + ".join(f"{name} x {connections}" for name, connections in self.attacks)


class Campaign:
    """See the module."""

    def __init__(
        self,
        stage: Stage,
        names: Sequence[str],
        seconds: float,
        seed: int,
        pace: Pace = Pace(),  # noqa: B008  # it is a value
    ) -> None:
        self.stage = stage
        self.pace = pace
        self.names = names
        self.seconds = seconds
        self.random = Random(seed)
        self.began_s = self.line_s = time.monotonic()
        self.warm_s = self.began_s + seconds * WARM_UP
        self.phases: list[Phase] = []
        self.under_way: tuple[tuple[str, int], ...] = ()
        self.quiet_bytes: list[tuple[float, int]] = []  # when, and the median of a quiet phase
        self.beside: dict[str, list[Figures]] = {}

    def run(self) -> list[str]:
        """For as long as told; a sentence for each thing that failed."""
        stage = self.stage
        for name in self.names:
            stage.prepare(name)
        prepared_s = time.monotonic()
        pause(1.0)
        self.began_s = self.line_s = time.monotonic()
        self._note_quiet(prepared_s, self.began_s)
        self.warm_s = self.began_s + self.seconds * WARM_UP
        print(HEAD, flush=True)
        last_s = self.began_s + self.seconds - self.pace.rest_s
        turns = self._turns()
        while time.monotonic() < last_s and stage.alive:
            self._phase(next(turns))
        rest_s = time.monotonic()
        self._wait(self.pace.rest_s)
        self._note_quiet(rest_s + self.pace.rest_s / 2, time.monotonic())
        if stage.alive:
            for client in stage.clients:
                client.wait_past(time.monotonic())
        self._line(time.monotonic())
        self._print_attacks()
        return self._failures()

    def _turns(self) -> Iterator[tuple[tuple[str, int], ...]]:
        """Who attacks next, without end."""
        while True:
            bag = list(self.names)
            self.random.shuffle(bag)
            while bag:
                count = 2 if len(bag) > 1 and self.random.random() < TOGETHER else 1
                yield tuple((bag.pop(), self.random.choice(CONNECTIONS)) for _ in range(count))
            self.warm_s = min(self.warm_s, time.monotonic())

    def _phase(self, attacks: tuple[tuple[str, int], ...]) -> None:
        stage = self.stage
        with ExitStack() as exits:
            self.under_way = attacks
            for name, connections in attacks:
                exits.enter_context(stage.attack(name, connections))
            begin_s = time.monotonic()
            self._wait(self.pace.phase_s)
            quiet_s = time.monotonic()
        self._wait(self.pace.quiet_s)
        end_s = time.monotonic()
        self.phases.append(Phase(attacks, begin_s, quiet_s, end_s))
        self.under_way = ()
        self._note_quiet(quiet_s + self.pace.quiet_s / 2, end_s)
        figures = stage.figures(begin_s, quiet_s)
        for name, _ in attacks:
            self.beside.setdefault(name, []).append(figures)
        stage.forget(begin_s - LINE_S)

    def _wait(self, seconds: float) -> None:
        """Let time pass, and tell of it."""
        until_s = time.monotonic() + seconds
        while (now_s := time.monotonic()) < until_s and self.stage.alive:
            if now_s >= self.line_s + LINE_S:
                self._line(now_s)
            pause(min(LOOK_S, until_s - now_s))

    def _note_quiet(self, begin_s: float, end_s: float) -> None:
        if taken := self.stage.watch.median_bytes(begin_s, end_s):
            self.quiet_bytes.append((end_s, taken))

    def _line(self, now_s: float) -> None:
        """What was since the line before."""
        stage, since_s = self.stage, self.line_s
        self.line_s = now_s
        looks = stage.watch.between(since_s, now_s)
        if not looks:
            return
        first, last = looks[0], looks[-1]
        figures = stage.figures(since_s, now_s)
        cpu = (last.cpu_s - first.cpu_s) / max(last.at_s - first.at_s, 0.001) * 100
        seen = [str(phase) for phase in self.phases[-4:] if phase.quiet_s > since_s]
        if self.under_way:
            seen.append(str(Phase(self.under_way, 0, 0, 0)))
        print(
            f"{now_s - self.began_s:5.0f} |"
            f" {figures.p50:6.1f} {figures.p99:7.1f} {figures.p999:7.1f} {figures.max:8.1f} |"
            f" {last.resident_bytes / MIB:5.0f} {cpu:6.0f} {last.descriptors:6} |"
            f" {len(stage.errors(since_s, now_s)):6} | {', '.join(seen)}",
            flush=True,
        )

    def _print_attacks(self) -> None:
        """How brisk clients did beside each, the worst last."""
        print("\nattack              phases   p99 ms: median   worst      max")
        rows = [
            (max(found.p99 for found in all_found), name, all_found)
            for name, all_found in self.beside.items()
        ]
        for worst, name, all_found in sorted(rows):
            median = statistics.median(found.p99 for found in all_found)
            longest = max(found.max for found in all_found)
            print(f"{name:19} {len(all_found):6} {median:16.1f} {worst:7.1f} {longest:8.1f}")

    def _failures(self) -> list[str]:
        stage = self.stage
        failures = []
        if errors := stage.errors():
            failures.append(f"brisk clients had {len(errors)} errors, the first: {errors[0]}")
        if not stage.alive:
            failures.append(f"the broker ended: {stage.broker.log()[-2_000:]}")
        elif "Traceback" in (log := stage.broker.log()):
            failures.append(
                f"the broker's log has a traceback: {log[log.index('Traceback') :][:2_000]}"
            )
        if growth := grown(self.quiet_bytes, self.warm_s):
            failures.append(growth)
        return failures


def grown(quiet_bytes: Sequence[tuple[float, int]], warm_s: float) -> str:
    """What is wrong with memory in these quiet phases; "" = it is flat."""
    taken = [count for at_s, count in quiet_bytes if at_s >= warm_s]
    some = max(1, int(len(taken) * ENDS))
    if len(taken) < 2 * some:
        return ""  # too short a run for a verdict
    begin, end = statistics.median(taken[:some]), statistics.median(taken[-some:])
    print(
        f"\nmemory when it was quiet: {quiet_bytes[0][1] / MIB:.0f} MiB before all attacks,"
        f" {begin / MIB:.0f} MiB after the warm-up, {end / MIB:.0f} MiB at the end"
    )
    if end <= begin * GROWTH_MAX:
        return ""
    return (
        f"memory grew from {begin / MIB:.0f} to {end / MIB:.0f} MiB, {end / begin:.2f} times; "
        f"{GROWTH_MAX} is allowed"
    )
