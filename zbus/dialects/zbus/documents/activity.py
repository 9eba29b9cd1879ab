"""When each group's reading last moved on, noticed by looking from time to time.

The data path reports nothing: a task that finds out how long a group has stood still compares its
progress with that of the last look. So a time is right to within the pause
between two looks, and what happened before the broker's start is not known.
"""

from __future__ import annotations

import attrs

from zbus.core.api import Broker, Group, Topic

TOPICS_PER_LOOK = 500
"""Topics that are looked at in a second: a millisecond or two of the loop. With 10,000 topics, each
has its turn every 20 seconds."""


@attrs.define
class Pace:
    """Of one group."""

    passed: int  # messages behind it, at the last look
    since_ms: int  # since when that has not changed, as far as is known
    dead: int = 0  # messages that it had dead-lettered, at the last look
    died_ms: int = 0  # when that was seen to grow; before that, when the group was made
    moved: bool = False  # a look saw it change: before that, it may have stood still for longer


class Activity:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._paces: dict[Group, Pace] = {}
        self._seen: dict[Group, Pace] = {}  # in this round
        self._left: list[Topic] = []  # that this round has still to look at

    def of(self, group: Group, passed: int) -> Pace:
        """What is known of a group that has that many messages behind it now."""
        dead = group.dead_count()
        now_ms = self._broker.now_ms
        pace = self._paces.get(group)
        if pace is None:
            pace = self._paces[group] = Pace(passed, now_ms)
            pace.dead, pace.died_ms = dead, group.options.created_ms  # at the earliest
        elif pace.passed != passed:
            pace.passed, pace.since_ms, pace.moved = passed, now_ms, True
        if pace.dead != dead:
            pace.dead, pace.died_ms = dead, now_ms
        return pace

    def look(self, count: int = TOPICS_PER_LOOK) -> None:
        """Look at some more topics. After each round, groups that are gone are forgotten."""
        if not self._left:
            self._left = list(self._broker.topics.values())
        for topic in self._left[:count]:
            for group in topic.groups.values():
                self._seen[group] = self.of(group, passed(group))
        del self._left[:count]
        if not self._left:
            self._paces, self._seen = self._seen, {}


def passed(group: Group) -> int:
    """Messages that the group has behind it: delivered, settled, or left out by its filter."""
    count = 0
    for partition in group.topic.partitions:
        backlog = group.progress(partition.index)
        count += partition.end - backlog.ready_count(partition.end) - len(backlog.delayed)
    return count
