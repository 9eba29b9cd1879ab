"""A session leaves: what it waits for ends, and it reads no more. What it holds of groups that want
that is given back.

It may have a thousand pulls in as many groups, and a hundred such sessions may go at once. So the
end is in parts, each of which costs no more than it ends, and whoever can bound a turn asks for a
part at a time. To a session that is closed nothing is said.
"""

from __future__ import annotations

from collections import OrderedDict
from functools import partial
from itertools import islice
from sys import maxsize
from typing import Protocol

from zbus.core.delivery.dispatch import Dispatch
from zbus.core.delivery.retries import give_back
from zbus.core.delivery.standby import Standbys
from zbus.core.fanout.follow import FanOut
from zbus.core.model.containment import Containment
from zbus.core.model.errors import BrokerError
from zbus.core.model.ticket import Silent, Ticket
from zbus.core.topics.calls import Calls
from zbus.core.topics.changes import Changes
from zbus.core.topics.outcomes import EmptyReason
from zbus.core.topics.topic import Group, Session

ORPHAN_MS = 10_000
"""How long a temporary group waits for a reader after a restart of the broker."""


class Verbs(Protocol):
    """What the broker knows of sessions, and does with groups."""

    sessions: dict[bytes, Session]
    calls: Calls
    changes: Changes
    dispatch: Dispatch
    following: FanOut
    standbys: Standbys
    faults: Containment
    now_ms: int

    def remove_group(self, ticket: Ticket, group: Group) -> None: ...


def leave(broker: Verbs, session: Session, most: int) -> bool:
    """`Broker.leave`."""
    if not session.leaving:
        session.leaving = True
        broker.sessions.pop(session.id, None)
        guard = broker.faults.guard  # whatever goes wrong, the rest of it ends
        if session.follower is not None:
            guard(partial(broker.following.leave, session))
        for left in session.left:
            guard(partial(left, session))
    most -= broker.calls.drop(session.id, most, told=not session.closed)
    most -= broker.calls.end_taken(session, most)
    groups = session.groups or {}
    while groups and most > 0:
        group = next(iter(groups))
        try:
            most -= _end_pulls(broker, session, group, EmptyReason.LEFT, most)
            if most > 0:
                _forget(broker, session, group)
                most -= 1
        except Exception as error:
            groups.pop(group, None)
            group.readers.pop(session, None)
            broker.faults.quarantine(group, error)
    while session.held and most > 0:
        group = next(iter(session.held))
        try:
            count = give_back(broker.dispatch, session, group, most)
        except Exception as error:
            count = 0
            broker.faults.quarantine(group, error)
        most -= count or 1
        if not count:
            session.held.pop(group, None)
    return most > 0


def leave_group(
    broker: Verbs,
    session: Session,
    group: Group,
    reason: EmptyReason | BrokerError,
    stay: bool,
) -> None:
    """`Broker.leave_group`."""
    _end_pulls(broker, session, group, reason, maxsize)
    if not stay:
        _forget(broker, session, group)


def _forget(broker: Verbs, session: Session, group: Group) -> None:
    """The session is no reader any more."""
    if session.groups is not None:
        session.groups.pop(group, None)
    if session in group.readers:
        del group.readers[session]
        broker.changes.note(broker.now_ms)
        broker.standbys.admit(group)
    if not group.waiting:
        group.waiting = OrderedDict()  # one that was large keeps its room
    if group.temporary and group.had_reader and not group.readers:
        broker.remove_group(Silent(), group)


def _end_pulls(
    broker: Verbs, session: Session, group: Group, reason: EmptyReason | BrokerError, most: int
) -> int:
    """So many of those of a session in a group; how many there were of them."""
    count = broker.standbys.leave(session, group, reason, most)
    first = group.pull_of(session)
    if first is not None and count < most:
        broker.dispatch.end(first, reason)
        count += 1
    beside = session.pulls.get(group) if session.pulls else None
    for pull in list(islice(beside, most - count)) if beside else ():
        broker.dispatch.end(pull, reason)
        count += 1
    return count
