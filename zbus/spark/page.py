"""A page of results in one file that needs no network: text, tables, and charts by uPlot.

What is shown may be any text of a producer. So each text is escaped where it becomes HTML, a
chart's data are JSON in which no tag can begin, and the page's policy lets no other script run
than the two that it brings.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from html import escape
from pathlib import Path
from typing import Final

import msgspec

from zbus.spark.errors import Usage

ROWS_MAX: Final = 500
"""Of a table in the page. The files have all."""

SERIES_MAX: Final = 7
"""Of a chart. More are one, of which it says `others`."""

OTHERS: Final = "others"
BARS_MAX: Final = 5_000

_HERE: Final = Path(__file__).parent
_VENDOR: Final = _HERE.parent / "console" / "vendor"
_UNITS: Final = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))

Series = Mapping[str, Mapping[int, float]]
"""Values by epoch milliseconds, of each name."""

Cell = str | int | float | None


def short(value: float) -> str:
    """`1.2 M`."""
    for size, name in _UNITS:
        if abs(value) >= size:
            return f"{value / size:.3g} {name}"
    return f"{value:.3g}" if value != int(value) else f"{int(value)}"


def moment(at_ms: int, bucket_ms: int = 60_000) -> str:
    """A time in UTC, as exactly as a bucket needs it."""
    when = datetime.fromtimestamp(at_ms / 1_000, UTC)
    if bucket_ms >= 86_400_000:
        return when.strftime("%Y-%m-%d")
    return when.strftime("%Y-%m-%d %H:%M" if bucket_ms >= 60_000 else "%Y-%m-%d %H:%M:%S")


# -- parts ----------------------------------------------------------------------------------------


def section(title: str, *parts: str, text: str = "") -> str:
    """A part of the page with a heading; `parts` are HTML, `text` is not."""
    said = f'<p class="soft">{escape(text)}</p>' if text else ""
    return f"<section><h2>{escape(title)}</h2>{said}{''.join(parts)}</section>\n"


def items(texts: Iterable[str]) -> str:
    """A list."""
    return f"<ul>{''.join(f'<li>{escape(text)}</li>' for text in texts)}</ul>"


def table(names: Sequence[str], rows: Sequence[Sequence[Cell]], folded: bool = True) -> str:
    """The first rows of a table; it is folded away unless it is short."""
    shown = rows[:ROWS_MAX]
    # A column of texts begins at the left; one that is empty does, too.
    kinds = [
        "" if any(isinstance(row[at], int | float) for row in shown) else ' class="t"'
        for at in range(len(names))
    ]
    head = "".join(f"<th{kind}>{escape(n)}</th>" for kind, n in zip(kinds, names, strict=True))
    body = "".join(
        f"<tr>{''.join(f'<td{k}>{_text(v)}</td>' for k, v in zip(kinds, row, strict=True))}</tr>"
        for row in shown
    )
    more = len(rows) - len(shown)
    whole = (
        f'<div class="wide" tabindex="0"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
        + (f'<p class="soft">and {more:,} more</p>' if more else "")
    )
    if not folded:
        return whole
    return f"<details><summary>{len(rows):,} rows</summary>{whole}</details>"


def _text(value: Cell) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:,.0f}"
    return escape(f"{value:,}" if isinstance(value, int) else value)


def bars(title: str, series: Series, first_ms: int, last_ms: int, step_ms: int) -> str:
    """Values of each step of time, those of one series upon those of another. If there would be too
    many steps, they are longer."""
    last_ms = max((last_ms, *(at for found in series.values() for at in found)))
    step_ms *= 1 + (last_ms - first_ms) // step_ms // BARS_MAX
    times_ms = range(first_ms, last_ms + 1, step_ms)
    shown = foremost(series)
    values = [[0.0] * len(times_ms) for _ in shown]
    for found, row in zip(shown.values(), values, strict=True):
        for at, value in found.items():
            row[(at - first_ms) // step_ms] += value
    return _chart(title, True, times_ms, step_ms, list(shown), values)


def lines(title: str, series: Series, step_ms: int) -> str:
    """Values by time, each series for itself."""
    shown = dict(list(series.items())[: SERIES_MAX + 1])
    times_ms = sorted({at for found in shown.values() for at in found})
    values = [[found.get(at) for at in times_ms] for found in shown.values()]
    return _chart(title, False, times_ms, step_ms, list(shown), values)


def foremost(series: Series) -> dict[str, Mapping[int, float]]:
    """The largest, and the sum of the others."""
    ordered = sorted(series, key=lambda name: (-sum(series[name].values()), name))
    rest: dict[int, float] = {}
    for name in ordered[SERIES_MAX:]:
        for at, value in series[name].items():
            rest[at] = rest.get(at, 0) + value
    found = {name: series[name] for name in ordered[:SERIES_MAX]}
    return {**found, OTHERS: rest} if rest else found


def _chart(
    title: str,
    stacked: bool,
    times_ms: Sequence[int],
    step_ms: int,
    names: Sequence[str],
    values: Sequence[Sequence[float | None]],
) -> str:
    if not times_ms or not names:
        return ""
    document = {
        "bars": stacked,
        "step_s": step_ms / 1_000,
        "names": names,
        "times_s": [at / 1_000 for at in times_ms],
        "values": values,
    }
    data = msgspec.json.encode(document).decode().replace("<", "\\u003c")
    return (
        f'<figure><div role="img" aria-label="{escape(title)}"></div>'
        f'<script type="application/json">{data}</script></figure>'
    )


# -- the whole ------------------------------------------------------------------------------------


@cache
def _frame() -> tuple[str, str, str]:
    """The policy, the style and the scripts of each page."""
    style = (_VENDOR / "uplot.css").read_text("utf-8") + (_HERE / "page.css").read_text("utf-8")
    scripts = [path.read_text("utf-8") for path in (_VENDOR / "uplot.js", _HERE / "page.js")]
    hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()) for text in scripts]
    allowed = " ".join(f"'sha256-{each.decode()}'" for each in hashes)
    policy = f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data:"
    return policy, style, "\n".join(f"<script>{text}</script>" for text in scripts)


def page(title: str, parts: Iterable[str]) -> str:
    """HTML of parts of it."""
    policy, style, scripts = _frame()
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<link rel="icon" href="data:,">\n'
        f"<title>zbus: {escape(title)}</title>\n<style>{style}</style>\n</head>\n"
        f"<body>\n<main>\n{''.join(parts)}</main>\n{scripts}\n</body>\n</html>\n"
    )


def write(html: str, path: Path, option: str = "--out") -> None:
    """Raises Usage."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(html, encoding="utf-8", errors="replace")
    except OSError as error:
        raise Usage(f"{option} {path} cannot be written: {error}") from error
