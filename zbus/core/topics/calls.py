"""Calls that wait for a service: request and reply over a queue.

A call is a put whose ticket is settled by the service's `route`, not by the journal. The caller's
session and the request id name it.

A service that leaves with calls that it took and did not answer ends them: their callers need not
wait for the deadline. This holds for services on multiplexed connections, which answer where they
take. A service that sends plain requests may answer on another connection. In a group with
acknowledgements the call is redelivered, and another service may answer it.

Tests: `tests/conformance/test_service_gone.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Protocol

import attrs

from zbus.core.model.errors import BrokerError, Outcome, Refusal
from zbus.core.model.ticket import Ticket
from zbus.core.timing.timers import Timers


@attrs.frozen
class Routed(Outcome):
    """A message sent straight to a session."""

    id: bytes
    sender: bytes
    headers: bytes  # canonical header lines
    body: bytes
    failed: bool = False  # it is an answer that says so
    opaque: object = None  # what only the sender's dialect understands


class Service(Protocol):
    """A session that takes calls."""

    taken: dict[Call, None] | None


Place = tuple[object, int]
"""Partition and offset of a call's message."""

_GONE = BrokerError(
    Refusal.SERVICE_GONE, "the service that took this call has gone; it may have done the work"
)


class Calls:
    """All open calls of a broker, at most `calls_max`."""

    def __init__(self, calls_max: int, timers: Timers) -> None:
        self.calls_max = calls_max
        self._open: dict[bytes, dict[bytes, Call]] = {}  # session id -> request id -> call
        self._deadlines = timers.timer(self._expire)
        self.placed: dict[Place, Call] = {}  # calls that have their message in a log

    def __len__(self) -> int:
        return len(self._deadlines)

    def expect(
        self,
        session_id: bytes,
        id: bytes,
        ticket: Ticket,
        deadline_ms: int,
        withdraw: Callable[[int], None],
    ) -> Call | BrokerError:
        """Remember a call, whose message is to be put; an error if that cannot be. `withdraw` is
        called with the message's offset if no request waits for the answer any more."""
        if id in self._open.get(session_id, ()):
            return BrokerError(
                Refusal.ILLEGAL, "a call with this id is already open on this connection"
            )
        if len(self) >= self.calls_max:
            return BrokerError(
                Refusal.TOO_MANY, f"{self.calls_max} calls are open, which is the limit"
            )
        call = Call(self, session_id, id, ticket, withdraw)
        self._open.setdefault(session_id, {})[id] = call
        self._deadlines.set((session_id, id), deadline_ms)
        return call

    def place(self, call: Call, partition: object) -> None:
        """Its message was put there, if it was put at all."""
        if call.offset >= 0 and self._open.get(call.session_id, {}).get(call.id) is call:
            call.place = (partition, call.offset)
            self.placed[call.place] = call

    def take(self, service: Service, place: Place) -> None:
        """A service has been handed the message at this place."""
        call = self.placed.get(place)
        if call is None:
            return
        if call.service is not None and call.service.taken:
            call.service.taken.pop(call, None)
        call.service = service
        service.taken = service.taken or {}
        service.taken[call] = None

    def end_taken(self, service: Service, most: int) -> int:
        """The service is gone: at most that many of the calls that it took and did not answer end.
        How many did."""
        calls = list(islice(service.taken or (), most))
        for call in calls:
            self.settle(call.session_id, call.id, _GONE)
        return len(calls)

    def settle(self, session_id: bytes, id: bytes, outcome: Outcome) -> bool:
        """Answer a call; False if there is none of that name."""
        call = self._take(session_id, id)
        if call is None:
            return False
        call.caller.settle(outcome)
        return True

    def _take(self, session_id: bytes, id: bytes) -> Call | None:
        """It is open no more."""
        calls = self._open.get(session_id)
        call = calls.pop(id, None) if calls else None
        if call is not None:
            if not calls:
                del self._open[session_id]
            self._deadlines.discard((session_id, id))
            self.placed.pop(call.place, None)
            if call.service is not None and call.service.taken:
                call.service.taken.pop(call, None)
        return call

    def _expire(self, call: tuple[bytes, bytes]) -> None:
        """Tell a caller that its call timed out."""
        late = BrokerError(Refusal.UNANSWERED, "no service answered this call in time")
        self.settle(*call, late)

    def drop(self, session_id: bytes, most: int, informed: bool) -> int:
        """The caller is gone, or about to be: end that many of its calls, of which it can be told
        or not. How many were ended."""
        gone = BrokerError(Refusal.UNANSWERED, "the connection is being closed")
        ids = list(islice(self._open.get(session_id, ()), most))
        for id in ids:
            call = self._take(session_id, id)
            assert call is not None
            if informed:
                call.caller.settle(gone)
            else:
                call.caller.drop()
            if call.offset >= 0:
                call.withdraw(call.offset)
        return len(ids)

    def stop(self) -> None:
        """No answer will come any more."""
        stopping = BrokerError(Refusal.STOPPING, "the broker is stopping")
        for session_id, id in list(self._deadlines):
            self.settle(session_id, id, stopping)


class Call(Ticket):
    """An open call, and the journal's half of it: only a refusal reaches the caller this way."""

    __slots__ = ("_calls", "caller", "id", "place", "service", "session_id", "withdraw")

    def __init__(
        self,
        calls: Calls,
        session_id: bytes,
        id: bytes,
        caller: Ticket,
        withdraw: Callable[[int], None],
    ) -> None:
        super().__init__()
        self._calls = calls
        self.session_id = session_id
        self.id = id
        self.place: Place = (None, -1)
        self.service: Service | None = None  # that has the message
        self.caller = caller
        self.withdraw = withdraw

    def answer(self, outcome: Outcome) -> None:
        if isinstance(outcome, BrokerError):
            self._calls.settle(self.session_id, self.id, outcome)
