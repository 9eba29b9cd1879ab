"""`produce`: messages in (specification, sections 3.1-3.3, 5.1 and 8)."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence

from zbus.core.chunk import Chunk
from zbus.core.errors import BrokerError, topic_unknown
from zbus.core.limits import DELAY_MS_MAX
from zbus.core.ticket import Ticket
from zbus.core.topic import Partition, Topic
from zbus.faces.bodies import decode_body, media_type_of, refusal_of
from zbus.faces.forms import check_charset
from zbus.faces.native.containers import MESSAGES, NDJSON, Columns, decode_columns
from zbus.faces.native.context import Context
from zbus.faces.native.params import ALLOW, BadRequest, Params
from zbus.faces.native.puts import BatchReply, PutReply, Puts
from zbus.faces.native.replies import NativeReply
from zbus.faces.native.rpc import call_service
from zbus.faces.native.scheduled import Schedule
from zbus.faces.native.settles import Settles
from zbus.faces.native.stored import (
    OF_KEYS,
    RequestLines,
    check_id,
    check_labels,
    labels_bytes,
    of_message,
    read_idempotency_key,
    shown,
)
from zbus.faces.native.vocabulary import ID_BYTES_MAX
from zbus.faces.peer import Peer
from zbus.wire.errors import WireError
from zbus.wire.target import decode_valid_percent, encode_header_value

_ROWS_PER_STEP, _ROW_WORK = 50, 2

id_of = id
"""Identity of a field table: the messages of a body that have equal heads share one."""


class Produce:
    """Plan of a produce: everything about the message that the head alone tells."""

    __slots__ = (
        "attempts_max",
        "bare",
        "body",
        "broker",
        "container",
        "delay_ms",
        "deliver_at_ms",
        "expected_offset",
        "face",
        "front",
        "idempotent",
        "key",
        "keyed",
        "keyed_puts",
        "lines",
        "misplaced",
        "multiplexed",
        "once",
        "params",
        "partition",
        "partition_of",
        "plain",
        "puts",
        "quiet",
        "said",
        "schedule",
        "settles",
        "silent",
        "tag",
        "timeout_ms",
        "topic_key",
        "ttl_ms",
    )

    def __init__(self, face: Context, params: Params) -> None:
        self.face, self.broker, self.params = face, face.broker, params
        if not params.topic:
            raise BadRequest(400, "400: Bad Format, Missing topic")
        self.topic_key, self.settles = params.topic.lower(), Settles.of(face, params)
        self.quiet = not params.flag(b"ack")
        if params.misnamed:
            raise BadRequest(400, f"400: Bad Format, {shown(params.misnamed)} cannot be a name")
        self.tag = params.fields.get(b"tag", b"").strip(b" \t")
        self.key = params.fields.get(b"key", b"").strip(b" \t")
        check_labels(self.tag, self.key)
        check_id(params.id)
        self.partition = params.number(b"partition")
        self.delay_ms = params.duration(b"delay")
        self.deliver_at_ms = params.time(b"deliver_at")
        self.ttl_ms = params.duration(b"ttl")
        self.attempts_max = params.number(b"max_attempts") or 0
        self.timeout_ms = params.duration(b"timeout")
        self.expected_offset = params.number(b"expected_offset")
        self.front = self._front()
        self.schedule = Schedule.of(params)
        self.once = b""
        if (value := params.fields.get(b"idempotency-key")) is not None:
            self.once = encode_header_value(read_idempotency_key(value))
        # Its id is its key: then the heads of a client's messages do not differ in more than that.
        self.idempotent = not self.once and params.flag(b"idempotent")
        self.body = params.fields.get(b"body", b"")  # of a request that has none of its own
        media_type = media_type_of(params.fields)
        self.container = media_type if media_type in (MESSAGES, NDJSON) else b""
        self.said = self._said(params.fields, params.head.contained, self.tag, self.key)
        self.bare = False
        self.lines = self._own_lines()
        self.multiplexed = params.multiplexed
        self.silent = self.quiet and params.multiplexed  # not even a reply
        # The puts of this turn that others may go along with, and where they are.
        self.puts: Puts | None = None
        self.keyed_puts: Puts | None = None  # the same of a plan whose puts have a key each
        self.partition_of: Partition
        self.misplaced = params.misplaced
        simple = self._simple()
        self.plain = simple and not self.idempotent
        self.keyed = simple and self.idempotent

    def _simple(self) -> bool:
        """Nothing but id and body differs from one message of this head to the next."""
        params = self.params
        rare = (self.delay_ms, self.deliver_at_ms, self.ttl_ms, self.attempts_max or None)
        return (
            not self.container
            and self.partition is None
            and not any(number is not None for number in rare)
            and self.expected_offset is None
            and not (self.once or self.front)
            and params.browser is None
            and not self.misplaced
            and self.settles is None
            and self.schedule is None
        )

    def _front(self) -> bool:
        front = bool(self.params.switch(b"front"))
        if front and (self.delay_ms or self.deliver_at_ms):
            raise BadRequest(400, "400: Bad Format, front is for messages without a delay")
        if front and self.settles is not None:
            raise BadRequest(400, "400: Bad Format, front and ack_topic do not go together")
        return front

    def run(self, peer: Peer, id: bytes, body: bytes) -> None:
        puts = self.puts
        if puts is not None and len(id) <= ID_BYTES_MAX:
            id = id or self.params.id
            if id or self.multiplexed or not (peer.turns or peer.together):
                known, own = peer.put_lines, self.lines
                lines = known[1] if known is not None and known[0] is own else self._lines(peer)
                body = body or self.body
                if self.broker.put_along(
                    self.partition_of, puts, id, lines, body, self.tag, self.key
                ):
                    puts.peers.append(peer)
                    puts.ids.append(id)
                    peer.open_tickets += 1
                    if self.multiplexed:
                        peer.multiplexed = True
                    elif not id:
                        peer.together = puts
                    return
        self._run_first(peer, id, body)

    def _run_first(self, peer: Peer, id: bytes, body: bytes) -> None:
        """What no other put of this turn opened the way for."""
        params, topic = self.params, self.broker.topics.get(self.topic_key)
        if topic is not None and topic.bare is not self.bare:
            self.know(topic)
        if topic is None or topic.careful or not self.plain or len(id) > ID_BYTES_MAX:
            if self.keyed and topic is not None and not topic.careful:
                self._run_with_key(topic, peer, id, body)
            else:
                self._run_with_care(peer, id, body, topic)
            return
        id = id or params.id
        ticket = self._ticket(peer, id)
        if type(ticket) is Puts:
            self.puts = ticket
        self.partition_of = partition = topic.partition_for(self.key)
        lines, body = self._lines(peer), body or self.body
        self.broker.put(partition, ticket, id, lines, body, self.tag, self.key)

    def know(self, topic: Topic) -> None:
        """Which lines are stored is the topic's choice."""
        self.bare = topic.bare
        self.lines = self._own_lines()

    def _ticket(self, peer: Peer, id: bytes) -> Ticket:
        """Of a put that others may go along with, unless its reply is not like theirs."""
        params = self.params
        if not params.plain or not (id or self.multiplexed or not (peer.turns or peer.together)):
            return PutReply(self.face, params, peer, id, self.quiet)
        puts = Puts(self, peer, id)
        peer.open_tickets += 1
        if self.multiplexed:
            peer.multiplexed = True
        elif not id:
            peer.together = puts
        return puts

    def ended(self, puts: Puts) -> None:
        """Nobody else may go along with these."""
        if self.puts is puts:
            self.puts = None
        elif self.keyed_puts is puts:
            self.keyed_puts = None

    def _run_with_key(self, topic: Topic, peer: Peer, id: bytes, body: bytes) -> None:
        """A message that is sent again until it is answered: its id is its idempotency key."""
        id = id or self.params.id
        if not 0 < len(id) <= ID_BYTES_MAX or id.translate(None, OF_KEYS):
            self._run_with_care(peer, id, body, topic)  # which says what is wrong with it
            return
        lines, body = self._lines(peer), body or self.body
        message = id, lines, body, self.tag, self.key, encode_header_value(id)
        puts = self.keyed_puts
        if puts is not None and self.broker.put_along_with_key(self.partition_of, puts, *message):
            puts.peers.append(peer)
            puts.ids.append(id)
            peer.open_tickets += 1
            if self.multiplexed:
                peer.multiplexed = True
            return
        ticket = self._ticket(peer, id)
        if type(ticket) is Puts:
            self.keyed_puts = ticket
        self.partition_of = topic.partition_for(self.key)
        self.broker.put_with_key(self.partition_of, ticket, *message)

    def _lines(self, peer: Peer) -> bytes:
        """The header lines that are stored with what comes from this peer. A peer repeats itself,
        and what is one object is kept in memory once."""
        known = peer.put_lines
        if known is None or known[0] is not self.lines:
            known = peer.put_lines = (self.lines, self.lines + self.sender_lines(peer))
        return known[1]

    def _own_lines(self) -> bytes:
        """The header lines that are stored with what comes with this head."""
        return self.said.of_topic(self.params.head, self.bare)

    def _said(
        self, fields: dict[bytes, bytes], contained: bool, tag: bytes, key: bytes
    ) -> RequestLines:
        browser, bytes_max = self.params.browser, self.face.settings.message_headers_bytes_max
        used_bytes = labels_bytes(tag, key, self.once)
        return RequestLines(fields, contained, browser, bytes_max, used_bytes)

    def sender_lines(self, peer: Peer) -> bytes:
        """The header lines that say who sent a message; the same for all of a connection."""
        lines = peer.lines
        if not lines:
            known = peer.id, self.face.settings.address.encode(), peer.address.encode()
            lines = peer.lines = b"sender: %b\r\nhost: %b\r\nremote-addr: /%b\r\n" % known
        return lines[: lines.index(b"host: ")] if self.bare else lines

    def _run_with_care(self, peer: Peer, id: bytes, body: bytes, topic: Topic | None) -> None:
        """The whole of it, the fast path's cases included."""
        face, params = self.face, self.params
        try:
            check_id(id)
            if topic is None:
                self._refuse_topic(peer, id)
            elif self.schedule is not None:
                self.schedule.put(self, topic, peer, id, self._lines(peer), body or self.body)
            elif topic.options.calls:
                call_service(self, topic, peer, id, body)  # its method is the service's business
            elif self.misplaced:
                raise BadRequest(405, self.misplaced, ALLOW)
            elif self.container:
                self._run_batch(topic, peer, id, body)
            else:
                partition = self._partition(topic, self.key)
                due_ms, expires_ms = self._times()
                once = self._idempotency_key(id)
                if self._may_be_a_reload(topic, id):
                    broker = face.broker
                    once = face.reloads.key(params.head, peer.address, broker.now_ms, broker.new_id)
                ticket = PutReply(face, params, peer, id, self.quiet)
                chunk, lines = Chunk(), self._lines(peer)
                body = body or self.body
                labels = self.tag, self.key, due_ms, expires_ms, once, self.attempts_max
                chunk.add(ticket.id, lines, body, *labels)
                self._put(partition, chunk, ticket)
        except BadRequest as error:
            reply = NativeReply(face, params, peer, id, self.quiet)
            reply.tell(error.status, error.lines, error.text.encode())

    def _put(self, partition: Partition, chunk: Chunk, ticket: Ticket) -> None:
        broker = self.face.broker
        if self.settles is not None:
            sources = self.settles.sources()
            if isinstance(sources, BrokerError):
                ticket.settle(sources)
            else:
                broker.settling.put(partition, chunk, ticket, sources, self.expected_offset)
            return
        if self.front:
            broker.put_front(partition, chunk, ticket, self.expected_offset)
            return
        recognised = chunk.once is not None or partition.topic.options.remembers_ids
        if recognised or self.expected_offset is not None:
            broker.put_once(partition, chunk, ticket, self.expected_offset)
        else:
            broker.put_all(partition, chunk, ticket)

    def _may_be_a_reload(self, topic: Topic, id: bytes) -> bool:
        """A browser opens a URL, and nothing that it says would tell another opening from it."""
        browser = self.params.browser
        if browser is None or not browser.navigates or self.params.head.method != b"GET":
            return False
        known = (
            self.once or self.idempotent or (topic.options.remembers_ids and (id or self.params.id))
        )
        return not known and self.face.reloads.window_ms > 0

    def _refuse_topic(self, peer: Peer, id: bytes) -> None:
        unknown = topic_unknown(self.params.topic)
        NativeReply(self.face, self.params, peer, id, self.quiet).settle(unknown)

    def _partition(self, topic: Topic, key: bytes) -> Partition:
        if self.partition is None:
            if self.expected_offset is not None and not key and len(topic.partitions) > 1:
                text = "expected_offset needs a partition or key: this topic has several partitions"
                raise BadRequest(400, f"400: Bad Format, {text}")
            return topic.partition_for(key)
        if self.partition >= len(topic.partitions):
            count = len(topic.partitions)
            raise BadRequest(404, f"404: Partition({self.partition}) Not Found, there are {count}")
        return topic.partitions[self.partition]

    def _times(self) -> tuple[int, int]:
        """When the message is due and when it expires; 0 = at once, never."""
        broker = self.face.broker
        now_ms = broker.now_ms
        # The sender goes by a clock outside, which may have been set since the broker's was.
        due_ms = self.deliver_at_ms + broker.outside.ahead_ms() if self.deliver_at_ms else 0
        if due_ms > now_ms + DELAY_MS_MAX:
            raise BadRequest(400, "400: Bad Format, deliver_at is more than ten years ahead")
        if self.delay_ms is not None:
            due_ms = broker.outside.asked_ms() + self.delay_ms if self.delay_ms else 0
        if due_ms <= now_ms:
            due_ms = 0
        return due_ms, 0 if self.ttl_ms is None else broker.outside.asked_ms() + self.ttl_ms

    def _idempotency_key(self, id: bytes) -> bytes:
        """The key of a message with this id; empty = none."""
        if not self.idempotent:
            return self.once
        id = id or self.params.id
        if not id or id.translate(None, OF_KEYS):
            text = "an idempotent request has an id of visible ASCII characters without quotes"
            raise BadRequest(400, f"400: Bad Format, {text}")
        return encode_header_value(id)

    def _run_batch(self, topic: Topic, peer: Peer, id: bytes, body: bytes) -> None:
        ticket = BatchReply(self.face, self.params, peer, id, self.quiet)
        peer.begin(self._batch(topic, ticket, peer, id, body))

    def _batch(
        self, topic: Topic, ticket: BatchReply, peer: Peer, id: bytes, body: bytes
    ) -> Iterator[int]:
        """Put a batch, in steps: thousands of messages in one go are a long turn for others. Each
        tells its work. Nothing is stored before the last one."""
        try:
            if self.container == NDJSON:
                check_charset(self.params.fields.get(b"content-type", b""))
            body = yield from decode_body(self.params.fields, body, peer)
            count_max = self.face.settings.batch_messages_max
            columns = yield from decode_columns(self.container, body, self.face.heads, count_max)
            if not columns.bodies:
                raise BadRequest(400, "400: Bad Format, the batch is empty")
            partition = self._batch_partition(topic, columns.fields)
            chunk = yield from self._batch_chunk(columns, peer, self._idempotency_key(id))
        except WireError as error:
            peer.work -= len(body) >> 10  # that are looked at in one go
            if error.status == 400:
                error = WireError(400, f"Bad Format, {error.text}")
            answer = refusal_of(error)
            ticket.tell(answer.status, answer.lines, answer.text.encode())
        except BadRequest as error:
            ticket.tell(error.status, error.lines, error.text.encode())
        else:
            peer.work -= len(chunk) >> 1  # half a microsecond each, to put and to write
            if self.broker.topics.get(self.topic_key) is not topic or topic.options.calls:
                ticket.settle(topic_unknown(self.params.topic))  # it was removed between two steps
                return
            ticket.count = len(chunk)
            self._put(partition, chunk, ticket)

    def _batch_chunk(
        self, columns: Columns, peer: Peer, once: bytes
    ) -> Generator[int, None, Chunk]:
        """A batch as it is stored. What a head says is worked out once for all that have it."""
        shared = self.sender_lines(peer) + b"origin_method: %b\r\n" % self.params.head.method
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
        due_ms, expires_ms = self._times()
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
            self.attempts_max,
        )
        return chunk

    def _batch_row(self, fields: dict[bytes, bytes], shared: bytes) -> tuple[bytes, bytes, bytes]:
        """Header lines, tag and key of a message of a batch."""
        tag, key = fields.get(b"tag"), fields.get(b"key", self.key)
        tag = self.tag if tag is None else decode_valid_percent(tag)
        check_labels(tag, key)
        return self._said(fields, True, tag, key).of_batch() + shared, tag, key

    def _batch_partition(self, topic: Topic, all_fields: Sequence[dict[bytes, bytes]]) -> Partition:
        """A batch is all or none, so it goes to one partition."""
        if self.partition is not None or len(topic.partitions) == 1:
            return self._partition(topic, b"")
        # Messages without a key go along with those that have one.
        keys = {fields.get(b"key", self.key) for fields in all_fields} - {b""}
        if len({topic.partition_for(key).index for key in keys}) > 1:
            text = "the keys of this batch belong to different partitions; send a batch for each"
            raise BadRequest(400, f"400: Bad Format, {text}")
        return self._partition(topic, next(iter(keys), b""))
