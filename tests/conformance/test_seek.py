"""`seek`: a group that exists is moved, in all partitions or in none."""

from __future__ import annotations

import pytest

from tests.conformance.dialogue import (
    Client,
    World,
    cmd,
    declared,
    document,
    drain,
    http,
    ok,
    pull,
    put,
    refused,
    restart,
)
from tests.conformance.test_declare_while_reading import cold


@pytest.fixture
def client() -> Client:
    """Messages 0 to 4, ten milliseconds apart; group g leases, has two of them done and one open,
    and two that wait."""
    world = World()
    client = world.connect()
    ok(client, http("/T/g?cmd=declare&ack=true"))
    for n in range(5):
        ok(client, http("/T", f"id: m-{n}", body=b"%d" % n))
        world.advance(10)
    assert [pull(client, "/T/g").body for _ in range(3)] == [b"0", b"1", b"2"]
    ok(client, http("/T/g?cmd=ack&offset=0-1"))
    return client


PLACES = [
    ("earliest", 0),
    ("latest", 5),
    ("0", 0),
    ("3", 3),
    ("5", 5),
    ("time:0", 0),
    ("time:1800000000001", 1),
    ("time:1800000000040", 4),
    ("time:9223372036854775807", 5),
    ("2027-01-15T08:00:00.010Z", 1),
    ("20270115T0800Z", None),
    ("6", None),
    ("9223372036854775806", None),
    ("9223372036854775807", None),
    ("9223372036854775808", None),
    ("-1", None),
    ("+1", None),
    ("1.0", None),
    ("1e3", None),
    ("0,0", None),
    (",", None),
    ("0" * 5000, None),
    ("0," * 3000, None),
    ("Earliest", None),
    ("begin", None),
    ("end", None),
    ("now", None),
    ("offset:3", None),
    ("time:", None),
    ("time:-1", None),
    ("time:9223372036854775808", None),
    ("time:now", None),
    ("2027-13-15", None),
    ("2027-01-32T00:00:00Z", None),
    ("2027-01-15T25:00:00Z", None),
    ("2027-01-15T08:00:00 0100", None),
    ("time:1800000000", None),
    ("2027-01-15T08:00:00.000000000000000000000000000Z", None),
    ("0000-01-01", None),
    ("yesterday", None),
    ("\u0663", None),
    ("", None),
]


@pytest.mark.parametrize(("place", "first"), PLACES, ids=[place[:30] for place, _ in PLACES])
def test_places(client: Client, place: str, first: int | None) -> None:
    before = client.request(http("/T?cmd=query")).body
    data = cmd("seek", "topic: T", "consume_group: g", f"from: {place}")
    if first is None:
        status, text = refused(client, data)
        assert (status, text[:17]) == (400, "400: Bad Format, ")
        assert len(text) < 300
        assert client.request(http("/T?cmd=query")).body == before
        return
    info = document(ok(client, data))
    assert (info["groupName"], info["leasedCount"]) == ("g", 0), "leases are dropped"
    assert info["messageCount"] == 5 - first
    assert drain(client, "/T/g") == [b"%d" % n for n in range(first, 5)]


@pytest.mark.parametrize(
    ("target", "status", "text"),
    [
        ("/T/g?cmd=seek", 400, "Missing from"),
        ("/?cmd=seek&from=0", 400, "Missing topic"),
        ("/U/g?cmd=seek&from=0", 404, "Topic(U) Not Found"),
        ("/T/nope?cmd=seek&from=0", 404, "ConsumeGroup(nope) Not Found"),
        ("/T?cmd=seek&from=0", 404, "ConsumeGroup(T) Not Found"),
        ("/T/g?cmd=seek&from=6", 400, "there is no message at 6"),
        ("/T/g?cmd=seek&from=0&partition=1", 400, "there is no partition 1"),
        ("/T/g?cmd=seek&from=0,0&partition=0", 400, "2 offsets were given"),
        ("/T/g?cmd=seek&form=0", 400, "unknown parameter 'form'; did you mean from?"),
        ("/T/g?cmd=seek&from=0&partition=x", 400, "partition is a number"),
        ("/T/g?cmd=seek&group_start_offset=0", 400, "unknown parameter"),
    ],
)
def test_what_is_asked_for(client: Client, target: str, status: int, text: str) -> None:
    before = client.request(http("/T/g?cmd=query")).body
    found, told = refused(client, http(target))
    assert found == status
    assert text in told
    assert client.request(http("/T/g?cmd=query")).body == before


