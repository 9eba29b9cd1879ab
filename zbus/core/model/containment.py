"""What a mistake in the program costs: what it came from, and nothing else.

Requests are run under the guard of their connection. Everything else that a turn does (timers, the
write, the pulls that are served, subscribers) is done for one partition, group or session at a
time, and an exception there is *blamed* on that one: the culprit. It is reported, and the culprit
pays (`zbus.core.upkeep.fencing`): a session is dropped, a topic or partition is fenced and read
again.

Work stops where the state of what is stored is in doubt: `InDoubt` is never contained, and a fault
that could not be contained becomes one.

Tests: `tests/server/test_faults.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from zbus.core.model.errors import InDoubt


class Fault(NamedTuple):
    """One exception, and the partition, group, topic or session that it came from, or None."""

    culprit: object
    error: Exception


class Containment:
    __slots__ = ("cost", "count", "doubt", "report")

    def __init__(self) -> None:
        # Reports them. Without a listener an exception goes on its way: a test
        # must not pass over a mistake.
        self.report: Callable[[Fault], None] | None = None
        self.cost: Callable[[object], None] | None = None  # makes the culprit pay
        self.count = 0
        # One that could not be contained. A guarded call may catch it: the broker writes
        # nothing more all the same.
        self.doubt: InDoubt | None = None

    def quarantine(self, culprit: object, error: Exception) -> None:
        """An exception came from there. Raises it, or InDoubt, if that must not be contained."""
        if self.report is None or isinstance(error, InDoubt):
            raise error
        self.count += 1
        try:
            self.report(Fault(culprit, error))
            if self.cost is not None and culprit is not None:
                self.cost(culprit)
        except InDoubt:
            raise
        except Exception as other:
            self.report(Fault(culprit, other))
            self.doubt = InDoubt(f"a fault could not be contained: {other!r}")
            raise self.doubt from other

    def guard(self, call: Callable[[], object]) -> None:
        """Do something that belongs to no session or topic."""
        try:
            call()
        except Exception as error:
            self.quarantine(None, error)
