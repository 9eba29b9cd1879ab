"""Replies, byte for byte."""

from __future__ import annotations

import h11
import pytest

from zbus.wire.replies import REASONS, encode_late_head, encode_reply, encode_stream_head

KEEP = b"connection: Keep-Alive\r\ncache-control: no-store\r\n"
CLOSE = b"connection: close\r\ncache-control: no-store\r\n"
GOES_ON = b"x-accel-buffering: no\r\n"


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (encode_reply(200), b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n" + KEEP + b"\r\n"),
        (
            encode_reply(200, b"id: 1\r\n", b"ok"),
            b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n" + KEEP + b"id: 1\r\n\r\nok",
        ),
        (
            encode_reply(400, body=b"no", close=True),
            b"HTTP/1.1 400 Bad Request\r\ncontent-length: 2\r\n" + CLOSE + b"\r\nno",
        ),
        (
            encode_reply(200, body=b"abc", head_only=True),
            b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n" + KEEP + b"\r\n",
        ),
        (
            encode_reply(600),
            b"HTTP/1.1 600 Unknown Status (600)\r\ncontent-length: 0\r\n" + KEEP + b"\r\n",
        ),
        (
            encode_reply(204, b"a: b\r\n", b"x"),
            b"HTTP/1.1 204 No Content\r\n" + KEEP + b"a: b\r\n\r\n",
        ),
        (encode_reply(304, body=b"x"), b"HTTP/1.1 304 Not Modified\r\n" + KEEP + b"\r\n"),
        (
            encode_reply(304, b"cache-control: no-cache\r\n", cached=True),
            b"HTTP/1.1 304 Not Modified\r\nconnection: Keep-Alive\r\n"
            b"cache-control: no-cache\r\n\r\n",
        ),
        (
            encode_reply(200, b"cache-control: no-cache\r\n", close=True, cached=True),
            b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n"
            b"cache-control: no-cache\r\n\r\n",
        ),
        (
            encode_stream_head(b"id: 1\r\n"),
            b"HTTP/1.1 200 OK\r\n" + CLOSE + GOES_ON + b"id: 1\r\n\r\n",
        ),
        *(
            (
                encode_late_head(b"id: 1\r\n", close=close),
                b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n"
                + (CLOSE if close else KEEP)
                + GOES_ON
                + b"id: 1\r\n\r\n",
            )
            for close in (False, True)
        ),
        (
            encode_reply(101, b"connection: Upgrade\r\n"),
            b"HTTP/1.1 101 Switching Protocols\r\nconnection: Upgrade\r\n\r\n",
        ),
    ],
)
def test_encode_reply(reply: bytes, expected: bytes) -> None:
    assert reply == expected


@pytest.mark.parametrize("status", [status for status in REASONS if status >= 200])
@pytest.mark.parametrize("close", [False, True])
def test_h11_understands_every_reply(status: int, close: bool) -> None:
    client = h11.Connection(h11.CLIENT)
    client.send(h11.Request(method="GET", target="/", headers=[("host", "a")]))
    client.send(h11.EndOfMessage())
    client.receive_data(encode_reply(status, b"id: 1\r\n", b"body", close=close))
    response = client.next_event()
    assert isinstance(response, h11.Response)
    assert response.status_code == status
    assert (b"id", b"1") in list(response.headers)
    event = client.next_event()
    if status not in (204, 304):
        assert isinstance(event, h11.Data)
        assert bytes(event.data) == b"body"
        event = client.next_event()
    assert isinstance(event, h11.EndOfMessage)
