"""The door of a worker: what is asked here is done here, or by the worker that has the topic.

    head -> its dialect says where (`zbus.edge.places`) -> here: planned as without workers
                                                        -> elsewhere: passed on, answer by answer

A head that comes again keeps its plan, so one for a topic of this worker costs what it always did.
What is passed on goes over a connection of the client's own to the other worker, so that this does
everything that a worker does for a client: rights, limits, order, leases.

Answers leave in the order of the requests where the dialect keeps one, whoever gives them. Requests
to different workers are done at the same time. A worker that ends takes with it what was asked of
it and not answered: 503, and nothing is asked twice.
"""

from __future__ import annotations

import logging
import re
import socket
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from enum import Enum, auto
from itertools import chain
from typing import Final, Protocol

import attrs

from zbus.edge.connection import Connection, Plan, Planner, Reply
from zbus.edge.guard import Answer
from zbus.edge.places import Apart, AtMaker, AtTopic, Everywhere, InBody, Place, Replies, Unplaced
from zbus.edge.proxies import ForClient
from zbus.edge.websocket import Upgrade
from zbus.protocol.places import shard_of
from zbus.server.loop.loop import Loop
from zbus.server.loop.socket_connection import SocketConnection
from zbus.wire.errors import WireError
from zbus.wire.heads.head import Head
from zbus.wire.heads.heads import Heads
from zbus.wire.replies import encode_reply
from zbus.workers.frames import FrameUpstream, Pass, Passing
from zbus.workers.gathering import Gather, Leaver
from zbus.workers.handing_over import Giver, Passenger
from zbus.workers.introduction import Introduction, encode_introduction, origin_of
from zbus.workers.streams import NOT_ALONE, Alone, StreamReply
from zbus.workers.upstream import Answers, Upstream

MAKER_DIGITS: Final = 4
"""Ids of sessions begin with the number of the worker that made them, in hexadecimal."""

_GONE: Final = b"503: the worker that has this topic has ended and is starting again; retry in 1 s"
_RETRY: Final = b"content-type: text/plain\r\nretry-after: 1\r\n"
ROW: Final = 256
"""Requests one after another for one other worker, after which it is given the connection."""

_ID: Final = re.compile(rb"\r\nid: ([^\r]*)\r\n")
_CUT: Final = frozenset((b"content-length", b"expect", b"transfer-encoding"))
_SHOWN: Final = frozenset((b"authorization", b"cookie", b"host", b"token"))
"""What a handshake shows, and each message that is sent without it."""

_BODIES: Final = frozenset((b"PATCH", b"POST", b"PUT"))

log = logging.getLogger("zbus")


def request_start(head: Head) -> bytes:
    """A head as it is passed on, but for what differs between requests."""
    version = b"1.1" if head.version_11 else b"1.0"
    lines = [b"%b %b HTTP/%b\r\n" % (head.method, head.target, version)]
    lines += [b"%b: %b\r\n" % pair for pair in head.fields.items() if pair[0] not in _CUT]
    return b"".join(lines)


class Door(Planner, Protocol):
    """The edge of this worker, `zbus.edge.router.Router`."""

    def place(self, head: Head, handshake: Head | None = None) -> tuple[Place, Replies]: ...

    def refuse(self, head: Head, answer: Answer, handshake: Head | None = None) -> Plan: ...


