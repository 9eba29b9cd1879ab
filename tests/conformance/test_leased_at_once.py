"""Ways that are shorter, and whose answers are those of the long ones: a message that is leased
while its request is run, and a plan that is run with an offset in place of its own."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from tests.conformance.dialogue import Client, World, cmd, declared, document, http, ok, pull, put
from tests.conformance.websocket_client import connected
from zbus.core.broker import Broker
from zbus.core.cursor.journal import snapshot
from zbus.dialects.zbus.messages.consume import Consume
from zbus.dialects.zbus.messages.leases import Ack, Extend, Nack

GROUPS = {
    "leases": "ack=true",
    "a window of three": "ack=true&group_window=3",
    "a filter": "ack=true&group_filter=a.*",
    "by key": "ack=true&group_order=key",
    "attempts": "ack=true&group_max_attempts=2",
    "attempts in memory": "ack=true&group_max_attempts=2&durability=memory",
    "to the front": "ack=true&group_on_loss=front",
    "a rate": "ack=true&group_rate=1000",
    "one batch": "ack=true&group_one_batch=true",
    "two partitions": "ack=true&partitions=2",
    "kept": "ack=true&settled_ms=60000",
    "a filter, and no leases": "group_filter=a.*",
}
PUTS = (
    http("/T", body=b"plain", method="POST"),
    http("/T", "tag: a.b", "key: k", body=b"tagged", method="POST"),
    http("/T", "tag: c", "x-own: 1", body=b"other", method="POST"),
    http("/T?max_attempts=1", "tag: a.c", body=b"once", method="POST"),
    http("/T?delay=100", "tag: a.d", body=b"late", method="POST"),
    http("/T?ttl=100", "tag: a.e", body=b"short", method="POST"),
    *[http("/T", "tag: a.z", "key: k", body=b"%d" % n, method="POST") for n in range(4)],
)
PLAIN = tuple(request for request in PUTS if b"delay=" not in request and b"ttl=" not in request)
PULL = http("/T/g?cmd=consume&timeout=0")
STEPS = (
    (PULL, PULL, PULL),
    (http("/T/g?cmd=ack&offset=1"), PULL),
    (http("/T/g?cmd=nack&offset=0"), PULL, PULL),
    (PULL + PULL + PULL,),
    (
        http("/T/g?cmd=consume&timeout=0&lease=5000"),
        http("/T/g?cmd=consume&timeout=0&on_loss=front"),
    ),
    (cmd("consume", "topic: T", "consume_group: g", "id: x", "timeout: 0"),),
    (http("/T/g?cmd=extend&offset=0-9&group_lease=20000"),),
    (http("/T/g?cmd=ack&offset=0-2"), PULL, PULL),
)


def told(query: str, puts: tuple[bytes, ...]) -> list[Any]:
    """What a dialogue gives: replies, and how the group stands after each part of it."""
    world, client = declared(f"T/g?{query}")
    for request in puts:
        ok(client, request)
    found: list[Any] = []
    for step in STEPS:
        for request in step:
            found += client.exchange(request)
            world.advance(1)
            found += client.replies()
        group = world.broker.topics["t"].groups["g"]
        found += [snapshot(backlog, "g") for backlog in group.backlogs]
        found += [dict(backlog.leased.holders) for backlog in group.backlogs]
        world.broker.check()
        world.advance(6_000)
        found += client.replies()
    return found


@pytest.mark.parametrize("puts", [PUTS, PLAIN], ids=["some for later", "none for later"])
@pytest.mark.parametrize("query", GROUPS.values(), ids=list(GROUPS))
def test_what_is_leased_at_once_is_leased_as_any_other(
    query: str, puts: tuple[bytes, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    at_once = told(query, puts)
    monkeypatch.setattr(Broker, "take", lambda *asked: None)
    assert told(query, puts) == at_once


def keyed(seed: int) -> list[Any]:
    """What consumers of a group in order of each key are told, who do what comes to their minds."""
    random = Random(seed)
    world, client = declared("T/g?ack=true&group_order=key&group_lease=1000")
    consumers = [client, world.connect()]
    found: list[Any] = []
    out: list[int] = []
    for _ in range(150):
        match random.randrange(8):
            case 0 | 1:
                key = f"key: {random.choice('abc')}" if random.random() < 0.8 else "x-own: 1"
                found += client.exchange(http("/T", key, body=b"m", method="POST"))
            case 2 | 3 | 4:
                replies = random.choice(consumers).exchange(PULL)
                found += replies
                out += [int(reply.headers["offset"]) for reply in replies if reply.status == 200]
            case 5 if out:
                found += client.exchange(http(f"/T/g?cmd=ack&offset={random.choice(out)}"))
            case 6 if out:
                place = random.choice(("", "&front=0", "&delay=300"))
                nack = f"/T/g?cmd=nack&offset={random.choice(out)}{place}"
                found += client.exchange(http(nack))
            case _:
                world.advance(random.choice((1, 100, 1_100)))
        world.broker.check()
    return found


@pytest.mark.parametrize("seed", range(20))
def test_keys_have_their_order_at_once_as_any_other_time(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_once = keyed(seed)
    monkeypatch.setattr(Broker, "take", lambda *asked: None)
    assert keyed(seed) == at_once


@pytest.mark.parametrize("query", ["group_filter=a.*", "group_order=key"])
def test_a_lease_is_given_at_once(query: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or the tests before would show nothing."""
    world, client = leased(query, 0)
    for key in (1, 2):
        put(client, "T", b"%d" % key, query=f"tag=a.b&key={key}")
    assert pull(client, "/T/g").headers["consume_group"] == "g"
    monkeypatch.setattr(world.broker._dispatch.pulls, "add", None)
    assert pull(client, "/T/g").body == b"2"


