"""The zbus dialect: from a request to a verb of the broker (specification, sections 3 and 5).

A head is planned once: URL and header are merged, numbers parsed, the command found. The plan
stays on the head, so that a head which comes again costs a dictionary look-up.
"""

from __future__ import annotations

import html
from collections.abc import Callable
from typing import TypeAlias

from zbus.core.broker import Broker
from zbus.core.outcomes import Routed
from zbus.faces.peer import Peer, Plan
from zbus.faces.zbus import consume, events, manage, page, produce, read
from zbus.faces.zbus.params import BadRequest, Params
from zbus.faces.zbus.replies import ZbusReply
from zbus.faces.zbus.settings import ZbusSettings
from zbus.wire.heads import Head, Heads
from zbus.wire.replies import encode_reply

Prepare: TypeAlias = "Callable[[ZbusFace, Params], Plan]"

COMMANDS: dict[bytes, Prepare] = {
    b"produce": produce.Produce,
    b"consume": events.prepare,
    b"unconsume": consume.Unconsume,
    b"ack": consume.Ack,
    b"route": produce.Route,
    b"declare": manage.Declare,
    b"query": manage.Query,
    b"server": manage.Query,
    b"remove": manage.Remove,
    b"empty": manage.Purge,
    b"read": read.Read,
    b"heartbeat": manage.Heartbeat,
    b"ping": manage.Ping,
    b"version": manage.Version,
    b"home": page.Home,
    b"icon": page.Icon,
}

MOUNTED: dict[bytes, tuple[bytes, int]] = {b"_log": (b"read", 1), b"favicon.ico": (b"icon", 1)}
"""First path segments with a meaning of their own: the command, and the segments to skip."""

HTML = b"content-type: text/html\r\n"

RESERVED = frozenset((b"queue", b"camellia", b"mq"))
"""First path segments of the other dialects; topics of these names are reached by headers."""


class ZbusFace:
    """See the module."""

    def __init__(self, broker: Broker, heads: Heads, settings: ZbusSettings) -> None:
        self.broker = broker
        self.heads = heads
        self.settings = settings
        self._info_version = settings.started_ms

    def next_info_version(self) -> int:
        """The number of one more document: clients ignore those that are not newer."""
        self._info_version = max(self._info_version + 1, self.broker.now_ms)
        return self._info_version

    def plan(self, head: Head) -> Plan:
        """What this head asks for. Never fails: a bad one is planned to be refused."""
        cmd, skip = b"", 0
        if head.target.startswith(b"/") and not (b"cmd" in head.fields or b"topic" in head.fields):
            first = head.target[1:].partition(b"?")[0].partition(b"/")[0]
            cmd, skip = MOUNTED.get(first, (b"", 0))
            if not cmd and (first.startswith(b"_") or first in RESERVED):
                text = f"404: there is nothing at /{first.decode('latin-1')} here"
                return Refuse(self, Params(head), BadRequest(404, text))
        params = Params(head, cmd, skip)
        try:
            prepare = COMMANDS.get(params.cmd)
            if prepare is None:
                name = params.cmd.strip(b"\0")[:40].decode("utf-8", "replace")
                text = f"Bad format: command({html.escape(name)}) not support"
                raise BadRequest(400, text, HTML)
            return prepare(self, params)
        except BadRequest as error:
            return Refuse(self, params, error)

    def push(self, peer: Peer, routed: Routed) -> None:
        """A routed message for somebody who has no open call of that id."""
        lines = b"id: %b\r\nsender: %b\r\n%b" % (
            routed.id,
            routed.sender,
            routed.message.headers,
        )
        peer.write(encode_reply(routed.status, lines, routed.message.body))


class Refuse:
    """A request that cannot be done as it stands."""

    def __init__(self, face: ZbusFace, params: Params, error: BadRequest) -> None:
        self._face = face
        self._params = params
        self._error = error
        # Who produces without wanting to know is told nothing at all, as in the original.
        self._quiet = params.cmd == b"produce" and not params.flag(b"ack", True)

    def run(self, peer: Peer, id: bytes, body: bytes) -> None:
        error = self._error
        reply = ZbusReply(self._face, self._params, peer, id, self._quiet)
        reply.tell(error.status, error.lines, error.text.encode())