class Forwarder:
    """Plans what clients of this worker ask. `paths` are the sockets of all workers."""

    def __init__(
        self, router: Door, heads: Heads, loop: Loop, own: int, paths: Sequence[str], giver: Giver
    ) -> None:
        """`heads` are what clients' connections read with."""
        self.router = router
        self._heads = heads
        self._giver = giver
        self.loop = loop
        self.own = own
        self.paths = paths
        self._clients: dict[Connection, Client] = {}
        self.unanswered = [0] * len(paths)
        self.push = router.push
        self.plan_unread = router.plan_unread

    def plan(self, head: Head) -> Plan:
        """What this head asks for, here or elsewhere."""
        if head.websocket:  # it opens here, and each message goes where it belongs
            plan = self.router.plan(head)
            self._pass_frames(head, plan)
            return plan
        place, replies = self.router.place(head)
        if isinstance(place, Everywhere):
            head.origin = None
            start = request_start(head).replace(b"HEAD ", b"GET ", 1)
            by_id = replies is Replies.LOOSE
            return self._alone(replies, head, Gather(self, place, head, start, by_id=by_id))
        if isinstance(place, InBody):
            head.origin = None
            return ByBody(self, place, head)
        return self.plan_at(place, head, replies)

    def plan_at(self, place: Place, head: Head, replies: Replies) -> Plan:
        """The plan of a head that is done there."""
        refusal = self._refusal(place)
        if refusal is not None:
            return self.router.refuse(head, refusal)
        worker = self.worker_of(place)
        if worker == self.own:
            return self.router.plan(head)
        head.origin = None  # its shape is learned by the worker that does it
        binds = not isinstance(place, AtTopic) or place.binds
        return self._alone(replies, head, Forward(self, worker, head, replies, binds))

    def _alone(self, replies: Replies, head: Head, plan: Plan) -> Plan:
        """The plan, or one that is refused where something else is open."""
        if replies is Replies.ALONE:
            return Alone(plan, self.router.refuse(head, NOT_ALONE))
        return plan

    def move(self, link: SocketConnection, data: bytes) -> bool:
        """Give a client to the worker that all of its last requests were for, if its next one is,
        too, and nothing of it would stay here; whether it was."""
        client = self.client(link)
        if client.row < ROW:
            return False
        client.row = 0  # else it is tried again after as many
        bound = client.bound or client.gathering or link.left != (self.see_off,)
        if bound or link.holds or link.open_tickets or link.out or link.unsent:
            return False
        if link.closing or link.has_requests or link.reader.waiting_for() != "nothing":
            return False
        return self.hand_over(link, data, client.worker)

    def hand_over(self, link: SocketConnection, data: bytes, worker: int | None = None) -> bool:
        """Give it to the worker that its next request is for, if that is another, or this one;
        whether it was."""
        end = data.find(b"\r\n\r\n")
        if end < 0:
            return False
        try:
            head, _ = self._heads.read(data[:end], True)
        except WireError:
            return False  # it is told why here
        plan = head.plan
        if plan is None:
            plan = self.plan(head)
            if head.kept:
                head.plan = plan
        if isinstance(plan, Alone):
            plan = plan.plan
        if not isinstance(plan, Forward) or worker not in (None, plan.worker):
            return False
        if not self._giver.give(link, plan.worker, data):
            return False
        self.loop.drop(link)
        return True

    def _refusal(self, place: Place) -> Answer | None:
        """Why this cannot be done."""
        count = self.count
        if isinstance(place, Unplaced):
            return Answer(501, f"501: {place.what} is not served by several workers yet")
        if isinstance(place, Apart):
            one, other = shard_of(place.topic, count), shard_of(place.other, count)
            if one != other:
                return Answer(
                    409,
                    f"409: {place.topic} is in shard {one} and {place.other} in shard {other};"
                    f" give names the same text in braces: {place.advice}",
                )
        return None

    @property
    def count(self) -> int:
        """How many workers there are."""
        return len(self.paths)

    def open_upstream(
        self,
        worker: int,
        peer: Connection,
        answers: Answers,
        kind: type[Upstream] = Upstream,
        *,
        head_only: bool = False,
    ) -> Upstream | None:
        """A connection to a worker, for this client; None if it cannot be reached."""
        sock = self._connect(worker)
        if sock is None:
            return None
        loop, address = self.loop, origin_of(peer)
        upstream = kind(
            sock,
            address,
            answers,
            peer.planner,
            loop.ready.append,
            loop.limits.output_bytes_max,
            loop.now_ms,
            head_only,
        )
        loop.attach(upstream)
        upstream.write(encode_introduction(Introduction(address, peer.principal, peer.secure)))
        return upstream

    def _connect(self, worker: int) -> socket.socket | None:
        sock = None
        try:
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            sock.setblocking(False)
            sock.connect(self.paths[worker])
        except OSError as error:
            log.warning("a worker cannot be reached", extra={"worker": worker, "why": error})
            if sock is not None:
                sock.close()
            return None
        return sock

    def _pass_frames(self, head: Head, plan: Plan) -> None:
        """If this opens a WebSocket, its messages may be for other workers."""
        opened = plan.plan if isinstance(plan, ForClient) else plan
        if isinstance(opened, Upgrade):
            opened.passing = Passing(self, head)

    def plan_frame(self, handshake: Head, head: Head) -> Plan | None:
        """What a message asks for, if not this worker alone; None = it does."""
        place, _ = self.router.place(head, handshake)
        if isinstance(place, Everywhere):
            names = _SHOWN - head.fields.keys()  # a message may have a token of its own
            shown = [b"%b: %b\r\n" % pair for pair in handshake.fields.items() if pair[0] in names]
            return Gather(self, place, head, request_start(head) + b"".join(shown), by_id=True)
        refusal = self._refusal(place)
        if refusal is not None:
            return self.router.refuse(head, refusal, handshake)
        worker = self.worker_of(place)
        return None if worker == self.own else Pass(self, worker, handshake)

    def pass_on(self, peer: Connection, worker: int, handshake: Head, frame: bytes) -> None:
        """Pass a message on."""
        self.visit(peer, worker, Kind.FRAMES, handshake).ask(frame)

    def worker_of(self, place: Place) -> int:
        """Its number."""
        if isinstance(place, AtTopic | Apart):
            return shard_of(place.topic, len(self.paths))
        if isinstance(place, AtMaker):
            digits = place.id[:MAKER_DIGITS]
            if len(digits) == MAKER_DIGITS and not digits.translate(None, b"0123456789abcdef"):
                number = int(digits, 16)
                return number if number < len(self.paths) else self.own
        return self.own

    def visit(
        self, peer: Connection, worker: int, kind: Kind, handshake: Head | None = None
    ) -> Visit:
        """The client's connection to a worker, made if there is none."""
        visits = self.client(peer).visits
        found = visits.get((worker, kind))
        if found is None:
            found = visits[worker, kind] = Visit(self, peer, worker, kind, handshake)
        return found

    def client(self, peer: Connection) -> Client:
        """What other workers do for it."""
        found = self._clients.get(peer)
        if found is None:
            found = self._clients[peer] = Client()
            peer.when_left(self.see_off)
        return found

    def gathering(self, peer: Connection) -> dict[Leaver, None]:
        """What ends when the client is gone."""
        return self.client(peer).gathering

    def forget(self, visit: Visit) -> None:
        """It is over."""
        client = self._clients.get(visit.peer)
        if client is not None:
            client.visits.pop((visit.worker, visit.kind), None)

    def see_off(self, peer: Connection) -> None:
        """The client is gone, or sends no more."""
        client = self._clients.pop(peer, None)
        if client is not None:
            for leaver in [*client.visits.values(), *client.gathering]:
                leaver.leave()


