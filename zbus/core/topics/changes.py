"""Notice changes of topics, groups or readers, for the parts that show them elsewhere.

Ten thousand changes are not ten thousand notices: watchers are called at the end of a turn, and not
again before `pause_ms` have passed. The last change is always reported.

Tests: `tests/server/test_reporter.py`.
"""

from __future__ import annotations

from collections.abc import Callable

from zbus.core.model.containment import Containment

PAUSE_MS = 100


class Changes:
    __slots__ = ("_faults", "_notified_ms", "_watchers", "count", "due_ms", "gone_ms", "pause_ms")

    def __init__(self, faults: Containment | None = None) -> None:
        self._faults = faults or Containment()
        self.count = 0  # of all changes so far
        self.due_ms: int | None = None  # when the watchers are to be called; None = not
        self.pause_ms = PAUSE_MS  # a slow watcher asks for longer ones
        self.gone_ms = -1  # when the newest topic or group that is gone was made
        self._notified_ms = -PAUSE_MS
        self._watchers: dict[Callable[[], None], None] = {}

    def watch(self, call: Callable[[], None]) -> None:
        """Call this from now on; twice is once."""
        self._watchers[call] = None

    def unwatch(self, call: Callable[[], None]) -> None:
        self._watchers.pop(call, None)

    def note(self, now_ms: int) -> None:
        """Something changed."""
        self.count += 1
        self.wake(now_ms)

    def note_gone(self, now_ms: int, created_ms: int) -> None:
        """A topic or group that was made then is no more."""
        self.gone_ms = max(self.gone_ms, created_ms)
        self.note(now_ms)

    def created_ms(self, now_ms: int) -> int:
        """When what is new was made: its name and this tell it from what had its name before."""
        return max(now_ms, self.gone_ms + 1)

    def wake(self, at_ms: int) -> None:
        """Call the watchers at this time, or as soon after it as the pause allows."""
        if self._watchers:
            at_ms = max(at_ms, self._notified_ms + self.pause_ms)
            if self.due_ms is None or at_ms < self.due_ms:
                self.due_ms = at_ms

    def notify_at_once(self, now_ms: int) -> None:
        """Call the watchers now, pause or not."""
        self.due_ms = now_ms
        self.notify(now_ms)

    def notify(self, now_ms: int) -> None:
        """Call the watchers, if it is time. What one raises must not reach the others."""
        if self.due_ms is None or self.due_ms > now_ms:
            return
        self.due_ms = None
        self._notified_ms = now_ms
        for call in list(self._watchers):
            self._faults.guard(call)