@pytest.mark.parametrize("own", [1, 3])
def test_the_limit_of_a_message_counts_whatever_that_of_the_group_is(own: int) -> None:
    query = "ack=true&durability=memory&group_max_attempts=1&group_lease=1000"
    world, client = declared(f"T/g?{query}")
    assert pull(client, "/T/g").status == 204
    put(client, "T", b"x", query=f"max_attempts={own}")
    count = 0
    while pull(client, "/T/g").status == 200:
        count += 1
        world.advance(1_001)
    assert count == own


def leased(query: str = "", count: int = 8) -> tuple[World, Client]:
    world, client = declared(f"T/g?ack=true&{query}")
    put(client, "T", *[b"%d" % number for number in range(count)])
    for _ in range(count):
        assert pull(client, "/T/g").status == 200
    return world, client


def plan(world: World, client: Client, request: bytes) -> Any:
    ((head, _, _),) = client.peer.reader.receive(request)
    return world.front.plan(head)


ONE = {  # the plan that is run, what takes the place of what it names, and the request that says so
    "ack": ("cmd=ack&offset=0", (0, 5), "cmd=ack&offset=5"),
    "ack of none": ("cmd=ack&offset=0", (0, 99), "cmd=ack&offset=99"),
    "ack of a partition": ("cmd=ack&offset=0", (9, 5), "cmd=ack&offset=5&partition=9"),
    "ack, strict": ("cmd=ack&offset=0&strict=1", (9, 5), "cmd=ack&strict=1&offset=5&partition=9"),
    "nack": ("cmd=nack&offset=0", (0, 5, 0), "cmd=nack&offset=5"),
    "nack, later": ("cmd=nack&offset=0&delay=1", (0, 5, 700), "cmd=nack&offset=5&delay=700"),
    "nack, at the end": ("cmd=nack&offset=0&front=0", (0, 5, 0), "cmd=nack&offset=5&front=0"),
    "nack of none": ("cmd=nack&offset=0", (0, 99, 0), "cmd=nack&offset=99"),
    "nack of a partition": ("cmd=nack&offset=0", (9, 5, 0), "cmd=nack&offset=5&partition=9"),
    "extend": ("cmd=extend&offset=0", (0, 5, None), "cmd=extend&offset=5"),
    "extend, longer": ("cmd=extend&offset=0", (0, 5, 900), "cmd=extend&offset=5&group_lease=900"),
    "extend of none": ("cmd=extend&offset=0", (0, 99, 1), "cmd=extend&offset=99"),
    "read": ("cmd=consume&offset=0", (0, 5), "cmd=consume&offset=5"),
    "read of none": ("cmd=consume&offset=0", (0, 99), "cmd=consume&offset=99"),
    "read of a partition": ("cmd=consume&offset=0", (9, 5), "cmd=consume&offset=5&partition=9"),
    "read of many": ("cmd=consume&offset=0&batch=9", (0, 5), "cmd=consume&offset=5&batch=9"),
}  # fmt: skip


