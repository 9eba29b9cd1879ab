"""Chunked bodies, whole, byte by byte, split in two everywhere, and with trailing bytes."""

from __future__ import annotations

import pytest

from zbus.wire.bodies.chunks import ChunkedBody
from zbus.wire.errors import WireError
from zbus.wire.limits import WireLimits

LIMITS = WireLimits(line_bytes_max=40, head_bytes_max=90, fields_max=3, body_bytes_max=40)

GOOD = [
    (b"0\r\n\r\n", b""),
    (b"00000000\r\n\r\n", b""),
    (b"5\r\nhello\r\n0\r\n\r\n", b"hello"),
    (b"00000005\r\nhello\r\n0\r\n\r\n", b"hello"),
    (b"a\r\n0123456789\r\nA\r\n0123456789\r\n0\r\n\r\n", b"01234567890123456789"),
    (b"4\r\n\r\n\r\n\r\n0\r\n\r\n", b"\r\n\r\n"),
    (b"1;a\r\nx\r\n0;b=c;d=e f\r\n\r\n", b"x"),
    (b"1;" + b"a" * 63 + b"\r\nx\r\n0\r\n\r\n", b"x"),
    (b"1\r\nx\r\n0\r\na: b\r\nc:\r\nd: \xe4\r\n\r\n", b"x"),
    (b"0\r\na: " + b"b" * 37 + b"\r\n\r\n", b""),
    (b"28\r\n" + b"x" * 40 + b"\r\n0\r\n\r\n", b"x" * 40),
    (b"1\r\nx\r\n" * 40 + b"0\r\n\r\n", b"x" * 40),
]

BAD = [
    (b"\r\n", 400),
    (b"\n", 400),
    (b";a\r\n", 400),
    (b"g\r\n", 400),
    (b"+1\r\nx\r\n", 400),
    (b"-1\r\nx\r\n", 400),
    (b"0x1\r\nx\r\n", 400),
    (b"1_0\r\n", 400),
    (b" 1\r\nx\r\n", 400),
    (b"1 \r\nx\r\n", 400),
    (b"1 ;a\r\nx\r\n", 400),
    (b"1\t\r\nx\r\n", 400),
    (b"000000001\r\nx\r\n", 400),
    (b"fffffffff\r\n", 400),
    (b"1\nx\r\n", 400),
    (b"1\rx\r\n", 400),
    (b"1\r\r\nx\r\n", 400),
    (b"1;a\nb\r\nx\r\n", 400),
    (b"1;a\rb\r\nx\r\n", 400),
    (b'1;a="b"\r\nx\r\n', 400),
    (b"1;a\x00\r\nx\r\n", 400),
    (b"1;a\tb\r\nx\r\n", 400),
    (b"1;\xe4\r\nx\r\n", 400),
    (b"1;" + b"a" * 64 + b"\r\nx\r\n", 400),
    (b"1" * 100, 400),
    (b"1\r\nxy", 400),
    (b"1\r\nx\n", 400),
    (b"1\r\nx\rx", 400),
    (b"1\r\nx0\r\n\r\n", 400),
    (b"5\r\nhello0\r\n\r\n", 400),
    (b"0\r\na\r\n", 400),
    (b"0\r\n a: b\r\n", 400),
    (b"0\r\na : b\r\n", 400),
    (b"0\r\na: \x00\r\n", 400),
    (b"0\r\na: b\nc: d\r\n\r\n", 400),
    (b"0\r\na: " + b"b" * 38 + b"\r\n\r\n", 431),
    (b"0\r\n" + b"b" * 60, 431),
    (b"0\r\n" + b"a: b\r\n" * 4 + b"\r\n", 431),
    (b"0\r\n" + (b"a: " + b"b" * 37 + b"\r\n") * 3 + b"\r\n", 431),
    (b"29\r\n", 413),
    (b"ffffffff\r\n", 413),
    (b"1\r\nx\r\n28\r\n", 413),
]


def splits(data: bytes) -> list[list[bytes]]:
    by_byte = [data[at : at + 1] for at in range(len(data))]
    return [[data], by_byte, *([data[:at], data[at:]] for at in range(1, len(data)))]


def feed(pieces: list[bytes]) -> tuple[ChunkedBody, bytes]:
    """Give all pieces; return the body and what was not taken."""
    body = ChunkedBody(LIMITS)
    rest = b""
    for piece in pieces:
        at = before = 0
        while not body.finished and (at := body.feed(piece, before)) > before:
            before = at
        rest += piece[before:]
    return body, rest


@pytest.mark.parametrize(("data", "decoded"), GOOD)
def test_good(data: bytes, decoded: bytes) -> None:
    for trailing in (b"", b"\r\n", b"GET / HTTP/1.1\r\n"):
        for pieces in splits(data + trailing):
            body, rest = feed(pieces)
            assert body.finished
            assert bytes(body.data) == decoded
            assert rest == trailing
    assert not any(feed([data[:end]])[0].finished for end in range(len(data)))


@pytest.mark.parametrize(("data", "status"), BAD)
def test_bad(data: bytes, status: int) -> None:
    for trailing in (b"", b"more\r\n"):
        for pieces in splits(data + trailing):
            with pytest.raises(WireError) as caught:
                feed(pieces)
            assert caught.value.status == status


def test_it_begins_where_it_is_told() -> None:
    body = ChunkedBody(LIMITS)
    assert body.feed(b"head1\r\nx\r\n0\r\n\r\ntail", 4) == 15
    assert body.finished
    assert bytes(body.data) == b"x"
