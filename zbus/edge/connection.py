"""A connection as the dialects see it: bytes in, tickets out, replies back in their order.

A peer does no IO. `receive` takes what came in; what is to go out gathers in `out`, and the peer
puts itself on the loop's list of peers that have something to send.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from zbus.core.model.ticket import Ticket
from zbus.core.topics.outcomes import Routed
from zbus.core.topics.topic import Group, Session
from zbus.edge.reader import DEAF, Reader
from zbus.wire.errors import WireError
from zbus.wire.heads.heads import Head
from zbus.wire.http import Request
from zbus.wire.replies import encode_reply

if TYPE_CHECKING:
    from zbus.edge.access import Bearer, Grant


class Plan(Protocol):
    """What a head asks for, worked out once and kept on the head."""

    def run(self, peer: Connection, id: bytes, body: bytes) -> None:
        """Do it. `id` is the request's, or empty."""


class Sample(Protocol):
    """Receives one request."""

    def read(self, head: Head) -> None:
        """This head is next."""

    def planned(self, head: Head, plan: Plan) -> None:
        """This is what a head comes to that was not planned before."""


class Planner(Protocol):
    """Finds the dialect of a head and what it asks for."""

    def plan(self, head: Head) -> Plan: ...

    def plan_unread(self, head: Head) -> Plan | None:
        """What is to be done for a head whose body is too long to be read, beside the refusal."""

    def push(self, peer: Connection, routed: Routed) -> bool:
        """Send a message that no request on this connection waits for; False if that cannot be."""


REQUEST_WORK, HEAD_WORK = 5, 50
"""What a request costs that is like others before, and what one costs beside that whose head is
new: about that many microseconds. A plan that does more takes it off the peer's `work`."""

ENDLESS_WORK = 1 << 60

LARGE_BYTES, LARGE_WORK_BITS = 256 << 10, 11
"""A body over this is worth not to be copied; to send two kilobytes of one costs about as much of a
turn as a microsecond."""

PUSHED_BYTES_MAX = 16 << 20
"""A peer with more unread bytes gets no push. It may be more than what stalls it: a client with
many open calls gets all replies, though they come at once and are large."""

log = logging.getLogger("zbus")


class Framing(Protocol):
    """How whole replies go out on a connection that does not speak plain HTTP any more."""

    begun: bool  # until then the answers to earlier requests go out, as they are

    def wrap(self, peer: Connection, message: bytes) -> bytes: ...

    def ping(self) -> bytes:
        """What makes a silent peer say something."""

    def farewell(self, error: WireError) -> bytes:
        """The last words to a peer."""


class Together(Protocol):
    """A ticket of several peers."""

    def part(self, peer: Connection) -> None:
        """The peer's request is to have a reply of its own from now on, which takes its turn."""


class Source(NamedTuple):
    """Where a connection comes from, before any request on it."""

    address: str
    secure: bool
    trusted: bool  # is it a proxy that says whose requests these are


