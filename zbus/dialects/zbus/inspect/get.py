"""`get`: the newest message of a key, of a compact topic. Nothing changes by it."""

from __future__ import annotations

from zbus.core.api import ONE, topic_unknown
from zbus.dialects.zbus.context import Context
from zbus.dialects.zbus.messages.pull_tickets import (
    PEEK_BYTES,
    PLACE_BYTES_MAX,
    PeekReply,
    lines_bytes_max,
)
from zbus.dialects.zbus.replies import NativeReply
from zbus.dialects.zbus.request.params import Params
from zbus.dialects.zbus.request.stored import check_labels
from zbus.edge.connection import Connection

_TOO_MANY_WAIT = b"429: too many open calls and pulls on this connection"


class Get:
    """The reply is that of a consume at an offset."""

    def __init__(self, dialect: Context, params: Params) -> None:
        self.dialect = dialect
        self.broker = dialect.broker
        self.params = params
        self.key = params.fields.get(b"key", b"")
        check_labels(b"", self.key)
        self.wants, self.container = ONE, b""
        self.timeout_ms: int | None = None
        self.lines_bytes_max = lines_bytes_max(dialect, params)
        self.plain_bytes_max = self.lines_bytes_max - PLACE_BYTES_MAX

    def run(self, peer: Connection, id: bytes, body: bytes) -> None:
        topic = self.broker.topic(self.params.topic)
        if topic is None:
            reply = NativeReply(self.dialect, self.params, peer, id)
            reply.settle(topic_unknown(self.params.topic))
        elif peer.open_waits >= self.dialect.settings.tickets_per_connection_max:
            NativeReply(self.dialect, self.params, peer, id).respond(429, body=_TOO_MANY_WAIT)
        else:
            ticket = PeekReply(self, peer, id)
            peer.held_bytes += PEEK_BYTES
            self.broker.get(ticket, topic.partition_for(self.key), self.key)
