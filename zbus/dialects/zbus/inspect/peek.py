"""`peek`: what a group has delayed, leased or ready, as JSON."""

from __future__ import annotations

from base64 import b64encode
from functools import partial

import msgspec

from zbus.core.api import FILTER_BYTES_MAX, BrokerError, Group, Listing, compile_filter
from zbus.core.api import LISTED_STATES as STATES
from zbus.core.api import LISTING_FIRST as FIRST
from zbus.core.api import ListedRow as Row
from zbus.core.api import ListingKey as Key
from zbus.core.api import ListingWanted as Wanted
from zbus.dialects.zbus.context import Context
from zbus.dialects.zbus.documents.info import shown_holder
from zbus.dialects.zbus.messages.consume import GroupPlan
from zbus.dialects.zbus.messages.pull_tickets import PEEK_BYTES
from zbus.dialects.zbus.replies import JSON, NativeReply
from zbus.dialects.zbus.request.params import BadRequest, Params
from zbus.dialects.zbus.schema.kinds import KEY_BYTES_MAX
from zbus.edge.connection import Connection
from zbus.protocol.documents import ListedMessage
from zbus.wire.numbers import parse_number

_BODIES_BYTES_MAX = 1 << 20
"""Of one reply; the message that passes it is the last."""

_COUNT_DEFAULT = 100

_json = msgspec.json.Encoder().encode


class Peek(GroupPlan):
    """Plan of a listing."""

    __slots__ = ("body", "wanted")

    def __init__(self, dialect: Context, params: Params) -> None:
        super().__init__(dialect, params)
        state = params.word(b"state") or "ready"
        count = params.number(b"count")
        text = params.text(b"tag") or ""
        if len(text.encode()) > FILTER_BYTES_MAX:
            raise BadRequest(400, f"400: Bad Format, tag has at most {FILTER_BYTES_MAX} bytes")
        if len(params.fields.get(b"key", b"")) > KEY_BYTES_MAX:
            text = f"400: Bad Format, key length should be <= {KEY_BYTES_MAX}"
            raise BadRequest(400, text)
        self.body = params.flag(b"body")
        self.wanted = Wanted(
            STATES[state],
            count or _COUNT_DEFAULT,
            _place(params.fields.get(b"after", b"")),
            params.fields.get(b"key"),
            compile_filter(text),
        )

    def run(self, peer: Connection, id: bytes, body: bytes) -> None:
        reply = ListedReply(self.dialect, self.params, peer, id, self.body)
        found = self.find()
        if isinstance(found, BrokerError):
            reply.listed(found)
            return
        now_ms = self.dialect.broker.now_ms
        add = partial(reply.add, found[1])
        listing = Listing(found[1], self.wanted, now_ms, add, reply.listed)
        reply.listing = listing
        peer.begin(listing.steps())


class ListedReply(NativeReply):
    """Of a listing. Until it is answered, its largest size counts as held by the peer."""

    __slots__ = ("bodies", "bodies_bytes", "listing", "reserved_bytes", "rows")

    def __init__(
        self, dialect: Context, params: Params, peer: Connection, id: bytes, bodies: bool
    ) -> None:
        super().__init__(dialect, params, peer, id)
        self.listing: Listing | None = None
        self.bodies = bodies
        self.bodies_bytes = 0
        self.rows: list[bytes] = []
        self.reserved_bytes = _BODIES_BYTES_MAX if bodies else PEEK_BYTES
        peer.held_bytes += self.reserved_bytes

    def add(self, group: Group, row: Row) -> bool:
        """One message; whether there is room for another."""
        chunk, at = row.chunk, row.at
        body, text, encoded = chunk.bodies[at], None, None
        if self.bodies:
            self.bodies_bytes += len(body)
            try:
                text = body.decode()
            except UnicodeDecodeError:
                encoded = b64encode(body).decode()
        document = ListedMessage(
            id=_text(chunk.id_of(at, row.partition)),
            topic=self.params.topic,
            partition=row.partition,
            offset=row.offset,
            timestamp=chunk.time_of(at),
            state=row.state.value,
            until=row.until_ms,
            attempts=row.attempts,
            holder=shown_holder(self.dialect.broker, group, row.holder),
            tag=_text(chunk.tag_of(at)),
            key=_text(chunk.key_of(at)),
            size=len(body),
            body=text,
            body_base64=encoded,
        )
        self.rows.append(_json(document))
        return self.bodies_bytes < _BODIES_BYTES_MAX

    def listed(self, problem: BrokerError | None) -> None:
        """That is all."""
        self.peer.held_bytes -= self.reserved_bytes
        if problem is not None:
            self.settle(problem)
            return
        lines = JSON + b"count: %d\r\n" % len(self.rows)
        listing = self.listing
        if listing is not None:
            if listing.more:
                lines += b"next: %d-%d-%d\r\n" % listing.last
            if listing.unseen:
                lines += b"unseen: %d\r\n" % listing.unseen
        self.peer.work -= 3 * len(self.rows)
        self.respond(200, lines, b"[%b]" % b",".join(self.rows))


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace")


def _place(value: bytes) -> Key:
    """What `next` said."""
    if not value:
        return FIRST
    parts = [parse_number(part, (1 << 63) - 1) for part in value.split(b"-", 3)]
    if len(parts) != 3 or None in parts:
        raise BadRequest(
            400, "400: Bad Format, after must be the `next` header of the previous page"
        )
    time_ms, partition, offset = [part or 0 for part in parts]
    return time_ms, partition, offset
