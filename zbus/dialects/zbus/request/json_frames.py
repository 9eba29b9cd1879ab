"""Requests and replies as JSON objects, for pages and scripts on a WebSocket.

    {"cmd": "produce", "topic": "T", "id": 7, "tag": "a", "body": {"any": "JSON"}}
    {"status": 200, "id": "7", "headers": {"topic": "T", "offset": "0", ...}, "body": "1800000..."}

A request becomes the head that it would have been as HTTP, and is read like one: the same limits,
the same memo, the same plan.
"""

from __future__ import annotations

import binascii
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import msgspec

from zbus.dialects.zbus.request.header_lines import split_lines, text_of
from zbus.documents import NOT_JSON
from zbus.wire.errors import WireError
from zbus.wire.heads.fields import TOKEN, VISIBLE
from zbus.wire.heads.heads import Heads
from zbus.wire.heads.shapes import Shape
from zbus.wire.http import Request

_OBJECT: msgspec.json.Decoder[dict[str, msgspec.Raw]] = msgspec.json.Decoder(dict[str, msgspec.Raw])
_TEXT = msgspec.json.Decoder(str)
_ANY = msgspec.json.Decoder(msgspec.Raw)

_OF_CONNECTION = frozenset(
    (
        "connection",
        "content-length",
        "expect",
        "keep-alive",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    )
)
"""Headers that say how a message goes over a connection: a frame needs none of them."""

_NAME_LENGTH_MAX = 64
"""Of a name that is remembered."""

_START = b"POST / HTTP/1.1"
_JSON_LINE = b"\r\ncontent-type: application/json"


class BadFrame(Exception):
    """The frame is no request; `id` is the request's as far as it could be read."""

    def __init__(self, text: str, id: bytes, status: int = 400) -> None:
        super().__init__(text)
        self.text = text
        self.id = id
        self.status = status


def read_request(frame: bytes, heads: Heads, shapes: Sequence[Shape] = ()) -> Request:
    """A request out of a JSON object. `heads` read nothing but such requests; these shapes are
    tried first."""
    try:
        if not frame.isascii():
            frame.decode()
        members = _OBJECT.decode(frame)
        raw = bytes(members.pop("headers", b"null"))
        headers = {} if raw == b"null" else _OBJECT.decode(raw)
    except NOT_JSON as error:
        text = ascii(str(error) or "nested too deeply")[1:-1]
        raise BadFrame(f"the frame is not a JSON object: {text}", b"") from None
    raw_id = bytes(members.get("id") or headers.get("id") or b"")
    try:
        body, is_json = _take_body(members)
        members.pop("status", None)  # a reply that is sent on says one
        lines = [_START]
        if "method" in members or "url" in members:
            lines = [_request_line(members.pop("method", None), members.pop("url", None))]
        if headers:
            _add_lines(lines, headers)
        _add_lines(lines, members)  # of a name in both the last one wins
        head = b"\r\n".join(lines)
        if is_json and b"\r\ncontent-type:" not in head.lower():
            head += _JSON_LINE
        for shape in shapes:
            match = shape.match(head + b"\r\n\r\n")
            if match is not None and match.end() <= shape.bytes_max:
                return shape, match, body
        found, id_ = heads.read(head, True)
    except ValueError as error:
        raise BadFrame(str(error), _id_of(raw_id)) from None
    except WireError as error:
        raise BadFrame(error.text, _id_of(raw_id), error.status) from None
    if found.target == b"/" and not (b"cmd" in found.fields or b"topic" in found.fields):
        raise BadFrame("a request needs `cmd`, `topic`, or both", _id_of(raw_id))
    return found, id_, body


def _add_lines(lines: list[bytes], table: dict[str, msgspec.Raw]) -> None:
    for name, raw in table.items():
        beginning = _beginning(name) if len(name) <= _NAME_LENGTH_MAX else _begin(name)
        value = bytes(raw)
        if value[:1] == b'"' and b"\\" not in value:
            value = value[1:-1]  # a line break would have to be escaped
        else:
            scalar = _scalar(raw, name)
            if scalar is None:
                continue
            value = scalar
            if b"\r" in value or b"\n" in value:
                raise ValueError(f"{name[:40]} is more than one line")
        if beginning:
            lines.append(beginning + value)


