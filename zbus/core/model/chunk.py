"""Neighbouring messages of one partition as columns: the unit from put to pull.

The lists that a put appends to are the ones that the journal writes, that stay in memory, that a
read from storage gives back and that a pull is served from. There is no object per message: a
message is a position in a chunk. `Message` is a view for the rare paths that want one.

`ids`, `headers` and `bodies` are always there; any other column is None as long as no message has
such a value. All columns have one length. Equal headers are mostly one object, shared.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import TypeAlias, TypeVar

from zbus.core.model.message import Message

_T = TypeVar("_T", bytes, int)

Row: TypeAlias = (
    tuple[bytes, bytes, bytes] | tuple[bytes, bytes, bytes, bytes, bytes, int, int, bytes, int]
)
"""One message to be put: id, headers, body, and, of one that has anything else, tag, key, due,
expiry, idempotency key and attempts; see `Chunk.add`. A plain tuple, since there is one for each
put."""

MESSAGE_BYTES = 100
"""What a message costs in memory beside its body and headers, about."""


class Chunk:
    """Rows are only ever added; a row never changes after it was added."""

    __slots__ = (
        "attempts",
        "bodies",
        "due",
        "expires",
        "first",
        "followed",
        "headers",
        "held_bytes",
        "ids",
        "keys",
        "once",
        "plain",
        "recent",
        "stored_bytes",
        "tags",
        "time_ms",
        "times",
    )

    def __init__(self, first: int = 0, time_ms: int = 0) -> None:
        self.first = first  # the offset of the first row
        self.time_ms = time_ms  # epoch; when all rows were produced, or (with `times`) the first
        self.times: list[int] | None = None  # when each was; None = all at `time_ms`
        self.ids: list[bytes] = []  # the producer's; empty = implied by partition and offset
        self.headers: list[bytes] = []  # canonical header lines, each `name: value\r\n`
        self.bodies: list[bytes] = []
        self.tags: list[bytes] | None = None  # dot-separated words that filters match
        self.keys: list[bytes] | None = None  # same key, same partition
        self.due: list[int] | None = None  # epoch ms; not delivered before it; 0 = at once
        self.expires: list[int] | None = None  # epoch ms; not delivered from it on; 0 = never
        self.once: list[bytes] | None = None  # idempotency keys, as in a header line; empty = none
        self.attempts: list[int] | None = None  # at most; 0 = as often as the group says
        self.plain = True  # no row has anything but id, headers and body
        # The books of `zbus.core.log`.
        self.held_bytes = 0  # of memory, about
        self.stored_bytes = 0  # as batches
        self.recent = False  # kept as it was put, not read back
        self.followed = False  # what comes after it was asked for

    @classmethod
    def of(cls, messages: Iterable[Message], first: int = 0, time_ms: int = 0) -> Chunk:
        """A chunk of these messages; their own time of production is not taken over."""
        chunk = cls(first, time_ms)
        for m in messages:
            rare = m.due_ms, m.expires_ms, m.once, m.attempts_max
            chunk.add(m.id, m.headers, m.body, m.tag, m.key, *rare)
        return chunk

    @classmethod
    def single(cls, row: Row) -> Chunk:
        """A chunk of one message, to be put."""
        chunk = cls()
        chunk.add(*row)
        return chunk

    def __len__(self) -> int:
        return len(self.bodies)

    def __repr__(self) -> str:
        return f"Chunk({self.first}..{self.end}, {self.bodies[:3]!r})"

    @property
    def end(self) -> int:
        """The offset after the last row."""
        return self.first + len(self.bodies)

    @property
    def timed(self) -> bool:
        """Some row is due later or expires."""
        return self.due is not None or self.expires is not None

    def add(
        self,
        id: bytes,
        headers: bytes,
        body: bytes,
        tag: bytes = b"",
        key: bytes = b"",
        due_ms: int = 0,
        expires_ms: int = 0,
        once: bytes = b"",
        attempts_max: int = 0,
    ) -> None:
        """Append one message."""
        count = len(self.bodies)
        self.ids.append(id)
        self.headers.append(headers)
        self.bodies.append(body)
        if self.plain:
            if not (tag or key or due_ms or expires_ms or once or attempts_max):
                return
            self.plain = False
        # Mostly a message has what the one before it has: then no call is needed.
        if self.tags is not None:
            self.tags.append(tag)
        elif tag:
            self.tags = [*repeat(b"", count), tag]
        if self.keys is not None:
            self.keys.append(key)
        elif key:
            self.keys = [*repeat(b"", count), key]
        if self.due is not None:
            self.due.append(due_ms)
        elif due_ms:
            self.due = [*repeat(0, count), due_ms]
        if self.expires is not None:
            self.expires.append(expires_ms)
        elif expires_ms:
            self.expires = [*repeat(0, count), expires_ms]
        if self.once is not None:
            self.once.append(once)
        elif once:
            self.once = [*repeat(b"", count), once]
        if self.attempts is not None:
            self.attempts.append(attempts_max)
        elif attempts_max:
            self.attempts = [*repeat(0, count), attempts_max]

    def fill(
        self,
        ids: Sequence[bytes],
        headers: Sequence[bytes],
        bodies: Sequence[bytes],
        tags: Sequence[bytes],
        keys: Sequence[bytes],
        due_ms: int = 0,
        expires_ms: int = 0,
        once: bytes = b"",
        attempts_max: int = 0,
    ) -> None:
        """Give an empty chunk its messages; what is one value is that of all."""
        count = len(bodies)
        self.ids, self.headers, self.bodies = [*ids], [*headers], [*bodies]
        self.tags = [*tags] if any(tags) else None
        self.keys = [*keys] if any(keys) else None
        self.due = [due_ms] * count if due_ms else None
        self.expires = [expires_ms] * count if expires_ms else None
        self.once = [once] * count if once else None
        self.attempts = [attempts_max] * count if attempts_max else None
        one = due_ms or expires_ms or once or attempts_max
        self.plain = not (one or self.tags or self.keys)

    def extend(self, other: Chunk) -> None:
        """Append all rows of another chunk. They keep their times of production."""
        count, more = len(self.bodies), len(other.bodies)
        if self.times is not None or other.times is not None or self.time_ms != other.time_ms:
            times = [other.time_ms] * more if other.times is None else other.times
            self.times = _with(self.times, count, self.time_ms, times)
        self.ids += other.ids
        self.headers += other.headers
        self.bodies += other.bodies
        if self.plain and other.plain:
            return
        self.plain = False
        self.tags = _joined(self.tags, other.tags, count, more, b"")
        self.keys = _joined(self.keys, other.keys, count, more, b"")
        self.due = _joined(self.due, other.due, count, more, 0)
        self.expires = _joined(self.expires, other.expires, count, more, 0)
        self.once = _joined(self.once, other.once, count, more, b"")
        self.attempts = _joined(self.attempts, other.attempts, count, more, 0)

    def part(self, start: int, stop: int) -> Chunk:
        """A chunk of its own with the rows from `start` to before `stop`."""
        part = Chunk(self.first + start, self.time_ms)
        rows = slice(start, stop)
        part.ids, part.headers, part.bodies = self.ids[rows], self.headers[rows], self.bodies[rows]
        part.plain = self.plain
        part.times = None if self.times is None else self.times[rows]
        part.tags = None if self.tags is None else self.tags[rows]
        part.keys = None if self.keys is None else self.keys[rows]
        part.due = None if self.due is None else self.due[rows]
        part.expires = None if self.expires is None else self.expires[rows]
        part.once = None if self.once is None else self.once[rows]
        part.attempts = None if self.attempts is None else self.attempts[rows]
        return part

    def clear(self) -> None:
        """Let go of all rows; a holder of the chunk finds it empty."""
        self.ids, self.headers, self.bodies = [], [], []
        self.plain = True
        self.times = self.tags = self.keys = self.due = self.expires = self.once = None
        self.attempts = None

    def time_of(self, at: int) -> int:
        """When row `at` was produced, epoch ms."""
        return self.time_ms if self.times is None else self.times[at]

    def id_of(self, at: int, index: int) -> bytes:
        """The id of row `at` of a chunk of partition `index`."""
        return self.ids[at] or implied_id(index, self.first + at)

    def tag_of(self, at: int) -> bytes:
        return b"" if self.tags is None else self.tags[at]

    def key_of(self, at: int) -> bytes:
        return b"" if self.keys is None else self.keys[at]

    def message(self, at: int) -> Message:
        """Row `at` as a message of its own."""
        return Message(
            self.ids[at],
            b"" if self.tags is None else self.tags[at],
            b"" if self.keys is None else self.keys[at],
            self.headers[at],
            self.bodies[at],
            self.time_of(at),
            0 if self.due is None else self.due[at],
            0 if self.expires is None else self.expires[at],
            b"" if self.once is None else self.once[at],
            0 if self.attempts is None else self.attempts[at],
        )

    def messages(self) -> list[Message]:
        """All rows."""
        return [self.message(at) for at in range(len(self.bodies))]

    def pick(self, rows: Iterable[int]) -> Chunk:
        """A chunk with these rows alone, at the same offset."""
        return Chunk.of([self.message(at) for at in rows], self.first, self.time_ms)

    def size_bytes(self) -> int:
        """What all rows take of memory, about."""
        bodies, headers = self.bodies, self.headers
        if len(bodies) == 1:
            return MESSAGE_BYTES + len(bodies[0]) + len(headers[0])
        shared = {id(lines): len(lines) for lines in headers}
        return len(bodies) * MESSAGE_BYTES + sum(map(len, bodies)) + sum(shared.values())

    def check(self) -> None:
        """Assert the invariants."""
        rare = (self.tags, self.keys, self.due, self.expires, self.once, self.attempts)
        for column in (self.ids, self.headers, *rare, self.times):
            assert column is None or len(column) == len(self.bodies)
        assert not (self.plain and any(column is not None for column in rare))


def make_row(
    id: bytes,
    headers: bytes,
    body: bytes,
    tag: bytes = b"",
    key: bytes = b"",
    due_ms: int = 0,
    expires_ms: int = 0,
    once: bytes = b"",
    attempts_max: int = 0,
) -> Row:
    """A message to be put; what is not given it does not have."""
    return id, headers, body, tag, key, due_ms, expires_ms, once, attempts_max


def implied_id(index: int, offset: int) -> bytes:
    """The id of a message that was put without one: where it is in its topic."""
    return b"%d-%d" % (index, offset)


def _with(column: list[_T] | None, count: int, empty: _T, values: Sequence[_T]) -> list[_T]:
    """A column of `count` values with more behind them."""
    if column is None:
        column = [empty] * count
    column += values
    return column


def _joined(
    column: list[_T] | None, other: list[_T] | None, count: int, more: int, empty: _T
) -> list[_T] | None:
    if other is None:
        if column is not None:
            column += [empty] * more
        return column
    return _with(column, count, empty, other)
