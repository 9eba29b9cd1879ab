"""Rows of files: JSON lines, CSV, and what `aws sqs receive-message` printed."""

from __future__ import annotations

import csv
from binascii import a2b_base64
from collections.abc import Callable, Iterator
from typing import IO

import click
import msgspec

from zbus.cli.importing.rows import BODY_BYTES_MAX, JSON_TYPE, BadRow, Fields, Pick, Row, Sequence
from zbus.client import Message
from zbus.documents import NOT_JSON
from zbus.protocol.nearest import did_you_mean

_BOM = b"\xef\xbb\xbf"
_SKIP_BYTES = 1 << 20


class Lines:
    """The lines of a file, each of at most `BODY_BYTES_MAX`. `next` raises BadRow for one that is
    longer, and goes on behind it."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.number = 0
        self.sequence = Sequence()

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        line = self._file.readline(BODY_BYTES_MAX + 2)
        if not line:
            raise StopIteration
        self.number += 1
        if self.number == 1:
            line = line.removeprefix(_BOM)
        text = line.rstrip(b"\r\n")
        self.sequence.add(text)
        if len(text) <= BODY_BYTES_MAX:
            return line
        while not line.endswith(b"\n") and (line := self._file.readline(_SKIP_BYTES)):
            self.sequence.add(line)
        raise BadRow(f"a line has at most {BODY_BYTES_MAX} bytes")


Read = Callable[[], list[Message | BadRow | None]]
"""The messages of the next lines: none of an empty one; None is one that was there before. Raises
BadRow, and StopIteration at the end."""


def _rows(lines: Lines, read: Read) -> Iterator[Row]:
    while True:
        at = lines.number + 1
        try:
            found = read()
        except StopIteration:
            return
        except BadRow as bad:
            found = [bad]
        for each in found:
            if isinstance(each, BadRow):
                yield lines.sequence.row(f"line {at}", None, str(each))
            else:
                yield lines.sequence.row(f"line {at}", each)


# -- JSON lines -----------------------------------------------------------------------------------

_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_raw = msgspec.json.Decoder(msgspec.Raw).decode
_str = msgspec.json.Decoder(str).decode


def json_message(body: bytes, fields: Fields) -> Message:
    """The message of a JSON text; its members are its fields. Raises BadRow."""
    try:
        body.decode()
        if not fields.named:
            _raw(body)
            return Message(body, headers=JSON_TYPE)
        members = _members(body)
    except UnicodeDecodeError:
        raise BadRow("it is not UTF-8") from None
    except NOT_JSON as error:
        raise BadRow(f"it is not a JSON {'object' if fields.named else 'text'}: {error}") from None
    return fields.message(_member_of(members), body, {})


def _member_of(members: dict[str, msgspec.Raw]) -> Pick:
    def pick(field: str) -> str | None:
        value = bytes(members.get(field, b"null"))
        if value[:1] == b'"':
            return _str(value)
        return None if value == b"null" else value.decode()

    return pick


def ndjson_rows(file: IO[bytes], fields: Fields) -> Iterator[Row]:
    """Each line is a JSON text and, as it is, the body of a message. Empty lines do not count."""
    lines = Lines(file)

    def read() -> list[Message | BadRow | None]:
        line = next(lines).rstrip(b"\r\n")
        return [json_message(line, fields)] if line.strip() else []

    return _rows(lines, read)


# -- messages of a broker -------------------------------------------------------------------------


class _Stored(msgspec.Struct):
    """What is taken of a message in the container of JSON lines."""

    headers: dict[str, str] = {}
    body: str = ""
    body_base64: str | None = None


_stored = msgspec.json.Decoder(_Stored).decode


def message_rows(file: IO[bytes], fields: Fields) -> Iterator[Row]:
    """Each line is a message as `read` gives it, with its labels, headers and body."""
    lines = Lines(file)

    def read() -> list[Message | BadRow | None]:
        if not (line := next(lines).strip()):
            return []
        try:
            found, members = _stored(line), _members(line)
            body = found.body.encode()
            if found.body_base64 is not None:
                body = a2b_base64(found.body_base64, strict_mode=True)
        except NOT_JSON as error:
            raise BadRow(f"it is no message of a broker: {error}") from None
        if not members.keys() & {"body", "body_base64"}:
            raise BadRow("it is no message of a broker: it has no body")
        own = {name: text for name, text in found.headers.items() if not _is_of_way(name)}
        return [fields.message(_member_of(members), body, own, {})]

    return _rows(lines, read)


def _is_of_way(name: str) -> bool:
    """The header says how the message came to the broker, which says that anew."""
    return name in ("sender", "remote-addr") or name.startswith("origin_")


# -- CSV ------------------------------------------------------------------------------------------


def csv_rows(file: IO[bytes], fields: Fields, delimiter: str) -> Iterator[Row]:
    """The first line names the columns; each other row is a JSON object of them. Raises
    click.UsageError for a field that is no column."""
    csv.field_size_limit(BODY_BYTES_MAX)
    lines = Lines(file)
    reader = csv.reader(map(_decoded, lines), delimiter=delimiter, strict=True)
    try:
        names = _next_of(reader)
    except StopIteration:
        return iter(())
    except BadRow as bad:
        raise click.UsageError(f"line 1 does not name the columns: {bad}") from None
    if len(set(names)) < len(names):
        raise click.UsageError("line 1 names a column twice")
    for field in sorted(fields.named - set(names)):
        raise click.UsageError(f"there is no column {field!r}{did_you_mean(field, names)}")

    def read() -> list[Message | BadRow | None]:
        values = _next_of(reader)
        if not values:
            return []
        if len(values) != len(names):
            raise BadRow(f"it has {len(values)} columns, and line 1 names {len(names)}")
        record = dict(zip(names, values, strict=True))
        return [fields.message(record.get, msgspec.json.encode(record), {})]

    return _rows(lines, read)


def _decoded(line: bytes) -> str:
    try:
        return line.decode()
    except UnicodeDecodeError:
        raise BadRow("it is not UTF-8") from None


def _next_of(reader: Iterator[list[str]]) -> list[str]:
    try:
        return next(reader)
    except csv.Error as error:
        raise BadRow(f"it is not CSV: {error}") from None


# -- Amazon SQS -----------------------------------------------------------------------------------


class _Attribute(msgspec.Struct, rename="pascal"):
    string_value: str | None = None
    binary_value: str | None = None  # Base64, as AWS prints it


class _Received(msgspec.Struct, rename="pascal"):
    body: str
    message_id: str = ""
    attributes: dict[str, str] = {}
    message_attributes: dict[str, _Attribute] = {}


class _Answer(msgspec.Struct, rename="pascal"):
    messages: list[msgspec.Raw] = []


_received = msgspec.json.Decoder(_Received).decode
_answer = msgspec.json.Decoder(_Answer).decode


def sqs_rows(file: IO[bytes], fields: Fields) -> Iterator[Row]:
    """Answers of `receive-message` one after another, as the AWS command line prints them or each
    in one line, or single messages. One that was received twice is a message once."""
    lines, seen = Lines(file), set[int]()

    def each(raw: msgspec.Raw) -> Message | BadRow | None:
        try:
            found = _received(raw)
            if found.message_id and (known := hash(found.message_id)) in seen:
                return None
            message = _sqs_message(found, fields)
        except NOT_JSON as error:
            return BadRow(f"it is no message of receive-message: {error}")
        except BadRow as bad:
            return bad
        if found.message_id:
            seen.add(known)
        return message

    def read() -> list[Message | BadRow | None]:
        if not (document := _document(lines)):
            return []
        try:
            members = _members(document)
            raws = [msgspec.Raw(document)] if "Body" in members else _answer(document).messages
        except NOT_JSON as error:
            raise BadRow(f"it is no answer of receive-message: {error}") from None
        return [each(raw) for raw in raws]

    return _rows(lines, read)


def _document(lines: Lines) -> bytes:
    """The next one: a line, or lines up to one that is `}` alone; b"" of an empty line. Raises
    BadRow for one that is cut or too long, and StopIteration."""
    first = next(lines)
    if first.rstrip() != b"{":
        return first.strip()
    parts, size = [first], len(first)
    for line in lines:
        size += len(line)
        if size <= BODY_BYTES_MAX:
            parts.append(line)
        if line.rstrip(b"\r\n") == b"}":
            if size > BODY_BYTES_MAX:
                raise BadRow(f"a document has at most {BODY_BYTES_MAX} bytes")
            return b"".join(parts)
    raise BadRow("the document is cut short: no line is } alone")


def _sqs_message(found: _Received, fields: Fields) -> Message:
    record = {**found.attributes, "MessageId": found.message_id, "Body": found.body}
    own = {
        name: value.string_value or value.binary_value or ""
        for name, value in found.message_attributes.items()
    }
    return fields.message({**own, **record}.get, found.body.encode(), own, {})
