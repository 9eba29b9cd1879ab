"""`consume_window`: so many messages with one consume's id, then no more until the next consume."""

from __future__ import annotations

import msgspec
import pytest

from tests.conformance.dialogue import Client, World, cmd, declared, http, ok, put


def ask(client: Client, window: int, id: str, *lines: str) -> list[tuple[str, bytes]]:
    client.send(cmd("consume", "topic: T", f"consume_window: {window}", f"id: {id}", *lines))
    client.world.settle()
    return told(client)


def told(client: Client) -> list[tuple[str, bytes]]:
    replies = client.replies()
    assert {reply.status for reply in replies} <= {200}
    return [(reply.headers["id"], reply.body) for reply in replies]


def bodies(first: int, end: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, end)]


@pytest.fixture(params=["T", "T?topic_mask=1", "T?partitions=3", "T?durability=os"])
def pair(request: pytest.FixtureRequest) -> tuple[World, Client]:
    return declared(request.param)


def test_what_is_there_and_what_comes(pair: tuple[World, Client]) -> None:
    world, client = pair
    put(client, "T", *bodies(0, 2), query="key=k")
    reader = world.connect()
    assert ask(reader, 3, "p") == [("p", b"0"), ("p", b"1")]
    put(client, "T", *bodies(2, 5), query="key=k")
    assert told(reader) == [("p", b"2")]
    world.advance(60_000)
    assert told(reader) == [], "the credit is used up"
    assert ask(reader, 1, "q") == [("q", b"3")]
    assert ask(reader, 9, "r") == [("r", b"4")]


def test_the_next_consume_sets_it_anew(pair: tuple[World, Client]) -> None:
    """It does not add to what was left, and the first is not answered any more."""
    world, client = pair
    reader = world.connect()
    assert ask(reader, 5, "p") == []
    assert ask(reader, 2, "q") == []
    put(client, "T", *bodies(0, 4), query="key=k")
    assert told(reader) == [("q", b"0"), ("q", b"1")]


def test_sessions_have_turns(pair: tuple[World, Client]) -> None:
    world, client = pair
    readers = [world.connect() for _ in range(3)]
    for number, reader in enumerate(readers):
        assert ask(reader, 4, f"p{number}") == []
    put(client, "T", *bodies(0, 9), query="key=k")
    for number, reader in enumerate(readers):
        assert [body for _, body in told(reader)] == bodies(0, 9)[number::3]


def test_a_session_that_takes_nothing_is_passed_over(pair: tuple[World, Client]) -> None:
    world, client = pair
    slow, brisk = world.connect(), world.connect()
    slow.takes = False
    ask(slow, 1_000, "slow")
    ask(brisk, 1_000, "brisk")
    large = [b"%d" % number * 100_000 for number in range(10)]
    put(client, "T", *large, query="key=k")
    in_order = [body for _, body in told(brisk)]
    assert in_order == [large[1], large[3], *large[5:]]
    slow.takes = True
    put(client, "T", b"x", b"y", query="key=k")
    assert [body for _, body in told(slow)] == [large[0], large[2], large[4], b"y"]
    assert [body for _, body in told(brisk)] == [b"x"]


def test_a_session_that_breaks_off_loses_what_it_was_sent_at_most(
    pair: tuple[World, Client],
) -> None:
    world, client = pair
    reader = world.connect()
    ask(reader, 3, "p")
    put(client, "T", *bodies(0, 5), query="key=k")
    assert len(told(reader)) == 3
    reader.vanish()
    other = world.connect()
    assert ask(other, 9, "q") == [("q", b"3"), ("q", b"4")]


def test_with_leases_the_window_of_the_group_holds_too(pair: tuple[World, Client]) -> None:
    world, client = pair
    ok(client, http("/T/g?cmd=declare&group_mask=64&group_ack_window=2&group_ack_timeout=1000"))
    put(client, "T", *bodies(0, 4), query="partition=0")
    reader = world.connect()
    assert ask(reader, 3, "p", "consume_group: g") == [("p", b"0"), ("p", b"1")]
    ok(client, http("/T/g?cmd=ack&offset=0"))
    assert told(reader) == [("p", b"2")]
    ok(client, http("/T/g?cmd=ack&offset=1"))
    assert told(reader) == [], "the credit is used up, though the group's window is open"
    assert ask(reader, 3, "q", "consume_group: g") == [("q", b"3")]
    world.advance(1_000)
    assert sorted(told(reader)) == [("q", b"2"), ("q", b"3")], "what comes again takes credit, too"


def test_with_batches_each_reply_is_one_of_the_window(pair: tuple[World, Client]) -> None:
    world, client = pair
    put(client, "T", *bodies(0, 7), query="key=k")
    reader = world.connect()
    found = ask(reader, 2, "p", "batch: 3")
    assert [id for id, _ in found] == ["p", "p"]
    items = [[item["body"] for item in msgspec.json.decode(body)] for _, body in found]
    assert items == [["0", "1", "2"], ["3", "4", "5"]]
    assert ask(reader, 2, "q", "batch: 3")[0][0] == "q"


def test_leaving_the_group_ends_it(pair: tuple[World, Client]) -> None:
    world, client = pair
    reader = world.connect()
    ask(reader, 5, "p")
    put(client, "T", b"0")
    reader.send(cmd("unconsume", "topic: T"))
    world.settle()
    assert told(reader) == [("p", b"0")]
    put(client, "T", b"1")
    assert told(reader) == []
    assert reader.peer.open_waits == 0


def test_a_large_window_gives_way_to_others(pair: tuple[World, Client]) -> None:
    """However much is there, a turn hands out a bounded number of messages."""
    world, client = pair
    lines = b"\n".join(bodies(0, 5_500))
    ok(client, http("/T", "content-type: application/x-ndjson", body=lines))
    reader = world.connect()
    reader.send(cmd("consume", "topic: T", "consume_window: 6000", "id: p"))
    world.turn()
    first = len(told(reader))
    assert 0 < first <= 5_000
    world.settle()
    assert first + len(told(reader)) == 5_500
