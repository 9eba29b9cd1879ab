"""What dispatch may do in one turn, so that no group and no request waits for long.

Tests: `tests/core/delivery/test_dispatch.py`.
"""

from __future__ import annotations

from zbus.core.topics.topic import Group

SKIPS_PER_TICK_MAX = 2_000
"""Messages that one group may pass over in one tick (not wanted, not due, expired), so that others
get their turn."""

ALL_SKIPS_PER_TICK_MAX = 20_000
"""The same for all groups together. A group that comes later in the tick passes over one, and is
among the first in the next tick."""

BATCHED_PER_TICK_MAX = 5_000
"""Messages delivered in batches in one tick. The batch that passes it is finished; who wants more
waits for the next tick, behind those that got none in this."""

WOKEN_PER_TURN_MAX = 5_000
"""Messages made ready in one turn because they became due, about, of all groups together."""

ENDED_PER_TURN_MAX = 5_000
"""Pulls of groups that are gone, of all groups together."""


class TurnBudget:
    """What is left of this turn."""

    __slots__ = (
        "_all_skips",
        "_skips_max",
        "batched",
        "ended",
        "next_turn",
        "skips",
        "starved",
        "woken",
    )

    def __init__(self) -> None:
        self._skips_max = self.skips = 0  # of the group that is being served
        self.starved: set[Group] = set()  # were given less than their part of this turn
        self.next_turn: list[Group] = []  # had their part of this turn, and want more
        self.begin()

    def begin(self) -> None:
        """Groups are served."""
        self._all_skips = ALL_SKIPS_PER_TICK_MAX
        self.batched = BATCHED_PER_TICK_MAX
        self.woken = WOKEN_PER_TURN_MAX
        self.ended = ENDED_PER_TURN_MAX
        if self.starved:
            self.starved.clear()

    def begin_group(self) -> None:
        """One more group is served."""
        self._skips_max = self.skips = min(SKIPS_PER_TICK_MAX, max(self._all_skips, 1))

    def end_group(self, group: Group) -> bool:
        """It was served; whether it goes on in the next turn before those that had their part."""
        self._all_skips -= self._skips_max - self.skips
        if self.skips > 0:
            return False
        if self._skips_max == SKIPS_PER_TICK_MAX:
            self.next_turn.append(group)
            return False
        self.starved.add(group)
        return True

    def take_batch(self, group: Group, count: int) -> bool:
        """It was given a batch; whether there is more in this turn."""
        self.batched -= count
        if self.batched > 0:
            return True
        self.next_turn.append(group)
        return False
