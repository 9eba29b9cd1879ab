"""What the changes of one partition tell, put together again: its topic, groups and backlogs.

A change tells what became different (`zbus.core.cursor.state`), or all there is. A reader of
a stored log applies them in order, be it to serve it or to repair it.

Tests: `tests/core/test_recovery.py`.
"""

from __future__ import annotations

from zbus.core.cursor import journal
from zbus.core.cursor.backlog import Backlog
from zbus.core.cursor.state import (
    Completion,
    GroupChange,
    GroupOptions,
    Origin,
    StateChange,
    TopicOptions,
)
from zbus.core.model.dispositions import Dispositions


class RecoveredState:
    """Groups go by their lower-case names."""

    def __init__(self, partition: int) -> None:
        self._partition = partition
        self.topic: TopicOptions | None = None
        self.incarnation = ""  # of the topic
        self.number = 0  # the highest of a decision that is spoken of
        self.emptied: tuple[int, ...] = ()
        self.purges: dict[int, int] = {}
        self.completions: dict[int, Completion] = {}
        self.forgotten = 0  # messages below it are no more
        # By name and incarnation. Partition 0 has one of each name; the others have
        # those, too, of which they cannot know whether they are the past or the future.
        self.backlogs: dict[str, dict[int, Backlog]] = {}
        self.origins: dict[str, Origin] = {}  # in partition 0
        self.options: dict[str, GroupOptions] = {}
        self.names: dict[str, str] = {}

    def backlog(self, name: str, incarnation: int) -> Backlog | None:
        """Give the backlog of a group, if this incarnation of it was spoken of."""
        return self.backlogs.get(name.lower(), {}).get(incarnation)

    def apply(self, change: StateChange, is_whole: bool = False) -> None:
        """Take over a change; if it is whole, groups that it does not name are no more."""
        if is_whole:
            self.backlogs.clear()
            self.origins.clear()
            self.purges.clear()
            self.completions.clear()
            self.incarnation, self.number, self.emptied = change.incarnation, 0, ()
        self.topic = change.topic or self.topic
        if change.first > self.forgotten:
            self.forgotten = change.first
            for backlog in [one for known in self.backlogs.values() for one in known.values()]:
                # What is lost by it, the groups' own changes say: they come next.
                backlog.fall_off(change.first)
        self.number = max(self.number, change.number, *[number for number, _ in change.purges])
        self.emptied = change.emptied or self.emptied
        self.purges.update(change.purges)
        self.completions.update({one.number: one for one in change.completions})
        for number in change.completed:
            self.completions.pop(number, None)
        for group in change.groups:
            key = group.name.lower()
            if group.removed:
                self.backlogs.pop(key, None)
                self.origins.pop(key, None)
                continue
            if group.options is not None:
                self.options[key] = group.options
            self.names[key] = group.name
            self._group(key, group)

    def _group(self, key: str, change: GroupChange) -> None:
        known = self.backlogs.setdefault(key, {})
        backlog = known.get(change.incarnation)
        if backlog is None:
            if self._partition == 0:
                known.clear()
                self.origins.pop(key, None)
            self.number = max(self.number, change.incarnation)
            backlog = known[change.incarnation] = Backlog()
        journal.apply(backlog, change)
        if change.fates:
            backlog.fates = backlog.fates or Dispositions()
            backlog.fates.apply(change.fates)
        if change.origin is not None:
            self.origins[key] = change.origin
