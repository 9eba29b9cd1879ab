"""Charts as SVG within a page: bars over time, one colour for each series. No script."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from typing import Final

WIDTH: Final = 960
HEIGHT: Final = 240
LEFT, RIGHT, TOP, BOTTOM = 64, 8, 12, 28
SERIES_MAX: Final = 7
"""More are one, of which it says `others`."""

OTHERS: Final = "others"
_TIME_WIDTH: Final = 120
_STEPS: Final = (1, 2, 5, 10)
_UNITS: Final = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


Series = Mapping[str, Mapping[int, float]]
"""Values by time, of each name."""


def short(value: float) -> str:
    """`1.2 M`."""
    for size, name in _UNITS:
        if abs(value) >= size:
            return f"{value / size:.3g} {name}"
    return f"{value:.3g}" if value != int(value) else f"{int(value)}"


def moment(at_ms: int, bucket_ms: int) -> str:
    """A time in UTC, as exactly as a bucket needs it."""
    when = datetime.fromtimestamp(at_ms / 1_000, UTC)
    if bucket_ms >= 86_400_000:
        return when.strftime("%Y-%m-%d")
    return when.strftime("%Y-%m-%d %H:%M" if bucket_ms >= 60_000 else "%Y-%m-%d %H:%M:%S")


def foremost(series: Series) -> dict[str, dict[int, float]]:
    """The largest, and the sum of the others."""
    ordered = sorted(series, key=lambda name: (-sum(series[name].values()), name))
    found = {name: dict(series[name]) for name in ordered[:SERIES_MAX]}
    rest: dict[int, float] = {}
    for name in ordered[SERIES_MAX:]:
        for at, value in series[name].items():
            rest[at] = rest.get(at, 0) + value
    return {**found, OTHERS: rest} if rest else found


def bars(
    title: str,
    series: Mapping[str, Mapping[int, float]],
    first_ms: int,
    last_ms: int,
    width_ms: int,
) -> str:
    """Values by time and series, one upon the other."""
    shown = foremost(series)
    totals: dict[int, float] = {}
    for values in shown.values():
        for at, value in values.items():
            totals[at] = totals.get(at, 0) + value
    top = _top(max(totals.values(), default=0))
    count = max(1, (last_ms - first_ms) // width_ms + 1)
    step = (WIDTH - LEFT - RIGHT) / count
    parts = [_frame(title, top), _times(first_ms, last_ms, width_ms, step, count)]
    floor: dict[int, float] = {}
    for number, (name, values) in enumerate(shown.items()):
        rects = []
        for at, value in sorted(values.items()):
            x = LEFT + step * ((at - first_ms) // width_ms)
            low = floor.get(at, 0.0)
            floor[at] = low + value
            y, height = _y(floor[at], top), _y(low, top) - _y(floor[at], top)
            hint = escape(f"{name}, {moment(at, width_ms)}: {short(value)}")
            rects.append(
                f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(step - 1, 0.7):.1f}"'
                f' height="{max(height, 0.5):.1f}"><title>{hint}</title></rect>'
            )
        parts.append(f'<g class="s{number}">{"".join(rects)}</g>')
    return _whole(title, parts) + _legend(list(shown))


def lines(
    title: str,
    series: Mapping[str, Mapping[int, float]],
    first_ms: int,
    last_ms: int,
    width_ms: int,
) -> str:
    """Values by time and series, each for itself."""
    shown = dict(list(series.items())[: SERIES_MAX + 1])
    top = _top(max((value for values in shown.values() for value in values.values()), default=0))
    count = max(1, (last_ms - first_ms) // width_ms + 1)
    step = (WIDTH - LEFT - RIGHT) / count
    parts = [_frame(title, top), _times(first_ms, last_ms, width_ms, step, count)]
    for number, (name, values) in enumerate(shown.items()):
        dots = [
            (LEFT + step * ((at - first_ms) / width_ms + 0.5), _y(value, top), at, value)
            for at, value in sorted(values.items())
        ]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y, _, _ in dots)
        marks = "".join(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3"><title>'
            f"{escape(f'{name}, {moment(at, width_ms)}: {short(value)}')}</title></circle>"
            for x, y, at, value in dots
        )
        parts.append(f'<g class="s{number}"><polyline points="{path}"/>{marks}</g>')
    return _whole(title, parts) + _legend(list(shown))


def _whole(title: str, parts: Sequence[str]) -> str:
    return (
        f'<div class="wide"><svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img"'
        f' aria-label="{escape(title)}">{"".join(parts)}</svg></div>'
    )


def _legend(names: Sequence[str]) -> str:
    if len(names) < 2:
        return ""
    items = "".join(
        f'<li><span class="k s{number}"></span>{escape(name)}</li>'
        for number, name in enumerate(names)
    )
    return f'<ul class="legend">{items}</ul>'


def _top(most: float) -> float:
    """A round number that is not less."""
    if most <= 0:
        return 1
    size = 1.0
    while size * 10 < most:
        size *= 10
    while size > most:
        size /= 10
    return next(step * size for step in _STEPS if step * size >= most)


def _y(value: float, top: float) -> float:
    return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * value / top


def _frame(title: str, top: float) -> str:
    rows = []
    for share in (0, 0.5, 1):
        y = _y(top * share, top)
        rows.append(
            f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
            f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{short(top * share)}</text>'
        )
    return f'<g class="grid">{"".join(rows)}</g>'


def _times(first_ms: int, last_ms: int, width_ms: int, step: float, count: int) -> str:
    every = max(1, -(-count // 6))
    texts = []
    for number in range(0, count, every):
        x = LEFT + step * number
        if number and x > WIDTH - _TIME_WIDTH:
            break
        text = moment(first_ms + number * width_ms, width_ms)
        texts.append(f'<text x="{x:.1f}" y="{HEIGHT - 8}">{text}</text>')
    return f'<g class="grid">{"".join(texts)}</g>'
