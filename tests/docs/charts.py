"""Charts of `docs/explanation/performance.md`, drawn from the tables that stand on that page.

python -m tests.docs.charts      (make charts)

A figure is written once, in its table; `tests/docs/test_charts.py` finds a chart that is older than
its table.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import attrs

from tests.docs.pages import ROOT

PAGE: Final = ROOT / "docs" / "explanation" / "performance.md"

_NUMBER: Final = re.compile(r"\d[\d,]*(?:\.\d+)?")
_ROW_HEIGHT, _FRAME_HEIGHT, _WIDTH = 19, 110, 900  # pixels


@attrs.frozen
class Chart:
    """Bars for the rows of a table. `series`: their names, and in which column each is."""

    file: str  # beside the page
    section: str
    title: str
    series: dict[str, int]
    labels: int = 1  # so many columns name a row
    rows: int = 99  # the first so many

    @property
    def path(self) -> Path:
        return PAGE.with_name(self.file)

    def figures(self) -> dict[str, list[float]]:
        """Those of the table, by the name of the row."""
        found = {}
        for cells in [*_table(self.section)][: self.rows]:
            name = ", ".join(cells[: self.labels]).replace("`", "")
            numbers = [_NUMBER.search(cells[column]) for column in self.series.values()]
            found[name] = [float(number[0].replace(",", "")) for number in numbers if number]
        return found


CHARTS: Final = (
    Chart(
        "request-costs.svg",
        "What each request costs",
        "Processor time of the broker for a request, in µs",
        {"µs": 1},
    ),
    Chart(
        "produce-rates.svg",
        "Produces a second, beside the original",
        "Produces a second",
        {"zbus": 1, "zbus 0.11.5 on Java 17": 2},
    ),
    Chart(
        "ack-rates.svg",
        "A consumer with acknowledgements, beside Redis and NATS",
        "Requests a second, by connections",
        {"put": 2, "take and acknowledge": 3},
        labels=2,
    ),
)


def _table(section: str) -> Iterator[list[str]]:
    """The rows of the first table of a section, without its head."""
    text = PAGE.read_text(encoding="utf-8").partition(f"\n## {section}\n")[2]
    lines = iter(text.split("\n"))
    for line in lines:
        if line.startswith("|--"):
            break
    for line in lines:
        if not line.startswith("|"):
            return
        yield [cell.strip() for cell in line.strip("|").split("|")]


def draw(chart: Chart) -> str:
    """As SVG."""
    import pygal  # of `make charts` alone
    from pygal.style import CleanStyle

    figures = chart.figures()
    style = CleanStyle(
        background="white",
        plot_background="white",
        colors=("#00796b", "#b0761c"),
        font_family="sans-serif",
    )
    height = _FRAME_HEIGHT + _ROW_HEIGHT * len(figures) * len(chart.series)
    picture = pygal.HorizontalBar(
        js=[], style=style, title=chart.title, width=_WIDTH, height=height
    )
    picture.uuid = chart.path.stem  # else it is another one each time
    picture.config.legend_at_bottom = True
    picture.config.show_legend = len(chart.series) > 1
    picture.config.value_formatter = "{:,.10g}".format
    rows = [*figures.items()][::-1]  # the first one at the top
    picture.x_labels = [name for name, _ in rows]
    for index, name in enumerate(chart.series):
        picture.add(name, [numbers[index] for _, numbers in rows])
    drawn = picture.render(disable_xml_declaration=True, is_unicode=True)
    return re.sub(r"<!--.*?-->", "", drawn) + "\n"  # which say when it was drawn


if __name__ == "__main__":
    for each in CHARTS:
        each.path.write_text(draw(each), encoding="utf-8")
