"""Where every request comes in: what holds for all dialects is decided here, then whose it is."""

from __future__ import annotations

from zbus.core.outcomes import Routed
from zbus.faces.native.face import POLICY, RESERVED, NativeFace, first_segment
from zbus.faces.pages import PREFIX, Pages
from zbus.faces.peer import Peer, Plan
from zbus.faces.websocket import plan_upgrade
from zbus.wire.heads import Head


class Front:
    """The planner of a broker's connections."""

    def __init__(self, zbus: NativeFace, pages: Pages | None = None) -> None:
        self._zbus = zbus
        self._pages = pages

    def plan(self, head: Head) -> Plan:
        """What this head asks for. Never fails: a bad one is planned to be refused."""
        if not head.contained:  # else the head of the connection was asked
            answer = self._zbus.guard.check(head, self._zbus.changes, POLICY)
            if answer is not None:
                return self._zbus.answer(head, answer)
            if self._pages is not None and first_segment(head) == PREFIX:
                return self._pages.plan(head)
        if head.websocket and first_segment(head) not in RESERVED:
            return plan_upgrade(head, self._zbus.heads, self._zbus.admit)
        return self._zbus.plan(head)

    def push(self, peer: Peer, routed: Routed) -> None:
        """Tell a message that nobody on this connection has asked for."""
        self._zbus.push(peer, routed)
