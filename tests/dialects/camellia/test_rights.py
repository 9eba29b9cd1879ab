"""With tokens: what each verb needs, though the topic is said in the body."""

from __future__ import annotations

import pytest

from tests.conformance.dialogue import World, http
from tests.dialects.camellia.words import QUEUE, WorldTalk, verb
from tests.dialects.talks import document, entry
from zbus.core.model.ticket import Silent
from zbus.edge.access import Access

ACCESS = (
    entry("admin", "admin"),
    entry("producer", "produce", "T"),
    entry("maker", "produce declare", "T", "New"),
    entry("consumer", "consume", "T"),
    entry("watcher", "query", "T"),
    entry("operator", "server"),
)


@pytest.fixture
def talk() -> WorldTalk:
    talk = WorldTalk(World(access=Access(ACCESS)))
    fields = {"topic": "T", "msg": "a", "delayMillis": 0, "msgId": "one"}
    assert talk.request(verb("sendMsg", "token: admin", **fields)).status == 200
    return talk


SEND = {"msg": "a", "delayMillis": 0}
VERBS = [
    ("sendMsg", SEND, "producer maker admin"),
    ("pullMsg", {}, "consumer admin"),
    ("longPollingMsg", {"longPollingTimeoutMillis": 1}, "consumer admin"),
    ("deleteMsg", {"msgId": "one"}, "consumer admin"),
    ("ackMsg", {"msgId": "one"}, "consumer admin"),
    ("getMsg", {"msgId": "one"}, "consumer admin"),
]
LOOKS = [
    ("getTopicInfo?topic=T", "watcher admin"),
    ("getTopicInfoList", "watcher admin"),
    ("getMonitorData", "watcher admin"),
    ("getMonitorString", "watcher admin"),
    ("/metrics", "watcher admin"),
    ("/camellia/health/status", "nobody producer maker consumer watcher operator admin"),
    ("/camellia/health/check", "nobody producer maker consumer watcher operator admin"),
    ("/camellia/health/online", "operator admin"),
    ("/camellia/health/offline", "operator admin"),
]
TOKENS = ("nobody", "producer", "maker", "consumer", "watcher", "operator", "admin")


@pytest.mark.parametrize("token", TOKENS)
@pytest.mark.parametrize(("name", "fields", "allowed"), VERBS)
def test_a_verb(
    talk: WorldTalk, name: str, fields: dict[str, object], allowed: str, token: str
) -> None:
    line = f"authorization: Bearer {token}"
    client = talk.world.connect()
    client.send(verb(name, line, topic="T", **fields))
    client.send(verb(name, line, topic="Other", **fields))
    talk.world.settle()
    talk.world.advance(1)
    this, other = client.replies()
    assert this.status == (200 if token in allowed.split() else 403)
    assert other.status == (200 if token == "admin" else 403), "a topic that is not granted"


@pytest.mark.parametrize("token", TOKENS)
@pytest.mark.parametrize(("path", "allowed"), LOOKS)
def test_a_look(talk: WorldTalk, path: str, allowed: str, token: str) -> None:
    line = f"token: {token}"
    target = path if path.startswith("/") else QUEUE + path
    reply = talk.world.connect().request(http(target, line))
    may = token in allowed.split()
    assert (reply.status == 403) is not may
    if not may:
        assert b"T" not in reply.body.replace(b"This", b"")


def test_a_topic_comes_into_being(talk: WorldTalk) -> None:
    """By the first message, for whoever may declare it, too."""
    client = talk.world.connect()
    assert client.request(verb("sendMsg", "token: maker", topic="New", **SEND)).status == 200
    talk.world.broker.remove_topic(Silent(), talk.world.broker.topics["t"])
    assert client.request(verb("sendMsg", "token: producer", topic="T", **SEND)).status == 403
    assert talk.world.broker.topic("T") is None
    assert client.request(verb("sendMsg", "token: maker", topic="T", **SEND)).status == 200
    assert client.request(verb("sendMsg", "token: producer", topic="T", **SEND)).status == 200


def test_nobody_is_told_of_other_topics(talk: WorldTalk) -> None:
    client = talk.world.connect()
    for topic in ("T", "Secret"):
        client.request(verb("sendMsg", "token: admin", topic=topic, **SEND))
    talk.world.advance(60_000)
    for path in ("getTopicInfoList", "getMonitorData", "getMonitorString"):
        reply = client.request(http(QUEUE + path, "token: watcher"))
        assert b"Secret" not in reply.body, path
        assert b'"T"' in reply.body
    reply = client.request(http("/metrics", "token: watcher"))
    assert b"Secret" not in reply.body
    assert client.request(http(QUEUE + "getTopicInfo?topic=Secret", "token: watcher")).status == 403


def test_a_poll_ends_with_its_token() -> None:
    world = World(access=Access((*ACCESS, entry("short", "consume", ends_ms=World().now_ms + 500))))
    for topic in ("T", "New"):
        talk = WorldTalk(world)
        if topic == "T":
            talk.request(verb("sendMsg", "token: admin", topic="T", **SEND))
            talk.request(verb("pullMsg", "token: admin", topic="T"))
        client = world.connect()
        assert client.exchange(verb("longPollingMsg", "token: short", topic=topic)) == []
    world.advance(600)
    world.posted.append(world.front.upkeep)
    world.settle()
    known, new = [client for client in world.clients if client.peer.open_waits or client.received]
    assert [reply.status for reply in known.replies()] == [403]
    maker = WorldTalk(world)
    maker.request(verb("sendMsg", "token: maker", topic="New", **SEND))
    assert [reply.status for reply in new.replies()] == [403]
    assert document(maker.request(verb("pullMsg", "token: admin", topic="New")))["delayMsgList"]
