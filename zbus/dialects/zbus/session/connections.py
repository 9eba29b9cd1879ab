"""`connections` and `disconnect`: who is connected, and the end of it. Both are for those who may
see everything: a connection may have to do with any topic."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Literal

import msgspec

from zbus.dialects.zbus.context import Context
from zbus.dialects.zbus.replies import JSON, Answered, NativeReply, sees_everything
from zbus.dialects.zbus.request.params import Params
from zbus.dialects.zbus.settings import Running
from zbus.edge.connection import Connection
from zbus.edge.places import MAKER_DIGITS
from zbus.protocol import documents

_COUNT_DEFAULT = 100
_READS_MAX = 100
"""Groups that are listed of one connection."""

_ROW_WORK = 10

_json = msgspec.json.Encoder().encode


def connections(dialect: Context, params: Params) -> Answered:
    """The plan of the list."""
    count = params.number(b"count") or _COUNT_DEFAULT
    after = params.fields.get(b"after", b"")

    def answer(reply: NativeReply) -> None:
        if sees_everything(reply):
            reply.peer.begin(_list(reply, count, after))

    return Answered(answer, dialect, params)


def _list(reply: NativeReply, count: int, after: bytes) -> Iterator[int]:
    broker, running = reply.dialect.broker, reply.dialect.settings.running
    sessions = broker.sessions
    visitors = {} if running is None else running.visitors
    # A client's own connection comes before those on its behalf, which are told under its id, and
    # not if it has gone, as far as that is known here.
    known = [(visitors.get(id, id), id in visitors, id) for id in sessions]
    known = sorted(
        (client, is_visitor, id)
        for client, is_visitor, id in known
        if client > after and (client[:MAKER_DIGITS] != id[:MAKER_DIGITS] or client in sessions)
    )
    ids = sorted({each[0] for each in known})
    end = ids[count - 1] if len(ids) > count else b""
    yield len(known) // 20
    rows = []
    for client, _, id in known:
        if end and client > end:
            break
        peer = sessions.get(id)
        if isinstance(peer, Connection):  # it may have gone meanwhile
            rows.append(_json(describe(peer, client, running, broker.now_ms)))
            yield _ROW_WORK
    lines = JSON + b"count: %d\r\n" % len(rows)
    if end:
        lines += b"next: %b\r\n" % end
    reply.respond_raw(lines, b"[%b]" % b",".join(rows))


def disconnect(dialect: Context, params: Params) -> Answered:
    """The plan of the end."""
    return Answered(partial(_end, params.fields[b"session"]), dialect, params)


def _end(id: bytes, reply: NativeReply) -> None:
    if not sees_everything(reply):
        return
    broker, running = reply.dialect.broker, reply.dialect.settings.running
    other = broker.sessions.get(id)
    if running is None or not isinstance(other, Connection):
        name = id[:100].decode("utf-8", "replace")
        reply.respond(404, body=f"404: Connection({name}) Not Found".encode())
    else:
        running.disconnect(other)
        reply.respond(200, body=b"%d" % broker.now_ms)


def describe(
    peer: Connection, id: bytes, running: Running | None, now_ms: int
) -> documents.Connection:
    """One connection, as it is told, under this id."""
    kind: Literal["http", "websocket", "events"] = "http"
    if peer.framing is not None:
        kind = "websocket"
    elif peer.heartbeat is not None:
        kind = "events"
    traffic = None if running is None else running.traffic(peer)
    bearer = peer.bearer or peer.asker
    groups = list(peer.groups or ())[:_READS_MAX]
    return documents.Connection(
        id=id.decode("utf-8", "replace"),
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
