"""Every example of the original's documentation: the same keys, of the same kinds, and the values
where they say something."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.conformance.dialogue import http
from tests.dialects.camellia.words import QUEUE, WorldTalk, pulled
from tests.dialects.talks import document, encoded

MESSAGE = {
    "topic": "topic1",
    "msgId": "6faa7316bc504f97aa6dd03ae12a2170",
    "msg": "abc",
    "produceTime": 1658492212132,
    "triggerTime": 1658492222132,
    "expireTime": 1658492242132,
    "maxRetry": 3,
    "retry": 0,
    "status": 1,
}
SENT = {"topic": "topic1", "msg": "abc", "delayMillis": 10_000, "ttlMillis": 20_000, "maxRetry": 3}
ID = {"topic": "topic1", "msgId": MESSAGE["msgId"]}
SEED_LINE = "Content-Type:application/x-www-form-urlencoded;charset=utf-8"

SUCCESS = {"code": 200, "msg": "success"}
TAKEN = {"status": 3, "retry": 1}  # a message that is in somebody's hands; the examples show 1, 0


@pytest.fixture
def talk() -> WorldTalk:
    return WorldTalk()


def ask(talk: WorldTalk, name: str, **fields: object) -> Any:
    """A request as the documentation writes it."""
    data = http(QUEUE + name, SEED_LINE, body=encoded(fields), method="POST")
    return document(talk.request(data))


def shape(value: object) -> object:
    """Keys and kinds."""
    if isinstance(value, dict):
        return {key: shape(one) for key, one in value.items()}
    if isinstance(value, list):
        return [shape(value[0])] if value else []
    return float if isinstance(value, float) else type(value)


def relative(message: Any) -> dict[str, object]:
    """Its times from when it was produced on."""
    produced_ms = message["produceTime"]
    names = ("produceTime", "triggerTime", "expireTime")
    return {**message, **{name: message[name] - produced_ms for name in names}}


def test_send(talk: WorldTalk) -> None:
    found = ask(talk, "sendMsg", **SENT, msgId=MESSAGE["msgId"])
    assert list(found) == ["code", "msg", "delayMsg"]
    assert list(found["delayMsg"]) == list(MESSAGE), "in the same order, even"
    assert {**found, "delayMsg": relative(found["delayMsg"])} == {
        **SUCCESS,
        "delayMsg": relative(MESSAGE),
    }


def test_delete(talk: WorldTalk) -> None:
    ask(talk, "sendMsg", **SENT, msgId=MESSAGE["msgId"])
    assert ask(talk, "deleteMsg", **ID) == SUCCESS


@pytest.mark.parametrize("name", ["pullMsg", "longPollingMsg"])
def test_pulls(talk: WorldTalk, name: str) -> None:
    for msg, id in (("abc", MESSAGE["msgId"]), ("def", "6faa7316bc504f97aa6dd03ae12a2171")):
        ask(talk, "sendMsg", **{**SENT, "msg": msg}, msgId=id)
    talk.world.advance(10_000)
    found = ask(talk, name, topic="topic1", batch=2)
    assert list(found) == ["code", "msg", "delayMsgList"]
    assert [relative(message) for message in pulled(found)] == [
        {**relative(MESSAGE), **TAKEN},
        {**relative(MESSAGE), **TAKEN, "msg": "def", "msgId": "6faa7316bc504f97aa6dd03ae12a2171"},
    ]


def test_ack_without_saying_which(talk: WorldTalk) -> None:
    ask(talk, "sendMsg", **{**SENT, "delayMillis": 0}, msgId=MESSAGE["msgId"])
    ask(talk, "pullMsg", topic="topic1")
    assert ask(talk, "ackMsg", **ID) == SUCCESS
    assert ask(talk, "getMsg", **ID)["delayMsg"]["status"] == 4


def test_get(talk: WorldTalk) -> None:
    sent = ask(talk, "sendMsg", **SENT, msgId=MESSAGE["msgId"])
    assert ask(talk, "getMsg", **ID) == sent


def test_every_status(talk: WorldTalk) -> None:
    def status(id: str) -> object:
        return ask(talk, "getMsg", topic="topic1", msgId=id)["delayMsg"]["status"]

    for id, fields in (
        ("waiting", {"delayMillis": 60_000}),
        ("expires", {"ttlMillis": 5}),
        ("taken", {}),
        ("done", {}),
        ("used up", {"maxRetry": 0}),
        ("deleted", {}),
        ("ready", {}),
    ):
        ask(talk, "sendMsg", **{**SENT, "delayMillis": 0, **fields}, msgId=id)
    talk.world.advance(5)
    assert [m["msgId"] for m in talk.pull("topic1", batch=3)] == ["taken", "done", "used up"]
    talk.ack({"topic": "topic1", "msgId": "done"})
    talk.nack({"topic": "topic1", "msgId": "used up"})
    talk.delete({"topic": "topic1", "msgId": "deleted"})
    names = ("waiting", "ready", "taken", "done", "expires", "used up", "deleted")
    assert [status(name) for name in names] == [1, 2, 3, 4, 5, 6, 7]


def test_monitor_data(talk: WorldTalk) -> None:
    example = {
        "requestStatsList": [
            {
                "topic": "topic1",
                "sendMsg": 35,
                "pullMsg": 12,
                "deleteMsg": 0,
                "ackMsg": 12,
                "getMsg": 0,
                "triggerMsgReady": 24,
                "triggerMsgEndLife": 0,
                "triggerMsgTimeout": 0,
            },
        ],
        "pullMsgTimeGapStatsList": [{"topic": "topic1", "count": 12, "avg": 35.25, "max": 84}],
        "readyQueueTimeGapStatsList": [{"topic": "topic1", "count": 12, "avg": 52.5, "max": 87}],
    }
    ask(talk, "sendMsg", **{**SENT, "delayMillis": 5})
    talk.world.advance(10)
    talk.pull("topic1")
    talk.world.advance(60_000)
    assert shape(talk.look("getMonitorData")) == shape(example)


WAITING = {
    "sizeOf0To1min": 451,
    "sizeOf1minTo10min": 0,
    "sizeOf10minTo30min": 0,
    "sizeOf30minTo1hour": 0,
    "sizeOf1hourTo6hour": 0,
    "sizeOf6hourTo1day": 0,
    "sizeOf1dayTo7day": 0,
    "sizeOf7dayTo30day": 0,
    "sizeOf30dayToInfinite": 0,
}
INFO = {
    "topic": "topic-46",
    "waitingQueueSize": 451,
    "waitingQueueInfo": WAITING,
    "readyQueueSize": 0,
    "ackQueueSize": 0,
}


def test_topic_info(talk: WorldTalk) -> None:
    for _ in range(451):
        talk.send("topic-46", delayMillis=30_000)
    assert talk.look("getTopicInfo?topic=topic-46") == INFO


def test_topic_info_list(talk: WorldTalk) -> None:
    minute_ms = 60_000
    for parts, delay_ms in ((464, 1), (10, 5 * minute_ms), (20, 20 * minute_ms)):
        for _ in range(parts):
            talk.send("topic-46", delayMillis=delay_ms)
    for parts, delay_ms in ((30, 45 * minute_ms), (40, 120 * minute_ms)):
        for _ in range(parts):
            talk.send("topic-46", delayMillis=delay_ms)
    for _ in range(2):
        talk.send("topic-53")
    for _ in range(464):
        talk.send("topic-53", delayMillis=30_000)
    talk.pull("topic-53", batch=2)
    waiting = [464, 10, 20, 30, 40, 0, 0, 0, 0]
    assert talk.look("getTopicInfoList") == [
        {
            **INFO,
            "waitingQueueSize": 564,
            "waitingQueueInfo": dict(zip(WAITING, waiting, strict=True)),
        },
        {
            **INFO,
            "topic": "topic-53",
            "waitingQueueSize": 464,
            "waitingQueueInfo": {**WAITING, "sizeOf0To1min": 464},
            "ackQueueSize": 2,
        },
    ]


class Message(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    """As the Java client reads it."""

    topic: str
    msg_id: str
    msg: str
    produce_time: int
    trigger_time: int
    expire_time: int
    max_retry: int
    retry: int
    status: int


class Result(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    """Of a send."""

    code: int
    msg: str
    delay_msg: Message


def test_what_the_java_client_makes_of_it(talk: WorldTalk) -> None:
    """It reads numbers into longs and ints, and text into strings."""
    found = talk.request(http(QUEUE + "sendMsg", SEED_LINE, body=encoded(SENT), method="POST"))
    assert msgspec.json.decode(found.body, type=Result).delay_msg.msg == "abc"
