"""What time does in a group: counts of delays and lost leases, for reports of lateness."""

from __future__ import annotations

import attrs

from zbus.core.model.histogram import MS_BOUNDS, Histogram


@attrs.define
class Lateness:
    """Of one partition of a group, since it was made. A caller that counts in windows puts another
    in its place. Endings are counted only in a topic that remembers how messages ended."""

    due: int = 0  # messages whose delay is over
    due_late_ms: int = 0  # how late that was noticed, of all together
    due_latest_ms: int = 0
    lost: int = 0  # back because no acknowledgement came in time
    ended: int = 0  # given up, or expired
    # Milliseconds, ever: a caller that replaces this object passes it on.
    late: Histogram | None = attrs.field(default=None, eq=False)

    def became_due(self, count: int, late_ms: int) -> None:
        """This many, of which the first is so late: that is counted for all of them."""
        self.due += count
        self.due_late_ms += count * late_ms
        self.due_latest_ms = max(self.due_latest_ms, late_ms)
        if self.late is None:
            self.late = Histogram(MS_BOUNDS)
        self.late.observe(late_ms, count)
