"""What there is in an archive, in numbers."""

from __future__ import annotations

from typing import Any

import msgspec

from zbus.spark.archive.chain import Chains
from zbus.spark.errors import UnknownTopic
from zbus.spark.logs import Log, Span


def info(chains: Chains, topics: list[str], log: Log | None = None) -> list[dict[str, Any]]:
    """Of each partition; with a log, how far behind it the archive is. Raises Unverified."""
    found = []
    for topic, partition in chains.lanes():
        if topics and topic not in topics:
            continue
        lane, commits, snapshot = chains.read(topic, partition)
        times = [time for file in lane.files for time in (file.min_time_ms, file.max_time_ms)]
        lane_info: dict[str, Any] = {
            "topic": topic,
            "partition": partition,
            "incarnation": lane.incarnation,
            "incarnations": len(lane.eras),
            "end": lane.end,
            "messages": sum(file.rows for file in lane.files),
            "files": len(lane.files),
            "bytes": sum(file.bytes for file in lane.files),
            "content_bytes": sum(file.content_bytes for file in lane.files),
            "min_time_ms": min(times, default=None),
            "max_time_ms": max(times, default=None),
            "commits": len(commits),
            "snapshot": None if snapshot is None else snapshot.number,
            "gaps": [msgspec.structs.asdict(gap) for gap in lane.gaps],
        }
        if log is not None:
            span = _span(log, topic, partition)
            same = span is not None and span.incarnation == lane.incarnation
            lane_info["lag"] = None if span is None else span.end - (lane.end if same else 0)
        found.append(lane_info)
    return found


def _span(log: Log, topic: str, partition: int) -> Span | None:
    try:
        return next((span for span in log.spans(topic) if span.partition == partition), None)
    except UnknownTopic:
        return None
