"""`health`, `metrics` and `stats`: how a broker does.

`health` needs no token: a supervisor or a load balancer asks, and the answer contains nothing of
topics. `stats` is JSON once, or again and again as server-sent events.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from zbus.core.api import Broker
from zbus.dialects.openmetrics import CONTENT_TYPE
from zbus.dialects.zbus.context import Context
from zbus.dialects.zbus.documents.info import encode_document
from zbus.dialects.zbus.documents.stats import Rows
from zbus.dialects.zbus.replies import JSON, Answered, NativeReply
from zbus.dialects.zbus.request.event_stream import (
    HEARTBEAT,
    only_head,
    open_stream,
    stream_problem,
    wants_events,
)
from zbus.dialects.zbus.request.params import BadRequest, Params
from zbus.dialects.zbus.schema.kinds import HEALTH_CHECKS
from zbus.edge.access import Bearer, Grant
from zbus.edge.connection import Connection
from zbus.protocol.documents import Health
from zbus.protocol.parameters import STATS_INTERVAL_MS_MIN
from zbus.wire.target import split_target


def check_of(params: Params) -> str:
    """Which check is asked for, by its name."""
    check = params.text(b"check")
    if check is None:
        segments = split_target(params.head.target)[0]
        check = segments[1].decode("utf-8", "replace") if len(segments) > 1 else "ready"
    return check


def health(dialect: Context, params: Params) -> Answered:
    """The plan of a check."""
    check = check_of(params)
    if check not in HEALTH_CHECKS:
        known = " or ".join(f"/_health/{name}" for name in HEALTH_CHECKS)
        raise BadRequest(404, f"404: unknown health check; use {known}")
    return Answered(_live if check == "live" else _ready, dialect, params)


def _live(reply: NativeReply) -> None:
    _tell(reply, [])


def _ready(reply: NativeReply) -> None:
    reasons = unready(reply.dialect.broker)
    running = reply.dialect.settings.running
    if running is not None and running.cluster is not None and not running.cluster.hears:
        reasons.append("this node hears of no other process of its cluster")
    _tell(reply, reasons)


def _tell(reply: NativeReply, reasons: list[str]) -> None:
    document = Health(status="failing" if reasons else "ok", reasons=reasons)
    reply.respond(503 if reasons else 200, JSON, msgspec.json.encode(document))


def unready(broker: Broker) -> list[str]:
    """Why the broker should be given no new work."""
    reasons = []
    if broker.stopping:
        reasons.append("the broker is stopping")
    if (refusing := broker.refusing()) is not None:
        reasons.append(refusing.text)
    return reasons


def scrape(reply: NativeReply) -> None:
    """`metrics`: what was made a moment ago, or it is made now."""
    peer = reply.peer
    known = reply.dialect.metrics.known(peer.grant)
    if known is not None:
        reply.respond_raw(CONTENT_TYPE, known)
    else:
        peer.begin(_scraped(reply, peer.grant))


def _scraped(reply: NativeReply, grant: Grant | None) -> Iterator[int]:
    dialect = reply.dialect
    text = yield from dialect.metrics.make(dialect.stats.rows(grant), grant)
    reply.respond_raw(CONTENT_TYPE, text)


class Report:
    """`stats`. A stream begins with all there is (`stats`) and goes on with what has changed
    (`delta`); who comes again gets all again, so nothing can be missed."""

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
