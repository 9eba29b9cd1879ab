"""`route`: a message straight to a session, mostly the answer to its call (specification, sections
5.9 and 8).

What is over a limit is not passed on. The router is refused, and the caller that waits for it has
an error in its place at once: neither of them could find out otherwise.
"""

from __future__ import annotations

from zbus.core.api import Routed, Silent
from zbus.dialects.zbus.context import Context
from zbus.dialects.zbus.replies import TEXT, NativeReply, Status
from zbus.dialects.zbus.request.header_lines import routed_lines
from zbus.dialects.zbus.request.params import BadRequest, Params
from zbus.dialects.zbus.request.stored import check_lines
from zbus.edge.connection import Connection

_BAD_GATEWAY = Status(502)


class Route:
    """Plan of a route: never answered, unless the router asks with an explicit `ack` or has sent
    too much."""

    def __init__(self, dialect: Context, params: Params) -> None:
        self._dialect = dialect
        self._params = params
        self._quiet = not params.flag(b"ack")
        self._recver = params.fields.get(b"recver", b"")
        own = routed_lines(params.fields, params.head.contained)
        self._refused: BadRequest | None = None  # more lines than a message may have
        try:
            check_lines(own, dialect.settings.message_headers_bytes_max)
        except BadRequest as error:
            self._refused = BadRequest(error.status, error.text)
        self._lines = params.topic_line + b"".join(own.values())
        status = params.fields.get(b"origin_status", b"200")
        # A 1xx would not end the caller's wait, and break the framing of its connection.
        valid = len(status) == 3 and status.isdigit() and status[:1] != b"1" and status >= b"200"
        self._status = Status(status) if valid else Status(500)

    def run(self, peer: Connection, id: bytes, body: bytes) -> None:
        dialect = self._dialect
        if len(body) > dialect.broker.limits.message_bytes_max:
            ticket = NativeReply(dialect, self._params, peer, id)
            _notify_receiver(dialect, self._params, peer, ticket.id)
            ticket.settle(dialect.broker.too_large())
            return
        if (refused := self._refused) is not None:
            ticket = NativeReply(dialect, self._params, peer, id)
            _notify_receiver(dialect, self._params, peer, ticket.id)
            ticket.respond(refused.status, refused.lines, refused.text.encode())
            return
        host = b"host: %b\r\n" % dialect.settings.address.encode()
        ticket = NativeReply(dialect, self._params, peer, id, self._quiet)
        code = self._status
        routed = Routed(ticket.id, peer.id, self._lines + host, body, code >= 400, code)
        dialect.broker.route(ticket, self._recver, routed)


class Unread:
    """Plan of a route whose body a connection does not read. Its router is refused already."""

    def __init__(self, dialect: Context, params: Params) -> None:
        self._dialect = dialect
        self._params = params

    def run(self, peer: Connection, id: bytes, body: bytes) -> None:
        if id := id or self._params.id:
            _notify_receiver(self._dialect, self._params, peer, id)


def _notify_receiver(dialect: Context, params: Params, peer: Connection, id: bytes) -> None:
    """It gets this in place of what was too large."""
    text = b"502: the service's reply is too large to be passed on"
    routed = Routed(id, peer.id, params.topic_line + TEXT, text, True, _BAD_GATEWAY)
    dialect.broker.route(Silent(), params.fields.get(b"recver", b""), routed)
