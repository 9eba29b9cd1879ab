"""A mistake in the program costs what it came from: others go on, and nothing acknowledged is lost.

Each row of the table plants one exception somewhere in a turn, for topic A or a connection that
works on it, over the real loop and the real journal on a simulated disk.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

import pytest

from tests.conformance.dialogue import http
from zbus.core.delivery.dispatch import Dispatch
from zbus.core.fanout.follow import FanOut
from zbus.core.log import Log
from zbus.core.model.chunk import Chunk
from zbus.core.model.containment import Fault
from zbus.core.persistence.storage import Storage
from zbus.core.verbs import disconnect
from zbus.core.verbs.disconnect import Departures
from zbus.server.loop.faults import each, names, report
from zbus.server.process.logs import TextFormatter
from zbus.storage.port import JournalError
from zbus.testing.simulation.machine import Machine, Options
from zbus.testing.simulation.network import Connection
from zbus.testing.world import Reply


class Planted(Exception):
    """The mistake."""


class Rig:
    """Topics A and B, a client of each, and a reader that waits at A."""

    def __init__(self, patch: pytest.MonkeyPatch, durability: Any) -> None:
        self.patch = patch
        self.machine = Machine(Random(1), options=Options(durability=durability))
        self.machine.start()
        self.process = self.machine.running
        self.broker = self.process.broker
        self.found: list[Fault] = []
        self.broker.faults.report = self.found.append
        self.stored: list[bytes] = []  # acknowledged in A, and acknowledged by no reader
        self.fired = 0
        self.culprit, self.witness = self.connect(), self.connect()
        for topic in "AB":
            target = f"/{topic}?cmd=declare&durability={durability}"
            assert self.ask(self.witness, http(target)).status == 200
            group = f"/{topic}/leased?cmd=declare&group_mask=64&group_ack_timeout=1000"
            assert self.ask(self.witness, http(group)).status == 200
        self.store(b"first")

    def connect(self) -> Connection:
        return self.machine.connect()

    def ask(self, client: Connection, data: bytes) -> Reply:
        client.send(data)
        self.machine.settle()
        (reply,) = client.replies()
        return reply

    def store(self, body: bytes) -> None:
        assert self.ask(self.connect(), http("/A", body=body, method="POST")).status == 200
        self.stored.append(body)

    def link(self, client: Connection) -> Any:
        """The broker's end."""
        by_socket: dict[object, Any] = {link.sock: link for link in self.process.loop.links}
        return by_socket[client.socket]

    def plant(
        self,
        owner: object,
        name: str,
        when: Callable[..., bool] = lambda *args: True,
        *,
        after: bool = False,
    ) -> None:
        """Raise once, before or after what is called was done."""
        original = getattr(owner, name)

        def sabotaged(*args: Any, **named: Any) -> Any:
            strikes = not self.fired and when(*args)
            if strikes and not after:
                self.fired += 1
                raise Planted
            outcome = original(*args, **named)
            if strikes:
                self.fired += 1
                raise Planted
            return outcome

        self.patch.setattr(owner, name, sabotaged)


def put(rig: Rig) -> None:
    rig.culprit.send(http("/A", body=b"doomed", method="POST"))


def pull(rig: Rig) -> None:
    rig.culprit.send(http("/A/leased?cmd=consume&timeout=0"))


def wait_for_more(rig: Rig) -> None:
    assert rig.ask(rig.culprit, http("/A/A?cmd=consume&timeout=0")).status == 200
    rig.culprit.send(http("/A/A?cmd=consume&timeout=500"))


def follow(rig: Rig) -> None:
    rig.culprit.send(http("/A?cmd=consume", "accept: text/event-stream"))
    rig.machine.settle()
    rig.store(b"told")


def follow_and_fail(rig: Rig) -> None:
    rig.culprit.send(http("/A?cmd=consume", "accept: text/event-stream"))
    rig.machine.settle()
    rig.plant(culprits(rig), "_ready")
    rig.store(b"told")


def lease_and_let_it_end(rig: Rig) -> None:
    pull(rig)
    rig.machine.settle()
    rig.culprit.replies()
    rig.machine.advance(1_500)


def hang_up(rig: Rig) -> None:
    pull(rig)
    rig.machine.settle()
    rig.culprit.reset()
    rig.machine.settle()


def hang_up_with_a_lease(rig: Rig) -> None:
    target = http("/A/leased?cmd=declare&group_on_loss=front")
    assert rig.ask(rig.witness, target).status == 200
    pull(rig)
    rig.machine.settle()
    rig.culprit.replies()
    rig.culprit.reset()
    rig.machine.settle()


