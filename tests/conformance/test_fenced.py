"""A partition that storage has trouble with: what whoever asks for it reads, and what goes on."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import pytest

from tests.conformance.dialogue import Client, World, cmd, http, ok
from tests.conformance.test_events import events, stream
from tests.conformance.websocket_client import WebSocketClient, handshake
from zbus.storage.port import Verdict
from zbus.testing.late import LateJournal

WHY = "503: partition 0 of T is recovering ({}); retry in 1 s"
LOST = WHY.format("a write failed, and its outcome is unknown")


class LateWorld(World):
    """Its engine answers when it is told to; `settle` tells it."""

    def __init__(self) -> None:
        posted: deque[Callable[[], None]] = deque()
        self.late = LateJournal(posted.append)

        def wait() -> None:
            while posted:
                posted.popleft()()

        super().__init__(self.late, wait=wait)
        self.posted = posted

    def settle(self) -> None:
        for _ in range(100):
            super().settle()
            if not self.late.waiting:
                return
            self.late.run()
        raise AssertionError("the engine does not come to rest")

    def fail(self, fate: Verdict = Verdict.LOST) -> None:
        """That becomes of what was put, and the partition is fenced."""
        self.turn()
        self.late.step(("T", 0), fate)
        self.late.step(("T", 0))
        self.turn()
        assert self.broker.topics["t"].partitions[0].fenced is not None


def declared(*names: str) -> tuple[LateWorld, Client]:
    world = LateWorld()
    client = world.connect()
    for name in names or ("T",):
        ok(client, http(f"/{name}?cmd=declare&durability=disk"))
    return world, client


@pytest.mark.parametrize("fate", list(Verdict))
def test_a_produce_is_refused_and_the_next_one_stored(fate: Verdict) -> None:
    world, client = declared()
    client.send(http("/T", body=b"lost", method="POST"))
    world.fail(fate)
    (reply,) = client.replies()
    assert (reply.status, reply.body.decode()) == (503, WHY.format(fate.value))
    assert reply.headers["retry-after"] == "1"
    assert not client.closed
    world.settle()
    assert ok(client, http("/T", body=b"again", method="POST")).headers["offset"] == "0"
    assert ok(client, http("/T?cmd=consume&timeout=0")).body == b"again"


@pytest.mark.parametrize("fate", list(Verdict))
def test_who_reads_the_topics_own_group_has_claimed_it(fate: Verdict) -> None:
    """Though what says so was refused together with the message, and the group read again."""
    world, client = declared()
    reader = world.connect()
    reader.send(http("/T?cmd=consume"))
    client.send(http("/T", body=b"lost", method="POST"))
    world.fail(fate)
    world.settle()
    assert [reply.status for reply in client.replies()] == [503]
    assert b"unclaimed" not in ok(client, http("/T/T?cmd=query")).body
    ok(client, http("/T", body=b"again", method="POST"))
    assert b"unclaimed" not in ok(world.connect(), http("/T/T?cmd=query")).body


@pytest.mark.parametrize("fate", list(Verdict))
def test_who_stands_by_gets_on_when_the_group_was_never_exclusive(fate: Verdict) -> None:
    world, client = declared()
    holder, standby = world.connect(), world.connect()
    holder.send(http("/T?cmd=consume"))
    world.settle()
    client.send(http("/T?cmd=declare&group_mask=16"))
    standby.send(http("/T?cmd=consume&standby=1"))
    world.fail(fate)
    world.settle()
    assert [reply.status for reply in client.replies()] == [503]
    world.broker.check()
    for body in (b"1", b"2"):
        ok(client, http("/T", body=body, method="POST"))
    assert [len(each.replies()) for each in (holder, standby)] == [1, 1]


@pytest.mark.parametrize(
    "request_data",
    [
        http("/T", body=b"x", method="POST"),
        http("/T", "idempotency-key: a", body=b"x", method="POST"),
        http("/T", "content-type: application/x-ndjson", body=b"1\n2", method="POST"),
        http("/T/g?cmd=declare"),
        http("/T/T?cmd=ack&offset=0"),
        http("/T?cmd=empty"),
        http("/T?cmd=consume&offset=0"),
        http("/T?cmd=read&offset=0"),
        cmd("produce", "topic: T", "id: 7", body=b"x"),
    ],
    ids=lambda data: data.split(b"\r\n")[0].decode(),
)
def test_everything_that_is_asked_meanwhile(request_data: bytes) -> None:
    world, client = declared()
    ok(client, http("/T", body=b"first", method="POST"))
    client.send(http("/T", body=b"lost", method="POST"))
    world.fail()
    client.replies()
    client.send(request_data)
    world.turn()
    (reply,) = client.replies()
    assert (reply.status, reply.body.decode()) == (503, LOST)
    world.settle()
    assert client.request(request_data).status == 200


def test_other_topics_go_on_and_pulls_wait() -> None:
    world, client = declared("T", "U")
    reader = world.connect()
    reader.send(http("/T?cmd=consume&timeout=60000"))
    client.send(http("/T", body=b"lost", method="POST"))
    world.fail()
    client.replies()
    client.send(http("/U", body=b"stored", method="POST"))
    world.turn()
    while ("U", 0) in world.late.waiting:
        world.late.step(("U", 0))
    world.turn()
    assert [reply.status for reply in client.replies()] == [200]
    assert reader.replies() == []
    world.settle()
    ok(client, http("/T", body=b"again", method="POST"))
    assert [reply.body for reply in reader.replies()] == [b"again"]


def test_a_websocket() -> None:
    world, client = declared()
    client.send(handshake())
    world.settle()
    socket = WebSocketClient(client)
    client.received = b""
    client.send(socket.frame('{"cmd":"produce","topic":"T","id":"a","body":"lost"}'))
    world.fail()
    (message,) = socket.messages()
    assert b'"status":503' in message.data
    assert LOST.encode() in message.data
    world.settle()
    (message,) = socket.exchange(
        socket.frame('{"cmd":"produce","topic":"T","id":"b","body":"again"}')
    )
    assert b'"status":200' in message.data


def test_followers_are_told_and_come_back() -> None:
    world, client = declared()
    ok(client, http("/T", body=b"first", method="POST"))
    follower = stream(world, "/T?cmd=consume&offset=0")
    assert events(follower) == [{"id": "0", "data": "first"}]
    client.send(http("/T", body=b"lost", method="POST"))
    world.fail()
    assert events(follower) == [{"event": "end", "data": LOST}]
    assert follower.closed
    assert [reply.status for reply in client.replies()] == [503]
    world.settle()
    follower = stream(world, "/T?cmd=consume", "last-event-id: 0")
    ok(client, http("/T", body=b"again", method="POST"))
    assert events(follower) == [{"id": "1", "data": "again"}]
