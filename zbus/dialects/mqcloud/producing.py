"""`/mq/produce` and `/mq/produce/batch` (specification, sections 2 and 9)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, Final

import msgspec

from zbus.core.api import (
    DELAY_MS_MAX,
    BrokerError,
    Duplicate,
    Outcome,
    Partition,
    Silent,
    Stored,
    Ticket,
    Topic,
    make_row,
    topic_unknown,
)
from zbus.dialects.mqcloud.context import MqcloudCall, MqcloudContext, not_registered
from zbus.dialects.mqcloud.ids import queue_of
from zbus.dialects.mqcloud.replies import FAILED, OK, MqcloudReply
from zbus.dialects.mqcloud.request_id import BROKER
from zbus.documents import NOT_JSON
from zbus.edge.params import LONG_MAX, BadParameter
from zbus.wire.target import has_controls

MESSAGE_BYTES_MAX: Final = 4 << 20
_ORDER_LENGTH_MAX: Final = 8 << 10
_KEYS_BYTES_MAX: Final = 1_024
_SECOND_MS, _MINUTE_MS = 1_000, 60_000
_LEVELS_MS: Final[tuple[int, ...]] = (
    0,
    *(seconds * _SECOND_MS for seconds in (1, 5, 10, 30)),
    *(minutes * _MINUTE_MS for minutes in (*range(1, 11), 20, 30, 60, 120)),
)
"""Of `delayLevel`, by number."""

_STEP: Final = 16
_PUT_WORK: Final = 10
"""Messages that are put at once, and what work one is."""


class ProduceReply(MqcloudReply):
    """Of one message."""

    __slots__ = ("context", "message_id")

    context: MqcloudContext
    message_id: bytes

    def answer(self, outcome: Outcome) -> None:
        if not isinstance(outcome, Stored | Duplicate):
            super().answer(outcome)
            return
        partition, offset = outcome.partition, self.offset
        self.respond_ok(
            {
                "sendStatus": "SEND_OK",
                "msgId": self.message_id.decode(),
                "messageQueue": queue_document(partition.topic, partition.index),
                "queueOffset": offset,
                "offsetMsgId": self.context.ids.offset_id(partition.index, offset),
                "regionId": "DefaultRegion",
                "traceOn": True,
            }
        )


def queue_document(topic: Topic, index: int) -> dict[str, object]:
    """`messageQueue`."""
    return {"topic": topic.name, "brokerName": BROKER, "queueId": index}


def produce(call: MqcloudCall) -> None:
    """`/mq/produce`."""
    params, context = call.params, call.context
    producer = params.name(b"producer")
    body = params.required(b"message")
    if not body.strip():
        raise BadParameter("message must not be blank")
    due_ms = _due_ms(call)
    params.number(b"asyncRetryTimesIfSendFailed", 10, 1)  # nothing fails here and is tried later
    order_id = params.text(b"orderId")
    if len(order_id) > _ORDER_LENGTH_MAX:
        raise BadParameter(f"orderId has at most {_ORDER_LENGTH_MAX} characters")
    in_turn = params.flag(b"ordered", False) or params.flag(b"roundRobin", False)
    topic = _topic(call, producer)
    if topic is None:
        return
    if len(body) > MESSAGE_BYTES_MAX:
        call.fail(f"a message has at most {MESSAGE_BYTES_MAX} bytes, not {len(body)}")
        return
    keys = params.optional(b"keys")[:_KEYS_BYTES_MAX]
    if has_controls(keys):
        keys = keys[: _KEYS_BYTES_MAX // 3]  # in a header line each may be %XX
    if order_id:
        call.peer.work -= len(order_id) >> 3
        partition = topic.partitions[queue_of(order_id, len(topic.partitions))]
        due_ms = 0  # as in the original: its queue is in order
    elif in_turn:
        partition = context.registry.next_queue(topic)
        due_ms = 0
    else:
        partition = topic.partition_for(b"")
    reply = ProduceReply(call.asked, call.peer)
    reply.context = context
    reply.message_id = _put(context, reply, partition, body, keys, due_ms)


def _put(
    context: MqcloudContext,
    ticket: Ticket,
    partition: Partition,
    body: bytes,
    keys: bytes,
    due_ms: int,
) -> bytes:
    """Store a message; give its id."""
    broker = context.broker
    id = context.ids.message_id(partition.index, broker.now_ms)
    broker.put(partition, ticket, make_row(id, b"", body, key=keys, due_ms=due_ms))
    return id


def _due_ms(call: MqcloudCall) -> int:
    """When the message is to be delivered; 0 = at once."""
    params = call.params
    if not (params.optional(b"delayLevel") or params.optional(b"deliveryTimestamp")):
        return 0
    level = params.number(b"delayLevel", LONG_MAX, 0)
    given = bool(params.optional(b"delayLevel").strip())
    if given and not 1 <= level < len(_LEVELS_MS):
        raise BadParameter(f"delayLevel must be between 1 and {len(_LEVELS_MS) - 1}")
    at_ms = params.number(b"deliveryTimestamp", LONG_MAX, 0)
    now_ms = call.context.broker.request_clock.received_ms()
    if at_ms < 0 or at_ms > now_ms + DELAY_MS_MAX:
        raise BadParameter("deliveryTimestamp is at most ten years from now")
    if level:
        return now_ms + _LEVELS_MS[level]
    return at_ms if at_ms > now_ms else 0


def _topic(call: MqcloudCall, producer: str) -> Topic | None:
    """The producer's topic; None if there is none for the caller, which was answered."""
    registry, registers = call.context.registry, call.context.settings.mqcloud_auto_register
    topic = registry.topic_of(producer, call.peer)
    name = producer.removesuffix("-producer")
    if topic is None and registers and name != producer and call.context.settings.keeps(name):
        if not call.may(name):
            return None
        registry.register_producer(Silent(), name, producer)
        topic = registry.topic_of(producer)
    if topic is None:
        call.fail(not_registered("producer", producer))
        return None
    return topic if call.may(topic.name) else None


