"""Compact topics as clients see them: declared, put, got by key, followed."""

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
    refused,
    restart,
)
from tests.conformance.test_access import ADMIN, entry, world_with
from tests.conformance.test_events import data, stream
from tests.conformance.websocket_client import connected
from zbus.core.cursor.state import TOMBSTONE_MS
from zbus.core.upkeep.compaction import PAUSE_MS

NO_KEY = "400: Bad Format, T is compact, which keeps the newest message of each key: give key"


def get(client: Client, key: str, topic: str = "T") -> bytes | None:
    """The newest value; None if there is none."""
    reply = client.request(http(f"/{topic}?cmd=get&key={key}"))
    assert reply.status in (200, 404), reply
    return reply.body if reply.status == 200 else None


def put_key(client: Client, key: str, body: bytes, topic: str = "T") -> None:
    ok(client, http(f"/{topic}?key={key}", body=body, method="POST"))


def put_many(world: World, client: Client, count: int) -> None:
    """Values of seven keys, and time for the cleaner in between: a segment has about 30 of them."""
    for number in range(count):
        put_key(client, f"k{number % 7}", b"%d-" % number + 2_000 * b"x")
        if number % 20 == 0:
            world.advance(PAUSE_MS)
    for _ in range(100):
        world.advance(PAUSE_MS)


def compacted() -> tuple[World, Client]:
    """A topic of which most was dropped, and `rest` copied."""
    world, client = declared("T?compact=true")
    put_key(client, "rest", b"rested")
    put_many(world, client, 300)
    assert world.broker.topics["t"].partitions[0].first > 100
    return world, client


# -- declaring ---------------------------------------------------------------------------------


def test_what_is_declared_is_shown_and_stays() -> None:
    world, client = declared("T?compact=true", "U?compact=true&compact_tombstone_ms=1h", "V")
    world = restart(world)
    client = world.connect()
    shown = [document(ok(client, http(f"/{name}?cmd=query"))) for name in "TUV"]
    assert [(one.get("compact"), one.get("compactTombstoneMs")) for one in shown] == [
        (True, TOMBSTONE_MS),
        (True, 3_600_000),
        (None, None),
    ]
    ok(client, http("/T?cmd=declare"))
    assert document(ok(client, http("/T?cmd=query")))["compact"] is True
    ok(client, http("/T?cmd=declare&compact=false"))
    assert "compact" not in document(ok(client, http("/T?cmd=query")))


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ("compact=maybe", "compact"),
        ("compact=true&durability=memory", "a topic in memory forgets its oldest messages"),
        ("compact=true&rpc=true&durability=disk", "calls are not kept"),
        ("compact=true&retention_ms=1000", "take back the retention"),
        ("compact=true&retention_bytes=1GiB", "take back the retention"),
        ("compact=true&retention_count=5", "take back the retention"),
        ("compact=true&retention_done=true", "take back the retention"),
        ("compact=true&dedupe_ms=1000", "ids are not looked at"),
        ("compact=true&dedupe_live=true", "ids are not looked at"),
        ("compact=true&compact_tombstone_ms=-1", "compact_tombstone_ms"),
    ],
)
def test_what_does_not_go_with_it(query: str, why: str) -> None:
    client = World().connect()
    status, text = refused(client, http(f"/T?cmd=declare&{query}"))
    assert status == 400
    assert why in text


def test_its_partitions_do_not_become_more() -> None:
    _, client = declared("T?compact=true&partitions=2", "U?partitions=2")
    assert refused(client, http("/T?cmd=declare&partitions=3"))[0] == 400
    ok(client, http("/U?cmd=declare&partitions=3"))
    assert refused(client, http("/U?cmd=declare&compact=true"))[0] == 400


def test_the_brokers_own_topics_are_not_compact() -> None:
    client = World().connect()
    for name in ("cron.x", "txn.x", "semq.1:5"):
        status, text = refused(client, http(f"/{name}?cmd=declare&compact=true"))
        assert (status, "broker's own" in text) == (400, True)


# -- putting -----------------------------------------------------------------------------------

