"""`consume` as a stream of server-sent events (HTML standard, section 9.2).

Without a group it follows the topic: every client gets everything, and nothing is kept of it. With
a group it reads from that group as any other consumer does. Either takes the whole connection.
"""

from __future__ import annotations

import base64
from functools import lru_cache

import attrs

from zbus.core.api import (
    ENDLESS,
    FILTER_BYTES_MAX,
    SERVICES,
    BrokerError,
    Chunk,
    Delivered,
    Empty,
    EmptyReason,
    Group,
    Outcome,
    Partition,
    Pull,
    PullOptions,
    Refusal,
    Slice,
    Start,
    Topic,
    offset_outside,
    topic_unknown,
)
from zbus.dialects.zbus.context import Context
from zbus.dialects.zbus.messages.consume import Consume, GroupPlan, lease_of
from zbus.dialects.zbus.replies import NativeReply, error_text
from zbus.dialects.zbus.request.batch_formats import encode_object
from zbus.dialects.zbus.request.event_stream import (
    HEARTBEAT,
    encode_end,
    encode_event,
    only_head,
    open_stream,
    stream_problem,
    wants_events,
)
from zbus.dialects.zbus.request.params import BadRequest, Params
from zbus.dialects.zbus.request.positions import EARLIEST, LATEST
from zbus.edge.connection import Connection
from zbus.edge.rights import PeerFollower
from zbus.edge.status import STATUS
from zbus.wire.numbers import parse_number
from zbus.wire.replies import encode_reply

_BEGINNING = b"-"
_OFFSET_MAX = (1 << 63) - 2
_FOLLOWERS_ONLY = (b"from", b"offset", b"group_start_time", b"group_filter")


def prepare(dialect: Context, params: Params) -> Consume | Follow | Stream:
    """The plan of a `consume`, as events or not."""
    if not wants_events(params):
        return Consume(dialect, params)
    return Follow(dialect, params) if follows_topic(params) else Stream(dialect, params)


def follows_topic(params: Params) -> bool:
    """Whether it is a stream without a group."""
    return not params.group and wants_events(params)


# -- events -------------------------------------------------------------------------------


def encode_place(position: list[int]) -> bytes:
    """The last offset sent of each partition; nothing if there is none, of a single one `-`, since
    an empty `id` is never sent back."""
    if len(position) == 1:
        return b"%d" % (position[0] - 1) if position[0] else _BEGINNING
    return b",".join([b"%d" % (place - 1) if place else b"" for place in position])


@attrs.frozen
class Last:
    """The `id` of an event: the offsets that come next, and when their topic was created (-1 = it
    does not say)."""

    position: list[int]
    created_ms: int = -1

    @classmethod
    def of(cls, value: bytes) -> Last:
        place, at, created = value.partition(b"@")
        if not at:
            return cls(_read_place(place))
        created_ms = parse_number(created, _OFFSET_MAX)
        if created_ms is None:
            text = "last-event-id needs a time in milliseconds after the @"
            raise BadRequest(400, f"400: Bad Format, {text}")
        return cls(_read_place(place), created_ms)

    def grown(self, partitions: list[Partition]) -> Last:
        """The same, of a topic that has had fewer partitions: of the others nothing was sent."""
        lines, count = partitions[0].topic.options.grown, len(self.position)
        if not lines or not len(lines[0]) <= count < len(partitions):
            return self
        return attrs.evolve(self, position=self.position + [0] * (len(partitions) - count))

    def is_of(self, topic: Topic, partitions: list[Partition]) -> bool:
        """Whether it is of this log. One of a topic that was removed and declared again is not; if
        it does not say of which it is, a place past the end shows it."""
        if self.created_ms >= 0:
            return self.created_ms == topic.options.created_ms
        places = zip(partitions, self.position, strict=True)
        return all(place <= partition.visible for partition, place in places)


def _read_place(value: bytes) -> list[int]:
    """What `encode_place` made: the offsets that come next."""
    if value == _BEGINNING:
        return [0]
    return [place + 1 for place in _offsets(b"last-event-id", value, -1)]


