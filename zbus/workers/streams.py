"""Streams that other workers make. A stream takes its connection: it is refused where something is
open, and what is asked behind it waits until it is answered, and is dropped if it began."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from zbus.edge.connection import Connection, Plan, Reply
from zbus.edge.guard import Answer

NOT_ALONE: Final = Answer(
    400, "400: Bad Format, a stream of events needs a connection on which nothing else is open"
)


class Alone:
    """Plan of a request for a stream, which takes its connection: one on which something is open is
    told so here, as one process would."""

    __slots__ = ("_is_asking", "_refusal", "plan")

    def __init__(self, plan: Plan, refusal: Plan, is_asking: Callable[[Connection], bool]) -> None:
        """`is_asking`: other workers may have something to say that this one does not wait for."""
        self.plan = plan
        self._refusal = refusal
        self._is_asking = is_asking

    def run(self, peer: Connection, id: bytes, body: bytes) -> None:
        busy = peer.open_tickets or peer.turns or self._is_asking(peer)
        plan = self._refusal if busy else self.plan
        plan.run(peer, id, body)


class StreamReply(Reply):
    """That to a request for a stream. What is asked behind it waits until it is answered, and then
    is done, or dropped if a stream began."""

    __slots__ = ("_held",)

    def __init__(self, peer: Connection, id: bytes) -> None:
        super().__init__(peer, id, ordered=True)
        self._held = peer.out_bytes_max + 1
        peer.held_bytes += self._held

    def send(self, data: bytes) -> None:
        self.peer.held_bytes -= self._held
        super().send(data)
