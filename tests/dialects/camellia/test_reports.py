"""The verbs that tell how things are: monitor data, topics, metrics, health."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest

from tests.conformance.dialogue import World, http, ok
from tests.dialects.camellia.words import QUEUE, WorldTalk
from zbus.dialects.camellia.settings import CamelliaSettings

NOTHING: dict[str, list[Any]] = {
    "requestStatsList": [],
    "pullMsgTimeGapStatsList": [],
    "readyQueueTimeGapStatsList": [],
}
ZEROS = {
    "sendMsg",
    "pullMsg",
    "deleteMsg",
    "ackMsg",
    "getMsg",
    "triggerMsgReady",
    "triggerMsgEndLife",
    "triggerMsgTimeout",
}


@pytest.fixture
def talk() -> WorldTalk:
    return WorldTalk()


def counted(talk: WorldTalk, topic: str = "T") -> dict[str, int]:
    """What is not zero, of the last window."""
    for stats in talk.look("getMonitorData")["requestStatsList"]:
        assert set(stats) == {"topic", *ZEROS}
        if stats["topic"] == topic:
            return {name: stats[name] for name in ZEROS if stats[name]}
    return {}


# -- monitor data ------------------------------------------------------------------------------


def test_requests_are_counted(talk: WorldTalk) -> None:
    one, other = talk.send(msgId="one"), talk.send()
    talk.send(msgId="one")
    talk.get(one)
    talk.pull(batch=2)
    talk.nack(one)
    talk.ack(other)
    talk.pull()
    talk.ack(one)
    talk.ack({"topic": "T", "msgId": "unknown"})
    gone = talk.send()
    talk.delete(gone)
    assert talk.look("getMonitorData") == NOTHING, "the first window is not over"
    talk.world.advance(60_000)
    assert counted(talk) == {"sendMsg": 4, "pullMsg": 3, "deleteMsg": 1, "ackMsg": 4, "getMsg": 1}
    talk.world.advance(60_000)
    assert talk.look("getMonitorData") == NOTHING, "nothing happened in the next"


def test_what_time_does_is_counted(talk: WorldTalk) -> None:
    for delay_ms in (0, 50, 1_000):
        talk.send(delayMillis=delay_ms, maxRetry=1)
    talk.send(msgId="short", ttlMillis=20_000)
    talk.send(msgId="held", ttlMillis=300_000)
    talk.world.advance(1_000)
    talk.pull(batch=4, ackTimeoutMillis=1_000)
    talk.pull(ackTimeoutMillis=100_000)
    talk.world.advance(1_000)
    talk.pull(batch=4, ackTimeoutMillis=1_000)
    talk.world.advance(58_000)
    assert counted(talk) == {
        "sendMsg": 5,
        "pullMsg": 9,
        "triggerMsgReady": 2,
        "triggerMsgTimeout": 6,
        "triggerMsgEndLife": 3,
    }


def test_what_is_asked_for_and_over_counts_each_time(talk: WorldTalk) -> None:
    ended = talk.send()
    talk.delete(ended)
    talk.delete(ended)
    talk.get(ended)
    talk.get({"topic": "T", "msgId": "unknown"})
    talk.world.advance(60_000)
    assert counted(talk) == {"sendMsg": 1, "deleteMsg": 1, "getMsg": 1, "triggerMsgEndLife": 3}


def test_how_late(talk: WorldTalk) -> None:
    talk.send(delayMillis=100)
    talk.send(delayMillis=400)
    talk.world.advance(500)
    talk.pull(batch=2)
    talk.world.advance(60_000)
    data = talk.look("getMonitorData")
    assert data["pullMsgTimeGapStatsList"] == [{"topic": "T", "count": 2, "avg": 250, "max": 400}]
    assert data["readyQueueTimeGapStatsList"] == [{"topic": "T", "count": 2, "avg": 0, "max": 0}]


def test_a_broker_that_was_away_is_late() -> None:
    talk = WorldTalk()
    talk.send(delayMillis=100)
    talk.world.now_ms += 1_100  # nothing ran meanwhile
    talk.pull()
    talk.world.advance(60_000)
    [gaps] = talk.look("getMonitorData")["readyQueueTimeGapStatsList"]
    assert gaps == {"topic": "T", "count": 1, "avg": 1_000, "max": 1_000}


def test_windows_of_another_length() -> None:
    talk = WorldTalk(World(dialects={"camellia": CamelliaSettings(camellia_monitor_ms=1_000)}))
    talk.send()
    talk.world.advance(1_000)
    assert counted(talk) == {"sendMsg": 1}
    talk.send()
    talk.send()
    assert counted(talk) == {"sendMsg": 1}
    talk.world.advance(999)
    talk.world.advance(1)
    assert counted(talk) == {"sendMsg": 2}
    talk.world.advance(10_000)
    assert talk.look("getMonitorData") == NOTHING


def test_what_happens_by_itself_is_counted_when_it_does(talk: WorldTalk) -> None:
    """Also if nobody has asked for anything for a while."""
    talk.send(delayMillis=610_000)
    for minute in range(10):
        talk.world.advance(60_000)
        assert counted(talk) == ({} if minute else {"sendMsg": 1})
    talk.world.advance(60_000)
    assert counted(talk) == {"triggerMsgReady": 1}
    talk.world.advance(60_000)
    assert counted(talk) == {}


def test_nothing_is_done_for_it_where_nothing_is_left(talk: WorldTalk) -> None:
    talk.send()
    [message] = talk.pull()
    talk.ack(message)
    talk.world.advance(600_000)
    due_ms = talk.world.broker.next_due()
    assert due_ms is None or due_ms > talk.world.now_ms + 600_000


def test_the_string(talk: WorldTalk) -> None:
    talk.send(delayMillis=5_000)
    talk.world.advance(60_000)
    reply = ok(talk.client, http(QUEUE + "getMonitorString"))
    assert reply.headers["content-type"] == "text/plain;charset=UTF-8"
    found: Any = msgspec.json.decode(reply.body)
    assert set(found) == {
        "requestStats",
        "pullMsgTimeGapStats",
        "readyQueueTimeGapStats",
        "topicInfoStats",
        "waitingQueueStats",
    }
    assert found["topicInfoStats"] == [
        {"topic": "T", "waitingQueueSize": 0, "readyQueueSize": 1, "ackQueueSize": 0}
    ]
    assert found["waitingQueueStats"][0]["topic"] == "T"


# -- topics ------------------------------------------------------------------------------------


def sizes(info: Any) -> tuple[int, int, int]:
    return info["waitingQueueSize"], info["readyQueueSize"], info["ackQueueSize"]


def test_an_unknown_topic(talk: WorldTalk) -> None:
    info = talk.look("getTopicInfo?topic=nowhere")
    assert info["topic"] == "nowhere"
    assert not any(info["waitingQueueInfo"].values())
    assert sizes(info) == (0, 0, 0)
    assert talk.look("getTopicInfoList") == []


BOUNDS = [60_000, 600_000, 1_800_000, 3_600_000, 21_600_000, 86_400_000, 604_800_000, 2_592_000_000]


@pytest.mark.parametrize(("part", "bound_ms"), list(enumerate(BOUNDS)))
def test_bounds(talk: WorldTalk, part: int, bound_ms: int) -> None:
    """A message on a boundary is in the upper part, and in no other."""
    talk.send(delayMillis=bound_ms - 1)
    talk.send(delayMillis=bound_ms)
    counts = list(talk.look("getTopicInfo?topic=T")["waitingQueueInfo"].values())
    assert counts == [int(at in (part, part + 1)) for at in range(9)]


def test_only_what_lives_is_counted(talk: WorldTalk) -> None:
    waiting, ready = talk.send(delayMillis=1_000), talk.send()
    talk.send(ttlMillis=100)
    talk.delete(waiting)
    talk.delete(ready)
    talk.world.advance(500)
    info = talk.look("getTopicInfo?topic=T")
    assert sizes(info) == (0, 0, 0)


def test_what_is_due_at_once_is_ready(talk: WorldTalk) -> None:
    """Also if it is a lot."""
    for _ in range(3_000):
        talk.send(delayMillis=1_000)
    talk.world.advance(1_000)
    info = talk.look("getTopicInfo?topic=T")
    assert sizes(info) == (0, 3_000, 0)
    assert len(talk.pull(batch=2_500)) <= 2_500


def test_the_list(talk: WorldTalk) -> None:
    for topic in ("One", "Two", "One"):
        talk.send(topic)
    talk.pull("nowhere")
    talk.get({"topic": "nowhere", "msgId": "none"})
    ok(talk.client, http("/Plain?cmd=declare&group=Plain"))
    assert [info["topic"] for info in talk.look("getTopicInfoList")] == ["Two", "One"]


def test_empty_topics_leave_the_list(talk: WorldTalk) -> None:
    for topic in ("Empty", "Used", "Full"):
        talk.send(topic, ttlMillis=86_400_000)
    for topic in ("Empty", "Used"):
        [message] = talk.pull(topic)
        talk.ack(message)
    talk.world.advance(1_799_999)
    assert [info["topic"] for info in talk.look("getTopicInfoList")] == ["Empty", "Used", "Full"]
    talk.pull("Used")
    talk.world.advance(1)
    assert [info["topic"] for info in talk.look("getTopicInfoList")] == ["Used", "Full"]
    talk.send("Empty")
    assert [info["topic"] for info in talk.look("getTopicInfoList")] == ["Used", "Full", "Empty"]
    talk.restart()
    assert {info["topic"] for info in talk.look("getTopicInfoList")} == {"Full", "Empty"}


# -- metrics -----------------------------------------------------------------------------------

SAMPLE = re.compile(r'(\w+)(?:\{((?:\w+="(?:[^"\\]|\\.)*",?)*)\})? (-?[0-9.e+]+)')


def samples(talk: WorldTalk) -> dict[str, float]:
    """By name and labels."""
    reply = ok(talk.client, http("/metrics"))
    assert reply.headers["content-type"] == "text/plain;charset=UTF-8"
    found = {}
    for line in reply.body.decode().splitlines():
        if not line.startswith("#"):
            match = SAMPLE.fullmatch(line)
            assert match is not None, line
            found[f"{match[1]}{{{match[2] or ''}}}"] = float(match[3])
    return found


def test_metrics(talk: WorldTalk) -> None:
    talk.send(delayMillis=100)
    talk.send()
    talk.world.advance(200)
    talk.pull()
    talk.world.advance(60_000)
    talk.send('a"b', delayMillis=5_000_000)
    found = samples(talk)
    assert found['request{topic="T",type="sendMsg"}'] == 2
    assert found['request{topic="T",type="pullMsg"}'] == 1
    assert found['request{topic="T",type="triggerMsgReady"}'] == 1
    assert found['pull_msg_time_gap{topic="T",type="max"}'] == 200
    assert found['ready_queue_time_gap{topic="T",type="count"}'] == 1
    assert found['topic_info{topic="T",type="readyQueueSize"}'] == 2
    assert found['topic_info{topic="a\\"b",type="size_1hour_6hour"}'] == 1
    assert found['topic_info{topic="a\\"b",type="waitingQueueSize"}'] == 1
    assert found["uptime{}"] >= 60_000
    assert found["start_time{}"] == talk.world.now_ms - found["uptime{}"]


def test_every_family(talk: WorldTalk) -> None:
    """With the names that the original's dashboard asks for."""
    talk.send(delayMillis=1)
    talk.world.advance(1)
    talk.pull()
    talk.world.advance(60_000)
    page = ok(talk.client, http("/metrics")).body.decode()
    families = (
        "info",
        "uptime",
        "start_time",
        "memory_info",
        "cpu",
        "gc",
        "request",
        "pull_msg_time_gap",
        "ready_queue_time_gap",
        "topic_info",
    )
    for name in families:
        assert f"# TYPE {name} gauge\n" in page
        assert re.search(rf"^{name}[ {{]", page, re.MULTILINE), name
    sizes = (
        "readyQueueSize",
        "ackQueueSize",
        "waitingQueueSize",
        "size_0_1min",
        "size_1min_10min",
        "size_10min_30min",
        "size_30min_1hour",
        "size_1hour_6hour",
        "size_6hour_1day",
        "size_1day_7day",
        "size_7day_30day",
        "size_30day_infinite",
    )
    types = re.findall(r'^topic_info\{topic="T",type="(\w+)"\}', page, re.MULTILINE)
    assert types == list(sizes)
    assert set(re.findall(r'^memory_info\{type="(\w+)"\}', page, re.MULTILINE)) == {
        "free_memory",
        "total_memory",
        "max_memory",
        "heap_memory_usage",
        "no_heap_memory_usage",
        "netty_direct_memory",
    }


# -- health ------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["GET", "POST", "PUT"])
def test_health(talk: WorldTalk, method: str) -> None:
    def ask(name: str) -> tuple[int, bytes]:
        reply = talk.client.request(http(f"/camellia/health/{name}", method=method))
        assert reply.headers["content-type"] == "text/plain;charset=UTF-8"
        return reply.status, reply.body

    well, ill = (200, b'{"code":200}'), (500, b'{"code":500}')
    assert (ask("status"), ask("check")) == (well, well)
    talk.send()
    assert ask("offline") == ill, "somebody uses it still"
    assert (ask("status"), ask("check")) == (ill, well)
    talk.pull()
    talk.world.advance(20_000)
    talk.look("getMonitorData")
    assert ask("offline") == ill
    talk.world.advance(1)
    assert ask("offline") == well
    assert len(talk.pull()) == 0, "who comes all the same is served"
    assert ask("status") == ill
    assert ask("online") == well
    assert ask("status") == well
