"""`consume` and `unconsume`: messages out (specification, sections 5.2 and 5.3)."""

from __future__ import annotations

from collections.abc import Sequence

from zbus.core.api import (
    BrokerError,
    Group,
    PullOptions,
    Refusal,
    Topic,
    group_unknown,
    topic_unknown,
)
from zbus.dialects.zbus.context import Context
from zbus.dialects.zbus.messages.pull_tickets import (
    PEEK_BYTES,
    PLACE_BYTES_MAX,
    PeekReply,
    PullReply,
    encode_taken,
    lines_bytes_max,
)
from zbus.dialects.zbus.replies import NativeReply
from zbus.dialects.zbus.request.batch_formats import wanted_container
from zbus.dialects.zbus.request.number_shapes import NumberShape, slots_of_numbers
from zbus.dialects.zbus.request.params import BadRequest, Params
from zbus.edge.connection import LARGE_BYTES, Connection
from zbus.edge.shape_plans import Filled
from zbus.wire.heads.shapes import Slots


class GroupPlan:
    """What all commands on a group have in common: finding it."""

    __slots__ = ("dialect", "group_key", "params", "topic_key")

    def __init__(self, dialect: Context, params: Params) -> None:
        self.dialect = dialect
        self.params = params
        self.topic_key = params.topic.lower()
        self.group_key = (params.group or params.topic).lower()

    def find(self) -> tuple[Topic, Group] | BrokerError:
        topic = self.dialect.broker.topics.get(self.topic_key)
        if topic is None:
            return topic_unknown(self.params.topic)
        group = topic.groups.get(self.group_key)
        if topic.competing:
            group = topic.group(self.group_key)
        if group is None:
            return group_unknown(self.params.group or self.params.topic)
        return topic, group


def lease_of(params: Params) -> int:
    """How long what a consume is given is leased, in milliseconds; 0 = as the group says."""
    return params.duration(b"lease") or 0


