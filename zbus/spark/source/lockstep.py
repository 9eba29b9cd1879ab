"""Partitions of a stream that go forward in time together (the option `inStep`).

A watermark of Spark follows the newest message that was read, of whatever partition, and what is
older than its delay is dropped without a word. A backlog of several partitions that is read in
proportion to offsets would lose the messages of those whose times are behind. So a batch ends at
one moment in all of them; and what is behind all the same, as a clock that was set back makes it,
is refused before it is read.
"""

from __future__ import annotations

from collections.abc import Sequence

from zbus.spark.errors import Unverified
from zbus.spark.logs import Log
from zbus.spark.source.planning import Part


def together(log: Log, whole: Sequence[Part], bounded: Sequence[Part]) -> list[Part]:
    """Less of `bounded`, which is a part of `whole`: nothing in it is later than what is left out
    of any partition. There is at least a message in it if there was one."""
    left = [
        log.time_at(less.span, less.stop)
        for all_of_it, less in zip(whole, bounded, strict=True)
        if less.stop < all_of_it.stop
    ]
    times = [time_ms for time_ms in left if time_ms is not None]
    if not times or len(bounded) == 1:
        return list(bounded)
    # Of the moment itself as much as there was: a partition may have nothing else.
    after_ms = min(times) + 1
    found = []
    for part in bounded:
        if part.start < part.stop:
            span = part.span._replace(first=part.start, end=part.stop)
            stop = log.offset_at(span, after_ms)
            part = part._replace(stop=min(max(part.start, stop), part.stop))
        found.append(part)
    return found


def require_timely(log: Log, parts: Sequence[Part], delay_ms: int) -> None:
    """Nothing that is to be read is older than this behind what was read. Raises Unverified."""
    if not any(part.start < part.stop for part in parts):
        return
    read = [
        log.time_at(part.span, part.start - 1) for part in parts if part.start > part.span.first
    ]
    newest_ms = max((time_ms for time_ms in read if time_ms is not None), default=0)
    for part in parts:
        if part.start < part.stop:
            time_ms = log.time_at(part.span, max(part.start, part.span.first))
            if time_ms is not None and time_ms <= newest_ms - delay_ms:
                place = f"{part.span.topic}, partition {part.span.partition}"
                behind_s = (newest_ms - time_ms) / 1_000
                text = f"offset {part.start} is {behind_s:g} s older than what was read elsewhere"
                raise Unverified(
                    f"{place}: {text}, and Spark would drop it without a word: begin with a"
                    " new checkpoint, or remember for longer"
                )