BATCH = (
    b"POST / HTTP/1.1\r\nkey: a\r\ncontent-length: 1\r\n\r\n1"
    b"POST / HTTP/1.1\r\ncontent-length: 1\r\n\r\n2"
)


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (http("/T", body=b"x", method="POST"), (400, NO_KEY)),
        (http("/T?key=", body=b"x", method="POST"), (400, NO_KEY)),
        (cmd("produce", "topic: T", body=b"x"), (400, NO_KEY)),
        (
            http("/T", "content-type: application/vnd.zbus.messages", body=BATCH, method="POST"),
            (400, NO_KEY),
        ),
        (http("/T?cron=0+9+*+*+*&id=c", body=b"x", method="POST"), (400, NO_KEY)),
        (http("/T?cmd=txn_stage&txn=app", body=b"x", method="POST"), (400, NO_KEY)),
        (
            http("/T?key=a&delay=5s", body=b"x", method="POST"),
            (
                400,
                "400: Bad Format, T is compact and takes no delayed messages: the newest of a key"
                " is the one put last",
            ),
        ),
        (
            http("/T?cmd=txn_stage&txn=app&key=a&delay=5s", body=b"x", method="POST"),
            (
                400,
                "400: Bad Format, T is compact and takes no delayed messages: the newest of a key"
                " is the one put last",
            ),
        ),
        (
            http("/T?key=a&front=true", body=b"x", method="POST"),
            (
                400,
                "400: Bad Format, T is compact and takes no messages in front: those of a key are"
                " delivered in order",
            ),
        ),
        (
            http("/T?key=" + 1_025 * "k", body=b"x", method="POST"),
            (400, "400: Bad Format, key length should be <= 1024"),
        ),
    ],
)
def test_puts_that_are_refused(request_: bytes, expected: tuple[int, str]) -> None:
    world, client = declared("T?compact=true")
    assert refused(client, request_) == expected
    assert world.broker.topics["t"].depth() == 0


def test_another_partition_than_that_of_the_key_is_refused() -> None:
    _, client = declared("T?compact=true&partitions=4")
    found = [
        client.request(http(f"/T?key=a&partition={index}", body=b"x", method="POST"))
        for index in range(4)
    ]
    assert sorted(reply.status for reply in found) == [200, 400, 400, 400]
    texts = {reply.body.decode() for reply in found if reply.status == 400}
    assert texts == {
        "400: Bad Format, T is compact and has each key in the partition of the key: give no other"
        " partition"
    }
    assert get(client, "a") == b"x"


def test_a_key_of_1_kib_and_keys_of_any_bytes() -> None:
    _, client = declared("T?compact=true")
    for key in (1_024 * "k", "%C3%A9", "%25", "a%20b", "%FF", "a/b?c"):
        put_key(client, key.replace("?", "%3F"), key.encode())
    for key in (1_024 * "k", "%C3%A9", "%25", "a%20b", "%FF", "a/b?c"):
        assert get(client, key.replace("?", "%3F")) == key.encode()


def test_an_idempotency_key_an_expected_offset_and_a_time_to_live_work() -> None:
    world, client = declared("T?compact=true")
    for _ in range(2):
        ok(client, http("/T?key=a", "idempotency-key: once", body=b"1", method="POST"))
    assert world.broker.topics["t"].depth() == 1
    ok(client, http("/T?key=a&expected_offset=1&ttl=5s", body=b"2", method="POST"))
    assert refused(client, http("/T?key=a&expected_offset=1", body=b"3", method="POST"))[0] == 409
    assert get(client, "a") == b"2"
    world.advance(6_000)
    assert get(client, "a") is None


# -- getting -----------------------------------------------------------------------------------


