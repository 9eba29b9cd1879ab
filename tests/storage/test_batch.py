"""The codec of batches: what goes in comes out, and nothing else ever does."""

from __future__ import annotations

import struct
from typing import Any
from zlib import crc32

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.limits import examples
from tests.storage import version_1
from zbus.core.model.chunk import Chunk
from zbus.core.model.message import Message
from zbus.storage.format import batch as codec
from zbus.storage.format.batch import (
    HEADER_BYTES,
    Ending,
    Kind,
    check,
    decode_chunk,
    encode_chunk,
    encode_state,
    inspect_header,
    iterate,
    read_header,
)
from zbus.storage.format.columns import KEY_LINE, Column, encode_columns
from zbus.storage.port import JournalDamage
from zbus.testing.engines import Writer

TEXTS = st.binary(max_size=20)
HEADERS = st.sampled_from([b"", b"a: 1\r\n", b"b: 2\r\n"]) | TEXTS
TIMES = st.integers(min_value=0, max_value=2**63 - 1) | st.just(0)
ROWS = st.builds(
    Message,
    st.just(b"") | TEXTS,
    tag=TEXTS,
    key=TEXTS,
    headers=HEADERS,
    body=TEXTS,
    produced_ms=st.just(77),
    due_ms=TIMES,
    expires_ms=TIMES,
    once=st.just(b"") | TEXTS,
)
ATTEMPTS = st.sampled_from([0, 0, 1, 2**32 - 1])
CHUNKS = st.builds(
    Chunk.of, st.lists(ROWS, min_size=1, max_size=12), st.integers(0, 2**63), st.just(77)
)


def limited(chunk: Chunk, attempts: list[int]) -> Chunk:
    """With limits of attempts, which versions 1 and 2 do not have."""
    if any(attempts := attempts[: len(chunk)]):
        chunk.attempts = [*attempts, *[0] * (len(chunk) - len(attempts))]
        chunk.plain = False
    return chunk


LIMITED = st.builds(limited, CHUNKS, st.lists(ATTEMPTS, max_size=12))
COLUMNS = ("ids", "headers", "bodies", "tags", "keys", "due", "expires", "once", "attempts")


def columns(chunk: Chunk) -> dict[str, Any]:
    """What a chunk holds; columns in which all is empty count as absent."""
    rows = {name: values for name in COLUMNS if any(values := getattr(chunk, name) or ())}
    return {"first": chunk.first, "time_ms": chunk.time_ms, "count": len(chunk), **rows}


@given(LIMITED)
def test_round_trip(chunk: Chunk) -> None:
    batch = encode_chunk(chunk, 5)
    header = batch.header
    assert check(batch.raw) == header
    assert (header.kind, header.records, header.version) == (
        Kind.DATA,
        len(chunk),
        2 if chunk.attempts is None else 3,
    )
    assert (header.base_offset, header.time_ms, header.previous_crc) == (chunk.first, 77, 5)
    assert header.length == len(batch.raw)
    assert len(batch.raw) % 8 == 0
    decoded = decode_chunk(batch)
    assert columns(decoded) == columns(decode_chunk(batch.raw)) == columns(chunk)
    assert decoded.times is None
    assert {len(getattr(decoded, name) or decoded.bodies) for name in COLUMNS} == {len(chunk)}


@given(
    CHUNKS,
    st.lists(ATTEMPTS, max_size=12),
    st.integers(0, 13),
    st.integers(0, 13),
    st.sampled_from([1, 2]),
)
def test_any_part_of_a_batch(
    chunk: Chunk, attempts: list[int], first: int, count_max: int, version: int
) -> None:
    if version == 1:
        raw = version_1.encode_messages(chunk.first, chunk.messages(), 77, 5)
    else:
        raw = encode_chunk(limited(chunk, attempts), 5).raw
    part = decode_chunk(raw, first, count_max)
    first = min(first, len(chunk))
    assert columns(part) == columns(decode_chunk(raw).part(first, first + count_max))


