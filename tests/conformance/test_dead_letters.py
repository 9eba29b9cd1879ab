"""Dead letters and redriving, as clients see them."""

from __future__ import annotations

import pytest

from tests.conformance.dialogue import Client, World, cmd, http, ok, pull, put, refused, restart
from tests.conformance.test_access import ADMIN, entry, world_with

DECLARE = "/In/g?cmd=declare&group_mask=64&group_max_attempts=2&group_dead_letter=Dead"
DEATH = {
    "dead_topic": "In",
    "dead_group": "g",
    "dead_partition": "0",
    "dead_offset": "0",
    "dead_attempts": "2",
    "dead_reason": "expired",
}


def scene(declare: str = DECLARE) -> tuple[World, Client]:
    """Dead letters of In/g go to Dead, where the group ops reads them."""
    world = World()
    client = world.connect()
    ok(client, http("/Dead/ops?cmd=declare&group_mask=64"))
    ok(client, http(declare))
    return world, client


def die(world: World, client: Client, path: str = "/In/g") -> None:
    """All that is there is handed out for the last time, and not acknowledged."""
    for _ in range(2):
        while pull(client, path).status == 200:
            pass
        world.advance(10_000)


def test_a_message_that_nobody_acknowledges() -> None:
    world, client = scene()
    put(client, "In", b"poison", query="&tag=a.b&key=k")
    die(world, client)
    assert pull(client, "/In/g").status == 204
    dead = pull(client, "/Dead/ops")
    assert dead.body == b"poison"
    assert dead.headers.items() >= DEATH.items()
    assert (dead.headers["tag"], dead.headers["key"]) == ("a.b", "k")
    assert restart(world).broker.topic("Dead").depth() == 1  # type: ignore[union-attr]


def test_a_message_that_is_given_back() -> None:
    world, client = scene()
    put(client, "In", b"poison")
    for _ in range(2):
        offset = pull(client, "/In/g").headers["offset"]
        ok(client, http(f"/In/g?cmd=nack&offset={offset}"))
    assert pull(client, "/Dead/ops").headers["dead_reason"] == "given back"
    world.advance(20_000)
    assert pull(client, "/In/g").status == 204


def test_redrive_and_die_again() -> None:
    world, client = scene()
    put(client, "In", b"poison", b"more")
    for _ in range(2):
        die(world, client)
        reply = ok(client, http("/Dead/ops?cmd=redrive"))
        assert (reply.headers["count"], reply.headers["stayed"]) == ("2", "0")
        assert pull(client, "/Dead/ops").status == 204
    again = pull(client, "/In/g")
    assert again.body == b"poison"
    assert not [name for name in again.headers if name.startswith("dead_")]


def test_redrive_into_another_topic() -> None:
    world, client = scene()
    ok(client, http("/Retry?cmd=declare"))
    put(client, "In", b"poison")
    die(world, client)
    ok(client, http("/In?cmd=remove"))
    assert ok(client, http("/Dead/ops?cmd=redrive")).headers["stayed"] == "1"
    reply = ok(client, http("/Dead/ops?cmd=redrive&to=Retry&offset=0"))
    assert reply.headers["count"] == "1"
    assert pull(client, "/Retry").body == b"poison"


def test_what_a_producer_says_of_a_death_is_not_believed() -> None:
    _, client = scene()
    ok(client, cmd("produce", "topic: Dead", "dead_topic: In", body=b"x"))
    reply = ok(client, http("/Dead/ops?cmd=redrive"))
    assert (reply.headers["count"], reply.headers["stayed"]) == ("0", "1")


def test_redrive_to_the_group_alone() -> None:
    """Another group is handed nothing, and there is no second message."""
    world, client = scene()
    ok(client, http("/In/other?cmd=declare"))
    put(client, "In", b"poison", b"more")
    for body in (b"poison", b"more"):
        assert pull(client, "/In/other").body == body
    for _ in range(2):
        die(world, client)
        reply = ok(client, http("/Dead/ops?cmd=redrive&only_group=true"))
        assert (reply.headers["count"], reply.headers["stayed"]) == ("2", "0")
        assert pull(client, "/In/other").status == 204
    again = pull(client, "/In/g")
    assert (again.body, again.headers["offset"]) == (b"poison", "0")
    assert "retry" not in again.headers
    assert world.broker.topic("In").depth() == 2  # type: ignore[union-attr]


def test_redrive_to_the_group_alone_after_a_restart_and_of_what_is_gone() -> None:
    world, client = scene()
    put(client, "In", b"poison")
    die(world, client)
    client = restart(world).connect()
    ok(client, http("/In/g?cmd=remove"))
    reply = ok(client, http("/Dead/ops?cmd=redrive&only-group=1"))
    assert (reply.headers["count"], reply.headers["stayed"]) == ("0", "1")
    assert ok(client, http("/Dead/ops?cmd=redrive")).headers["count"] == "1"


def test_redrive_with_tokens() -> None:
    """It needs the right to take here, and to put there."""
    topics: dict[str, list[str]] = {"Dead": [], "In": []}
    world, client = world_with(
        entry("both", "produce consume", topics),
        entry("takes", "consume", topics),
        entry("puts", "produce", topics),
        entry("here", "produce consume", {"Dead": []}),
    )
    ok(client, http("/Dead/ops?cmd=declare&group_mask=64", ADMIN))
    ok(client, http(DECLARE, ADMIN))
    ok(client, http("/In", ADMIN, body=b"poison", method="POST"))
    for _ in range(2):
        assert client.request(http("/In/g?cmd=consume&timeout=0", ADMIN)).status == 200
        world.advance(10_000)
    redrive = "/Dead/ops?cmd=redrive"
    assert client.request(http(redrive, "token: puts")).status == 403
    for name in ("takes", "here"):
        for target in (redrive, f"{redrive}&only_group=true"):
            assert ok(client, http(target, f"token: {name}")).headers["stayed"] == "1"
    assert ok(client, http(redrive, "token: both")).headers["count"] == "1"


BAD = {
    "count": ("/Dead/ops?cmd=redrive&count=0", 400, "count is a number from 1 to 100000, not '0'"),
    "offsets": ("/Dead/ops?cmd=redrive&offset=x", 400, "offset is numbers and ranges"),
    "partition": ("/Dead/ops?cmd=redrive&partition=3", 404, "Partition(3) Not Found"),
    "group": ("/Dead/no?cmd=redrive", 404, "ConsumeGroup(no) Not Found"),
    "topic": ("/No?cmd=redrive", 404, "Topic(No) Not Found"),
    "both": ("/Dead/ops?cmd=redrive&to=In&only_group=1", 400, "only_group and to exclude"),
    "to": ("/Dead/ops?cmd=redrive&to=No", 404, "Topic(No) Not Found"),
}


@pytest.mark.parametrize("bad", BAD)
def test_refusals(bad: str) -> None:
    target, status, text = BAD[bad]
    _, client = scene()
    said = refused(client, http(target))
    assert said[0] == status
    assert text in said[1]
