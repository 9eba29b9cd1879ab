"""Many messages in one body, both ways.

`application/vnd.zbus.messages`: HTTP messages one after another, each framed by its content-length.
`application/x-ndjson`: in, every line is one message's body; out, every line is a JSON object.
`application/json`: out, an array of such objects. A body that is text is given as text, any other
as `body_base64`.
`application/vnd.zbus.batches`: stored batches as they are on disk (`zbus.storage.format.batch`).
"""

from __future__ import annotations

import base64
from codecs import utf_8_decode
from collections.abc import Generator, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain, repeat
from typing import NamedTuple

import msgspec

from zbus.core.api import OWN_KEY, Chunk, Group, Raw, Slice, Topic
from zbus.dialects.zbus.request.header_lines import Form, split_lines, stock, text_of
from zbus.edge.bodies import media_type_of
from zbus.wire.errors import WireError
from zbus.wire.heads.heads import Heads
from zbus.wire.messages import parse_in_steps
from zbus.wire.target import decode_valid_percent, encode_controls, encode_header_value

MESSAGES = b"application/vnd.zbus.messages"
NDJSON = b"application/x-ndjson"
JSON = b"application/json"
BATCHES = b"application/vnd.zbus.batches"
_SENT = {type: type for type in (MESSAGES, NDJSON)}
_SENT |= dict.fromkeys((b"application/ndjson", b"application/jsonl"), NDJSON)
"""Media types of batches that come in; some senders know JSON lines by other names."""


def container_of(fields: Mapping[bytes, bytes]) -> bytes:
    """Which batch the body of a request is; empty if it is one message."""
    return _SENT.get(media_type_of(fields), b"")


@lru_cache(maxsize=4096)
def group_line(name: str) -> bytes:
    return b"consume_group: %b\r\n" % encode_header_value(name.encode())


def message_lines(
    topic: Topic,
    group: Group | None,
    index: int,
    chunk: Chunk,
    at: int,
    attempts: int,
    form: Form,
) -> bytes:
    """Header lines of a delivery, beside topic and id (specification, section 5.2). Those of the
    message are in this form."""
    offset = chunk.first + at
    lines = b"offset: %d\r\norigin_id: %b\r\ntimestamp: %d\r\n%b" % (
        offset,
        chunk.ids[at] or b"%d-%d" % (index, offset),
        chunk.time_ms if chunk.times is None else chunk.times[at],
        form(headers_of(chunk, at)),
    )
    if group is not None:
        lines += group_line(group.name)
    if chunk.tags is not None and (tag := chunk.tags[at]):
        lines += b"tag: %b\r\n" % encode_header_value(tag)
    if chunk.keys is not None and (key := chunk.keys[at]):
        lines += b"key: %b\r\n" % encode_controls(key)
    if len(topic.partitions) > 1:
        lines += b"partition: %d\r\n" % index
    if attempts > 1:
        lines += b"retry: %d\r\n" % (attempts - 1)
    return lines


def headers_of(chunk: Chunk, at: int) -> bytes:
    """The application's header lines, with the idempotency key among them. The broker's own is no
    line of the application, which could not send it on."""
    if chunk.once is None or not chunk.once[at] or chunk.once[at].startswith(OWN_KEY):
        return chunk.headers[at]
    once = decode_valid_percent(chunk.once[at])
    return b"idempotency-key: %b\r\n%b" % (once, chunk.headers[at])


def wanted_container(accept: bytes) -> bytes:
    """Which container an Accept header asks for; a JSON array if it does not care."""
    for container in (MESSAGES, NDJSON):
        if container in accept:
            return container
    return JSON


def encode_pieces(
    container: bytes,
    topic: Topic,
    group: Group | None,
    pieces: list[Slice],
    cut: int | None = None,
) -> bytes:
    """The body of a reply with many messages; as JSON, with `cut` bytes of each body at most."""
    if container == MESSAGES:
        return b"".join([_encode_messages(topic, group, piece) for piece in pieces])
    objects = chain.from_iterable([_objects(topic, group, piece, cut) for piece in pieces])
    if container == NDJSON:
        return b"".join([item + b"\n" for item in objects])
    return b"[%b]" % b",".join(objects)


_MESSAGE = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n%bid: %b\r\n"
_PLAIN = _MESSAGE + b"offset: %d\r\norigin_id: %b\r\ntimestamp: %d\r\n%b%b\r\n%b"


