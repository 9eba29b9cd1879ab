"""What goes by the pulls before it, in the order of its WebSocket.

A client may send a push, a pull and a delete together, and each goes by those before it. But a
message is delivered when it is written, which takes a while. So what is to settle, clear or count
waits for what is being written, if that may serve a pull that came before; and all of its kind that
comes behind it on this WebSocket waits, too.
"""

from __future__ import annotations

from collections import deque
from typing import Final, Protocol

from zbus.core.api import Broker, Outcome, Partition, Ticket
from zbus.dialects.adf.request import AdfReply
from zbus.dialects.adf.scope import Scope

ROUNDS: Final = 2
"""How often something waits for what is being written before it takes a pull for one that waits:
for a message, and then for the count of its attempts."""


class Follows(Protocol):
    """The plan of such a request."""

    broker: Broker

    def awaited(self, reply: AdfReply, scope: Scope) -> Partition | None:
        """Where something is being written that may serve a pull before it."""

    def finish(self, reply: AdfReply, scope: Scope) -> None:
        """Do it now."""


class AdfOrder(Scope):
    """The pulls of a WebSocket, and what waits for some of them, in its order."""

    __slots__ = ("_entries", "_rounds")

    def __init__(self) -> None:
        super().__init__()
        self._entries: deque[tuple[Follows, AdfReply]] = deque()
        self._rounds = ROUNDS

    def do(self, plan: Follows, reply: AdfReply) -> None:
        """Now, or after those before it."""
        self._entries.append((plan, reply))
        if len(self._entries) == 1:
            self.go_on()

    def go_on(self) -> None:
        """As far as nothing is to be waited for."""
        entries = self._entries
        while entries:
            plan, reply = entries[0]
            try:
                partition = plan.awaited(reply, self) if self._rounds else None
                if partition is not None:
                    self._rounds -= 1
                    plan.broker.confirm(partition, _GoOn(self))
                    return
                plan.finish(reply, self)
            except Exception as error:
                reply.failed(error)
            entries.popleft()
            self._rounds = ROUNDS


class _GoOn(Ticket):
    """It is written, or cannot be."""

    __slots__ = ("_line",)

    def __init__(self, line: AdfOrder) -> None:
        super().__init__()
        self._line = line

    def answer(self, outcome: Outcome) -> None:
        self._line.go_on()
