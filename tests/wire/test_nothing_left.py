"""Who is refused leaves nothing behind: no head in the memos, and nothing for the collector.

An error with its traceback holds on to the frames it went through, they to the reader, and the
reader to the error. Such a ring stays until a collection, which may come late or never.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator

import pytest

from tests.wire.test_heads import REFUSED
from tests.wire.test_http_reader import BAD, GOOD, LAST, LIMITS
from zbus.wire.errors import WireError
from zbus.wire.heads.heads import Heads
from zbus.wire.http import HttpReader
from zbus.wire.responses import ResponseReader
from zbus.wire.websocket import WebSocketReader


@pytest.fixture(autouse=True)
def no_collections() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


@pytest.fixture(autouse=True, scope="module")
def what_was_there_before() -> None:
    """It is not gone through each time."""
    gc.collect()
    gc.freeze()


def left_by(work: Callable[[], None]) -> int:
    """Objects in rings. The first time the interpreter itself may leave some."""
    found = []
    for _ in range(3):
        gc.collect()
        work()
        found.append(gc.collect())
    return min(found)


@pytest.mark.parametrize("data", [row[1] for row in GOOD + LAST + BAD])
def test_of_a_connection(data: bytes) -> None:
    heads = Heads(LIMITS)

    def connection() -> None:
        reader = HttpReader(heads, LIMITS)
        reader.receive(data)
        reader.receive(data)

    assert left_by(connection) == 0


@pytest.mark.parametrize("data", [b"\x81\x05hello", b"\xf1\x85hello", b"\x81\x84abcdhell"])
def test_of_a_websocket(data: bytes) -> None:
    def connection() -> None:
        reader = WebSocketReader(3)
        reader.receive(data + bytes(9))
        assert reader.error is not None

    assert left_by(connection) == 0


def test_no_fragment_leaves_an_object() -> None:
    """However many they are: a message under way is a few blocks."""
    reader = WebSocketReader(1 << 20)
    reader.receive(b"\x02\x81abcdx")
    before = len(gc.get_objects()) + sys.getallocatedblocks()
    for _ in range(1_000):
        reader.receive(b"\x00\x81abcdx")
    after = len(gc.get_objects()) + sys.getallocatedblocks()
    assert after - before < 20
    assert reader.receive(b"\x80\x80abcd") == [(2, bytes([ord("x") ^ ord("a")]) * 1_001)]


def test_of_answers() -> None:
    def connection() -> None:
        reader = ResponseReader()
        reader.receive(b"hello\r\n\r\n")
        assert reader.error is not None

    assert left_by(connection) == 0


def test_the_memos_hold_no_refused_head() -> None:
    heads = Heads()
    for _, raw, _ in REFUSED * 2:
        with pytest.raises(WireError):
            heads.read(raw)
    assert not heads._templates
