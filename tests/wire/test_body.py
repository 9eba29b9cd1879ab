"""A body in pieces: whatever they are, it is what came, and takes hardly more than that."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zbus.wire.bodies.body import BLOCK_BYTES, Body

SIZES = st.one_of(
    st.integers(0, 100),
    st.sampled_from((BLOCK_BYTES - 1, BLOCK_BYTES, BLOCK_BYTES + 1, 3 * BLOCK_BYTES + 7)),
)


@given(st.lists(SIZES, max_size=8))
def test_it_is_what_came(sizes: list[int]) -> None:
    body = Body()
    expected = b""
    for number, size in enumerate(sizes):
        piece = bytes([number + 1]) * size
        body.add(bytearray(piece) if number % 2 else piece)
        expected += piece
        assert body.size == len(expected)
        # A block that came whole ends the one before, however little is in that.
        assert len(expected) <= body.taken < 2 * len(expected) + BLOCK_BYTES
    assert body.data == expected
    assert body.data == expected, "it can be asked again"
    body.add(b"more")
    assert body.data == expected + b"more"


@pytest.mark.parametrize("piece_bytes", [1, 7, 4_096, BLOCK_BYTES - 5, BLOCK_BYTES])
def test_it_takes_what_it_says(piece_bytes: int) -> None:
    body = Body()
    piece = b"x" * piece_bytes
    tracemalloc.start()
    for _ in range(300_000 // piece_bytes):
        body.add(piece)
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert taken <= body.taken + BLOCK_BYTES // 8 + 1_000
    assert body.data == piece * (300_000 // piece_bytes)
