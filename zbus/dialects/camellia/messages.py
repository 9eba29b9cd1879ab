"""The verbs about messages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple

from zbus.core.api import (
    ATTEMPTS_MAX,
    DELAY_MS_MAX,
    DONE,
    BrokerError,
    Chunk,
    Duplicate,
    Group,
    MessageState,
    Outcome,
    Partition,
    PullOptions,
    Refusal,
    Silent,
    Stored,
    Topic,
    make_row,
    topic_unknown,
)
from zbus.dialects.camellia.context import Context, Request
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
from zbus.dialects.camellia.pulls import EMPTY, PullReply
from zbus.dialects.camellia.replies import BAD, MISSING, Reply
from zbus.edge.connection import Connection
from zbus.edge.params import INT_MAX, LONG_MAX, Params
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

    def shown(self, group: Group | None) -> DelayMsg:
        partition = self.partition
        row = partition.index, self.chunk, self.at
        return show(group, partition.topic, *row, self.status, self.retry)


def _names(
    request: Request, params: Params, peer: Connection, null: str, *more: bytes
) -> list[str] | None:
    """The topic, and what else must be given and not be empty, as text; None if there is nothing
    to be done, which was said. `null` is the key that is null in a refusal."""
    request.dialect.health.use(request.dialect.broker.now_ms)
    empty = None
    names = []
    for name in (b"topic", *more):
        value = params.required(name)
        if not value and empty is None:
            empty = name.decode()
        names.append(shown(value))
    if empty is not None:
        request.reply(peer, null).respond_code(BAD, f"{empty} is empty")
        return None
    if not request.may(peer, names[0]):
        return None
    request.dialect.queues.use(names[0])
    return names


# -- looking -----------------------------------------------------------------------------------


def _look(
    reply: Reply, dialect: Context, name: str, id: bytes, done: Callable[[Seen | None], None]
) -> None:
    """Find the message of an id; None if there is none, or it ended and the group forgot how."""
    found = dialect.queues.find(name)
    if found is None:
        done(None)
        return
    topic, group = found
    places = places_of(topic, id, dialect.broker.now_ms)
    _look_at(reply, dialect, topic, group, id, places, done)


def _look_at(
    reply: Reply,
    dialect: Context,
    topic: Topic,
    group: Group | None,
    id: bytes,
    places: Sequence[tuple[Partition, int]],
    done: Callable[[Seen | None], None],
) -> None:
    """The same, where it may be at these places. Another message may be there."""
    if not places:
        if (problem := unknown_now(topic)) is not None:
            reply.settle(problem)
        else:
            done(None)
        return
    (partition, offset), *others = places
    peer = reply.peer
    peer.held_bytes += _LOOK_BYTES

    def got(found: tuple[Chunk, int] | BrokerError) -> None:
        peer.held_bytes -= _LOOK_BYTES
        if isinstance(found, BrokerError):
            if found.refusal is not Refusal.OFFSET_UNKNOWN:
                reply.settle(found)
                return
        elif id_of(topic, partition.index, *found) == id:
            known = status_of(group, partition.index, *found, dialect.broker.now_ms)
            if known is not None:
                done(Seen(partition, *found, *known))
                return
        _look_at(reply, dialect, topic, group, id, others, done)

    partition.log.get(offset, reply.guard(got))


# -- sending -----------------------------------------------------------------------------------


class SendReply(Reply):
    """Of a message that was sent: as it is stored, or its original."""

    __slots__ = ("dialect", "message")

    dialect: Context
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
        self.dialect.monitor.note(message.topic).send_msg += 1
        self.respond_success(delayMsg=message)

    def _respond_original(
        self, partition: Partition, found: tuple[Chunk, int] | BrokerError
    ) -> None:
        """It was there before, and is not finished; or it is, since a moment ago. If it is unknown
        how it was released, which forgets that."""
        if isinstance(found, BrokerError):
            super().answer(found)
            return
        group = partition.topic.group(partition.topic.name)
        known = status_of(group, partition.index, *found, self.dialect.broker.now_ms)
        seen = Seen(partition, *found, *(known or (Status.DELETED, 0)))
        self.respond_sent(seen.shown(group))


def send(request: Request, params: Params, peer: Connection) -> None:
    """`sendMsg`."""
    body = params.required(b"msg")
    delay_ms = max(0, params.number(b"delayMillis", LONG_MAX))
    ttl_ms = params.number(b"ttlMillis", LONG_MAX, -1)
    max_retry = params.number(b"maxRetry", INT_MAX, -1)
    names = _names(request, params, peer, "delayMsg", b"msg")
    if names is None:
        return
    dialect, id = request.dialect, stored_id(params.optional(b"msgId"))
    reply = SendReply(request, peer)
    reply.dialect, reply.empty = dialect, "delayMsg"
    if delay_ms > DELAY_MS_MAX:
        reply.respond_code(BAD, f"delayMillis is at most ten years, {DELAY_MS_MAX}")
        return
    if len(id) > MSG_ID_BYTES_MAX:
        reply.respond_code(BAD, f"msgId has at most {MSG_ID_BYTES_MAX} bytes")
        return
    topic = dialect.queues.writing(names[0])
    if isinstance(topic, BrokerError):
        reply.settle(topic)
        return
    if id and not topic.options.dedupe_live:
        text = f"{topic.name} remembers no ids (dedupe_live): send without msgId"
        reply.respond_code(BAD, text)
        return
    settings = dialect.settings
    ttl_ms = ttl_ms if ttl_ms > 0 else settings.camellia_ttl_ms
    attempts_max = 1 + min(settings.camellia_max_retry if max_retry < 0 else max_retry, RETRY_MAX)

    def put(seen: Seen | None) -> None:
        group = topic.group(topic.name)
        if seen is not None and seen.status < Status.CONSUMED:
            reply.respond_sent(seen.shown(group))
            return
        if topic.partitions[0].removed:  # while the message of that id was looked at
            reply.settle(topic_unknown(topic.name))
            return
        if seen is not None and group is not None:
            _make_way(dialect, group, seen)
        _put(reply, topic, id, body, delay_ms, ttl_ms, attempts_max)

    places = places_of(topic, id, dialect.broker.now_ms) if id else []
    _look_at(reply, dialect, topic, topic.group(topic.name), id, places, put)


def _make_way(dialect: Context, group: Group, seen: Seen) -> None:
    """Its time is over or its attempts are used up, and that was not noticed so far: the id is
    free, and what becomes of it is what becomes of the next message."""
    partition, offset = seen.partition, seen.chunk.first + seen.at
    if group.progress(partition.index).life(offset) is not MessageState.DONE:
        at = [range(offset, offset + 1)]
        dialect.broker.delete(Silent(), [group], partition, at, forget=True)


def _put(
    reply: SendReply,
    topic: Topic,
    id: bytes,
    body: bytes,
    delay_ms: int,
    ttl_ms: int,
    attempts_max: int,
) -> None:
    dialect = reply.dialect
    broker, partition = dialect.broker, topic.partitions[0]
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
    if id or due_ms:
        chunk = Chunk()
        chunk.add(*row)
        broker.put_delayed(partition, chunk, reply)
    else:
        broker.put(partition, reply, row)
    dialect.monitor.watch(topic.group(topic.name))
    dialect.queues.sent_to(topic.name)
    dialect.parking.open(topic.name)


# -- deleting and looking at one ---------------------------------------------------------------


def delete(request: Request, params: Params, peer: Connection) -> None:
    """`deleteMsg`."""
    release = params.flag(b"release", False)
    names = _names(request, params, peer, "", b"msgId")
    if names is None:
        return
    dialect, reply = request.dialect, request.reply(peer)

    def done(seen: Seen | None) -> None:
        stats = dialect.monitor.note(names[0])
        live = seen is not None and seen.status < Status.CONSUMED
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
        dialect.broker.delete(ticket, [group], seen.partition, at, forget=release)

    _look(reply, dialect, names[0], stored_id(params.optional(b"msgId")), done)


def get(request: Request, params: Params, peer: Connection) -> None:
    """`getMsg`."""
    names = _names(request, params, peer, "delayMsg", b"msgId")
    if names is None:
        return
    dialect, reply = request.dialect, request.reply(peer, "delayMsg")

    def done(seen: Seen | None) -> None:
        stats = dialect.monitor.note(names[0])
        if seen is None or seen.status >= Status.CONSUMED:
            stats.trigger_msg_end_life += 1
        if seen is None:
            reply.respond_code(MISSING, _NO_MESSAGE)
            return
        stats.get_msg += 1
        topic = seen.partition.topic
        reply.respond_success(delayMsg=seen.shown(topic.group(topic.name)))

    _look(reply, dialect, names[0], stored_id(params.optional(b"msgId")), done)


# -- consuming ---------------------------------------------------------------------------------


def pull(request: Request, params: Params, peer: Connection) -> None:
    """`pullMsg`."""
    _pull(request, params, peer, 0)


def long_poll(request: Request, params: Params, peer: Connection) -> None:
    """`longPollingMsg`."""
    wait_ms = params.number(b"longPollingTimeoutMillis", LONG_MAX, -1)
    if wait_ms <= 0:
        wait_ms = request.dialect.settings.camellia_poll_timeout_ms
    _pull(request, params, peer, min(wait_ms, POLL_MS_MAX))


UNNAMED: Final = BrokerError(Refusal.ILLEGAL, "topic is empty")


def _pull(request: Request, params: Params, peer: Connection, wait_ms: int) -> None:
    lease_ms = params.number(b"ackTimeoutMillis", LONG_MAX, -1)
    batch = params.number(b"batch", INT_MAX, -1)
    # Who polls without a name polls again at once, so that is held back like other refusals.
    unnamed = wait_ms > 0 and not params.required(b"topic")
    names = [""] if unnamed else _names(request, params, peer, "delayMsgList")
    if names is None:
        return
    dialect, [name] = request.dialect, names
    broker, settings = dialect.broker, dialect.settings
    lease_ms = lease_ms if lease_ms > 0 else settings.camellia_ack_timeout_ms
    batch = min(batch if batch > 0 else settings.camellia_batch, broker.limits.batch_messages_max)
    wants = PullOptions(batch, lease_ms=min(lease_ms, DELAY_MS_MAX), on_loss="keep")
    poll = PullReply(request, peer, wants, name, dialect.monitor)
    deadline_ms = broker.now_ms + wait_ms
    if peer.open_waits > settings.tickets_per_connection_max:
        text = "too many requests of this connection wait"
        poll.settle(BrokerError(Refusal.TOO_MANY, text))
        return
    group = UNNAMED if unnamed else dialect.queues.reading(name)
    if group is None and wait_ms:
        dialect.parking.wait(name, poll, deadline_ms)
    elif group is None:
        poll.settle(EMPTY)
    elif isinstance(group, BrokerError):
        if wait_ms:
            dialect.parking.hold(poll, group, deadline_ms)
        else:
            poll.settle(group)
    else:
        broker.pull(group, poll, deadline_ms)
        dialect.monitor.watch(group)
        admit_reader(peer, group, peer.asker)


def ack(request: Request, params: Params, peer: Connection) -> None:
    """`ackMsg`: settle a message that a client holds. Any other message stays as it is, and the
    answer is the same."""
    done = params.flag(b"ack", True)
    names = _names(request, params, peer, "", b"msgId")
    if names is None:
        return
    dialect, reply = request.dialect, request.reply(peer)

    def settled(outcome: Outcome) -> None:
        dialect.monitor.note(names[0]).ack_msg += 1
        reply.respond_success()

    ticket, broker = reply.step(settled), dialect.broker
    place = _leased(dialect, names[0], stored_id(params.optional(b"msgId")))
    if place is None or isinstance(place, BrokerError):
        ticket.settle(place or DONE)
        return
    if isinstance(place, Partition):  # what has settled it may not be durable yet
        broker.confirm(place, ticket)
        return
    group, partition, offset = place
    at = [range(offset, offset + 1)]
    if done:
        broker.ack(ticket, group, partition, at)
    else:
        broker.nack(ticket, group, partition, at, front=False)


def _leased(
    dialect: Context, name: str, id: bytes
) -> tuple[Group, Partition, int] | Partition | BrokerError | None:
    """Where the message of an id is, if a client holds it; else, if it is stored."""
    found = dialect.queues.find(name)
    topic, group = found or (None, None)
    if topic is None or group is None:
        return None
    there = None
    for partition, offset in places_of(topic, id, dialect.broker.now_ms):
        backlog = group.progress(partition.index)
        if backlog.life(offset) is MessageState.LEASED and offset not in backlog.leased.settling:
            return group, partition, offset
        there = partition
    return unknown_now(topic) or there
