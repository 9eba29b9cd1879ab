"""How fast a group is served: no more messages a second than its rate.

A group that has used up what it may have is not looked at until there is more for it: a timer says
when. Nothing is counted for a group without a rate.

Tests: `tests/core/delivery/test_retries.py`.
"""

from __future__ import annotations

from collections.abc import Callable

from zbus.core.timing.timers import Timers
from zbus.core.topics.topic import Group


class GroupRate:
    """`activate` has a group served again."""

    def __init__(self, timers: Timers, activate: Callable[[Group], None]) -> None:
        self._timer = timers.timer(activate, lambda group: group)

    def waits(self, group: Group, now_ms: int) -> bool:
        """It has had its part of this moment; it is served again when there is more."""
        rate = group.rate
        wait_ms = 0 if rate is None else rate.wait_ms(now_ms)
        if wait_ms:
            self._timer.set(group, now_ms + wait_ms)
        return wait_ms > 0

    def forget(self, group: Group) -> None:
        """The group is gone."""
        self._timer.discard(group)
