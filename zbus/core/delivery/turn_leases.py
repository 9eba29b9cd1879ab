"""The leases of one turn. They begin when its replies are sent, which may be later than was
reckoned: then they are lengthened, or some would be too short.

Tests: `tests/conformance/test_never_early.py`.
"""

from __future__ import annotations

from zbus.core.delivery.run_queue import RunQueue
from zbus.core.model.pull_options import PullOptions
from zbus.core.model.request_clock import RequestClock
from zbus.core.topics.topic import Group


class TurnLeases:
    __slots__ = ("_clock", "_since_ms", "_tick", "offsets")

    def __init__(self, runs: RunQueue, clock: RequestClock) -> None:
        self._tick = runs.tick
        self._clock = clock
        self.offsets: dict[tuple[Group, int], list[int]] = {}  # by group and partition
        self._since_ms = 0

    def until(self, group: Group, index: int, offset: int, wants: PullOptions) -> int:
        """When the lease of this message ends, which begins now."""
        offsets = self.offsets
        if not offsets:
            self._since_ms = self._clock.received_ms()
        known = offsets.get((group, index))
        if known is None:
            offsets[group, index] = [offset]
        else:
            known.append(offset)
        return self._since_ms + (wants.lease_ms or group.options.lease_ms)

    def sent(self) -> None:
        """The replies are on their way: the leases begin."""
        leased, self.offsets = self.offsets, {}
        ms, tick = self._clock.received_ms() - self._since_ms, self._tick
        for (group, index), offsets in leased.items() if ms > 0 else ():
            try:
                if group.backlogs[index].lengthen(offsets, ms):
                    tick.change(group.topic.partitions[index], group)
            except Exception as error:
                tick.faults.quarantine(group, error)
