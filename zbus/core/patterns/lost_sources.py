"""What a log lost that another one was to settle there, noted before other messages take its place.

A crash may take deliveries, where their level allows it, and leave what settles them. The log that
has decided it is told so, on stable storage; until then the other one takes nothing. Else the next
start would settle the messages that have those offsets by then.

Tests: `tests/core/patterns/test_completions.py`.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from zbus.core.commit.tick import Tick
from zbus.core.model.errors import BrokerError, Outcome, fenced
from zbus.core.model.ticket import Calling
from zbus.core.timing.timers import Timers
from zbus.core.topics.topic import Partition

_AGAIN_MS = 1_000


class _Lost(NamedTuple):
    partition: Partition  # has decided
    epoch: int
    source: Partition


class LostSources:
    """Those that are not noted yet."""

    def __init__(self, tick: Tick, timers: Timers) -> None:
        self._tick = tick
        self._timer = timers.timer(self._note, lambda lost: lost.partition)
        self._found: dict[_Lost, None] = {}

    def add(self, partition: Partition, source: Partition) -> None:
        """`partition` was read and says so from its next write on."""
        self._found[_Lost(partition, partition.epoch, source)] = None

    def note(self) -> None:
        """Write what was added."""
        found, self._found = self._found, {}
        for lost in found:
            self._tick.postponed.suspend(lost.source)
            self._note(lost)

    def _note(self, lost: _Lost) -> None:
        partition, epoch, source = lost
        if partition.removed or (partition.fenced is None and partition.epoch != epoch):
            self._tick.resume(source)  # what was read again is looked at again
        else:
            self._tick.confirm(partition, Calling(partial(self._noted, lost, False)))

    def _noted(self, lost: _Lost, synced: bool, outcome: Outcome) -> None:
        tick, (partition, _, source) = self._tick, lost
        if synced and not isinstance(outcome, BrokerError):
            tick.resume(source)
        elif not isinstance(outcome, BrokerError):
            tick.sync(partition, Calling(partial(self._noted, lost, True)))
        else:
            self._timer.set(lost, tick.now_ms + _AGAIN_MS)
            if not source.removed and source.fenced is None:  # what was asked of it is refused
                tick.hooks.fence(source, fenced(*source.lane, "what it lost cannot be noted"))