@attrs.define
class Client:
    """A connection of which other workers do something."""

    visits: dict[tuple[int, Kind], Visit] = attrs.Factory(dict)
    gathering: dict[Leaver, None] = attrs.Factory(dict)
    bound: bool = False  # it may hold something, or be registered, in another worker
    worker: int = -1  # who does its requests
    row: int = 0  # so many of them, one after another

    def count(self, peer: Connection, worker: int, binds: bool) -> None:
        """One more request is passed on."""
        self.bound = self.bound or binds
        if worker != self.worker:
            self.worker, self.row = worker, 0
        self.row += 1
        if type(peer) is SocketConnection:
            peer.__class__ = Passenger


class Kind(Enum):
    """Of requests that share a connection to another worker: how their answers are known."""

    ONE_EACH = auto()  # in order, or by id
    LOOSE = auto()  # by id, and there may be none, or many
    HEAD = auto()  # they have no bodies
    FRAMES = auto()  # they are messages of a WebSocket


_LOOSE: Final = frozenset((Kind.LOOSE, Kind.FRAMES))


class Forward:
    """Plan of a head that another worker does."""

    __slots__ = (
        "_alone",
        "_binds",
        "_forwarder",
        "_kind",
        "_knows_ids",
        "_start",
        "_takes_body",
        "worker",
    )

    def __init__(
        self, forwarder: Forwarder, worker: int, head: Head, replies: Replies, binds: bool
    ) -> None:
        """`binds`: the client may be registered by it, or hold something."""
        self._forwarder = forwarder
        self._binds = binds or replies is Replies.LOOSE
        self._alone = replies is Replies.ALONE
        self.worker = worker
        self._start = request_start(head)
        self._takes_body = head.method in _BODIES
        self._knows_ids = replies is Replies.BY_ID
        self._kind = Kind.LOOSE if replies is Replies.LOOSE else Kind.ONE_EACH
        if head.method == b"HEAD":
            self._kind = Kind.HEAD

    def run(self, peer: Connection, id: bytes, body: bytes) -> None:
        id_line = b"id: %b\r\n" % id if id else b""
        if body or self._takes_body:
            data = b"%b%bcontent-length: %d\r\n\r\n%b" % (self._start, id_line, len(body), body)
        else:
            data = b"%b%b\r\n" % (self._start, id_line)
        forwarder = self._forwarder
        visit = forwarder.visit(peer, self.worker, self._kind)
        if self._alone:
            visit.ask(data, StreamReply(peer, id))
        elif visit.kind in _LOOSE:
            visit.ask(data)
        else:
            visit.ask(data, Reply(peer, id, ordered=not (id and self._knows_ids)))
        forwarder.client(peer).count(peer, self.worker, self._binds)


