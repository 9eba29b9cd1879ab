"""Heads that are taken by their shape, and those that must not be."""

from __future__ import annotations

from random import Random

import pytest

from tests.dialects.zbus.shape_fuzz import NASTY, PLAIN, WORDS, Pair, round_of
from tests.dialects.zbus.shape_fuzz import PUT as PUT_NAMES
from tests.limits import share
from zbus.dialects.zbus.request.slots import may_differ
from zbus.dialects.zbus.schema.commands import SPELLINGS, TABLE
from zbus.testing.world import World
from zbus.wire.errors import WireError
from zbus.wire.heads.heads import Heads
from zbus.wire.heads.shapes import SHAPES_MAX, Shape
from zbus.wire.limits import WireLimits

PUT = b"POST /A HTTP/1.1\r\nhost: localhost\r\nkey: %b\r\ncontent-length: 2\r\n\r\nhi"


def shape_of(world: World, head: bytes) -> Shape | None:
    """By which it would be taken."""
    try:
        found = world.dialect.heads.read(head.partition(b"\r\n\r\n")[0], True)[0]
    except WireError:
        return None
    return found if isinstance(found, Shape) else None


def learned(head: bytes, *values: bytes) -> World:
    """A world that has seen the head with these values."""
    world = World()
    client = world.connect()
    client.request(b"GET /A?cmd=declare HTTP/1.1\r\nhost: localhost\r\n\r\n")
    client.request(b"GET /L/g?cmd=declare&ack=true HTTP/1.1\r\nhost: localhost\r\n\r\n")
    for value in values:
        client.exchange(head % value)
    return world


HEADS = {
    "key": (PUT, b"a", b"b", b"c"),
    "url": (b"GET /A?body=%b HTTP/1.1\r\nhost: localhost\r\n\r\n", b"a", b"b", b"c%20d"),
    "trace": (PUT.replace(b"key", b"TraceParent"), b"00-1-2-01", b"00-2-3-01", b"00-4-5-01"),
    "quoted": (PUT.replace(b"key", b"Idempotency-Key"), b'"1"', b'"2"', b'"3"'),
    "delay": (b"GET /A?delay=%b HTTP/1.1\r\nhost: localhost\r\n\r\n", b"1", b"2", b"3"),
    "ack": (b"GET /L/g?cmd=ack&offset=%b HTTP/1.1\r\nhost: localhost\r\n\r\n", b"1", b"2", b"3"),
    "nack": (b"GET /L/g?cmd=nack&offset=%b HTTP/1.1\r\nhost: localhost\r\n\r\n", b"1", b"2", b"3"),
    "read": (b"GET /A?cmd=consume&offset=%b HTTP/1.1\r\nhost: localhost\r\n\r\n", b"1", b"2", b"3"),
}


@pytest.mark.parametrize("name", HEADS)
def test_a_head_has_a_shape_from_its_second_sight_on(name: str) -> None:
    head, first, second, third = HEADS[name]
    assert shape_of(learned(head, first), head % third) is None
    assert shape_of(learned(head, first, second), head % third) is not None


@pytest.mark.parametrize("name", HEADS)
def test_a_head_that_comes_again_as_it_was_needs_no_shape(name: str) -> None:
    head, first, second, third = HEADS[name]
    assert shape_of(learned(head, first, first, first), head % third) is None
    assert shape_of(learned(head, first, first, second), head % third) is not None


@pytest.mark.parametrize(
    "line",
    [
        "cmd: ack",
        "host: other",
        "connection: close",
        "expect: 100-continue",
        "token: b",
        "authorization: Bearer b",
        "cookie: token=b",
        "content-type: application/x-ndjson",
        "content-encoding: gzip",
        "origin: http://evil.example",
        "sec-fetch-site: cross-site",
        "upgrade: websocket",
        "transfer-encoding: chunked",
        "user-agent: Mozilla/5.0",
        "id: 7",
        "accept: text/html",
        "key: twice",
        "Key: twice",
        "cron: * * * * *",
        "ack_topic: L",
    ],
)
def test_a_line_more_is_another_head(line: str) -> None:
    world = learned(PUT, b"a", b"b")
    assert shape_of(world, PUT % b"c") is not None
    assert shape_of(world, (PUT % b"c").replace(b"key", line.encode() + b"\r\nkey")) is None


@pytest.mark.parametrize(
    "name", ["token", "authorization", "cookie", "content-type", "host", "origin", "accept"]
)
def test_what_steers_is_never_free(name: str) -> None:
    head = b"POST /A HTTP/1.1\r\nkey: %b\r\n" + name.encode() + b": %b\r\ncontent-length: 0\r\n\r\n"
    world = World()
    client = world.connect()
    client.request(b"GET /A?cmd=declare HTTP/1.1\r\nhost: localhost\r\n\r\n")
    for key in (b"a", b"b", b"c"):
        client.exchange(head % (key, b"localhost"))
        if client.closed:
            client = world.connect()
    assert shape_of(world, head % (b"d", b"other")) is None


