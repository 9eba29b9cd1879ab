"""What was pulled over HTTP. There a connection means nothing: a message is its puller's until he
settles it, on whatever connection, or its lease is over."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

from zbus.core.api import Broker
from zbus.dialects.adf.scope import Held, Scope
from zbus.edge.connection import Connection

HELD_BYTES: Final = 400
"""What is known of a message that was pulled takes about that many bytes."""

LATER_MS: Final = 1_000
"""A lease may last a little longer than was reckoned: until its reply was sent."""


@dataclass(slots=True, eq=False)
class PullReply:
    """What is known of the reply to a pull."""

    peer: Connection
    id: bytes
    held: Held | None = None  # the message that it delivers
    mark: int = -1  # of the output, where it ends; -1: it is not written yet

    def sent(self) -> bool:
        """All of it has left."""
        return self.mark >= 0 and self.peer.has_sent(self.mark)


class HttpLeases:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.scope = Scope()
        self._ends = broker.timers.timer(self._end, lambda id: None)
        # By connection, in the order of the requests. Those that have left go when another comes.
        self._unsent: dict[Connection, deque[PullReply]] = {}

    def bytes_used(self) -> int:
        """About."""
        return HELD_BYTES * len(self.scope)

    def asked(self, peer: Connection, id: bytes) -> PullReply:
        """A pull has come, and nothing of its reply is written."""
        replies = self._unsent.get(peer)
        if replies is None:
            replies = self._unsent[peer] = deque()
            peer.when_left(self._left)
        while replies and replies[0].sent():
            replies.popleft()
        replies.append(PullReply(peer, id))
        return replies[-1]

    def began(self, id: bytes, lease_ms: int) -> None:
        """The message of this pull was delivered."""
        self._ends.set(id, self._broker.now_ms + lease_ms + LATER_MS)

    def _end(self, id: bytes) -> None:
        """The client can no longer settle it, unless it was extended."""
        held = self.scope.get(id)
        if isinstance(held, Held):
            if held.lasts():
                self._ends.set(id, self._broker.now_ms + LATER_MS)
            else:
                del self.scope[id]

    def _left(self, peer: Connection) -> None:
        """A connection is over: what could not be sent there was not pulled. A client that only
        sends no more still gets its replies."""
        if not peer.closed:
            peer.when_left(self._left)
            return
        for reply in self._unsent.pop(peer):
            held = reply.held
            if held is None or reply.sent() or self.scope.get(reply.id) is not held:
                continue
            if held.lasts():
                del self.scope[reply.id]
                self._broker.lose(held.group, held.partition, held.offset, held.holder)
