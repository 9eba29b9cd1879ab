"""A report as one page that needs nothing else: no script, no request, light and dark.

Names of topics, tags and keys are any text of a producer: all of it is escaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from itertools import pairwise
from typing import Any, Final

from zbus.spark.report.charts import bars, lines, moment, short
from zbus.spark.report.tables import Report

ROWS_MAX: Final = 500
"""Of a table in the page. The files have all."""

_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
_STYLE: Final = """
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif;
  --ink: #1c2430; --soft: #5b6675; --line: #d9dee6; --card: #fff; --back: #f4f6f9; }
@media (prefers-color-scheme: dark) { :root { --ink: #e8ecf2; --soft: #9aa5b5; --line: #333c4a;
  --card: #1a212c; --back: #11161e; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 68rem; padding: 1.5rem 1rem 4rem; color: var(--ink);
  background: var(--back); }
h1 { font-size: 1.7rem; margin: 0 0 .2rem; overflow-wrap: anywhere; }
h2 { font-size: 1.15rem; margin: 0 0 .5rem; }
p { margin: .3rem 0; } .soft { color: var(--soft); }
section { background: var(--card); border: 1px solid var(--line); border-radius: .6rem;
  padding: 1rem 1.2rem; margin: 1rem 0; overflow: hidden; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(9rem, 1fr)); gap: .8rem;
  margin: 1rem 0; }
.tiles div { background: var(--card); border: 1px solid var(--line); border-radius: .6rem;
  padding: .7rem 1rem; }
