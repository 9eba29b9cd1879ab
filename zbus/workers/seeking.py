"""Requests that name something registered, and not the topic of it: who has that topic is found by
asking the workers in turn.

Who does not know the name has done nothing, so a request is done once, wherever it is. A worker
that has known a name is asked first the next time: mostly it is the only one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Protocol

from zbus.edge.connection import Connection, Plan, Reply
from zbus.edge.places import AtTopic, Named, Place
from zbus.wire.heads.head import Head
from zbus.workers.visits import BODIES, Kind, Visit, passed_on

NAMES_MAX: Final = 10_000
"""Names of which it is remembered who has known them."""


class Door(Protocol):
    """What is needed of `zbus.workers.forwarding.Forwarder`."""

    own: int
    names: dict[str, int]

    @property
    def count(self) -> int: ...

    def worker_of(self, place: Place) -> int: ...

    def visit(self, peer: Connection, worker: int, kind: Kind) -> Visit: ...

    def see_off(self, peer: Connection) -> None: ...


class Seek:
    """Plan of such a request. `plan` is the one if the name is known here."""

    __slots__ = ("_plan", "_start", "_takes_body", "door", "head_only", "place")

    def __init__(self, door: Door, place: Named, head: Head, start: bytes, plan: Plan) -> None:
        self.door = door
        self.place = place
        self.head_only = head.method == b"HEAD"
        self._plan = plan
        self._start = start
        self._takes_body = head.method in BODIES and not head.open_ended

    def run(self, peer: Connection, id: bytes, body: bytes) -> None:
        door, place = self.door, self.place
        known = door.names.get(place.name)
        if known is None and place.is_here(peer):
            self._plan.run(peer, id, body)
            return
        data = passed_on(self._start, id, body, self._takes_body)
        _Seeking(self, Reply(peer, id, ordered=True), data, self._order(known)).ask_next()

    def _order(self, known: int | None) -> Iterator[int]:
        """Who is asked. Who does it if no other knows the name comes last, and who certainly does
        not know it is left out."""
        door, topic = self.door, self.place.topic
        last = door.worker_of(AtTopic(topic)) if topic else None
        first = door.own if known is None else known
        if known is not None:
            yield known
        yield from [worker for worker in range(door.count) if worker not in (first, last)]
        if last is not None:
            yield last


class _Seeking:
    """One request on its way through the workers; each takes it for whom its answer is."""

    ordered = True
    id = b""

    def __init__(self, seek: Seek, reply: Reply, data: bytes, order: Iterator[int]) -> None:
        self._seek = seek
        self._reply = reply
        self._data = data
        self._order = order
        self._worker = -1
        self._missing = b""  # the answer for one that has ended, which may know the name
        self._unknown = b""

    def ask_next(self) -> None:
        """The next worker; if there is none, nobody knows the name, as far as can be said."""
        door, place, peer = self._seek.door, self._seek.place, self._reply.peer
        for worker in self._order:
            self._worker = worker
            makes = place.topic and worker == door.worker_of(AtTopic(place.topic))
            if peer.closed or (makes and self._missing):
                break
            door.visit(peer, worker, Kind.ONE_EACH).ask(self._data, self)
            if peer.leaving:  # it sends no more: this connection ends with its answer
                door.see_off(peer)
            return
        self._answer(self._missing or self._unknown)

    def send(self, data: bytes) -> None:
        """What a worker answers."""
        names, place = self._seek.door.names, self._seek.place
        if data[9:12] == b"503":
            self._missing = self._missing or data
            self.ask_next()
        elif data.endswith(b"\r\n\r\n" + place.unknown):
            self._unknown = data
            names.pop(place.name, None)
            self.ask_next()
        else:
            if place.name and self._worker != self._seek.door.own:
                if len(names) >= NAMES_MAX:
                    names.clear()
                names[place.name] = self._worker
            self._answer(data)

    def _answer(self, data: bytes) -> None:
        if self._seek.head_only:
            data = data[: data.find(b"\r\n\r\n") + 4]
        self._reply.send(data)
