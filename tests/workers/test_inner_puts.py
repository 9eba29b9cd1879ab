"""What is put into topics of other workers: in order, one request of a line at a time, and again
until it is answered."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from tests.core.support import Box, CrashJournal, Probe, refusal
from tests.workers.test_upstream import Planner
from zbus.core.model.errors import BrokerError, Refusal, topic_unknown
from zbus.protocol.places import shard_of
from zbus.wire.replies import encode_reply
from zbus.workers.inner_puts import BUSY_BYTES, PAUSE_MS, InnerPuts, Problem
from zbus.workers.routes import LocalRoutes
from zbus.workers.upstream import Upstream

FAR, FAR_TOO, NEAR = (
    next(f"{start}{n}" for n in range(99) if shard_of(f"{start}{n}", 2) == shard)
    for start, shard in (("far", 1), ("too", 1), ("near", 0))
)


class Loop:
    """Has the connections that were made, and none of their bytes leaves."""

    def __init__(self) -> None:
        self.links: list[Upstream] = []
        self.limits = SimpleNamespace(output_bytes_max=1 << 20)
        self.ready: list[object] = []
        self.now_ms = 0

    def attach(self, link: Upstream) -> None:
        self.links.append(link)

    def drop(self, link: Upstream) -> None:
        link.closed = True
        link.close()

    @property
    def link(self) -> Upstream:
        return self.links[-1]

    def sent(self) -> list[list[bytes]]:
        """The bodies of the messages of each request on the last connection."""
        said = b"".join(bytes(piece) for piece in self.link.out)
        line, _, rest = said.partition(b"\n")
        assert msgspec.json.decode(line)["inner"]
        found = []
        while rest:
            head, _, rest = rest.partition(b"\r\n\r\n")
            size = int(head.rpartition(b" ")[2])
            _, _, rows = msgspec.msgpack.decode(rest[:size])
            found.append([row[2] for row in rows])
            rest = rest[size:]
        return found

    def answer(self, *problems: BrokerError | None) -> None:
        told = [None if each is None else Problem.of(each) for each in problems]
        self.link.receive(encode_reply(200, b"", msgspec.msgpack.encode(told)))


class Way:
    """A broker, and what it puts elsewhere."""

    def __init__(self, path: Path) -> None:
        self.box = Box(CrashJournal())
        self.box.declare("T")
        self.box.declare("U")
        self.box.settle()
        self.loop = Loop()
        loop: Any = self.loop
        planner: Any = Planner()
        routes = LocalRoutes([str(path / "none"), str(path / "other")])
        self.puts = InnerPuts(self.box.broker, loop, 0, routes, planner)

    def put(self, *bodies: bytes, source: str = "T", topic: str = FAR) -> Probe:
        probe = Probe()
        rows = [(b"", b"", body, b"", b"", 0, 0, b"zb:%b" % body, 0) for body in bodies]
        self.puts.put(self.box.partition(source), topic, rows, probe)
        return probe


@pytest.fixture
def way(tmp_path: Path) -> Iterator[Way]:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "other"))
        listening.listen()
        made = Way(tmp_path)
        yield made
        for link in made.loop.links:
            link.sock.close()


@pytest.mark.parametrize(
    ("name", "has"), [(FAR, True), (FAR.upper(), True), (NEAR, False), ("a/b", False), ("", False)]
)
def test_what_is_elsewhere(name: str, has: bool, way: Way) -> None:
    assert way.puts.has(name) is has


def test_one_request_of_a_line_is_under_way(way: Way) -> None:
    """Then all that has gathered goes. Other partitions and other topics do not wait for it."""
    probes = [way.put(b"%d" % n) for n in range(3)]
    way.put(b"u", source="U")
    way.put(b"v", topic=FAR_TOO)
    assert way.loop.sent() == [[b"0"], [b"u"], [b"v"]]
    way.loop.answer(None)
    assert probes[0].fine
    assert way.loop.sent()[3:] == [[b"1", b"2"]]
    probes.append(way.put(b"3"))
    for _ in range(2):
        way.loop.answer(None)
    way.loop.answer(None, topic_unknown(FAR))
    assert probes[1].fine
    assert refusal(probes[2]) == topic_unknown(FAR)
    assert way.loop.sent()[4:] == [[b"3"]]
    way.loop.answer(None)
    assert probes[3].fine


def test_the_first_refusal_is_that_of_all(way: Way) -> None:
    full = BrokerError(Refusal.FULL, "no room", "x", 7, "wait")
    probes = [way.put(b"0"), way.put(b"1", b"2"), way.put(b"3")]
    way.loop.answer(None)
    way.loop.answer(None, full, None)
    assert refusal(probes[1]) == full
    assert probes[2].fine


@pytest.mark.parametrize("how", ["ends", "refuses"])
def test_it_is_sent_again_until_it_is_answered(how: str, way: Way) -> None:
    probe, other = way.put(b"0"), way.put(b"u", source="U")
    pause_ms = PAUSE_MS[0]
    for number in range(1, 9):
        assert way.loop.sent() == [[b"0"], [b"u"]]
        refused = encode_reply(503, b"", b"no")
        if how == "refuses":  # and what else it may say is for nothing
            way.loop.link.receive(refused + encode_reply(200, b"", msgspec.msgpack.encode([None])))
        else:
            way.loop.drop(way.loop.link)
        assert probe.open
        assert other.open
        way.box.settle(pause_ms - 1)
        assert len(way.loop.links) == number
        way.box.settle(1)
        assert len(way.loop.links) == number + 1
        pause_ms = min(2 * pause_ms, PAUSE_MS[1])
    late = way.put(b"1")
    for _ in range(3):
        way.loop.answer(None)
    assert probe.fine
    assert late.fine
    way.put(b"2")
    way.loop.drop(way.loop.link)
    way.box.settle(PAUSE_MS[0])
    assert way.loop.sent() == [[b"2"]], "after an answer pauses are short again"


def test_a_worker_that_cannot_be_reached(tmp_path: Path) -> None:
    way = Way(tmp_path)
    probe = way.put(b"0")
    way.box.settle(PAUSE_MS[0])
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "other"))
        listening.listen()
        way.box.settle(2 * PAUSE_MS[0])
        assert way.loop.sent() == [[b"0"]]
        way.loop.answer(None)
        way.loop.link.sock.close()
    assert probe.fine


def test_what_is_under_way_is_bounded(way: Way) -> None:
    way.put(b"0")
    assert not way.puts.busy(FAR)
    large = [way.put(b"x" * (BUSY_BYTES // 4)) for _ in range(4)]
    assert way.puts.busy(FAR)
    assert way.puts.busy(FAR_TOO), "it is of the same worker"
    assert not way.puts.busy(NEAR)
    probe = Probe()
    way.puts.check(FAR_TOO, "T", probe)
    assert refusal(probe).refusal is Refusal.FENCED, "clients may ask as often as they like"
    for _ in range(5):  # one request has no more than a megabyte, or one message
        way.loop.answer(None)
    assert all(probe.fine for probe in large)
    assert not way.puts.busy(FAR)


def test_whether_there_is_such_a_topic(way: Way) -> None:
    probes = [Probe(), Probe()]
    for probe in probes:
        way.puts.check(FAR, "T", probe)
    assert way.loop.sent() == [[], []]
    way.loop.answer(None)
    way.loop.answer(topic_unknown(FAR))
    assert probes[0].fine
    assert refusal(probes[1]).refusal is Refusal.TOPIC_UNKNOWN