FREE = {
    b"produce": {
        b"key",
        b"tag",
        b"id",
        b"idempotency-key",
        b"body",
        b"partition",
        b"expected_offset",
        b"delay",
        b"deliver_at",
        b"ttl",
        b"max_attempts",
        b"priority",
        b"timeout",
    },
    b"consume": {b"id", b"partition", b"offset"},
    b"ack": {b"id", b"partition", b"offset"},
    b"nack": {b"id", b"partition", b"offset", b"delay"},
    b"extend": {b"id", b"partition", b"offset"},
}
"""Parameters of which the plan of a shape reads the value of each head."""


@pytest.mark.parametrize(
    ("cmd", "name"),
    [
        pytest.param(cmd, name, id=f"{cmd.decode()}-{name.decode()}")
        for cmd in FREE
        for name in (*TABLE[cmd].kinds, *TABLE[cmd].former, *TABLE[cmd].spellings)
        if SPELLINGS.get(name, name) not in FREE[cmd]
    ],
)
def test_a_parameter_that_the_plan_has_read_is_never_free(cmd: bytes, name: bytes) -> None:
    """`batch: 10` and `batch: 9` of a consume: then `batch: 1` is not one of them."""
    line = b"GET /L/g?cmd=%b%b HTTP/1.1\r\nhost: localhost\r\n%b: %%b\r\n\r\n"
    query = b"" if cmd in (b"produce", b"consume") else b"&offset=1"
    head = line % (cmd, query, name)
    for values in ((b"10", b"9", b"1"), (b"true", b"1", b"false"), (b"front", b"keep", b"x")):
        assert shape_of(learned(head, *values[:2]), head % values[2]) is None


def head_of(topic: bytes, *lines: bytes, query: bytes = b"", rest: bytes = b"") -> bytes:
    head = b"POST /%b%b HTTP/1.1\r\nhost: localhost\r\n%b%bcontent-length: 0\r\n\r\n"
    return head % (topic, query, rest, b"".join([line + b"\r\n" for line in lines]))


@pytest.mark.parametrize("in_query", [False, True])
@pytest.mark.parametrize("topic", [b"A", b"P", b"S", b"D", b"R"])
def test_every_value_of_every_name_is_taken_as_without_shapes(topic: bytes, in_query: bool) -> None:
    random, pair = Random(1), Pair(guarded=False)
    for name in share([*PUT_NAMES], b"APSDR".index(topic) + in_query):
        plain = [PLAIN.get(name, WORDS)(random) for _ in range(4)]
        for value in (*plain, *NASTY, *plain):
            if in_query:
                pair.exchange([head_of(topic, query=b"?%b=%b" % (name, value))])
            else:
                pair.exchange([head_of(topic, b"%b: %b" % (name, value))])
    assert pair.shapes.count > 5
    pair.check()


@pytest.mark.parametrize("words", [b"rpc=true", b"dedupe_ms=60000", b"minimal_headers=false"])
def test_a_topic_of_the_same_name_is_another(words: bytes) -> None:
    """Of services, say, where the shape was learned with one that stores."""
    pair = Pair(guarded=False)
    for wanted in (b"", b"&" + words, b""):
        for cmd in (b"remove", b"declare" + wanted):
            pair.exchange([b"GET /New?cmd=%b HTTP/1.1\r\nhost: localhost\r\n\r\n" % cmd])
        for ids in (b"1", b"2", b"3"), (b"a", b"b", b"a", b"c", b"b"):
            heads = [head_of(b"New", b"id: " + id, b"key: k" + id) for id in ids]
            pair.exchange([b"".join(heads)])
    pair.check()


@pytest.mark.parametrize("line", [b"id: %b", b"ID: %b", b"Idempotency-Key: %b", b"key: %b"])
@pytest.mark.parametrize("flag", [b"idempotent: true", b"front: true", b"remote-addr: a"])
def test_every_value_beside_a_flag_that_uses_it(line: bytes, flag: bytes) -> None:
    """An idempotent put has its id as its key, percent-encoded as keys are."""
    random, pair = Random(1), Pair(guarded=False)
    head = b"GET /A HTTP/1.1\r\nhost: localhost\r\n%b\r\n" % flag
    for value in (*[WORDS(random) for _ in range(4)], *NASTY):
        pair.exchange([head + line % value + b"\r\n\r\n"])
    pair.check()


OTHERS = {
    "token": [b"token: one", b"token: two", b"token: no"],
    "authorization": [b"authorization: Bearer one", b"authorization: Bearer no"],
    "cookie": [b"cookie: token=one", b"cookie: token=no"],
    "client": [b"x-forwarded-for: 192.0.2.1", b"x-forwarded-for: 192.0.2.2"],
    "type": [b"content-type: text/plain", b"content-type: text/html"],
    "container": [b"content-type: text/plain", b"content-type: application/x-ndjson"],
    "way": [b"accept: */*", b"accept: text/html"],
    "connection": [b"connection: keep-alive", b"connection: key", b"connection: close"],
    "prefixed": [b"zbus-header-key: a", b"zbus-header-x-app: b"],
}


