"""The core of a watch, joined to a broker by connections that break wherever they like."""

from __future__ import annotations

import random
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.client.peer import Joined
from tests.limits import examples
from zbus.client import (
    ConnectionLost,
    Forbidden,
    NotFound,
    Options,
    Overloaded,
    ProtocolError,
    TooMany,
    commands,
)
from zbus.client.messages import Delivery
from zbus.client.readers.watching import SILENCE_S, Watching
from zbus.testing.world import Client, World

NEVER = 1 << 60


class Watched:
    """A `Watching` and a `World`; each connection lets through so many bytes down, then breaks."""

    def __init__(
        self,
        world: World,
        start: Any = None,
        filter: str | None = None,
        partition: int | None = None,
        breaks: Iterable[int] = (),
        options: Options | None = None,
    ) -> None:
        self.world = world
        self.core = Watching(
            options or Options(), random.Random(1), "T", start, filter, partition, None
        )
        self.breaks = iter(breaks)
        self.client: Client | None = None
        self.left = 0
        self.connections = 0
        self.seen: list[Delivery] = []
        self.settle()

    def settle(self) -> None:
        """Until nothing moves any more; connects when there is no connection."""
        moved = True
        while moved and self.core.error is None:
            if self.client is None:
                self.client = self.world.connect()
                self.left = next(self.breaks, NEVER)
                self.connections += 1
                self.core.connected()
                self.client.send(self.core.take())
            self.world.settle()
            data, self.client.received = self.client.received, b""
            piece, self.left = data[: self.left], self.left - len(data)
            usable = not piece or self.core.receive(piece)
            moved = self.left < 0 or not usable
            if moved:
                self.cut()
        while self.core._ready:
            delivery = self.core.step()
            assert delivery is not None
            self.seen.append(delivery)

    def cut(self) -> None:
        assert self.client is not None
        if self.client in self.world.clients:
            self.client.vanish()
        self.client = None
        self.core.lost(0.0, "it broke")

    @property
    def bodies(self) -> list[bytes]:
        seen, self.seen = self.seen, []
        return [delivery.body for delivery in seen]


@pytest.fixture
def world() -> World:
    world = World()
    run(world, commands.declare("T"))
    return world


def run(world: World, request: Any) -> Any:
    return Joined(world, options=Options(retries=0)).run(request)


def put(world: World, *bodies: str, **labels: Any) -> None:
    for body in bodies:
        run(world, commands.produce("T", body, **labels))


def test_a_message_is_as_it_is_read(world: World) -> None:
    put(
        world,
        "grüße\r\n",
        tag="eu.d%65",
        key="k 1",
        headers={"x-own": "a%20b", "date": "Fri"},
        id="m-1",
    )
    put(world, "\0")
    run(world, commands.produce("T", b"\xff\r"))
    watched = Watched(world, "begin")
    read = run(world, commands.read("T"))
    assert [m.body for m in watched.seen] == [m.body for m in read]
    names = ["topic", "group", "id", "tag", "key", "offset", "partition", "timestamp_ms"]
    names += ["retry", "sender", "skipped"]
    for told, stored in zip(watched.seen, read, strict=True):
        assert [getattr(told, n) for n in names] == [getattr(stored, n) for n in names]
    for seen in watched.seen[0], read[0]:
        assert (seen.headers["x-own"], seen.headers["date"]) == ("a%20b", "Fri")
        assert "cache-control" not in seen.headers


@pytest.mark.parametrize(
    ("start", "bodies"),
    [
        ("begin", [b"0", b"1", b"2"]),
        ("earliest", [b"0", b"1", b"2"]),
        ("end", [b"2"]),
        ("latest", [b"2"]),
        ("time:0", [b"0", b"1", b"2"]),
        ("2999-01-01", [b"2"]),
        (datetime(2020, 1, 1, tzinfo=UTC), [b"0", b"1", b"2"]),
        (datetime(2999, 1, 1, tzinfo=UTC), [b"2"]),
        (None, [b"0", b"1", b"2"]),
        (1, [b"1", b"2"]),
        ([1], [b"1", b"2"]),
        (2, [b"2"]),
    ],
)
def test_where_it_starts(world: World, start: Any, bodies: list[bytes]) -> None:
    put(world, "0", "1")
    watched = Watched(world, start)
    put(world, "2")
    watched.settle()
    assert watched.bodies == bodies


@pytest.mark.parametrize("start", ["", "middle", "1", "Latest", -1, [], [0, -1], 1 << 63])
def test_where_it_cannot_start(world: World, start: Any) -> None:
    with pytest.raises(ValueError, match="it starts at"):
        Watched(world, start)


@pytest.mark.parametrize("before", [(), ("x", "y")])
@pytest.mark.parametrize("partitions", [1, 2])
def test_what_comes_before_the_first_event_and_after_a_break(
    before: tuple[str, ...], partitions: int
) -> None:
    """The broker says where a stream begins, so that the end of before is known."""
    world = World()
    run(world, commands.declare("T", partitions=partitions))
    put(world, *before)
    watched = Watched(world, "end")
    watched.cut()
    put(world, "meanwhile")
    watched.settle()
    assert watched.bodies == [b"meanwhile"]
    watched.cut()
    watched.settle()
    assert watched.bodies == []


