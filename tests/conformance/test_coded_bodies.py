"""Bodies with a content coding or a character set: what the broker reads is made plain or refused,
and what is a message's own stays as it was sent."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable
from typing import NamedTuple

import msgspec
import pytest

from tests.conformance.dialogue import Client, Reply, World, declared, drain, http, ok, pull
from tests.conformance.test_batches import MESSAGES, NDJSON, message
from tests.conformance.websocket_client import upgraded
from zbus.edge.access import Access
from zbus.wire.limits import WireLimits

FORM = "application/x-www-form-urlencoded"
JSON = "application/json"
PING = http("/?cmd=ping")


class Reader(NamedTuple):
    """A request whose body is read."""

    target: str
    kind: str
    body: bytes
    answers: bytes = b""  # part of the reply if it was read


SEND = "/camellia/delayQueue/sendMsg?delayMillis=0"
PARTS = "multipart/form-data; boundary=b"
COMMIT = b'{"stages":[{"topic":"T","offsets":"0"}]}'
REPORT = b'{"live":true}'

READERS = {
    "lines": Reader("/T", NDJSON, b'{"n":1}\n{"n":2}\n'),
    "messages": Reader("/T", MESSAGES, message(b"one") + message(b"two")),
    "staged lines": Reader("/T?cmd=txn_stage&txn=a", NDJSON, b"1\n2\n"),
    "a commit": Reader("/?cmd=txn_commit&txn=a&batch=1", JSON, COMMIT),
    "a report": Reader("/?cmd=track_pub", JSON, REPORT, b"serverInfo"),
    "a login": Reader("/?cmd=login", FORM, b"token=t"),
    "a form of camellia": Reader(SEND, FORM, b"topic=C&msg=hi", b'"msg":"hi"'),
    "parts of camellia": Reader(
        SEND,
        PARTS,
        b'--b\r\ncontent-disposition: form-data; name="topic"\r\n\r\nC\r\n'
        b'--b\r\ncontent-disposition: form-data; name="msg"\r\n\r\nhi\r\n--b--\r\n',
        b'"msg":"hi"',
    ),
    "a form of MQCloud": Reader("/mq/produce", FORM, b"producer=p&message=hi", b"producer:p"),
    "settings of MQCloud": Reader("/mq/consumer/config", JSON, b'{"consumer":"c"}', b"c"),
    "a push of Adf": Reader("/queue/rpush?queue=/q&requestid=1", "text/plain", b"hi", b'"ok"'),
}
each_reader = pytest.mark.parametrize("name", READERS)
CODINGS: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.compress, "deflate": zlib.compress}


def scene(name: str) -> Client:
    """A broker that knows what the reader's request is about."""
    dialects: dict[str, object] = {"adf": None, "camellia": None, "mqcloud": None}
    client = World(dialects=dialects).connect()
    ok(client, http("/T?cmd=declare"))
    if name == "a commit":
        ok(client, http("/T?cmd=txn_stage&txn=a", body=b"staged", method="POST"))
    return client


def ask(client: Client, reader: Reader, body: bytes, *lines: str, kind: str = "") -> Reply:
    kind = f"content-type: {kind or reader.kind}"
    return client.request(http(reader.target, kind, *lines, body=body, method="POST"))


def said(reply: Reply) -> tuple[int, bytes]:
    """Without what depends on the time."""
    body = b"" if reply.body.isdigit() or b"delayMsg" in reply.body else reply.body
    return reply.status, body


def went_on(client: Client) -> bool:
    return client.request(PING).status == 200


@each_reader
@pytest.mark.parametrize("coding", CODINGS)
def test_decoded_it_is_the_same(name: str, coding: str) -> None:
    reader = READERS[name]
    plain = ask(scene(name), reader, reader.body)
    assert reader.answers in plain.body
    client = scene(name)
    coded = ask(client, reader, CODINGS[coding](reader.body), f"content-encoding: {coding}")
    assert said(coded) == said(plain)
    assert coded.headers.get("count") == plain.headers.get("count")
    assert went_on(client)


