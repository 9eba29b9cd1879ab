"""Taking old days out of an archive. The files stay until they are vacuumed: readers have them."""

from __future__ import annotations

from itertools import groupby
from typing import NamedTuple

import msgspec

from zbus.spark.archive.chain import Chains
from zbus.spark.archive.records import EXPIRED, FileRecord, Gap, Lane


class Expired(NamedTuple):
    """What was taken out of a partition."""

    topic: str
    partition: int
    files: int
    messages: int
    bytes: int


def expire(
    chains: Chains, before: str, time_ms: int, topics: list[str], *, dry_run: bool = False
) -> list[Expired]:
    """Take out all days before this one (YYYY-MM-DD) as gaps. Raises LostRace, Unverified."""
    found = []
    for topic, partition in chains.lanes():
        if topics and topic not in topics:
            continue
        lane = chains.lane(topic, partition)
        old = [file for file in lane.files if file.date < before]
        if not old:
            continue
        if not dry_run:
            chains.rewrite(
                topic,
                partition,
                f"expired before {before}",
                time_ms,
                lambda lane: without(lane, before, time_ms),
            )
        messages = sum(file.rows for file in old)
        found.append(Expired(topic, partition, len(old), messages, sum(f.bytes for f in old)))
    return found


def without(lane: Lane, before: str, time_ms: int) -> Lane | None:
    """A lane without its old days. None: it has none."""
    kept = [file for file in lane.files if file.date >= before]
    if len(kept) == len(lane.files):
        return None
    old = [file for file in lane.files if file.date < before]
    gaps = joined([*lane.gaps, *(_gap(file, time_ms) for file in old)])
    return msgspec.structs.replace(lane, files=kept, gaps=_in_order(lane, gaps))


def _gap(file: FileRecord, time_ms: int) -> Gap:
    return Gap(file.incarnation, file.start, file.end, EXPIRED, time_ms)


def joined(gaps: list[Gap]) -> list[Gap]:
    """Those of one reason that follow one another are one, found at the last of their times."""
    made: list[Gap] = []
    ordered = sorted(gaps, key=lambda gap: (gap.incarnation, gap.start))
    for _, group in groupby(ordered, key=lambda gap: gap.incarnation):
        for number, gap in enumerate(group):
            last = made[-1] if number else None
            if last is not None and last.end == gap.start and last.reason == gap.reason:
                time_ms = max(last.time_ms, gap.time_ms)
                made[-1] = msgspec.structs.replace(last, end=gap.end, time_ms=time_ms)
            else:
                made.append(gap)
    return made


def _in_order(lane: Lane, gaps: list[Gap]) -> list[Gap]:
    """As the chain has them: by incarnation, as they came."""
    order = {era.incarnation: number for number, era in enumerate(lane.eras)}
    return sorted(gaps, key=lambda gap: (order[gap.incarnation], gap.start))
