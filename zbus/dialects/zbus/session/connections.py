"""`connections` and `disconnect`: who is connected, and the end of it. Both are for those who may
see everything: a connection may have to do with any topic."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec

from zbus.dialects.zbus.context import Context
from zbus.dialects.zbus.replies import JSON, NativeReply, forbidden_text
from zbus.dialects.zbus.request.params import BadRequest, Params
from zbus.dialects.zbus.settings import Running
from zbus.edge.connection import Connection
from zbus.protocol import documents

_COUNT_DEFAULT = 100
_READS_MAX = 100
"""Groups that are listed of one connection."""

_ROW_WORK = 10

_json = msgspec.json.Encoder().encode


class Connections:
    """Plan of the list."""

    __slots__ = ("_after", "_count", "_dialect", "_params")

    def __init__(self, dialect: Context, params: Params) -> None:
        self._dialect = dialect
        self._params = params
        count = params.number(b"count")
        if count == 0:
            raise BadRequest(400, "400: Bad Format, count is at least 1")
        self._count = count or _COUNT_DEFAULT
        self._after = params.fields.get(b"after", b"")

    def run(self, peer: Connection, id: bytes, body: bytes) -> None:
        reply = NativeReply(self._dialect, self._params, peer, id)
        if not _sees_everything(peer):
            reply.respond(403, body=_forbidden("connections"))
            return
        peer.begin(self._list(reply))

    def _list(self, reply: NativeReply) -> Iterator[int]:
        broker, running = self._dialect.broker, self._dialect.settings.running
        ids = sorted(id for id in broker.sessions if id > self._after)
        yield len(ids) // 20
        rows = []
        for id in ids[: self._count]:
            peer = broker.sessions.get(id)
            if isinstance(peer, Connection):  # it may have gone meanwhile
                rows.append(_json(describe(peer, running, broker.now_ms)))
                yield _ROW_WORK
        lines = JSON + b"count: %d\r\n" % len(rows)
        if len(ids) > self._count:
            lines += b"next: %b\r\n" % ids[self._count - 1]
        reply.respond_raw(lines, b"[%b]" % b",".join(rows))


class Disconnect:
    """Plan of the end."""

    __slots__ = ("_dialect", "_id", "_params")

    def __init__(self, dialect: Context, params: Params) -> None:
        self._dialect = dialect
        self._params = params
        self._id = params.fields.get(b"session", b"")
        if not self._id:
            raise BadRequest(400, "400: Bad Format, Missing session")

    def run(self, peer: Connection, id: bytes, body: bytes) -> None:
        dialect = self._dialect
        reply = NativeReply(dialect, self._params, peer, id)
        running, other = dialect.settings.running, dialect.broker.sessions.get(self._id)
        if not _sees_everything(peer):
            reply.respond(403, body=_forbidden("disconnect"))
        elif running is None or not isinstance(other, Connection):
            name = self._id[:100].decode("utf-8", "replace")
            reply.respond(404, body=f"404: Connection({name}) Not Found".encode())
        else:
            running.disconnect(other)
            reply.respond(200, body=b"%d" % dialect.broker.now_ms)


def describe(peer: Connection, running: Running | None, now_ms: int) -> documents.Connection:
    """One connection, as it is told."""
    kind: Literal["http", "websocket", "events"] = "http"
    if peer.framing is not None:
        kind = "websocket"
    elif peer.heartbeat is not None:
        kind = "events"
    traffic = None if running is None else running.traffic(peer)
    bearer = peer.bearer or peer.asker
    groups = list(peer.groups or ())[:_READS_MAX]
    return documents.Connection(
        id=peer.id.decode("utf-8", "replace"),
        address="/" + peer.address,
        kind=kind,
        tls=peer.secure,
        open_requests=peer.open_tickets,
        waiting_requests=peer.open_waits,
        held_bytes=peer.held_bytes + peer.out_bytes,
        stalled=peer.stalled,
        idle_ms=None if running is None else running.idle_ms(peer),
        in_bytes=None if traffic is None else traffic.in_bytes,
        out_bytes=None if traffic is None else traffic.out_bytes,
        since=None if traffic is None else now_ms - traffic.age_ms,
        principal=peer.principal,
        user="" if bearer is None else bearer.grant.name,
        reads=[documents.Reads(topic=each.topic.name, group=each.name) for each in groups],
    )


def _sees_everything(peer: Connection) -> bool:
    grant = peer.grant
    return grant is None or grant.sees_everything


def _forbidden(command: str) -> bytes:
    return f"{forbidden_text(command, '')}: it is for all groups of all topics".encode()