def nothing(rig: Rig) -> None:
    pass


def of_a(partition: Any, *_: object) -> bool:
    return bool(partition.topic.name == "A")


def culprits(rig: Rig) -> Any:
    return rig.link(rig.culprit)


def fail_for_the_topic(owner: object, name: str, **how: bool) -> Callable[[Rig], None]:
    """`owner` is a class, whose methods get themselves first."""
    return lambda rig: rig.plant(owner, name, lambda _, *args: of_a(*args), **how)


def fail_in_timer(get: Callable[[Any], Any]) -> Callable[[Rig], None]:
    return lambda rig: rig.plant(get(rig.broker), "_call")


def fail_in_watcher(rig: Rig) -> None:
    def watcher() -> None:
        if not rig.fired:
            rig.fired += 1
            raise Planted

    rig.broker.changes.watch(watcher)


def fail_in_memory(rig: Rig) -> None:
    rig.plant(type(rig.broker._memory), "sweep")
    rig.broker._memory.gone.append(Chunk())


class Row(NamedTuple):
    plant: Callable[[Rig], None]
    act: Callable[[Rig], None]
    culprit: dict[str, object]
    status: int | None  # of the culprit's reply; None = none, 0 = whatever
    dropped: bool = False  # its connection


TOPIC: dict[str, object] = {"topic": "A", "partition": 0}
UNKNOWN_BEARER: dict[str, object] = {}
PEER: dict[str, object] = {"peer": "127.0.0.1:1025"}

ROWS = {
    "before the write": Row(fail_for_the_topic(Storage, "write"), put, TOPIC, 503),
    "after the write": Row(fail_for_the_topic(Storage, "write", after=True), put, TOPIC, 503),
    "the log at hand": Row(
        lambda rig: rig.plant(Log, "append", lambda log, _: of_a(log._partition)), put, TOPIC, 503
    ),
    "what becomes visible": Row(
        lambda rig: rig.plant(rig.broker._tick.hooks, "visible", of_a), put, TOPIC, 200
    ),
    "the ticket of a put": Row(
        lambda rig: rig.plant(culprits(rig), "_ready"), put, PEER, None, True
    ),
    "serving a group": Row(
        fail_for_the_topic(Dispatch, "_take"), pull, {"topic": "A", "group": "leased"}, 503
    ),
    "scanning a partition": Row(
        fail_for_the_topic(Dispatch, "_scan"), pull, {"topic": "A", "group": "leased"}, 503
    ),
    "the ticket of a pull": Row(
        lambda rig: rig.plant(culprits(rig), "_ready"), pull, PEER, None, True
    ),
    "a pull whose time is up": Row(
        lambda rig: rig.plant(rig.broker._dispatch.pulls._deadlines, "_call"),
        wait_for_more,
        PEER,
        None,
        True,
    ),
    "a lease that ends": Row(
        fail_in_timer(lambda broker: broker._dispatch.runs.wakes),
        lease_and_let_it_end,
        {"topic": "A", "group": "leased"},
        None,
    ),
    "retention": Row(
        fail_in_timer(lambda broker: broker._retention._timer),
        lambda rig: rig.broker._retention._timer.set(
            rig.broker.topics["a"].partitions[0], rig.machine.now_ms + 1
        ),
        TOPIC,
        None,
    ),
    "keys that are forgotten": Row(
        fail_in_timer(lambda broker: broker._puts.recognition._timer),
        lambda rig: rig.broker._puts.recognition._timer.set(
            rig.broker.topics["a"].partitions[0], rig.machine.now_ms + 1
        ),
        TOPIC,
        None,
    ),
    "followers": Row(
        lambda rig: rig.plant(FanOut, "_collect"),
        follow,
        UNKNOWN_BEARER,
        0,
    ),
    "one follower": Row(nothing, follow_and_fail, PEER, 0, True),
    "the end of a session": Row(
        lambda rig: rig.plant(Departures, "_forget", lambda _departures, _peer, group: of_a(group)),
        hang_up,
        {"topic": "A", "group": "leased"},
        None,
        True,
    ),
    "leases that are given back": Row(
        lambda rig: rig.plant(disconnect, "give_back", lambda *args: of_a(args[2])),
        hang_up_with_a_lease,
        {"topic": "A", "group": "leased"},
        None,
        True,
    ),
    "a watcher of changes": Row(fail_in_watcher, wait_for_more, UNKNOWN_BEARER, 204),
    "memory": Row(fail_in_memory, pull, UNKNOWN_BEARER, 200),
    "the sweep over connections": Row(
        lambda rig: rig.plant(
            rig.process.loop.sweep, "_look", lambda link, _: link is culprits(rig)
        ),
        nothing,
        PEER,
        None,
        True,
    ),
    "upkeep": Row(
        lambda rig: rig.plant(rig.process.loop.sweep, "_also"), nothing, UNKNOWN_BEARER, None
    ),
}


