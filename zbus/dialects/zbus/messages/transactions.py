"""`txn_stage`, `txn_commit`, `txn_abort` and `txn_query`: messages that are stored together, once
(`zbus.core.patterns.transactions`).

An application names itself (`txn`) and its batches by growing numbers. It stages messages as if it
produced them, is told their offsets, and commits a batch by naming those.
"""

from __future__ import annotations

import re
from typing import Annotated, Final

import msgspec

from zbus.core.api import TRANSACTION_ROWS as ROWS
from zbus.core.api import TRANSACTIONS_PREFIX as PREFIX
from zbus.core.api import (
    BrokerError,
    Chunk,
    Committed,
    Outcome,
    Partition,
    Refusal,
    Stage,
    Ticket,
    topic_unknown,
)
from zbus.dialects.zbus.context import Context
from zbus.dialects.zbus.messages.produce import Produce
from zbus.dialects.zbus.replies import CountReply, NativeReply
from zbus.dialects.zbus.request.batch_formats import JSON
from zbus.dialects.zbus.request.params import BadRequest, Params
from zbus.documents import NOT_JSON
from zbus.edge.connection import Connection
from zbus.wire.numbers import parse_ranges

_APP: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_COUNT_MAX: Final = 1 << 40  # offsets of a commit
_STAGES_MAX: Final = 100_000
_JSON: Final = b"content-type: %b\r\n" % JSON


def app_of(params: Params) -> str:
    """The application. Raises BadRequest."""
    name = params.text(b"txn") or ""
    if _APP.fullmatch(name) is None or name.lower().endswith(ROWS):
        form = "1 to 100 letters, digits, dots, _ and -, and does not end in .rows"
        raise BadRequest(400, f"400: Bad Format, txn is {form}")
    return name


class TxnStage(Produce):
    """Plan of staging: a produce into the rows of the application."""

    __slots__ = ("app", "target_key")

    def __init__(self, dialect: Context, params: Params) -> None:
        super().__init__(dialect, params)
        self.app = app_of(params)
        self.target_key = self.topic_key
        self.topic_key = f"{PREFIX}{self.app}{ROWS}".lower()

    def run(self, peer: Connection, id: bytes, body: bytes) -> None:
        refused = self._refused(peer)
        if refused is None:
            target = self.dialect.broker.topics.get(self.target_key)
            if target is None:  # another process has it: its lines are those of a new topic
                self.know_lines(True)
            else:
                self.know(target)
            self._run_with_care(peer, id, body, self.dialect.broker.topics[self.topic_key])
        else:
            NativeReply(self.dialect, self.params, peer, id, self.quiet).settle(refused)

    def _put(self, partition: Partition, ticket: Ticket, chunk: Chunk) -> None:
        """What is decided later is checked now: a commit refuses nothing for its body."""
        broker = self.dialect.broker
        target = broker.topics.get(self.target_key)
        problem = None
        if target is not None:
            problem = broker.misfit(target, chunk.bodies, chunk.keys, chunk.due)
        if problem is None:
            super()._put(partition, ticket, chunk)
        else:
            ticket.settle(problem)

    def slots(self) -> None:
        """The next one is planned anew."""

    def _refused(self, peer: Connection) -> BrokerError | None:
        broker = self.dialect.broker
        target = broker.topics.get(self.target_key)
        if target is None and not broker.elsewhere.has(self.params.topic):
            return topic_unknown(self.params.topic)
        if target is not None and target.options.calls:
            text = f"{target.name} is for calls: nothing is staged for it"
            return BrokerError(Refusal.ILLEGAL, text)
        if not _granted(peer, f"{PREFIX}{self.app}"):
            return _forbidden(f"{PREFIX}{self.app}")
        return broker.transactions.begin(self.app)


class _Offsets(msgspec.Struct, forbid_unknown_fields=True):
    topic: Annotated[str, msgspec.Meta(min_length=1)]
    offsets: str


class _Body(msgspec.Struct, forbid_unknown_fields=True):
    stages: Annotated[list[_Offsets], msgspec.Meta(max_length=_STAGES_MAX)]


_decode = msgspec.json.Decoder(_Body).decode


