"""Many messages in one body, both ways.

`application/vnd.zbus.messages`: HTTP messages one after another, each framed by its content-length.
`application/x-ndjson`: in, every line is one message's body; out, every line is a JSON object.
`application/json`: out, an array of such objects. A body that is text is given as text, any other
as `body_base64`.
`application/vnd.zbus.batches`: stored batches as they are on disk (`zbus.journal.batch`).
"""

from __future__ import annotations

import base64
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec

from zbus.core.group import Group
from zbus.core.outcomes import Raw, Record
from zbus.core.topic import Topic
from zbus.wire.errors import WireError
from zbus.wire.heads import Heads
from zbus.wire.messages import parse_messages
from zbus.wire.target import encode_header_value

if TYPE_CHECKING:
    from zbus.faces.zbus.replies import ZbusReply

MESSAGES = b"application/vnd.zbus.messages"
NDJSON = b"application/x-ndjson"
JSON = b"application/json"
BATCHES = b"application/vnd.zbus.batches"


@lru_cache(maxsize=4096)
def _group_line(name: str) -> bytes:
    return b"consume_group: %b\r\n" % encode_header_value(name.encode())


def record_lines(topic: Topic, group: Group | None, record: Record) -> bytes:
    """Header lines of a delivery, beside topic and id (specification, section 5.2)."""
    partition, offset, message, attempts = record
    lines = b"offset: %d\r\norigin_id: %b\r\ntimestamp: %d\r\n%b" % (
        offset,
        message.id,
        message.produced_ms,
        message.headers,
    )
    if group is not None:
        lines += _group_line(group.name)
    if message.tag:
        lines += b"tag: %b\r\n" % encode_header_value(message.tag)
    if message.key:
        lines += b"key: %b\r\n" % encode_header_value(message.key)
    if len(topic.partitions) > 1:
        lines += b"partition: %d\r\n" % partition
    if attempts > 1:
        lines += b"retry: %d\r\n" % (attempts - 1)
    return lines


def split_lines(lines: bytes) -> dict[str, str]:
    """A block of canonical header lines as a dictionary."""
    pairs = [line.partition(": ") for line in lines.decode("utf-8", "replace").split("\r\n")]
    return {name: value for name, _, value in pairs if name}


def wanted_container(accept: bytes) -> bytes:
    """Which container an Accept header asks for; a JSON array if it does not care."""
    for container in (MESSAGES, NDJSON):
        if container in accept:
            return container
    return JSON


def encode_records(
    container: bytes, topic: Topic, group: Group | None, records: list[Record]
) -> bytes:
    """The body of a reply with many messages."""
    if container == MESSAGES:
        line = b"topic: " + encode_header_value(topic.name.encode()) + b"\r\n"
        parts = []
        for record in records:
            message = record.message
            lines = record_lines(topic, group, record)
            parts.append(
                b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n%bid: %b\r\n%b\r\n%b"
                % (len(message.body), line, message.id, lines, message.body)
            )
        return b"".join(parts)
    objects = [_object(topic, group, record) for record in records]
    if container == NDJSON:
        return b"".join(msgspec.json.encode(item) + b"\n" for item in objects)
    return msgspec.json.encode(objects)


def encode_object(topic: Topic, group: Group | None, record: Record) -> bytes:
    """One message as a JSON object, in one line."""
    return msgspec.json.encode(_object(topic, group, record))


def _object(topic: Topic, group: Group | None, record: Record) -> dict[str, Any]:
    partition, offset, message, attempts = record
    item: dict[str, Any] = {
        "id": message.id.decode("utf-8", "replace"),
        "topic": topic.name,
        "partition": partition,
        "offset": offset,
        "timestamp": message.produced_ms,
    }
    if group is not None:
        item["consume_group"] = group.name
    if message.tag:
        item["tag"] = message.tag.decode("utf-8", "replace")
    if message.key:
        item["key"] = message.key.decode("utf-8", "replace")
    if attempts > 1:
        item["retry"] = attempts - 1
    item["headers"] = split_lines(message.headers)
    try:
        item["body"] = message.body.decode()
    except UnicodeDecodeError:
        item["body_base64"] = base64.b64encode(message.body).decode()
    return item


class Item:
    """One message of a produced container, before it has a topic."""

    __slots__ = ("body", "fields", "id")

    def __init__(self, id: bytes, fields: dict[bytes, bytes], body: bytes) -> None:
        self.id = id
        self.fields = fields
        self.body = body


def decode_items(container: bytes, body: bytes, heads: Heads, count_max: int) -> list[Item]:
    """The messages of a produced body. Raises WireError for one that is not well-formed."""
    if container == NDJSON:
        if body.count(b"\n") > 2 * count_max:  # blank lines do not count, but not without end
            raise WireError(400, f"a batch has at most {count_max} messages")
        lines = [line.rstrip(b"\r") for line in body.split(b"\n")]
        fields = {b"content-type": JSON}
        return [Item(b"", fields, line) for line in lines if line.strip()]
    messages = parse_messages(body, heads, count_max)
    return [Item(id, head.fields, part) for head, id, part in messages]


def tell_raw(reply: ZbusReply, raw: Raw) -> None:
    """Stored batches, and where the log ends."""
    lines = b"content-type: %b\r\npartition: %d\r\nend: %d\r\n" % (
        BATCHES,
        raw.partition.index,
        raw.end,
    )
    reply.tell(200, lines, raw.batches)
