"""Pulls of a whole group end with nothing: the group is gone, or cannot be read.

There may be hundreds of thousands of them, and each of the others in a turn would wait for all. So
they end in parts, one in a turn, and a pull that waits in such a group meanwhile gets nothing.
"""

from __future__ import annotations

from itertools import islice
from typing import Final, Protocol

from zbus.core.model.errors import BrokerError
from zbus.core.topics.outcomes import EmptyReason
from zbus.core.topics.topic import Group, Pull

ENDED_PER_TURN_MAX: Final = 5_000
"""Pulls, of all groups together."""


class Dispatching(Protocol):
    """What is needed of `Dispatch`."""

    def activate(self, group: Group) -> None: ...

    def end(self, pull: Pull, reason: EmptyReason | BrokerError) -> None: ...


class PullCancellation:
    def __init__(self, dispatch: Dispatching) -> None:
        self._dispatch = dispatch
        self.groups: dict[Group, EmptyReason | BrokerError] = {}  # not all have ended yet
        self._left = ENDED_PER_TURN_MAX

    def begin(self, group: Group, reason: EmptyReason | BrokerError) -> None:
        """The first of them end now, and the others in the next turns."""
        self.groups[group] = reason
        self._end(group)

    def run(self) -> None:
        """Another turn."""
        self._left = ENDED_PER_TURN_MAX
        for group in list(self.groups):
            self._end(group)

    def _end(self, group: Group) -> None:
        pulls = list(islice(group.pulls(), self._left))
        self._left -= len(pulls)
        for pull in pulls:
            self._dispatch.end(pull, self.groups[group])
        if next(group.pulls(), None) is None:
            del self.groups[group]
        else:
            self._dispatch.activate(group)
