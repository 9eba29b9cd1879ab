"""Ids in the shapes of RocketMQ, and Java's hash."""

from __future__ import annotations

import binascii

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zbus.dialects.mqcloud.ids import Ids, Placed, Stored, java_hash, meant_by, queue_of
from zbus.dialects.mqcloud.request_id import RequestId, read_request_id

HASHES = {
    "": 0,
    "a": 97,
    "order-1": -1207111310,
    "hello": 99162322,
    "polygenelubricants": -(1 << 31),
    "订单": 1129459,
    "\U0001f600": 1772899,
}


@pytest.mark.parametrize("text", HASHES)
def test_the_hash_is_javas(text: str) -> None:
    assert java_hash(text) == HASHES[text]


def test_the_queue_is_the_remainder_without_its_sign() -> None:
    assert queue_of("order-1", 8) == 1207111310 % 8
    assert queue_of("polygenelubricants", 7) == (1 << 31) % 7


@given(st.integers(0, 65_535), st.integers(946_684_800_000, 4_102_444_800_000))
def test_an_id_says_where_and_when(partition: int, time_ms: int) -> None:
    ids = Ids("10.18.29.193:10911", b"run")
    first, second = ids.message_id(partition, time_ms), ids.message_id(partition, time_ms)
    assert first != second
    assert len(first) == 32
    assert first[:8] == b"0A121DC1"
    assert meant_by(first) == meant_by(second) == Stored(partition, time_ms)


@given(st.integers(0, 65_535), st.integers(0, (1 << 48) - 1))
def test_an_offset_id_says_where(partition: int, offset: int) -> None:
    id = Ids("10.18.29.193:10911", b"run").offset_id(partition, offset)
    assert id[:16] == "0A121DC100002A9F"
    assert meant_by(id.encode()) == Placed(partition, offset)


@given(st.binary(max_size=40))
def test_any_id_means_something_or_nothing(id: bytes) -> None:
    meant_by(id)
    meant_by(id.hex().encode())


@pytest.mark.parametrize("address", ["localhost:15555", "[::1]:1", "10.0.0.1:x", ""])
def test_an_address_that_is_none(address: str) -> None:
    assert len(Ids(address, b"").offset_id(0, 0)) == 32


@given(st.integers(0, 9_999), st.integers(0, 1 << 40), st.integers(0, 1 << 40), st.booleans())
def test_a_request_id_is_read_as_it_was_written(
    queue: int, offset: int, more: int, forced: bool
) -> None:
    request_id = RequestId("zbus", queue, offset, offset + more, 1_800_000_000_000, forced)
    assert read_request_id(request_id.text.encode()) == request_id


@given(st.binary(max_size=80))
def test_any_text_is_a_request_id_or_none(text: bytes) -> None:
    read_request_id(text)


def test_the_sample_of_the_manual() -> None:
    sample = b"YnJva2VyLWMsNCwyMTU2OSwyMTYwMSwxNjU1ODgyNjM0MDU0"
    assert read_request_id(sample) == RequestId("broker-c", 4, 21569, 21601, 1655882634054)


@pytest.mark.parametrize("at", [0, 5])
def test_a_request_id_is_text(at: int) -> None:
    fields = [b"zbus", b"0", b"0", b"1", b"1800000000000", b"true"]
    fields[at] = b"\xff"
    assert read_request_id(binascii.b2a_base64(b",".join(fields), newline=False)) is None