class Consume(GroupPlan):
    """Plan of a pull."""

    __slots__ = (
        "at_once",
        "broker",
        "container",
        "lines_bytes_max",
        "offset",
        "partition",
        "plain",
        "plain_bytes_max",
        "quiet",
        "take",
        "timeout_ms",
        "topics",
        "waits_max",
        "wants",
    )

    def __init__(self, dialect: Context, params: Params) -> None:
        super().__init__(dialect, params)
        self.quiet = not params.flag(b"ack")
        self.offset = params.number(b"offset")
        self.partition = params.number(b"partition")
        self.timeout_ms = params.duration(b"timeout")
        if self.timeout_ms is None and params.browser is not None and params.browser.navigates:
            self.timeout_ms = dialect.settings.navigation_timeout_ms
        batch = params.number(b"batch", dialect.settings.batch_messages_max)
        accept = params.fields.get(b"accept", b"")
        self.container = b"" if batch is None else wanted_container(accept)
        window = params.number(b"consume_window") or 1
        # Replies out of turn need a client that knows them by id.
        credit = window if params.multiplexed else 1
        self.wants = PullOptions(
            batch or 1,
            self.partition,
            credit,
            params.multiplexed,
            lease_ms=lease_of(params),
            standby=params.flag(b"standby"),
            on_loss=params.word(b"on_loss"),
        )
        self.plain = self.offset is None and self.partition is None
        # One message in the usual reply: no ticket is needed if it is there.
        self.at_once = self.plain and params.plain and not self.container and credit == 1
        self.lines_bytes_max = lines_bytes_max(dialect, params)
        self.plain_bytes_max = self.lines_bytes_max - PLACE_BYTES_MAX
        self.broker = broker = dialect.broker
        self.take, self.topics = broker.take, broker.topics
        self.waits_max = dialect.settings.tickets_per_connection_max

    def run(self, peer: Connection, id: bytes, body: bytes) -> None:
        topic = self.topics.get(self.topic_key)
        if topic is None or topic.competing or not self.plain:
            if self.offset is None:
                self._run_with_care(peer, id)
            else:
                self.read_one(peer, id, self.partition or 0, self.offset)
            return
        group = topic.groups.get(self.group_key)
        if group is None:
            self._run_with_care(peer, id)
            return
        if self.at_once and not (peer.turns or peer.together):
            found = self.take(group, peer, self.wants)
            if found is not None:
                params = self.params
                if params.multiplexed:
                    peer.multiplexed = True
                id = id or params.id or self.broker.new_id()
                peer.write(encode_taken(self, id, group, *found))
                return
        if peer.open_waits >= self.waits_max:
            self._run_with_care(peer, id)
            return
        broker = self.broker
        deadline_ms = None if self.timeout_ms is None else broker.now_ms + self.timeout_ms
        broker.pull(group, PullReply(self, peer, id), deadline_ms)

    def slots(self) -> Slots | None:
        names = () if self.offset is None else (b"partition", b"offset")
        return slots_of_numbers(self.params, names)

    def fill(self, names: Sequence[bytes], unshaped: Filled) -> Filled:
        if self.offset is None:
            return NumberShape(self, self.params, self._run_by_id, {}, names, unshaped)
        numbers = {b"partition": self.partition or 0, b"offset": self.offset}
        return NumberShape(self, self.params, self.read_one, numbers, names, unshaped)

    def _run_by_id(self, peer: Connection, id: bytes) -> None:
        self.run(peer, id, b"")

    def read_one(self, peer: Connection, id: bytes, partition: int, offset: int) -> None:
        """The message at an offset: what `run` does with a plan that names one, of one that stands
        in place of the plan's."""
        topic = self.topics.get(self.topic_key)
        group = None if topic is None else topic.groups.get(self.group_key)
        if topic is None or group is None or len(topic.partitions) > 1 or topic.competing:
            self._read_with_care(peer, id, partition, offset)
            return
        home, params = topic.partitions[0], self.params
        simple = params.plain and not self.container and peer in group.readers
        there = home.first <= offset < home.visible and not partition and home.fenced is None
        if simple and there and not (peer.turns or peer.together):
            chunk = home.log.find(offset)
            if chunk is not None and peer.open_waits < self.waits_max:
                at = offset - chunk.first
                if len(chunk.bodies[at]) <= LARGE_BYTES:
                    if params.multiplexed:
                        peer.multiplexed = True
                    id = id or params.id or self.broker.new_id()
                    peer.write(encode_taken(self, id, group, chunk, at))
                    return
        self._read_with_care(peer, id, partition, offset)

    def _read_with_care(self, peer: Connection, id: bytes, partition: int, offset: int) -> None:
        found = self._admit(peer, id, partition)
        if found is None:
            return
        topic, group = found
        ticket = PeekReply(self, peer, id)
        peer.held_bytes += PEEK_BYTES
        if (taken := self.broker.register(peer, group)) is not None:
            ticket.settle(taken)
            return
        self.broker.peek(ticket, topic.partitions[partition], offset, group)

    def _run_with_care(self, peer: Connection, id: bytes) -> None:
        """The whole of it, the fast path's cases included."""
        found = self._admit(peer, id, self.partition or 0)
        if found is not None:
            broker = self.broker
            deadline_ms = None if self.timeout_ms is None else broker.now_ms + self.timeout_ms
            broker.pull(found[1], PullReply(self, peer, id), deadline_ms)

    def _admit(self, peer: Connection, id: bytes, partition: int) -> tuple[Topic, Group] | None:
        """The topic and the group. None if there are none, or it cannot be now: it is answered."""
        found = self.find()
        if isinstance(found, BrokerError):
            quiet = self.quiet and found.refusal is Refusal.TOPIC_UNKNOWN
            NativeReply(self.dialect, self.params, peer, id, quiet).settle(found)
            return None
        if (problem := self._problem(peer, found[0], partition)) is not None:
            reply = NativeReply(self.dialect, self.params, peer, id)
            reply.respond(problem.status, body=problem.text.encode())
            return None
        return found

    def _problem(self, peer: Connection, topic: Topic, partition: int) -> BadRequest | None:
        if peer.open_waits >= self.waits_max:
            return BadRequest(429, "429: too many open calls and pulls on this connection")
        if partition >= len(topic.partitions):
            return BadRequest(404, f"404: Partition({partition}) Not Found")
        return None


class Unconsume(GroupPlan):
    """Leaves a group, or only ends its waiting consumes; no reply when that worked."""

    __slots__ = ()

    def run(self, peer: Connection, id: bytes, body: bytes) -> None:
        found = self.find()
        if isinstance(found, BrokerError):
            NativeReply(self.dialect, self.params, peer, id).settle(found)
            return
        self.dialect.broker.leave_group(peer, found[1], stay=self.params.flag(b"stay"))
        if not self.params.multiplexed:
            # Plain HTTP waits for an answer to everything.
            NativeReply(self.dialect, self.params, peer, id).respond(204)