def _offsets(name: bytes, value: bytes, missing: int) -> list[int]:
    offsets = []
    for part in value.split(b","):
        offset = parse_number(part, _OFFSET_MAX) if part else missing
        if offset is None:
            shown = value[:40].decode("utf-8", "replace")
            text = f"{name.decode()} is an offset, or one for each partition, not {shown!r}"
            raise BadRequest(400, f"400: Bad Format, {text}")
        offsets.append(offset)
    return offsets


class Bodies:
    """The body is the data. What is not UTF-8 cannot be, and is sent as an event `base64`."""

    def place(self, position: list[int]) -> bytes:
        """The `id` of an event."""
        return encode_place(position)

    def encode(self, topic: Topic, index: int, chunk: Chunk, at: int, position: list[int]) -> bytes:
        return self.encode_slice(topic, None, Slice(index, chunk, at, at + 1), position)

    def encode_gap(self, count: int, position: list[int]) -> bytes:
        return encode_event(self.place(position), b"%d" % count, b"skipped")

    def encode_reset(self, topic: Topic, position: list[int]) -> bytes:
        created = b"%d" % topic.options.created_ms
        return encode_event(self.place(position), created, b"reset")

    def encode_slice(
        self, topic: Topic, group: Group | None, piece: Slice, position: list[int]
    ) -> bytes:
        body = piece.chunk.bodies[piece.start]
        if not body.isascii():
            try:
                body.decode()
            except UnicodeDecodeError:
                return encode_event(self.place(position), base64.b64encode(body), b"base64")
        return encode_event(self.place(position), body)


class Envelopes(Bodies):
    """The data is a JSON object with all that is known of the message. So no client needs to read
    the offset from the `id`, which says of which log it is, too."""

    def __init__(self, created_ms: int) -> None:
        self._of = b"@%d" % created_ms

    def place(self, position: list[int]) -> bytes:
        return encode_place(position) + self._of

    def encode_slice(
        self, topic: Topic, group: Group | None, piece: Slice, position: list[int]
    ) -> bytes:
        return encode_event(self.place(position), encode_object(topic, group, piece))


_BODIES = Bodies()


@lru_cache(maxsize=1_000)
def _envelopes(created_ms: int) -> Envelopes:
    """Subscribers with the same form share the bytes, so it is one object for each topic."""
    return Envelopes(created_ms)


# -- streams ------------------------------------------------------------------------------


def close_stream(peer: Connection, error: BrokerError | None) -> None:
    """Say why, if there is anything to say, and close."""
    if error is not None:
        peer.write(encode_end(error_text(error)))
    peer.end_stream()


class FollowStream(PeerFollower):
    """Of a stream without a group."""

    __slots__ = ("begun", "form", "id", "params", "reset")

    def __init__(
        self, peer: Connection, params: Params, id: bytes, form: Bodies, reset: Topic | None
    ) -> None:
        super().__init__(peer, params.topic)
        self.form = form
        self.reset = reset  # the topic, if its log is not the one that the client has followed
        self.params = params
        self.id = id
        self.begun = False

    def begin(self, position: list[int]) -> None:
        self.begun = True
        open_stream(self.peer, self.params, self.id, self.form.place(position))
        if self.reset is not None:
            self.peer.write(self.form.encode_reset(self.reset, position))

    def leave(self) -> None:
        self.open = False
        close_stream(self.peer, None)

    def answer(self, outcome: Outcome) -> None:
        assert isinstance(outcome, BrokerError)
        if self.begun:
            close_stream(self.peer, outcome)
            return
        params, text = self.params, error_text(outcome)
        lines = b"%bid: %b\r\n" % (params.topic_line, self.id)
        if params.browser is not None:
            lines = params.browser.cover(lines, text, params.policy)
        self.peer.write(encode_reply(STATUS[outcome.refusal], lines, text, close=True))
        self.peer.end_stream()


