"""The group that comes with its topic: nobody has to read it (docs/reference/zbus.md)."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import convert

from tests.conformance.dialogue import (
    Client,
    World,
    cmd,
    document,
    drain,
    http,
    ok,
    pull,
    put,
    restart,
)
from zbus.cli.top import Row, rows_of
from zbus.client import ServerInfo

SEGMENT_BYTES = 64 << 10


def world_of(declare: str) -> tuple[World, Client]:
    world = World(segment_bytes_max=SEGMENT_BYTES)
    client = world.connect()
    ok(client, http(declare))
    return world, client


def group_of(client: Client, path: str) -> Any:
    return document(ok(client, http(f"{path}?cmd=query")))


def fill(client: Client, topic: str, messages: int) -> None:
    """In batches of a hundred, some of which are segments of their own."""
    for begin in range(0, messages, 100):
        lines = b"".join(b'{"body":"%0999d"}\n' % n for n in range(begin, begin + 100))
        ok(client, http(f"/{topic}", "content-type: application/x-ndjson", body=lines))


def work(client: Client, path: str, messages: int) -> None:
    for _ in range(messages // 100):
        ok(client, http(f"{path}?cmd=consume&batch=100&timeout=0", "accept: application/json"))
        client.world.advance(50)


def first(world: World, topic: str = "rd") -> int:
    found = world.broker.topic(topic)
    assert found is not None
    return sum(partition.first for partition in found.partitions)


@pytest.mark.parametrize("partitions", [1, 3])
def test_what_all_others_have_finished_is_dropped(partitions: int) -> None:
    world, client = world_of(f"/rd?cmd=declare&retention_done=1&partitions={partitions}")
    ok(client, http("/rd/work?cmd=declare"))
    fill(client, "rd", 4_000)
    world.advance(3_000)
    assert first(world) == 0
    work(client, "/rd/work", 4_000)
    world.advance(3_000)
    assert first(world) > 3_000
    again = restart(world)
    assert first(again) > 3_000
    reply = pull(again.connect(), "/rd/rd")
    gone = int(reply.headers["skipped"]) if reply.status == 200 else 0
    assert reply.status == 204 or gone == first(again)


def test_without_another_group_nobody_has_finished_anything() -> None:
    world, client = world_of("/rd?cmd=declare&retention_done=1")
    fill(client, "rd", 4_000)
    world.advance(3_000)
    assert first(world) == 0
    assert first(restart(world)) == 0


CLAIMS = {
    "a reader": http("/rd/rd?cmd=consume&timeout=0&batch=1"),
    "a stock reader": cmd("consume", "topic: rd", "timeout: 0"),
    "a look at an offset": http("/rd/rd?cmd=consume&offset=3"),
    "a declare by name": http("/rd/RD?cmd=declare"),
    "a declare with options of a group": http("/rd?cmd=declare&group_ack_window=5"),
    "a declare with a start": http("/rd?cmd=declare&group_start_offset=0"),
}


@pytest.mark.parametrize("claim", CLAIMS.values(), ids=CLAIMS)
@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("partitions", [1, 2])
def test_once_it_is_somebodys_it_holds_back(claim: bytes, restarts: bool, partitions: int) -> None:
    world, client = world_of(f"/rd?cmd=declare&retention_done=1&partitions={partitions}")
    ok(client, http("/rd/work?cmd=declare"))
    fill(client, "rd", 400)
    assert group_of(client, "/rd/rd")["unclaimed"] is True
    ok(client, claim)
    assert "unclaimed" not in group_of(client, "/rd/rd")
    if restarts:
        world = restart(world)
        client = world.connect()
        assert "unclaimed" not in group_of(client, "/rd/rd")
    work(client, "/rd/work", 400)
    world.advance(3_000)
    assert first(world) <= 2
    assert len(drain(client, "/rd/rd")) >= 399


@pytest.mark.parametrize(
    ("target", "unclaimed"),
    [
        ("/rd?cmd=declare", True),
        ("/rd?cmd=declare&topic_mask=64&retention_ms=5", True),
        ("/rd/rd?cmd=declare", False),
        ("/rd/work?cmd=declare", False),
        ("/rd?cmd=declare&group_mask=64", False),
        ("/rd?cmd=declare&group_name_auto=1", False),
    ],
)
def test_only_what_nobody_asked_for_is_unclaimed(target: str, unclaimed: bool) -> None:
    world, client = world_of(target)
    for one in (client, restart(world).connect()):
        info = document(ok(one, http("/rd?cmd=query")))
        assert [group.get("unclaimed", False) for group in info["consumeGroupList"]] == [unclaimed]


def test_declaring_the_topic_again_claims_nothing() -> None:
    _, client = world_of("/rd?cmd=declare")
    ok(client, http("/rd?cmd=declare&retention_done=1"))
    ok(client, cmd("declare", "topic: rd"))
    assert group_of(client, "/rd/rd")["unclaimed"] is True


def test_its_first_reader_starts_where_the_topic_began() -> None:
    """Whatever others have read: stock clients count on that."""
    world, client = world_of("/rd?cmd=declare")
    ok(client, http("/rd/work?cmd=declare"))
    put(client, "rd", b"a", b"b")
    assert drain(client, "/rd/work") == [b"a", b"b"]
    client = restart(world).connect()
    put(client, "rd", b"c")
    assert drain(client, "/rd") == [b"a", b"b", b"c"]


def test_a_topic_in_memory_forgets_what_is_finished() -> None:
    world, client = world_of("/rd?cmd=declare&topic_mask=1")
    ok(client, http("/rd/work?cmd=declare"))
    for _ in range(4):
        fill(client, "rd", 1_000)
        work(client, "/rd/work", 1_000)
    assert first(world) > 2_000
    world.broker.check()
    reply = pull(client, "/rd/rd")
    assert int(reply.headers["skipped"]) == int(reply.headers["offset"]) == first(world)


def test_it_is_no_lag_of_its_topic() -> None:
    """Where others are read. `zbus top` shows of each group what `zbus query` shows."""
    _, client = world_of("/rd?cmd=declare")
    ok(client, http("/rd/work?cmd=declare"))
    put(client, "rd", b"a", b"b", b"c")
    assert pull(client, "/rd/work").body == b"a"

    def rows() -> list[Row]:
        server = convert(document(ok(client, http("/?cmd=server"))), ServerInfo)
        return [row for row in rows_of(server.topics.values(), {}, 0) if row.topic == "rd"]

    def lags() -> dict[str, int]:
        return {row.group: row.lag for row in rows()}

    assert lags() == {"": 2, "rd": 3, "work": 2}
    assert {row.group: row.finished for row in rows()} == {"": 1, "rd": 0, "work": 1}
    assert group_of(client, "/rd/rd")["messageCount"] == 3, "as stock clients know it"
    assert pull(client, "/rd/rd").body == b"a"
    assert pull(client, "/rd/work").body == b"b"
    assert lags() == {"": 2, "rd": 2, "work": 1}


def test_what_nobody_reads_is_the_lag() -> None:
    _, client = world_of("/rd?cmd=declare")
    put(client, "rd", b"a", b"b", b"c")
    server = convert(document(ok(client, http("/?cmd=server"))), ServerInfo)
    assert [(row.group, row.lag) for row in rows_of(server.topics.values(), {}, 0)] == [
        ("", 3),
        ("rd", 3),
    ]


def test_top_shows_what_is_stored() -> None:
    """And beside it what was ever put, from which rates are."""
    world, client = world_of("/rd/work?cmd=declare&retention_done=1")
    fill(client, "rd", 4_000)
    server = convert(document(ok(client, http("/?cmd=server"))), ServerInfo)
    before = {(row.topic, row.group): row for row in rows_of(server.topics.values(), {}, 0)}
    work(client, "/rd/work", 4_000)
    world.advance(3_000)
    put(client, "rd", b"a", b"b")
    server = convert(document(ok(client, http("/?cmd=server"))), ServerInfo)
    topic, group = rows_of(server.topics.values(), before, 2.0)
    assert topic.messages == group.messages == 4_002 - first(world)
    assert topic.put == topic.finished + topic.lag == group.finished + group.lag == 4_002
    assert group.finished > 3_500
    assert (topic.in_rate, group.out_rate) == (1.0, group.finished / 2)
