"""Messages of a WebSocket: one HTTP request as text, or one JSON object, each."""

from __future__ import annotations

from typing import Any

from zbus.dialects.zbus.request.json_frames import BadFrame, encode_json, read_request
from zbus.edge.connection import Connection, Reply
from zbus.edge.websocket import WebSocket, planned
from zbus.wire.errors import WireError
from zbus.wire.heads.heads import Head, Heads
from zbus.wire.heads.shapes import Shape, used_last
from zbus.wire.http import Request
from zbus.wire.websocket import INVALID_DATA, encode_message


class Frames:
    """The codec of one WebSocket."""

    __slots__ = ("_heads", "_shapes", "_shapes_of_json", "json")

    def __init__(self, heads: Heads) -> None:
        self._heads = heads
        self._shapes: tuple[Shape, ...] = ()  # used last
        self._shapes_of_json: tuple[Shape, ...] = ()
        self.json = False  # the last request was a JSON object: so is what no client asked for

    def read(self, kind: int, message: bytes) -> Request:
        self.json = message[:1] == b"{"
        if self.json:
            try:
                request = read_request(message, self._heads.json, self._shapes_of_json)
            except BadFrame as error:
                return _bad_frame(error)
            if type(request[0]) is Shape and request[0] not in self._shapes_of_json:
                self._shapes_of_json = used_last(request[0], self._shapes_of_json)
        else:
            request = self._read_http(message)
        head = request[0]
        if head.plan is None:
            head.json = self.json
        return request

    def encode(self, message: bytes) -> bytes:
        return encode_message(message)

    def _read_http(self, message: bytes) -> Request:
        end = message.find(b"\r\n\r\n")
        if end < 0:
            raise WireError(INVALID_DATA, "a frame is one HTTP message or one JSON object")
        head, id_ = self._read_head(message, end)
        if head.chunked:
            raise WireError(INVALID_DATA, "a message in a frame has no transfer-encoding")
        body = message[end + 4 :]
        length = head.length_of(id_) if type(head) is Shape else head.content_length
        if len(body) != length:
            text = f"the content-length is {length}, the body has {len(body)} bytes"
            raise WireError(INVALID_DATA, text)
        return head, id_, body

    def _read_head(self, message: bytes, end: int) -> tuple[Head, Any]:
        for shape in self._shapes:
            found = shape.match(message)
            if found is not None and found.end() <= shape.bytes_max:
                return shape, found
        try:
            head, id_ = self._heads.contained.read(message[:end], True)
        except WireError as error:
            raise WireError(INVALID_DATA, error.text) from None
        if type(head) is Shape:
            self._shapes = used_last(head, self._shapes)
        return head, id_


def speaks_json(peer: Connection) -> bool:
    """Whether pushes are JSON."""
    socket = peer.framing
    return isinstance(socket, WebSocket) and isinstance(socket.codec, Frames) and socket.codec.json


class Complain:
    """Plan of a JSON object that is no request; the answer is made already."""

    def run(self, peer: Connection, id: bytes, body: bytes) -> None:
        Reply(peer, id, ordered=False).send(body)


_COMPLAIN = planned(Complain())


def _bad_frame(error: BadFrame) -> Request:
    """Bytes alone: many may wait until a peer takes its answers, and errors hold on to much."""
    lines = b"id: %b\r\n" % error.id if error.id else b""
    text = f"{error.status}: Bad Format, {error.text}"
    return _COMPLAIN, error.id, encode_json(error.status, lines, text.encode())