@given(CHUNKS)
def test_equal_headers_are_one_object(chunk: Chunk) -> None:
    for raw in (
        encode_chunk(chunk, 5).raw,
        version_1.encode_messages(chunk.first, chunk.messages(), 77, 5),
    ):
        decoded = decode_chunk(raw).headers
        assert len({id(lines) for lines in decoded if lines}) == len(set(decoded) - {b""})


@given(st.lists(ROWS, min_size=1, max_size=12), st.integers(0, 2**63))
def test_version_1_is_read(messages: list[Message], base_offset: int) -> None:
    for message in messages:
        message.once = message.once.replace(b"\r", b"")
        # Whoever wrote version 1 took such a line of a request for the key.
        assume(not message.headers.startswith(KEY_LINE))
    raw = version_1.encode_messages(base_offset, messages, 77, 5)
    assert check(raw).version == 1
    decoded = decode_chunk(raw)
    assert decoded.first == base_offset
    assert decoded.messages() == messages


@given(LIMITED.filter(lambda chunk: len(chunk) == 1))
def test_the_short_way_for_one_row_makes_the_same_bytes(chunk: Chunk) -> None:
    flags, parts = encode_columns(chunk)
    payload = b"".join(parts)
    limit = chunk.attempts[0] if chunk.attempts is not None else 0
    chunk.extend(chunk.part(0, 1))
    assert encode_columns(chunk)[0] & ~Column.DICTIONARY == flags
    assert payload == b"".join(
        struct.pack("<q", value)
        if isinstance(value, int)
        else struct.pack("<I4x", len(value)) + value + bytes(-len(value) & 7)
        for name in ("ids", "tags", "keys", "headers", "bodies", "due", "expires", "once")
        if (value := (getattr(chunk, name) or [b""])[0])
    ) + (struct.pack("<I4x", limit) if limit else b"")


def test_layout_is_as_documented() -> None:
    chunk = Chunk(9, 1000)
    chunk.add(b"a", b"x: 1\r\n", b"12345", due_ms=7)
    chunk.add(b"bcd", b"x: 1\r\n", b"6789", once=b"k")
    batch = encode_chunk(chunk, 3)
    payload = struct.pack("<II", 1, 3) + b"abcd\0\0\0\0"
    payload += struct.pack("<I4xIII4x", 1, 0, 0, 6) + b"x: 1\r\n\0\0"
    payload += struct.pack("<II", 5, 4) + b"123456789" + bytes(7)
    payload += struct.pack("<qq", 7, 0)
    payload += struct.pack("<II", 0, 1) + b"k" + bytes(7)
    flags = Column.ID | Column.HEADERS | Column.BODY | Column.DUE | Column.ONCE | Column.DICTIONARY
    head = struct.pack("<4sBBHIQQII", b"zbus", 2, 1, flags, 2, 9, 1000, 3, len(payload))
    assert batch.header.crc == crc32(head + payload)
    assert batch.raw == head + struct.pack("<I", batch.header.crc) + payload


@pytest.mark.parametrize("attempts", [[3], [0, 3], [2, 0, 1]])
def test_layout_of_limits_of_attempts(attempts: list[int]) -> None:
    """The batch is of version 3, so that older programs know that they do not know it."""
    chunk = Chunk(9, 1000)
    for limit in attempts:
        chunk.add(b"", b"", b"x", attempts_max=limit)
    count = len(attempts)
    payload = struct.pack(f"<{count}I", *[1] * count) + bytes(4 * count & 7)
    payload += b"x" * count + bytes(-count & 7)
    payload += struct.pack(f"<{count}I", *attempts) + bytes(4 * count & 7)
    head = struct.pack("<4sBBHIQQII", b"zbus", 3, 1, 16 | 512, count, 9, 1000, 3, len(payload))
    batch = encode_chunk(chunk, 3)
    assert batch.raw == head + struct.pack("<I", batch.header.crc) + payload
    assert decode_chunk(batch).attempts == attempts
    assert decode_chunk(batch, count - 1).attempts == attempts[-1:]


