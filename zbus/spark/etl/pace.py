"""How a stream goes: when its batches begin, and how much is in one."""

from __future__ import annotations

from typing import Any, Final

import attrs

from zbus.spark.errors import Usage
from zbus.spark.times import bytes_s, duration_ms
from zbus.units import parse_bytes

RATE_INTERVAL_MS: Final = 1_000
"""Between batches, if there is a rate and nothing else is said."""


@attrs.frozen(kw_only=True)
class Pace:
    """As it was said."""

    checkpoint: str | None = None  # with one it is a stream
    once: bool = False
    interval: str | None = None
    rate: str | None = None
    batch_bytes: str | None = None
    group: str | None = None

    def problems(self) -> list[tuple[bool, str]]:
        """What does not fit together, with a text for each."""
        streams = self.checkpoint is not None
        paced = self.rate is not None or self.batch_bytes is not None
        timed = self.once or self.interval is not None
        return [
            (not streams and timed, "--once and --interval are of streams: add --checkpoint DIR"),
            (
                not streams and paced,
                "--rate and --batch-bytes are of streams: add --checkpoint DIR",
            ),
            (not streams and self.group is not None, "--group is of streams: add --checkpoint DIR"),
            (
                self.once and self.interval is not None,
                "--once and --interval contradict each other",
            ),
            (self.once and self.rate is not None, "--once has no --rate: say --batch-bytes"),
            (
                self.rate is not None and self.batch_bytes is not None,
                "--rate and --batch-bytes contradict each other",
            ),
        ]

    def check(self) -> None:
        """Raises Usage."""
        for wrong, text in self.problems():
            if wrong:
                raise Usage(text)
        self.trigger()
        self.options()

    def trigger(self) -> dict[str, Any]:
        """For Spark's `trigger`; empty: batches follow at once. Raises Usage."""
        if self.once:
            return {"availableNow": True}
        pause_ms = self._interval_ms()
        return {} if pause_ms is None else {"processingTime": f"{pause_ms} milliseconds"}

    def options(self) -> dict[str, str]:
        """For the source. Raises Usage."""
        most = None
        if self.rate is not None:
            most = max(1, bytes_s(self.rate) * (self._interval_ms() or 1) // 1_000)
        elif self.batch_bytes is not None:
            most = parse_bytes(self.batch_bytes)
            if not most or most >= 1 << 50:
                raise Usage(f"--batch-bytes {self.batch_bytes[:40]}: it is a size, like 256MiB")
        return {} if most is None else {"maxBytesPerTrigger": str(most)}

    def _interval_ms(self) -> int | None:
        if self.interval is not None:
            return duration_ms(self.interval, "--interval")
        return None if self.rate is None else RATE_INTERVAL_MS
