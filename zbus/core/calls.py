"""Calls that wait for a service: request and reply over a queue.

A call is a put whose ticket is settled by the service's `route`, not by the journal. The caller's
session and the request id name it.
"""

from __future__ import annotations

from itertools import islice

import attrs

from zbus.core.errors import BrokerError, Outcome, Refusal
from zbus.core.ticket import Ticket
from zbus.core.timers import Timers


@attrs.frozen
class Routed(Outcome):
    """A message sent straight to a session."""

    id: bytes
    sender: bytes
    headers: bytes  # canonical header lines
    body: bytes
    failed: bool = False  # it is an answer that says so
    opaque: object = None  # what only the sender's face understands


class Calls:
    """All open calls of a broker, at most `calls_max`."""

    def __init__(self, calls_max: int, timers: Timers) -> None:
        self.calls_max = calls_max
        self._open: dict[bytes, dict[bytes, Ticket]] = {}  # session id -> request id -> ticket
        self._deadlines = timers.timer(self._expire)

    def __len__(self) -> int:
        return len(self._deadlines)

    def expect(
        self, session_id: bytes, id: bytes, ticket: Ticket, deadline_ms: int
    ) -> BrokerError | None:
        """Remember a call; an error if that cannot be."""
        if id in self._open.get(session_id, ()):
            return BrokerError(Refusal.ILLEGAL, "a call with this id is open on this connection")
        if len(self) >= self.calls_max:
            return BrokerError(Refusal.TOO_MANY, f"more than {self.calls_max} open calls")
        self._open.setdefault(session_id, {})[id] = ticket
        self._deadlines.set((session_id, id), deadline_ms)
        return None

    def settle(self, session_id: bytes, id: bytes, outcome: Outcome) -> bool:
        """Answer a call; False if there is none of that name."""
        return self._end(session_id, id, outcome)

    def _end(self, session_id: bytes, id: bytes, outcome: Outcome | None) -> bool:
        """The same; None = the answer would reach nobody."""
        calls = self._open.get(session_id)
        ticket = calls.pop(id, None) if calls else None
        if ticket is None:
            return False
        if not calls:
            del self._open[session_id]
        self._deadlines.discard((session_id, id))
        if outcome is None:
            ticket.drop()
        else:
            ticket.settle(outcome)
        return True

    def _expire(self, call: tuple[bytes, bytes]) -> None:
        """A caller whose time is up is told."""
        late = BrokerError(Refusal.UNANSWERED, "no service answered this call in time")
        self.settle(*call, late)

    def drop(self, session_id: bytes, most: int, told: bool) -> int:
        """The caller is gone, or about to be: end so many of its calls, of which it can be told or
        not. How many were ended."""
        gone = BrokerError(Refusal.UNANSWERED, "the connection is being closed")
        ids = list(islice(self._open.get(session_id, ()), most))
        for id in ids:
            self._end(session_id, id, gone if told else None)
        return len(ids)

    def stop(self) -> None:
        """No answer will come any more."""
        stopping = BrokerError(Refusal.STOPPING, "the broker is stopping")
        for session_id, id in list(self._deadlines):
            self.settle(session_id, id, stopping)


class CallTicket(Ticket):
    """The journal's half of a call: only a refusal reaches the caller this way."""

    __slots__ = ("_calls", "_id", "_session_id")

    def __init__(self, calls: Calls, session_id: bytes, id: bytes) -> None:
        super().__init__()
        self._calls = calls
        self._session_id = session_id
        self._id = id

    def answer(self, outcome: Outcome) -> None:
        if isinstance(outcome, BrokerError):
            self._calls.settle(self._session_id, self._id, outcome)
