"""A stream that answers what a test says, when it says so."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from zbus.storage.jetstream.stream import Outgoing


class ScriptedStream:
    """What was asked last is answered by `answer`; time passes with `wait`."""

    message_bytes_max = 1 << 20

    def __init__(self) -> None:
        self.asked: list[tuple[str, tuple[Any, ...], Callable[..., None]]] = []
        self.closed = False
        self._now_ms = 0
        self._timers: list[tuple[int, Callable[[], None]]] = []

    def answer(self, kind: str, *answer: object) -> tuple[Any, ...]:
        """Answer the oldest open question, which must be of this kind; what was asked."""
        found, details, done = self.asked.pop(0)
        assert found == kind, f"{found} is asked"
        done(*answer)
        return details

    @property
    def open(self) -> list[str]:
        """The kinds of open questions."""
        return [kind for kind, _, _ in self.asked]

    def wait(self, ms: int) -> None:
        self._now_ms += ms
        due = [one for one in self._timers if one[0] <= self._now_ms]
        self._timers = [one for one in self._timers if one[0] > self._now_ms]
        for _, call in due:
            call()

    def publish(self, messages: Sequence[Outgoing], last: int, done: Callable[..., None]) -> None:
        self.asked.append(("publish", (list(messages), last), done))

    def state(self, done: Callable[..., None]) -> None:
        self.asked.append(("state", (), done))

    def get(self, which: int | str, done: Callable[..., None]) -> None:
        self.asked.append(("get", (which,), done))

    def newest(self, subjects: Sequence[str], done: Callable[..., None]) -> None:
        self.asked.append(("newest", (list(subjects),), done))

    def read(
        self, subject: str, sequence: int, count: int, size: int, done: Callable[..., None]
    ) -> None:
        self.asked.append(("read", (subject, sequence), done))

    def subjects(self, pattern: str, done: Callable[..., None]) -> None:
        self.asked.append(("subjects", (pattern,), done))

    def purge(self, subject: str, before: int, done: Callable[..., None]) -> None:
        self.asked.append(("purge", (subject, before), done))

    def later(self, ms: int, call: Callable[[], None]) -> None:
        self._timers.append((self._now_ms + ms, call))

    def now_ms(self) -> int:
        return self._now_ms

    def close(self) -> None:
        self.closed = True