class GroupStream(Pull):
    """Of a stream from a group."""

    __slots__ = ("form", "peer", "position")

    def __init__(self, peer: Connection, wants: PullOptions, group: Group, form: Bodies) -> None:
        super().__init__(peer, wants)
        self.peer = peer
        self.form = form
        self.position = group.position()

    def answer(self, outcome: Outcome) -> None:
        if type(outcome) is Delivered:
            self._send(outcome)
        elif isinstance(outcome, Empty):
            stopping = outcome.reason is EmptyReason.STOPPING
            error = BrokerError(Refusal.STOPPING, "the broker is stopping") if stopping else None
            close_stream(self.peer, error)
        else:
            assert isinstance(outcome, BrokerError)
            close_stream(self.peer, outcome)

    def drop(self) -> None:
        super().drop()
        close_stream(self.peer, None)

    def _send(self, delivered: Delivered) -> None:
        peer, group, position = self.peer, delivered.group, self.position
        position += [0] * (len(group.topic.partitions) - len(position))  # there may be more by now
        if delivered.skipped:
            peer.write(self.form.encode_gap(delivered.skipped, position))
        for piece in delivered.pieces:  # each of one message
            # What comes again, or late, does not bring the place back.
            index, offset = piece.partition, piece.chunk.first + piece.start
            position[index] = max(position[index], offset + 1)
            peer.write(self.form.encode_slice(group.topic, group, piece, position))


# -- plans --------------------------------------------------------------------------------


class _Events(GroupPlan):
    """What both kinds of streams have in common."""

    __slots__ = ("enveloped", "last", "partition")

    def __init__(self, dialect: Context, params: Params) -> None:
        super().__init__(dialect, params)
        envelope = params.fields.get(b"envelope", b"")
        if envelope not in (b"", b"json"):
            raise BadRequest(400, "400: Bad Format, envelope is json")
        self.enveloped = bool(envelope)
        self.partition = params.number(b"partition")
        last = params.fields.get(b"last-event-id")
        self.last = Last.of(last) if last else None

    def form(self, topic: Topic) -> Bodies:
        return _envelopes(topic.options.created_ms) if self.enveloped else _BODIES

    def run(self, peer: Connection, id: bytes, body: bytes) -> None:
        problem = self._begin(peer, id or self.params.id)
        if problem is not None:
            reply = NativeReply(self.dialect, self.params, peer, id)
            reply.respond(problem.status, body=problem.text.encode())

    def _begin(self, peer: Connection, id: bytes) -> BadRequest | None:
        if (problem := stream_problem(peer)) is not None:
            return problem
        topic = self.dialect.broker.topics.get(self.topic_key)
        if topic is None:
            return _refused(topic_unknown(self.params.topic))
        partitions = topic.partitions
        if self.partition is not None:
            if self.partition >= len(partitions):
                return BadRequest(404, f"404: Partition({self.partition}) Not Found")
            partitions = [partitions[self.partition]]
        return self._open(peer, id or self.dialect.broker.new_id(), topic, partitions)

    def _open(
        self, peer: Connection, id: bytes, topic: Topic, partitions: list[Partition]
    ) -> BadRequest | None:
        raise NotImplementedError


def _refused(error: BrokerError) -> BadRequest:
    return BadRequest(STATUS[error.refusal], error_text(error).decode())


def _wrong_count(name: str, count: int) -> BadRequest:
    text = f"{name} needs an offset for each partition, and there are {count}"
    return BadRequest(400, f"400: Bad Format, {text}")


