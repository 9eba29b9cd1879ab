"""What RFC 9112 and RFC 9110 ask of a strict server, in the 33 points that h1spec looks at.

h1spec is not on the package index, so the points are put here in our own words; `make h1spec` runs
the tool itself. What must be refused ends the connection, and nothing behind it is looked at.
"""

from __future__ import annotations

from typing import NamedTuple

import pytest

from zbus.testing.world import Reply, World
from zbus.wire.limits import DEFAULT_LIMITS as LIMITS

FOLLOWER = b"GET /?cmd=ping HTTP/1.1\r\nhost: localhost\r\n\r\n"
HELLO = b"5\r\nhello\r\n0\r\n\r\n"
CHUNKED = b"transfer-encoding: chunked"


def request(
    start: str, *lines: bytes, body: bytes = b"", host: bytes = b"host: localhost"
) -> bytes:
    fields = [line for line in (host, *lines) if line]
    return b"\r\n".join((start.encode(), *fields, b"", b"")) + body


GET = "GET / HTTP/1.1"
POST = "POST /T HTTP/1.1"


class Served(NamedTuple):
    """Well-formed: answered for what it asks, and the connection goes on."""

    name: str
    data: bytes
    status: int | None = 200  # None: a form of target that no dialect needs to know


class Refused(NamedTuple):
    """Not well-formed: one refusal with this status, then the end."""

    name: str
    data: bytes
    status: int = 400


SERVED = [
    # RFC 9112, section 3: request line
    Served("get", request(GET), 302),
    Served("post with a length", request(POST, b"content-length: 5", body=b"hello"), 200),
    Served("asterisk form", request("OPTIONS * HTTP/1.1"), None),
    Served("absolute form", request("GET http://localhost/ HTTP/1.1"), 302),
    Served("authority form", request("CONNECT example.com:443 HTTP/1.1"), None),
    # Sections 6 and 7: body
    Served("chunked", request(POST, CHUNKED, body=HELLO), 200),
    Served("post with nothing", request("POST /T?cmd=query HTTP/1.1"), 200),
    Served(
        "post of HTTP/1.0",
        request("POST /T HTTP/1.0", b"connection: keep-alive", b"content-length: 2", body=b"hi"),
        200,
    ),
    Served("get with a type", request(GET, b"content-type: a/b"), 302),
    # The one point of the 33 that is not kept: stock clients of zbus send no Host.
    Served("no Host", request(GET, host=b""), 302),
    # A method that is no standard one is a method all the same.
    Served("lower-case method", request("get / HTTP/1.1"), 302),
]

REFUSED = [
    # RFC 9112, section 3: request line
    Refused("HTTP/2.0", request("GET / HTTP/2.0"), 505),
    Refused("no version", request("GET /")),
    # RFC 9110, section 15.5.12: nothing says where the body ends, so it is not taken for empty
    Refused("a type, no length", request(POST, b"content-type: a/b", body=b"hello"), 411),
    Refused("a coding, no length", request(POST, b"content-encoding: gzip"), 411),
    Refused("HTTP/1.0, a type", request("POST /T HTTP/1.0", b"content-type: a/b", body=b"hi"), 411),
    Refused("HTTP/1.0, no length", request("POST /T HTTP/1.0", body=b"hello"), 411),
    Refused("HTTP/1.0, closed", request("PUT /T HTTP/1.0", b"connection: close", body=b"hi"), 411),
    Refused(
        "HTTP/1.0, no length, kept alive",
        request("PUT /T HTTP/1.0", b"connection: keep-alive", body=b"hello"),
        411,
    ),
    # Sections 3.2 and 5: header lines
    Refused("two Hosts", request(GET, b"host: example.com")),
    Refused("space in Host", request(GET, host=b"host: bad host")),
    Refused("space in a name", request(GET, b"bad header: value")),
    Refused("folded line", request(GET, b"  continued")),
    Refused("space before the colon", request(GET, host=b"host : localhost")),
    Refused("NUL in a value", request(GET, host=b"host: local\0host")),
    # Sections 6 and 7: body
    Refused("chunked in HTTP/1.0", request("POST /T HTTP/1.0", CHUNKED, body=HELLO)),
    Refused("chunked with a length", request(POST, CHUNKED, b"content-length: 5", body=HELLO)),
    Refused("unknown coding", request(POST, b"transfer-encoding: nonsense", body=b"hello")),
    Refused("chunked is not last", request(POST, b"transfer-encoding: chunked, gzip", body=HELLO)),
    Refused("length is no number", request(POST, b"content-length: xyz", body=b"hello")),
    Refused(
        "two lengths",
        request(POST, b"content-length: 5", b"content-length: 7", body=b"hello!!"),
    ),
    Refused("chunk size is no number", request(POST, CHUNKED, body=b"Z\r\nhello\r\n0\r\n\r\n")),
    Refused("chunk without its end", request(POST, CHUNKED, body=b"5\r\nhello0\r\n\r\n")),
    # Limits of this server's own
    Refused("long request line", request(f"GET /{'a' * LIMITS.line_bytes_max} HTTP/1.1"), 414),
    Refused("long header line", request(GET, b"x: " + b"x" * LIMITS.line_bytes_max), 431),
    Refused(
        "many headers",
        request(GET, *(b"x-%d: value" % n for n in range(LIMITS.fields_max))),
        431,
    ),
]


