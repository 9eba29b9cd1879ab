"""What is not stored was not sent: disks that are full or fail, and limits."""

from __future__ import annotations

import msgspec
import pytest

from tests.conformance.test_fenced import LateWorld
from tests.dialects.camellia.words import WorldTalk, verb
from zbus.core.dedup import active_ids
from zbus.core.model.errors import BrokerError, Refusal
from zbus.core.model.limits import Limits
from zbus.testing.world import World

LATER = {"topic": "T", "msg": "lost", "delayMillis": 100, "msgId": "lost"}


def test_a_write_that_fails() -> None:
    world = LateWorld()
    talk = WorldTalk(world)
    talk.send(delayMillis=50)
    talk.client.send(verb("sendMsg", **LATER))
    world.fail()
    world.settle()
    [reply] = talk.client.replies()
    assert (reply.status, reply.headers["retry-after"]) == (503, "1")
    found = msgspec.json.decode(reply.body)
    assert (found["code"], found["delayMsg"]) == (503, None)
    assert talk.look("getTopicInfo?topic=T")["waitingQueueSize"] == 1
    again = talk.ask("sendMsg", **LATER)["delayMsg"]
    assert talk.get(again) == again
    world.advance(100)
    assert [message["msg"] for message in talk.pull(batch=5)] == ["abc", "lost"]


@pytest.mark.parametrize("word", ["getMsg", "deleteMsg", "ackMsg"])
@pytest.mark.parametrize("id", ["own", "stored"])
def test_nothing_is_said_to_be_missing_that_cannot_be_seen_now(word: str, id: str) -> None:
    world = LateWorld()
    talk = WorldTalk(world)
    sent = talk.send(msgId="own") if id == "own" else talk.send()
    talk.pull()
    lost, asking = world.connect(), world.connect()
    lost.send(verb("sendMsg", **LATER))
    world.fail()
    partition = world.broker.topics["t"].partitions[0]
    told = []
    while partition.fenced is not None:
        asking.send(verb(word, topic="T", msgId=sent["msgId"]))
        world.turn()
        world.now_ms += 100
        if partition.fenced is not None:
            told += asking.replies()
        if ("T", 0) in world.late.waiting:
            world.late.step(("T", 0))
    assert told
    assert {(reply.status, reply.headers["retry-after"]) for reply in told} == {(503, "1")}
    assert {msgspec.json.decode(reply.body)["code"] for reply in told} == {503}


def test_who_acknowledges_what_is_being_acknowledged_is_told_when_that_is_written() -> None:
    """(Found by seed 50789 of the simulation with camellia.)"""
    world = LateWorld()
    talk = WorldTalk(world)
    talk.send(msgId="own")
    talk.pull()
    clients = [world.connect(), world.connect()]
    for client in clients:
        client.send(verb("ackMsg", topic="T", msgId="own"))
        world.turn()
    assert [client.replies() for client in clients] == [[], []]
    world.settle()
    for client in clients:
        [reply] = client.replies()
        assert msgspec.json.decode(reply.body)["code"] == 200


@pytest.mark.parametrize(("refusal", "status"), [("FULL", 507), ("OVERLOADED", 503)])
def test_there_is_no_room(refusal: str, status: int) -> None:
    talk = WorldTalk()
    sent = talk.send(msgId="one")
    talk.world.broker.refuse_puts(BrokerError(Refusal[refusal], "there is no room"), None)
    for topic in ("T", "New"):
        reply = talk.request(verb("sendMsg", **{**LATER, "topic": topic}))
        assert (reply.status, msgspec.json.decode(reply.body)["code"]) == (status, status)
    assert talk.send(msgId="one") == sent, "what was sent before is told"
    [pulled] = talk.pull()
    talk.ack(pulled)
    assert talk.status(sent) == 4, "consuming goes on"


def test_a_message_over_the_limit() -> None:
    talk = WorldTalk(World(limits=Limits(message_bytes_max=10)))
    assert talk.request(verb("sendMsg", topic="T", msg="x" * 11, delayMillis=0)).status == 413
    assert talk.send(msg="x" * 10)["status"] == 2


def test_more_ids_than_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """One is refused, and none forgotten. Messages that were sent without an id need no room."""
    monkeypatch.setattr(active_ids, "LIVE_IDS_MAX", 5)
    talk = WorldTalk()
    sent = [talk.send(msgId=str(number)) for number in range(5)]
    reply = talk.request(verb("sendMsg", **LATER))
    assert (reply.status, msgspec.json.decode(reply.body)["code"]) == (429, 429)
    for _ in range(10):
        talk.send()
    assert talk.send(msgId="0") == sent[0]
    talk.delete(sent[0], release="true")
    assert talk.ask("sendMsg", **LATER)["delayMsg"]["msgId"] == "lost"


def test_more_topics_than_there_may_be() -> None:
    talk = WorldTalk(World(limits=Limits(topics_max=1)))
    talk.send()
    assert talk.request(verb("sendMsg", topic="New", msg="a", delayMillis=0)).status == 429


def test_a_topic_without_ids() -> None:
    talk = WorldTalk()
    talk.client.request(b"GET /T?cmd=declare HTTP/1.1\r\nhost: localhost\r\n\r\n")
    refused = talk.ask("sendMsg", **LATER)
    assert (refused["code"], refused["delayMsg"]) == (400, None)
    assert "dedupe_live" in refused["msg"]
    sent = talk.send()
    put = b"POST /T HTTP/1.1\r\nhost: localhost\r\nid: own\r\ncontent-length: 1\r\n\r\nb"
    assert talk.client.request(put).status == 200
    one, other = talk.pull(batch=2)
    assert one["msgId"] == sent["msgId"]
    talk.ack(one)
    talk.ack(other)
    talk.restart()
    assert talk.pull() == [], "each could be named"


def test_a_topic_of_services() -> None:
    talk = WorldTalk()
    reply = talk.client.request(b"GET /T?cmd=declare&rpc=true HTTP/1.1\r\nhost: localhost\r\n\r\n")
    assert reply.status == 200
    refused = talk.ask("sendMsg", topic="T", msg="a", delayMillis=0)
    assert (refused["code"], refused["msg"]) == (400, "T is a topic of services")
