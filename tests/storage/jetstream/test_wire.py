"""What a NATS server sends, good and bad: `zbus.storage.jetstream.wire`."""

from __future__ import annotations

import pytest

from zbus.storage.jetstream.wire import (
    INFO_BYTES_MAX,
    LINE_BYTES_MAX,
    Delivered,
    Info,
    Operation,
    Ping,
    Pong,
    ProtocolError,
    Reader,
    Refused,
    decode_number,
    encode_connect,
    encode_publish,
    encode_subscribe,
)

GOOD: list[tuple[bytes, list[Operation]]] = [
    (b"PING\r\nPONG\r\n+OK\r\nping\r\n", [Ping(), Pong(), Ping()]),
    (b"-ERR 'Authorization Violation'\r\n", [Refused("Authorization Violation")]),
    (b'INFO {"version":"2.15.1","more":[1]}\r\n', [Info(version="2.15.1")]),
    (b"MSG a 1 2\r\nhi\r\n", [Delivered("a", "", 0, {}, b"hi")]),
    (b"MSG a 1 r 2\r\nhi\r\n", [Delivered("a", "r", 0, {}, b"hi")]),
    (b"MSG a 1 0\r\n\r\n", [Delivered("a", "", 0, {}, b"")]),
    (b"MSG  a\t1 r  4\r\nh\r\ni\r\n", [Delivered("a", "r", 0, {}, b"h\r\ni")]),
    (
        b"HMSG a 1 22 24\r\nNATS/1.0\r\nX: a:b c\r\n\r\nhi\r\n",
        [Delivered("a", "", 0, {"X": "a:b c"}, b"hi")],
    ),
    (
        b"HMSG a 1 16 16\r\nNATS/1.0 503\r\n\r\n\r\n",
        [Delivered("a", "", 503, {}, b"")],
    ),
]


@pytest.mark.parametrize(("data", "operations"), GOOD)
def test_what_a_server_sends_whole_and_byte_by_byte(
    data: bytes, operations: list[Operation]
) -> None:
    assert Reader(100).receive(data) == operations
    reader = Reader(100)
    found = [one for at in range(len(data)) for one in reader.receive(data[at : at + 1])]
    assert found == operations


BAD = [
    b"HELLO\r\n",
    b"HTTP/1.1 400 Bad Request\r\n",
    b"\r\n",
    b"MSG a 1\r\n",
    b"MSG a\r\n",
    b"MSG a 1 r 2 3\r\nhi\r\n",
    b"MSG a 1 101\r\n",
    b"MSG a 1 -1\r\n",
    b"MSG a 1 +1\r\n",
    b"MSG a 1 1_0\r\n",
    b"MSG a 1 \xd9\xa1\r\n",
    b"MSG a 1 0x1\r\n",
    b"MSG a 1 " + b"9" * 20 + b"\r\n",
    b"MSG a 1 2\r\nhiX\r\n",
    b"HMSG a 1 2\r\nhi\r\n",
    b"HMSG a 1 5 2\r\nhi\r\n",
    b"HMSG a 1 2 4\r\nhihi\r\n",
    b"HMSG a 1 14 14\r\nNATS/1.0 x\r\n\r\n\r\n",
    b"INFO {\r\n",
    b"INFO []\r\n",
    b'INFO {"server_name":"\xff"}\r\n',
    b'INFO {"more":' + b"[" * 50_000 + b"\r\n",
    b'INFO {"max_payload":"x"}\r\n',
    b"M" * (LINE_BYTES_MAX + 1),
    b"MSG " + b"a" * LINE_BYTES_MAX + b" 1 1\r\nx\r\n",
    b"INFO " + b" " * INFO_BYTES_MAX,
]


@pytest.mark.parametrize("data", BAD)
def test_what_is_not_of_the_protocol(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        Reader(100).receive(data)


@pytest.mark.parametrize("text", ["", "-1", "+1", " 1", "1 ", "1_0", "\u0661", "9" * 20, "1.0"])
def test_numbers_are_digits(text: str) -> None:
    with pytest.raises(ProtocolError):
        decode_number(text)


def test_what_is_sent() -> None:
    assert b"".join(encode_publish("a", "", b"hi")) == b"PUB a 2\r\nhi\r\n"
    assert b"".join(encode_publish("a", "r", b"hi")) == b"PUB a r 2\r\nhi\r\n"
    sent = b"".join(encode_publish("a", "r", b"hi", {"X": "1"}))
    assert sent == b"HPUB a r 18 20\r\nNATS/1.0\r\nX: 1\r\n\r\nhi\r\n"
    assert encode_subscribe("_INBOX.*", 3) == b"SUB _INBOX.* 3\r\n"
    hello = encode_connect("u", "", "", tls=False)
    assert b'"user":"u"' in hello
    assert b"pass" not in hello
    assert b"auth_token" not in hello