def test_a_method_that_changes_nothing(client: Client) -> None:
    assert client.request(http("/T/g?cmd=seek&from=0", method="OPTIONS")).status == 405


def test_others_stay_where_they_are(client: Client) -> None:
    ok(client, http("/T/h?cmd=declare&from=3"))
    ok(client, http("/T/g?cmd=seek&from=earliest"))
    assert drain(client, "/T/h") == [b"3", b"4"]


def test_an_open_lease_is_nobodys_any_more(client: Client) -> None:
    ok(client, http("/T/g?cmd=seek&from=3"))
    assert client.request(http("/T/g?cmd=nack&offset=2")).status == 404
    assert client.request(http("/T/g?cmd=extend&offset=2")).status == 404
    ok(client, http("/T/g?cmd=ack&offset=2"))
    client.world.advance(60_000)
    assert drain(client, "/T/g") == [b"3", b"4"]


def test_attempts_begin_anew(client: Client) -> None:
    ok(client, http("/T/g?cmd=nack&offset=2"))
    assert pull(client, "/T/g").headers["retry"] == "1"
    ok(client, http("/T/g?cmd=seek&from=2"))
    assert "retry" not in pull(client, "/T/g").headers


def test_what_is_delayed_still_waits_and_what_lies_before_is_passed_over(client: Client) -> None:
    put(client, "T", b"early", query="delay=1000")
    put(client, "T", b"late", query="delay=1000")
    assert drain(client, "/T/g") == [b"3", b"4"]
    ok(client, http("/T/g?cmd=seek&from=6"))
    client.world.advance(999)
    assert drain(client, "/T/g") == []
    client.world.advance(1)
    assert drain(client, "/T/g") == [b"late"]


def test_it_wakes_a_waiting_pull(client: Client) -> None:
    drain(client, "/T/g")
    waiting = client.world.connect()
    assert waiting.exchange(cmd("consume", "topic: T", "group: g", "id: p")) == []
    ok(client, http("/T/g?cmd=seek&from=4"))
    assert [reply.body for reply in waiting.replies()] == [b"4"]


def test_after_a_restart(client: Client) -> None:
    ok(client, http("/T/g?cmd=seek&from=1"))
    again = restart(client.world).connect()
    info = document(ok(again, http("/T/g?cmd=query")))
    assert (info["messageCount"], info["leasedCount"]) == (4, 0)
    assert drain(again, "/T/g") == [b"1", b"2", b"3", b"4"]


def test_what_was_forgotten_is_refused_and_earliest_is_what_there_is() -> None:
    world, client = declared("T/g?retention_count=1")
    for n in range(3):
        put(client, "T", b"%d" % n)
    ok(client, http("/T?cmd=empty"))
    put(client, "T", b"3")
    world.settle()
    status, text = refused(client, http("/T/g?cmd=seek&from=1"))
    assert (status, text) == (400, "400: Bad Format, partition 0 has offsets 3 to 4")
    ok(client, http("/T/g?cmd=seek&from=earliest"))
    assert drain(client, "/T/g") == [b"3"]


@pytest.mark.parametrize("mask", [1, 3])
def test_topics_in_memory(mask: int) -> None:
    _, client = declared(f"T/g?topic_mask={mask}")
    for n in range(3):
        client.exchange(cmd("produce", "topic: T", "ack: 0", body=b"%d" % n))
    assert drain(client, "/T/g") == [b"0", b"1", b"2"]
    ok(client, http("/T/g?cmd=seek&from=1"))
    assert drain(client, "/T/g") == [b"1", b"2"]


@pytest.mark.parametrize("removed", ["/T/g", "/T"])
def test_a_group_that_goes_while_its_place_is_looked_for(removed: str) -> None:
    journal, world = cold()
    ok(world.connect(), http("/T/g?cmd=declare"))
    slow, other = world.connect(), world.connect()
    slow.send(http(f"/T/g?cmd=seek&from=time:{world.now_ms - 2_000}"))
    ok(other, http(f"{removed}?cmd=remove"))
    journal.answer(world)
    assert [reply.status for reply in slow.replies()] == [404]


def test_the_end_moves_while_a_time_is_looked_for() -> None:
    journal, world = cold()
    ok(world.connect(), http("/T/g?cmd=declare"))
    slow = world.connect()
    slow.send(http(f"/T/g?cmd=seek&from=time:{world.now_ms - 2_000}"))
    put(world.connect(), "T", b"new")
    journal.answer(world)
    assert [reply.status for reply in slow.replies()] == [200]
    group = world.broker.topic("T").group("g")  # type: ignore[union-attr]
    assert group is not None
    assert group.position() == [2]