class Connection(Session):
    __slots__ = (
        "_ready",
        "_steps",
        "_undone",
        "admitted",
        "asker",
        "bearer",
        "broken",
        "closing",
        "farewell",
        "framing",
        "heartbeat",
        "held_bytes",
        "lines",
        "open_tickets",
        "open_waits",
        "out",
        "out_bytes",
        "out_bytes_max",
        "patient",
        "planner",
        "principal",
        "put_lines",
        "reader",
        "sample",
        "secure",
        "source",
        "together",
        "turns",
        "work",
    )

    def __init__(
        self,
        id: bytes,
        address: str,
        reader: Reader,
        planner: Planner,
        ready: Callable[[Any], None],
        out_bytes_max: int = 256 << 10,
    ) -> None:
        super().__init__(id, address)
        # That the dialect adds to what comes from here, once it is known; and what is left of it.
        self.lines: tuple[bytes, bytes] | None = None
        self.principal = ""  # whom the client certificate names; "" = there is none
        self.secure = False  # what is said stays between the two: TLS
        self.source: Source | None = None  # before any proxy's word; None = not looked at yet
        # Who may do what (`zbus.edge.access`); all None as long as everybody may do everything.
        self.bearer: Bearer | None = None  # of the token that the connection itself came with
        self.asker: Bearer | None = None  # of the request that is being run
        self.admitted: dict[Group, Bearer] | None = None  # who made it a reader of a group
        self.reader = reader
        self.framing: Framing | None = None  # None = plain HTTP
        self.farewell = b""  # to be said when everything else is
        self.planner = planner
        self._ready = ready  # called when the first bytes to send are there
        self.out: list[bytes] = []
        self.out_bytes = 0  # in `out`, and whatever the loop could not send yet
        self.out_bytes_max = out_bytes_max  # with more untaken, requests and pulls wait
        # What may be done for it in this turn, in units of about a microsecond. Without any left,
        # its requests wait; what one of them takes beyond it is a debt to the next turns.
        self.work = ENDLESS_WORK
        # Came while the peer took no replies, or while a request before them was not done.
        self._undone: list[Request] | None = None
        self._steps: Iterator[int] | None = None  # of the request that is being done
        self.turns: deque[Answering] | None = None  # requests that are answered in order
        # A ticket of many peers, with this one's only request that is answered in order.
        self.together: Together | None = None
        self.open_tickets = 0  # requests without a final answer
        self.open_waits = 0  # those of them that may take for ever: pulls and calls
        self.patient = 0  # those of them for which silence is no reason to close
        self.held_bytes = 0  # of replies that wait for their turn, or are being read from storage
        # A stream takes the whole connection: nothing is read from it any more, and this is sent
        # when there was nothing else for a while. None = there is no stream.
        self.heartbeat: bytes | None = None
        # A plan, and what it stores for this peer.
        self.put_lines: tuple[object, bytes] | None = None
        self.sample: Sample | None = None  # of the next request
        self.closing = False  # send what is there, wait for open tickets, then close
        self.broken = False  # nothing more is understood from this peer: do not wait for long

    @property
    def grant(self) -> Grant | None:
        """What the request that is being run may see; None = everything."""
        return None if self.asker is None else self.asker.grant

    def receive(self, data: bytes) -> None:
        """Bytes came in."""
        reader = self.reader
        if self._undone is None:
            requests = reader.receive(data)
        else:
            requests = self._undone + reader.receive(data) if data else self._undone
            self._undone = None
            if (steps := self._steps) is not None and not self._resume_steps(steps):
                self._undone = requests
                return
            if self.heartbeat is not None:  # a stream has begun: nothing else is answered
                return
        if self.sample is not None and requests:
            self.sample.read(requests[0][0])
        while True:
            if reader.spent:
                self.work -= reader.spent
                reader.spent = 0
            for position, (head, id, body) in enumerate(requests):
                if self.stalled or self.held_bytes > self.out_bytes_max or self.work <= 0:
                    self._undone = requests[position:]
                    return
                self.work -= REQUEST_WORK
                plan = head.plan
                if plan is None:
                    self.work -= HEAD_WORK
                    plan = self.planner.plan(head)
                    if head.kept:
                        head.plan = plan
                    if self.sample is not None:
                        self.sample.planned(head, plan)
                plan.run(self, id, body)  # type: ignore[attr-defined]  # the dialect's slot
                if self.heartbeat is not None:
                    return
            reader = self.reader  # it may be another by now
            if not reader.more:
                break
            if self.work <= 0 or self._undone is not None:
                return
            requests = reader.receive(b"")
        if reader.interim:
            self.write(reader.interim)
            reader.interim = b""
        if reader.done:
            self.closing = True
        if reader.error is not None and not self.closing:
            self.refuse(reader.error)

    def move(self, address: str) -> None:
        """What is asked from now on is asked from this address."""
        if address != self.address:
            self.address = address
            self.lines = self.put_lines = None  # they say the former one

    def begin(self, steps: Iterator[int]) -> None:
        """Do the request that is being run in steps, each of which tells what work it was. What
        this turn has no work for is done in later ones, and before whatever else was asked."""
        if not self._go_on(steps):
            self._steps = steps
            self._undone = []  # more, if there is more

    def _resume_steps(self, steps: Iterator[int]) -> bool:
        """Whether these are done, and those that the last of them may have begun."""
        self._steps = None
        self.begin(steps)
        return self._steps is None

    def _go_on(self, steps: Iterator[int]) -> bool:
        """Take steps as long as there is work left; whether that was all of them."""
        while self.work > 0:
            work = next(steps, None)
            if work is None:
                return True
            self.work -= work
        return False

    def resume(self) -> None:
        """Go on with what it has asked for: it takes replies again, or it is its turn."""
        self.receive(b"")

    def refuse(self, error: WireError) -> None:
        """The stream broke: say so after the answers that are still to come, and close.

        Pulls and calls may wait for ever, so they are not waited for: the connection would stay
        open without a reader.
        """
        log.debug("connection refused", extra={"peer": self.address, "why": error})
        if (head := self.reader.refused) is not None:
            plan = self.planner.plan_unread(head)
            if plan is not None:
                plan.run(self, error.id, b"")
        if self.framing is not None:
            self.take_leave(self.framing.farewell(error))
            return
        self.closing = self.broken = True
        text = f"{error.status}: {error.text}".encode()
        # There is one of these for a connection, so its id will do for a request that shows none.
        lines = b"content-type: text/plain\r\nid: %b\r\n" % (error.id or self.id)
        if error.status == 503:
            lines += b"retry-after: 1\r\n"
        reply = Reply(self, b"", ordered=True)
        reply.send(encode_reply(error.status, lines, text, close=True))
        self.write(b"")  # even if it is not its turn: the loop has to look at this peer

    def take_leave(self, farewell: bytes) -> None:
        """Answer what can be answered soon, say farewell, and close."""
        if not self.broken:  # it may have been said already
            self.farewell = farewell
        self.closing = self.broken = True
        self.write(b"")  # the loop has to look at this peer

    def part(self) -> None:
        """Say farewell: all else is said, and waiting pulls and calls have ended."""
        farewell, self.farewell = self.farewell, b""
        self.write(farewell)

    def push(self, routed: Routed) -> bool:
        """Tell what no client asked for; only where it cannot be taken for another answer, and to a
        peer that takes what it is sent."""
        if not self.multiplexed or self.heartbeat is not None:
            return False
        if self.out_bytes > PUSHED_BYTES_MAX:
            return False
        if self.framing is not None and not self.framing.begun:
            return False
        return self.planner.push(self, routed)

    def begin_stream(self, heartbeat: bytes) -> None:
        """The reply that is begun now ends with the connection: what else was or will be asked
        here is dropped."""
        self.heartbeat = heartbeat
        self.reader.close()
        self.reader = DEAF
        self.open_tickets += 1
        self.open_waits += 1

    def end_stream(self) -> None:
        """Close when all is sent."""
        self.open_tickets -= 1
        self.open_waits -= 1
        self.closing = True
        self.write(b"")  # the loop has to look at this peer

    def take_turn(self, reply: Answering) -> None:
        """This reply goes out after those to the requests before it."""
        if self.together is not None:
            self.together.part(self)
        if self.turns is None:
            self.turns = deque()
        self.turns.append(reply)

    def answer_next(self) -> None:
        """Replies that are made already, and whose turn has come."""
        turns = self.turns
        while turns and (later := turns[0].data) is not None:
            reply = turns.popleft()
            if later:
                self.held_bytes -= len(later)
                self.write(later)
                reply.written()

    def write(self, data: bytes) -> None:
        """Send these bytes, one whole reply, at the end of the turn."""
        if self.framing is not None:
            data = self.framing.wrap(self, data)
        if not self.out:
            self._ready(self)
        self.out.append(data)
        self.out_bytes += len(data)
        if self.out_bytes > self.out_bytes_max:
            self.stalled = True

    def output_mark(self) -> int:
        """Where what was written so far ends, for `has_sent`."""
        return 0

    def has_sent(self, mark: int) -> bool:
        """The system has taken all bytes before this mark. Without a socket: all bytes."""
        return not self.out_bytes

    def forget_requests(self) -> None:
        """The peer sends no more, or is gone: what it asked for and was not begun is not done. What
        was begun is, as long as a person may be told."""
        if self.closed:
            self._steps = None
        self._undone = None if self._steps is None else []
        self.reader.close()

    @property
    def has_requests(self) -> bool:
        """Requests have come that are not done, and only work stands in their way."""
        if self._steps is not None:  # what is held may be what this one has reserved
            return not self.stalled
        if self._undone is None and not self.reader.more:
            return False
        return not (self.stalled or self.held_bytes > self.out_bytes_max)

    def crowded(self, tickets_max: int) -> bool:
        """More of this peer's requests are under way than one peer may have: read no more."""
        soon = self.open_tickets - self.open_waits
        waiting = len(self.turns) if self.turns else 0
        held = self.stalled or self.held_bytes > self.out_bytes_max
        return held or soon > tickets_max or waiting > tickets_max

    @property
    def finished(self) -> bool:
        """Nothing more will be sent, but the farewell if there is one."""
        if not self.closing or self.out or self._undone is not None or self.reader.more:
            return False
        if self.broken:  # pulls and calls are not waited for
            return self.open_tickets == self.open_waits
        return not (self.open_tickets or self.turns)


