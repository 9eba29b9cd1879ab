"""Groups with order per key: messages of one key go to one consumer at a time, in order."""

import pytest

from tests.conformance.dialogue import (
    Client,
    World,
    cmd,
    declared,
    document,
    http,
    ok,
    pull,
    refused,
    restart,
)

ORDERED = "group_mask=64&group_ack_timeout=10000&group_order=key"


def ordered(*bodies: str, query: str = "") -> tuple[World, Client]:
    """A world where each of these was put, with its first letter as the key; "-" has none."""
    world, client = declared(f"T/g?{ORDERED}{query}")
    produce(client, *bodies)
    return world, client


def produce(client: Client, *bodies: str) -> None:
    for body in bodies:
        key = [] if body[0] == "-" else [f"key: {body[0]}"]
        ok(client, cmd("produce", "topic: T", *key, body=body.encode()))


def bodies(client: Client) -> list[bytes]:
    found = []
    while (reply := pull(client, "/T/g")).status == 200:
        found.append(reply.body)
    return found


def settle(client: Client, command: str, offset: str, *lines: str) -> None:
    ok(client, cmd(command, "topic: T", "consume_group: g", f"offset: {offset}", *lines))


def info(client: Client, target: str) -> dict[str, object]:
    return document(client.request(http(target)))


def test_the_next_of_a_key_waits_for_the_one_before_and_others_flow_on() -> None:
    _, client = ordered("a1", "a2", "b1", "-1", "-2", "b2")
    assert bodies(client) == [b"a1", b"b1", b"-1", b"-2"]
    settle(client, "ack", "2")
    assert bodies(client) == [b"b2"]
    settle(client, "ack", "0")
    assert bodies(client) == [b"a2"]


def test_a_batch_has_several_of_a_key() -> None:
    _, client = ordered("a1", "a2", "a3", "b1")
    lines = ("topic: T", "consume_group: g", "timeout: 0")
    batch = client.request(cmd("consume", *lines, "batch: 2", "accept: application/x-ndjson"))
    assert batch.body.count(b"\n") == 2
    assert bodies(client) == [b"b1"]
    settle(client, "ack", "0")
    assert bodies(client) == [], "all of the batch come first"
    settle(client, "ack", "1")
    assert bodies(client) == [b"a3"]


def test_a_lease_that_ends_gives_the_same_message_again_first() -> None:
    world, client = ordered("a1", "a2")
    assert bodies(client) == [b"a1"]
    world.advance(10_000)
    assert bodies(client) == [b"a1"]


def test_what_is_given_back_comes_before_what_follows_it() -> None:
    world, client = ordered("a1", "a2", "b1")
    assert bodies(client) == [b"a1", b"b1"]
    settle(client, "nack", "0", "delay: 1000")
    assert bodies(client) == []
    world.advance(1_000)
    assert bodies(client) == [b"a1"]
    settle(client, "nack", "0", "front: 0")
    assert bodies(client) == [b"a1"]
    settle(client, "ack", "0")
    assert bodies(client) == [b"a2"]


def test_a_restart_keeps_keys_busy() -> None:
    world, client = ordered("a1", "a2", "b1", "b2")
    assert bodies(client) == [b"a1", b"b1"]
    settle(client, "ack", "2")
    client = restart(world).connect()
    assert bodies(client) == [b"b2"]
    settle(client, "ack", "0")
    assert bodies(client) == [b"a2"]
    settle(client, "ack", "1,3")
    assert bodies(client) == []


def test_order_is_switched_on_and_off() -> None:
    _, client = ordered("a1", "a2", "a3")
    assert bodies(client) == [b"a1"]
    found = info(client, "/T/g?cmd=declare&group_order=none")
    assert "order" not in found
    assert bodies(client) == [b"a2", b"a3"]
    assert info(client, "/T/g?cmd=declare&group_order=key")["order"] == "key"
    produce(client, "a4", "b1")
    settle(client, "ack", "0-1")
    assert bodies(client) == [b"b1"]
    settle(client, "ack", "2")
    assert bodies(client) == [b"a4"]
    assert info(client, "/T/g?cmd=declare&group_filter=%23")["order"] == "key"


def test_each_partition_has_its_keys() -> None:
    _, client = ordered(query="&partitions=2")
    for partition in (0, 1):
        for body in ("first", "second"):
            lines = ("topic: T", "key: k", f"partition: {partition}")
            ok(client, cmd("produce", *lines, body=body.encode()))
    assert bodies(client) == [b"first", b"first"]


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("group_order=id", "group_order is one of none, key, priority"),
        ("group_order=", "group_order is one of none, key, priority"),
        ("group_mask=1", "an order needs acknowledgements"),
        ("group_mask=0&group_order=key", "an order needs acknowledgements"),
    ],
)
def test_what_is_refused_changes_nothing(query: str, text: str) -> None:
    _, client = ordered("a1", "a2")
    before = info(client, "/T/g?cmd=query")
    assert refused(client, http(f"/T/g?cmd=declare&{query}")) == (400, f"400: Bad Format, {text}")
    assert info(client, "/T/g?cmd=query") == before
    assert bodies(client) == [b"a1"]


def test_a_topic_does_not_lose_the_leases_of_its_groups() -> None:
    _, client = declared("T/g?topic_mask=64&group_order=key")
    text = "400: Bad Format, group g: an order needs acknowledgements"
    assert refused(client, http("/T?cmd=declare&topic_mask=0")) == (400, text)
    assert info(client, "/T/g?cmd=query")["ackRequired"] is True
