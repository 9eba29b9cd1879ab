"""The registry over HTTP, the settings of consumers, and what a console shows (specification,
sections 6 to 9 and 11)."""

from __future__ import annotations

from collections.abc import Callable
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
from zbus.dialects.mqcloud.context import BROKER, Request
from zbus.dialects.mqcloud.ids import Placed, Stored, meant_by
from zbus.dialects.mqcloud.locks import Queue
from zbus.dialects.mqcloud.registry import Consumer, Found, Way
from zbus.dialects.mqcloud.replies import FAILED, JSON, NO_DATA, Reply, encode
from zbus.dialects.mqcloud.request_id import RequestId
from zbus.dialects.mqcloud.settings import (
    CONSUME_TIMEOUT_MS_MAX,
    CONSUME_TIMEOUT_MS_MIN,
    PULL_SIZE_MAX,
)
from zbus.documents import NOT_JSON
from zbus.edge.connection import Connection
from zbus.edge.params import INT_MAX, LONG_MAX, BadParameter, Params

_LOOKED_MAX: Final = 10_000
"""Messages of one millisecond that are looked at for an id."""

_PAGE_SIZE_MAX: Final = 1_000


def _consumer(request: Request, name: str, peer: Connection) -> Found | None:
    """A consumer that the caller may see; None if the request was refused."""
    dialect = request.dialect
    dialect.registry.configure()
    found, work = dialect.registry.consumer(name)
    peer.work -= work
    if found is None:
        request.reply(peer).respond_status(FAILED, f"consumer:{name} haven't registered")
        return None
    return found if request.may(peer, found.topic.name, name) else None


class _Then:
    """A ticket's outcome is the whole answer."""

    def __init__(self, reply: Reply) -> None:
        self._reply = reply

    def __call__(self, outcome: Outcome) -> None:
        self._reply.respond_ok()


# -- registry -------------------------------------------------------------------------------------


def register(request: Request, params: Params, peer: Connection) -> None:
    """`/mq/register`: a producer or a consumer of a topic, which is made if there is none."""
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
    if not request.may(peer, topic_name, consumer, whole=bool(producer)):
        return
    registry, reply = request.dialect.registry, request.reply(peer)
    registry.configure()
    ticket = reply.step(_Then(reply))
    if producer:
        registry.register_producer(ticket, topic_name, producer)
    else:
        wanted = registry.new_consumer(way, first)
        registry.register_consumer(ticket, topic_name, consumer, wanted)


def unregister(request: Request, params: Params, peer: Connection) -> None:
    """`/mq/unregister`. What a consumer has done so far is forgotten with it."""
    producer = params.text(b"producer")
    registry = request.dialect.registry
    if producer:
        topic, work = registry.topic_of(producer)
        peer.work -= work
        if topic is None:
            request.reply(peer).respond_status(FAILED, f"producer:{producer} haven't registered")
        elif request.may(peer, topic.name, whole=True):
            reply = request.reply(peer)
            registry.unregister_producer(reply.step(_Then(reply)), topic, producer)
        return
    found = _consumer(request, params.name(b"consumer"), peer)
    if found is not None:
        reply = request.reply(peer)
        registry.unregister_consumer(reply.step(_Then(reply)), found)


def producers(request: Request, params: Params, peer: Connection) -> None:
    """`/topic/httpProducer`: the list that proxies poll."""
    listed = [
        {"topic": topic.name, "producer": name}
        for topic, notes in request.dialect.registry.all()
        if peer.grant is None or peer.grant.sees(topic.name)
        for name in notes.producers
    ]
    peer.work -= len(listed)
    request.reply(peer).respond(200, JSON, encode(listed))


def consumers(request: Request, params: Params, peer: Connection) -> None:
    """`/topic/httpConsumer`, likewise."""
    listed = [
        {"topic": topic.name, "consumer": name, "consumeWay": one.way}
        for topic, notes in request.dialect.registry.all()
        for name, one in notes.consumers.items()
        if peer.grant is None or peer.grant.sees(topic.name, name)
    ]
    peer.work -= len(listed)
    request.reply(peer).respond(200, JSON, encode(listed))


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

_read_settings = msgspec.json.Decoder(_Settings).decode


