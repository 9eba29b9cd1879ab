"""`/mq/message`, `/mq/ack`, `/mq/unlock` (specification, sections 3 to 5)."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from zbus.core.api import (
    BrokerError,
    Delivered,
    Empty,
    EmptyReason,
    Group,
    Outcome,
    Partition,
    Pull,
    PullOptions,
    Silent,
    Slice,
)
from zbus.dialects.mqcloud.acking import NO_ACK, AckInfo, acknowledge, release, unlock
from zbus.dialects.mqcloud.context import MqcloudCall, MqcloudContext
from zbus.dialects.mqcloud.locks import Lock, Queue, is_gone
from zbus.dialects.mqcloud.producing import queue_document
from zbus.dialects.mqcloud.registry import Found, Way
from zbus.dialects.mqcloud.replies import FAILED, MqcloudReply
from zbus.dialects.mqcloud.request_id import request_id_of
from zbus.dialects.mqcloud.settings import PULL_SIZE_MAX
from zbus.edge.params import LONG_MAX, BadParameter, Params
from zbus.edge.rights import admit_reader

FOUND, NO_NEW_MSG = "FOUND", "NO_NEW_MSG"
OFFSET_ILLEGAL, NO_MATCHED_MSG = "OFFSET_ILLEGAL", "NO_MATCHED_MSG"
PAUSED, RATE_LIMITED = "PAUSED", "RATE_LIMITED"

NONE_LOCKABLE: Final = "no consumerQueueOffsetResult"
REQUEST_ID: Final = b"requestId"
_COOKIE: Final = b"rid"
_STATUS: Final = {
    EmptyReason.FILTERED: NO_MATCHED_MSG,
    EmptyReason.PAUSED: PAUSED,
    EmptyReason.THROTTLED: RATE_LIMITED,
}


class Client(NamedTuple):
    """Who asks, and what of."""

    found: Found
    group: Group
    address: str
    request_id: bytes  # empty: none
    pop: bool
    cookie: bool


def _client(call: MqcloudCall) -> Client | None:
    """None if there is nothing to be done, which was said."""
    params, context, registry = call.params, call.context, call.context.registry
    topic_name, name = params.name(b"topic"), params.name(b"consumer")
    client_id = params.text(b"clientId")
    # The documented Python sample says `pop=True`; whatever else it says must not fail.
    cookie = params.flag(b"useCookie", False)
    pop = params.optional(b"pop").strip().lower() == b"true"
    if not call.may(topic_name, name):
        return None
    found = registry.consumer_of(topic_name, name)
    registers = context.settings.mqcloud_auto_register and context.broker.topic(topic_name)
    if found is None and registers:
        wanted = registry.new_consumer(Way.BROADCAST if client_id else Way.CLUSTERING)
        registry.register_consumer(Silent(), topic_name, name, wanted)
        found = registry.consumer_of(topic_name, name)
    if found is None:
        known = registry.consumer(name, call.peer)
        why = (
            "haven't registered"
            if known is None
            else f"is not registered for the topic {topic_name}"
        )
        call.fail(f"consumer:{name} {why}")
        return None
    if found.consumer.broadcast != bool(client_id):
        text = f"clientId must not be given: {name} is a clustering consumer"
        call.fail(text if client_id else f"clientId is needed: {name} is a broadcast")
        return None
    group = registry.group(found, client_id)
    if isinstance(group, BrokerError):
        call.reply().settle(group)
        return None
    request_id = params.optional(REQUEST_ID).strip()
    if cookie and not request_id:
        request_id = _cookie(call)
    return Client(found, group, call.client_ip(), request_id, pop, cookie)


def _cookie(call: MqcloudCall) -> bytes:
    for pair in call.asked.head.fields.get(b"cookie", b"").split(b";"):
        name, _, value = pair.strip().partition(b"=")
        if name == _COOKIE:
            return value
    return b""


def ack(call: MqcloudCall) -> None:
    """`/mq/ack`."""
    client = _client(call)
    if client is None:
        return
    reply = call.reply()

    def done(info: AckInfo) -> None:
        reply.respond_status(info.status, info.message)

    if client.request_id:
        acknowledge(call.context, reply, client.group, client.request_id, client.pop, done)
    else:
        done(NO_ACK)


def unlock_queue(call: MqcloudCall) -> None:
    """`/mq/unlock`."""
    client = _client(call)
    if client is not None:
        info = unlock(call.context, client.group, client.request_id, client.pop)
        call.reply().respond_status(info.status, info.message)


def _limited(params: Params, name: bytes, low: int, high: int) -> int:
    """A number that need not be given, or is 0."""
    number = params.number(name, LONG_MAX, 0)
    if number and not low <= number <= high:
        raise BadParameter(f"{name.decode()} must be between {low} and {high}")
    return number


def message(call: MqcloudCall) -> None:
    """`/mq/message`."""
    params = call.params
    size = params.number(b"maxPullSize", LONG_MAX, 0)
    if not 0 <= size <= PULL_SIZE_MAX:
        raise BadParameter(f"maxPullSize must be between 0 and {PULL_SIZE_MAX}")
    timeout_s = _limited(params, b"consumeTimeout", 10, 129_600)
    _limited(params, b"pullTimeout", 1, 60)
    client = _client(call)
    if client is None:
        return
    consumer = client.found.consumer
    size = size or consumer.pull_size
    lease_ms = timeout_s * 1_000 or consumer.consume_timeout_ms
    reply = call.reply()
    consumption = Consumption(call.context, reply, client, size, lease_ms)
    if client.request_id:
        acked = reply.guard(consumption.acked)
        acknowledge(call.context, reply, client.group, client.request_id, client.pop, acked)
    else:
        consumption.choose()


class _Batch(Pull):
    """What one queue has for a client."""

    __slots__ = ("_consumption",)

    def __init__(self, consumption: Consumption, wants: PullOptions) -> None:
        super().__init__(consumption.reply.peer, wants)
        self._consumption = consumption

    def answer(self, outcome: Outcome) -> None:
        self._consumption.came(outcome)

    def failed(self, error: Exception) -> None:
        self._consumption.reply.failed(error)

    def drop(self) -> None:
        """The client is gone."""
        super().drop()
        self._consumption.give_up()


class Consumption:
    """One request for messages, on its way through the queues."""

    __slots__ = (
        "_address",
        "_client",
        "_context",
        "_group",
        "_lease_ms",
        "_left",
        "_lock",
        "_queue",
        "_queues",
        "_size",
        "index",
        "info",
        "reply",
    )

    def __init__(
        self, context: MqcloudContext, reply: MqcloudReply, client: Client, size: int, lease_ms: int
    ) -> None:
        self._context = context
        self.reply = reply
        self._client = client
        self._group = client.group
        self._size = size
        self._lease_ms = lease_ms
        self._queues = context.locks.of(client.group)
        self._left: list[int] = []  # queues to try, the best last
        self._lock: Lock | None = None
        self.info: AckInfo | None = None
        self.index = 0

    def acked(self, info: AckInfo) -> None:
        self.info = info
        if is_gone(self._group):
            self.reply.respond_status(FAILED, "the consumer is not registered any more")
        else:
            self.choose()

    def choose(self) -> None:
        """The queue with the largest backlog goes first, then the one that was not asked for the
        longest; locked queues are left out (specification, section 5)."""
        if self.reply.peer.leaving:  # while what came before was acknowledged
            self._respond(NO_NEW_MSG)
            return
        group, pairs = self._group, zip(self._group.topic.partitions, self._queues, strict=False)
        places = [
            (group.progress(index).ready_count(partition.visible), -queue.last_ms, -index)
            for index, (partition, queue) in enumerate(pairs)
            if self._is_free(queue)
        ]
        self._left = [-place[2] for place in sorted(places)]
        self.reply.peer.work -= len(self._queues)
        self._try_next()

    def _is_free(self, queue: Queue) -> bool:
        lock = queue.lock
        return self._client.pop or lock is None or not lock.held(self._context.broker.now_ms)

    def _partition(self, index: int) -> Partition:
        return self._group.topic.partitions[index]

    def _try_next(self) -> None:
        while self._left and not self._is_free(self._queues[self._left[-1]]):
            self._left.pop()  # another client locked it meanwhile
        if not self._left:
            self.reply.respond_status(FAILED, NONE_LOCKABLE)
            return
        group, broker = self._group, self._context.broker
        self.index = self._left.pop()
        partition, queue = self._partition(self.index), self._queues[self.index]
        queue.last_ms, queue.client = broker.now_ms, self._client.address
        if partition.fenced is not None:
            self.reply.settle(partition.fenced)
            return
        if group.paused:
            self._respond(PAUSED)
            return
        if queue.lock is not None and not self._client.pop:
            self._take_from(queue, queue.lock, partition)
        self._lock = lock = Lock(broker.now_ms, broker.now_ms + self._lease_ms)
        if not self._client.pop:
            queue.lock = lock
        gap = broker.take_gap(group, partition)
        if gap is not None:
            self._force(OFFSET_ILLEGAL, *gap)
            return
        wants = PullOptions(
            self._size, self.index, lease_ms=self._lease_ms, on_loss="keep", shares=self._client.pop
        )
        broker.pull(group, _Batch(self, wants), broker.now_ms)
        admit_reader(self.reply.peer, group, self.reply.peer.asker)

    def _take_from(self, queue: Queue, lock: Lock, partition: Partition) -> None:
        """Take the queue over from a holder that is out of time."""
        queue.lock = None
        mine = lock.open(self._group.progress(partition.index))
        release(self._context, self._group, partition, mine)

    def _force(self, status: str, offset: int, place: int) -> None:
        """Nothing can be read; the client gets the place to go on from, and confirms it."""
        lock = self._lock
        assert lock is not None
        lock.pending, lock.forced = False, True
        lock.begin, lock.next = offset, place
        self._queues[self.index].lock = lock
        self._respond(status, lock)

    def give_up(self) -> None:
        """No client is left to take it."""
        queue = self._queues[self.index]
        if queue.lock is self._lock:
            queue.lock = None

    def came(self, outcome: Outcome) -> None:
        if isinstance(outcome, Delivered):
            self._hand_over(outcome)
            return
        self.give_up()
        if not isinstance(outcome, Empty):
            self.reply.settle(outcome)
        elif self.reply.peer.stalled:
            self._respond(NO_NEW_MSG)  # it is given nothing before it takes what it was sent
        elif self._elsewhere():
            self._try_next()  # a reader of another dialect has the queue
        elif outcome.reason is EmptyReason.FILTERED:
            place = self._group.progress(self.index).floor()
            self._force(NO_MATCHED_MSG, place, place)
        else:
            self._respond(_STATUS.get(outcome.reason, NO_NEW_MSG))

    def _elsewhere(self) -> bool:
        """Messages of the queue are leased by a client of another dialect."""
        return bool(self._group.progress(self.index).leased) and not self._client.pop

    def _hand_over(self, delivered: Delivered) -> None:
        lock, queue = self._lock, self._queues[self.index]
        assert lock is not None
        backlog = self._group.progress(self.index)
        first: list[dict[str, Any]] = []
        again: list[dict[str, Any]] = []
        fresh: list[int] = []
        for piece in delivered.pieces:
            for at in range(piece.start, piece.stop):
                offset = piece.chunk.first + at
                lock.offsets[offset] = backlog.attempts[offset]
                rank = backlog.leased.places.get(offset, (offset, 0))[0]
                retried = rank < offset or (self._client.pop and piece.attempts > 1)
                if not retried:
                    fresh.append(offset)
                (again if retried else first).append(_shown(piece, at))
        lock.begin = min(fresh or lock.offsets)
        lock.next = max(lock.offsets) + 1
        now_ms = self._context.broker.now_ms
        lock.begin_at(now_ms, now_ms + self._lease_ms, backlog, self.reply.peer.id)
        if self._client.pop:
            queue.add_range(lock, now_ms)
        self.reply.peer.work -= 5 * len(lock.offsets)
        self._respond(FOUND if first else NO_NEW_MSG, lock, first, again)

    def _respond(
        self,
        status: str,
        lock: Lock | None = None,
        first: list[dict[str, Any]] | None = None,
        again: list[dict[str, Any]] | None = None,
    ) -> None:
        result: dict[str, Any] = {"status": status}
        request_id = ""
        if lock is not None:
            request_id = result["requestId"] = request_id_of(self.index, lock)
        if first:
            result["msgList"] = first
        result["msgListSize"] = len(first or ())
        if again:
            result["retryMsgList"] = again
        result["retryMsgListSize"] = len(again or ())
        result["queueInfo"] = queue_info(self._group, self.index, self._queues[self.index])
        if self.info is not None:
            result["ackInfo"] = {"status": self.info.status, "message": self.info.message}
        lines = b""
        if self._client.cookie:
            value = request_id.encode() + b"; Path=/" if request_id else b"; Path=/; Max-Age=0"
            lines = b"set-cookie: rid=%b\r\n" % value
        self.reply.respond_ok(result, lines=lines)


def _shown(piece: Slice, at: int) -> dict[str, Any]:
    """One message."""
    chunk = piece.chunk
    body = chunk.bodies[at]
    shown: dict[str, Any] = {
        "messageId": chunk.id_of(at, piece.partition).decode("utf-8", "replace"),
        "message": body.decode("utf-8", "replace"),
        "timestamp": chunk.time_of(at),
    }
    if "\ufffd" in shown["message"]:
        shown["messageBase64"] = body  # it is no text, or has that very character
    return shown


def queue_info(group: Group, index: int, queue: Queue) -> dict[str, Any]:
    """How far a group is in one queue, and who has that."""
    topic, backlog = group.topic, group.progress(index)
    locked_ms = queue.locked_ms()
    info: dict[str, Any] = {
        "messageQueue": queue_document(topic, index),
        "maxOffset": topic.partitions[index].visible,
        "committedOffset": backlog.floor(),
        "firstConsume": not queue.last_ms and not backlog.floor(),
    }
    if locked_ms:
        info["lockTimestamp"] = locked_ms
    if queue.last_ms:
        info["lastConsumeTimestamp"] = queue.last_ms
        info["lastConsumeClientIp"] = queue.client
    return info