class Answering:
    """What a ticket has in common that ends in bytes to its peer: at once, or (ordered) after the
    replies to the requests before it on the connection."""

    __slots__ = ()

    peer: Connection
    id: bytes
    ordered: bool
    data: bytes | None

    def send_large(self, head: bytes, body: bytes) -> None:
        """What `send` does, without a copy of the body."""
        peer = self.peer
        peer.work -= len(body) >> LARGE_WORK_BITS
        if peer.framing is not None or (self.ordered and peer.turns and peer.turns[0] is not self):
            self.send(head + body)
            return
        peer.write(head)
        peer.write(body)
        self.send(b"")

    def send(self, data: bytes) -> None:
        """The final answer; empty = none is sent. Every request ends here, once."""
        peer = self.peer
        peer.open_tickets -= 1
        if self.ordered and not self._is_next(peer, data):
            return
        if peer.framing is not None:
            if data:
                peer.write(data)
        elif data:
            # As in `write`, without a call: there is one of these for every request.
            if not peer.out:
                peer._ready(peer)
            peer.out.append(data)
            peer.out_bytes += len(data)
            if peer.out_bytes > peer.out_bytes_max:
                peer.stalled = True
        if self.ordered and peer.turns:
            self.written()
            peer.answer_next()

    def written(self) -> None:
        """The reply is in the connection's output, and the replies behind it are not yet. Not
        called for a reply that no other waited for."""

    def failed(self, error: Exception) -> None:
        self.peer.quarantine(error)

    def _is_next(self, peer: Connection, data: bytes) -> bool:
        """It is this reply's turn. If not, it is kept until it is."""
        turns = peer.turns
        if turns is None:
            return False  # nothing reaches the peer any more
        if turns[0] is self:
            turns.popleft()
            return True
        self.data = data  # type: ignore[misc]  # its subclasses have the slot
        peer.held_bytes += len(data)
        return False


class Reply(Answering, Ticket):
    """Such a ticket, and nothing else."""

    __slots__ = ("data", "id", "ordered", "peer")

    def __init__(self, peer: Connection, id: bytes, ordered: bool) -> None:
        self.open = True
        self.offset = -1
        self.peer = peer
        self.id = id
        self.ordered = ordered
        self.data: bytes | None = None
        peer.open_tickets += 1
        if ordered:
            peer.take_turn(self)
