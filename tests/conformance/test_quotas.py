"""So much a second, and so many connections: what whoever passes a quota reads, and when he is let
in again."""

from __future__ import annotations

import attrs
import pytest

from tests.conformance.dialogue import Client, World, cmd, http, ok
from tests.conformance.test_access import ADMIN, ADMIN_ENTRY, entry, replace_table
from tests.conformance.websocket_client import handshake, upgraded
from zbus.core.model.limits import Limits
from zbus.edge.access import Access, Entry
from zbus.edge.quotas import Limits as TokenLimits

SHOP = "token: shop"


def limited(**limits: int) -> tuple[World, Client]:
    """A broker whose topics take so much a second."""
    world = World(limits=Limits(**limits))
    client = world.connect()
    for topic in ("T", "U"):
        ok(client, http(f"/{topic}?cmd=declare"))
    return world, client


def shop(**limits: int) -> Entry:
    """An entry that everything is granted to, within these limits."""
    plain = entry("shop", "*")
    return attrs.evolve(plain, grant=attrs.evolve(plain.grant, limits=TokenLimits(**limits)))


def world_with(*entries: Entry) -> tuple[World, Client]:
    world = World(access=Access([ADMIN_ENTRY, *entries]))
    client = world.connect()
    ok(client, http("/T?cmd=declare", ADMIN))
    return world, client


def put(body: bytes = b"x", topic: str = "T", *lines: str) -> bytes:
    return http(f"/{topic}", *lines, body=body, method="POST")


def throttled(client: Client, data: bytes) -> tuple[int, str]:
    """The seconds and the text of a 429."""
    reply = client.request(data)
    assert reply.status == 429, reply
    assert not client.closed
    return int(reply.headers["retry-after"]), reply.body.decode()


# -- of topics --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "lines", [[], ["id: a"], ["idempotency-key: a"], ["key: k"], ["delay: 5"], ["tag: t"]]
)
def test_a_topic_takes_so_many_messages_a_second(lines: list[str]) -> None:
    world, client = limited(topic_messages_per_s=2)
    ok(client, put(b"1"))
    ok(client, put(b"2"))
    text = "429: T accepts 2 messages a second: retry in 1 s"
    assert throttled(client, put(b"3", "T", *lines)) == (1, text)
    ok(client, put(b"3", "U", *lines))
    world.advance(499)
    assert throttled(client, put(b"3", "T", *lines)) == (1, text)
    world.advance(1)
    assert ok(client, put(b"3", "T", *lines)).headers["offset"] == "2"


def test_those_who_come_in_one_turn_count_each() -> None:
    world, client = limited(topic_messages_per_s=3)
    others = [world.connect() for _ in range(5)]
    for other in others:
        other.send(put())
    client.send(put() * 2)
    world.settle()
    statuses = [reply.status for one in (*others, client) for reply in one.replies()]
    assert sorted(statuses) == [200] * 3 + [429] * 4


def test_a_batch_passes_as_a_whole() -> None:
    world, client = limited(topic_messages_per_s=10)
    lines = b"\n".join([b"1"] * 35)
    batch = put(lines, "T", "content-type: application/x-ndjson")
    assert ok(client, batch).headers["count"] == "35"
    assert throttled(client, batch)[0] == 3
    world.advance(2_000)
    assert throttled(client, put())[0] == 1
    world.advance(600)
    ok(client, put())


def test_a_topic_takes_so_many_bytes_a_second() -> None:
    world, client = limited(topic_bytes_per_s=1_000)
    ok(client, put(bytes(5_000)))
    text = "429: T accepts 1000 bytes a second: retry in 5 s"
    assert throttled(client, put()) == (5, text)
    assert ok(client, http("/T?cmd=consume&timeout=0")).body == bytes(5_000), "others go on"
    world.advance(5_000)
    ok(client, put())


def test_calls_count() -> None:
    _, client = limited(topic_messages_per_s=1)
    ok(client, http("/S?cmd=declare&topic_mask=4"))
    client.send(http("/S/method"))
    client.world.settle()
    other = client.world.connect()
    assert throttled(other, http("/S/method"))[1].startswith("429: S accepts 1 message a second")


