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
from zbus.faces.access import Access
from zbus.faces.guard import Answer, Guard
from zbus.faces.native import (
    consume,
    events,
    guarded,
    leases,
    login,
    manage,
    openapi,
    page,
    produce,
    read,
    track,
)
from zbus.faces.native.json_frames import encode_json
from zbus.faces.native.params import ALLOW, LOOKING, BadRequest, Params
from zbus.faces.native.reloads import Reloads
from zbus.faces.native.replies import NativeReply, status_of
from zbus.faces.native.settings import NativeSettings
from zbus.faces.peer import Peer, Plan
from zbus.wire.heads import Head, Heads
from zbus.wire.replies import encode_reply

Prepare: TypeAlias = "Callable[[NativeFace, Params], Plan]"

COMMANDS: dict[bytes, Prepare] = {
    b"produce": produce.Produce,
    b"consume": events.prepare,
    b"unconsume": consume.Unconsume,
    b"ack": leases.Ack,
    b"nack": leases.Nack,
    b"extend": leases.Extend,
    b"route": produce.Route,
    b"declare": manage.Declare,
    b"query": manage.Query,
    b"server": manage.Query,
    b"tracker": track.Tracker,
    b"track_sub": track.Follow,
    b"track_pub": track.Report,
    b"ssl": track.Ssl,
    b"remove": manage.Remove,
    b"empty": manage.Purge,
    b"read": read.Read,
    b"heartbeat": manage.Heartbeat,
    b"ping": manage.Ping,
    b"version": manage.Version,
    b"home": page.Home,
    b"icon": page.Icon,
    b"openapi": openapi.Describe,
    b"login": login.Login,
    b"logout": login.Logout,
}

READS = frozenset(
    (
        *(b"query", b"server", b"read", b"heartbeat", b"ping", b"version", b"home", b"icon"),
        *(b"tracker", b"ssl", b"openapi"),
    )
)
"""Commands that change nothing, whoever has a browser send them."""

MOUNTED: dict[bytes, tuple[bytes, int]] = {
    b"_log": (b"read", 1),
    b"_openapi.json": (b"openapi", 1),
    b"favicon.ico": (b"icon", 1),
}
"""First path segments with a meaning of their own: the command, and the segments to skip."""

HTML = b"content-type: text/html\r\n"

RESERVED = frozenset((b"queue", b"camellia", b"mq"))
"""First path segments of the other dialects; topics of these names are reached by headers."""


def first_segment(head: Head) -> bytes:
    """Of the path, as it is written."""
    return head.target[1:].partition(b"?")[0].partition(b"/")[0]


class NativeFace:
    """See the module."""

    def __init__(
        self,
        broker: Broker,
        heads: Heads,
        settings: NativeSettings,
        access: Access | None = None,
        guard: Guard | None = None,
    ) -> None:
        """Without a table of tokens everybody may everything."""
        self.broker = broker
        self.heads = heads
        self.settings = settings
        self.access = access
        self.guard = guard or Guard()
        self.reloads = Reloads(settings.reload_window_ms)
        self.tracking = track.Tracking(broker, settings)

    def plan(self, head: Head) -> Plan:
        """What this head asks for. Never fails: a bad one is planned to be refused."""
        params, stray = self._read(head)
        if stray:
            text = f"404: there is nothing at /{stray.decode('latin-1')} here"
            return Refuse(self, params, BadRequest(404, text))
        plan = self._prepare(params)
        if self.access is None or params.cmd in guarded.FREE:
            return plan
        return guarded.Guarded(self, self.access, params, plan)

    def _prepare(self, params: Params) -> Plan:
        try:
            prepare = COMMANDS.get(params.cmd)
            if prepare is None:
                name = params.cmd.strip(b"\0")[:40].decode("utf-8", "replace")
                text = f"Bad format: command({html.escape(name)}) not support"
                raise BadRequest(400, text, HTML)
            if params.only_looks and params.cmd not in READS and params.cmd != b"produce":
                raise BadRequest(405, LOOKING, ALLOW)
            return prepare(self, params)
        except BadRequest as error:
            return Refuse(self, params, error)

    def admit(self, peer: Peer, head: Head) -> str:
        """A connection opens with this head (a WebSocket's handshake): its token counts for all
        requests on it that show none of their own. Returns why it is refused, or ""."""
        if self.access is None:
            return ""
        token = guarded.token_of(Params(head), self.settings.allow_url_token)
        if isinstance(token, str):
            return token
        if token is not None:
            peer.bearer = self.access.of_token(token)
            if not peer.bearer.is_known(self.broker.now_ms):
                return "this token is not known"
        elif self.guard.is_anybodys(head):
            peer.bearer = self.access.anonymous
        return ""

    def upkeep(self) -> None:
        """To be called about once a second, and after a change of the table of tokens: who may not
        read a group any more is no reader of it."""
        if self.access is not None and self.access.lapsed(self.broker.now_ms):
            guarded.expel(self, self.access)

    def changes(self, head: Head) -> bool:
        """Whether this head asks for more than looking."""
        params, stray = self._read(head)
        if params.cmd == b"login":
            return head.method != b"GET"  # the form, and the token that was written into it
        return not stray and params.cmd not in READS

    def answer(self, head: Head, answer: Answer) -> Plan:
        """Answer this, whatever the head asks for."""
        params, _ = self._read(head)
        return Refuse(self, params, BadRequest(answer.status, answer.text, answer.lines))

    def _read(self, head: Head) -> tuple[Params, bytes]:
        """The request; and the first segment of its path if that is reserved, yet leads nowhere."""
        cmd, skip, stray = b"", 0, b""
        if head.target.startswith(b"/") and not (b"cmd" in head.fields or b"topic" in head.fields):
            first = first_segment(head)
            cmd, skip = MOUNTED.get(first, (b"", 0))
            if not cmd and (first.startswith(b"_") or first in RESERVED):
                stray = first
        params = Params(head, cmd, skip)
        params.browser = None if head.contained else self.guard.browser(head)
        if params.browser is not None:
            params.plain = False
        return params, stray

    def push(self, peer: Peer, routed: Routed) -> None:
        """A routed message for somebody who has no open call of that id."""
        lines = b"id: %b\r\nsender: %b\r\n%b" % (
            routed.id,
            routed.sender,
            routed.headers,
        )
        json = peer.framing is not None and peer.framing.json
        encode = encode_json if json else encode_reply
        peer.write(encode(status_of(routed), lines, routed.body))


class Refuse:
    """A request that cannot be done as it stands."""

    def __init__(self, face: NativeFace, params: Params, error: BadRequest) -> None:
        self._face = face
        self._params = params
        self._error = error
        # Who produces without wanting to know is told nothing at all, as in the original.
        self._quiet = params.cmd == b"produce" and not params.flag(b"ack", True)

    def run(self, peer: Peer, id: bytes, body: bytes) -> None:
        error = self._error
        reply = NativeReply(self._face, self._params, peer, id, self._quiet)
        reply.tell(error.status, error.lines, error.text.encode())
