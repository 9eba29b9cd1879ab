"""A reply that goes on and takes its connection: server-sent events (HTML standard, 9.2)."""

from __future__ import annotations

from zbus.dialects.zbus.request.params import BadRequest, Params
from zbus.edge.connection import Connection
from zbus.wire.replies import encode_stream_head

EVENTS = b"text/event-stream"
LINES = b"content-type: text/event-stream; charset=utf-8\r\n"
RETRY = b"retry: 1000\n"
"""Milliseconds after which a browser comes again."""

HEARTBEAT = b":\n\n"
"""A comment. Sent when there is nothing else, it keeps proxies from hanging up."""


def wants_events(params: Params) -> bool:
    return EVENTS in params.fields.get(b"accept", b"").lower()


def encode_event(id: bytes, body: bytes, type: bytes = b"") -> bytes:
    """One event. Each line of the body is a line of its data. A reader joins them again
    with a line feed, so CR and CRLF become one."""
    if b"\r" in body:
        body = body.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    if b"\n" in body:
        body = body.replace(b"\n", b"\ndata: ")
    if type:
        return b"event: %b\nid: %b\ndata: %b\n\n" % (type, id, body)
    return b"id: %b\ndata: %b\n\n" % (id, body)


def encode_end(text: bytes) -> bytes:
    """The last event of a stream, which says why there are no more."""
    return b"event: end\ndata: %b\n\n" % text


def open_stream(peer: Connection, params: Params, id: bytes, place: bytes = b"") -> None:
    """The head of a reply that ends with its connection. Who is told its place at once and comes
    again before the first event misses nothing."""
    line = b"id: %b\n" % place if place else b""
    peer.write(b"%b%b%b\n" % (stream_head(params, id), RETRY, line))


def stream_head(params: Params, id: bytes) -> bytes:
    lines = b"%bid: %b\r\n%b" % (params.topic_line, id, LINES)
    if params.browser is not None:
        lines = params.browser.cover(lines, b"", params.policy)
    return encode_stream_head(lines)


def stream_problem(peer: Connection) -> BadRequest | None:
    """Why a stream cannot begin on this connection."""
    if peer.framing is not None:
        return BadRequest(400, "400: Bad Format, a stream of events needs plain HTTP")
    if peer.open_tickets or peer.turns:
        text = "a stream of events needs a connection on which nothing else is open"
        return BadRequest(400, f"400: Bad Format, {text}")
    return None


def only_head(peer: Connection, params: Params, id: bytes) -> bool:
    """A HEAD is answered with the head; whether it was one."""
    if params.head.method != b"HEAD":
        return False
    peer.begin_stream(b"")
    peer.write(stream_head(params, id))
    peer.end_stream()
    return True