@pytest.mark.parametrize(
    "backoff", ["", "group_backoff=300", "group_max_attempts=1", "partitions=2"]
)
@pytest.mark.parametrize("case", ONE.values(), ids=list(ONE))
def test_a_plan_is_run_with_an_offset_in_place_of_its_own(
    case: tuple[str, tuple[Any, ...], str], backoff: str
) -> None:
    """The replies are equal byte for byte, and so is the work that is taken off."""
    query, values, request = case
    found = []
    for own in (True, False):
        world, client = leased(backoff)
        made = plan(world, client, http(f"/T/g?{request if own else query}"))
        world.broker.begin(world.now_ms)
        work = client.peer.work
        if own:
            made.run(client.peer, b"", b"")
        elif isinstance(made, Consume):
            made.read_one(client.peer, b"", *values)
        else:
            assert isinstance(made, (Ack, Nack, Extend))
            made.settle_one(client.peer, b"", *values)
        world.broker.finish()
        work -= client.peer.work
        sent = b"".join(client.peer.out)
        assert sent
        world.broker.check()
        backlogs = world.broker.topics["t"].groups["g"].backlogs
        found.append((sent, work, [snapshot(backlog, "g") for backlog in backlogs]))
    assert found[0] == found[1]


def by_url(world: World, window: int) -> Any:
    url = f"/T/g?cmd=declare&ack=true&group_window={window}"
    return document(ok(world.connect(), http(url)))["window"]


def by_header_lines(world: World, window: int) -> Any:
    """As stock clients say it."""
    lines = ("topic: T", "consume_group: g", "group_mask: 64", f"group_ack_window: {window}")
    return document(ok(world.connect(), cmd("declare", *lines)))["ackWindow"]


def by_json(world: World, window: int) -> Any:
    fields = {"topic": "T", "consume_group": "g", "group_ack": True, "group_window": window}
    reply = connected(world).ask({"cmd": "declare", **fields})
    return reply["body"]["window"]


@pytest.mark.parametrize("way", [by_url, by_header_lines, by_json])
@pytest.mark.parametrize("window", [0, 999, 1_500, 1_000_000])
def test_a_window_is_what_was_asked_for(way: Any, window: int) -> None:
    assert way(declared("T")[0], window) == window


def test_a_thousand_and_a_half_are_leased_at_once() -> None:
    world, client = declared("T/g?ack=true&group_window=1500")
    lines = b"\n".join(b"%d" % number for number in range(1_600))
    ok(client, http("/T", "content-type: application/x-ndjson", body=lines, method="POST"))
    world.advance(100)
    replies = []
    for _ in range(16):
        replies += client.exchange(PULL * 100)
        world.advance(1)
        replies += client.replies()
    got = [reply.body for reply in replies if reply.status == 200]
    assert got == [b"%d" % number for number in range(1_500)]
    assert [r.headers["empty"] for r in replies if r.status == 204] == ["leased"] * 100
    ok(client, http("/T/g?cmd=ack&offset=700"))
    assert pull(client, "/T/g").body == b"1500"