def test_the_newest_message_with_its_lines() -> None:
    _, client = declared("T?compact=true")
    put_key(client, "a", b"1")
    ok(client, http("/T?key=a&tag=x.y", body=b"2", method="POST"))
    reply = ok(client, http("/T?cmd=get&key=a"))
    assert reply.body == b"2"
    shown = {name: reply.headers.get(name) for name in ("offset", "key", "tag")}
    assert shown == {"offset": "1", "key": "a", "tag": "x.y"}
    assert ok(client, cmd("get", "topic: T", "key: a")).body == b"2"


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("/T?cmd=get&key=b", (404, "404: there is no message of the key 'b'")),
        ("/T?cmd=get&key=dead", (404, "404: there is no message of the key 'dead'")),
        ("/T?cmd=get", (400, "400: Bad Format, Missing key")),
        ("/T?cmd=get&key=", (400, "400: Bad Format, Missing key")),
        ("/None?cmd=get&key=a", (404, "404: Topic(None) Not Found")),
        (
            "/U?cmd=get&key=a",
            (
                400,
                "400: Bad Format, U is not compact: declare it with compact=true to get messages by"
                " key",
            ),
        ),
    ],
)
def test_gets_that_find_nothing(target: str, expected: tuple[int, str]) -> None:
    _, client = declared("T?compact=true", "U")
    put_key(client, "dead", b"x")
    put_key(client, "dead", b"")
    assert refused(client, http(target)) == expected


def test_it_takes_the_right_to_consume_the_whole_topic() -> None:
    _, client = world_with(
        entry("taker", "consume", {"T": []}),
        entry("of-group", "consume", {"T": ["g"]}),
        entry("putter", "produce query", {"T": []}),
    )
    ok(client, http("/T?cmd=declare&compact=true", ADMIN))
    ok(client, http("/T?key=a", "token: putter", body=b"1", method="POST"))
    statuses = {
        token: client.request(http("/T?cmd=get&key=a", f"token: {token}")).status
        for token in ("admin", "taker", "of-group", "putter", "unknown")
    }
    assert statuses == {"admin": 200, "taker": 200, "of-group": 403, "putter": 403, "unknown": 403}


# -- what was copied -----------------------------------------------------------------------------


def test_a_copy_says_when_its_original_was_stored() -> None:
    world, client = compacted()
    reply = ok(client, http("/T?cmd=get&key=rest"))
    assert reply.body == b"rested"
    assert int(reply.headers["first-stored"]) < int(reply.headers["timestamp"])
    assert reply.headers["origin_id"] == "0-0"
    assert int(reply.headers["offset"]) > 0
    world = restart(world)
    again = world.connect()
    again.send(http("/T?cmd=get&key=rest"))
    world.advance(PAUSE_MS)  # the log is read again first
    (found,) = again.replies()
    assert (found.body, found.headers["first-stored"]) == (b"rested", reply.headers["first-stored"])


def test_who_follows_the_end_is_not_given_copies() -> None:
    world, client = declared("T?compact=true")
    live = stream(world, "/T?cmd=consume&from=latest")
    put_key(client, "rest", b"rested")
    put_many(world, client, 300)
    partition = world.broker.topics["t"].partitions[0]
    assert partition.first > 100
    assert partition.end > 301, "something was copied"
    seen = data(live)
    assert seen.count("rested") == 1
    assert len(seen) == 301
    oldest = stream(world, "/T?cmd=consume&from=earliest")
    world.settle()
    state = data(oldest)
    assert state.count("rested") == 1
    put_key(client, "k1", b"new")
    world.settle()
    assert data(oldest) == ["new"]
    assert data(live) == ["new"]


def test_a_header_line_of_that_name_is_not_taken_from_a_client() -> None:
    _, client = declared("T?compact=true")
    ok(client, http("/T?key=a", "first-stored: 5", body=b"1", method="POST"))
    assert "first-stored" not in ok(client, http("/T?cmd=get&key=a")).headers


def test_a_group_sees_each_value_once() -> None:
    world, client = declared("T?compact=true")
    put_key(client, "rest", b"rested")
    seen = drain(client)
    for number in range(0, 300, 20):
        for n in range(number, number + 20):
            put_key(client, f"k{n % 7}", b"%d-" % n + 2_000 * b"x")
        seen += drain(client)
        for _ in range(10):
            world.advance(PAUSE_MS)
    assert world.broker.topics["t"].partitions[0].first > 100
    assert [body.partition(b"-")[0] for body in seen] == [
        b"rested",
        *(b"%d" % n for n in range(300)),
    ]


def test_a_json_frame_on_a_websocket() -> None:
    world, client = declared("T?compact=true")
    put_key(client, "a", b"1")
    reply = connected(world).ask({"cmd": "get", "topic": "T", "key": "a", "id": "g"})
    assert (reply["status"], reply["id"], reply["body"]) == (200, "g", "1")
    assert reply["headers"]["offset"] == "0"
