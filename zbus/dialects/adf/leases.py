"""What was pulled over HTTP. There a connection means nothing: a message is its puller's until he
settles it, on whatever connection, or its lease is over."""

from __future__ import annotations

from typing import Final

from zbus.core.api import Broker, Session
from zbus.dialects.adf.scope import Held, Scope
from zbus.edge.connection import Connection

HELD_BYTES: Final = 400
"""What is known of a message that was pulled takes about that many bytes."""

LATER_MS: Final = 1_000
"""A lease may last a little longer than was reckoned: until its reply was sent."""


class HttpLeases:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.scope = Scope()
        self._ends = broker.timers.timer(self._end, lambda id: None)
        self._unsent: dict[Session, list[bytes]] = {}

    def bytes_used(self) -> int:
        """About."""
        return HELD_BYTES * len(self.scope)

    def asked(self, peer: Connection) -> None:
        """A pull has come."""
        if peer in self._unsent and not peer.out_bytes:
            self._unsent[peer].clear()  # the client's system has those

    def began(self, peer: Connection, id: bytes, lease_ms: int) -> None:
        """The message of this pull was delivered."""
        self._ends.set(id, self._broker.now_ms + lease_ms + LATER_MS)
        if peer not in self._unsent:
            self._unsent[peer] = []
            peer.when_left(self._left)
        self._unsent[peer].append(id)

    def _end(self, id: bytes) -> None:
        """The client can no longer settle it, unless it was extended."""
        held = self.scope.get(id)
        if isinstance(held, Held):
            if held.lasts():
                self._ends.set(id, self._broker.now_ms + LATER_MS)
            else:
                del self.scope[id]

    def _left(self, peer: Connection) -> None:
        """A connection is over: what could not be sent there was not pulled."""
        unsent = self._unsent.pop(peer, [])
        if not peer.out_bytes:
            return
        for id in unsent:
            held = self.scope.get(id)
            if isinstance(held, Held) and held.lasts() and held.holder == peer.id:
                del self.scope[id]
                self._broker.lose(held.group, held.partition, held.offset, held.holder)