def test_layout_of_a_dictionary() -> None:
    chunk = Chunk()
    for lines in (b"a", b"bcd", b"a"):
        chunk.add(b"", lines, b"")
    payload = struct.pack("<I4x", 2) + struct.pack("<III4x", 0, 1, 0)
    payload += struct.pack("<II", 1, 3) + b"abcd" + bytes(4)
    flags, parts = encode_columns(chunk)
    assert (flags, b"".join(parts)) == (Column.HEADERS | Column.DICTIONARY, payload)


def test_empty_columns_are_absent() -> None:
    chunk = Chunk.of([Message(b"")] * 3)
    chunk.tags, chunk.keys, chunk.once = [b""] * 3, [b""] * 3, [b""] * 3
    chunk.due, chunk.expires, chunk.attempts = [0] * 3, [0] * 3, [0] * 3
    batch = encode_chunk(chunk, 0)
    assert len(batch.raw) == HEADER_BYTES
    assert columns(decode_chunk(batch)) == columns(chunk)


@pytest.mark.parametrize("payload", [b"", b"1234567", b"12345678"])
def test_state_is_padded(payload: bytes) -> None:
    header, raw = encode_state(Kind.CHECKPOINT, 8, 1, payload, 2)
    assert check(raw) == header
    assert (header.kind, header.records, header.end_offset) == (Kind.CHECKPOINT, 0, 8)
    assert raw[HEADER_BYTES:].rstrip(b"\0") == payload.rstrip(b"\0")
    assert len(raw) % 8 == 0


@pytest.mark.parametrize("count", [0, codec.COUNT_MAX + 1])
def test_number_of_messages_has_limits(count: int) -> None:
    with pytest.raises(ValueError, match="holds 1 to"):
        encode_chunk(Chunk.of([Message(b"")] * count), 0)


def sealed(flags: int, count: int, payload: bytes, kind: int = 1, version: int = 2) -> bytes:
    head = struct.pack("<4sBBHIQQII", b"zbus", version, kind, flags, count, 0, 0, 0, len(payload))
    return head + struct.pack("<I", crc32(head + payload)) + payload


HOSTILE = {
    "length past the end": sealed(1, 1, struct.pack("<II", 2**32 - 1, 0)),
    "sum of lengths past the end": sealed(1, 2, struct.pack("<II", 8, 1) + bytes(8)),
    "vector past the end": sealed(1, 1000, bytes(8)),
    "times past the end": sealed(32, 2, bytes(8)),
    "columns too short": sealed(1, 1, bytes(16)),
    "columns where none are": sealed(0, 1, bytes(8)),
    "records without columns": sealed(0, 2**32 - 1, b""),
    "flags that do not exist": sealed(1024, 1, b"", version=3),
    "flags that version 2 has not": sealed(512, 1, bytes(8)),
    "limits of attempts past the end": sealed(512, 3, bytes(8), version=3),
    "flags that version 1 has not": sealed(128, 1, bytes(8), version=1),
    "dictionary past the end": sealed(264, 1000, bytes(8)),
    "dictionary of very many": sealed(264, 2, struct.pack("<IIII", 2**32 - 1, 0, 0, 0)),
    "dictionary of none": sealed(264, 2, bytes(16)),
    "value past the end": sealed(264, 2, struct.pack("<IIIIII", 1, 0, 0, 0, 9, 0) + bytes(8)),
    "values past the end": sealed(264, 2, struct.pack("<IIIIII", 2, 0, 0, 1, 8, 1) + bytes(8)),
    "no such value": sealed(264, 2, struct.pack("<IIIIII", 1, 0, 0, 1, 8, 0) + bytes(8)),
    "dictionary of no column": sealed(256, 1, b""),
    "state is no data": sealed(0, 0, b"", kind=2),
    "state with records": sealed(0, 1, b"", kind=2),
    "kind 0": sealed(0, 0, b"", kind=0),
    "kind 4": sealed(0, 0, b"", kind=4),
    "version 0": sealed(0, 1, b"", version=0),
    "version 4": sealed(0, 1, b"", version=4),
    "length not of eights": sealed(1, 1, bytes(9)),
    "not the magic": b"zbuS" + sealed(0, 1, b"")[4:],
    "header cut short": sealed(0, 1, b"")[:39],
    "nothing": b"",
}