def test_filter_and_partition() -> None:
    world = World()
    run(world, commands.declare("T", partitions=2))
    watched = Watched(world, "end", filter="eu.*", partition=1)
    put(world, "no", tag="eu.de", partition=0)
    put(world, "no", tag="us", partition=1)
    put(world, "yes", tag="eu.de", partition=1)
    watched.settle()
    assert [(m.body, m.partition, m.tag) for m in watched.seen] == [(b"yes", 1, "eu.de")]


@examples(60)
@given(
    breaks=st.lists(st.integers(0, 900), max_size=8),
    bodies=st.lists(st.text(max_size=40), max_size=12),
    partitions=st.integers(1, 3),
    cut=st.integers(0, 12),
)
def test_nothing_is_lost_and_nothing_told_twice(
    breaks: list[int], bodies: list[str], partitions: int, cut: int
) -> None:
    world = World()
    run(world, commands.declare("T", partitions=partitions))
    put(world, *bodies[:cut])
    watched = Watched(world, "begin", breaks=breaks)
    for body in bodies[cut:]:
        put(world, body)
        watched.settle()
    found = [(m.partition, m.offset) for m in watched.seen]
    assert len(set(found)) == len(found) == len(bodies)
    for partition in range(partitions):
        offsets = [offset for place, offset in found if place == partition]
        assert offsets == sorted(offsets)
    assert sorted(m.text for m in watched.seen) == sorted(bodies)


def test_a_gap_is_told_with_the_next_message(world: World) -> None:
    put(world, "0")
    watched = Watched(world, "begin")
    watched.cut()
    run(world, commands.empty("T"))
    watched.settle()
    put(world, "1")
    watched.settle()
    assert [(m.text, m.skipped) for m in watched.seen] == [("0", 0), ("1", 0)]
    again = Watched(world, 0, breaks=[])
    assert [(m.text, m.skipped) for m in again.seen] == [("1", 1)]
    assert again.seen[0].headers["skipped"] == "1"


def test_a_topic_that_goes(world: World) -> None:
    watched = Watched(world, "end")
    put(world, "last")
    run(world, commands.remove("T"))
    watched.settle()
    assert watched.bodies == [b"last"]
    with pytest.raises(NotFound, match="404: Topic"):
        watched.core.step()
    with pytest.raises(NotFound):
        Watched(world).core.step()


def test_a_topic_that_goes_while_nobody_is_connected(world: World) -> None:
    watched = Watched(world, "end")
    watched.cut()
    run(world, commands.remove("T"))
    watched.settle()
    with pytest.raises(NotFound):
        watched.core.step()


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"


def core_after(*received: bytes, retries: int = 10, token: str | None = None) -> Watching:
    """What a core makes of what a broker says, and no more."""
    options = Options(retries=retries, token=token)
    core = Watching(options, random.Random(1), "T", None, None, None, None)
    for data in received:
        core.connected()
        for byte in data:
            if not core.receive(bytes([byte])):
                break
        core.lost(0.0, "it broke")
    return core


END = b"event: end\ndata: %b\n\n"
REFUSED = b"HTTP/1.1 %d No\r\ncontent-length: 2\r\n\r\nno"


@pytest.mark.parametrize(
    ("received", "error"),
    [
        ([HEAD + END % b"403: token expired"], Forbidden),
        ([HEAD + END % b"404: Topic(T) Not Found"], NotFound),
        ([HEAD + END % b"503: the broker is stopping"], None),
        ([HEAD + END % b"nobody knows"], None),
        ([HEAD + END % b"503: the broker is stopping", REFUSED % 404], NotFound),
        ([REFUSED % 503], None),
        ([REFUSED % 503] * 3, Overloaded),
        ([REFUSED % 403], Forbidden),
        ([REFUSED % 429], TooMany),
        ([(REFUSED % 429).replace(b"No", b"No\r\nretry-after: 3")], None),
        ([b""] * 2, None),
        ([b""] * 3, ConnectionLost),
        ([b"", b"", HEAD, b"", b""], ConnectionLost),
        ([HEAD, HEAD, HEAD, HEAD], None),
        ([b"SSH-2.0\r\n\r\n"], ProtocolError),
        ([b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"], ProtocolError),
        ([b"HTTP/1.1 200 OK\r\n\r\n"], ProtocolError),
        ([HEAD[:-2] + b"Transfer-Encoding: chunked\r\n\r\n"], ProtocolError),
        ([HEAD + b"data: no envelope\n\n"], ProtocolError),
        ([HEAD + b'data: {"id":1}\n\n'], ProtocolError),
        ([HEAD + b"event: skipped\ndata: many\n\n"], ProtocolError),
        ([b"x" * (200 << 10)], ProtocolError),
    ],
)
def test_how_it_ends(received: list[bytes], error: type[Exception] | None) -> None:
    core = core_after(*received, retries=2)
    if error is None:
        assert core.step() is None
    else:
        with pytest.raises(error):
            core.step()


def test_pauses_grow_and_have_an_end() -> None:
    core = core_after(b"")
    pauses = []
    for _ in range(10):
        pauses.append(core.attempts.retry_at_s)
        core.lost(0.0, "no")
    assert 0.025 <= pauses[0] <= 0.05
    assert pauses[3] > pauses[0]
    assert max(pauses) <= 2


def test_patience() -> None:
    core = Watching(Options(timeout_s=7), random.Random(1), "T", None, None, None, None)
    core.connected()
    assert core.patience_s == 7
    core.receive(HEAD)
    assert core.patience_s == SILENCE_S


def test_a_token_is_sent() -> None:
    core = core_after(token="t-1")
    core.connected()
    assert b"\r\ntoken: t-1\r\n" in core.take()
