"""The summary of dead letters as a page that needs nothing else, and as lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from html import escape
from typing import Any, Final

Group = Mapping[str, Any]

COLUMNS: Final = ("count", "origin", "group", "reason", "fingerprint", "tag", "first", "last")
_STYLE: Final = """
:root { color-scheme: light dark; font: 15px/1.5 system-ui, sans-serif; }
body { margin: 2rem auto; max-width: 75rem; padding: 0 1rem; }
table { border-collapse: collapse; width: 100%; }
th, td { border-bottom: 1px solid #8884; padding: .3rem .6rem; text-align: left;
  vertical-align: top; overflow-wrap: anywhere; }
td:first-child { text-align: right; font-variant-numeric: tabular-nums; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 0 1rem; margin: .5rem 0; }
dt { opacity: .7; } dd { margin: 0; } pre { margin: 0; white-space: pre-wrap; }
"""


def document(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Of rows of `letters.summary`, what JSON can have."""
    return [{name: _plain(value) for name, value in row.items()} for row in rows]


def _plain(value: Any) -> Any:  # noqa: ANN401 - of a row
    if isinstance(value, datetime):
        return value.isoformat(timespec="milliseconds")
    if isinstance(value, Mapping):
        return {name: _plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return value


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
    parts = [group["origin"] or "unknown origin", group["reason"] or "no reason"]
    return ", ".join([*parts, *([group["fingerprint"]] if group["fingerprint"] else [])])


def page(topic: str, groups: Sequence[Group]) -> str:
    """HTML: whatever came in messages is shown as text."""
    head = "".join(f"<th>{name}</th>" for name in COLUMNS)
    body = "".join(_row(group) for group in groups)
    title = escape(f"Dead letters of {topic}")
    return (
        f'<!doctype html>\n<html lang="en"><meta charset="utf-8"><title>{title}</title>\n'
        '<meta name="viewport" content="width=device-width">\n'
        f"<style>{_STYLE}</style>\n<h1>{title}</h1>\n<p>{escape(headline(topic, groups))}</p>\n"
        f"<table><thead><tr>{head}</tr></thead>\n<tbody>\n{body}</tbody></table></html>\n"
    )


def _row(group: Group) -> str:
    cells = "".join(f"<td>{_text(group[name])}</td>" for name in COLUMNS)
    samples = "".join(_sample(sample) for sample in group["samples"])
    more = f"<details><summary>{len(group['samples'])} of them</summary>{samples}</details>"
    return f'<tr>{cells}</tr>\n<tr><td></td><td colspan="{len(COLUMNS) - 1}">{more}</td></tr>\n'


def _sample(sample: Mapping[str, Any]) -> str:
    known = ((name, value) for name, value in sample.items() if value not in (None, ""))
    lines = (f"<dt>{escape(name)}</dt><dd><pre>{_text(value)}</pre></dd>" for name, value in known)
    return f"<dl>{''.join(lines)}</dl>"


def _text(value: object) -> str:
    return "" if value is None else escape(f"{value:,}" if isinstance(value, int) else str(value))


def lines(topic: str, groups: Sequence[Group]) -> list[str]:
    """For a terminal."""
    found = [headline(topic, groups)]
    for group in groups:
        times = f"{group['first']} to {group['last']}"
        tag = f", tag {group['tag']}" if group["tag"] else ""
        found.append(f"{group['count']:>8,}  {_title(group)}{tag}, group {group['group']}, {times}")
        places = (f"{one['partition']}:{one['offset']} ({one['id']})" for one in group["samples"])
        found.append(f"          such as {', '.join(places)}")
    return found
