"""How a stream goes: when its batches begin, and how much is in one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import attrs

from zbus.spark.commands import Ranged, option
from zbus.spark.errors import Usage, refuse
from zbus.spark.times import between_ms, bytes_s, duration_ms
from zbus.units import parse_bytes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter

RATE_INTERVAL_MS: Final = 1_000
"""Between batches, if there is a rate and nothing else is said."""


@attrs.frozen(kw_only=True)
class Pace(Ranged):
    """Options of a job that is a range, or with a checkpoint a stream."""

    checkpoint: str | None = option("--checkpoint DIR", "Go on for ever, and here after a restart.")
    once: bool = option(
        "--once", "Of a stream: end when all that was there at the start is done.", default=False
    )
    interval: str | None = option("--interval TIME", "Of a stream: a batch each 30s, 5m.")
    rate: str | None = option("--rate BYTES/s", "Stream: limit of the read rate, as 20MiB/s.")
    batch_bytes: str | None = option(
        "--batch-bytes SIZE", "Stream: approximate size of a batch, such as 256MiB."
    )
    group: str | None = option(
        "--group GROUP", "Of a stream: a consumer group that shows in the broker how far it is."
    )

    def check_pace(self) -> None:
        """Raises Usage for what does not fit together, or is no time or size."""
        streams = self.checkpoint is not None
        add = "of streams: add --checkpoint DIR"
        timed = self.once or self.interval is not None
        paced = self.rate is not None or self.batch_bytes is not None
        refuse(
            [
                (not streams and timed, f"--once and --interval are {add}"),
                (not streams and paced, f"--rate and --batch-bytes are {add}"),
                (not streams and self.group is not None, f"--group is {add}"),
                (
                    streams and self.until is not None,
                    "a stream has no --until: leave --checkpoint out to read a range",
                ),
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
        )
        self.trigger()
        self.source_options()
        between_ms(self.since, self.until)

    def trigger(self) -> dict[str, Any]:
        """For Spark's `trigger`; empty: batches follow at once. Raises Usage."""
        if self.once:
            return {"availableNow": True}
        pause_ms = self._interval_ms()
        return {} if pause_ms is None else {"processingTime": f"{pause_ms} milliseconds"}

    def writer(self, rows: DataFrame, name: str) -> DataStreamWriter:
        """Of a stream that goes like this. Raises Usage."""
        writer = rows.writeStream.queryName(name).option("checkpointLocation", self.checkpoint)
        trigger = self.trigger()
        return writer.trigger(**trigger) if trigger else writer

    def source_options(self) -> dict[str, str]:
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
