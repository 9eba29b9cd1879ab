"""Consume, transform, produce: the result is stored and the source acknowledged, or neither."""

from __future__ import annotations

import pytest

from tests.conformance.dialogue import (
    Client,
    World,
    cmd,
    declared,
    http,
    ok,
    pull,
    put,
    refused,
    restart,
)

ACK = "ack_topic=In&ack_group=g&ack_offset="
RESULT = f"/Out?cmd=produce&{ACK}"


def leased(count: int = 3) -> tuple[World, Client]:
    """The group g of In has leased as many messages, and Out has a group r."""
    world, client = declared("In/g?group_mask=64&partitions=1")
    ok(client, http("/Out/r?cmd=declare&group_mask=64"))
    ok(client, http("/In/plain?cmd=declare"))
    put(client, "In", *[b"%d" % n for n in range(count)])
    for _ in range(count):
        assert pull(client, "/In/g").status == 200
    return world, client


def left(world: World, path: str = "/In/g") -> list[bytes]:
    """What the group is still given when its leases have ended."""
    world.advance(10_000)
    found, client = [], world.connect()
    while (reply := pull(client, path)).status == 200:
        found.append(reply.body)
    return found


def test_one() -> None:
    world, client = leased()
    reply = ok(client, http(f"{RESULT}1", body=b"result", method="POST"))
    assert reply.headers["offset"] == "0"
    assert pull(client, "/Out/r").body == b"result"
    assert left(world) == [b"0", b"2"]


def test_many_over_a_restart() -> None:
    world, client = leased()
    ok(client, http(f"{RESULT}0-1", body=b"result", method="POST"))
    world = restart(world)
    assert pull(world.connect(), "/Out/r").body == b"result"
    assert left(world) == [b"2"]


def test_a_batch_settles_at_its_end() -> None:
    world, client = leased()
    lines = "content-type: application/x-ndjson"
    ok(client, http(f"{RESULT}0,2", lines, body=b'"a"\n"b"\n', method="POST"))
    assert left(world) == [b"1"]
    assert left(world, "/Out/r") == [b'"a"', b'"b"']


def test_a_result_that_is_delayed_and_put_once() -> None:
    world, client = leased()
    target = f"{RESULT}0&delay=50000"
    for _ in range(2):  # the second time nothing is leased, and it was stored before
        reply = client.request(http(target, "idempotency-key: k", body=b"x", method="POST"))
    assert reply.status == 404
    assert left(world) == [b"1", b"2"]
    world.advance(50_000)
    assert left(world, "/Out/r") == [b"x"]


def test_the_names_are_not_part_of_the_message() -> None:
    _, client = leased()
    ok(
        client,
        cmd("produce", "topic: Out", "ack_topic: In", "ack_group: g", "ack_offset: 0", body=b"x"),
    )
    assert not [name for name in pull(client, "/Out/r").headers if name.startswith("ack_")]


BAD = {
    "no offset": ("ack_topic=In&ack_group=g", 400, "Missing ack_offset"),
    "no topic": ("ack_offset=0", 400, "Missing ack_topic"),
    "no number": (f"{ACK}x", 400, "ack_offset is numbers and ranges"),
    "no topic of that name": ("ack_topic=No&ack_offset=0", 404, "Topic(No) Not Found"),
    "no group of that name": ("ack_topic=In&ack_offset=0", 404, "ConsumeGroup(In) Not Found"),
    "no partition": (f"{ACK}0&ack_partition=7", 404, "has no partition 7"),
    "not leased": (f"{ACK}0,9", 404, "offset 9 is not leased: nothing is stored"),
    "no leases": (
        "ack_topic=In&ack_group=plain&ack_offset=0",
        400,
        "group plain acknowledges on delivery",
    ),
}


@pytest.mark.parametrize("bad", BAD)
def test_what_is_refused_stores_nothing(bad: str) -> None:
    query, status, text = BAD[bad]
    world, client = leased()
    said = refused(client, http(f"/Out?cmd=produce&{query}", body=b"x", method="POST"))
    assert said[0] == status
    assert text in said[1]
    assert left(world) == [b"0", b"1", b"2"]
    assert left(world, "/Out/r") == []


def test_a_call_acknowledges_nothing() -> None:
    _, client = leased()
    ok(client, http("/R?cmd=declare&topic_mask=2"))
    said = refused(client, http(f"/R?cmd=produce&{ACK}0", body=b"x", method="POST"))
    assert said == (
        400,
        "400: Bad Format, a call takes no idempotency-key, no expected_offset and no ack_topic",
    )
