"""Responses as a client reads them: framing, limits, any split."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zbus.wire import responses
from zbus.wire.limits import WireLimits
from zbus.wire.replies import encode_reply
from zbus.wire.responses import Response, ResponseReader

GOOD: list[tuple[bytes, Response]] = [
    (
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nid: 7\r\n\r\nhi",
        Response(200, {b"content-length": b"2", b"id": b"7"}, b"hi"),
    ),
    (
        b"HTTP/1.1 204 No Content\r\nempty: drained\r\n\r\n",
        Response(204, {b"empty": b"drained"}, b""),
    ),
    (
        b"HTTP/1.1 600 Unknown Status (600)\r\nContent-Length:0\r\n\r\n",
        Response(600, {b"content-length": b"0"}, b""),
    ),
    (
        b"HTTP/1.1 200\r\ncontent-length: 0\r\nx: a\r\nX:  b \r\n\r\n",
        Response(200, {b"content-length": b"0", b"x": b"b"}, b""),
    ),
    (
        b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\ntag: \xc3\xa9\r\n\r\n\r\n\r\n",
        Response(200, {b"content-length": b"4", b"tag": b"\xc3\xa9"}, b"\r\n\r\n"),
    ),
]
WHOLE = b"".join(data for data, _ in GOOD)
ALL = [response for _, response in GOOD]


@pytest.mark.parametrize(("data", "response"), GOOD)
def test_one(data: bytes, response: Response) -> None:
    reader = ResponseReader()
    assert reader.receive(data) == [response]
    assert reader.between


def test_what_comes_again_is_read_the_same() -> None:
    reader = ResponseReader()
    assert reader.receive(WHOLE * 3) == ALL * 3


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64])
def test_in_pieces(size: int) -> None:
    reader = ResponseReader()
    found = []
    for at in range(0, len(WHOLE), size):
        found += reader.receive(WHOLE[at : at + size])
    assert found == ALL
    assert reader.between


@given(st.lists(st.integers(0, 3 * len(WHOLE)), max_size=20))
def test_any_split(cuts: list[int]) -> None:
    reader = ResponseReader()
    data = WHOLE * 3
    places = sorted({0, *cuts, len(data)})
    found = []
    for begin, end in pairwise(places):
        found += reader.receive(data[begin:end])
    assert found == ALL * 3


def test_interim_responses_are_passed_over() -> None:
    reader = ResponseReader()
    assert reader.receive(b"HTTP/1.1 100 Continue\r\n\r\n" + WHOLE) == ALL


@given(
    st.integers(200, 999),
    st.lists(st.tuples(st.sampled_from([b"a", b"id", b"offset"]), st.integers(0)), max_size=5),
    st.binary(max_size=300),
)
def test_what_the_broker_writes_is_read(
    status: int, fields: list[tuple[bytes, int]], body: bytes
) -> None:
    lines = b"".join(b"%b: %d\r\n" % field for field in fields)
    (response,) = ResponseReader().receive(encode_reply(status, lines, body))
    assert response.status == status
    assert response.body == (b"" if status in (204, 304) else body)
    for name, value in dict(fields).items():
        assert response.fields[name] == b"%d" % value


BAD = [
    b"HTTP/1.0 200 OK\r\ncontent-length: 0\r\n\r\n",
    b"HTTP/2 200 OK\r\ncontent-length: 0\r\n\r\n",
    b"ICY 200 OK\r\n\r\n",
    b"HTTP/1.1 20 OK\r\ncontent-length: 0\r\n\r\n",
    b"HTTP/1.1 099 OK\r\ncontent-length: 0\r\n\r\n",
    b"HTTP/1.1 2_0 OK\r\ncontent-length: 0\r\n\r\n",
    b"HTTP/1.1  200 OK\r\ncontent-length: 0\r\n\r\n",
    b"HTTP/1.1 200 O\nK\r\ncontent-length: 0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\n\r\n",
    b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n",
    b"HTTP/1.1 200 OK\r\ncontent-length: +1\r\n\r\n",
    b"HTTP/1.1 200 OK\r\ncontent-length: 1_0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\ncontent-length: \r\n\r\n",
    b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999999999999\r\n\r\n",
    b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\ncontent-length: 0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\ntransfer-encoding: chunked\r\n\r\n",
    b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n folded\r\n\r\n",
    b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nno colon\r\n\r\n",
    b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nid\r\n\r\n",
    b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\na: b\nc: d\r\n\r\n",
    b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nid: 1\r2\r\n\r\n",
    b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\na : b\r\n\r\n",
    b"HTTP/1.1 200 OK\r\ncontent-length: 200\r\n\r\n" + b"x" * 200,
    b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 30 + b"content-length: 0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\n" + b"x: " + b"y" * 600 + b"\r\ncontent-length: 0\r\n\r\n",
    b"x" * 1000,
]
LIMITS = WireLimits(line_bytes_max=500, head_bytes_max=900, fields_max=20, body_bytes_max=100)


@pytest.mark.parametrize("data", BAD)
@pytest.mark.parametrize("size", [1, 10_000])
def test_what_is_no_answer(data: bytes, size: int) -> None:
    reader = ResponseReader(LIMITS)
    good = GOOD[0][0]
    found = reader.receive(good)
    for at in range(0, len(data), size):
        found += reader.receive(data[at : at + size])
    assert reader.error is not None
    assert not reader.between
    assert found == [GOOD[0][1]], "what came before it counts"
    assert reader.receive(good) == []


ALIKE = (
    b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n%btopic: T\r\nid: %b\r\ndurability: os\r\n%b\r\nhi"
)
VALUES = st.sampled_from(
    [b"7", b"", b"a-1", b"a b", b" 7", b"\xff", b"7\r", b"1\r\nid: 2", b"9" * 600]
)
LINES = st.sampled_from([b"", b"id: 8\r\n", b"offset: 8\r\n", b"ID: 8\r\n", b"x\r\n", b"x: 1\r\n"])
ENDS = st.sampled_from(
    [b"offset: %d\r\n", b"offset: 5%d \r\n", b"offset: x%d\r\n", b"a: %d\r\n", b""]
)


@given(st.lists(st.tuples(LINES, VALUES, ENDS, st.integers(0, 99)), max_size=12))
def test_what_was_read_before_changes_nothing(rows: list[tuple[bytes, bytes, bytes, int]]) -> None:
    """Also where answers differ in `id` and `offset` alone, as those to puts do."""
    reader = ResponseReader(LIMITS)
    for line, id, end, number in [(b"", b"1", b"offset: 1\r\n", 0), *rows]:
        data = ALIKE % (line, id, end % number if b"%d" in end else end)
        fresh = ResponseReader(LIMITS)
        assert reader.receive(data) == fresh.receive(data)
        if reader.error is not None or fresh.error is not None:
            assert str(reader.error) == str(fresh.error)
            return


def test_the_memory_of_lines_is_bounded() -> None:
    reader = ResponseReader()
    for number in range(10_000):
        data = b"HTTP/1.1 200 R%d\r\ncontent-length: 0\r\nx: %d\r\n\r\n" % (number, number)
        assert len(reader.receive(data)) == 1
    assert len(responses._lines) <= 4096
    assert len(responses._starts) <= 4096
