"""Mistakes of the program, planted at random in worlds where everything else goes wrong, too: each
costs a partition or a group some time, and nothing that was promised is broken."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from tests.limits import checked
from tests.simulation.simulation import Simulation
from zbus.core.model.containment import Fault
from zbus.server.loop.faults import names
from zbus.testing.world import Reply


class Planted(Exception):
    """One of them."""


class MistakenSimulation(Simulation):
    """Now and then a write or a scan raises, before or after it is done."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._mistakes = Random(seed + 1)
        self._over = False
        self.made = 0
        expect = self.requests._expect

        def allow(reply: Reply, *statuses: int) -> None:
            """Whoever waits is told."""
            expect(reply, *statuses, *([503] if b"internal error" in reply.body else []))

        self.requests._expect = allow  # type: ignore[method-assign]

    def finish(self) -> None:
        self._over = True
        super().finish()

    def _start(self, *args: Any) -> None:
        super()._start(*args)
        broker = self.machine.broker
        broker.faults.report = self._tell
        for owner, name in (
            (broker._storage, "write"),
            (broker._dispatch, "_scan"),
            (broker._dispatch.runs.wakes, "_call"),
            (broker._retention._timer, "_call"),
        ):
            setattr(owner, name, self._sabotaged(getattr(owner, name)))

    def _sabotaged(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def mistaken(*args: Any) -> Any:
            chance = 0.5 if self._over else self._mistakes.random()
            if chance < 0.005:
                self.made += 1
                raise Planted
            outcome = call(*args)
            if chance > 0.995:
                self.made += 1
                raise Planted
            return outcome

        return mistaken

    def _tell(self, fault: Fault) -> None:
        assert isinstance(fault.error, Planted), repr(fault.error)
        self.say(f"a mistake: {names(fault.culprit)}")


@pytest.mark.parametrize("seeds", [range(3), *checked([range(3, 20)])])
def test_mistakes_are_survived(seeds: range) -> None:
    made = 0
    for seed in seeds:
        simulation = MistakenSimulation(seed)
        simulation.run()
        made += simulation.made
    assert made > len(seeds)
