"""Each bad input has a clear answer in the envelope, and changes nothing."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.conformance.dialogue import http
from tests.dialects.mqcloud.words import CONSUMER, TOPIC, WorldTalk, get
from tests.dialects.talks import post
from zbus.core.model.limits import Limits
from zbus.dialects.mqcloud.settings import MqcloudSettings
from zbus.testing.world import World

PRODUCER = "orders-producer"
LONG = "x" * 300


def produce(**fields: object) -> bytes:
    return post("/mq/produce", **{"producer": PRODUCER, "message": "m", **fields})


def batch(messages: object, **fields: object) -> bytes:
    return post("/mq/produce/batch", producer=PRODUCER, messages=messages, **fields)


def message(**fields: object) -> bytes:
    return get("/mq/message", **{"topic": TOPIC, "consumer": CONSUMER, **fields})


def register(**fields: object) -> bytes:
    return post("/mq/register", **{"topic": TOPIC, **fields})


def config(body: object) -> bytes:
    data = body if isinstance(body, bytes) else msgspec.json.encode(body)
    return http("/mq/consumer/config", body=data, method="POST")


def setting(**settings: object) -> bytes:
    return config({"consumer": CONSUMER, **settings})


ROWS: dict[str, tuple[bytes, int, str]] = {
    # Producing.
    "no producer": (post("/mq/produce", message="m"), 400, "producer"),
    "a blank producer": (produce(producer=" "), 400, "producer must not be blank"),
    "no message": (post("/mq/produce", producer=PRODUCER), 400, "message"),
    "an empty message": (produce(message=""), 400, "message must not be blank"),
    "a blank message": (produce(message=" \r\n"), 400, "message must not be blank"),
    "an unknown producer": (produce(producer="X"), 500, "producer:X haven't registered"),
    "a producer in other letters": (produce(producer=PRODUCER.upper()), 500, "haven't registered"),
    "a delay level of 0": (produce(delayLevel=0), 400, "delayLevel must be between 1 and 18"),
    "a delay level of 19": (produce(delayLevel=19), 400, "delayLevel must be between 1 and 18"),
    "a negative delay level": (produce(delayLevel=-1), 400, "delayLevel"),
    "a delay level of words": (produce(delayLevel="long"), 400, "delayLevel"),
    "eleven retries": (produce(asyncRetryTimesIfSendFailed=11), 400, "asyncRetryTimesIfSendFailed"),
    "a time beyond all": (produce(deliveryTimestamp=10**18), 400, "deliveryTimestamp"),
    "a time before all": (produce(deliveryTimestamp=-1), 400, "deliveryTimestamp"),
    "ordered by words": (produce(ordered="perhaps"), 400, "ordered"),
    "an orderId without end": (produce(orderId="o" * 9_000), 400, "orderId"),
    "too large a message": (produce(message="m" * ((4 << 20) + 1)), 500, "at most 4194304 bytes"),
    "a get": (get("/mq/produce", producer=PRODUCER, message="m"), 500, "'GET' not supported"),
    "a batch that is no array": (batch('{"a":1}'), 400, "messages must be a JSON array"),
    "a batch that is no JSON": (batch("[1,"), 400, "messages must be a JSON array"),
    "a batch without messages": (batch("[]"), 400, "messages must not be empty"),
    "a blank message in a batch": (batch('["a"," "]'), 400, "not blank"),
    "no batch": (post("/mq/produce/batch", producer=PRODUCER), 400, "messages"),
    # Consuming.
    "no topic": (get("/mq/message", consumer=CONSUMER), 400, "topic"),
    "a blank topic": (message(topic=" "), 400, "topic must not be blank"),
    "no consumer": (get("/mq/message", topic=TOPIC), 400, "consumer"),
    "an unknown consumer": (message(consumer="X"), 500, "consumer:X haven't registered"),
    "another topic": (message(topic="other"), 500, "is not registered for the topic other"),
    "a client of clustering": (message(clientId="c"), 500, "clientId must not be given"),
    "too large a size": (message(maxPullSize=129), 400, "maxPullSize"),
    "a negative size": (message(maxPullSize=-1), 400, "maxPullSize"),
    "too short a consume timeout": (message(consumeTimeout=9), 400, "consumeTimeout"),
    "too long a consume timeout": (message(consumeTimeout=129_601), 400, "consumeTimeout"),
    "too long a pull timeout": (message(pullTimeout=61), 400, "pullTimeout"),
    "a cookie of words": (message(useCookie="perhaps"), 400, "useCookie"),
    # The registry.
    "nobody": (register(), 400, "register one"),
    "both": (register(producer="p", consumer="c"), 400, "register one"),
    "a third way": (register(consumer="c", consumeWay=2), 400, "consumeWay"),
    "a way of words": (register(consumer="c", consumeWay="all"), 400, "consumeWay"),
    "another beginning": (register(consumer="c", first="middle"), 400, "first"),
    "no topic to register for": (post("/mq/register", producer="p"), 400, "topic"),
    "a topic that can be none": (post("/mq/register", topic="a/b", producer="p"), 500, "path"),
    "a producer with a path": (register(producer="a/b"), 500, "path characters"),
    "a consumer with a colon": (register(consumer="a:b"), 500, "colon"),
    "a long name": (register(consumer=LONG), 500, "longer than 200 bytes"),
    "the consumer in another way": (register(consumer=CONSUMER, consumeWay=1), 500, "clustering"),
    "a producer of another topic": (
        post("/mq/register", topic="other", producer=PRODUCER),
        500,
        "is registered for the topic orders",
    ),
    "a consumer in other letters": (register(consumer=CONSUMER.upper()), 500, "case"),
    "a consumer of another topic": (
        post("/mq/register", topic="other", consumer=CONSUMER),
        500,
        "is registered for the topic orders",
    ),
    "an unknown consumer to unregister": (
        post("/mq/unregister", consumer="X"),
        500,
        "haven't registered",
    ),
    "an unknown producer to unregister": (
        post("/mq/unregister", producer="X"),
        500,
        "haven't registered",
    ),
    "nobody to unregister": (post("/mq/unregister"), 400, "consumer"),
    # Settings.
    "no JSON": (config(b"consumer=c"), 400, "the body must be JSON"),
    "an array": (config([]), 400, "the body must be JSON"),
    "no body": (config(b""), 400, "the body must be JSON"),
    "settings of nobody": (config({"pause": 1}), 400, "consumer"),
    "settings of somebody unknown": (config({"consumer": "X"}), 500, "haven't registered"),
    "a size of 0": (setting(maxPullSize=0), 400, "maxPullSize must be between 1 and 128"),
    "a size of 129": (setting(maxPullSize=129), 400, "maxPullSize"),
    "a size of words": (setting(maxPullSize="many"), 400, "maxPullSize"),
    "a half size": (setting(maxPullSize=1.5), 400, "maxPullSize"),
    "a short timeout": (setting(consumeTimeoutInMillis=9_999), 400, "consumeTimeoutInMillis"),
    "a long timeout": (setting(consumeTimeoutInMillis=129_600_001), 400, "consumeTimeoutInMillis"),
    "a short pull": (setting(pullTimeoutInMillis=999), 400, "pullTimeoutInMillis"),
    "a third pause": (setting(pause=2), 400, "pause"),
    "a third limit": (setting(rateLimitEnabled=-1), 400, "rateLimitEnabled"),
    "a rate of 0": (setting(limitRate=0), 400, "limitRate"),
    "a time before the epoch": (setting(resetOffsetTimestamp=-1), 400, "resetOffsetTimestamp"),
    "an unknown message": (setting(retryMsgId="F" * 32), 500, "there is no message"),
    "offsets of nobody": (get("/mq/clustering/queue/offset"), 400, "consumer"),
    "offsets of somebody unknown": (
        get("/mq/clustering/queue/offset", consumer="X"),
        500,
        "haven't registered",
    ),
    "a page too large": (
        get("/mq/clustering/pop/ack", consumer=CONSUMER, pageSize=10_000),
        400,
        "pageSize",
    ),
    "an id of nothing": (get("/mq/find", topic=TOPIC), 400, "id"),
}


def state(talk: WorldTalk) -> Any:
    return (
        talk.config(),
        talk.ask(get("/topic/httpProducer")),
        talk.ask(get("/topic/httpConsumer")),
        sorted(talk.world.broker.topics),
        talk.world.broker.topics[TOPIC].depth(),
    )


@pytest.mark.parametrize("row", ROWS)
def test_a_bad_input(row: str) -> None:
    request, status, text = ROWS[row]
    talk = WorldTalk()
    talk.begin()
    before = state(talk)
    said = talk.ask(request)
    assert (said["status"], "result" in said) == (status, False), said
    assert text in said["message"], said
    assert state(talk) == before
    talk.produce("after")
    assert talk.bodies() == ["after"]
    talk.world.broker.check()


def test_a_broadcast_needs_a_client() -> None:
    talk = WorldTalk()
    talk.begin(way=1)
    for client in ("", "  "):
        assert talk.try_message(clientId=client)["message"].startswith("clientId is needed")
    refused = talk.try_message(clientId="a/b")
    assert (refused["status"], "path" in refused["message"]) == (500, True)


def test_clients_of_a_broadcast_are_bounded() -> None:
    talk = WorldTalk(settings=MqcloudSettings(mqcloud_clients_max=2))
    talk.begin(way=1)
    talk.message(clientId="1")
    talk.message(clientId="2")
    reply = talk.request(message(clientId="3"))
    assert reply.status == 429
    assert b"has 2 clients already" in reply.body


def test_what_is_not_there_is_404() -> None:
    talk = WorldTalk()
    for path in ("/mq", "/mq/", "/mq/nothing", "/mq/message/more", "/mq/config", "/mq/config/a/b"):
        assert talk.request(http(path)).status == 404, path


def test_a_broker_under_limits_says_so_in_the_status_of_http() -> None:
    """The documented client looks at nothing else, and sends again."""
    talk = WorldTalk(World(limits=Limits(topics_max=1)))
    talk.begin()
    reply = talk.request(post("/mq/register", topic="second", producer="p"))
    assert reply.status == 429
    assert msgspec.json.decode(reply.body)["status"] == 500


def test_a_topic_of_services_is_none_for_messages() -> None:
    talk = WorldTalk()
    assert talk.request(http("/service?cmd=declare&topic_mask=2")).status == 200
    said = talk.ask(post("/mq/register", topic="service", producer="p"))
    assert (said["status"], "services" in said["message"]) == (500, True)


def test_it_registers_by_itself_if_told_to() -> None:
    talk = WorldTalk(settings=MqcloudSettings(mqcloud_auto_register=True))
    assert talk.try_message()["status"] == 500, "there is no such topic"
    assert talk.ask(post("/mq/produce", producer="p", message="m"))["status"] == 500
    talk.produce("m")
    assert talk.drain() == ["m"]
    assert talk.try_message(consumer="all", clientId="one")["result"]["status"] == "FOUND"


def test_the_configuration_registers() -> None:
    settings = MqcloudSettings(
        mqcloud_producers="orders-producer=orders, other-producer=other",
        mqcloud_consumers="billing=orders, screens=other:broadcast",
        mqcloud_queues=2,
    )
    talk = WorldTalk(settings=settings)
    for _ in range(2):
        talk.produce("m")
        assert talk.drain() == ["m"]
        listed = talk.ask(get("/topic/httpConsumer"))
        assert sorted((one["topic"], one["consumeWay"]) for one in listed) == [
            ("orders", 0),
            ("other", 1),
        ]
        assert len(talk.offsets()) == 2
        talk.restart()
