"""Messages in: what is stored, what is answered, what is refused (specification 3.2, 5.1)."""

import pytest

from tests.conformance.dialogue import EPOCH_MS, World, cmd, declared, http, ok, pull, refused
from zbus.core.model.limits import Limits

ALL_BYTES = bytes(range(256))


def test_reply_of_a_stored_message() -> None:
    _, client = declared("T")
    reply = ok(client, cmd("produce", "topic: T", "id: m-1", "tag: a.b", body=b"hello"))
    assert reply.body == b"%d" % EPOCH_MS
    assert reply.headers == {
        "content-length": "13",
        "connection": "Keep-Alive",
        "cache-control": "no-store",
        "topic": "T",
        "id": "m-1",
        "offset": "0",
        "durability": "disk",
    }
    assert ok(client, cmd("produce", "topic: T", body=b"x")).headers["offset"] == "1"


@pytest.mark.parametrize(
    "request_bytes",
    [
        http("/T", body=b"x"),
        http("/T", body=b"x", method="POST"),
        http("/T", body=b"x", method="PUT"),
        http("/T", body=b"x", method="FOO"),
        http("/T?body=x"),
        http("/T?cmd=produce&body=x"),
        http("/T?CMD=PRODUCE&body=x"),
        http("/?topic=T&body=x"),
        http("/", "topic: T", body=b"x"),
        http("/", "topic: T", "cmd: produce", body=b"x"),
        http("//T//", body=b"x"),
        http("http://localhost:15555/T", body=b"x"),
        cmd("produce", "topic: T", body=b"x"),
        cmd("produce", "TOPIC: t", body=b"x"),
        cmd("produce", "topic:  T  ", body=b"x"),
        b"POST /T HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n",
        b"POST /T HTTP/1.0\r\ncontent-length: 1\r\nconnection: Keep-Alive\r\n\r\nx",
    ],
)
def test_every_way_to_say_it(request_bytes: bytes) -> None:
    _, client = declared("T")
    ok(client, request_bytes)
    assert pull(client).body == b"x"


@pytest.mark.parametrize(
    "body",
    [b"", ALL_BYTES, b"\r\n\r\n", b"\r\n\r\nGET / HTTP/1.1\r\n\r\n", b"\0" * 100, b"%41+&="],
)
def test_bodies_are_kept_byte_for_byte(body: bytes) -> None:
    world, client = declared("T")
    ok(client, http("/T", body=body, method="POST"))
    for _ in range(2):
        reader = world.connect()
        assert ok(reader, http("/T?cmd=consume&offset=0")).body == body
        world = World(world.journal, now_ms=world.now_ms)


@pytest.mark.parametrize("topic", ["T", "RPC"])
def test_the_largest_body_and_one_byte_more(topic: str) -> None:
    world = World(limits=Limits(message_bytes_max=1000))
    client = world.connect()
    ok(client, http("/T?cmd=declare"))
    ok(client, http("/RPC?cmd=declare&topic_mask=2"))
    status, text = refused(client, http(f"/{topic}", body=b"x" * 1001))
    assert (status, text) == (413, "413: a message body has at most 1000 bytes")
    ok(client, http("/T", body=b"y" * 1000))
    assert pull(client).body == b"y" * 1000


def test_the_url_body_is_only_for_requests_without_one() -> None:
    _, client = declared("T")
    ok(client, http("/T?body=url", body=b"own"))
    reply = pull(client)
    assert reply.body == b"own"
    assert "body" not in reply.headers
    ok(client, http("/T?body=a+b%26c%3D%E4%B8%AD&x=1"))
    assert pull(client).body == "a b&c=中".encode()


@pytest.mark.parametrize("data", [cmd("produce", "topic: T", "body: x"), http("/T", "body: x")])
def test_a_header_may_hold_the_body(data: bytes) -> None:
    """The seed lists it among the headers of a produce."""
    _, client = declared("T")
    ok(client, data)
    reply = pull(client)
    assert reply.body == b"x"
    assert "body" not in reply.headers
    ok(client, data.replace(b"body: x", b"body: y\r\ncontent-length: 3") + b"own")
    assert pull(client).body == b"own"