# -- many ----------------------------------------------------------------------------------------


class _Many:
    """The answer to several messages, when the last one is settled."""

    def __init__(self, reply: MqcloudReply, count: int) -> None:
        self.reply = reply
        self._left = count
        self._outcomes: list[dict[str, Any]] = [{"status": OK} for _ in range(count)]

    def ticket(self, index: int) -> Ticket:
        """Of one of them."""
        return self.reply.step(partial(self._settled, index), refusals=True)

    def _settled(self, index: int, outcome: Outcome) -> None:
        if isinstance(outcome, BrokerError):
            self._outcomes[index] = {"status": FAILED, "message": outcome.text}
        self._left -= 1
        if self._left:
            return
        refused = sum(one["status"] != OK for one in self._outcomes)
        if refused:
            text = f"{refused} of {len(self._outcomes)} messages are not stored"
            self.reply.respond_status(FAILED, text, self._outcomes)
        else:
            self.reply.respond_ok()


def produce_batch(call: MqcloudCall) -> None:
    """`/mq/produce/batch`: each of them is stored or not, as the answer says in their order."""
    params, context = call.params, call.context
    producer = params.name(b"producer")
    bodies = _bodies(params.required(b"messages"), context.broker.limits.batch_messages_max)
    due_ms = _due_ms(call)
    topic = _topic(call, producer)
    if topic is not None:
        many = _Many(call.reply(), len(bodies))
        call.peer.begin(_put_each(context, many, topic, bodies, due_ms))


def _put_each(
    context: MqcloudContext, many: _Many, topic: Topic, bodies: list[bytes], due_ms: int
) -> Iterator[int]:
    """In steps, each of which tells what work it was."""
    for index, body in enumerate(bodies):
        ticket, partition = many.ticket(index), topic.partition_for(b"")
        if partition.removed:
            ticket.settle(topic_unknown(topic.name))
        else:
            _put(context, ticket, partition, body, b"", due_ms)
        if not index % _STEP:
            yield _STEP * _PUT_WORK


def _bodies(text: bytes, most: int) -> list[bytes]:
    """Of an array: texts as they are, anything else as JSON."""
    try:
        items = msgspec.json.decode(text, type=list[msgspec.Raw])
        bodies = [_body(bytes(item)) for item in items]
    except NOT_JSON as error:
        raise BadParameter("messages must be a JSON array") from error
    if not bodies:
        raise BadParameter("messages must not be empty")
    if len(bodies) > most:
        raise BadParameter(f"messages has at most {most} elements")
    if not all(body.strip() and len(body) <= MESSAGE_BYTES_MAX for body in bodies):
        raise BadParameter(f"each of messages has 1 to {MESSAGE_BYTES_MAX} bytes, and is not blank")
    return bodies


def _body(item: bytes) -> bytes:
    return msgspec.json.decode(item, type=str).encode() if item.startswith(b'"') else item