def _encode_messages(topic: Topic, group: Group | None, piece: Slice) -> bytes:
    """HTTP messages one after another."""
    index, chunk, start, stop, attempts = piece
    line = b"topic: " + encode_header_value(topic.name.encode()) + b"\r\n"
    rows = slice(start, stop)
    ids, bodies = chunk.ids[rows], chunk.bodies[rows]
    if not all(ids):
        first = chunk.first + start
        ids = [id or b"%d-%d" % (index, offset) for offset, id in enumerate(ids, first)]
    parts = []
    if chunk.plain and attempts <= 1:
        # What `message_lines` does, for many at once.
        end = b"" if group is None else group_line(group.name)
        if len(topic.partitions) > 1:
            end += b"partition: %d\r\n" % index
        times = repeat(chunk.time_ms) if chunk.times is None else chunk.times[rows]
        offset = chunk.first + start
        headers_of_rows = map(stock, chunk.headers[rows])
        for id, time_ms, headers, body in zip(ids, times, headers_of_rows, bodies, strict=False):
            parts.append(_PLAIN % (len(body), line, id, offset, id, time_ms, headers, end, body))
            offset += 1
        return b"".join(parts)
    for at, id, body in zip(range(start, stop), ids, bodies, strict=True):
        lines = message_lines(topic, group, index, chunk, at, attempts, stock)
        parts.append(b"%b%b\r\n%b" % (_MESSAGE % (len(body), line, id), lines, body))
    return b"".join(parts)


def encode_object(topic: Topic, group: Group | None, piece: Slice) -> bytes:
    """The first message of a piece as a JSON object, in one line."""
    return next(_objects(topic, group, piece))


_json = msgspec.json.Encoder().encode
_HEADERS_BYTES_MAX = 1024  # of what is remembered: together with the count, a bound on memory


@lru_cache(maxsize=1024)
def _known_headers(lines: bytes) -> bytes:
    return _json(split_lines(lines))


def _objects(
    topic: Topic, group: Group | None, piece: Slice, cut: int | None = None
) -> Iterator[bytes]:
    """The messages of a piece as JSON objects. Most of an object is known before the message is."""
    index, chunk, start, stop, attempts = piece
    place = b'","topic":%b,"partition":%d,"offset":' % (_json(topic.name), index)
    reader = b"" if group is None else b',"consume_group":%b' % _json(group.name)
    again = b',"retry":%d' % (attempts - 1) if attempts > 1 else b""
    for at in range(start, stop):
        id, body = chunk.ids[at], chunk.bodies[at]
        offset = chunk.first + at
        text = _text(id)[1:-1] if id else b"%d-%d" % (index, offset)
        label = b""
        if chunk.tags is not None and (tag := chunk.tags[at]):
            label = b',"tag":%b' % _text(tag)
        if chunk.keys is not None and (key := chunk.keys[at]):
            label += b',"key":%b' % _text(key)
        lines = headers_of(chunk, at)
        short = len(lines) <= _HEADERS_BYTES_MAX
        headers = _known_headers(lines) if short else _json(split_lines(lines))
        try:
            content = b'"body":%b}' % _json(body.decode() if cut is None else _start(body, cut))
        except UnicodeDecodeError:
            content = b'"body_base64":"%b"}' % base64.b64encode(body[:cut])
        if cut is not None:
            content = b'"size":%d,%b' % (len(body), content)
        time_ms = chunk.time_ms if chunk.times is None else chunk.times[at]
        yield b'{"id":"%b%b%d,"timestamp":%d%b%b%b,"headers":%b,%b' % (
            text,
            place,
            offset,
            time_ms,
            reader,
            label,
            again,
            headers,
            content,
        )


def _start(body: bytes, cut: int) -> str:
    """This many bytes of a text at most, and no part of a character."""
    return utf_8_decode(body[:cut], "strict", len(body) <= cut)[0]


def _text(value: bytes) -> bytes:
    return _json(text_of(value))


class Columns(NamedTuple):
    """The messages of a produced container, before they have a topic: one list for each part."""

    fields: Sequence[dict[bytes, bytes]]  # equal heads mostly share one; a single one is everyone's
    ids: Sequence[bytes]
    bodies: Sequence[bytes]


def decode_columns(
    container: bytes, body: bytes, heads: Heads, count_max: int
) -> Generator[int, None, Columns]:
    """The messages of a produced body, in steps; each tells what work it was, in microseconds or
    so. Raises WireError for a body that is not well-formed."""
    if container == NDJSON:
        if body.count(b"\n") > 2 * count_max:  # blank lines do not count, but not without end
            raise WireError(400, f"a batch has at most {count_max} messages")
        lines = body.split(b"\n")
        if b"\r" in body:
            lines = [line.rstrip(b"\r") for line in lines]
        lines = [line for line in lines if line and not line.isspace()]
        return Columns([{b"content-type": JSON}], [b""] * len(lines), lines)
    fields: list[dict[bytes, bytes]] = []
    ids: list[bytes] = []
    bodies: list[bytes] = []
    spent = heads.contained.spent
    for step in parse_in_steps(body, heads, count_max):
        fields += [head.fields for head, _, _ in step]
        ids += [id for _, id, _ in step]
        bodies += [part for _, _, part in step]
        yield len(step) + heads.contained.spent - spent
        spent = heads.contained.spent
    return Columns(fields, ids, bodies)


def encode_raw(raw: Raw) -> tuple[bytes, bytes]:
    """Header lines and body of a reply with stored batches, and where the log begins and ends."""
    lines = b"content-type: %b\r\npartition: %d\r\nfirst: %d\r\nend: %d\r\n" % (
        BATCHES,
        raw.partition.index,
        raw.partition.first,
        raw.end,
    )
    return lines, raw.batches
