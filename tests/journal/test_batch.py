"""The codec of batches: what goes in comes out, and nothing else ever does."""

from __future__ import annotations

import struct
from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.journal.support import Writer
from zbus.core.message import Message
from zbus.journal import batch as codec
from zbus.journal.batch import (
    HEADER_BYTES,
    Batch,
    Column,
    Ending,
    Kind,
    check,
    decode_messages,
    encode_messages,
    encode_state,
    headers,
    iterate,
    read_header,
)
from zbus.journal.ports import JournalDamage

TEXTS = st.binary(max_size=20)
TIMES = st.integers(min_value=0, max_value=2**63 - 1) | st.just(0)
MESSAGES = st.builds(
    Message,
    TEXTS,
    tag=TEXTS,
    key=TEXTS,
    headers=TEXTS,
    body=TEXTS,
    produced_ms=st.just(77),
    due_ms=TIMES,
    expires_ms=TIMES,
)


@given(st.lists(MESSAGES, min_size=1, max_size=12), st.integers(0, 2**64 - 1))
def test_round_trip(messages: list[Message], base_offset: int) -> None:
    raw, crc = encode_messages(base_offset, messages, 77, 5)
    header = check(raw)
    assert (header.kind, header.records, header.base_offset) == (
        Kind.DATA,
        len(messages),
        base_offset,
    )
    assert (header.previous_crc, header.crc, header.length) == (5, crc, len(raw))
    assert len(raw) % 8 == 0
    assert decode_messages(raw) == decode_messages(Batch(header, raw)) == messages


@given(st.lists(MESSAGES, min_size=1, max_size=12), st.integers(0, 11), st.integers(1, 13))
def test_any_part_of_a_batch(messages: list[Message], first: int, count_max: int) -> None:
    raw, _ = encode_messages(9, messages, 77, 5)
    first = min(first, len(messages) - 1)
    assert decode_messages(raw, first, count_max) == messages[first : first + count_max]


@given(MESSAGES)
def test_the_short_way_for_one_message_makes_the_same_bytes(message: Message) -> None:
    flags, parts = codec._columns([message], 1)
    assert codec._one_record(message)[0] == flags
    assert b"".join(codec._one_record(message)[1]) == b"".join(parts)


def test_layout_is_as_documented() -> None:
    messages = [Message(b"a", body=b"12345", due_ms=7), Message(b"bcd", body=b"6789")]
    raw, crc = encode_messages(9, messages, 1000, 3)
    payload = struct.pack("<II", 1, 3) + b"abcd\0\0\0\0"
    payload += struct.pack("<II", 5, 4) + b"123456789" + bytes(7)
    payload += struct.pack("<qq", 7, 0)
    flags = Column.ID | Column.BODY | Column.DUE
    head = struct.pack("<4sBBHIQQII", b"zbus", 1, 1, flags, 2, 9, 1000, 3, len(payload))
    assert crc == crc32(head + payload)
    assert raw == head + struct.pack("<I", crc) + payload


def test_empty_columns_are_absent() -> None:
    raw, _ = encode_messages(0, [Message(b"")] * 3, 0, 0)
    assert len(raw) == HEADER_BYTES
    assert decode_messages(raw) == [Message(b"")] * 3


@pytest.mark.parametrize("payload", [b"", b"1234567", b"12345678"])
def test_state_is_padded(payload: bytes) -> None:
    raw, crc = encode_state(Kind.CHECKPOINT, 8, 1, payload, 2)
    header = check(raw)
    assert (header.kind, header.records, header.end_offset) == (Kind.CHECKPOINT, 0, 8)
    assert header.crc == crc
    assert raw[HEADER_BYTES:].rstrip(b"\0") == payload.rstrip(b"\0")
    assert len(raw) % 8 == 0


@pytest.mark.parametrize("count", [0, codec.COUNT_MAX + 1])
def test_number_of_messages_has_limits(count: int) -> None:
    with pytest.raises(ValueError, match="holds 1 to"):
        encode_messages(0, [Message(b"")] * count, 0, 0)


def sealed(flags: int, count: int, payload: bytes, kind: int = 1, version: int = 1) -> bytes:
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
    "flags that do not exist": sealed(128, 1, b""),
    "state is no data": sealed(0, 0, b"", kind=2),
    "state with records": sealed(0, 1, b"", kind=2),
    "kind 0": sealed(0, 0, b"", kind=0),
    "kind 4": sealed(0, 0, b"", kind=4),
    "version 2": sealed(0, 1, b"", version=2),
    "length not of eights": sealed(1, 1, bytes(9)),
    "not the magic": b"zbuS" + sealed(0, 1, b"")[4:],
    "header cut short": sealed(0, 1, b"")[:39],
    "nothing": b"",
}


@pytest.mark.parametrize("raw", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_lengths_are_refused(raw: bytes) -> None:
    with pytest.raises(JournalDamage):
        decode_messages(raw)


@given(st.binary(max_size=200), st.integers(0, 127), st.integers(0, 5))
def test_any_payload_is_decoded_or_refused(payload: bytes, flags: int, count: int) -> None:
    raw = sealed(flags, count, payload + bytes(-len(payload) & 7))
    try:
        assert len(decode_messages(raw)) == count
    except JournalDamage:
        pass


def test_positions_other_than_zero() -> None:
    writer = Writer()
    first, second = writer.data(b"a"), writer.data(b"b", b"c")
    assert read_header(first + second, len(first)).base_offset == 1
    assert [position for position, _ in headers(first + second, 0)] == [0, len(first)]
    with pytest.raises(JournalDamage, match=f"at byte {len(first)}: checksum is wrong"):
        check(first + second[:-1] + b"x", len(first))
    with pytest.raises(JournalDamage, match="not a sequence"):
        headers(first + second[:-8], 0)
    with pytest.raises(JournalDamage, match="does not follow"):
        headers(second, 0)


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


@settings(max_examples=50)
@given(st.integers(0, 400), st.binary(min_size=1, max_size=60))
def test_overwriting_never_yields_a_wrong_batch(position: int, garbage: bytes) -> None:
    log = a_log()
    whole = b"".join(log)
    damaged = whole[:position] + garbage + whole[position + len(garbage) :]
    good = [batch.raw for batch in iterate(damaged, previous_crc=0)]
    assert good == log[: len(good)]


def test_a_foreign_batch_is_damage() -> None:
    log = a_log()
    foreign, _ = encode_messages(1, [Message(b"x")], 0, 12345)
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
