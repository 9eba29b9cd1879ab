"""What time does in a group, counted for whoever wants to tell how late things are."""

from __future__ import annotations

import attrs

from zbus.core.model.histogram import MS_BOUNDS, Histogram


@attrs.define
class Lateness:
    """Of one partition of a group, since it was made. Whoever counts in windows puts another in its
    place. What ended is counted only in a topic that keeps what became of messages."""

    due: int = 0  # messages whose delay is over
    due_late_ms: int = 0  # how late that was noticed, of all together
    due_latest_ms: int = 0
    lost: int = 0  # back because nobody acknowledged them in time
    ended: int = 0  # given up, or expired
    # Milliseconds, ever: whoever puts another tally in the place of this one hands it on.
    late: Histogram | None = attrs.field(default=None, eq=False)

    def became_due(self, count: int, late_ms: int) -> None:
        """So many, of which the first is so late: that is counted for all of them."""
        self.due += count
        self.due_late_ms += count * late_ms
        self.due_latest_ms = max(self.due_latest_ms, late_ms)
        if self.late is None:
            self.late = Histogram(MS_BOUNDS)
        self.late.observe(late_ms, count)
