"""Standing by for an exclusive group that another session reads."""

from __future__ import annotations

import pytest

from tests.conformance.dialogue import Client, World, cmd, declared, document, http, ok, put
from tests.conformance.test_access import ADMIN, ADMIN_ENTRY, entry, replace_table, world_with
from zbus.core.model.limits import Limits

STANDBY = http("/T/g?cmd=consume&standby=1")
FORMS = {
    "plain": STANDBY,
    "plain with an id": http("/T/g?cmd=consume&standby=1&id=p"),
    "multiplexed": cmd("consume", "topic: T", "consume_group: g", "standby: true", "id: p"),
    "a batch": http("/T/g?cmd=consume&standby=true&batch=5", "accept: application/json"),
    "with a timeout": http("/T/g?cmd=consume&standby=1&timeout=60000"),
}


class Scene:
    """An exclusive group, and who reads it."""

    def __init__(self, query: str = "group_mask=16") -> None:
        self.world, self.client = declared(f"T/g?{query}")
        self.holder = self.world.connect()
        assert self.holder.exchange(http("/T/g?cmd=consume")) == []

    def standby(self, request: bytes = STANDBY) -> Client:
        client = self.world.connect()
        assert client.exchange(request) == []
        return client

    def readers(self) -> int:
        self.world.broker.check()
        return int(document(ok(self.client, http("/T/g?cmd=query")))["consumerCount"])

    def got(self, client: Client) -> list[bytes]:
        return [reply.body for reply in client.replies()]


@pytest.fixture
def scene() -> Scene:
    return Scene()


def leave_by_unconsume(client: Client) -> None:
    client.exchange(cmd("unconsume", "topic: T", "consume_group: g"))
    client.replies()


@pytest.mark.parametrize("leave", [Client.vanish, leave_by_unconsume])
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_it_takes_over_when_the_holder_leaves(scene: Scene, form: bytes, leave: object) -> None:
    assert callable(leave)
    standby = scene.standby(form)
    assert scene.readers() == 1
    put(scene.client, "T", b"for the holder")
    assert scene.got(scene.holder) == [b"for the holder"]
    assert scene.got(standby) == []
    leave(scene.holder)
    scene.world.settle()
    assert scene.readers() == 1
    put(scene.client, "T", b"for the other")
    (body,) = scene.got(standby)
    assert b"for the other" in body
    assert scene.client.request(http("/T/g?cmd=consume")).status == 401


@pytest.mark.parametrize("value", ["", "standby=0", "standby=no"])
def test_without_the_word_it_is_refused_as_ever(scene: Scene, value: str) -> None:
    reply = scene.world.connect().request(http(f"/T/g?cmd=consume&{value}"))
    assert (reply.status, reply.body) == (401, b"ConsumeGroup(g) exclusive, forbidden")


def test_several_take_over_in_the_order_in_which_they_came(scene: Scene) -> None:
    line = [scene.standby() for _ in range(4)]
    gone = line.pop(1)
    gone.vanish()
    scene.holder.vanish()
    for number, standby in enumerate(line):
        put(scene.client, "T", b"%d" % number)
        assert [scene.got(each) for each in line] == [
            [b"%d" % number] if each is standby else [] for each in line
        ]
        standby.vanish()
    assert scene.readers() == 0


def test_a_free_group_is_read_at_once() -> None:
    world, client = declared("T/g?group_mask=16")
    put(client, "T", b"x")
    assert ok(world.connect(), STANDBY).body == b"x"


@pytest.mark.parametrize("timeout_ms", [0, 1, 5_000])
def test_it_waits_no_longer_than_it_said(scene: Scene, timeout_ms: int) -> None:
    standby = scene.world.connect()
    standby.send(http(f"/T/g?cmd=consume&standby=1&timeout={timeout_ms}"))
    scene.world.settle()
    scene.world.advance(timeout_ms)
    (reply,) = standby.replies()
    assert (reply.status, reply.headers["empty"]) == (204, "taken")
    scene.holder.vanish()
    assert scene.readers() == 0, "it has gone its way"


def test_the_deadline_goes_on_when_it_has_taken_over(scene: Scene) -> None:
    standby = scene.standby(http("/T/g?cmd=consume&standby=1&timeout=5000"))
    scene.world.advance(3_000)
    scene.holder.vanish()
    scene.world.settle()
    scene.world.advance(2_001)
    (reply,) = standby.replies()
    assert (reply.status, reply.headers["empty"]) == (204, "drained")


