"""`read`: the log itself, without a group, for tools. Nothing changes by it."""

from __future__ import annotations

from zbus.core.api import Outcome, Partition, Peeked, topic_unknown
from zbus.dialects.zbus.context import Context
from zbus.dialects.zbus.replies import NativeReply, partition_unknown
from zbus.dialects.zbus.request import batch_formats as containers
from zbus.dialects.zbus.request.params import Params
from zbus.edge.connection import Connection
from zbus.protocol.parameters import READ_BYTES_DEFAULT, READ_COUNT_DEFAULT


class Read:
    """`topic`, `partition` (0), `offset` (0), `bytes` (1 MiB; 0: none) for stored batches; with an
    Accept for JSON, or with `count`, the messages in them."""

    def __init__(self, dialect: Context, params: Params) -> None:
        self._dialect = dialect
        self._params = params
        self._partition = params.number(b"partition") or 0
        self._offset = params.number(b"offset")
        bytes_max = params.size(b"bytes")
        self._bytes_max = READ_BYTES_DEFAULT if bytes_max is None else bytes_max
        count = params.number(b"count", dialect.settings.batch_messages_max)
        accept = params.fields.get(b"accept", b"")
        self._json = count is not None or b"json" in accept or b"text/html" in accept
        self._count = count or READ_COUNT_DEFAULT
        self._container = containers.wanted_container(accept)
        self._cut = params.size(b"cut")

    def run(self, peer: Connection, id: bytes, body: bytes) -> None:
        reply = ReadReply(self._dialect, self._params, peer, id, self._container, self._bytes_max)
        reply.cut = self._cut
        topic = self._dialect.broker.topic(self._params.topic)
        if topic is None:
            reply.settle(topic_unknown(self._params.topic))
        elif self._partition >= len(topic.partitions):
            reply.settle(partition_unknown(self._partition))
        else:
            partition = topic.partitions[self._partition]
            offset = partition.first if self._offset is None else self._offset
            if not self._bytes_max and not self._json:
                offset = partition.visible  # nothing but how far it goes
            if self._json:
                reply.partition = partition
                self._dialect.broker.browse(reply, partition, offset, self._count)
            else:
                self._dialect.broker.read(reply, partition, offset, self._bytes_max)


class ReadReply(NativeReply):
    """Of a read. Until it is answered, what it may bring counts as held by the peer."""

    __slots__ = ("container", "cut", "partition", "reserved_bytes")

    def __init__(
        self,
        dialect: Context,
        params: Params,
        peer: Connection,
        id: bytes,
        container: bytes,
        size: int,
    ) -> None:
        super().__init__(dialect, params, peer, id)
        self.reserved_bytes = size
        peer.held_bytes += size
        self.container = container
        self.cut: int | None = None
        self.partition: Partition | None = None  # the partition that is read

    def answer(self, outcome: Outcome) -> None:
        self.peer.held_bytes -= self.reserved_bytes
        if isinstance(outcome, Peeked):
            body = containers.encode_pieces(
                self.container, outcome.topic, None, outcome.pieces, self.cut
            )
            count = sum([piece.stop - piece.start for piece in outcome.pieces])
            lines = b"content-type: %b\r\ncount: %d\r\n" % (self.container, count)
            if (partition := self.partition) is not None:
                lines += b"first: %d\r\nend: %d\r\n" % (partition.first, partition.visible)
            self.respond(200, lines, body)
        else:
            super().answer(outcome)
