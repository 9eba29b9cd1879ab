"""Where every request comes in: what holds for all dialects is decided here, then whose it is."""

from __future__ import annotations

from zbus.core.outcomes import Routed
from zbus.faces.peer import Peer, Plan
from zbus.faces.websocket import RefuseUpgrade, plan_upgrade
from zbus.faces.zbus.face import RESERVED, ZbusFace, first_segment
from zbus.wire.errors import WireError
from zbus.wire.heads import Head


class Admit:
    """Plan of a handshake where there are tokens: with one that is worth nothing it is refused."""

    def __init__(self, zbus: ZbusFace, head: Head, plan: Plan) -> None:
        self._zbus = zbus
        self._head = head
        self._plan = plan

    def run(self, peer: Peer, id: bytes, body: bytes) -> None:
        why = self._zbus.admit(peer, self._head)
        plan = RefuseUpgrade(WireError(403, why)) if why else self._plan
        plan.run(peer, id, body)


class Front:
    """The planner of a broker's connections."""

    def __init__(self, zbus: ZbusFace) -> None:
        self._zbus = zbus

    def plan(self, head: Head) -> Plan:
        """What this head asks for. Never fails: a bad one is planned to be refused."""
        if head.websocket and first_segment(head) not in RESERVED:
            plan = plan_upgrade(head, self._zbus.heads, self)
            return plan if self._zbus.access is None else Admit(self._zbus, head, plan)
        return self._zbus.plan(head)

    def push(self, peer: Peer, routed: Routed) -> None:
        """Tell a message that nobody on this connection has asked for."""
        self._zbus.push(peer, routed)
