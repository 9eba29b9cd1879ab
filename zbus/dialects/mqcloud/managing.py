"""The registry over HTTP, the settings of consumers, and what a console shows (specification,
sections 6 to 9 and 11)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import msgspec

from zbus.core.api import (
    BrokerError,
    Chunk,
    Group,
    Outcome,
    Partition,
    PointReads,
    Refusal,
    Start,
    Ticket,
    Topic,
)
from zbus.dialects.mqcloud.consuming import queue_info
from zbus.dialects.mqcloud.context import MqcloudCall, not_registered
from zbus.dialects.mqcloud.ids import Placed, meant_by
from zbus.dialects.mqcloud.locks import Queue
from zbus.dialects.mqcloud.producing import queue_document
from zbus.dialects.mqcloud.registry import Consumer, Found, Way
from zbus.dialects.mqcloud.replies import JSON, NO_DATA, encode
from zbus.dialects.mqcloud.request_id import BROKER, request_id_of
from zbus.dialects.mqcloud.settings import (
    CONSUME_TIMEOUT_MS_MAX,
    CONSUME_TIMEOUT_MS_MIN,
    PULL_SIZE_MAX,
)
from zbus.documents import NOT_JSON
from zbus.edge.params import INT_MAX, LONG_MAX, BadParameter

_LOOKED_MAX: Final = 10_000
"""Messages of one millisecond that are looked at for an id."""

_PAGE_SIZE_MAX: Final = 1_000

# -- registry -------------------------------------------------------------------------------------


def register(call: MqcloudCall) -> None:
    """`/mq/register`: a producer or a consumer of a topic, which is made if there is none."""
    params, registry = call.params, call.context.registry
    topic_name = params.name(b"topic")
    producer = params.text(b"producer")
    consumer = params.text(b"consumer")
    way = params.number(b"consumeWay", INT_MAX, Way.CLUSTERING)
    first = params.text(b"first")
    if bool(producer) == bool(consumer):
        raise BadParameter("register one: a producer, or a consumer")
    if way not in (Way.CLUSTERING, Way.BROADCAST):
        raise BadParameter("consumeWay is 0 (clustering) or 1 (broadcast)")
    if first not in ("", "earliest", "latest"):
        raise BadParameter("first is earliest or latest")
    if not call.may(topic_name, consumer, whole=bool(producer)):
        return
    if not call.context.settings.keeps(topic_name):  # then only one that is known here can be bad
        if producer and registry.topic_of(producer) is None:
            call.fail(not_registered("producer", producer))
            return
        if consumer and registry.consumer(consumer) is None:
            call.fail(not_registered("consumer", consumer))
            return
    if producer:
        _run(call, [lambda done: registry.register_producer(done, topic_name, producer)])
    else:
        wanted = registry.new_consumer(way, first)
        _run(call, [lambda done: registry.register_consumer(done, topic_name, consumer, wanted)])


def unregister(call: MqcloudCall) -> None:
    """`/mq/unregister`. What a consumer has done so far is forgotten with it."""
    registry, producer = call.context.registry, call.params.text(b"producer")
    if producer:
        topic = registry.topic_of(producer, call.peer)
        if topic is None:
            call.fail(not_registered("producer", producer))
        elif call.may(topic.name, whole=True):
            _run(call, [lambda done: registry.unregister_producer(done, topic, producer)])
        return
    found = call.consumer(call.params.name(b"consumer"))
    if found is not None:
        _run(call, [lambda done: registry.unregister_consumer(done, found)])


_Step = Callable[[Ticket], None]


def _run(call: MqcloudCall, steps: list[_Step]) -> None:
    """Each step when the one before is durable; the first refusal ends it."""
    reply = call.reply()

    def go_on(outcome: Outcome | None = None) -> None:
        if steps:
            steps.pop(0)(reply.step(go_on))
        else:
            reply.respond_ok()

    go_on()


def producers(call: MqcloudCall) -> None:
    """`/topic/httpProducer`: the list that proxies poll."""
    grant = call.peer.grant
    _respond_list(
        call,
        [
            {"topic": topic.name, "producer": name}
            for topic, notes in call.context.registry.all()
            if grant is None or grant.sees(topic.name)
            for name in notes.producers
        ],
    )


def consumers(call: MqcloudCall) -> None:
    """`/topic/httpConsumer`, likewise."""
    grant = call.peer.grant
    _respond_list(
        call,
        [
            {"topic": topic.name, "consumer": name, "consumeWay": one.way}
            for topic, notes in call.context.registry.all()
            for name, one in notes.consumers.items()
            if grant is None or grant.sees(topic.name, name)
        ],
    )


def _respond_list(call: MqcloudCall, listed: list[dict[str, Any]]) -> None:
    """Without an envelope."""
    call.peer.work -= len(listed)
    call.reply().respond(200, JSON, encode(listed))


# -- settings of a consumer -----------------------------------------------------------------------


class _Settings(msgspec.Struct, rename="camel"):
    """The body of `/mq/consumer/config`."""

    consumer: str
    max_pull_size: int | None = None
    consume_timeout_in_millis: int | None = None
    pull_timeout_in_millis: int | None = None
    pause: int | None = None
    rate_limit_enabled: int | None = None
    limit_rate: int | None = None
    reset_offset_timestamp: int | None = None
    client_id: str | None = None
    retry_msg_id: str | None = None


_RANGES: Final = (
    ("max_pull_size", 1, PULL_SIZE_MAX),
    ("consume_timeout_in_millis", CONSUME_TIMEOUT_MS_MIN, CONSUME_TIMEOUT_MS_MAX),
    ("pull_timeout_in_millis", 1_000, 60_000),
    ("pause", 0, 1),
    ("rate_limit_enabled", 0, 1),
    ("limit_rate", 1, 1_000_000_000),
    ("reset_offset_timestamp", 0, LONG_MAX),
)

_NAMES: Final = dict(
    zip(_Settings.__struct_fields__, _Settings.__struct_encode_fields__, strict=True)
)

_read_settings = msgspec.json.Decoder(_Settings).decode


def configure(call: MqcloudCall) -> None:
    """`/mq/consumer/config`: each setting that is named, and nothing if one is bad."""
    try:
        wanted = _read_settings(call.body)
    except NOT_JSON as error:
        raise BadParameter(f"the body must be JSON with a consumer: {error}") from error
    for name, low, high in _RANGES:
        value = getattr(wanted, name)
        if value is not None and not low <= value <= high:
            raise BadParameter(f"{_NAMES[name]} must be between {low} and {high}")
    found = call.consumer(wanted.consumer.strip())
    if found is None:
        return
    groups = found.groups()
    if wanted.client_id and found.consumer.broadcast:
        groups = [one for one in groups if one[0].lower() == wanted.client_id.lower()]
        if not groups:
            call.fail(f"client {wanted.client_id} of {found.name} is not known")
            return
    _run(call, _steps(call, found, wanted, [group for _, group in groups]))


def _steps(call: MqcloudCall, found: Found, wanted: _Settings, groups: list[Group]) -> list[_Step]:
    """What is to be done for it."""
    broker, registry = call.context.broker, call.context.registry
    steps: list[_Step] = []
    if (changed := _changed(found.consumer, wanted)) is not None:
        steps.append(lambda ticket: registry.change(ticket, found, changed))
    if wanted.reset_offset_timestamp is not None:
        start = Start(time_ms=wanted.reset_offset_timestamp, moves=True)
        steps += [partial(broker.seek, group=group, start=start) for group in groups]
    if wanted.retry_msg_id:
        id = wanted.retry_msg_id.strip().encode()
        steps += [partial(_retry, call, group, id) for group in groups]
    return steps


def _changed(consumer: Consumer, wanted: _Settings) -> Consumer | None:
    changes: dict[str, Any] = {
        "pull_size": wanted.max_pull_size,
        "consume_timeout_ms": wanted.consume_timeout_in_millis,
        "pull_timeout_ms": wanted.pull_timeout_in_millis,
        "limit_rate": wanted.limit_rate,
        "paused": None if wanted.pause is None else bool(wanted.pause),
        "limited": None if wanted.rate_limit_enabled is None else bool(wanted.rate_limit_enabled),
    }
    given = {name: value for name, value in changes.items() if value is not None}
    return msgspec.structs.replace(consumer, **given) if given else None


# -- one message ----------------------------------------------------------------------------------

_Place = tuple[Partition, Chunk, int]


def _retry(call: MqcloudCall, group: Group, id: bytes, ticket: Ticket) -> None:
    def found(place: _Place | None) -> None:
        if place is None:
            text = f"there is no message {id.decode('utf-8', 'replace')[:64]}"
            ticket.settle(BrokerError(Refusal.OFFSET_UNKNOWN, text))
        else:
            partition, chunk, at = place
            call.context.broker.again(ticket, group, partition, chunk.first + at)

    _look(group.topic, id, found, ticket)


def find(call: MqcloudCall) -> None:
    """`/mq/find`: the message of a msgId or an offsetMsgId."""
    name, id = call.params.name(b"topic"), call.params.required(b"id").strip()
    if not call.may(name, whole=True):
        return
    reply, topic = call.reply(), call.context.broker.topic(name)

    def found(place: _Place | None) -> None:
        if place is None:
            reply.respond_status(NO_DATA)
            return
        partition, chunk, at = place
        offset = chunk.first + at
        reply.respond_ok(
            {
                "messageId": chunk.id_of(at, partition.index).decode("utf-8", "replace"),
                "offsetMsgId": call.context.ids.offset_id(partition.index, offset),
                "messageQueue": {**queue_document(partition.topic, partition.index), "topic": name},
                "queueOffset": offset,
                "keys": chunk.key_of(at).decode("utf-8", "replace"),
                "timestamp": chunk.time_of(at),
                "message": chunk.bodies[at].decode("utf-8", "replace"),
            }
        )

    if topic is None:
        reply.respond_status(NO_DATA)
    else:
        _look(topic, id, reply.guard(found), reply)


def _look(topic: Topic, id: bytes, done: Callable[[_Place | None], None], ticket: Ticket) -> None:
    """Find the message of an id, by what the id says of it: its place, or when it was stored. The
    ticket gets refusals."""
    meant = meant_by(id)
    if meant is None or meant.partition >= len(topic.partitions):
        done(None)
        return
    partition = topic.partitions[meant.partition]
    found: list[_Place] = []

    def each(partition: Partition, chunk: Chunk, at: int) -> bool:
        if isinstance(meant, Placed) or chunk.id_of(at, partition.index) == id:
            found.append((partition, chunk, at))
            return False
        return chunk.time_of(at) <= meant.time_ms

    def looked(problem: BrokerError | None) -> None:
        if problem is not None:
            ticket.settle(problem)
        else:
            done(found[0] if found else None)

    def look(first: int | BrokerError) -> None:
        if isinstance(first, BrokerError):
            ticket.settle(first)
            return
        count = 1 if isinstance(meant, Placed) else _LOOKED_MAX
        offsets = range(first, min(first + count, partition.visible))
        PointReads([(partition, offset) for offset in offsets], each, looked)

    if isinstance(meant, Placed):
        look(meant.offset)
    else:
        partition.log.find_time(meant.time_ms, look)


# -- what a console shows -------------------------------------------------------------------------


def settings_of(call: MqcloudCall) -> None:
    """`/mq/config/{consumer}`."""
    name = call.params.text(b"consumer")
    found = call.context.registry.consumer(name, call.peer)
    if found is None:
        call.reply().respond_status(NO_DATA)
        return
    if not call.may(found.topic.name, name):
        return
    consumer = found.consumer
    paused = consumer.paused
    if not consumer.broadcast:
        paused = any(group.paused for _, group in found.groups())
    result: dict[str, Any] = {
        "messageModel": "BROADCASTING" if consumer.broadcast else "CLUSTERING",
        "topic": found.topic.name,
        "group": name,
        "maxPullSize": consumer.pull_size,
        "consumeTimeoutInMillis": consumer.consume_timeout_ms,
        "consumerPullTimeoutMillis": consumer.pull_timeout_ms,
        "pause": paused,
        "limitRate": consumer.limit_rate,
        # The original spells it so; its console reads it as it is written everywhere else.
        "rateLimierEnabled": consumer.limited,
        "rateLimiterEnabled": consumer.limited,
        "broadcasting": consumer.broadcast,
        "queueOffsets": _offsets(call, found),
    }
    call.reply().respond_ok(result)


def offsets(call: MqcloudCall) -> None:
    """`/mq/clustering/queue/offset` and `/mq/broadcast/queue/offset`: whichever fits."""
    found = call.consumer(call.params.name(b"consumer"))
    if found is not None:
        call.reply().respond_ok(_offsets(call, found))


def _offsets(call: MqcloudCall, found: Found) -> object:
    """Of a clustering consumer a list of queues, else one for each client."""

    def listed(group: Group) -> list[dict[str, Any]]:
        queues = call.context.locks.of(group)
        call.peer.work -= 4 * len(queues)
        return [queue_info(group, index, queue) for index, queue in enumerate(queues)]

    groups = found.groups()
    if found.consumer.broadcast:
        return {client: listed(group) for client, group in groups}
    return [info for _, group in groups for info in listed(group)]


def ranges(call: MqcloudCall) -> None:
    """`/mq/clustering/pop/ack` and `/mq/broadcast/pop/ack`: batches in the hands of clients."""
    page = max(1, call.params.number(b"page", INT_MAX, 1))
    size = call.params.number(b"pageSize", INT_MAX, 20)
    if not 1 <= size <= _PAGE_SIZE_MAX:
        raise BadParameter(f"pageSize must be between 1 and {_PAGE_SIZE_MAX}")
    found = call.consumer(call.params.name(b"consumer"))
    if found is None:
        return
    rows = [
        row
        for client, group in found.groups()
        for index, queue in enumerate(call.context.locks.of(group))
        for row in _ranges(client, group, index, queue)
    ]
    call.peer.work -= len(rows)
    result = {"total": len(rows), "list": rows[(page - 1) * size : page * size]}
    call.reply().respond_ok(result)


def _ranges(client: str, group: Group, index: int, queue: Queue) -> list[dict[str, Any]]:
    attempts = group.progress(index).attempts
    named = {"clientId": client} if client else {}
    return [
        {
            "brokerName": BROKER,
            "queueId": index,
            "offset": lock.begin,
            "nextOffset": lock.next,
            "lockTime": lock.at_ms,
            "forceAck": lock.forced,
            "expireTime": lock.ends_ms,
            "requestId": request_id_of(index, lock),
            "retryTimes": max(0, attempts.get(lock.begin, 1) - 1),
            "clientIp": queue.client,
            **named,
        }
        for lock in queue.locks()
    ]