@pytest.mark.parametrize("target", ["/T/g?cmd=remove", "/T?cmd=remove"])
def test_a_group_that_is_removed(scene: Scene, target: str) -> None:
    standbys = [scene.standby() for _ in range(2)]
    ok(scene.client, http(target))
    assert [reply.status for each in standbys for reply in each.replies()] == [404, 404]
    scene.world.broker.check()
    ok(scene.client, http("/T/g?cmd=declare"))
    assert scene.readers() == 0


def test_a_broker_that_stops(scene: Scene) -> None:
    standby = scene.standby()
    scene.world.broker.stop()
    scene.world.settle()
    (reply,) = standby.replies()
    assert (reply.status, reply.headers["empty"]) == (204, "stopping")
    scene.world.broker.check()


@pytest.mark.parametrize("query", ["/T/g?cmd=declare&group_mask=64", "/T?cmd=declare&topic_mask=0"])
def test_a_group_that_is_exclusive_no_more_is_for_all(query: str) -> None:
    by_topic = query.startswith("/T?")
    scene = Scene("topic_mask=16" if by_topic else "group_mask=16")
    standbys = [scene.standby() for _ in range(2)]
    ok(scene.client, http(query))
    assert scene.readers() == 3
    put(scene.client, "T", b"1", b"2", b"3")
    assert sorted(scene.got(scene.holder) + [b for s in standbys for b in scene.got(s)]) == [
        b"1",
        b"2",
        b"3",
    ]


def test_a_temporary_group_is_handed_on(scene: Scene) -> None:
    scene = Scene("group_mask=48")
    standby = scene.standby()
    scene.holder.vanish()
    put(scene.client, "T", b"x")
    assert scene.got(standby) == [b"x"]
    standby.vanish()
    scene.world.settle()
    assert scene.client.request(http("/T/g?cmd=query")).status == 404


def test_who_unconsumes_stands_by_no_more(scene: Scene) -> None:
    request = cmd("consume", "topic: T", "consume_group: g", "standby: 1", "id: p", "timeout: 9000")
    standby = scene.standby(request)
    replies = standby.exchange(cmd("unconsume", "topic: T", "consume_group: g"))
    assert [reply.headers.get("empty") for reply in replies] == ["left"]
    scene.holder.vanish()
    assert scene.readers() == 0


def test_a_later_consume_of_the_same_session_takes_its_place_in_the_line(scene: Scene) -> None:
    lines = ("topic: T", "consume_group: g", "standby: 1", "timeout: 9000")
    first = scene.standby(cmd("consume", *lines, "id: one"))
    second = scene.standby()
    (replaced,) = first.exchange(cmd("consume", *lines, "id: two"))
    assert (replaced.headers["id"], replaced.headers["empty"]) == ("one", "replaced")
    scene.holder.vanish()
    put(scene.client, "T", b"x")
    (reply,) = first.replies()
    assert (reply.headers["id"], reply.body) == ("two", b"x")
    assert scene.got(second) == []


def test_so_many_may_wait() -> None:
    world = World(limits=Limits(waiting_max=3))
    ok(world.connect(), http("/T/g?cmd=declare&group_mask=16"))
    clients = [world.connect() for _ in range(5)]
    for client in clients:
        client.send(STANDBY)
        world.settle()
    statuses = [[reply.status for reply in client.replies()] for client in clients]
    assert statuses == [[], [], [], [429], [429]]
    world.broker.check()


def test_whose_token_has_ended_takes_nothing_over() -> None:
    mine = entry("mine", "consume", {"Orders": ["g"]})
    world, admin = world_with(mine)
    ok(admin, cmd("declare", ADMIN, "topic: Orders", "consume_group: g", "group_mask: 16"))
    holder, standby = world.connect(), world.connect()
    read = ("topic: Orders", "consume_group: g", "standby: 1")
    assert holder.exchange(cmd("consume", ADMIN, *read)) == []
    assert standby.exchange(cmd("consume", "token: mine", *read)) == []
    replace_table(world, ADMIN_ENTRY)
    world.advance(1_000)
    world.front.upkeep()
    world.settle()
    assert [reply.status for reply in standby.replies()] == [403]
    holder.vanish()
    world.settle()
    assert not world.broker.sessions[standby.peer.id].groups
    world.broker.check()
