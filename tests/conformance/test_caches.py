"""What caches and proxies in between do with replies: none of them may keep one."""

from __future__ import annotations

import pytest

from tests.conformance.dialogue import http, ok
from zbus.edge.pages import Page, Pages
from zbus.testing.world import World

POSTS = {"method": "POST", "body": b"x"}


def world() -> World:
    made = World(pages=Pages({b"index.html": Page(b"text/html", b'"e"', b"<p>")}))
    ok(made.connect(), http("/T?cmd=declare"))
    return made


def lines_of(data: bytes) -> list[bytes]:
    return data.partition(b"\r\n\r\n")[0].lower().split(b"\r\n")[1:]


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (http("/T", body=b"x", method="POST"), 200),
        (http("/T?body=x"), 200),
        (http("/T?body=x&id=7"), 200),
        (http("/T?cmd=consume&timeout=0"), 204),
        (http("/T?cmd=peek"), 200),
        (http("/?cmd=query&topic=T"), 200),
        (http("/T?cmd=declare"), 200),
        (http("/none?cmd=consume"), 404),
        (http("/T?cmd=nonsense"), 400),
        (http("/T?body=x", method="HEAD"), 405),
        (http("/?cmd=ping", method="HEAD"), 200),
        (http("/_health/ready"), 200),
        (http("/_metrics"), 200),
        (http("/_openapi.json"), 200),
        (http("/_unknown"), 404),
        (http("/favicon.ico"), 200),
        (http("/", "accept: text/html"), 302),
        (http("/?cmd=login"), 200),
        (http("/?cmd=connections"), 200),
        (http("/_stats"), 200),
        (http("/_console/none"), 404),
        (http("/_pages"), 301),
        (http("*", method="OPTIONS"), 204),
        (b"GET /T?cmd=ping HTTP/1.0\r\n\r\n", 200),
        (b"GET / HTTP/2.0\r\n\r\n", 505),
        (b"nonsense\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nx: %b\r\n\r\n" % (b"y" * 20_000), 431),
        (b"POST /T HTTP/1.1\r\ncontent-length: 99999999999\r\n\r\n", 413),
        (http("/queue/http/pull?queue=q"), None),
        (http("/camellia/msg/pullMsg", body=b"{}", method="POST"), None),
        (http("/mq/message?topic=T&consumer=c"), None),
        (http("/mq/none"), None),
        (http("/semq", "cmd: semq_nodes"), None),
        (http("/T", "upgrade: websocket", "connection: upgrade"), None),
    ],
)
def test_no_cache_may_keep_a_reply(request_bytes: bytes, status: int | None) -> None:
    client = world().connect()
    client.send(request_bytes)
    client.world.settle()
    if status is not None:
        assert client.received.startswith(b"HTTP/1.1 %d " % status), client.received
    lines = lines_of(client.received)
    assert [line for line in lines if line.startswith(b"cache-control")] == [
        b"cache-control: no-store"
    ]


@pytest.mark.parametrize(("line", "status"), [("", 200), ('if-none-match: "e"', 304)])
def test_files_are_kept_by_their_etag(line: str, status: int) -> None:
    reply = world().connect().request(http("/_pages/", *filter(None, (line,))))
    assert (reply.status, reply.headers["cache-control"]) == (status, "no-cache")


@pytest.mark.parametrize(
    ("request_bytes", "goes_on"),
    [
        (http("/T?cmd=consume", "accept: text/event-stream"), True),
        (http("/T/T?cmd=consume", "accept: text/event-stream"), True),
        (http("/_stats", "accept: text/event-stream"), True),
        (http("/T?cmd=consume&timeout=0"), False),
    ],
)
def test_what_goes_on_is_not_buffered(request_bytes: bytes, goes_on: bool) -> None:
    client = world().connect()
    client.send(request_bytes)
    client.world.settle()
    lines = lines_of(client.received)
    assert lines.count(b"cache-control: no-store") == 1
    assert (b"x-accel-buffering: no" in lines) == goes_on


def test_a_message_does_not_keep_what_was_said_of_caching() -> None:
    client = world().connect()
    ok(client, http("/T", "cache-control: max-age=60", "x-mine: 1", body=b"x", method="POST"))
    reply = ok(client, http("/T?cmd=consume"))
    assert (reply.headers["cache-control"], reply.headers["zbus-header-x-mine"]) == (
        "no-store",
        "1",
    )
    assert "zbus-header-cache-control" not in reply.headers, "it says how the message came"


@pytest.mark.parametrize("lines", [(), ("origin: http://localhost", "accept: */*")])
def test_options_of_the_server(lines: tuple[str, ...]) -> None:
    """`OPTIONS *` (RFC 9110, section 9.3.7), which programs use to see whether it is there."""
    client = world().connect()
    reply = client.request(
        b"\r\n".join(
            (
                b"OPTIONS * HTTP/1.1",
                b"host: localhost",
                *(line.encode() for line in lines),
                b"",
                b"",
            )
        )
    )
    assert reply.status == 204
    assert "OPTIONS" in reply.headers["allow"]
    assert client.request(http("/?cmd=ping")).status == 200