def talk(data: bytes) -> tuple[list[Reply], bool]:
    """The replies to these bytes, sent at once, and whether the connection is over then."""
    world = World()
    world.connect().request(request("GET /T?cmd=declare HTTP/1.1"))
    client = world.connect()
    replies = client.exchange(data)
    world.broker.check()
    return replies, client.closed


@pytest.mark.parametrize("case", SERVED, ids=lambda case: case.name)
def test_served(case: Served) -> None:
    (first, second), closed = talk(case.data + FOLLOWER)
    assert first.status == case.status if case.status else first.status not in (400, 500)
    assert (second.status, closed) == (200, False)


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.name)
def test_refused_and_closed(case: Refused) -> None:
    (only,), closed = talk(case.data + FOLLOWER)
    assert (only.status, closed) == (case.status, True)
    assert only.headers["connection"] == "close"
    assert only.headers["content-length"] == str(len(only.body))


@pytest.mark.parametrize("case", [*SERVED, *REFUSED], ids=lambda case: case.name)
def test_byte_by_byte_is_the_same(case: Served | Refused) -> None:
    world = World()
    world.connect().request(request("GET /T?cmd=declare HTTP/1.1"))
    client = world.connect()
    for byte in case.data:
        client.send(bytes((byte,)))
        world.turn()
    (reply,) = client.exchange(b"")
    assert reply.status == talk(case.data)[0][0].status


def test_continue_comes_before_the_body() -> None:
    """RFC 9110, section 10.1.1."""
    world = World()
    world.connect().request(request("GET /T?cmd=declare HTTP/1.1"))
    client = world.connect()
    client.send(request(POST, b"content-length: 5", b"expect: 100-continue"))
    world.settle()
    assert client.received == b"HTTP/1.1 100 Continue\r\n\r\n"
    client.received = b""
    assert client.request(b"hello").status == 200


def test_head_has_no_body() -> None:
    """RFC 9110, section 9.3.2: the length of what GET would bring, and nothing of it."""
    world = World()
    client = world.connect()
    page = client.request(request(GET)).body
    client.send(request("HEAD / HTTP/1.1"))
    world.settle()
    head, end, body = client.received.partition(b"\r\n\r\n")
    assert (end, body) == (b"\r\n\r\n", b"")
    assert b"\r\ncontent-length: %d" % len(page) in head


@pytest.mark.parametrize(
    ("start", "line", "closes"),
    [
        ("GET / HTTP/1.1", b"", False),
        ("GET / HTTP/1.1", b"connection: close", True),
        ("GET / HTTP/1.0", b"", True),
        ("GET / HTTP/1.0", b"connection: keep-alive", False),
    ],
)
def test_how_long_a_connection_lives(start: str, line: bytes, closes: bool) -> None:
    """RFC 9112, section 9.3."""
    replies, closed = talk(request(start, line) + FOLLOWER)
    assert [reply.status for reply in replies] == ([302] if closes else [302, 200])
    assert closed is closes
    assert replies[0].headers["connection"] == ("close" if closes else "Keep-Alive")
