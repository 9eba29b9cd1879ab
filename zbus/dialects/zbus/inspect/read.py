"""`read`: the log itself, without a group, for tools. Nothing changes by it."""

from __future__ import annotations

from zbus.core.api import (
    FILTER_BYTES_MAX,
    SCAN_MAX,
    Outcome,
    Partition,
    Peeked,
    Searched,
    SearchWanted,
    Slice,
    Topic,
    compile_filter,
    topic_unknown,
)
from zbus.dialects.zbus.context import Context
from zbus.dialects.zbus.replies import NativeReply, partition_unknown
from zbus.dialects.zbus.request import batch_formats as containers
from zbus.dialects.zbus.request.params import BadRequest, Params
from zbus.dialects.zbus.schema.kinds import KEY_BYTES_MAX, SEARCHED_BYTES_MAX
from zbus.edge.connection import Connection
from zbus.protocol.parameters import READ_BYTES_DEFAULT, READ_COUNT_DEFAULT

_SEARCHES = tuple(b"newest since until tag key header text scan".split())


class Read:
    """`topic`, `partition` (0), `offset` (0), `bytes` (1 MiB; 0: none) for stored batches; with an
    Accept for JSON, or with `count`, the messages in them; with any of `_SEARCHES` those that
    fit."""

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
        self._search: SearchWanted | None = None
        if any(params.fields.get(name) for name in _SEARCHES):
            self._search = _search_of(params, self._offset, self._count)

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
            if self._search is not None:
                self._dialect.broker.search(reply, partition, self._search)
                return
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
            self._show(outcome.topic, outcome.pieces, self.partition)
        elif isinstance(outcome, Searched):
            lines = b"scanned: %d\r\n" % outcome.scanned
            if outcome.next is not None:
                lines += b"next: %d\r\n" % outcome.next
            self.peer.work -= outcome.scanned
            self._show(outcome.partition.topic, outcome.pieces, outcome.partition, lines)
        else:
            super().answer(outcome)

    def _show(
        self, topic: Topic, pieces: list[Slice], partition: Partition | None, lines: bytes = b""
    ) -> None:
        """Messages."""
        body = containers.encode_pieces(self.container, topic, None, pieces, self.cut)
        count = sum([piece.stop - piece.start for piece in pieces])
        lines += b"content-type: %b\r\ncount: %d\r\n" % (self.container, count)
        if partition is not None:
            lines += b"first: %d\r\nend: %d\r\n" % (partition.first, partition.visible)
        self.respond(200, lines, body)


def _search_of(params: Params, offset: int | None, count: int) -> SearchWanted:
    """What a search looks for."""
    limits = {
        b"tag": FILTER_BYTES_MAX,
        b"key": KEY_BYTES_MAX,
        b"header": SEARCHED_BYTES_MAX,
        b"text": SEARCHED_BYTES_MAX,
    }
    for name, bytes_max in limits.items():
        if len(params.fields.get(name, b"")) > bytes_max:
            text = f"400: Bad Format, {name.decode()} has at most {bytes_max} bytes"
            raise BadRequest(400, text)
    name, _, value = params.fields.get(b"header", b"").partition(b":")
    return SearchWanted(
        newest=params.flag(b"newest"),
        offset=offset,
        since_ms=params.time(b"since") or 0,
        until_ms=params.time(b"until") or 1 << 63,
        match=compile_filter(params.text(b"tag") or ""),
        key=params.fields.get(b"key") or None,
        header=(name.strip().lower(), value.strip()) if name.strip() else None,
        text=params.fields.get(b"text", b""),
        count=count,
        scan=params.number(b"scan") or SCAN_MAX,
    )
