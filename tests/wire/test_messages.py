"""The container of many messages."""

from __future__ import annotations

import pytest

from zbus.wire.errors import WireError
from zbus.wire.heads.heads import Heads
from zbus.wire.http import Request
from zbus.wire.messages import parse_in_steps
from zbus.wire.replies import encode_reply

POST = b"POST / HTTP/1.1\r\n"
HELLO = POST + b"tag: a\r\nid: 1\r\ncontent-length: 5\r\n\r\nhello"

Said = tuple[bytes, bytes, bytes, bytes]

GOOD: list[tuple[bytes, list[Said]]] = [
    (b"", []),
    (HELLO, [(b"POST", b"/", b"1", b"hello")]),
    (POST + b"\r\n", [(b"POST", b"/", b"", b"")]),
    (POST + b"id: 2\r\n\r\n" + HELLO,
     [(b"POST", b"/", b"2", b""), (b"POST", b"/", b"1", b"hello")]),
    (HELLO * 3, [(b"POST", b"/", b"1", b"hello")] * 3),
    (b"GET /t?a=b HTTP/1.0\r\n\r\n", [(b"GET", b"/t?a=b", b"", b"")]),
    (b"HTTP/1.1 200 OK\r\nid: 3\r\n\r\n", [(b"POST", b"/", b"3", b"")]),
    (b"HTTP/1.1 200\r\nid: 3\r\n\r\n", [(b"POST", b"/", b"3", b"")]),
    (
        encode_reply(600, b"id: 4\r\n", b"\r\n\r\n"),
        [(b"POST", b"/", b"4", b"\r\n\r\n")],
    ),
]  # fmt: skip

BAD: list[tuple[bytes, int]] = [
    (b"garbage", 0),
    (b"\r\n" + HELLO, 0),
    (HELLO + b"x", 1),
    (HELLO + b"\r\n", 1),
    (HELLO[:-1], 0),
    (HELLO + HELLO[:-1], 1),
    (HELLO + HELLO[:30], 1),
    (HELLO + POST + b"bad\r\n\r\n", 1),
    (POST + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 0),
    (POST + b"content-length: 1\r\ncontent-length: 1\r\n\r\nx", 0),
    (POST + b"content-length: +1\r\n\r\nx", 0),
    (POST + b"content-length: 99999999999999\r\n\r\nx", 0),
    (b"POST / HTTP/1.1\ncontent-length: 0\n\n", 0),
    (b"POST / HTTP/2.0\r\n\r\n", 0),
    (b"HTTP/1.1 2000 OK\r\n\r\n", 0),
    (b"HTTP/1.1 200 O\x01\r\n\r\n", 0),
    (POST + b"a: " + b"b" * 9000 + b"\r\n\r\n", 0),
    (b"x" * 100_000, 0),
]


def parse_messages(body: bytes, heads: Heads, most: int = 100_000) -> list[Request]:
    return [message for step in parse_in_steps(body, heads, most) for message in step]


@pytest.mark.parametrize(("body", "messages"), GOOD)
def test_good(body: bytes, messages: list[Said]) -> None:
    heads = Heads()
    for _ in range(3):
        parsed = parse_messages(body, heads)
        assert [(head.method, head.target, id_, data) for head, id_, data in parsed] == messages


@pytest.mark.parametrize(("body", "index"), BAD)
def test_bad(body: bytes, index: int) -> None:
    heads = Heads()
    for _ in range(2):
        with pytest.raises(WireError, match=f"message {index}") as caught:
            parse_messages(body, heads)
        assert caught.value.status == 400


def test_the_number_of_messages_is_limited() -> None:
    heads = Heads()
    assert len(parse_messages(HELLO * 3, heads, 3)) == 3
    with pytest.raises(WireError, match="more than 3"):
        parse_messages(HELLO * 4, heads, 3)
    assert len(parse_messages((POST + b"\r\n") * 100_000, heads)) == 100_000
    with pytest.raises(WireError, match="more than 100000"):
        parse_messages((POST + b"\r\n") * 100_001, heads)


def test_the_rules_of_a_container_do_not_leak_to_the_connection() -> None:
    heads = Heads()
    raw = b"HTTP/1.1 200 OK\r\ntag: a"
    assert parse_messages(raw + b"\r\n\r\n", heads)
    with pytest.raises(WireError, match="is not a token"):
        heads.read(raw)
