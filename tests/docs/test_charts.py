"""Each chart shows the figures of its table, and the page shows each chart."""

from __future__ import annotations

import re

import pytest

from tests.docs.charts import CHARTS, PAGE, Chart

_SHOWN = re.compile(r'<desc class="value">([^<]*)</desc>')
"""The value that a bar of the picture shows under the mouse."""


@pytest.mark.parametrize("chart", CHARTS, ids=lambda chart: chart.file)
def test_it_shows_the_figures_of_its_table(chart: Chart) -> None:
    """If this fails: `make charts`."""
    figures = [figure for row in chart.figures().values() for figure in row]
    assert len(figures) >= 2 * len(chart.series)
    shown = _SHOWN.findall(chart.path.read_text(encoding="utf-8"))
    assert sorted(float(each.replace(",", "")) for each in shown) == sorted(figures)
    assert f"]({chart.file})" in PAGE.read_text(encoding="utf-8")
