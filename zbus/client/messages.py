"""Messages as users see them: what is produced, where it went, what is delivered."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec

from zbus.client.errors import ProtocolError
from zbus.protocol.parameters import Put
from zbus.wire.heads.header_names import PREFIX
from zbus.wire.responses import Response, ResponseReader
from zbus.wire.target import decode_valid_percent

FRAMING = frozenset(
    (
        b"cache-control",
        b"connection",
        b"content-length",
        b"date",
        b"transfer-encoding",
        b"x-accel-buffering",
    )
)
"""Lines of a reply that are about the reply, and not about the message in it. A message that has a
header of such a name has it with the prefix."""

_ENCODED = frozenset((b"consume_group", b"tag", b"topic"))
"""Lines of the broker's own in which it writes `%41`, so that any name can be in them. Lines of a
producer have their bytes as they were sent."""

Body = bytes | bytearray | memoryview | str
"""What may be sent: bytes, or text that is sent as UTF-8."""


def number(fields: Mapping[bytes, bytes], name: bytes, default: int = 0) -> int:
    """A header of an answer that is decimal digits."""
    value = fields.get(name)
    if value is None:
        return default
    if not value.isdigit() or len(value) > 19:
        raise ProtocolError(f"the broker answered with {name.decode()}: {value[:40]!r}")
    return int(value)


def as_bytes(body: Body) -> bytes:
    """A body as it is sent. Raises TypeError: `bytes(5)` would be five zeros."""
    if isinstance(body, str):
        return body.encode()
    if not isinstance(body, bytes | bytearray | memoryview):
        raise TypeError(
            f"a body is bytes or text, not {type(body).__name__}; to send JSON use json="
        )
    return bytes(body)


class Message(msgspec.Struct, frozen=True):
    """One message to be produced, with labels of its own.

    `id` has at most 39 bytes, `tag` 127, `key` 1,024. `headers` travel with it.
    """

    body: Body = b""
    tag: str | None = None
    key: str | None = None
    id: str | None = None
    headers: Mapping[str, str] | None = None


class Stored(NamedTuple):
    """Where a produced message is. It is durable at the level `durability`."""

    offset: int
    partition: int
    durability: str
    id: str
    duplicate: bool
    """It was there before: an earlier attempt, or the same id in a topic that remembers ids."""


class StoredBatch(msgspec.Struct, frozen=True):
    """Where a produced batch is: at `offset` and the following ones of one partition."""

    offset: int
    partition: int
    durability: str
    count: int
    """How many messages the batch has."""
    duplicates: int
    """How many of them were there before and were left out."""


class Delivery:
    """A message that was delivered, or looked at.

    Header values are read when they are asked for. `settled` tells whether it was acknowledged or
    given back.
    """

    __slots__ = ("body", "fields", "offset", "partition", "settled")

    def __init__(self, response: Response) -> None:
        fields = self.fields = response.fields
        self.body = response.body
        self.offset = number(fields, b"offset", -1)
        self.partition = number(fields, b"partition") if b"partition" in fields else 0
        self.settled = False

    def __repr__(self) -> str:
        where = f"{self.topic!r} {self.partition}/{self.offset}"
        return f"<Delivery {where} {len(self.body)} bytes>"

    def _text(self, name: bytes) -> str:
        return _shown(name, self.fields.get(name, b""))

    @property
    def text(self) -> str:
        """The body as UTF-8 text. Raises UnicodeDecodeError."""
        return self.body.decode()

    def json(self) -> Any:  # noqa: ANN401  # whatever JSON holds
        """The body as JSON. Raises msgspec.DecodeError."""
        return msgspec.json.decode(self.body)

    @property
    def topic(self) -> str:
        return self._text(b"topic")

    @property
    def group(self) -> str:
        """The group it was handed to; empty if it was only looked at."""
        return self._text(b"consume_group")

    @property
    def id(self) -> str:
        """The message's own id."""
        return self._text(b"origin_id")

    @property
    def tag(self) -> str:
        return self._text(b"tag")

    @property
    def key(self) -> str:
        return self._text(b"key")

    @property
    def timestamp_ms(self) -> int:
        """When it was stored, epoch milliseconds."""
        return number(self.fields, b"timestamp")

    @property
    def retry(self) -> int:
        """How often it was delivered before."""
        return number(self.fields, b"retry")

    @property
    def skipped(self) -> int:
        """How many messages before this one were dropped and cannot be delivered any more."""
        return number(self.fields, b"skipped")

    @property
    def sender(self) -> str:
        """The producer's session, where `route` finds it."""
        return self._text(b"sender")

    @property
    def traceparent(self) -> str:
        """Where it belongs in a trace, as W3C Trace Context writes it; empty without one."""
        return self._text(b"traceparent")

    @property
    def headers(self) -> dict[str, str]:
        """All headers it came with: the producer's, with the names and values that were sent, and
        the broker's about it."""
        headers: dict[str, str] = {}
        for name, value in self.fields.items():
            if not name.startswith(PREFIX) and name not in FRAMING:
                headers[name.decode("latin-1")] = _shown(name, value)
        for name, value in self.fields.items():
            if name.startswith(PREFIX):  # but the broker's own win
                headers.setdefault(name[len(PREFIX) :].decode("latin-1"), _shown(b"", value))
        return headers


def _shown(name: bytes, value: bytes) -> str:
    raw = decode_valid_percent(value) if name in _ENCODED else value
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw.decode("latin-1")


class Labels(Put, total=False):
    """What `produce` takes beside topic and body."""

    json: object
    headers: Mapping[str, str] | None
    id: str | None


def read_container(body: bytes, make: Callable[[Response], Delivery] = Delivery) -> list[Delivery]:
    """Messages one after another. Raises ProtocolError if it is damaged."""
    reader = ResponseReader()
    responses = reader.receive(body)
    if not reader.between:
        raise ProtocolError("the broker sent a damaged batch")
    return [make(response) for response in responses]
