"""Columns of neighbouring messages against a list of them."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
from hypothesis import given
from hypothesis import strategies as st

from zbus.core.model.chunk import MESSAGE_BYTES, Chunk, implied_id
from zbus.core.model.message import Message

RARE = ("tag", "key", "due_ms", "expires_ms", "once", "attempts_max")
COLUMNS = ("tags", "keys", "due", "expires", "once", "attempts")

HEADERS = [b"", b"a: 1\r\n", b"a: 1\r\nb: 2\r\n"]
"""The same objects again and again, as the faces share them."""


def value_or_none(values: list[bytes]) -> st.SearchStrategy[bytes]:
    return st.sampled_from([b"", b"", b"", *values])


TIMES = st.sampled_from([0, 0, 0, 1, 50, 1 << 60])
PLAIN = st.builds(
    Message,
    value_or_none([b"id", b"other"]),
    headers=st.sampled_from(HEADERS),
    body=st.binary(max_size=5),
)
ANY = st.builds(
    Message,
    value_or_none([b"id", b"other"]),
    tag=value_or_none([b"a", b"a.b"]),
    key=value_or_none([b"k"]),
    headers=st.sampled_from(HEADERS),
    body=st.binary(max_size=5),
    due_ms=TIMES,
    expires_ms=TIMES,
    once=value_or_none([b"once", b"twice"]),
    attempts_max=st.sampled_from([0, 0, 1, 5]),
)
MESSAGES = st.one_of(st.lists(PLAIN, max_size=6), st.lists(ANY, max_size=6))
CLOCK = st.integers(5, 8)


@attrs.define
class Model:
    """A chunk, and the messages that it should hold, each with its time."""

    chunk: Chunk
    rows: list[Message]

    @classmethod
    def of(cls, messages: Sequence[Message], first: int, time_ms: int, whole: bool) -> Model:
        rows = [with_time(message, time_ms) for message in messages]
        if whole:
            return cls(Chunk.of(messages, first, time_ms), rows)
        chunk = Chunk(first, time_ms)
        for m in messages:
            chunk.add(*fields(m))
        return cls(chunk, rows)

    def check(self) -> None:
        chunk, rows = self.chunk, self.rows
        chunk.check()
        assert len(chunk) == len(rows)
        assert chunk.end == chunk.first + len(rows)
        assert chunk.messages() == rows
        assert [chunk.message(at) for at in range(len(rows))] == rows
        assert [chunk.time_of(at) for at in range(len(rows))] == [m.produced_ms for m in rows]
        assert [chunk.tag_of(at) for at in range(len(rows))] == [m.tag for m in rows]
        ids = [m.id or implied_id(3, chunk.first + at) for at, m in enumerate(rows)]
        assert [chunk.id_of(at, 3) for at in range(len(rows))] == ids
        for name, column in zip(RARE, COLUMNS, strict=True):
            if any(getattr(message, name) for message in rows):
                assert getattr(chunk, column) is not None
                assert not chunk.plain
        if any(message.due_ms or message.expires_ms for message in rows):
            assert chunk.timed
        shared = {id(message.headers): len(message.headers) for message in rows}
        bodies = sum(len(message.body) for message in rows)
        assert chunk.size_bytes() == len(rows) * MESSAGE_BYTES + bodies + sum(shared.values())


def fields(m: Message) -> tuple[bytes, bytes, bytes, bytes, bytes, int, int, bytes, int]:
    """A message as `Chunk.add` takes it."""
    return (
        m.id,
        m.headers,
        m.body,
        m.tag,
        m.key,
        m.due_ms,
        m.expires_ms,
        m.once,
        m.attempts_max,
    )


def with_time(message: Message, time_ms: int) -> Message:
    changed = {name: getattr(message, name) for name in Message.__slots__}
    return Message(**{**changed, "produced_ms": time_ms})


@given(
    parts=st.lists(st.tuples(MESSAGES, CLOCK, st.booleans()), min_size=1, max_size=5),
    first=st.sampled_from([0, 9, 1 << 40]),
    data=st.data(),
)
def test_rows_are_what_was_added(
    parts: list[tuple[list[Message], int, bool]], first: int, data: st.DataObject
) -> None:
    model = Model.of(parts[0][0], first, parts[0][1], parts[0][2])
    model.check()
    for messages, time_ms, whole in parts[1:]:
        if data.draw(st.booleans()):
            other = Model.of(messages, model.chunk.end, time_ms, whole)
            kept = other.chunk.messages()
            model.chunk.extend(other.chunk)
            model.rows += other.rows
            assert other.chunk.messages() == kept, "the other chunk stays as it is"
            other.check()
        elif model.chunk.times is None:
            for m in messages:
                model.chunk.add(*fields(m))
                model.rows.append(with_time(m, model.chunk.time_ms))
        model.check()
    count = len(model.rows)
    start = data.draw(st.integers(0, count))
    stop = data.draw(st.integers(start, count))
    part = Model(model.chunk.part(start, stop), model.rows[start:stop])
    assert part.chunk.first == first + start
    part.check()
    chosen = data.draw(st.lists(st.integers(0, count - 1), unique=True)) if count else []
    picked = model.chunk.pick(sorted(chosen))
    assert picked.first == first
    rows = [with_time(model.rows[at], model.chunk.time_ms) for at in sorted(chosen)]
    Model(picked, rows).check()
    # A part has lists of its own.
    part.chunk.extend(Chunk.of([Message(b"more", b"tag")], part.chunk.end, 99))
    model.check()
    model.chunk.clear()
    part.chunk.check()
    assert len(part.chunk) == stop - start + 1
    assert (len(model.chunk), model.chunk.messages(), model.chunk.end) == (0, [], first)
    Model(model.chunk, []).check()


def test_only_what_is_needed_is_there() -> None:
    chunk = Chunk(5, 7)
    chunk.add(b"", b"", b"one")
    assert chunk.plain
    assert not chunk.timed
    assert [getattr(chunk, name) for name in (*COLUMNS, "times")] == [None] * 7
    chunk.add(b"", b"", b"two", b"tag")
    assert not chunk.plain
    assert chunk.tags == [b"", b"tag"]
    assert (chunk.keys, chunk.due, chunk.expires, chunk.once, chunk.times) == (None,) * 5
    chunk.extend(Chunk.of([Message(b"", body=b"three")], 7, 7))
    assert chunk.times is None, "of the same time"
    assert chunk.tags == [b"", b"tag", b""]
    chunk.extend(Chunk.of([Message(b"", body=b"four", due_ms=9)], 8, 8))
    assert chunk.times == [7, 7, 7, 8]
    assert chunk.due == [0, 0, 0, 9]
    assert chunk.timed
    assert repr(chunk) == "Chunk(5..9, [b'one', b'two', b'three'])"
