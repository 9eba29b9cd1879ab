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
from typing import Final, Protocol

import attrs

from zbus.edge.connection import Connection, Plan, Planner, Reply
from zbus.edge.guard import Answer
from zbus.edge.places import (
    Apart,
    AtMaker,
    AtTopic,
    ByOwnId,
    Everywhere,
    HowKnown,
    InBody,
    Named,
    Place,
    Replies,
)
from zbus.edge.proxies import ForClient
from zbus.edge.websocket import Upgrade
from zbus.protocol.places import shard_of
from zbus.server.loop.loop import Loop
from zbus.server.loop.socket_connection import SocketConnection
from zbus.wire.errors import WireError
from zbus.wire.heads.head import Head
from zbus.wire.heads.heads import Heads
from zbus.workers.frames import Pass, Passing
from zbus.workers.gathering import Gather, Leaver
from zbus.workers.handing_over import Giver, Passenger
from zbus.workers.introduction import Introduction, encode_introduction, origin_of
from zbus.workers.routes import Routes
from zbus.workers.seeking import Seek
from zbus.workers.streams import NOT_ALONE, Alone, StreamReply
from zbus.workers.upstream import Answers, Upstream
from zbus.workers.visits import BODIES, LOOSE, Kind, Visit, passed_on, request_start

ROW: Final = 256
"""Requests one after another for one other worker, after which it is given the connection."""

TELL_EVERY_MS: Final = 1_000
"""How often it is logged that a worker cannot be reached."""

_SHOWN: Final = frozenset((b"authorization", b"cookie", b"host", b"token"))
"""What a handshake shows, and each message that is sent without it."""


log = logging.getLogger("zbus")


class Door(Planner, Protocol):
    """The edge of this worker, `zbus.edge.router.Router`."""

    def place(self, head: Head, handshake: Head | None = None) -> tuple[Place, HowKnown]: ...

    def refuse(self, head: Head, answer: Answer, handshake: Head | None = None) -> Plan: ...


class Forwarder:
    """Plans what clients of this worker ask. `own` is its shard."""

    def __init__(
        self, router: Door, heads: Heads, loop: Loop, own: int, routes: Routes, giver: Giver
    ) -> None:
        """`heads` are what clients' connections read with."""
        self.router = router
        self._heads = heads
        self._giver = giver
        self.loop = loop
        self.own = own
        self._routes = routes
        self.count = routes.count
        """How many shards there are."""
        self._clients: dict[Connection, Client] = {}
        self._waiting: dict[Visit, int] = {}  # for an owner, and until when
        self.unanswered = [0] * routes.count
        self._logged_ms = -TELL_EVERY_MS
        self.names: dict[str, int] = {}  # and who has known them
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
            by_id, id = replies is Replies.LOOSE, _own_id(replies)
            return self._alone(replies, head, Gather(self, place, head, start, by_id=by_id, id=id))
        if isinstance(place, InBody):
            head.origin = None
            return ByBody(self, place, head)
        if isinstance(place, Named):
            head.origin = None
            return self.seek(place, head)
        return self.plan_at(place, head, replies)

    def plan_at(self, place: Place, head: Head, replies: HowKnown) -> Plan:
        """The plan of a head that is done there."""
        refusal = self._refusal(place)
        if refusal is not None:
            return self.router.refuse(head, refusal)
        worker = self.worker_of(place)
        if worker == self.own:
            return self._alone(replies, head, self.router.plan(head))
        head.origin = None  # its shape is learned by the worker that does it
        binds = not isinstance(place, AtTopic) or place.binds
        return self._alone(replies, head, Forward(self, worker, head, replies, binds))

    def seek(self, place: Named, head: Head) -> Plan:
        """The plan of a head that is done where a name is known."""
        start = request_start(head).replace(b"HEAD ", b"GET ", 1)
        return Seek(self, place, head, start, self.router.plan(head))

    def _alone(self, replies: HowKnown, head: Head, plan: Plan) -> Plan:
        """The plan, or one that is refused where something else is open."""
        if replies is Replies.ALONE:
            return Alone(plan, self.router.refuse(head, NOT_ALONE), self._is_asking)
        return plan

    def _is_asking(self, peer: Connection) -> bool:
        """What other workers say to this client may be no answer to what it asks next."""
        client = self._clients.get(peer)
        return client is not None and any(kind in LOOSE for _, kind in client.visits)

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
        if not self._routes.is_here(plan.worker):
            return False
        if not self._giver.give(link, plan.worker, data):
            return False
        self.loop.drop(link)
        return True

    def _refusal(self, place: Place) -> Answer | None:
        """Why this cannot be done."""
        count = self.count
        if isinstance(place, Apart):
            one, other = shard_of(place.topic, count), shard_of(place.other, count)
            if one != other:
                return Answer(
                    409,
                    f"409: {place.topic} is in shard {one} and {place.other} in shard {other};"
                    f" give names the same text in braces: {place.advice}",
                )
        return None

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
        loop, address = self.loop, origin_of(peer)
        try:
            sock, tls = self._routes.open(worker)
        except OSError as error:
            if loop.now_ms >= self._logged_ms + TELL_EVERY_MS:  # each request may come here
                self._logged_ms = loop.now_ms
                log.warning("a worker cannot be reached", extra={"worker": worker, "why": error})
            return None
        upstream = kind(
            sock,
            address,
            answers,
            peer.planner,
            loop.ready.append,
            loop.limits.output_bytes_max,
            loop.now_ms,
            head_only,
            tls,
        )
        upstream.shard = worker
        loop.attach(upstream)
        client = Introduction(address, peer.principal, peer.secure, peer.id.decode(), shard=worker)
        upstream.write(encode_introduction(client, self._routes.cluster))
        return upstream

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
            return shard_of(place.topic, self.count)
        number = place.worker if isinstance(place, AtMaker) else None
        return self.own if number is None or number >= self.count else number

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
        self._waiting.pop(visit, None)
        client = self._clients.get(visit.peer)
        if client is not None:
            client.visits.pop((visit.worker, visit.kind), None)

    def moved(self, shard: int) -> None:
        """It has another owner: what was asked of the former one and is not answered is refused,
        which nobody else may do in time if that machine has no power."""
        for link in list(self.loop.links):
            if isinstance(link, Upstream) and link.shard == shard:
                self.loop.drop(link)
        self.look()

    def hold(self, visit: Visit) -> bool:
        """Whether it may wait for an owner of its shard: it is tried again, or given up."""
        now_ms = self.loop.now_ms
        until_ms = self._waiting.setdefault(visit, now_ms + self._routes.hold_ms)
        if until_ms <= now_ms:
            del self._waiting[visit]
        return until_ms > now_ms

    def look(self) -> None:
        """After those that wait for an owner; called once a second, too."""
        for visit, until_ms in list(self._waiting.items()):
            if not visit.waits:
                self._waiting.pop(visit, None)
            elif visit.stalled:  # its client takes no answers, and would take no refusal either
                self._waiting[visit] = self.loop.now_ms + self._routes.hold_ms
            elif self.loop.now_ms >= until_ms:
                visit.give_up()
            else:
                visit.try_again()

    def stop(self) -> None:
        """This worker ends."""
        for visit in [each for client in self._clients.values() for each in client.visits.values()]:
            visit.stop()

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