class Follow(_Events):
    """Plan of a stream without a group."""

    __slots__ = ("filter", "start")

    def __init__(self, dialect: Context, params: Params) -> None:
        super().__init__(dialect, params)
        self.filter = params.text(b"group_filter") or ""
        if len(self.filter.encode()) > FILTER_BYTES_MAX:
            text = f"filter length should be <= {FILTER_BYTES_MAX}"
            raise BadRequest(400, f"400: Bad Format, {text}")
        self.start = params.start(b"from") or self._older_start(params)

    def _older_start(self, params: Params) -> Start | None:
        """What `from` says, in the words that were there before."""
        since_ms, offset = params.time(b"group_start_time"), params.fields.get(b"offset", b"")
        if offset in (b"begin", b"end"):
            return EARLIEST if offset == b"begin" else LATEST
        if offset:
            return Start(offset=tuple(_offsets(b"offset", offset, 0)))
        return None if since_ms is None else Start(time_ms=since_ms)

    def _open(
        self, peer: Connection, id: bytes, topic: Topic, partitions: list[Partition]
    ) -> BadRequest | None:
        if topic.options.calls:
            return _refused(SERVICES)
        last = self.last and self.last.grown(partitions)
        position, form = self._position(partitions, last), self.form(topic)
        if position is not None and len(position) != len(partitions):
            name = "from" if b"from" in self.params.fields else "offset"
            name = name if self.last is None else "last-event-id"
            return _wrong_count(name, len(partitions))
        if position is not None and self.last is None:
            for partition, place in zip(partitions, position, strict=True):
                if place > partition.visible:  # who asks for it takes it for another log
                    first, end = partition.first, partition.visible
                    return _refused(offset_outside(partition.index, first, end))
        reset = None
        if last is not None and not last.is_of(topic, partitions):
            reset, position = topic, [partition.first for partition in partitions]
        if not only_head(peer, self.params, id):
            peer.begin_stream(HEARTBEAT)
            follower = FollowStream(peer, self.params, id, form, reset)
            since_ms = self.start.time_ms if position is None and self.start else None
            if position is None and since_ms is None:
                position = _own_position(topic, partitions)
            broker = self.dialect.broker
            broker.follow(follower, form, partitions, self.filter, position, since_ms)
        return None

    def _position(self, partitions: list[Partition], last: Last | None) -> list[int] | None:
        start = self.start
        if last is not None:
            return last.position
        if start is None:
            return None
        if start is EARLIEST:  # who names 0 is told of what is forgotten
            return [partition.first for partition in partitions]
        if start.latest:
            return [partition.visible for partition in partitions]
        offsets = start.offset
        if offsets is None:
            return None
        return list(offsets) if isinstance(offsets, tuple) else [offsets] * len(partitions)


def _own_position(topic: Topic, partitions: list[Partition]) -> list[int] | None:
    """What the group that is named like the topic has still to read; None if there is none."""
    own = topic.groups.get(topic.name.lower())
    if own is None:
        return None
    return [own.progress(partition.index).cursor for partition in partitions]


class Stream(_Events):
    """Plan of a stream from a group."""

    __slots__ = ("wants",)

    def __init__(self, dialect: Context, params: Params) -> None:
        super().__init__(dialect, params)
        for name in _FOLLOWERS_ONLY:
            if name in params.fields:
                text = f"{name.decode()} is for a stream without a group"
                raise BadRequest(400, f"400: Bad Format, {text}")
        window = params.number(b"consume_window") or 0
        self.wants = PullOptions(
            1, self.partition, ENDLESS, window=window, lease_ms=lease_of(params)
        )

    def _open(
        self, peer: Connection, id: bytes, topic: Topic, partitions: list[Partition]
    ) -> BadRequest | None:
        found = self.find()
        if isinstance(found, BrokerError):
            return _refused(found)
        group = found[1]
        last = self.last and self.last.grown(topic.partitions)
        if last is not None and len(last.position) != len(topic.partitions):
            return _wrong_count("last-event-id", len(topic.partitions))
        if only_head(peer, self.params, id):
            return None
        broker = self.dialect.broker
        alone = not group.readers
        if (taken := broker.register(peer, group)) is not None:
            return _refused(taken)
        if last is not None and alone and not group.lease and last.is_of(topic, topic.partitions):
            broker.rewind(group, last.position)
        peer.begin_stream(HEARTBEAT)
        open_stream(peer, self.params, id)
        broker.pull(group, GroupStream(peer, self.wants, group, self.form(topic)), None)
        return None