@pytest.mark.parametrize("topic", [b"A", b"S"])
@pytest.mark.parametrize("name", OTHERS)
def test_another_value_of_a_line_that_steers_is_another_head(name: str, topic: bytes) -> None:
    pair = Pair(guarded=name in ("token", "authorization", "cookie", "client"))
    token = b"" if name in ("token", "authorization", "cookie") else b"token: one\r\n"
    for line in (*OTHERS[name], *OTHERS[name]):
        for number in range(4):
            pair.exchange([head_of(topic, line, b"key: k%d" % number, rest=token)])
            pair.exchange([head_of(topic, b"x-app: v%d" % number, line, rest=token)])
    pair.check()


def test_names_that_come_twice() -> None:
    pair = Pair(guarded=False)
    for number in range(4):
        value = b"v%d" % number
        for lines, query in (
            ([b"key: " + value, b"Key: w" + value], b""),
            ([b"id: " + value], b"?id=w" + value),
            ([b"id: a b"], b"?id=w" + value),
            ([b"key: " + value], b"?key=w" + value),
            ([b"deliver_at: 1800000000000"], b"?deliver-at=%d" % (1_800_000_000_000 + number)),
            ([b"x-app: " + value, b"zbus-header-x-app: w"], b""),
            ([b"x-app: " + value], b"?x-app=w" + value),
        ):
            pair.exchange([head_of(b"A", *lines, query=query)])
    pair.check()


@pytest.mark.parametrize("size", [100, 900, 1000, 1024])
def test_the_limit_of_header_lines_holds(size: int) -> None:
    pair = Pair(guarded=False)
    rest = b"x-long: " + b"y" * 1_000 + b"\r\n"
    for length in (1, 2, 3, size, size // 2):
        for name in (b"key", b"x-app"):
            pair.exchange([head_of(b"A", b"%b: %b" % (name, b"x" * length), rest=rest)])
    pair.check()


@pytest.mark.parametrize("guarded", [False, True])
def test_by_shape_and_without_all_is_the_same(guarded: bool) -> None:
    """`tests.dialects.zbus.shape_fuzz` does it for as many heads as one likes."""
    random, pair = Random(20261126), Pair(guarded)
    for _ in range(10):
        round_of(random, pair, 150)
    pair.check()
    assert pair.shapes.count > 10


def test_split_at_every_byte_it_is_the_same() -> None:
    pair = Pair(guarded=False)
    for number in range(3):
        pair.exchange([PUT % b"k%d" % number])
    whole = PUT % b"k4"
    for at in range(1, len(whole)):
        pair.exchange([whole[:at], whole[at:]])
    pair.exchange([whole[at : at + 1] for at in range(len(whole))])
    pair.check()


def test_an_id_that_is_no_slot_is_not_lost() -> None:
    head = b"GET /L/g?cmd=ack&offset=%b HTTP/1.1\r\nhost: localhost\r\nid: a b\r\n\r\n"
    client = learned(head, b"1", b"2").connect()
    assert client.request(head % b"3").headers["id"] == "a b"


def test_limits_hold_for_what_has_a_shape() -> None:
    limits = WireLimits(line_bytes_max=256, head_bytes_max=512)
    world = World(wire_limits=limits)
    client = world.connect()
    client.request(b"GET /A?cmd=declare HTTP/1.1\r\nhost: localhost\r\n\r\n")
    for key in (b"a", b"b", b"c"):
        assert client.request(PUT % key).status == 200
    assert client.request(PUT % (b"x" * 250)).status == 200
    assert client.request(PUT % (b"x" * 252)).status == 431


def test_shapes_are_bounded_and_forgotten() -> None:
    """A client that makes up names for ever: each of its heads comes often enough to be learned."""
    world = learned(PUT, b"a", b"b")
    shapes = world.dialect.heads.shapes
    assert shapes is not None
    client = world.connect()
    head = PUT.replace(b"\r\nhost", b"\r\nx-%d: 1\r\nhost")
    for number in range(SHAPES_MAX + 50):
        for key in range(9):
            client.send(head % (number, b"%d" % key))
        client.world.turn()
    client.world.settle()
    assert shapes.count <= SHAPES_MAX
    world.dialect.heads.forget()
    assert shapes.count == 0
    client.received = b""
    assert client.request(head % (SHAPES_MAX, b"z")).status == 200, "a connection has it still"


def test_what_is_not_remembered_any_more_is_done_all_the_same() -> None:
    world = learned(PUT, b"a", b"b", b"c")
    found = world.dialect.heads.read((PUT % b"d").partition(b"\r\n\r\n")[0], True)
    shape, match = found
    assert isinstance(shape, Shape)
    world.dialect.heads.forget()
    assert shape.match(PUT % b"e") is None
    client = world.connect()
    world.posted.append(lambda: shape.plan.run(client.peer, match, b"hi"))  # type: ignore[attr-defined]
    world.settle()
    assert client.replies()[0].status == 200


def test_readers_of_messages_in_bodies_get_heads() -> None:
    """What reads fields has no use for a shape."""
    heads = Heads(contained=True, may_differ=may_differ)
    for number in range(5):
        head, _ = heads.read(b"POST / HTTP/1.1\r\nkey: %d" % number)
        assert not isinstance(head, Shape)
