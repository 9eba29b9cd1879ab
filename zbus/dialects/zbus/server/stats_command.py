"""`stats`: how a broker does, once as JSON, or again and again as server-sent events.

A stream begins with all there is (`stats`) and goes on with what has changed (`delta`); who comes
again gets all again, so nothing can be missed.
"""

from __future__ import annotations

from collections.abc import Iterator

from zbus.dialects.zbus.context import Context
from zbus.dialects.zbus.documents.info import encode_document
from zbus.dialects.zbus.documents.stats import Rows
from zbus.dialects.zbus.replies import JSON, NativeReply
from zbus.dialects.zbus.request.event_stream import (
    HEARTBEAT,
    only_head,
    open_stream,
    stream_problem,
    wants_events,
)
from zbus.dialects.zbus.request.params import Params
from zbus.edge.access import Bearer, Grant
from zbus.edge.connection import Connection
from zbus.protocol.parameters import STATS_INTERVAL_MS_MIN


class Report:
    """Plan of the command."""

    __slots__ = ("_dialect", "_events", "_interval_ms", "_params", "_topics")

    def __init__(self, dialect: Context, params: Params) -> None:
        self._dialect = dialect
        self._params = params
        interval_ms = params.duration(b"interval")
        self._interval_ms = interval_ms or STATS_INTERVAL_MS_MIN
        self._topics = params.switch(b"topics") is not False
        self._events = wants_events(params)

    def run(self, peer: Connection, id: bytes, body: bytes) -> None:
        dialect, params = self._dialect, self._params
        rows = dialect.stats.rows(peer.grant)
        if not self._events:
            reply = NativeReply(dialect, params, peer, id)
            peer.begin(self._once(reply, rows, peer.grant))
        elif (problem := stream_problem(peer)) is not None:
            NativeReply(dialect, params, peer, id).respond(
                problem.status, body=problem.text.encode()
            )
        else:
            id = id or params.id or dialect.broker.new_id()
            if not only_head(peer, params, id):
                peer.begin(self._stream(peer, id, rows, peer.asker))

    def _once(self, reply: NativeReply, rows: Rows, grant: Grant | None) -> Iterator[int]:
        yield from rows.all()
        document = self._dialect.stats.document(rows, grant)
        if self._topics:
            document["topics"] = rows.table()
        reply.respond_raw(JSON, encode_document(document))

    def _stream(
        self, peer: Connection, id: bytes, rows: Rows, asker: Bearer | None
    ) -> Iterator[int]:
        yield from rows.all()
        peer.begin_stream(HEARTBEAT)
        open_stream(peer, self._params, id)
        self._dialect.stats.follow(peer, rows, asker, self._interval_ms, self._topics)
