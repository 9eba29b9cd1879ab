"""Pulls that stand by until an exclusive group is free.

One session at a time reads an exclusive group. Another that asks meanwhile is refused, unless it
says that it stands by: then its pulls wait here, and it becomes the reader when the one before it
leaves. Sessions take over in the order in which they came. One that stands by is no reader: nothing
is delivered to it.

Tests: `tests/conformance/test_standby.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from sys import maxsize

from zbus.core.delivery.pulls import WaitingPulls
from zbus.core.model.errors import BrokerError, too_many_wait
from zbus.core.timing.timers import Timers
from zbus.core.topics.outcomes import Empty, EmptyReason
from zbus.core.topics.topic import Group, Pull, Session

Line = dict[Session, dict[Pull, int | None]]
"""Sessions, the first to take over first; of each pull the deadline."""


class Standbys:
    """`register` makes a session a reader of a group that is free."""

    def __init__(
        self,
        pulls: WaitingPulls,
        timers: Timers,
        waiting_max: int,
        register: Callable[[Session, Group], BrokerError | None],
    ) -> None:
        self._pulls = pulls
        self._waiting_max = waiting_max
        self._register = register
        self._lines: dict[Group, Line] = {}
        self._deadlines = timers.timer(self._time_is_up, lambda pull: pull.session)
        self.waiting = 0  # pulls, of all groups

    def wait(self, group: Group, pull: Pull, deadline_ms: int | None) -> None:
        """Another session reads the group: stand by."""
        if self.waiting + self._pulls.count >= self._waiting_max:
            pull.settle(too_many_wait(self._waiting_max))
            return
        session, pull.group = pull.session, group
        pulls = self._lines.setdefault(group, {}).setdefault(session, {})
        older = [one for one in pulls if one.wants.replaces] if pull.wants.replaces else []
        pulls[pull] = deadline_ms
        self.waiting += 1
        if deadline_ms is not None:
            self._deadlines.set(pull, deadline_ms)
        session.groups = session.groups or {}
        session.groups[group] = None  # so that its leaving ends this, too
        for one in older:
            self._end(one, EmptyReason.REPLACED)

    def admit(self, group: Group) -> None:
        """The group may be free, or exclusive no more: the next may read it."""
        line = self._lines.get(group)
        while line and not (group.exclusive and group.readers):
            session = next((session for session in line if not session.leaving), None)
            if session is None:
                return
            pulls = line.pop(session)
            if not line:
                del self._lines[group]
            self._register(session, group)
            for pull, deadline_ms in pulls.items():
                self.waiting -= 1
                self._deadlines.discard(pull)
                self._pulls.add(group, pull, deadline_ms)

    def leave(
        self,
        session: Session,
        group: Group,
        reason: EmptyReason | BrokerError,
        most: int = maxsize,
    ) -> int:
        """The session stands by no more; at most that many of its pulls end. How many did."""
        pulls = list(islice(self._lines.get(group, {}).get(session, ()), most))
        for pull in pulls:
            self._end(pull, reason)
        return len(pulls)

    def end_all(self, group: Group, reason: EmptyReason | BrokerError) -> None:
        """End all sessions that wait to take this group over."""
        for session in list(self._lines.get(group, ())):
            self.leave(session, group, reason)

    def _time_is_up(self, pull: Pull) -> None:
        self._end(pull, EmptyReason.TAKEN)

    def _end(self, pull: Pull, reason: EmptyReason | BrokerError) -> None:
        """The pull ends with nothing."""
        group, session = pull.group, pull.session
        line = self._lines[group]
        del line[session][pull]
        self.waiting -= 1
        self._deadlines.discard(pull)
        if not line[session]:
            del line[session]
            if session.groups is not None and session not in group.readers:
                session.groups.pop(group, None)
            if not line:
                del self._lines[group]
        if session.closed:
            pull.drop()
        else:
            pull.settle(reason if isinstance(reason, BrokerError) else Empty(group, reason))

    def check(self) -> None:
        """Assert the invariants."""
        assert self.waiting == sum(len(p) for line in self._lines.values() for p in line.values())
        for group, line in self._lines.items():
            assert line
            assert group.exclusive
            assert group.readers or all(session.leaving for session in line)
            for session, pulls in line.items():
                assert pulls
                assert session not in group.readers
                assert group in (session.groups or ())
