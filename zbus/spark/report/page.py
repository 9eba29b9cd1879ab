"""A report as a page, and in sentences."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from itertools import pairwise
from typing import Any

from zbus.spark.page import bars, items, lines, moment, section, short, table
from zbus.spark.page import page as whole
from zbus.spark.report.tables import Backlog, Report

_BACKLOG_POINTS_MAX = 200


def page(report: Report) -> str:
    """HTML."""
    return whole(_names(report), _parts(report))


def sentences(report: Report) -> list[str]:
    """What is to be known first, in words: of the page, and of a terminal."""
    messages = sum(row.messages for row in report.traffic)
    if not messages:
        return ["Nothing was stored in this time."]
    size = sum(row.bytes for row in report.traffic)
    seconds = max(1e-9, (report.until_ms - report.since_ms) / 1_000)
    by_time, by_topic = Counter[int](), Counter[str]()
    for row in report.traffic:
        by_time[row.bucket_ms] += row.messages
        by_topic[row.topic] += row.messages
    busiest = max(by_time, key=lambda at: (by_time[at], -at))
    found = [
        f"{messages:,} messages with {short(size)}B of bodies were stored:"
        f" {short(messages / seconds)} a second on average.",
        f"The busiest time began at {moment(busiest, report.bucket_ms)} UTC:"
        f" {by_time[busiest]:,} messages.",
    ]
    if len(by_topic) > 1:
        most = max(by_topic, key=lambda name: (by_topic[name], name))
        found.append(f"{most} has most of them: {by_topic[most] / messages:.0%}.")
    behind = [row for row in _latest(report) if row.messages]
    if behind:
        worst = max(behind, key=lambda row: row.messages)
        found.append(
            f"Group {worst.group} of {worst.topic} is {worst.messages:,} messages behind, with"
            f" {worst.consumers} consumers."
        )
    elif report.backlog:
        found.append("No consumer group is behind.")
    if report.pending:
        total = sum(row.messages for row in report.pending)
        found.append(f"{total:,} delayed messages are still to come.")
    found += [
        f"{row.topic}, {moment(row.bucket_ms, report.bucket_ms)}: {row.messages:,} messages,"
        f" usual at that time of day are {short(row.usual)}."
        for row in report.anomalies[:5]
    ]
    return found


def _names(report: Report) -> str:
    shown = ", ".join(report.topics[:5])
    return shown + (f" and {len(report.topics) - 5} more" if len(report.topics) > 5 else "")


def _latest(report: Report) -> list[Backlog]:
    last = max((row.at_ms for row in report.backlog), default=0)
    return [row for row in report.backlog if row.at_ms == last]


def _series(
    rows: Iterable[Any], name: str, value: str, at: str = "bucket_ms"
) -> dict[str, Counter[int]]:
    found: dict[str, Counter[int]] = defaultdict(Counter)
    for row in rows:
        found[str(getattr(row, name))][getattr(row, at)] += getattr(row, value)
    return found


def _largest(rows: Iterable[Any], fields: Mapping[str, str]) -> dict[str, dict[int, float]]:
    """Of each bucket the largest value of these fields, by the names that are shown."""
    found: dict[str, dict[int, float]] = {name: {} for name in fields}
    for row in rows:
        for name, field in fields.items():
            value = getattr(row, field)
            found[name][row.bucket_ms] = max(value, found[name].get(row.bucket_ms, value))
    return found


# -- parts of the page ----------------------------------------------------------------------------


def _parts(report: Report) -> Iterator[str]:
    yield _head(report)
    yield section("In short", items(sentences(report)))
    if report.traffic:
        yield from _traffic(report)
    if report.latency:
        yield _latency(report)
    if report.backlog:
        yield _backlog(report)
    if report.pending:
        yield _pending(report)
    if report.anomalies:
        yield _anomalies(report)
    if report.keys:
        rows = table(("topic", "key", "messages"), report.keys, folded=False)
        yield section("Keys of most messages", rows)
    if report.notes:
        yield section("Notes", items(report.notes))


def _head(report: Report) -> str:
    span = f"{moment(report.since_ms)} to {moment(report.until_ms)} UTC"
    made = f"made at {moment(report.made_ms)} UTC of {report.source}"
    messages = sum(row.messages for row in report.traffic)
    seconds = max(1e-9, (report.until_ms - report.since_ms) / 1_000)
    topics = len({row.topic for row in report.traffic})
    tiles = [
        (short(messages), "messages"),
        (f"{short(sum(row.bytes for row in report.traffic))}B", "of bodies"),
        (short(messages / seconds), "messages a second"),
        (str(topics), "topic" if topics == 1 else "topics"),
    ]
    if report.backlog:
        tiles.append((short(sum(row.messages for row in _latest(report))), "waiting in groups"))
    shown = "".join(f"<div><b>{escape(value)}</b>{name}</div>" for value, name in tiles)
    return (
        f"<h1>{escape(_names(report))}</h1>\n"
        f'<p class="soft">{span}, {escape(made)}</p>\n<div class="tiles">{shown}</div>\n'
    )


def _span(report: Report) -> tuple[int, int, int]:
    """First and last bucket of the time that was asked for: when nothing came is shown, too."""
    width = report.bucket_ms
    return report.since_ms - report.since_ms % width, (report.until_ms - 1) // width * width, width


def _traffic(report: Report) -> Iterator[str]:
    rows = report.traffic
    name = "topic" if len({row.topic for row in rows}) > 1 else "tag"
    counts, sizes = (_series(rows, name, value) for value in ("messages", "bytes"))
    title = f"Messages by {name}"
    summed = [
        (key, moment(at, report.bucket_ms), counts[key][at], sizes[key][at])
        for key in counts
        for at in counts[key]
    ]
    yield section(
        title,
        bars(title, counts, *_span(report)),
        table((name, "from", "messages", "bytes"), summed),
    )
    columns = ("topic", "partition", "tag", "from", "messages", "bytes")
    yield section(
        "Bytes",
        bars("Bytes of bodies", sizes, *_span(report)),
        table((*columns, "p50", "p95", "p99", "largest", "keys"), _timed(rows, 3, report)),
    )
    largest = _largest(rows, {"p50": "size_p50", "p99": "size_p99", "largest": "size_max"})
    yield section(
        "Size of bodies",
        lines("Size of bodies in bytes", largest, report.bucket_ms),
        text="Of the topic, partition and tag with the largest.",
    )


def _timed(rows: Iterable[Sequence[Any]], at: int, report: Report) -> list[tuple[Any, ...]]:
    """Rows of which one column is a time."""
    return [(*row[:at], moment(row[at], report.bucket_ms), *row[at + 1 :]) for row in rows]


def _latency(report: Report) -> str:
    largest = _largest(report.latency, {name: name for name in ("p50", "p95", "p99")})
    columns = ("topic", "from", "messages", "p50", "p90", "p95", "p99", "max")
    return section(
        "From sending to storing, in ms",
        lines("From sending to storing, ms", largest, report.bucket_ms),
        table(columns, _timed(report.latency, 1, report)),
    )


def _backlog(report: Report) -> str:
    series: dict[str, dict[int, float]] = defaultdict(dict)
    for row in report.backlog:
        series[f"{row.topic}, group {row.group}"][row.at_ms] = row.messages
    times = sorted({row.at_ms for row in report.backlog})
    chart = ""
    if len(times) > 1:  # of reports that were made before
        step = min(after - before for before, after in pairwise(times))
        step = max(step, (times[-1] - times[0]) // _BACKLOG_POINTS_MAX)
        chart = lines("Messages behind", series, step)
    names = ("topic", "group", "behind", "bytes, about", "oldest, s")
    rows = [
        (
            row.topic,
            row.group,
            row.messages,
            None if row.bytes is None else f"{short(row.bytes)}B",
            row.oldest_age_s,
            row.leased,
            row.delayed,
            row.dead,
            row.consumers,
        )
        for row in _latest(report)
    ]
    shown = table((*names, "leased", "delayed", "dead", "consumers"), rows, folded=False)
    return section("Consumer groups", chart, shown)


def _pending(report: Report) -> str:
    title = "Delayed messages by when they are due"
    rows = sorted(report.pending, key=lambda row: row.due_ms)
    series = _series(rows, "topic", "messages", "due_ms")
    chart = bars(title, series, rows[0].due_ms, rows[-1].due_ms, report.bucket_ms)
    return section(title, chart, table(("topic", "due from", "messages"), _timed(rows, 1, report)))


def _anomalies(report: Report) -> str:
    rows = [
        (topic, moment(at_ms, report.bucket_ms), messages, short(usual), most, days)
        for topic, at_ms, messages, usual, most, days in report.anomalies
    ]
    return section(
        "Unusual",
        table(("topic", "from", "messages", "usual", "most", "days"), rows, folded=False),
        text="Three times the most of this time of day on other days, or a third of the usual.",
    )
