"""HEAD and OPTIONS ask that nothing is changed (RFC 9110, section 9.2.1); DELETE and others ask for
something that is no put; names that no declare knows."""

from __future__ import annotations

import pytest

from tests.conformance.dialogue import World, cmd, declared, http, ok, put
from zbus.core.broker import Broker


def depth(broker: Broker) -> tuple[int, int]:
    topic = broker.topics["t"]
    return topic.depth(), topic.groups["t"].ready_count()


@pytest.mark.parametrize("method", ["HEAD", "OPTIONS"])
@pytest.mark.parametrize(
    "target",
    [
        "/T?body=x",
        "/T",
        "/T?cmd=consume&timeout=0",
        "/T?cmd=ack&offset=0",
        "/T?cmd=declare&group_filter=a",
        "/T?cmd=remove",
        "/T?cmd=empty",
        "/T?delay=1000",
    ],
)
def test_nothing_is_changed(method: str, target: str) -> None:
    world, client = declared("T")
    put(client, "T", b"x")
    before = depth(world.broker)
    client.send(http(target, method=method))
    world.settle()
    assert client.received.startswith(b"HTTP/1.1 405 ")
    assert b"\r\nallow: GET, POST\r\n" in client.received
    assert depth(world.broker) == before


@pytest.mark.parametrize("method", ["HEAD", "OPTIONS"])
def test_looking_is_answered(method: str) -> None:
    world, client = declared("T")
    for target, status in (("/", b"302"), ("/T?cmd=query", b"200"), ("/?cmd=server", b"200")):
        client.send(http(target, method=method))
        world.settle()
        assert client.received.startswith(b"HTTP/1.1 %b " % status)
        client.received = b""


def test_in_the_protocol_the_method_means_nothing() -> None:
    world, client = declared("T")
    client.send(http("/", "cmd: produce", "topic: T", "id: 1", body=b"x", method="HEAD"))
    world.settle()
    assert client.received.startswith(b"HTTP/1.1 200 ")
    assert world.broker.topics["t"].depth() == 1


def test_the_method_of_a_call_is_the_service_s() -> None:
    world, client = declared("R?topic_mask=5")
    service = world.connect()
    service.send(http("/R?cmd=consume"))
    client.send(http("/R/a/page", method="OPTIONS"))
    world.settle()
    (call,) = service.replies()
    assert call.headers["origin_method"] == "OPTIONS"


@pytest.mark.parametrize("method", ["DELETE", "PUT", "PATCH", "FOO", "get"])
@pytest.mark.parametrize("target", ["/T", "/T/g", "/?topic=T", "/T?delay=1000", "/T?tag=a"])
def test_what_only_looks_like_a_put(method: str, target: str) -> None:
    """It would put an empty message."""
    world, client = declared("T")
    put(client, "T", b"x")
    before = depth(world.broker)
    client.send(http(target, method=method) + http(target, "content-length: 0", method=method))
    world.settle()
    for reply in client.replies():
        assert reply.status == 405
        assert reply.headers["allow"] == "GET, POST"
        text = f"405: {method} without a body puts nothing; POST a message, or name a command"
        assert reply.body.decode() == f"{text} such as ?cmd=remove"
    assert depth(world.broker) == before


@pytest.mark.parametrize("method", ["DELETE", "PUT", "PATCH", "FOO"])
def test_a_put_of_any_method_has_a_body_or_a_command(method: str) -> None:
    world, client = declared("T")
    for data in (
        http("/T", method=method, body=b"x"),
        http("/T", "transfer-encoding: chunked", method=method) + b"1\r\nx\r\n0\r\n\r\n",
        http("/T?body=x", method=method),
        http("/T?cmd=produce", method=method),
        http("/", "cmd: produce", "topic: T", method=method),
    ):
        ok(client, data)
    assert world.broker.topics["t"].depth() == 5
    ok(client, http("/T?cmd=remove", method=method))
    assert client.request(http("/T", method=method)).status == 404


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_an_empty_message_may_be_meant(method: str) -> None:
    world, client = declared("T")
    ok(client, http("/T", method=method))
    assert world.broker.topics["t"].depth() == 1


@pytest.mark.parametrize(
    ("query", "hint"),
    [
        ("rentention_ms=1000", "did you mean retention_ms?"),
        ("durabilty=memory", "did you mean durability?"),
        ("group_fliter=a", "did you mean group_filter?"),
        ("zzz=1", "unknown parameter 'zzz'"),
        ("%FF=1", "unknown parameter"),
    ],
)
def test_a_declare_knows_its_names(query: str, hint: str) -> None:
    world = World()
    client = world.connect()
    reply = client.request(http(f"/T?cmd=declare&{query}"))
    assert reply.status in (200, 400)
    if reply.status == 400:
        assert hint in reply.body.decode()
        assert not world.broker.topics
    else:
        assert query.startswith("%FF"), "a name that is no token is no name"


def test_what_every_request_may_say() -> None:
    client = World().connect()
    ok(client, http("/T/g?cmd=declare&_=123&token=x&id=7&timeout=1000&ack=1"))
    ok(client, http("/T/g?cmd=declare&version=0.11.4&encoding=utf-8&tag=a&consume_window=1"))
    ok(client, http("/T/g?cmd=declare&body=&offset=0&window=1&sender=s&recver=r"))
    ok(client, cmd("declare", "topic: T", "x-my-own: header"))
