"""The summary of dead letters as a page, and as lines."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from html import escape
from typing import Any, Final

from zbus.spark.page import bars, moment, section, table
from zbus.spark.page import page as whole

Group = Mapping[str, Any]
"""A row of `letters.summary`."""

HOUR_MS: Final = 3_600_000
_OF_SAMPLES: Final = (
    "partition",
    "offset",
    "id",
    "origin_partition",
    "origin_offset",
    "attempts",
    "redrives",
    "error",
    "body",
)


def headline(topic: str, groups: Sequence[Group]) -> str:
    """What it is about, in a sentence."""
    total = sum(group["count"] for group in groups)
    if not total:
        return f"{topic}: no dead letters"
    origins = {group["origin"] for group in groups}
    most = groups[0]
    share = most["count"] / total
    return (
        f"{topic}: {total:,} dead letters of {len(origins)} topics, in {len(groups)} groups;"
        f" the largest has {most['count']:,} ({share:.0%}): {_title(most)}"
    )


def _title(group: Group) -> str:
    parts = [_origin(group), group["reason"] or "no reason"]
    return ", ".join([*parts, *([group["fingerprint"]] if group["fingerprint"] else [])])


def _origin(group: Group) -> str:
    return group["origin"] or "unknown origin"


def page(topic: str, groups: Sequence[Group]) -> str:
    """HTML."""
    return whole(f"Dead letters of {topic}", _parts(topic, groups))


def _parts(topic: str, groups: Sequence[Group]) -> Iterator[str]:
    yield f"<h1>{escape(f'Dead letters of {topic}')}</h1>\n<p>{escape(headline(topic, groups))}</p>"
    if not groups:
        return
    series: dict[str, Counter[int]] = defaultdict(Counter)
    for group in groups:
        series[_origin(group)][_ms(group["hour"])] += group["count"]
    hours = {at for counts in series.values() for at in counts}
    title = "Dead letters by hour and origin"
    yield section(title, bars(title, series, min(hours), max(hours), HOUR_MS))
    columns = ("origin", "group", "reason", "fingerprint", "tag")
    rows = [
        (
            number,
            group["count"],
            *(group[name] for name in columns),
            *(moment(_ms(group[name]), 1) for name in ("first", "last")),
        )
        for number, group in enumerate(groups, 1)
    ]
    names = ("number", "count", *columns, "first", "last")
    yield section("Groups", table(names, rows, folded=False))
    samples = [
        (number, *(one.get(name) for name in _OF_SAMPLES))
        for number, group in enumerate(groups, 1)
        for one in group["samples"]
    ]
    yield section("Samples of each group", table(("group", *_OF_SAMPLES), samples))


def _ms(moment: datetime) -> int:
    return round(moment.timestamp() * 1_000)


def lines(topic: str, groups: Sequence[Group]) -> list[str]:
    """For a terminal."""
    found = [headline(topic, groups)]
    for group in groups:
        times = " to ".join(
            group[name].isoformat(" ", "milliseconds") for name in ("first", "last")
        )
        tag = f", tag {group['tag']}" if group["tag"] else ""
        found.append(f"{group['count']:>8,}  {_title(group)}{tag}, group {group['group']}, {times}")
        places = (f"{one['partition']}:{one['offset']} ({one['id']})" for one in group["samples"])
        found.append(f"          such as {', '.join(places)}")
    return found
