"""A ticket is one pending answer. Whatever may be late (a sync, a wait for messages, a service on
another connection) is a ticket that settles later. Each is settled once, or dropped with its
session."""

from __future__ import annotations

from zbus.core.outcomes import Outcome


class Ticket:
    """The face that accepted a request makes one and says in `answer` how the outcome is told."""

    __slots__ = ("offset", "open")

    def __init__(self) -> None:
        self.open = True
        self.offset = -1  # of a put: where its first message went

    def settle(self, outcome: Outcome) -> None:
        """The end of the request."""
        assert self.open, "a ticket is settled once"
        self.open = False
        self.answer(outcome)

    def answer(self, outcome: Outcome) -> None:
        """Tell the outcome. Called once by `settle`; before it for each part of a pull's credit."""
        raise NotImplementedError


class Silent(Ticket):
    """For requests that want no reply."""

    __slots__ = ()

    def answer(self, outcome: Outcome) -> None:
        pass