def configure(request: Request, params: Params, peer: Connection, body: bytes) -> None:
    """`/mq/consumer/config`: each setting that is named, and nothing if one is bad."""
    try:
        wanted = _read_settings(body)
    except NOT_JSON as error:
        raise BadParameter(f"the body must be JSON with a consumer: {error}") from error
    for name, low, high in _RANGES:
        value = getattr(wanted, name)
        if value is not None and not low <= value <= high:
            raise BadParameter(f"{_camel(name)} must be between {low} and {high}")
    found = _consumer(request, wanted.consumer.strip(), peer)
    if found is None:
        return
    groups = _groups(request, found, wanted.client_id, peer)
    if groups is None:
        return
    reply = request.reply(peer)
    steps: list[Callable[[Ticket], None]] = []
    if (changed := _changed(found, wanted)) is not None:
        steps.append(lambda ticket: request.dialect.registry.change(ticket, found, changed))
    if wanted.reset_offset_timestamp is not None:
        start = Start(time_ms=wanted.reset_offset_timestamp, moves=True)
        seek = request.dialect.broker.seek
        steps += [lambda ticket, group=group: seek(ticket, group, start) for group in groups]  # type: ignore[misc]
    if wanted.retry_msg_id:
        id = wanted.retry_msg_id.strip().encode()
        steps += [_retry(request, group, id) for group in groups]
    _one_after_another(reply, steps)


def _groups(
    request: Request, found: Found, client_id: str | None, peer: Connection
) -> list[Group] | None:
    """Those that are meant; None if there is no such client, which was said."""
    groups = found.groups()
    if client_id and found.consumer.broadcast:
        groups = [one for one in groups if one[0].lower() == client_id.lower()]
        if not groups:
            text = f"client {client_id} of {found.name} is not known"
            request.reply(peer).respond_status(FAILED, text)
            return None
    return [group for _, group in groups]


def _changed(found: Found, wanted: _Settings) -> Consumer | None:
    consumer = found.consumer
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


def _one_after_another(reply: Reply, steps: list[Callable[[Ticket], None]]) -> None:
    """Each when the one before is durable; the first refusal ends it."""

    def go_on(outcome: Outcome | None = None) -> None:
        if not steps:
            reply.respond_ok()
            return
        steps.pop(0)(reply.step(go_on))

    go_on()


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)


# -- one message ----------------------------------------------------------------------------------


def _retry(request: Request, group: Group, id: bytes) -> Callable[[Ticket], None]:
    def begin(ticket: Ticket) -> None:
        broker = request.dialect.broker

        def found(place: tuple[Partition, Chunk, int] | None) -> None:
            if place is None:
                text = f"there is no message {id.decode('utf-8', 'replace')[:64]}"
                ticket.settle(BrokerError(Refusal.OFFSET_UNKNOWN, text))
            else:
                partition, chunk, at = place
                broker.again(ticket, group, partition, chunk.first + at)

        _look(group.topic, id, found, ticket)

    return begin


def find(request: Request, params: Params, peer: Connection) -> None:
    """`/mq/find`: the message of a msgId or an offsetMsgId."""
    name, id = params.name(b"topic"), params.required(b"id").strip()
    if not request.may(peer, name, whole=True):
        return
    reply, topic = request.reply(peer), request.dialect.broker.topic(name)

    def found(place: tuple[Partition, Chunk, int] | None) -> None:
        if place is None:
            reply.respond_status(NO_DATA)
            return
        partition, chunk, at = place
        offset = chunk.first + at
        body = chunk.bodies[at].decode("utf-8", "replace")
        reply.respond_ok(
            {
                "messageId": chunk.id_of(at, partition.index).decode("utf-8", "replace"),
                "offsetMsgId": request.dialect.ids.offset_id(partition.index, offset),
                "messageQueue": {
                    "topic": name,
                    "brokerName": BROKER,
                    "queueId": partition.index,
                },
                "queueOffset": offset,
                "keys": chunk.key_of(at).decode("utf-8", "replace"),
                "timestamp": chunk.time_of(at),
                "message": body,
            }
        )

    if topic is None:
        reply.respond_status(NO_DATA)
    else:
        _look(topic, id, reply.guard(found), reply)


_FoundAt = Callable[[tuple[Partition, Chunk, int] | None], None]


def _look(topic: Topic, id: bytes, done: _FoundAt, ticket: Ticket) -> None:
    """Find the message of an id, by what the id says of it. The ticket gets refusals."""
    meant = meant_by(id)
    if meant is None or meant.partition >= len(topic.partitions):
        done(None)
        return
    partition = topic.partitions[meant.partition]
    if isinstance(meant, Placed):
        _look_through(partition, range(meant.offset, meant.offset + 1), None, done, ticket)
    else:
        _look_by_time(partition, meant, id, done, ticket)


