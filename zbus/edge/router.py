"""Where every request comes in: what holds for all dialects is decided here, then whose it is.

    whose path -> what it asks for -> browser guard -> WebSocket, or rights -> plan
                     -> and for which client, where a trusted proxy sends it

A dialect never sees a request by another way, so none can forget the guard or the rights.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from zbus.core.topics.outcomes import Routed
from zbus.edge.connection import Connection, Plan
from zbus.edge.dialect import Dialect, Report, first_segment
from zbus.edge.guard import Answer, Guard
from zbus.edge.parsed_request import ParsedRequest
from zbus.edge.places import HowKnown, Place
from zbus.edge.proxies import Proxies
from zbus.edge.rights import Rights
from zbus.edge.shape_plans import learn
from zbus.edge.websocket import plan_upgrade
from zbus.wire.heads.heads import Head


class RouterRules:
    """The planner of one dialect, and of the WebSockets that it opened. A frame on these that one
    of the `guests` claims by its fields is that one's, unless it is JSON."""

    def __init__(
        self, dialect: Dialect, guard: Guard, rights: Rights, guests: Sequence[Dialect] = ()
    ) -> None:
        self.dialect = dialect
        self._guests = guests
        self._guard = guard
        self._rights = rights

    def plan(self, head: Head) -> Plan:
        """What this head asks for. Never fails: a bad one is planned to be refused."""
        rights = self._rights
        if head.contained:  # the head of the connection was asked the rest
            plan = rights.wrap(head, self.owner(head).read(head))
            learn(head, plan)
            return plan
        asked = self.dialect.read(head)
        answer = self._guard.check(head, asked.changes, self.dialect.policy)
        if answer is not None:
            return asked.refuse(answer)
        if head.websocket and (codec := asked.opens()) is not None:
            any_key = self.dialect.policy.any_key
            return plan_upgrade(
                head, self, codec, lambda peer: rights.admit(peer, head, asked), any_key
            )
        return rights.wrap(head, asked)

    def plan_unread(self, head: Head) -> Plan | None:
        """What is to be done for a head whose body is too long to be read."""
        asked = (self.owner(head) if head.contained else self.dialect).read(head)
        plan = asked.plan_unread()
        if plan is None:
            return None
        if not head.contained and self._guard.check(head, asked.changes, self.dialect.policy):
            return None
        return self._rights.wrap(head, asked, plan)

    def refuse(self, head: Head, answer: Answer) -> Plan:
        """How this answer is given instead, to those who may do what is asked."""
        asked = (self.owner(head) if head.contained else self.dialect).read(head)
        if not head.contained:
            answer = self._guard.check(head, asked.changes, self.dialect.policy) or answer
        return self._rights.wrap(head, asked, asked.refuse(answer))

    def owner(self, head: Head) -> Dialect:
        """Whose a frame is."""
        found = (guest for guest in self._guests if not head.json and guest.claims(head))
        return next(found, self.dialect)

    def push(self, peer: Connection, routed: Routed) -> bool:
        return self.dialect.push(peer, routed)


class Router:
    """The planner of a broker's connections."""

    def __init__(
        self, dialects: Mapping[str, Dialect], guard: Guard, rights: Rights, proxies: Proxies
    ) -> None:
        """The dialect without prefixes gets what no other claims."""
        self.dialects = dialects
        self._proxies = proxies
        self.rights = rights
        framed = [dialect for dialect in dialects.values() if dialect.policy.mark]
        self._edges = edges = [
            RouterRules(dialect, guard, rights, () if dialect.prefixes else framed)
            for dialect in dialects.values()
        ]
        [self._others] = [edge for edge in edges if not edge.dialect.prefixes]
        self._by_prefix = {prefix: edge for edge in edges for prefix in edge.dialect.prefixes}

    def plan(self, head: Head) -> Plan:
        """What this head asks for. Never fails: a bad one is planned to be refused."""
        plan = self._proxies.wrap(head, self._edge_of(head).plan(head))
        learn(head, plan)
        return plan

    def plan_unread(self, head: Head) -> Plan | None:
        """What is to be done for a head whose body is too long to be read."""
        return self._edge_of(head).plan_unread(head)

    def refuse(self, head: Head, answer: Answer, handshake: Head | None = None) -> Plan:
        """How this answer is given instead, in the dialect, to those who may do what is asked. It
        may be a message of a WebSocket that was opened with a handshake."""
        plan = self._edge_of(handshake or head).refuse(head, answer)
        return plan if head.contained else self._proxies.wrap(head, plan)

    def place(self, head: Head, handshake: Head | None = None) -> tuple[Place, HowKnown]:
        """Where it is done, if there are several workers, and how its replies are known. It may be
        a message of a WebSocket that was opened with a handshake."""
        asked = self._read(head, handshake)
        return asked.place(), asked.replies()

    def _read(self, head: Head, handshake: Head | None) -> ParsedRequest:
        if handshake is None:
            return self._edge_of(head).dialect.read(head)
        return self._edge_of(handshake).owner(head).read(head)

    def _edge_of(self, head: Head) -> RouterRules:
        for edge in self._edges:
            if edge.dialect.claims(head):
                return edge
        return self._by_prefix.get(first_segment(head), self._others)

    def push(self, peer: Connection, routed: Routed) -> bool:
        """Send a message that no request on this connection waits for; False if that cannot be."""
        return self._others.push(peer, routed)

    def reports(self) -> list[Report]:
        """Reports to other servers, as long as the broker runs."""
        return [report for dialect in self.dialects.values() for report in dialect.reports()]

    def holds(self) -> dict[str, Callable[[], int]]:
        """What the dialects keep in memory beside messages, by kind: how to ask for bytes."""
        return {
            kind: ask for dialect in self.dialects.values() for kind, ask in dialect.holds().items()
        }

    def upkeep(self) -> None:
        """To be called about once a second, and after a change of the table of tokens."""
        self.rights.upkeep()
        for dialect in self.dialects.values():
            dialect.upkeep()
