"""A message that is wanted again, wherever it is by then."""

from __future__ import annotations

from zbus.core.cursor.backlog import Backlog


def test_what_was_finished_ahead_of_the_cursor_and_is_next() -> None:
    backlog = Backlog()
    backlog.delay(1, 100)
    backlog.finish(1)
    backlog.finish(0)
    backlog.again(1)
    backlog.check()
    assert backlog.next(3) == 1
    assert backlog.cursor == 2