class ByBody:
    """Plan of a head of which only the body says who does it."""

    __slots__ = ("_forwarder", "_head", "_place", "_plans")

    def __init__(self, forwarder: Forwarder, place: InBody, head: Head) -> None:
        self._forwarder = forwarder
        self._place = place
        self._head = head
        self._plans: dict[int, Plan] = {}

    def run(self, peer: Connection, id: bytes, body: bytes) -> None:
        place = self._place.find(body)
        worker = self._forwarder.worker_of(place)
        plan = self._plans.get(worker)
        if plan is None:
            plan = self._forwarder.plan_at(place, self._head, Replies.IN_ORDER)
            self._plans[worker] = plan
        plan.run(peer, id, body)


class Visit:
    """What one client asks of another worker, of one kind."""

    __slots__ = (
        "_begun",
        "_by_id",
        "_forwarder",
        "_handshake",
        "_held_bytes",
        "_last_asked",
        "_late_head",
        "_open",
        "_sees_off",
        "_streaming",
        "_upstream",
        "kind",
        "peer",
        "worker",
    )

    def __init__(
        self,
        forwarder: Forwarder,
        peer: Connection,
        worker: int,
        kind: Kind,
        handshake: Head | None,
    ) -> None:
        self._handshake = handshake
        self._forwarder = forwarder
        self.peer = peer
        self.worker = worker
        self.kind = kind
        self._open: deque[Reply] = deque()  # in order
        self._by_id: dict[bytes, deque[Reply]] = {}
        self._begun = False  # the head of the oldest answer is out
        self._late_head = b""  # it is not
        self._held_bytes = 0  # of requests that the other worker has not taken
        self._streaming = False
        self._last_asked = False  # the client sends no more
        self._sees_off = False  # it counts as a ticket of the client, which waits for its answers
        self._upstream = self._connect()

    def _connect(self) -> Upstream | None:
        """None: the other worker cannot be reached."""
        kind = FrameUpstream if self.kind is Kind.FRAMES else Upstream
        upstream = self._forwarder.open_upstream(
            self.worker, self.peer, self, kind, head_only=self.kind is Kind.HEAD
        )
        if upstream is not None and self._handshake is not None:
            upstream.write(request_start(self._handshake) + b"\r\n")
        return upstream

    @property
    def stalled(self) -> bool:
        """The client takes nothing at the moment."""
        return self.peer.out_bytes > self.peer.out_bytes_max

    def ask(self, data: bytes, reply: Reply | None = None) -> None:
        """Pass a request on. Without a reply there may be none, or many."""
        upstream = self._upstream
        if upstream is None:
            self._forwarder.forget(self)
            if reply is None:
                self._end_client()
            else:
                reply.send(_gone(reply.id))
            return
        if reply is not None:
            replies = self._open if reply.ordered else self._by_id.setdefault(reply.id, deque())
            replies.append(reply)
        upstream.write(data)
        if upstream.out_bytes > upstream.out_bytes_max:
            self._held_bytes += len(data)
            self.peer.held_bytes += len(data)
            self._forwarder.loop.output.held[upstream] = None

    def answered(self, response: bytes) -> None:
        peer = self.peer
        if self.kind in _LOOSE:
            if not peer.closed and peer.heartbeat is None:  # a stream is all that is told
                peer.write(response)
        elif self._begun:
            self._begun = False
            peer.patient -= 1
            self._open.popleft().send(response)
        elif self._open or self._by_id:
            head, self._late_head = self._late_head, b""
            peer.patient -= bool(head)
            self._take(head or response).send(head + response)
        self._hold_if_stalled()

    def _take(self, response: bytes) -> Reply:
        """Whose answer it is: mostly the oldest's."""
        by_id = self._by_id
        if by_id:
            found = _ID.search(response, 0, response.find(b"\r\n\r\n") + 2)
            id = found[1] if found is not None else b""
            if id not in by_id and not self._open:
                id = next(iter(by_id))
            if id in by_id:
                reply = by_id[id].popleft()
                if not by_id[id]:
                    del by_id[id]
                return reply
        return self._open.popleft()

    def _hold_if_stalled(self) -> None:
        """Nothing more is read while the client takes nothing."""
        if self.stalled and self._upstream is not None:
            self._forwarder.loop.output.held[self._upstream] = None

    def begins(self, head: bytes) -> None:
        """Told at once if it is its turn. Who waits for it is never silent for too long."""
        peer = self.peer
        peer.patient += 1
        if not self._open or peer.turns is None or peer.turns[0] is not self._open[0]:
            self._late_head = head
            return
        self._begun = True
        peer.write(head)

    def streams(self, head: bytes) -> None:
        """Nothing else is open, and nothing behind it was done."""
        self._take(head).send(head)
        self.peer.begin_stream(b"")
        self._streaming = True

    def more(self, data: bytes) -> None:
        if self._streaming and not self.peer.closed:
            self.peer.write(data)
        self._hold_if_stalled()

    def closes(self, frame: bytes) -> None:
        """It stops, perhaps: what the client is told is the same as by one process."""
        self.peer.take_leave(frame)

    def drained(self) -> None:
        held, self._held_bytes = self._held_bytes, 0
        self.peer.held_bytes -= held
        upstream = self._upstream
        if self._last_asked and upstream is not None and not upstream.out_bytes:
            self._last_asked = False
            with suppress(OSError):  # it has ended, and that will be heard
                upstream.sock.shutdown(socket.SHUT_WR)

    def ended(self) -> None:
        upstream, self._upstream = self._upstream, None
        if upstream is None:
            return
        self.drained()
        self._forwarder.forget(self)
        if self._streaming:
            self.peer.end_stream()
        self.peer.patient -= self._begun or bool(self._late_head)
        if self._begun:
            self._end_client()
            return
        open_ = [*self._open, *chain(*self._by_id.values())]
        self._open.clear()
        self._by_id.clear()
        for reply in open_:
            reply.send(_gone(reply.id))
        if self._sees_off:
            self.peer.open_tickets -= 1
            if not self.peer.closed:
                self.peer.write(b"")  # the loop has to look at it
        if self.kind in _LOOSE and not (self.peer.closed or self.peer.leaving):
            self._end_client()

    def leave(self) -> None:
        """The client is gone, or only sends no more: then it still takes what it is answered."""
        upstream = self._upstream
        if upstream is None:
            return
        if self.peer.closed:
            self._forwarder.loop.drop(upstream)
        else:  # when all that it has asked is sent
            self._last_asked = True
            if self.kind in _LOOSE:
                self._sees_off = True
                self.peer.open_tickets += 1
            self._forwarder.loop.output.held[upstream] = None

    def _end_client(self) -> None:
        """It knows its answers by id, or is amid a stream: it has to come again."""
        if self.peer.framing is not None:
            self.peer.refuse(WireError(503, "a worker has ended and is starting again"))
            return
        self.peer.closing = self.peer.broken = True
        self.peer.write(b"")


def _gone(id: bytes) -> bytes:
    id_line = b"id: %b\r\n" % id if id else b""
    return encode_reply(503, _RETRY + id_line, _GONE)