# What is said of a body, what is done with it, and the status of the refusal.
REFUSED: list[tuple[str, Callable[[bytes], bytes], int]] = [
    ("gzip, gzip", lambda body: gzip.compress(gzip.compress(body)), 415),
    ("compress", lambda body: body, 415),
    ("gzip", lambda body: body, 400),
    ("gzip", lambda body: gzip.compress(body)[:-1], 400),
    ("gzip", lambda body: gzip.compress(body) + b"more", 400),
    ("deflate", lambda body: zlib.compress(body) + b"more", 400),
    ("gzip", lambda _: gzip.compress(bytes(17 << 20)), 413),
]


@each_reader
@pytest.mark.parametrize(("coding", "change", "status"), REFUSED)
def test_refused_and_the_connection_goes_on(
    name: str, coding: str, change: Callable[[bytes], bytes], status: int
) -> None:
    client, reader = scene(name), READERS[name]
    reply = ask(client, reader, change(reader.body), f"content-encoding: {coding}")
    assert (reply.status, reply.body[:3]) == (status, b"%d" % status)
    assert ("accept-encoding" in reply.headers) == (status == 415)
    assert went_on(client)
    assert drain(client) == []


def test_two_header_lines_are_a_list() -> None:
    """Of a repeated name the last line wins; of this one all of them were applied."""
    client, reader = scene("lines"), READERS["lines"]
    lines = "content-encoding: gzip", "content-encoding: gzip"
    assert ask(client, reader, gzip.compress(reader.body), *lines).status == 415


def test_an_empty_body_is_empty() -> None:
    client = scene("lines")
    reply = ask(client, READERS["lines"], b"", "content-encoding: gzip")
    assert (reply.status, reply.body) == (400, b"400: Bad Format, the batch is empty")
    assert ask(client, READERS["lines"], b"", "content-encoding: odd").status == 400


@each_reader
@pytest.mark.parametrize("charset", ["iso-8859-1", "UTF-16", '"gbk"'])
def test_character_sets(name: str, charset: str) -> None:
    client, reader = scene(name), READERS[name]
    reply = ask(client, reader, reader.body, kind=f"{reader.kind}; charset={charset}")
    bytes_are_enough = name in ("messages", "a push of Adf")
    assert (reply.status == 415) is not bytes_are_enough
    assert "accept-encoding" not in reply.headers
    assert went_on(client)


@each_reader
@pytest.mark.parametrize("charset", ["utf-8", "UTF8", '"Utf-8"', "us-ascii"])
def test_character_sets_that_are_understood(name: str, charset: str) -> None:
    reader = READERS[name]
    plain = ask(scene(name), reader, reader.body)
    other = ask(scene(name), reader, reader.body, kind=f"{reader.kind}; charset={charset}")
    assert said(other) == said(plain)


@pytest.mark.parametrize(
    ("line", "status"),
    [
        ("content-type: text/plain; charset=utf-8", 200),
        ("content-type: text/plain; charset=iso-8859-1", 415),
        ("content-transfer-encoding: 8bit", 200),
        ("content-transfer-encoding: base64", 415),
        ("content-transfer-encoding: quoted-printable", 415),
    ],
)
def test_a_part_of_a_form(line: str, status: int) -> None:
    reader = READERS["parts of camellia"]
    body = reader.body.replace(b'name="msg"', b'name="msg"\r\n' + line.encode())
    assert ask(scene("parts of camellia"), reader, body).status == status


class TestOwn:
    """A message's own body is no business of the broker."""

    @pytest.mark.parametrize("coding", ["gzip", "br", "odd", "gzip, gzip"])
    @pytest.mark.parametrize("kind", ["text/plain; charset=iso-8859-1", JSON, "text/x; charset=x"])
    def test_it_is_kept_as_sent(self, coding: str, kind: str) -> None:
        _, client = declared("T")
        lines = f"content-type: {kind}", f"content-encoding: {coding}"
        ok(client, http("/T", *lines, body=b"\x1f\x8bodd", method="POST"))
        assert pull(client).body == b"\x1f\x8bodd"

    def test_in_a_container(self) -> None:
        """The coding of the request is undone, that of a message in it is the message's."""
        _, client = declared("T")
        inner = gzip.compress(b"inner")
        body = gzip.compress(message(inner, "content-encoding: gzip") + message(b"plain"))
        lines = f"content-type: {MESSAGES}", "content-encoding: gzip"
        assert ok(client, http("/T", *lines, body=body, method="POST")).headers["count"] == "2"
        read = "/T?cmd=read&count=9&offset=0"
        first, second = msgspec.json.decode(ok(client, http(read, f"accept: {JSON}")).body)
        assert first["headers"]["content-encoding"] == "gzip"
        assert "content-encoding" not in second["headers"]
        assert drain(client) == [inner, b"plain"]

    def test_a_call_is_the_services(self) -> None:
        world, client = declared("S?topic_mask=2")
        body = gzip.compress(b'{"n":1}\n')
        lines = f"content-type: {NDJSON}", "content-encoding: gzip"
        client.send(http("/S?timeout=1000", *lines, body=body, method="POST"))
        assert pull(world.connect(), "/S").body == body