.tiles b { display: block; font-size: 1.5rem; font-variant-numeric: tabular-nums; }
.summary li { margin: .2rem 0; overflow-wrap: anywhere; }
svg { width: 100%; min-width: 38rem; height: auto; display: block; }
svg text { font-size: 12px; fill: var(--soft); }
.grid line { stroke: var(--line); }
polyline { fill: none; stroke-width: 2; }
.s0 { fill: #2f6fdd; stroke: #2f6fdd; background: #2f6fdd; }
.s1 { fill: #e0852b; stroke: #e0852b; background: #e0852b; }
.s2 { fill: #2f9e6b; stroke: #2f9e6b; background: #2f9e6b; }
.s3 { fill: #c4465a; stroke: #c4465a; background: #c4465a; }
.s4 { fill: #8a63c9; stroke: #8a63c9; background: #8a63c9; }
.s5 { fill: #159ca8; stroke: #159ca8; background: #159ca8; }
.s6 { fill: #a07a2c; stroke: #a07a2c; background: #a07a2c; }
.s7 { fill: #7c8794; stroke: #7c8794; background: #7c8794; }
rect { stroke: none; } circle { stroke: none; }
.legend { list-style: none; display: flex; flex-wrap: wrap; gap: .2rem 1rem; padding: 0;
  margin: .5rem 0 0; font-size: .9rem; overflow-wrap: anywhere; }
.k { display: inline-block; width: .8rem; height: .8rem; border-radius: .2rem;
  margin-right: .4rem; vertical-align: -.05rem; }
details { margin-top: .8rem; } summary { cursor: pointer; color: var(--soft); }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .85rem; margin-top: .5rem; }
th, td { padding: .25rem .6rem; border-bottom: 1px solid var(--line); text-align: right;
  white-space: nowrap; font-variant-numeric: tabular-nums; }
th { color: var(--soft); font-weight: 600; }
th.t, td.t { text-align: left; white-space: pre-wrap; overflow-wrap: anywhere; min-width: 7rem; }
"""


def page(report: Report) -> str:
    """HTML."""
    body = [
        _head(report),
        _summary(report),
        _traffic(report),
        _sizes(report),
        _latency(report),
        _backlog(report),
        _pending(report),
        _anomalies(report),
        _keys(report),
        _notes(report),
    ]
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<link rel="icon" href="data:,">\n'
        f"<title>zbus: {escape(_names(report))}</title>\n<style>{_STYLE}</style>\n</head>\n"
        f"<body>\n{''.join(part for part in body if part)}</body>\n</html>\n"
    )


def sentences(report: Report) -> list[str]:
    """What is to be known first, in words: of the page, and of a terminal."""
    messages = sum(row.messages for row in report.traffic)
    size = sum(row.bytes for row in report.traffic)
    hours = max(1e-9, (report.until_ms - report.since_ms) / 3_600_000)
    if not messages:
        return ["Nothing was stored in this time."]
    found = [
        f"{messages:,} messages with {short(size)}B of bodies were stored:"
        f" {short(messages / hours / 3_600)} a second on average.",
    ]
    by_time = _by(report.traffic, lambda row: row.bucket_ms)
    busiest = max(by_time, key=lambda at: (by_time[at], -at))
    found.append(
        f"The busiest time began at {moment(busiest, report.bucket_ms)} UTC:"
        f" {by_time[busiest]:,} messages."
    )
    by_topic = _by(report.traffic, lambda row: row.topic)
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


def _by(rows: Iterable[Any], key: Any) -> dict[Any, int]:  # noqa: ANN401 - a function
    found: dict[Any, int] = {}
    for row in rows:
        found[key(row)] = found.get(key(row), 0) + row.messages
    return found


def _series(rows: Iterable[Any], name: str, value: str, at: str = "bucket_ms") -> Any:  # noqa: ANN401
    found: dict[str, dict[int, float]] = {}
    for row in rows:
        series = found.setdefault(str(getattr(row, name)), {})
        when = getattr(row, at)
        series[when] = series.get(when, 0) + getattr(row, value)
    return found


def _latest(report: Report) -> list[Any]:
    last = max((row.at_ms for row in report.backlog), default=0)
    return [row for row in report.backlog if row.at_ms == last]


# -- parts of the page ----------------------------------------------------------------------------


def _head(report: Report) -> str:
    span = f"{moment(report.since_ms, 60_000)} to {moment(report.until_ms, 60_000)} UTC"
    made = f"made at {moment(report.made_ms, 60_000)} UTC of {report.source}"
    return (
        f"<h1>{escape(_names(report))}</h1>\n"
        f'<p class="soft">{span}, {escape(made)}</p>\n{_tiles(report)}'
    )


def _tiles(report: Report) -> str:
    messages = sum(row.messages for row in report.traffic)
    size = sum(row.bytes for row in report.traffic)
    seconds = max(1e-9, (report.until_ms - report.since_ms) / 1_000)
    topics = len({row.topic for row in report.traffic})
    tiles = [
        (short(messages), "messages"),
        (f"{short(size)}B", "of bodies"),
        (short(messages / seconds), "messages a second"),
        (str(topics), "topic" if topics == 1 else "topics"),
    ]
    if report.backlog:
        tiles.append((short(sum(row.messages for row in _latest(report))), "waiting in groups"))
    shown = "".join(f"<div><b>{escape(value)}</b>{name}</div>" for value, name in tiles)
    return f'<div class="tiles">{shown}</div>\n'


def _summary(report: Report) -> str:
    items = "".join(f"<li>{escape(text)}</li>" for text in sentences(report))
    return f'<section><h2>In short</h2><ul class="summary">{items}</ul></section>\n'


def _section(title: str, chart: str, table: str, text: str = "") -> str:
    note_html = f'<p class="soft">{escape(text)}</p>' if text else ""
    return f"<section><h2>{escape(title)}</h2>{note_html}{chart}{table}</section>\n"


def _span(report: Report) -> tuple[int, int, int]:
    """First and last bucket of the time that was asked for: when nothing came is shown, too."""
    width = report.bucket_ms
    return report.since_ms - report.since_ms % width, (report.until_ms - 1) // width * width, width


def _traffic(report: Report) -> str:
    rows = report.traffic
    if not rows:
        return ""
    name = "topic" if len({row.topic for row in rows}) > 1 else "tag"
    span = _span(report)
    title = f"Messages by {name}"
    counts = bars(title, _series(rows, name, "messages"), *span)
    sizes = bars("Bytes of bodies", _series(rows, name, "bytes"), *span)
    columns: dict[str, Sequence[str | int]] = {
        "topic": [row.topic for row in rows],
        "partition": [row.partition for row in rows],
        "tag": [row.tag or "" for row in rows],
        "from": [moment(row.bucket_ms, report.bucket_ms) for row in rows],
        "messages": [f"{row.messages:,}" for row in rows],
        "bytes": [f"{row.bytes:,}" for row in rows],
        "p50": [f"{row.size_p50:,.0f}" for row in rows],
        "p95": [f"{row.size_p95:,.0f}" for row in rows],
        "p99": [f"{row.size_p99:,.0f}" for row in rows],
        "largest": [f"{row.size_max:,}" for row in rows],
        "keys": [f"{row.distinct_keys:,}" for row in rows],
    }
    by_name: dict[tuple[str, int], list[int]] = {}
    for row in rows:
        sums = by_name.setdefault((str(getattr(row, name)), row.bucket_ms), [0, 0])
        sums[0] += row.messages
        sums[1] += row.bytes
    summed: dict[str, Sequence[str | int]] = {
        name: [key for key, _ in by_name],
        "from": [moment(at, report.bucket_ms) for _, at in by_name],
        "messages": [f"{messages:,}" for messages, _ in by_name.values()],
        "bytes": [f"{size:,}" for _, size in by_name.values()],
    }
    return _section(title, counts, _table(summed)) + _section("Bytes", sizes, _table(columns))


def _sizes(report: Report) -> str:
    if not report.traffic:
        return ""
    largest: dict[str, dict[int, float]] = {"p50": {}, "p99": {}, "largest": {}}
    for row in report.traffic:
        for name, value in (
            ("p50", row.size_p50),
            ("p99", row.size_p99),
            ("largest", row.size_max),
        ):
            at = largest[name]
            at[row.bucket_ms] = max(at.get(row.bucket_ms, 0), value)
    chart = lines("Size of bodies in bytes", largest, *_span(report))
    text = "Of the topic, partition and tag with the largest."
    return _section("Size of bodies", chart, "", text)


def _latency(report: Report) -> str:
    rows = report.latency
    if not rows:
        return ""
    found: dict[str, dict[int, float]] = {}
    for name in ("p50", "p95", "p99"):
        found[name] = {}
        for row in rows:
            at = found[name]
            at[row.bucket_ms] = max(at.get(row.bucket_ms, 0), getattr(row, name))
    chart = lines("From sending to storing, ms", found, *_span(report))
    columns = {
        "topic": [row.topic for row in rows],
        "from": [moment(row.bucket_ms, report.bucket_ms) for row in rows],
        "messages": [f"{row.messages:,}" for row in rows],
        **{
            name: [f"{getattr(row, name):,.0f}" for row in rows]
            for name in ("p50", "p90", "p95", "p99", "max")
        },
    }
    return _section("From sending to storing, in ms", chart, _table(columns))


def _backlog(report: Report) -> str:
    rows = report.backlog
    if not rows:
        return ""
    series: dict[str, dict[int, float]] = {}
    for row in rows:
        name = f"{row.topic}, group {row.group}"
        series.setdefault(name, {})[row.at_ms] = row.messages
    times = sorted({row.at_ms for row in rows})
    chart = ""
    if len(times) > 1:  # of reports that were made before
        width = max(1, min(b - a for a, b in pairwise(times)))
        width = max(width, (times[-1] - times[0]) // 200 + 1)
        chart = lines("Messages behind", series, times[0], times[-1], width)
    last = _latest(report)
    columns = {
        "topic": [row.topic for row in last],
        "group": [row.group for row in last],
        "behind": [f"{row.messages:,}" for row in last],
        "bytes, about": ["" if row.bytes is None else f"{short(row.bytes)}B" for row in last],
        "oldest, s": [
            "" if row.oldest_age_s is None else f"{row.oldest_age_s:,.0f}" for row in last
        ],
        "leased": [f"{row.leased:,}" for row in last],
        "delayed": [f"{row.delayed:,}" for row in last],
        "dead": [f"{row.dead:,}" for row in last],
        "consumers": [str(row.consumers) for row in last],
    }
    return _section("Consumer groups", chart, _table(columns, open_=True))


def _pending(report: Report) -> str:
    rows = sorted(report.pending, key=lambda row: row.due_ms)
    if not rows:
        return ""
    chart = bars(
        "Delayed messages by when they are due",
        _series(rows, "topic", "messages", "due_ms"),
        rows[0].due_ms,
        max(row.due_ms for row in rows),
        report.bucket_ms,
    )
    columns = {
        "topic": [row.topic for row in rows],
        "due from": [moment(row.due_ms, report.bucket_ms) for row in rows],
        "messages": [f"{row.messages:,}" for row in rows],
    }
    return _section("Delayed messages by when they are due", chart, _table(columns))


def _anomalies(report: Report) -> str:
    rows = report.anomalies
    if not rows:
        return ""
    columns = {
        "topic": [row.topic for row in rows],
        "from": [moment(row.bucket_ms, report.bucket_ms) for row in rows],
        "messages": [f"{row.messages:,}" for row in rows],
        "usual": [short(row.usual) for row in rows],
        "most": [f"{row.most:,}" for row in rows],
        "days": [str(row.days) for row in rows],
    }
    text = "Three times the most of this time of day on other days, or a third of the usual."
    return _section("Unusual", "", _table(columns, open_=True), text)


def _keys(report: Report) -> str:
    if not report.keys:
        return ""
    columns = {
        "topic": [topic for topic, _, _ in report.keys],
        "key": [key for _, key, _ in report.keys],
        "messages": [f"{count:,}" for _, _, count in report.keys],
    }
    return _section("Keys of most messages", "", _table(columns, open_=True))


def _notes(report: Report) -> str:
    items = "".join(f"<li>{escape(note)}</li>" for note in report.notes)
    return f"<section><h2>Notes</h2><ul>{items}</ul></section>\n" if items else ""


_TEXTS: Final = frozenset(("topic", "tag", "group", "key", "from", "due from"))


def _table(columns: Mapping[str, Sequence[str | int]], open_: bool = False) -> str:
    count = len(next(iter(columns.values())))
    kinds = [' class="t"' if name in _TEXTS else "" for name in columns]
    head = "".join(f"<th{kind}>{name}</th>" for kind, name in zip(kinds, columns, strict=True))
    rows = []
    for at in range(min(count, ROWS_MAX)):
        cells = (
            f"<td{kind}>{escape(str(values[at]))}</td>"
            for kind, values in zip(kinds, columns.values(), strict=True)
        )
        rows.append(f"<tr>{''.join(cells)}</tr>")
    more = f'<p class="soft">and {count - ROWS_MAX:,} more</p>' if count > ROWS_MAX else ""
    table = (
        f'<div class="wide"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>{more}"
    )
    if open_:
        return table
    return f"<details><summary>{count:,} rows</summary>{table}</details>"
