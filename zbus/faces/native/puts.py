"""Tickets of puts: where messages went, and how durable they are (specification, section 5.1)."""

from __future__ import annotations

from typing import Protocol

from zbus.core.broker import Broker
from zbus.core.chunk import implied_id
from zbus.core.outcomes import Duplicate, Outcome, Stored
from zbus.core.ticket import Ticket
from zbus.core.topic import Partition
from zbus.faces.native.context import Context
from zbus.faces.native.params import Params
from zbus.faces.native.replies import NativeReply
from zbus.faces.peer import Peer
from zbus.wire.replies import KEEP_ALIVE

_STORED = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n" + KEEP_ALIVE + b"%boffset: "


class PutPlan(Protocol):
    """The plan of a produce, as its tickets know it."""

    face: Context
    broker: Broker
    params: Params
    quiet: bool
    silent: bool  # not even a reply

    def ended(self, puts: Puts) -> None:
        """Nobody else may go along with these."""


class PutReply(NativeReply):
    """Of a produce."""

    __slots__ = ()

    implied = True

    def answer(self, outcome: Outcome) -> None:
        if type(outcome) is Stored:
            lines = b""
        elif type(outcome) is Duplicate:
            lines = b"duplicate: %d\r\n" % outcome.count
        else:
            super().answer(outcome)
            return
        self.id = self.id or implied_id(outcome.partition.index, self.offset)
        body = b"%d" % self.face.broker.now_ms
        self.tell(200, self.stored_lines(outcome.partition) + lines, body)

    def stored_lines(self, partition: Partition) -> bytes:
        """Where it went."""
        return partition_lines(partition) + b"offset: %d\r\n" % self.offset


def partition_lines(partition: Partition) -> bytes:
    """How durable a put is, and in which of several partitions it is."""
    topic = partition.topic
    lines = b"durability: %b\r\n" % topic.options.durability.encode()
    if len(topic.partitions) > 1:
        lines += b"partition: %d\r\n" % partition.index
    return lines


class BatchReply(PutReply):
    """Of a produce of many messages: the first one's offset, and how many there are."""

    __slots__ = ("count",)

    def __init__(self, face: Context, params: Params, peer: Peer, id: bytes, quiet: bool) -> None:
        super().__init__(face, params, peer, id, quiet)
        self.count = 0

    def stored_lines(self, partition: Partition) -> bytes:
        return super().stored_lines(partition) + b"count: %d\r\n" % self.count


class Puts(Ticket):
    """Simple puts of one plan that are neighbours in the log, of as many peers: they have one fate,
    so they are one ticket, and what their replies have in common is made once.

    A request without an id is answered in its order. It is in here as long as it is the only such
    request of its peer; another one makes it a reply of its own (`part`).
    """

    __slots__ = ("ids", "parted", "peers", "plan")

    def __init__(self, plan: PutPlan, peer: Peer, id: bytes) -> None:
        super().__init__()
        self.plan = plan
        self.peers = [peer]
        self.ids = [id]  # the requests'; empty = none given
        self.parted: dict[int, PutReply] = {}  # by position, those that left

    def part(self, peer: Peer) -> None:
        """Something else is to be answered to this peer after its put."""
        peer.together = None
        peer.open_tickets -= 1  # the reply counts itself
        plan, rows = self.plan, enumerate(zip(self.peers, self.ids, strict=True))
        at = next(at for at, (other, id) in rows if other is peer and not id)
        self.parted[at] = PutReply(plan.face, plan.params, peer, b"", plan.quiet)

    def answer(self, outcome: Outcome) -> None:
        self.plan.ended(self)
        if type(outcome) is not Stored or self.parted or self.plan.silent:
            self._answer_each(outcome)
            return
        partition = outcome.partition
        index, offset, line = partition.index, self.offset, self.plan.params.topic_line
        now = b"%d" % self.plan.broker.now_ms
        start, end = _STORED % (len(now), partition_lines(partition)), b"\r\n\r\n" + now
        for peer, id in zip(self.peers, self.ids, strict=True):
            id = id or b"%d-%d" % (index, offset)
            data = b"%b%d\r\n%bid: %b%b" % (start, offset, line, id, end)
            offset += 1
            peer.open_tickets -= 1
            peer.together = None
            try:
                if peer.out or peer.framing is not None:
                    peer.write(data)
                    continue
                # The first of this turn, and mostly the only one: as in `write`, without a call.
                peer._ready(peer)
                peer.out.append(data)
                peer.out_bytes += len(data)
            except Exception as error:  # one who cannot be told must not keep others from it
                peer.blame(error)

    def failed(self, error: Exception) -> None:
        for peer in self.peers:
            peer.blame(error)

    def _answer_each(self, outcome: Outcome) -> None:
        """Each by a reply of its own."""
        plan = self.plan
        for at, (peer, id) in enumerate(zip(self.peers, self.ids, strict=True)):
            reply = self.parted.get(at)
            try:
                if reply is None:
                    peer.together = None
                    peer.open_tickets -= 1
                    reply = PutReply(plan.face, plan.params, peer, id, plan.quiet)
                reply.offset = self.offset + at
                reply.settle(outcome)
            except Exception as error:
                peer.blame(error)
