"""What the broker of one worker puts into topics of another (`zbus.core.topics.elsewhere`).

    worker of the source                           worker of the topic
    a flow for each partition and topic:
    one request under way, the rest waits    ->    each message is put under its key
    settled, or sent again                   <-    stored, or why not, message by message

A request is sent again until it is answered, at growing pauses: a worker that ends is there again
soon. The keys of its messages make that one put, whatever was done of it before. What is refused
there (no such topic, a full disk) is an answer, and for the source to deal with.

A worker that cannot be reached holds up what is for it, and nothing else.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Final, TypeAlias

import attrs
import msgspec

from zbus.core.api import (
    DONE,
    PUT_FORWARDED,
    Broker,
    BrokerError,
    Calling,
    Outcome,
    Partition,
    Refusal,
    Routed,
    Row,
    Ticket,
    name_problem,
    topic_unknown,
)
from zbus.edge.connection import Connection, Planner, Reply
from zbus.protocol.places import shard_of
from zbus.server.loop.loop import Loop
from zbus.wire.heads.head import Head
from zbus.wire.heads.heads import Heads
from zbus.wire.http import HttpReader
from zbus.wire.limits import DEFAULT_LIMITS
from zbus.wire.replies import encode_reply
from zbus.workers.introduction import Introduction, encode_introduction
from zbus.workers.routes import Routes
from zbus.workers.upstream import Upstream

PAUSE_MS: Final = (100, 5_000)
"""Before a worker is asked again that did not answer: first, and at most."""

BUSY_BYTES: Final = 8 << 20
"""Messages for one worker that are not answered; with more, what can wait should."""

_ROWS_MAX: Final = 1_000
_REQUEST_BYTES: Final = 1 << 20
"""Of one request, unless one put is larger."""

_BODY_BYTES_MAX: Final = 1 << 31
_ROW_BYTES: Final = 500
_ROW_WORK: Final = 10
_OK: Final = b" 200 "

log = logging.getLogger("zbus")

_LongRow: TypeAlias = tuple[bytes, bytes, bytes, bytes, bytes, int, int, bytes, int]


class Wish(msgspec.Struct, array_like=True, frozen=True):
    """Messages for a topic. Without any: whether there is one that takes them, and if they are dead
    letters of the topic `origin`, whether it may."""

    topic: str
    origin: str
    rows: Sequence[_LongRow]


class Problem(msgspec.Struct, array_like=True, frozen=True):
    """Why a message is not stored."""

    refusal: str
    text: str
    name: str
    retry_s: int
    next_step: str

    @classmethod
    def of(cls, error: BrokerError) -> Problem:
        return cls(error.refusal.value, error.text, error.name, error.retry_s, error.next_step)

    def error(self) -> BrokerError:
        return BrokerError(
            Refusal(self.refusal), self.text, self.name, self.retry_s, self.next_step
        )


_encode = msgspec.msgpack.Encoder().encode
_decode_wish = msgspec.msgpack.Decoder(Wish).decode
_decode_answer = msgspec.msgpack.Decoder(list[Problem | None]).decode


# -- the worker of the source ------------------------------------------------------------------


@attrs.frozen(eq=False)
class Put:
    """What has one answer."""

    wish: Wish
    ticket: Ticket
    held_bytes: int


_Flow: TypeAlias = "tuple[Partition, str]"
"""A partition that messages come from, and the topic that they are for, in lower case."""


@attrs.frozen(eq=False)
class Request:
    """Puts that are sent together, and the flow that they are of."""

    puts: list[Put]
    flow: _Flow | None
    data: bytes


class InnerPuts:
    """The `Port` of a broker. `own` is its shard."""

    def __init__(
        self, broker: Broker, loop: Loop, own: int, routes: Routes, planner: Planner
    ) -> None:
        self._own = own
        self._links = [
            WorkerLink(broker, loop, routes, shard, planner) for shard in range(routes.count)
        ]

    def has(self, name: str) -> bool:
        return name_problem(name) is None and self._worker(name) != self._own

    def busy(self, topic: str) -> bool:
        return self._links[self._worker(topic)].held_bytes > BUSY_BYTES

    def put(self, source: Partition, topic: str, rows: Sequence[Row], ticket: Ticket) -> None:
        wish = Wish(topic, "", rows)  # type: ignore[arg-type]  # all have keys, so they are long
        held_bytes = sum([_ROW_BYTES + len(row[1]) + len(row[2]) for row in rows])
        link = self._links[self._worker(topic)]
        link.put(Put(wish, ticket, held_bytes), (source, topic.lower()))

    def check(self, topic: str, origin: str, ticket: Ticket) -> None:
        link = self._links[self._worker(topic)]
        if link.held_bytes > BUSY_BYTES:  # clients that ask are not bounded by what is to be put
            text = f"the process that has {topic} does not answer; retry in 1 s"
            ticket.settle(BrokerError(Refusal.FENCED, text))
            return
        link.put(Put(Wish(topic, origin, ()), ticket, _ROW_BYTES), None)

    def _worker(self, topic: str) -> int:
        return shard_of(topic, len(self._links))


class WorkerLink:
    """The way to the owner of one shard: a connection, made anew when it ends."""

    def __init__(
        self, broker: Broker, loop: Loop, routes: Routes, shard: int, planner: Planner
    ) -> None:
        self.held_bytes = 0
        self.stalled = False  # all that is asked for is taken
        self._broker = broker
        self._loop = loop
        self._routes = routes
        self._shard = shard
        self._planner = planner
        self._timer = broker.timers.timer(WorkerLink._connect)
        self._upstream: Upstream | None = None
        self._pause_ms = PAUSE_MS[0]
        self._open: deque[Request] = deque()  # not answered, in the order of the answers
        self._waiting: dict[_Flow, deque[Put]] = {}  # of the flows that have a request among these

    def put(self, put: Put, flow: _Flow | None) -> None:
        """Send it when all that came before it on its flow is answered."""
        self.held_bytes += put.held_bytes
        if flow is None:
            self._send([put], None)
        elif flow in self._waiting:
            self._waiting[flow].append(put)
        else:
            self._waiting[flow] = deque()
            self._send([put], flow)

    def _send(self, puts: list[Put], flow: _Flow | None) -> None:
        first = puts[0].wish
        wish = Wish(first.topic, first.origin, [row for put in puts for row in put.wish.rows])
        body = _encode(wish)
        data = b"POST / HTTP/1.1\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
        self._open.append(Request(puts, flow, data))
        if self._upstream is not None:
            self._upstream.write(data)
        elif self not in self._timer:
            self._connect()

    def _connect(self) -> None:
        """And send all that is not answered."""
        loop = self._loop
        try:
            sock, tls = self._routes.open(self._shard)
        except OSError as error:
            log.warning("a worker cannot be reached", extra={"worker": self._shard, "why": error})
            self._later()
            return
        most = loop.limits.output_bytes_max
        upstream = self._upstream = Upstream(
            sock, "", self, self._planner, loop.ready.append, most, loop.now_ms, tls=tls
        )
        upstream.shard = self._shard
        loop.attach(upstream)
        broker = Introduction("", inner=True, shard=self._shard)
        upstream.write(encode_introduction(broker, self._routes.cluster))
        for request in self._open:
            upstream.write(request.data)

    def _later(self) -> None:
        self._timer.set(self, self._broker.now_ms + self._pause_ms)
        self._pause_ms = min(2 * self._pause_ms, PAUSE_MS[1])

    def answered(self, response: bytes) -> None:
        if self._upstream is None:
            return  # it was dropped: the rest of what it said is for requests that are sent again
        head, _, body = response.partition(b"\r\n\r\n")
        if _OK not in head[:16]:  # it is short of something; a moment later it may not be
            log.warning("a worker refuses what another puts", extra={"why": body[:200]})
            self._loop.drop(self._upstream)
            return
        self._pause_ms = PAUSE_MS[0]
        request, outcomes = self._open.popleft(), _decode_answer(body)
        if request.flow is not None:
            self._go_on(request.flow)
        at = 0
        for put in request.puts:
            self.held_bytes -= put.held_bytes
            count = len(put.wish.rows) or 1
            problem = next((one for one in outcomes[at : at + count] if one is not None), None)
            at += count
            put.ticket.settle(DONE if problem is None else problem.error())

    def _go_on(self, flow: _Flow) -> None:
        """What waited for the answer is sent, as much of it as one request may have."""
        waiting, left, room = self._waiting[flow], _ROWS_MAX, _REQUEST_BYTES
        puts: list[Put] = []
        while waiting and (not puts or (left > 0 and room > 0)):
            put = waiting.popleft()
            puts.append(put)
            left -= len(put.wish.rows)
            room -= put.held_bytes
        if puts:
            self._send(puts, flow)
        else:
            del self._waiting[flow]

    def ended(self) -> None:
        self._upstream = None
        if self._open:
            self._later()

    def begins(self, head: bytes) -> None:
        raise AssertionError("what is put is answered at once")

    def streams(self, head: bytes) -> None:
        raise AssertionError("what is put is answered at once")

    def more(self, data: bytes) -> None:
        pass

    def closes(self, frame: bytes) -> None:
        pass

    def drained(self) -> None:
        pass


# -- the worker of the topic -------------------------------------------------------------------


class InnerPlanner:
    """Plans what other workers ask. `router` plans what their clients do."""

    def __init__(self, broker: Broker, router: Planner) -> None:
        self.router = router
        self._broker = broker
        self._limits = attrs.evolve(DEFAULT_LIMITS, body_bytes_max=_BODY_BYTES_MAX)
        self._heads = Heads(self._limits)  # of its own: their plans are this

    def admit(self, peer: Connection) -> None:
        """It is another worker's broker, and no client: it has no session."""
        peer.reader.close()
        peer.reader = HttpReader(self._heads, self._limits)
        self._broker.leave(peer)

    def plan(self, head: Head) -> InnerPlanner:
        return self

    def plan_unread(self, head: Head) -> None:
        return None

    def push(self, peer: Connection, routed: Routed) -> bool:
        return False

    def run(self, peer: Connection, id: bytes, body: bytes) -> None:
        broker, wish = self._broker, _decode_wish(body)
        topic = broker.topic(wish.topic)
        answer = _Answer(Reply(peer, id, ordered=True), len(wish.rows) or 1)
        if topic is None or topic.options.calls:
            answer.refuse(topic_unknown(wish.topic))
        if not wish.rows and wish.origin:
            answer.refuse(broker.dead_letter_problem(wish.origin, wish.topic))
        if not wish.rows and not wish.origin and topic is not None and topic.judges_puts:
            text = "has a schema or is compact, and is in another process: what was staged was not"
            text += " checked"
            answer.refuse(BrokerError(Refusal.UNFIT, f"{topic.name} {text}"))
        if topic is None or answer.problems[0] is not None or not wish.rows:
            answer.send()
            return
        peer.work -= len(wish.rows) * _ROW_WORK
        for at, row in enumerate(wish.rows):
            ticket = Calling(partial(answer.stored, at))
            broker.put(topic.partition_for(row[4]), ticket, row, PUT_FORWARDED)


class _Answer:
    """The answer to a request, message by message."""

    def __init__(self, reply: Reply, count: int) -> None:
        self._reply = reply
        self.problems: list[Problem | None] = [None] * count
        self._left = count

    def refuse(self, error: BrokerError | None) -> None:
        """All of it."""
        if error is not None:
            self.problems = [Problem.of(error)] * len(self.problems)

    def stored(self, at: int, outcome: Outcome) -> None:
        if isinstance(outcome, BrokerError):
            self.problems[at] = Problem.of(outcome)
        self._left -= 1
        if not self._left:
            self.send()

    def send(self) -> None:
        self._reply.send(encode_reply(200, b"", _encode(self.problems)))
