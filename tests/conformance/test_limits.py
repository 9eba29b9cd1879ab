"""What one connection, one request or a full disk can do to the broker: nothing."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.conformance.dialogue import cmd, declared, http, ok, pull, put, refused, restart
from zbus.core.model.chunk import Chunk
from zbus.core.model.limits import Limits
from zbus.core.model.message import Message
from zbus.core.model.ticket import Silent
from zbus.storage.format.batch import Batch
from zbus.storage.memory import MemoryJournal
from zbus.storage.port import JournalFull, Lane
from zbus.testing.world import World


def test_replies_that_wait_for_their_turn_are_bounded() -> None:
    """A pull at the head of a plain connection holds back all replies behind it."""
    world, client = declared("T")
    client.send(http("/T?cmd=consume"))
    for _ in range(20):
        client.send(http("/T?cmd=query") * 500)
    world.settle()
    assert client.peer.turns is not None
    assert client.peer.held_bytes < 400_000
    assert client.peer.crowded(1_024), "so the loop reads no more"
    put(world.connect(), "T", b"x")
    world.settle()
    replies = client.replies()
    assert replies[0].body == b"x"
    assert len(replies) == 10_001


def test_a_batch_of_more_lines_than_allowed_is_refused_unread() -> None:
    _, client = declared("T")
    lines = ("content-type: application/x-ndjson",)
    status, text = refused(client, http("/T", *lines, body=b"1\n" * 1_000_000))
    assert (status, text) == (400, "400: Bad Format, a batch has at most 100000 messages")


def test_a_turn_with_more_messages_than_a_batch_holds() -> None:
    world = World(limits=Limits(batch_messages_max=200_000))
    client = world.connect()
    ok(client, http("/T?cmd=declare"))
    topic = world.broker.topics["t"]
    for _ in range(3):
        messages = [Message(b"%d" % n) for n in range(60_000)]
        world.broker.put_all(topic.partitions[0], Silent(), Chunk.of(messages))
    world.settle()
    again = restart(world)
    assert again.broker.topics["t"].partitions[0].end == 180_000


class FullJournal(MemoryJournal):
    """Takes no new lane."""

    full = False

    def append(self, lane: Lane, after: int, batches: Sequence[Batch]) -> None:
        if self.full and not after:
            raise JournalFull("no space left")
        super().append(lane, after, batches)


def test_a_topic_that_finds_no_room_is_refused_and_does_not_exist() -> None:
    journal = FullJournal()
    world = World(journal)
    client = world.connect()
    ok(client, http("/T?cmd=declare"))
    journal.full = True
    replies = client.exchange(
        http("/New?cmd=declare&partitions=3", "id: a")
        + http("/New?cmd=produce", "id: b", body=b"x")
        + http("/T?cmd=produce", "id: c", body=b"y")
    )
    assert {reply.headers["id"]: reply.status for reply in replies} == {
        "a": 507,
        "b": 507,
        "c": 200,
    }
    assert refused(client, http("/New?cmd=query"))[0] == 404
    assert pull(client).body == b"y"
    journal.full = False
    ok(client, http("/New?cmd=declare&partitions=3"))
    put(client, "New", b"z")
    assert pull(restart(world).connect(), "/New").body == b"z"


def test_what_was_emptied_under_traffic_stays_empty_after_a_restart() -> None:
    world, client = declared("T")
    put(client, "T", b"old")
    client.exchange(
        cmd("empty", "topic: T", "id: e") + cmd("produce", "topic: T", "id: p", body=b"n")
    )
    again = restart(world).connect()
    ok(again, http("/T/all?cmd=declare&group_start_time=0"))
    assert pull(again, "/T/all").body == b"n"


def test_a_session_with_many_pulls_leaves_at_once() -> None:
    world, _ = declared("T")
    others = [world.connect() for _ in range(50)]
    for other in others:
        other.send(http("/T?cmd=consume"))
    world.settle()
    others[0].vanish()
    assert len(world.broker.topics["t"].groups["t"].waiting) == 49
    assert not others[0].peer.pulls
    for other in others[1:]:
        other.vanish()
    assert not world.broker.topics["t"].groups["t"].waiting
    world.broker.check()


def test_what_a_peer_that_is_gone_asked_for_and_was_not_begun_is_not_done() -> None:
    world, client = declared("T")
    client.peer.stalled = True  # takes no replies
    client.peer.receive(http("/T?cmd=produce", body=b"x"))
    assert client.peer.has_requests is False
    client.peer.forget_requests()
    client.peer.stalled = False
    assert client.peer.has_requests is False
    client.peer.resume()
    world.settle()
    assert world.broker.topics["t"].partitions[0].end == 0


IN_TURN = [
    ("puts", http("/T?cmd=produce", body=b"a") * 3),
    ("puts and a question", (http("/T?cmd=produce", body=b"a") + http("/T?cmd=query")) * 3),
    ("a delivery", http("/T?cmd=produce", body=b"a") + http("/T?cmd=consume&timeout=0")),
    ("nothing to deliver", http("/T?cmd=consume&timeout=0") + http("/T?cmd=query")),
    ("a look", http("/T?cmd=produce", body=b"a") + http("/T?cmd=consume&offset=0") * 2),
    ("a look at nothing", http("/T?cmd=consume&offset=0") * 2),
    ("what is wrong", http("/None?cmd=consume&timeout=0") + http("/T?cmd=what")),
    ("known by ids", cmd("produce", "topic: T", "id: 1", body=b"a") + cmd("query", "id: 2")),
]


@pytest.mark.parametrize(("data"), [data for _, data in IN_TURN], ids=[name for name, _ in IN_TURN])
def test_who_has_all_answers_counts_for_nothing(data: bytes) -> None:
    world, client = declared("T")
    client.send(data)
    world.settle()
    assert client.replies()
    peer = client.peer
    assert (peer.open_tickets, peer.open_waits, peer.held_bytes) == (0, 0, 0)


def test_what_waits_is_counted_until_it_is_answered() -> None:
    world, service = declared("S?topic_mask=3")
    caller = world.connect()
    peer = caller.peer
    assert caller.exchange(http("/S/plus/1") + http("/S?cmd=query")) == []
    assert (peer.open_tickets, peer.open_waits) == (1, 1)
    assert peer.held_bytes > 100  # the answer to the question, which comes second
    call = ok(service, cmd("consume", "topic: S"))
    recver, id = call.headers["sender"], call.headers["origin_id"]
    assert service.exchange(cmd("route", f"recver: {recver}", f"id: {id}", body=b"2")) == []
    assert len(caller.replies()) == 2
    assert (peer.open_tickets, peer.open_waits, peer.held_bytes) == (0, 0, 0)
