"""What is imported: rows, each a message at a place in its source, and how fields become labels.

A place is a number that grows. The broker keeps that of the last row that is stored, so a second
run goes on behind it. Of a sequence (a file, a list, a queue) it is the number of the row and a
checksum of all rows up to it: that tells whether the source is still the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple
from zlib import crc32

import attrs

from zbus.client import Message
from zbus.client.requests import RESERVED
from zbus.units import parse_time_ms
from zbus.wire.heads.header_names import is_credential

BODY_BYTES_MAX = 16 << 20
"""Of a line, or of one document: more than a broker takes by default is not read into memory."""

JSON_TYPE = {"content-type": "application/json"}
TIMESTAMP = "source-timestamp"
"""The header that keeps when the source stored a row, epoch milliseconds: `timestamp` is when this
broker did."""


class BadRow(Exception):
    """A row that cannot be a message; the text says why."""


class Row(NamedTuple):
    """A row of a source."""

    at: str  # where it is, for people: `line 7`
    place: int
    message: Message | None  # None: it is refused, or was there before
    problem: str = ""  # why it is refused


class Sequence:
    """Gives the rows of a sequence their places."""

    def __init__(self) -> None:
        self._count = 0
        self._crc = 0

    def add(self, raw: bytes) -> None:
        """What is next in the source, without the end of its line."""
        self._crc = crc32(b"\n", crc32(raw, self._crc))

    def row(self, at: str, message: Message | None, problem: str = "") -> Row:
        """The next row, which ends with what was added last."""
        self._count += 1
        return Row(at, self._count << 32 | self._crc, message, problem)


Pick = Callable[[str], str | bytes | None]
"""The field of a row with this name; None if it has none."""


@attrs.frozen
class Fields:
    """Which fields of a row are labels of its message; "" is none. `headers`: names of header lines
    and the fields for them; empty = all that the source calls headers."""

    key: str = ""
    tag: str = ""
    id: str = ""
    timestamp: str = ""
    body: str = ""
    headers: tuple[tuple[str, str], ...] = ()

    @property
    def named(self) -> set[str]:
        """All of them."""
        own = (self.key, self.tag, self.id, self.timestamp, self.body)
        return {field for field in (*own, *dict(self.headers).values()) if field}

    def message(
        self, pick: Pick, body: bytes, own: Mapping[str, str], type: Mapping[str, str] = JSON_TYPE
    ) -> Message:
        """The message of a row whose whole is `body`, of this content type. `own`: what the source
        calls headers. Raises BadRow."""
        headers: dict[str, str] = {}
        for name, value in own.items() if not self.headers else ():
            lower = name.lower().encode()
            taken = lower in RESERVED or is_credential(lower)
            headers[f"source-{name}" if taken else name] = value
        for name, field in self.headers:
            if (text := _text(pick, field)) is not None:
                headers[name] = text
        if self.body:
            found = pick(self.body)
            if found is None:
                raise BadRow(f"it has no field {self.body!r}")
            body = found.encode() if isinstance(found, str) else found
        else:
            headers = {**type, **headers}
        if self.timestamp and (text := _text(pick, self.timestamp)):
            try:
                headers[TIMESTAMP] = str(parse_time_ms(text))
            except ValueError as error:
                raise BadRow(f"the time in {self.timestamp!r} {error}") from None
        tag, key, id = (_text(pick, field) or None for field in (self.tag, self.key, self.id))
        return Message(body, tag, key, id, headers)


def _text(pick: Pick, field: str) -> str | None:
    """A field as text. Raises BadRow."""
    found = pick(field) if field else None
    if isinstance(found, bytes):
        try:
            return found.decode()
        except UnicodeDecodeError:
            raise BadRow(f"the field {field!r} is not UTF-8") from None
    return found
