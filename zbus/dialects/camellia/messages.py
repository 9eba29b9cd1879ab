"""The verbs about messages."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from zbus.core.api import (
    ATTEMPTS_MAX,
    DELAY_MS_MAX,
    DONE,
    PUT_PLAIN,
    PUT_WHEN_DUE,
    BrokerError,
    Chunk,
    Duplicate,
    Group,
    MessageState,
    Outcome,
    Partition,
    PointReads,
    PullOptions,
    Refusal,
    Silent,
    Stored,
    Topic,
    make_row,
    topic_unknown,
)
from zbus.dialects.camellia.context import CamelliaCall
from zbus.dialects.camellia.message import (
    NEVER_MS,
    DelayMsg,
    Status,
    delay_lines,
    id_of,
    place_id,
    places_of,
    show,
    shown,
    status_of,
    stored_id,
    unknown_now,
)
from zbus.dialects.camellia.monitor import Monitor
from zbus.dialects.camellia.pulls import EMPTY, PullReply
from zbus.dialects.camellia.replies import BAD, MISSING, CamelliaReply
from zbus.edge.params import INT_MAX, LONG_MAX
from zbus.edge.rights import admit_reader
from zbus.wire.target import decode_valid_percent

MSG_ID_BYTES_MAX: Final = 255

RETRY_MAX: Final = ATTEMPTS_MAX - 1

POLL_MS_MAX: Final = 86_400_000

_LOOK_BYTES: Final = 64 << 10
"""Held by a message that may have to be read from storage, until it was."""

_NO_MESSAGE: Final = "there is no such message"


class Seen(NamedTuple):
    """A message that was looked at."""

    partition: Partition
    chunk: Chunk
    at: int
    status: Status
    retry: int

    @property
    def live(self) -> bool:
        """It is not over."""
        return self.status < Status.CONSUMED

    def shown(self) -> DelayMsg:
        topic = self.partition.topic
        row = self.partition.index, self.chunk, self.at
        return show(topic.group(topic.name), topic, *row, self.status, self.retry)


def _names(call: CamelliaCall, null: str, *more: bytes) -> list[str] | None:
    """The topic, and what else must be given and not be empty, as text; None if there is nothing
    to be done, which was said. `null` is the key that is null in a refusal."""
    context = call.context
    context.health.use(context.broker.now_ms)
    names, empty = [], ""
    for name in (b"topic", *more):
        value = call.params.required(name)
        if not value:
            empty = empty or name.decode()
        names.append(shown(value))
    if empty:
        call.reply(null).respond_code(BAD, f"{empty} is empty")
        return None
    if not call.may(names[0], names[0]):
        return None
    context.queues.use(names[0])
    return names


# -- looking -----------------------------------------------------------------------------------

_Done = Callable[[Seen | None], None]


def _look(call: CamelliaCall, reply: CamelliaReply, name: str, done: _Done) -> None:
    """Find the message of the id that is given; None if there is none, or it ended and the group
    forgot how."""
    topic = call.context.broker.topic(name)
    if topic is None:
        done(None)
    else:
        _look_in(topic, stored_id(call.params.optional(b"msgId")), call, reply, done)


def _look_in(
    topic: Topic, id: bytes, call: CamelliaCall, reply: CamelliaReply, done: _Done
) -> None:
    """The same in a topic. Another message may be at a place where it may be."""
    broker, peer = call.context.broker, call.peer
    rows: list[tuple[Partition, Chunk, int]] = []

    def each(*row: *tuple[Partition, Chunk, int]) -> bool:
        rows.append(row)
        return True

    def looked(problem: BrokerError | None) -> None:
        peer.held_bytes -= _LOOK_BYTES
        group = topic.group(topic.name)
        for partition, chunk, at in rows:
            if id_of(topic, partition.index, chunk, at) == id:
                known = status_of(group, partition.index, chunk, at, broker.now_ms)
                if known is not None:
                    done(Seen(partition, chunk, at, *known))
                    return
        problem = problem or unknown_now(topic)
        if problem is None:
            done(None)
        else:
            reply.settle(problem)

    peer.held_bytes += _LOOK_BYTES
    PointReads(places_of(topic, id, broker.now_ms), each, reply.guard(looked))


# -- sending -----------------------------------------------------------------------------------


class SendReply(CamelliaReply):
    """Of a message that was sent: as it is stored, or its original."""

    __slots__ = ("call", "message")

    call: CamelliaCall
    message: DelayMsg  # without its id, if that is its place

    def answer(self, outcome: Outcome) -> None:
        if isinstance(outcome, Stored):
            partition = outcome.partition
            if not self.message.msg_id:
                id = place_id(partition.topic, partition.index, self.offset)
                self.message.msg_id = id.decode()
            self.respond_sent(self.message)
        elif isinstance(outcome, Duplicate):
            partition = outcome.partition
            partition.log.get(self.offset, self.guard(partial(self._respond_original, partition)))
        else:
            super().answer(outcome)

    def respond_sent(self, message: DelayMsg) -> None:
        self.call.context.monitor.note(message.topic).send_msg += 1
        self.respond_success(delayMsg=message)

    def _respond_original(
        self, partition: Partition, found: tuple[Chunk, int] | BrokerError
    ) -> None:
        """It was there before, and is not finished; or it is, since a moment ago. If it is unknown
        how it was released, which forgets that."""
        if isinstance(found, BrokerError):
            self.respond_refusal(found)
            return
        group = partition.topic.group(partition.topic.name)
        known = status_of(group, partition.index, *found, self.call.context.broker.now_ms)
        self.respond_sent(Seen(partition, *found, *(known or (Status.DELETED, 0))).shown())


def send(call: CamelliaCall) -> None:
    """`sendMsg`."""
    params, settings = call.params, call.context.settings
    body = params.required(b"msg")
    delay_ms = max(0, params.number(b"delayMillis", LONG_MAX))
    ttl_ms = params.number(b"ttlMillis", LONG_MAX, -1)
    max_retry = params.number(b"maxRetry", INT_MAX, -1)
    names = _names(call, "delayMsg", b"msg")
    if names is None:
        return
    id = stored_id(params.optional(b"msgId"))
    reply = SendReply(call.asked, call.peer, "delayMsg")
    reply.call = call
    if delay_ms > DELAY_MS_MAX:
        reply.respond_code(BAD, f"delayMillis is at most ten years, {DELAY_MS_MAX}")
        return
    if len(id) > MSG_ID_BYTES_MAX:
        reply.respond_code(BAD, f"msgId has at most {MSG_ID_BYTES_MAX} bytes")
        return
    topic = call.context.queues.writing(names[0])
    if isinstance(topic, BrokerError):
        reply.settle(topic)
        return
    if id and not topic.options.dedupe_live:
        text = f"{topic.name} remembers no ids (dedupe_live): send without msgId"
        reply.respond_code(BAD, text)
        return
    ttl_ms = ttl_ms if ttl_ms > 0 else settings.camellia_ttl_ms
    attempts_max = 1 + min(settings.camellia_max_retry if max_retry < 0 else max_retry, RETRY_MAX)

    def put(seen: Seen | None) -> None:
        if seen is not None and seen.live:
            reply.respond_sent(seen.shown())
        elif topic.partitions[0].removed:  # while the message of that id was looked at
            reply.settle(topic_unknown(topic.name))
        else:
            if seen is not None:
                _make_way(call, seen)
            _put(reply, topic, id, body, delay_ms, ttl_ms, attempts_max)

    if id:
        _look_in(topic, id, call, reply, put)
    else:
        put(None)


def _make_way(call: CamelliaCall, seen: Seen) -> None:
    """Its time is over or its attempts are used up, and that was not noticed so far: the id is
    free, and what becomes of it is what becomes of the next message."""
    partition, offset = seen.partition, seen.chunk.first + seen.at
    group = partition.topic.group(partition.topic.name)
    if group is not None and group.progress(partition.index).life(offset) is not MessageState.DONE:
        at = [range(offset, offset + 1)]
        call.context.broker.delete(Silent(), [group], partition, at, forget=True)


def _put(
    reply: SendReply,
    topic: Topic,
    id: bytes,
    body: bytes,
    delay_ms: int,
    ttl_ms: int,
    attempts_max: int,
) -> None:
    context = reply.call.context
    broker, partition = context.broker, topic.partitions[0]
    # The delay counts from when the broker has the request, which may be late in a turn.
    due_ms = broker.request_clock.received_ms() + delay_ms if delay_ms else 0
    expires_ms = min((due_ms or broker.now_ms) + ttl_ms, NEVER_MS)
    row = make_row(
        id,
        delay_lines(delay_ms),
        body,
        due_ms=due_ms,
        expires_ms=expires_ms,
        attempts_max=attempts_max,
    )
    reply.message = DelayMsg(
        topic.name,
        shown(decode_valid_percent(id)),
        shown(body),
        due_ms - delay_ms if due_ms else broker.now_ms,
        due_ms or broker.now_ms,
        expires_ms,
        attempts_max - 1,
        0,
        Status.WAITING if due_ms else Status.READY,
    )
    broker.put(partition, reply, row, PUT_WHEN_DUE if due_ms else PUT_PLAIN)
    context.monitor.watch(topic.group(topic.name))
    context.queues.sent_to(topic.name)
    context.parking.open(topic.name)


# -- deleting and looking at one ---------------------------------------------------------------


def delete(call: CamelliaCall) -> None:
    """`deleteMsg`."""
    release = call.params.flag(b"release", False)
    names = _names(call, "", b"msgId")
    if names is None:
        return
    context, reply = call.context, call.reply()

    def done(seen: Seen | None) -> None:
        stats = context.monitor.note(names[0])
        live = seen is not None and seen.live
        if not live:
            stats.trigger_msg_end_life += 1
        if seen is None or not (live or release):
            reply.respond_code(MISSING, _NO_MESSAGE)
            return
        topic, offset = seen.partition.topic, seen.chunk.first + seen.at
        group = topic.group(topic.name)
        if group is None:
            reply.respond_code(MISSING, f"{topic.name} has no group {topic.name}")
            return

        def deleted(outcome: Outcome) -> None:
            if not live:
                reply.respond_code(MISSING, _NO_MESSAGE)
                return
            stats.delete_msg += 1
            reply.respond_success()

        at = [range(offset, offset + 1)]
        ticket = reply.step(deleted)
        context.broker.delete(ticket, [group], seen.partition, at, forget=release)

    _look(call, reply, names[0], done)


def get(call: CamelliaCall) -> None:
    """`getMsg`."""
    names = _names(call, "delayMsg", b"msgId")
    if names is None:
        return
    reply = call.reply("delayMsg")

    def done(seen: Seen | None) -> None:
        stats = call.context.monitor.note(names[0])
        if seen is None or not seen.live:
            stats.trigger_msg_end_life += 1
        if seen is None:
            reply.respond_code(MISSING, _NO_MESSAGE)
            return
        stats.get_msg += 1
        reply.respond_success(delayMsg=seen.shown())

    _look(call, reply, names[0], done)


# -- consuming ---------------------------------------------------------------------------------


def pull(call: CamelliaCall) -> None:
    """`pullMsg`."""
    _pull(call, 0)


def long_poll(call: CamelliaCall) -> None:
    """`longPollingMsg`."""
    wait_ms = call.params.number(b"longPollingTimeoutMillis", LONG_MAX, -1)
    if wait_ms <= 0:
        wait_ms = call.context.settings.camellia_poll_timeout_ms
    _pull(call, min(wait_ms, POLL_MS_MAX))


UNNAMED: Final = BrokerError(Refusal.ILLEGAL, "topic is empty")


def _pull(call: CamelliaCall, wait_ms: int) -> None:
    params, context, peer = call.params, call.context, call.peer
    lease_ms = params.number(b"ackTimeoutMillis", LONG_MAX, -1)
    batch = params.number(b"batch", INT_MAX, -1)
    # Who polls without a name polls again at once, so that is held back like other refusals.
    unnamed = wait_ms > 0 and not params.required(b"topic")
    names = [""] if unnamed else _names(call, "delayMsgList")
    if names is None:
        return
    [name], broker, settings = names, context.broker, context.settings
    lease_ms = lease_ms if lease_ms > 0 else settings.camellia_ack_timeout_ms
    batch = min(batch if batch > 0 else settings.camellia_batch, broker.limits.batch_messages_max)
    wants = PullOptions(batch, lease_ms=min(lease_ms, DELAY_MS_MAX), on_loss="keep")
    poll = PullReply(call.asked, peer, wants, name, context.monitor)
    deadline_ms = broker.now_ms + wait_ms
    if peer.open_waits > settings.tickets_per_connection_max:
        text = "too many requests of this connection wait"
        poll.settle(BrokerError(Refusal.TOO_MANY, text))
        return
    group = UNNAMED if unnamed else context.queues.reading(name)
    if group is None and wait_ms:
        context.parking.wait(name, poll, deadline_ms)
    elif isinstance(group, BrokerError) and wait_ms:
        context.parking.hold(poll, group, deadline_ms)
    elif group is None or isinstance(group, BrokerError):
        poll.settle(group or EMPTY)
    else:
        broker.pull(group, poll, deadline_ms)
        context.monitor.watch(group)
        admit_reader(peer, group, peer.asker)


class AckReply(CamelliaReply):
    """Of a message that is settled, or was before."""

    __slots__ = ("monitor", "topic")

    monitor: Monitor
    topic: str

    def answer(self, outcome: Outcome) -> None:
        if isinstance(outcome, BrokerError):
            super().answer(outcome)
        else:
            self.monitor.note(self.topic).ack_msg += 1
            self.respond_success()


def ack(call: CamelliaCall) -> None:
    """`ackMsg`: settle a message that a client holds. Any other message stays as it is, and the
    answer is the same."""
    done = call.params.flag(b"ack", True)
    names = _names(call, "", b"msgId")
    if names is None:
        return
    reply, broker = AckReply(call.asked, call.peer), call.context.broker
    reply.monitor, reply.topic = call.context.monitor, names[0]
    place = _leased(call, names[0])
    if place is None or isinstance(place, BrokerError):
        reply.settle(place or DONE)
        return
    if isinstance(place, Partition):  # what has settled it may not be durable yet
        broker.confirm(place, reply)
        return
    group, partition, offset = place
    at = [range(offset, offset + 1)]
    if done:
        broker.ack(reply, group, partition, at)
    else:
        broker.nack(reply, group, partition, at, front=False)


def _leased(
    call: CamelliaCall, name: str
) -> tuple[Group, Partition, int] | Partition | BrokerError | None:
    """Where the message of an id is, if a client holds it; else, if it is stored."""
    broker, id = call.context.broker, stored_id(call.params.optional(b"msgId"))
    topic = broker.topic(name)
    group = None if topic is None else topic.group(name)
    if topic is None or group is None:
        return None
    there = None
    for partition, offset in places_of(topic, id, broker.now_ms):
        backlog = group.progress(partition.index)
        if backlog.life(offset) is MessageState.LEASED and offset not in backlog.leased.settling:
            return group, partition, offset
        there = partition
    return unknown_now(topic) or there