@pytest.mark.parametrize("raw", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_lengths_are_refused(raw: bytes) -> None:
    with pytest.raises(JournalDamage):
        decode_chunk(raw)


@pytest.mark.parametrize(("flags", "count", "kind"), [(0, 1, 2), (0, 1, 3), (2, 0, 2), (1, 0, 3)])
def test_odd_state_is_refused(flags: int, count: int, kind: int) -> None:
    assert isinstance(inspect_header(sealed(flags, count, b"", kind=kind)), str)
    assert not isinstance(inspect_header(sealed(0, 0, b"", kind=kind)), str)


@given(st.binary(max_size=200), st.integers(0, 1023), st.integers(0, 5), st.integers(1, 3))
def test_any_payload_is_decoded_or_refused(
    payload: bytes, flags: int, count: int, version: int
) -> None:
    raw = sealed(flags, count, payload + bytes(-len(payload) & 7), version=version)
    try:
        assert len(decode_chunk(raw)) == count
    except JournalDamage:
        pass


@given(CHUNKS, st.integers(1, 2), st.data())
def test_wrong_lengths_are_refused(chunk: Chunk, version: int, data: st.DataObject) -> None:
    """Each word of the payload, whether it is a length or not, becomes any other; or it is cut."""
    if version == 1:
        raw = version_1.encode_messages(chunk.first, chunk.messages(), 77, 5)
    else:
        raw = encode_chunk(chunk, 5).raw
    flags, payload = check(raw).flags, bytearray(raw[HEADER_BYTES:])
    if payload:
        at = 4 * data.draw(st.integers(0, len(payload) // 4 - 1))
        payload[at : at + 4] = data.draw(st.binary(min_size=4, max_size=4))
        if data.draw(st.booleans()):
            del payload[8 * data.draw(st.integers(0, len(payload) // 8)) :]
    first, count_max = data.draw(st.integers(0, 13)), data.draw(st.integers(0, 13))
    spoilt = sealed(flags, len(chunk), bytes(payload), version=version)
    try:
        decoded = decode_chunk(spoilt, first, count_max)
    except JournalDamage:
        return
    assert len(payload) == len(raw) - HEADER_BYTES
    assert len(decoded) == max(0, min(len(chunk) - first, count_max))


@pytest.mark.parametrize("version", [1, 2])
def test_every_wrong_length_is_refused(version: int) -> None:
    chunk = Chunk()
    for number in range(3):
        chunk.add(b"id%d" % number, b"a: %d\r\n" % (number & 1), b"body", b"t", b"k", 5, 6)
    if version == 1:
        raw = version_1.encode_messages(0, chunk.messages(), 0, 0)
    else:
        raw = encode_chunk(chunk, 0).raw
    whole = raw[HEADER_BYTES:]
    for size in range(0, len(whole), 8):
        with pytest.raises(JournalDamage):
            decode_chunk(sealed(check(raw).flags, 3, whole[:size], version=version))
    lengths = [
        at
        for at in range(0, len(whole), 4)
        if 0 < int.from_bytes(whole[at : at + 4], "little") < 20
    ]
    for at in lengths:
        for bit in range(8, 32):
            spoilt = bytearray(whole)
            spoilt[at + bit // 8] ^= 1 << bit % 8
            if struct.pack("<qqq", *[5] * 3) in spoilt and struct.pack("<qqq", *[6] * 3) in spoilt:
                with pytest.raises(JournalDamage):
                    decode_chunk(sealed(check(raw).flags, 3, bytes(spoilt), version=version))


def test_positions_other_than_zero() -> None:
    writer = Writer()
    first, second = writer.data(b"a"), writer.data(b"b", b"c")
    assert read_header(first + second, len(first)).base_offset == 1
    with pytest.raises(JournalDamage, match=f"at byte {len(first)}: checksum is wrong"):
        check(first + second[:-1] + b"x", len(first))


def a_log() -> list[bytes]:
    writer = Writer()
    return [
        writer.checkpoint(),
        writer.data(b"one"),
        writer.data(b"two", b"three"),
        writer.state(2),
        writer.data(b"four"),
    ]


def test_walk_over_a_log() -> None:
    log = a_log()
    walk = iterate(b"".join(log), previous_crc=0)
    assert [batch.raw for batch in walk] == log
    assert (walk.ending, walk.position) == (Ending.CLEAN, sum(map(len, log)))


def test_cut_at_every_byte_is_torn_there() -> None:
    log = a_log()
    whole = b"".join(log)
    for cut in range(len(whole)):
        walk = iterate(whole[:cut], previous_crc=0)
        good = [batch.raw for batch in walk]
        assert good == log[: len(good)]
        assert walk.position == sum(map(len, good)) <= cut < walk.position + len(log[len(good)])
        assert walk.ending is (Ending.CLEAN if walk.position == cut else Ending.TORN)


def test_flip_of_every_bit_is_noticed_where_it_is() -> None:
    log = a_log()
    whole = b"".join(log)
    for bit in range(8 * len(whole)):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        walk = iterate(bytes(damaged), previous_crc=0)
        good = [batch.raw for batch in walk]
        assert good == log[: len(good)]
        assert walk.position <= bit // 8 < walk.position + len(log[len(good)])
        last = len(good) == len(log) - 1
        assert walk.ending is (Ending.TORN if last else Ending.DAMAGED), bit


def test_a_flip_in_a_large_batch_is_noticed() -> None:
    """Of more than 4 KiB, by one message and by many."""
    writer = Writer()
    log = [writer.data(b"x" * 9_000), writer.data(*[b"%d" % n for n in range(1_000)])]
    log.append(writer.data(b"the last"))
    whole, first = b"".join(log), len(log[0])
    assert min(map(len, log[:2])) > 4_096
    for position in range(0, first + len(log[1]), 61):
        damaged = bytearray(whole)
        damaged[position] ^= 1
        walk = iterate(bytes(damaged), previous_crc=0)
        assert [batch.raw for batch in walk] == log[: position >= first]
        assert walk.ending is Ending.DAMAGED


@examples(50)
@given(st.integers(0, 400), st.binary(min_size=1, max_size=60))
def test_overwriting_never_yields_a_wrong_batch(position: int, garbage: bytes) -> None:
    log = a_log()
    whole = b"".join(log)
    damaged = whole[:position] + garbage + whole[position + len(garbage) :]
    good = [batch.raw for batch in iterate(damaged, previous_crc=0)]
    assert good == log[: len(good)]


def test_a_foreign_batch_is_damage() -> None:
    log = a_log()
    foreign = encode_chunk(Chunk.of([Message(b"x")], 1), 12345).raw
    walk = iterate(log[0] + log[1] + foreign, previous_crc=0)
    assert [batch.raw for batch in walk] == log[:2]
    assert walk.ending is Ending.DAMAGED
    assert "does not follow" in walk.reason


def test_without_a_crc_the_chain_may_have_gaps() -> None:
    log = a_log()
    walk = iterate(log[1] + log[4])
    assert [batch.raw for batch in walk] == [log[1], log[4]]
    assert walk.ending is Ending.CLEAN


def test_batches_in_a_body_do_not_make_a_torn_tail_damage() -> None:
    """A producer may send what it read from a log; a crash while writing it is still a crash."""
    inner = b"".join(a_log())
    writer = Writer()
    log = [writer.checkpoint(), writer.data(b"", inner, bytes(100))]
    whole = b"".join(log)
    for cut in range(len(log[0]) + HEADER_BYTES, len(whole), 8):
        walk = iterate(whole[:cut], previous_crc=0)
        assert [batch.raw for batch in walk] == log[:1]
        assert walk.ending is Ending.TORN


def test_search_behind_bad_bytes_is_bounded() -> None:
    claims = sealed(0, 1, bytes(400))[:-8] + b"\xff" * 8
    assert codec.batch_follows(bytes(8) + claims * 2, 0, budget_bytes=1000) is False
    # Rather refuse to start than search on for hours, or cut what may have been acknowledged.
    assert codec.batch_follows(bytes(8) + claims * 5, 0, budget_bytes=1000) is True