class TxnCommit:
    """Plan of a commit."""

    __slots__ = ("app", "batch", "dialect", "params", "stages")

    def __init__(self, dialect: Context, params: Params) -> None:
        self.dialect, self.params = dialect, params
        self.app, self.batch = app_of(params), params.number(b"batch") or 0
        self.stages: list[Stage] = []
        offsets = params.fields.get(b"offset", b"")
        if offsets:
            if not params.topic:
                raise BadRequest(400, "400: Bad Format, Missing topic")
            self.stages = [Stage(each.start, each.stop, params.topic) for each in _ranges(offsets)]

    def run(self, peer: Connection, id: bytes, body: bytes) -> None:
        reply = CommitReply(self.dialect, self.params, peer, id)
        stages = self.stages
        if body:
            if stages:
                reply.respond(
                    400, body=b"400: Bad Format, offset and a body name messages: give one"
                )
                return
            try:
                stages = _stages(body)
            except BadRequest as error:
                reply.respond(error.status, body=error.text.encode())
                return
            peer.work -= len(body) >> 6
        for name in (f"{PREFIX}{self.app}", *{stage.topic for stage in stages}):
            if not _granted(peer, name):
                reply.settle(_forbidden(name))
                return
        self.dialect.broker.transactions.commit(reply, self.app, self.batch, stages)


class TxnAbort:
    """Plan of an abort."""

    __slots__ = ("app", "batch", "dialect", "params", "ranges")

    def __init__(self, dialect: Context, params: Params) -> None:
        self.dialect, self.params = dialect, params
        self.app, self.batch = app_of(params), params.number(b"batch") or 0
        self.ranges = _ranges(params.fields[b"offset"])

    def run(self, peer: Connection, id: bytes, body: bytes) -> None:
        reply = CountReply(self.dialect, self.params, peer, id)
        if _granted(peer, f"{PREFIX}{self.app}"):
            self.dialect.broker.transactions.abort(reply, self.app, self.batch, self.ranges)
        else:
            reply.settle(_forbidden(f"{PREFIX}{self.app}"))


class TxnQuery:
    """Plan of the question how an application is."""

    __slots__ = ("app", "dialect", "params")

    def __init__(self, dialect: Context, params: Params) -> None:
        self.dialect, self.params, self.app = dialect, params, app_of(params)

    def run(self, peer: Connection, id: bytes, body: bytes) -> None:
        reply = NativeReply(self.dialect, self.params, peer, id)
        transactions = self.dialect.broker.transactions
        found = transactions.status(self.app)
        if not _granted(peer, f"{PREFIX}{self.app}"):
            found = topic_unknown(f"{PREFIX}{self.app}")
        if isinstance(found, BrokerError):
            reply.settle(found)
            return
        document = {"txn": self.app, "batch": found.batch, "applied": found.applied}
        reply.respond(200, _JSON, msgspec.json.encode({**document, "staged": found.staged}))


class CommitReply(NativeReply):
    """How many messages were put where they belong."""

    __slots__ = ()

    def answer(self, outcome: Outcome) -> None:
        if isinstance(outcome, Committed):
            lines = b"count: %d\r\n" % outcome.count
            lines += b"duplicate: 1\r\n" if outcome.duplicate else b""
            self.respond(200, lines, b"%d" % self.dialect.broker.now_ms)
        else:
            super().answer(outcome)


def _ranges(value: bytes) -> list[range]:
    found = parse_ranges(value, _COUNT_MAX) if value.count(b",") < _STAGES_MAX else None
    if found is None:
        raise BadRequest(400, "400: Bad Format, offset is numbers and ranges such as 3,5-9,12")
    return found


def _stages(body: bytes) -> list[Stage]:
    """Of a body `{"stages": [{"topic": "orders", "offsets": "0-9,12"}]}`."""
    try:
        decoded = _decode(body)
    except NOT_JSON as error:
        raise BadRequest(400, f"400: Bad Format, txn_commit: {error}") from error
    stages = []
    for topic, offsets in ((each.topic, each.offsets) for each in decoded.stages):
        found = _ranges(offsets.encode())
        stages += [Stage(each.start, each.stop, topic) for each in found]
    if any("\n" in stage.topic for stage in stages):
        raise BadRequest(400, "400: Bad Format, txn_commit: a topic's name has no line ends")
    return stages


def _granted(peer: Connection, topic: str) -> bool:
    grant = peer.grant
    return grant is None or (grant.may("produce") and grant.sees(topic))


def _forbidden(topic: str) -> BrokerError:
    return BrokerError(Refusal.FORBIDDEN, f"you may not put into {topic}", topic)
