"""A ticket is one pending answer. Whatever may be late (a sync, a wait for messages, a service on
another connection) is a ticket that settles later. Each is settled once, or dropped with its
session.

Tests: `tests/server/test_faults.py`.
"""

from __future__ import annotations

from collections.abc import Callable

from zbus.core.model.errors import BrokerError, Outcome


class Ticket:
    """The dialect that accepted a request makes one; `answer` encodes the outcome."""

    __slots__ = ("offset", "open")

    def __init__(self) -> None:
        self.open = True
        self.offset = -1  # of a put: where its first message went

    def settle(self, outcome: Outcome) -> None:
        """The end of the request."""
        assert self.open, "a ticket is settled once"
        self.open = False
        try:
            self.answer(outcome)
        except Exception as error:
            self.failed(error)

    def drop(self) -> None:
        """End a request whose client is gone, without an answer."""
        self.open = False

    def answer(self, outcome: Outcome) -> None:
        """Tell the outcome. Called once by `settle`; before it for each part of a pull's credit."""
        raise NotImplementedError

    def failed(self, error: Exception) -> None:
        """The answer raised this. A ticket of a session ends that session (`Session.blame`), so
        that the others that are settled with it go on; one without a session raises it again."""
        raise error


class Silent(Ticket):
    """For requests that want no reply."""

    __slots__ = ()

    def answer(self, outcome: Outcome) -> None:
        pass


class Calling(Ticket):
    """For a part of the broker itself, which is called with the outcome."""

    __slots__ = ("_done",)

    def __init__(self, done: Callable[[Outcome], None]) -> None:
        super().__init__()
        self._done = done

    def answer(self, outcome: Outcome) -> None:
        self._done(outcome)


class Opening(Ticket):
    """Of a declaration: what stood in its way. That it is durable is said by what follows it."""

    __slots__ = ("problem",)

    def __init__(self) -> None:
        super().__init__()
        self.problem: BrokerError | None = None

    def answer(self, outcome: Outcome) -> None:
        if isinstance(outcome, BrokerError):
            self.problem = outcome


class Parts:
    """A ticket that waits for several things, for each of which `part` makes a ticket. It ends well
    when all have, and with the first refusal."""

    __slots__ = ("_left", "_outcome", "_ticket")

    def __init__(self, ticket: Ticket, outcome: Outcome, count: int) -> None:
        self._ticket = ticket
        self._outcome = outcome
        self._left = count

    def part(self) -> Ticket:
        return _Part(self)

    def ended(self, outcome: Outcome) -> None:
        self._left -= 1
        if not self._ticket.open:
            return
        if isinstance(outcome, BrokerError):
            self._ticket.settle(outcome)
        elif not self._left:
            self._ticket.settle(self._outcome)


class _Part(Ticket):
    __slots__ = ("_parts",)

    def __init__(self, parts: Parts) -> None:
        super().__init__()
        self._parts = parts

    def answer(self, outcome: Outcome) -> None:
        self._parts.ended(outcome)