class Forward:
    """Plan of a head that another worker does."""

    __slots__ = (
        "_alone",
        "_binds",
        "_closes",
        "_forwarder",
        "_id",
        "_kind",
        "_knows_ids",
        "_start",
        "_takes_body",
        "worker",
    )

    def __init__(
        self, forwarder: Forwarder, worker: int, head: Head, replies: HowKnown, binds: bool
    ) -> None:
        """`binds`: the client may be registered by it, or hold something."""
        self._forwarder = forwarder
        self._binds = binds or replies is Replies.LOOSE
        self._alone = replies is Replies.ALONE
        self._closes = not head.keep_alive
        self.worker = worker
        self._start = request_start(head)
        self._takes_body = head.method in BODIES and not head.open_ended
        self._id = _own_id(replies)
        self._knows_ids = replies is Replies.BY_ID or bool(self._id)
        self._kind = Kind.LOOSE if replies is Replies.LOOSE else Kind.ONE_EACH
        if head.method == b"HEAD":
            self._kind = Kind.HEAD

    def run(self, peer: Connection, id: bytes, body: bytes) -> None:
        data = passed_on(self._start, id, body, self._takes_body)
        forwarder = self._forwarder
        visit = forwarder.visit(peer, self.worker, self._kind)
        if self._closes:  # it is the last request, and its answer may not come at once
            visit.count_as_ticket(waits=True)
        if self._alone:
            visit.ask(data, StreamReply(peer, id))
        elif visit.kind in LOOSE:
            visit.ask(data)
        else:
            id = id or self._id
            visit.ask(data, Reply(peer, id, ordered=not (id and self._knows_ids)))
        forwarder.client(peer).count(peer, self.worker, self._binds)


def _own_id(replies: HowKnown) -> bytes:
    return replies.id if isinstance(replies, ByOwnId) else b""


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
        if isinstance(place, Named):
            self._forwarder.seek(place, self._head).run(peer, id, body)
            return
        worker = self._forwarder.worker_of(place)
        plan = self._plans.get(worker)
        if plan is None:
            plan = self._forwarder.plan_at(place, self._head, Replies.IN_ORDER)
            self._plans[worker] = plan
        plan.run(peer, id, body)
