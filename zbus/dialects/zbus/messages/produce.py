"""`produce`: messages in (specification, sections 3.1-3.3, 5.1 and 8)."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence

from zbus.core.api import (
    BrokerError,
    Chunk,
    Partition,
    PutOptions,
    PutPlace,
    Row,
    Ticket,
    Topic,
    topic_unknown,
)
from zbus.dialects.zbus.context import Context
from zbus.dialects.zbus.messages.produce_with_ack import Settles
from zbus.dialects.zbus.messages.put_shapes import PutShape, slots_of_put
from zbus.dialects.zbus.messages.put_tickets import NOT_RARE, BatchReply, PutReply, Puts, Rare
from zbus.dialects.zbus.messages.rpc import call_service
from zbus.dialects.zbus.messages.scheduled import Schedule
from zbus.dialects.zbus.replies import NativeReply
from zbus.dialects.zbus.request.batch_formats import NDJSON, Columns, container_of, decode_columns
from zbus.dialects.zbus.request.params import ALLOW, BadRequest, Params
from zbus.dialects.zbus.request.put_kinds import PutKind
from zbus.dialects.zbus.request.stored import (
    RequestLines,
    check_id,
    check_labels,
    is_plain_key,
    labels_bytes,
    of_message,
    read_id_as_key,
    read_idempotency_key,
    shown,
)
from zbus.dialects.zbus.schema.kinds import ID_BYTES_MAX
from zbus.edge.bodies import decode_body, refusal_of
from zbus.edge.connection import Connection
from zbus.edge.forms import check_charset
from zbus.edge.shape_plans import Filled
from zbus.wire.errors import WireError
from zbus.wire.heads.shapes import Slots
from zbus.wire.target import decode_valid_percent, encode_header_value

_ROWS_PER_STEP, _ROW_WORK = 50, 2

id_of = id
"""Identity of a field table: the messages of a body that have equal heads share one."""


class Produce:
    """Plan of a produce: everything about the message that the head alone tells."""

    __slots__ = (
        "body",
        "broker",
        "careful",
        "container",
        "dialect",
        "id",
        "idempotent",
        "key",
        "kind",
        "lines",
        "minimal_headers",
        "misplaced",
        "multiplexed",
        "once",
        "options",
        "params",
        "place",
        "quiet",
        "rare",
        "request_lines",
        "schedule",
        "settles",
        "tag",
        "timeout_ms",
        "topic_key",
    )

    def __init__(self, dialect: Context, params: Params) -> None:
        self.dialect, self.broker, self.params = dialect, dialect.broker, params
        self.topic_key, self.settles = params.topic.lower(), Settles.of(dialect, params)
        self.quiet = not params.flag(b"ack")
        if params.misnamed:
            raise BadRequest(400, f"400: Bad Format, {shown(params.misnamed)} cannot be a name")
        params.note_typos()
        self.tag = params.fields.get(b"tag", b"").strip(b" \t")
        self.key = params.fields.get(b"key", b"").strip(b" \t")
        check_labels(self.tag, self.key)
        check_id(params.id)
        self.id = params.id
        self.rare = Rare.of(params)
        self.timeout_ms = params.duration(b"timeout")
        self.options = self._options()
        self.schedule = Schedule.of(params)
        self.once = b""
        if (value := params.fields.get(b"idempotency-key")) is not None:
            self.once = encode_header_value(read_idempotency_key(value))
        # Its id is its key: then the heads of a client's messages do not differ in more than that.
        self.idempotent = not self.once and params.flag(b"idempotent")
        self.body = params.fields.get(b"body", b"")  # of a request that has none of its own
        self.container = container_of(params.fields)
        self.request_lines = self._request_lines(
            params.fields, params.head.contained, self.tag, self.key
        )
        # What is stored of how it came: the topic's choice, see `know`.
        self.minimal_headers: bool | None = None
        self.lines = b""
        self.multiplexed = params.multiplexed
        self.misplaced = params.misplaced
        # Where it put last, if its messages have nothing but an id and a body.
        self.place: Partition | None = None
        self.kind = PutKind.of(dialect.put_kinds, params, self.quiet)
        self.careful = self._is_careful()

    def _is_careful(self) -> bool:
        """More has to be decided than where a message goes, or it may be many messages."""
        params = self.params
        return (
            bool(self.container or self.misplaced)
            or self.options.place is not PutPlace.END
            or self.settles is not None
            or self.schedule is not None
            or self.timeout_ms is not None
            or (params.opened and params.head.method == b"GET")  # it may be a reload
        )

    def _options(self) -> PutOptions:
        rare = self.rare or NOT_RARE
        if not self.params.switch(b"front"):
            return PutOptions(expected_offset=rare.expected_offset)
        if rare.delay_ms or rare.deliver_at_ms:
            raise BadRequest(400, "400: Bad Format, front is for messages without a delay")
        if self.settles is not None:
            raise BadRequest(400, "400: Bad Format, front and ack_topic do not go together")
        return PutOptions(PutPlace.FRONT, rare.expected_offset)

    def run(self, peer: Connection, id: bytes, body: bytes) -> None:
        place = self.place
        if place is not None and type(place.last) is Puts and len(id) <= ID_BYTES_MAX:
            known, lines = peer.put_lines, self.lines
            if known is not None and known[0] == lines:  # as `with_sender` does, without a call
                lines = known[1]
            else:
                lines = self.with_sender(peer, lines, self.minimal_headers)
            self.put_row(place, peer, (id or self.id, lines, body or self.body))
        else:
            self._run_first(peer, id, body)

    def _run_first(self, peer: Connection, id: bytes, body: bytes) -> None:
        """The first of a turn."""
        topic = self.broker.topics.get(self.topic_key)
        if topic is not None and topic.minimal_headers is not self.minimal_headers:
            self.know(topic)
        if topic is None or topic.has_put_hooks or self.careful or len(id) > ID_BYTES_MAX:
            self._run_with_care(peer, id, body, topic)
            return
        id, once = id or self.id, self.once
        if self.idempotent:
            if not is_plain_key(id):
                self._run_with_care(peer, id, body, topic)  # which says what is wrong with it
                return
            once = encode_header_value(id)
        lines, body = self.with_sender(peer, self.lines, self.minimal_headers), body or self.body
        if self.tag or self.key or once or self.rare is not None:
            self.put(topic, peer, id, lines, body, self.tag, self.key, once, self.rare)
        else:
            self.place = topic.partition_for(b"")
            self.put_row(self.place, peer, (id, lines, body))

    def put(
        self,
        topic: Topic,
        peer: Connection,
        id: bytes,
        lines: bytes,
        body: bytes,
        tag: bytes,
        key: bytes,
        once: bytes,
        rare: Rare | None,
    ) -> None:
        """Put a message about which nothing is left to be decided but where, and when it is due."""
        if rare is None:
            row = id, lines, body, tag, key, 0, 0, once, 0
            self.put_row(topic.partition_for(key), peer, row)
            return
        try:
            partition = rare.place(topic, key)
            due_ms, expires_ms = rare.times(self.broker)
        except BadRequest as error:
            self._refuse(peer, id, error)
            return
        row = (id, lines, body, tag, key, due_ms, expires_ms, once, rare.attempts_max)
        if rare.expected_offset is None:
            self.put_row(partition, peer, row)
        else:
            ticket = PutReply(self.dialect, self.params, peer, id, self.quiet)
            options = PutOptions(expected_offset=rare.expected_offset)
            self.broker.put(partition, ticket, row, options)

    def put_row(self, partition: Partition, peer: Connection, row: Row) -> None:
        """The same, of what is all decided. Neighbours in the log whose replies are alike have one
        ticket."""
        id, kind, puts = row[0], self.kind, partition.last
        before = None if id or self.multiplexed else peer.turns or peer.together
        if (
            type(puts) is Puts
            and puts.kind is kind
            and (before is None or before is puts)
            and self.broker.put_along(partition, puts, row)
        ):
            puts.peers.append(peer)  # as `add` does, without a call
            puts.ids.append(id)
            peer.open_tickets += 1
            if self.multiplexed:
                peer.multiplexed = True
            elif not id:
                peer.together = puts
            return
        ticket: Ticket
        if kind is None or before:
            ticket = PutReply(self.dialect, self.params, peer, id, self.quiet)
        else:
            ticket = Puts(self, kind, peer, id)
        self.broker.put(partition, ticket, row)

    def slots(self) -> Slots | None:
        """A message, about which nothing is left to be decided."""
        return None if self.careful else slots_of_put(self.params, self.request_lines)

    def fill(self, names: Sequence[bytes], unshaped: Filled) -> Filled:
        return PutShape(self, names, unshaped)

    def know(self, topic: Topic) -> None:
        """Which lines are stored is the topic's choice."""
        self.know_lines(topic.minimal_headers)

    def know_lines(self, minimal: bool) -> None:
        self.minimal_headers = minimal
        self.lines = self.request_lines.of_topic(self.params.head, minimal)

    def with_sender(self, peer: Connection, lines: bytes, minimal_headers: bool | None) -> bytes:
        """The header lines that are stored with what comes from this peer. A peer repeats itself,
        and what is one object is kept in memory once."""
        known = peer.put_lines
        if known is None or known[0] != lines:
            known = peer.put_lines = (lines, lines + self.sender_lines(peer, minimal_headers))
        return known[1]

    def _request_lines(
        self, fields: dict[bytes, bytes], contained: bool, tag: bytes, key: bytes
    ) -> RequestLines:
        browser, bytes_max = self.params.browser, self.dialect.settings.message_headers_bytes_max
        used_bytes = labels_bytes(tag, key, self.once)
        return RequestLines(fields, contained, browser, bytes_max, used_bytes)

    def sender_lines(self, peer: Connection, minimal_headers: bool | None) -> bytes:
        """The header lines that say who sent a message; the same for all of a connection."""
        lines = peer.lines
        if lines is None:
            address, sender = self.dialect.settings.address.encode(), b"sender: %b\r\n" % peer.id
            way = b"host: %b\r\nremote-addr: /%b\r\n" % (address, peer.address.encode())
            lines = peer.lines = sender + way, sender
        return lines[bool(minimal_headers)]

    def _refuse(self, peer: Connection, id: bytes, error: BadRequest) -> None:
        reply = NativeReply(self.dialect, self.params, peer, id, self.quiet)
        reply.respond(error.status, error.lines, error.text.encode())

    def _run_with_care(self, peer: Connection, id: bytes, body: bytes, topic: Topic | None) -> None:
        """The whole of it, the fast path's cases included."""
        dialect, params = self.dialect, self.params
        try:
            check_id(id)
            if topic is None:
                self._refuse_topic(peer, id)
                return
            if self.schedule is not None:
                lines = self.with_sender(peer, self.lines, self.minimal_headers)
                self.schedule.put(self, topic, peer, id, lines, body or self.body)
            elif topic.options.calls:
                call_service(self, topic, peer, id, body)  # its method is the service's business
            elif self.timeout_ms is not None:
                text = f"timeout is for calls, and Topic({topic.name}) is not one of services"
                raise BadRequest(400, f"400: Bad Format, {text}")
            elif self.misplaced:
                raise BadRequest(405, self.misplaced, ALLOW)
            elif self.container:
                self._run_batch(topic, peer, id, body)
            else:
                rare = self.rare or NOT_RARE
                partition = rare.place(topic, self.key)
                due_ms, expires_ms = rare.times(self.broker)
                once = self._idempotency_key(id)
                if self._may_be_a_reload(topic, id):
                    broker = dialect.broker
                    once = dialect.reloads.key(
                        params.head, peer.address, broker.now_ms, broker.new_id
                    )
                ticket = PutReply(dialect, params, peer, id, self.quiet)
                self._count_check(topic, peer, len(body))
                lines = self.with_sender(peer, self.lines, self.minimal_headers)
                labels = self.tag, self.key, due_ms, expires_ms, once, rare.attempts_max
                row = ticket.id, lines, body or self.body, *labels
                self._put(partition, ticket, Chunk.single(row))
        except BadRequest as error:
            self._refuse(peer, id, error)

    def _count_check(self, topic: Topic, peer: Connection, body_bytes: int) -> None:
        """A schema of ten properties takes 9 microseconds for 1 KiB."""
        if topic.check is not None:
            peer.work -= topic.check.weight * body_bytes >> 12

    def _put(self, partition: Partition, ticket: Ticket, chunk: Chunk) -> None:
        if self.settles is None:
            self.broker.put_all(partition, ticket, chunk, self.options)
            return
        sources = self.settles.sources()
        if isinstance(sources, BrokerError):
            ticket.settle(sources)
        else:
            self.broker.put_and_ack(partition, ticket, chunk, sources, self.options)

    def _may_be_a_reload(self, topic: Topic, id: bytes) -> bool:
        """A browser opens a URL, and nothing that it says would tell another opening from it."""
        browser = self.params.browser
        if browser is None or not browser.navigates or self.params.head.method != b"GET":
            return False
        known = (
            self.once or self.idempotent or (topic.options.remembers_ids and (id or self.params.id))
        )
        return not known and self.dialect.reloads.window_ms > 0

    def _refuse_topic(self, peer: Connection, id: bytes) -> None:
        unknown = topic_unknown(self.params.topic)
        NativeReply(self.dialect, self.params, peer, id, self.quiet).settle(unknown)

    def _idempotency_key(self, id: bytes) -> bytes:
        """The key of a message with this id; empty = none."""
        if not self.idempotent:
            return self.once
        return encode_header_value(read_id_as_key(id or self.params.id))

    def _run_batch(self, topic: Topic, peer: Connection, id: bytes, body: bytes) -> None:
        ticket = BatchReply(self.dialect, self.params, peer, id, self.quiet)
        peer.begin(self._batch(topic, ticket, peer, id, body))

    def _batch(
        self, topic: Topic, ticket: BatchReply, peer: Connection, id: bytes, body: bytes
    ) -> Iterator[int]:
        """Put a batch, in steps: thousands of messages in one go are a long turn for others. Each
        tells its work. Nothing is stored before the last one."""
        try:
            if self.container == NDJSON:
                check_charset(self.params.fields.get(b"content-type", b""))
            body = yield from decode_body(self.params.fields, body, peer)
            count_max = self.dialect.settings.batch_messages_max
            columns = yield from decode_columns(self.container, body, self.dialect.heads, count_max)
            if not columns.bodies:
                raise BadRequest(400, "400: Bad Format, the batch is empty")
            partition = self._batch_partition(topic, columns.fields)
            chunk = yield from self._batch_chunk(columns, peer, self._idempotency_key(id))
        except WireError as error:
            peer.work -= len(body) >> 10  # that are looked at in one go
            if error.status == 400:
                error = WireError(400, f"Bad Format, {error.text}")
            answer = refusal_of(error)
            ticket.respond(answer.status, answer.lines, answer.text.encode())
        except BadRequest as error:
            ticket.respond(error.status, error.lines, error.text.encode())
        else:
            peer.work -= len(chunk) >> 1  # half a microsecond each, to put and to write
            if self.broker.topics.get(self.topic_key) is not topic or topic.options.calls:
                ticket.settle(topic_unknown(self.params.topic))  # it was removed between two steps
                return
            ticket.count = len(chunk)
            self._count_check(topic, peer, len(body))
            self._put(partition, ticket, chunk)

    def _batch_chunk(
        self, columns: Columns, peer: Connection, once: bytes
    ) -> Generator[int, None, Chunk]:
        """A batch as it is stored. What a head says is worked out once for all that have it."""
        shared = (
            self.sender_lines(peer, self.minimal_headers)
            + b"origin_method: %b\r\n" % self.params.head.method
        )
        rows: dict[int, tuple[bytes, bytes, bytes]] = {}
        different = dict(zip(map(id_of, columns.fields), columns.fields, strict=True))
        for number, (known, fields) in enumerate(different.items(), 1):
            try:
                rows[known] = self._batch_row(fields, shared)
            except BadRequest as error:
                index = next(at for at, other in enumerate(columns.fields) if other is fields)
                raise of_message(index, error) from None
            if not number % _ROWS_PER_STEP:
                yield _ROWS_PER_STEP * _ROW_WORK
        check_id(max(columns.ids, key=len))
        rare = self.rare or NOT_RARE
        due_ms, expires_ms = rare.times(self.broker)
        if len(columns.fields) == 1:
            found = [*rows.values()] * len(columns.bodies)
        else:
            found = [rows[known] for known in map(id_of, columns.fields)]
        tagged, keyed = (any(row[at] for row in rows.values()) for at in (1, 2))
        chunk = Chunk()
        chunk.fill(
            columns.ids,
            [row[0] for row in found],
            columns.bodies,
            [row[1] for row in found] if tagged else (),
            [row[2] for row in found] if keyed else (),
            due_ms,
            expires_ms,
            once,
            rare.attempts_max,
        )
        return chunk

    def _batch_row(self, fields: dict[bytes, bytes], shared: bytes) -> tuple[bytes, bytes, bytes]:
        """Header lines, tag and key of a message of a batch."""
        tag, key = fields.get(b"tag"), fields.get(b"key", self.key)
        tag = self.tag if tag is None else decode_valid_percent(tag)
        check_labels(tag, key)
        if priority := self.params.fields.get(b"priority"):
            fields = {b"priority": priority, **fields}
        return self._request_lines(fields, True, tag, key).of_batch() + shared, tag, key

    def _batch_partition(self, topic: Topic, all_fields: Sequence[dict[bytes, bytes]]) -> Partition:
        """A batch is all or none, so it goes to one partition."""
        rare = self.rare or NOT_RARE
        if rare.partition is not None or len(topic.partitions) == 1:
            return rare.place(topic, b"")
        # Messages without a key go along with those that have one.
        keys = {fields.get(b"key", self.key) for fields in all_fields} - {b""}
        if len({topic.partition_for(key).index for key in keys}) > 1:
            text = "the keys of this batch belong to different partitions; send a batch for each"
            raise BadRequest(400, f"400: Bad Format, {text}")
        return rare.place(topic, next(iter(keys), b""))
