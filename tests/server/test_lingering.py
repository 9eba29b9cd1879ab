"""After work the loop waits for more by itself for a moment, and only then in trio."""

from __future__ import annotations

from random import Random

import pytest
import trio

from zbus.server.loop.loop import YIELD_AFTER_S
from zbus.server.loop.readiness import Events
from zbus.testing.simulation import Connection, Machine, request


class Waits:
    """Runs the loop of a simulated machine until it would wait in trio."""

    def __init__(self) -> None:
        self.machine = Machine(Random(1))
        self.machine.start()
        self.connection = self.machine.connect()
        self.ask(request("declare", "T"))
        self.seconds: list[float] = []  # that it has waited by itself, without a thing to do
        self._ready = self.machine.running.ready
        self._wait, self._ready.wait = self._ready.wait, self.wait  # type: ignore[method-assign]

    def ask(self, data: bytes) -> list[int]:
        self.connection.send(data)
        self.machine.settle()
        return statuses(self.connection)

    def wait(self, seconds: float, events_max: int) -> Events:
        events = self._wait(seconds, events_max)
        if seconds and not events:
            self.seconds.append(seconds)
            self.machine.clock.time_ms += round(seconds * 1000)
        return events

    def run(self, data: bytes) -> list[int]:
        """What is answered until then."""
        self.connection.send(data)
        with pytest.raises(NotImplementedError, match="never waits"):
            trio.run(self.machine.running.loop.run)
        return statuses(self.connection)


def statuses(connection: Connection) -> list[int]:
    return [reply.status for reply in connection.replies()]


def test_after_work_it_waits_for_more() -> None:
    waits = Waits()
    assert waits.run(request("query", "T")) == [200]
    assert waits.seconds == [YIELD_AFTER_S]


def test_a_timer_is_not_late_for_that() -> None:
    waits = Waits()
    assert waits.run(request("consume", "T", timeout="5")) == [204]
    assert waits.seconds == [0.005]


def test_idle_it_does_not() -> None:
    waits = Waits()
    assert waits.run(b"") == []
    assert waits.seconds == []
