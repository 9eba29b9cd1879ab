"""Rows as requests: many messages in one, in the order of the rows (pipeline, 4.3).

Which columns there may be is `COLUMNS`; only `body` must be there. A column `topic` says where each
row goes, unless one topic is named for all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa

from zbus.client.commands import CONTAINER
from zbus.client.requests import optional, own_lines
from zbus.spark.errors import Usage
from zbus.spark.times import ceil_ms

COLUMNS: Final[dict[str, tuple[str, ...]]] = {
    "topic": ("string",),
    "key": ("string",),
    "tag": ("string",),
    "id": ("string",),
    "headers": ("map<string,string>",),
    "body": ("binary", "string"),
    "deliver_at": ("timestamp",),
}
"""By name: of which types it may be."""

OF_A_PLACE: Final = ("partition", "offset", "timestamp")
"""What a message that was read has, and one that is written gets."""

MESSAGES_MAX: Final = 4_000
BYTES_MAX: Final = 4 << 20
"""Of one request. A body that is larger has one for itself."""

SET_BY_BROKER: Final = frozenset(("host", "sender", "remote-addr"))
"""Headers that say how a message came: one that is written comes another way."""

_MESSAGE: Final = b"POST / HTTP/1.1\r\n%bcontent-length: %d\r\n\r\n%b"
_CONTENT: Final = b"content-type: %b\r\n" % CONTAINER


class Load(NamedTuple):
    """What one request carries."""

    topic: str
    deliver_at_ms: int | None
    messages: int
    body: bytes

    @property
    def lines(self) -> bytes:
        """Header lines of the request."""
        return optional(deliver_at=self.deliver_at_ms) + _CONTENT


def check_columns(columns: dict[str, str], topic: str | None) -> None:
    """Names and types of the columns of a table that is to be written. Raises Usage."""
    for name, kind in columns.items():
        if name in OF_A_PLACE:
            drop = ", ".join(f'"{each}"' for each in OF_A_PLACE if each in columns)
            raise Usage(f"the broker gives a message its {name}: leave it out with .drop({drop})")
        wanted = COLUMNS.get(name)
        if wanted is None:
            raise Usage(f"a message has no {name}: the columns may be {', '.join(COLUMNS)}")
        if kind not in wanted:
            raise Usage(f"the column {name} is {' or '.join(wanted)}, and not {kind}")
    if "body" not in columns:
        raise Usage("there must be a column body, of binary or string")
    if topic is None and "topic" not in columns:
        raise Usage("missing target: the option topic, or a column topic")


def loads(batch: pa.RecordBatch, topic: str | None) -> Iterator[Load]:
    """The requests for these rows. Rows of one topic keep their order. Raises Usage for a row that
    no message can have."""
    columns = {name: batch.column(name).to_pylist() for name in batch.schema.names}
    if "deliver_at" in columns:
        times = columns["deliver_at"]
        columns["deliver_at"] = [None if each is None else ceil_ms(each) for each in times]
    for name, rows in _by_topic(batch, columns, topic):
        for some in _runs(columns.get("deliver_at"), rows):
            due_ms = columns["deliver_at"][some[0]] if "deliver_at" in columns else None
            yield from _load(columns, name, due_ms, some)


def _by_topic(
    batch: pa.RecordBatch, columns: dict[str, list[Any]], topic: str | None
) -> Iterator[tuple[str, Sequence[int]]]:
    """Which rows go into which topic."""
    if topic is not None:
        if batch.num_rows:
            yield topic, range(batch.num_rows)
        return
    found: dict[str | None, list[int]] = {}
    for row, name in enumerate(columns["topic"]):
        found.setdefault(name, []).append(row)
    for name, rows in found.items():
        if not name:
            raise Usage("there is a row without a topic")
        yield name, rows


def _runs(due: list[int | None] | None, rows: Sequence[int]) -> Iterator[Sequence[int]]:
    """A request has one time for all of its messages, so these end where it changes."""
    if due is None:
        yield rows
        return
    begin = 0
    for at in range(1, len(rows) + 1):
        if at == len(rows) or due[rows[at]] != due[rows[begin]]:
            yield rows[begin:at]
            begin = at


def _load(
    columns: dict[str, list[Any]], topic: str, due_ms: int | None, rows: Sequence[int]
) -> Iterator[Load]:
    bodies = columns["body"]
    parts: list[bytes] = []
    size = 0
    for row in rows:
        body = bodies[row]
        if not isinstance(body, bytes):
            body = b"" if body is None else body.encode()
        if parts and (len(parts) >= MESSAGES_MAX or size + len(body) > BYTES_MAX):
            yield Load(topic, due_ms, len(parts), b"".join(parts))
            parts, size = [], 0
        lines = _lines(columns, row)
        parts.append(_MESSAGE % (lines, len(body), body))
        size += len(body) + len(lines)
    if parts:
        yield Load(topic, due_ms, len(parts), b"".join(parts))


def _lines(columns: dict[str, list[Any]], row: int) -> bytes:
    given = {name: columns[name][row] for name in ("id", "tag", "key") if name in columns}
    headers = dict(columns["headers"][row] or ()) if "headers" in columns else {}
    for name in SET_BY_BROKER & headers.keys():
        del headers[name]
    try:
        return optional(**given) + own_lines({n: v or "" for n, v in headers.items()})
    except ValueError as error:
        raise Usage(f"a row that no message can have: {error}") from error
