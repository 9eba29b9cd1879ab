"""A session leaves: what it waits for ends, and it reads no more. What it holds of groups that want
that is given back.

It may have a thousand pulls in as many groups, and a hundred such sessions may go at once. So the
end is in parts, each of which costs no more than it ends, and a caller that bounds its turns asks
for a part at a time. A closed session gets no answer.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from itertools import islice
from sys import maxsize

from zbus.core.delivery.pulls import WaitingPulls
from zbus.core.delivery.retries import give_back
from zbus.core.delivery.standby import Standbys
from zbus.core.model.errors import BrokerError
from zbus.core.model.ticket import Silent, Ticket
from zbus.core.topics.calls import Calls
from zbus.core.topics.changes import Changes
from zbus.core.topics.outcomes import EmptyReason
from zbus.core.topics.topic import Group, Session

ORPHAN_MS = 10_000
"""How long a temporary group waits for a reader after a restart of the broker."""


class Departures:
    """Ends what sessions wait for, hold and read."""

    def __init__(
        self,
        sessions: dict[bytes, Session],
        calls: Calls,
        changes: Changes,
        pulls: WaitingPulls,
        standbys: Standbys,
        remove_group: Callable[[Ticket, Group], None],
    ) -> None:
        self._sessions = sessions
        self._calls = calls
        self._changes = changes
        self._pulls = pulls
        self._runs = pulls.runs
        self._standbys = standbys
        self._remove_group = remove_group
        self._faults = pulls.runs.tick.faults

    def leave(self, session: Session, most: int) -> bool:
        """`Broker.leave`."""
        guard = self._faults.guard  # whatever goes wrong, the rest of it ends
        begins = not session.leaving
        if begins:
            session.leaving = True
            self._sessions.pop(session.id, None)
            if session.follower is not None:
                guard(partial(self._runs.following.leave, session))
        if session.left and (begins or session.closed):
            calls, session.left = session.left, ()
            for left in calls:
                guard(partial(left, session))
        most -= self._calls.drop(session.id, most, informed=not session.closed)
        most -= self._calls.end_taken(session, most)
        groups = session.groups or {}
        while groups and most > 0:
            group = next(iter(groups))
            try:
                most -= self._end_pulls(session, group, EmptyReason.LEFT, most)
                if most > 0:
                    self._forget(session, group)
                    most -= 1
            except Exception as error:
                groups.pop(group, None)
                group.readers.pop(session, None)
                self._faults.quarantine(group, error)
        while session.held and most > 0:
            group = next(iter(session.held))
            try:
                count = give_back(self._runs, session, group, most)
            except Exception as error:
                count = 0
                self._faults.quarantine(group, error)
            most -= count or 1
            if not count:
                session.held.pop(group, None)
        return most > 0

    def leave_group(
        self,
        session: Session,
        group: Group,
        reason: EmptyReason | BrokerError = EmptyReason.LEFT,
        *,
        stay: bool = False,
    ) -> None:
        """The session reads this group no more; its pulls there end with the reason. With `stay`
        only the pulls end."""
        self._end_pulls(session, group, reason, maxsize)
        if not stay:
            self._forget(session, group)

    def _forget(self, session: Session, group: Group) -> None:
        """The session is no reader any more."""
        if session.groups is not None:
            session.groups.pop(group, None)
        if session in group.readers:
            del group.readers[session]
            self._changes.note(self._runs.tick.now_ms)
            self._standbys.admit(group)
        if not group.waiting:
            group.waiting = OrderedDict()  # one that was large keeps its room
        if group.temporary and group.had_reader and not group.readers:
            self._remove_group(Silent(), group)

    def _end_pulls(
        self, session: Session, group: Group, reason: EmptyReason | BrokerError, most: int
    ) -> int:
        """This many of those of a session in a group; how many there were of them."""
        count = self._standbys.leave(session, group, reason, most)
        first = group.pull_of(session)
        if first is not None and count < most:
            self._pulls.end(first, reason)
            count += 1
        beside = session.pulls.get(group) if session.pulls else None
        for pull in list(islice(beside, most - count)) if beside else ():
            self._pulls.end(pull, reason)
            count += 1
        return count