def test_in_a_frame() -> None:
    world, client = declared("T")
    socket = upgraded(world.connect())
    body = gzip.compress(b"1\n2\n")
    lines = f"content-type: {NDJSON}", "content-encoding: gzip", "cmd: produce", "topic: T"
    socket.exchange(socket.frame(http("/", *lines, body=body, method="POST")))
    assert drain(client) == [b"1", b"2"]


def test_the_limit_is_that_of_a_body() -> None:
    world = World(wire_limits=WireLimits(body_bytes_max=2_000))
    client = world.connect()
    ok(client, http("/T?cmd=declare"))
    lines = f"content-type: {NDJSON}", "content-encoding: gzip"
    for size, status in ((2_000, 200), (2_001, 413)):
        body = gzip.compress(b"x" * size)
        assert client.request(http("/T", *lines, body=body, method="POST")).status == status


def test_a_hundred_thousand_lines() -> None:
    most = 100_000
    client = World().connect()
    ok(client, http("/T?cmd=declare"))
    body = gzip.compress(b"".join(b'{"n":%d}\n' % n for n in range(most)), 1)
    lines = f"content-type: {NDJSON}", "content-encoding: gzip"
    assert ok(client, http("/T", *lines, body=body, method="POST")).headers["count"] == "100000"
    for offset in (0, 12_345, most - 1):
        read = ok(client, http(f"/T?cmd=read&count=1&offset={offset}"))
        assert b'{\\"n\\":%d}' % offset in read.body
    assert ok(client, http(f"/T?cmd=read&count=9&offset={most}")).body == b"[]"


def test_who_may_not_is_not_decoded_for() -> None:
    world = World(access=Access())
    client, reader = world.connect(), READERS["lines"]
    assert ask(client, reader, b"odd", "content-encoding: odd").status == 403


OPEN_ENDED = [
    ("/T?cmd=declare", 200),
    ("/T?cmd=produce&body=hi", 200),
    ("/?cmd=txn_commit&txn=a&batch=1&topic=T&offset=0", 200),
    ("/T", 411),
    ("/T?cmd=produce&ack=false", 411),
    ("/T?cmd=txn_stage&txn=a", 411),
    ("/?cmd=txn_commit&txn=a&batch=1", 411),
    ("/?cmd=track_pub", 411),
    ("/?cmd=login", 411),
    ("/queue/rpush?queue=/q&requestid=1", 411),
    ("/mq/consumer/config", 411),
    ("/mq/produce?producer=p&message=hi", 200),
    ("/camellia/delayQueue/sendMsg?delayMillis=0&topic=C&msg=hi", 200),
]


@pytest.mark.parametrize(
    ("method", "target", "status"),
    [("POST", *row) for row in OPEN_ENDED] + [("PUT", *row) for row in OPEN_ENDED[:8]],
)
def test_http_1_0_without_a_length(method: str, target: str, status: int) -> None:
    """nginx passes `curl -X POST` on like this. What takes no body is done; nothing is empty."""
    client = scene("a commit")
    other = client.world.connect()
    head = f"{method} {target} HTTP/1.0\r\nhost: localhost\r\nconnection: close\r\n\r\n"
    (reply,) = client.exchange(head.encode() + b'{"what": "may follow"}')
    assert reply.status == status, reply
    assert client.closed
    assert b"" not in drain(other)