# -- of tokens --------------------------------------------------------------------------------

BOTH = "429: this token may send 2 requests and 1000 bytes a second: retry in {} s"


def test_a_token_may_send_so_much_a_second() -> None:
    world, client = world_with(shop(requests_per_s=2, bytes_per_s=1_000))
    other = world.connect()
    ok(client, put(b"1", "T", SHOP))
    ok(other, http("/T?cmd=consume&timeout=0", SHOP))
    assert throttled(client, put(b"2", "T", SHOP)) == (1, BOTH.format(1))
    assert throttled(other, http("/T?cmd=query", SHOP)) == (1, BOTH.format(1))
    ok(client, put(b"2", "T", ADMIN))
    world.advance(1_000)
    ok(client, put(bytes(3_000), "T", SHOP))
    assert throttled(other, http("/T?cmd=query", SHOP)) == (3, BOTH.format(3))
    world.advance(2_001)
    ok(other, http("/T?cmd=query", SHOP))


def test_a_new_table_counts_at_once_and_connections_stay() -> None:
    world, client = world_with(shop(requests_per_s=1, connections_max=1))
    ok(client, put(b"1", "T", SHOP))
    throttled(client, put(b"2", "T", SHOP))
    replace_table(world, ADMIN_ENTRY, shop(requests_per_s=2, connections_max=1))
    text = throttled(world.connect(), put(b"3", "T", SHOP))[1]
    assert text == "429: quota reached: this token may have 1 connection"
    ok(client, put(b"2", "T", SHOP))
    replace_table(world, ADMIN_ENTRY, entry("shop", "*"))
    for _ in range(10):
        ok(world.connect(), put(b"3", "T", SHOP))


def test_a_token_may_have_so_many_connections() -> None:
    world, admin = world_with(shop(connections_max=2))
    first, second, third = (world.connect() for _ in range(3))
    for _ in range(3):
        ok(first, put(b"1", "T", SHOP))
        ok(second, put(b"1", "T", SHOP))
    text = "429: quota reached: this token may have 2 connections"
    assert throttled(third, put(b"1", "T", SHOP)) == (1, text)
    ok(third, put(b"1", "T", ADMIN))
    ok(admin, put(b"1", "T", ADMIN))
    first.vanish()
    ok(third, put(b"1", "T", SHOP))
    assert throttled(world.connect(), put(b"1", "T", SHOP)) == (1, text)


def test_who_may_not_is_told_that_and_counts_nothing() -> None:
    world, client = world_with(
        attrs.evolve(
            entry("shop", "produce"),
            grant=attrs.evolve(entry("shop", "produce").grant, limits=TokenLimits(1, 0, 1)),
        )
    )
    for _ in range(3):
        assert client.request(http("/T?cmd=consume&timeout=0", SHOP)).status == 403
    other = world.connect()
    ok(other, put(b"1", "T", SHOP))


def test_the_original_protocol_is_answered_in_its_order() -> None:
    _, client = world_with(shop(requests_per_s=1))
    client.send(cmd("query", "topic: T", "id: a", SHOP) + cmd("query", "topic: T", "id: b", SHOP))
    client.world.settle()
    replies = client.replies()
    assert [(reply.status, reply.headers["id"]) for reply in replies] == [(200, "a"), (429, "b")]


@pytest.mark.parametrize("token", ["of the handshake", "of each"])
def test_on_a_websocket_each_message_counts(token: str) -> None:
    world, _ = world_with(shop(requests_per_s=1))
    own = {} if token == "of the handshake" else {"token": "shop"}
    lines = [SHOP] if token == "of the handshake" else []
    socket = upgraded(world.connect(), handshake("/", *lines))
    query = {"cmd": "query", "topic": "T", "id": "1"} | own
    assert socket.ask(query)["status"] == 200
    reply = socket.ask(query)
    assert (reply["status"], reply["headers"]["retry-after"]) == (429, "1")
    assert reply["body"] == "429: this token may send 1 request a second: retry in 1 s"
