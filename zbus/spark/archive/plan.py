"""What is to be archived: for each partition, from where the archive ends to where its log does.

What the log does not have any more is never passed over in silence: it is a gap with a reason, and
unless it was gone before there was an archive, an operator has to allow it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

import attrs

from zbus.spark.archive.table import BEFORE, RETENTION, Gap, Lane, Resume
from zbus.spark.archive.tasks import Task
from zbus.spark.errors import DataLoss, Usage
from zbus.spark.logs import Log, Span


@attrs.frozen
class LanePlan:
    """What is to be archived of a partition."""

    span: Span
    start: int  # of what is committed; a gap may be first
    first: int  # of what is read
    stop: int
    gaps: list[Gap]
    recreated: Resume | None = None  # another topic of this name ended so

    @property
    def lane(self) -> Lane:
        return Lane(*self.span[:3])

    @property
    def messages(self) -> int:
        return self.stop - self.first

    @property
    def bytes(self) -> int:
        """About."""
        span = self.span
        return self.messages * span.bytes // max(1, span.end - span.first)


def choose_topics(log: Log, topics: Sequence[str], pattern: str | None) -> list[str]:
    """Those with these names, or all whose whole name matches. Raises Usage, UnknownTopic later."""
    if bool(topics) == (pattern is not None):
        raise Usage("say either --topics a,b or --pattern 'orders-.*'")
    if pattern is None:
        return sorted(set(topics))
    try:
        wanted = re.compile(pattern)
    except re.error as error:
        raise Usage(f"--pattern {pattern!r} is not a regular expression: {error}") from None
    return [topic for topic in log.topics() if wanted.fullmatch(topic)]


def plan_lane(
    log: Log,
    span: Span,
    resume: Resume | None,
    *,
    until_ms: int | None,
    allow_loss: bool,
) -> LanePlan:
    """Raises DataLoss."""
    known = resume is not None and resume.incarnation == span.incarnation
    start = resume.end if resume is not None and known else 0
    place = f"{span.topic}, partition {span.partition}"
    if span.end < start:
        raise DataLoss(
            f"{place}: its log ends at offset {span.end}, and {start} are archived: is it older"
            " than the archive, for example a restored backup? Archive it to another directory"
        )
    if resume is not None and not known and not allow_loss:
        raise DataLoss(
            f"{place}: the topic was removed and made again; anything the one before had behind"
            f" offset {resume.end} was not archived. --allow-loss keeps what is archived of that"
            " one, and goes on with this one from offset 0"
        )
    gaps = []
    if span.first > start:
        if resume is not None and not allow_loss:
            raise DataLoss(
                f"{place}: the retention has removed the offsets {start} to {span.first} before"
                " they were archived; --allow-loss records that and goes on"
            )
        reason = BEFORE if resume is None else RETENTION
        gaps.append(Gap(start, span.first, reason))
    first = max(start, span.first)
    stop = span.end if until_ms is None else log.offset_at(span, until_ms)
    return LanePlan(
        span=span,
        start=start,
        first=first,
        stop=max(first, stop),
        gaps=gaps,
        recreated=None if known else resume,
    )


def tasks_of(plan: LanePlan, file_bytes: int) -> list[Task]:
    """Ranges of about as many bytes as a file has, all alike."""
    if not plan.messages:
        return []
    count = min(plan.messages, max(1, round(plan.bytes / file_bytes)))
    ends = [plan.first + plan.messages * number // count for number in range(count + 1)]
    return [
        Task(plan.span, first, stop, plan.bytes * (stop - first) // plan.messages)
        for first, stop in pairwise(ends)
    ]