def _look_by_time(
    partition: Partition, meant: Stored, id: bytes, done: _FoundAt, ticket: Ticket
) -> None:
    """Where messages of that time are."""

    def begins(place: int | BrokerError) -> None:
        if isinstance(place, BrokerError):
            ticket.settle(place)
        else:
            end = min(place + _LOOKED_MAX, partition.visible)
            _look_through(partition, range(place, end), id, done, ticket, meant.time_ms)

    partition.log.find_time(meant.time_ms, begins)


def _look_through(
    partition: Partition,
    offsets: range,
    id: bytes | None,
    done: _FoundAt,
    ticket: Ticket,
    time_ms: int = 0,
) -> None:
    found: list[tuple[Partition, Chunk, int]] = []

    def each(partition: Partition, chunk: Chunk, at: int) -> bool:
        if id is None or chunk.id_of(at, partition.index) == id:
            found.append((partition, chunk, at))
            return False
        return not time_ms or chunk.time_of(at) <= time_ms

    def looked(problem: BrokerError | None) -> None:
        if problem is not None:
            ticket.settle(problem)
        else:
            done(found[0] if found else None)

    PointReads([(partition, offset) for offset in offsets], each, looked)


# -- what a console shows -------------------------------------------------------------------------


def settings_of(request: Request, params: Params, peer: Connection, name: str) -> None:
    """`/mq/config/{consumer}`."""
    dialect = request.dialect
    dialect.registry.configure()
    found, work = dialect.registry.consumer(name)
    peer.work -= work
    if found is None:
        request.reply(peer).respond_status(NO_DATA)
        return
    if not request.may(peer, found.topic.name, name):
        return
    consumer, groups = found.consumer, found.groups()
    paused = consumer.paused if consumer.broadcast else any(group.paused for _, group in groups)
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
        "queueOffsets": _offsets(request, found, peer),
    }
    request.reply(peer).respond_ok(result)


def offsets(request: Request, params: Params, peer: Connection) -> None:
    """`/mq/clustering/queue/offset` and `/mq/broadcast/queue/offset`: whichever fits."""
    found = _consumer(request, params.name(b"consumer"), peer)
    if found is not None:
        request.reply(peer).respond_ok(_offsets(request, found, peer))


def _offsets(request: Request, found: Found, peer: Connection) -> object:
    """Of a clustering consumer a list of queues, else one for each client."""

    def listed(group: Group) -> list[dict[str, Any]]:
        queues = request.dialect.locks.of(group)
        peer.work -= 4 * len(queues)
        return [queue_info(group, index, queue) for index, queue in enumerate(queues)]

    groups = found.groups()
    if found.consumer.broadcast:
        return {client: listed(group) for client, group in groups}
    return [info for _, group in groups for info in listed(group)]


def ranges(request: Request, params: Params, peer: Connection) -> None:
    """`/mq/clustering/pop/ack` and `/mq/broadcast/pop/ack`: batches in the hands of clients."""
    page = max(1, params.number(b"page", INT_MAX, 1))
    size = params.number(b"pageSize", INT_MAX, 20)
    if not 1 <= size <= _PAGE_SIZE_MAX:
        raise BadParameter(f"pageSize must be between 1 and {_PAGE_SIZE_MAX}")
    found = _consumer(request, params.name(b"consumer"), peer)
    if found is None:
        return
    rows = [
        row
        for client, group in found.groups()
        for index, queue in enumerate(request.dialect.locks.of(group))
        for row in _ranges(client, group, index, queue)
    ]
    peer.work -= len(rows)
    result = {"total": len(rows), "list": rows[(page - 1) * size : page * size]}
    request.reply(peer).respond_ok(result)


def _ranges(client: str, group: Group, index: int, queue: Queue) -> list[dict[str, Any]]:
    attempts = group.progress(index).attempts
    rows = []
    for lock in queue.locks():
        place = (BROKER, index, lock.begin, lock.next, lock.at_ms, lock.forced)
        row: dict[str, Any] = {
            "brokerName": BROKER,
            "queueId": index,
            "offset": lock.begin,
            "nextOffset": lock.next,
            "lockTime": lock.at_ms,
            "forceAck": lock.forced,
            "expireTime": lock.ends_ms,
            "requestId": RequestId(*place).text,
            "retryTimes": max(0, attempts.get(lock.begin, 1) - 1),
            "clientIp": queue.client,
        }
        if client:
            row["clientId"] = client
        rows.append(row)
    return rows