@pytest.mark.parametrize(
    ("value", "answered"),
    [
        ("1", True),
        ("true", True),
        ("TRUE", True),
        (" true ", True),
        ("0", False),
        ("false", False),
        ("yes", False),
        ("", False),
    ],
)
def test_ack_says_whether_to_answer(value: str, answered: bool) -> None:
    _, client = declared("T")
    replies = client.exchange(cmd("produce", "topic: T", f"ack: {value}", body=b"x"))
    assert len(replies) == answered
    assert pull(client).body == b"x", "it is stored in any case"


@pytest.mark.parametrize("lines", [(), ("id: m-1",)])
def test_plain_http_is_always_answered(lines: tuple[str, ...]) -> None:
    _, client = declared("T")
    ok(client, http("/T?ack=0", *lines, body=b"x"))
    ok(client, http("/T", "ack: 0", *lines, body=b"x"))
    assert client.request(http("/NOPE?ack=0", *lines)).status == 404


@pytest.mark.parametrize(
    "lines",
    [
        ("topic: NOPE",),
        (),
        ("topic: T", "id: " + "i" * 40),
        ("topic: T", "tag: " + "t" * 128),
        ("topic: T", "delay: soon"),
        ("topic: T", "partition: 7"),
        ("topic: T", "content-type: application/x-ndjson"),
    ],
)
def test_without_ack_a_refusal_is_silent(lines: tuple[str, ...]) -> None:
    _, client = declared("T")
    assert client.exchange(cmd("produce", "ack: 0", *lines)) == []
    assert len(client.exchange(cmd("produce", *lines))) == 1
    assert pull(client).status == 204, "nor is anything stored"


def test_the_topic_is_never_made_by_a_message() -> None:
    _, client = declared()
    assert refused(client, http("/T", body=b"x")) == (404, "404: Topic(T) Not Found")
    assert client.request(http("/T?cmd=query")).status == 404


def test_ids_need_not_be_unique() -> None:
    _, client = declared("T")
    for _ in range(2):
        ok(client, cmd("produce", "topic: T", "id: same", body=b"x"))
    assert [pull(client).headers["origin_id"] for _ in range(2)] == ["same", "same"]


def test_an_id_is_made_where_none_is_given() -> None:
    _, client = declared("T")
    made = ok(client, http("/T")).headers["id"]
    assert pull(client).headers["origin_id"] == made


def test_the_pause_bit_of_a_topic_does_not_refuse_messages() -> None:
    _, client = declared("T?topic_mask=8")
    ok(client, http("/T", body=b"x"))


def test_multipart_is_one_message() -> None:
    _, client = declared("T")
    body = b'--b\r\ncontent-disposition: form-data; name="f"\r\n\r\nx\r\n--b--\r\n'
    lines = ("content-type: multipart/form-data; boundary=b",)
    assert len(client.exchange(http("/T", *lines, body=body, method="POST"))) == 1
    assert pull(client).body == body
    assert pull(client).status == 204


@pytest.mark.parametrize(
    ("declaration", "level"),
    [("T", "disk"), ("T?durability=os", "os"), ("T?topic_mask=1", "memory")],
)
def test_the_reply_names_the_durability_reached(declaration: str, level: str) -> None:
    _, client = declared(declaration)
    assert ok(client, http("/T")).headers["durability"] == level


def test_replies_close_when_the_client_wants_to() -> None:
    _, client = declared("T")
    reply = ok(client, http("/T", "connection: close", body=b"x"))
    assert reply.headers["connection"] == "close"
    assert client.closed


@pytest.mark.parametrize(
    ("lines", "closes"), [((), True), (("connection: Keep-Alive",), False)], ids=["bare", "ab -k"]
)
def test_http_1_0(lines: tuple[str, ...], closes: bool) -> None:
    _, client = declared("T")
    head = "\r\n".join(("POST /T HTTP/1.0", "content-length: 1", *lines, "", ""))
    reply = ok(client, head.encode() + b"x")
    assert reply.headers["connection"] == ("close" if closes else "Keep-Alive")
    assert client.closed is closes


def test_expect_100_continue() -> None:
    world, client = declared("T")
    client.send(http("/T", "expect: 100-continue", "content-length: 3"))
    world.turn()
    assert client.received == b"HTTP/1.1 100 Continue\r\n\r\n"
    assert ok(client, b"abc").headers["offset"] == "0"
