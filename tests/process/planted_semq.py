"""Endpoints of SEMQ with a bug: `python -m tests.process.planted_semq <bug> semq run ...`.

Each function here breaks one promise, in the way a programmer might.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from zbus.cli import main
from zbus.semq.endpoint.events import Effect, Event, Submit, Submitted
from zbus.semq.endpoint.received_ids import ReceivedIds
from zbus.semq.program.program import Program

LATE_MS = 2_000


def answer_early() -> None:
    """Who sends is answered before that is written, two seconds later."""
    step = Program._step
    kept: list[tuple[int, Event]] = []

    def early(self: Program, now_ms: int, events: list[Event]) -> tuple[list[Effect], int | None]:
        said: list[Effect] = []
        for event in [event for event in events if isinstance(event, Submit)]:
            said.append(Submitted(event.ask, 1, ""))
            kept.append((now_ms + LATE_MS, event._replace(ask=0)))
        ready = [event for due_ms, event in kept if due_ms <= now_ms]
        kept[:] = [one for one in kept if one[0] > now_ms]
        others: list[Event] = [event for event in events if not isinstance(event, Submit)]
        effects, due_ms = step(self, now_ms, ready + others)
        next_ms = min((due_ms for due_ms, _ in kept), default=None)
        dues = [due for due in (due_ms, next_ms) if due is not None]
        return said + effects, min(dues, default=None)

    Program._step = early  # type: ignore[method-assign]


def no_ledger() -> None:
    """What came before is known by its row alone, which goes when it is done."""
    ReceivedIds.add = lambda *given: True  # type: ignore[method-assign]


BUGS: dict[str, Callable[[], None]] = {bug.__name__: bug for bug in (answer_early, no_ledger)}

if __name__ == "__main__":
    BUGS[sys.argv.pop(1)]()
    main(prog_name="zbus")