def _begin(name: str) -> bytes:
    """How a header line of this name begins; b"" for one that a frame does not need."""
    spelled = name.encode()
    if not spelled or spelled.translate(None, TOKEN):
        raise ValueError(f"{name[:40]!a} is not the name of a header")
    return b"" if name.lower() in _OF_CONNECTION else spelled + b": "


_beginning = lru_cache(maxsize=1024)(_begin)


def _scalar(raw: msgspec.Raw | None, name: str) -> bytes | None:
    """Text as it is, numbers and booleans as they are written, None for null."""
    if raw is None:
        return None
    value = bytes(raw)
    if value[:1] == b'"':
        return value[1:-1] if b"\\" not in value else _TEXT.decode(value).encode()
    if value[:1] in b"{[":
        raise ValueError(f"{name[:40]} is text, a number, true, false or null")
    return None if value == b"null" else value


def _request_line(raw_method: msgspec.Raw | None, raw_url: msgspec.Raw | None) -> bytes:
    method = _scalar(raw_method, "method") or b"POST"
    url = _scalar(raw_url, "url") or b"/"
    if method.translate(None, TOKEN):
        raise ValueError("the method is not a token")
    if url.translate(None, VISIBLE):
        url = b"".join(b"%c" % byte if byte in VISIBLE else b"%%%02X" % byte for byte in url)
    return b"%b %b HTTP/1.1" % (method, url)


def _take_body(members: dict[str, msgspec.Raw]) -> tuple[bytes, bool]:
    """The body, and whether it is a JSON value."""
    raw, encoded = members.pop("body", None), members.pop("body_base64", None)
    if encoded is not None:
        if raw is not None:
            raise ValueError("body and body_base64 exclude each other")
        text = _scalar(encoded, "body_base64")
        try:
            return binascii.a2b_base64(text or b"", strict_mode=True), False
        except binascii.Error:
            raise ValueError("body_base64 is not Base64") from None
    value = b"" if raw is None else bytes(raw)
    if value[:1] == b'"':
        plain = b"\\" not in value
        return value[1:-1] if plain else _TEXT.decode(value).encode(), False
    if not value or value == b"null":
        return b"", False
    return value, True


def _id_of(raw: bytes) -> bytes:
    """The id of a request that is refused, for the reply."""
    try:
        value = _scalar(msgspec.Raw(raw), "id") if raw else b""
    except ValueError:
        return b""
    return b"" if value is None or value.translate(None, VISIBLE) else value


def encode_json(status: int, lines: bytes, body: bytes) -> bytes:
    """A reply, or a message pushed, of canonical header lines. The body is text, or where it is
    application/json its value, or if it is not UTF-8 `body_base64`."""
    headers = split_lines(lines)
    reply: dict[str, Any] = {"status": status}
    if "id" in headers:
        reply["id"] = headers.pop("id")
    reply["headers"] = headers
    media_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    try:
        text = body.decode()
    except UnicodeDecodeError:
        reply["body_base64"] = binascii.b2a_base64(body, newline=False).decode()
    else:
        reply["body"] = _value(body, text) if media_type == "application/json" else text
    return msgspec.json.encode(reply)


def stored_as_json(topic_line: bytes, lines: bytes, body: bytes) -> tuple[bytes, bytes, bytes]:
    """What `encode_json` makes of the reply to a put with these lines: what is before its id, what
    is between that and the offset, and what is behind."""
    whole = encode_json(200, b"%bid: \r\n%boffset: \r\n" % (topic_line, lines), body)
    start, _, rest = whole.partition(b'"id":""')
    between, _, end = rest.rpartition(b'"offset":""')
    return start + b'"id":"', b'"%b"offset":"' % between, b'"' + end


def quoted(value: bytes) -> bytes:
    """The inside of a JSON string."""
    return value if value.isalnum() else msgspec.json.encode(text_of(value))[1:-1]


def _value(body: bytes, text: str) -> Any:  # noqa: ANN401  # whatever JSON holds
    try:
        return _ANY.decode(body)  # as written: digits are the producer's business
    except NOT_JSON:
        return text