@pytest.mark.parametrize("durability", ["os", "disk", "memory"])
@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_one_fault_costs_one_culprit(
    row: Row, durability: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = Rig(monkeypatch, durability)
    row.plant(rig)
    row.act(rig)
    rig.witness.send(http("/B", body=b"on", method="POST"))
    rig.witness.send(http("/B/leased?cmd=consume&timeout=1000"))
    rig.machine.settle()
    assert sorted(reply.status for reply in rig.witness.replies()) == [200, 200]
    rig.machine.advance(2_500)
    assert rig.fired == 1
    assert rig.process.loop.failure == ""
    told = [(names(fault.culprit), type(fault.error)) for fault in rig.found]
    assert told == [(row.culprit, Planted)]
    replies = [reply.status for reply in rig.culprit.replies()]
    if row.status != 0:
        assert replies == ([] if row.status is None else [row.status])
    if row.status != 0 or row.dropped:
        assert rig.culprit.alive is not row.dropped
    assert rig.witness.alive
    works_again(rig)


def works_again(rig: Rig) -> None:
    """After a while all is as it was, and all that was acknowledged is there."""
    rig.machine.advance(2_000)
    rig.store(b"last")
    reader = rig.connect()
    bodies = []
    for _ in range(20):
        reply = rig.ask(reader, http("/A/leased?cmd=consume&timeout=0"))
        if reply.status != 200:
            break
        bodies.append(reply.body)
    assert set(rig.stored) <= set(bodies)
    assert set(bodies) - set(rig.stored) <= {b"doomed"}
    rig.broker.check()
    assert len(rig.found) == 1


def test_those_who_put_together_are_answered_but_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their puts are neighbours in the log, and have one ticket."""
    rig = Rig(monkeypatch, "disk")
    others = [rig.connect() for _ in range(4)]
    rig.plant(culprits(rig), "_ready")
    for client in (*others[:2], rig.culprit, *others[2:]):
        client.send(http("/A", body=b"together", method="POST"))
    rig.machine.settle()
    assert [[reply.status for reply in client.replies()] for client in others] == [[200]] * 4
    assert not rig.culprit.alive
    assert [names(fault.culprit) for fault in rig.found] == [PEER]


def test_other_partitions_of_the_topic_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(monkeypatch, "disk")
    declare = "/P?cmd=declare&durability=disk&partitions=3"
    assert rig.ask(rig.witness, http(declare)).status == 200
    rig.plant(Storage, "write", lambda _, partition, *rest: partition.lane == ("P", 1))
    clients = [rig.connect() for _ in range(3)]
    for index, client in enumerate(clients):
        client.send(http(f"/P?partition={index}", body=b"x", method="POST"))
    rig.machine.settle()
    replies = [client.replies()[0] for client in clients]
    assert [reply.status for reply in replies] == [200, 503, 200]
    assert replies[1].headers["retry-after"] == "1"
    text = "503: partition 1 of P is recovering (internal error); retry in 1 s"
    assert replies[1].body.decode().startswith(text)
    assert rig.ask(clients[1], http("/P?partition=1", body=b"x", method="POST")).status == 200


@pytest.mark.parametrize("durability", ["os", "disk", "memory"])
@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("index", [0, 2])
def test_a_topic_whose_making_fails_can_be_made_again(
    index: int, after: bool, partitions: int, durability: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = Rig(monkeypatch, durability)
    lane = ("New", min(index, partitions - 1))
    rig.plant(Storage, "write", lambda _, one, *rest: one.lane == lane, after=after)
    declare = http(f"/New?cmd=declare&durability={durability}&partitions={partitions}")
    assert rig.ask(rig.witness, declare).status == 503
    rig.machine.advance(2_000)
    assert rig.ask(rig.witness, declare).status == 200
    for at in range(partitions):
        put = http(f"/New?partition={at}", body=b"%d" % at, method="POST")
        assert rig.ask(rig.witness, put).status == 200
    rig.broker.check()


def test_what_goes_wrong_again_and_again_is_read_once_a_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig = Rig(monkeypatch, "disk")
    opened: list[int] = []
    reopen = Storage.reopen

    def counted(*args: Any) -> None:
        opened.append(rig.machine.now_ms)
        reopen(*args)

    def never(dispatch: Dispatch, group: Any, pull: Any) -> Any:
        assert group.topic.name != "A", "planted"
        return take(dispatch, group, pull)

    take = Dispatch._take
    with monkeypatch.context() as patch:
        patch.setattr(Storage, "reopen", counted)
        patch.setattr(Dispatch, "_take", never)
        began_ms = rig.machine.now_ms
        while rig.machine.now_ms < began_ms + 5_000:
            reply = rig.ask(rig.culprit, http("/A/leased?cmd=consume&timeout=1000"))
            assert (reply.status, reply.headers["retry-after"]) == (503, "1")
            rig.machine.advance(100)
            assert rig.ask(rig.witness, http("/B", body=b"on", method="POST")).status == 200
    assert 4 <= len(opened) <= 6
    rig.found.clear()
    rig.found.append(Fault(None, Planted()))  # `works_again` counts one
    works_again(rig)


def test_what_cannot_be_contained_ends_the_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    """The truth about what is stored is in doubt: nothing of that turn is told."""
    rig = Rig(monkeypatch, "disk")
    rig.plant(rig.broker._tick.hooks, "visible", of_a)

    def no_way(*_: object) -> None:
        raise Planted

    monkeypatch.setattr(Storage, "reopen", no_way)
    put(rig)
    rig.machine.settle()
    assert rig.machine.process is None
    assert "could not be contained: Planted()" in rig.process.loop.failure
    assert rig.culprit.replies() == []


def test_nor_while_a_connection_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whose guard catches everything else."""
    rig = Rig(monkeypatch, "disk")
    rig.plant(Departures, "_forget", lambda _departures, _peer, group: of_a(group))

    def no_way(*_: object) -> None:
        raise Planted

    monkeypatch.setattr(Storage, "reopen", no_way)
    pull(rig)
    rig.machine.settle()
    rig.culprit.reset()
    rig.witness.send(http("/B", body=b"on", method="POST"))
    rig.machine.settle()
    assert rig.machine.process is None
    assert "could not be contained: Planted()" in rig.process.loop.failure
    assert rig.witness.replies() == []


@pytest.mark.parametrize("step", ["send_some", "finished"])
def test_sending_costs_the_connection(step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(monkeypatch, "os")
    link = culprits(rig)
    if step == "send_some":
        rig.plant(link, "send_some")
    else:
        rig.plant(rig.process.loop.output, "_settle", lambda held: held is link)
        rig.culprit.socket.room_bytes = 10
    pull(rig)
    rig.machine.settle()
    assert rig.fired == 1
    assert not rig.culprit.alive
    works = rig.ask(rig.witness, http("/B", body=b"on", method="POST"))
    assert works.status == 200
    assert rig.process.loop.failure == ""


def test_without_anybody_who_listens_it_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    """So no test passes over a mistake."""
    rig = Rig(monkeypatch, "os")
    rig.broker.faults.report = None
    fail_for_the_topic(Dispatch, "_take")(rig)
    pull(rig)
    with pytest.raises(Planted):
        rig.machine.settle()


def test_the_log_has_names_and_the_place(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(logging.getLogger("zbus"), "propagate", True)
    rig = Rig(monkeypatch, "os")
    rig.broker.faults.report = report
    fail_for_the_topic(Dispatch, "_take")(rig)
    pull(rig)
    rig.machine.settle()
    (record,) = [record for record in caplog.records if record.exc_info]
    line = TextFormatter().format(record)
    assert "ERROR an internal error topic=A group=leased\nTraceback" in line
    assert "in sabotaged" in line


def test_of_what_is_done_now_and_then_each_part_is_done(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("zbus"), "propagate", True)
    done: list[str] = []

    def fails() -> None:
        raise Planted

    def loses() -> None:
        raise JournalError("the disk is gone")

    each([lambda: done.append("a"), fails, lambda: done.append("b")])
    assert done == ["a", "b"]
    assert [record.getMessage() for record in caplog.records] == ["upkeep failed"]
    with pytest.raises(JournalError):
        each([loses, lambda: done.append("c")])
    assert done == ["a", "b"]
