"""Pages of `zbus spark` in a browser without a network: markup in names is text, nothing is asked
for, nothing is complained about, and everybody can use them."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.browser.console import AXE, RULES, TAGS
from tests.limits import WAIT_S
from tests.spark.report.test_page import EVIL, report_of
from zbus.spark.dlq.page import page as letters_page
from zbus.spark.report.page import page as report_page

WIDER = "document.documentElement.scrollWidth > document.documentElement.clientWidth"
DRAWN = """() => [...document.querySelectorAll("canvas")].map(canvas => {
  const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data
  return new Set(new Uint32Array(data.buffer)).size
})"""

LETTERS = [
    {
        "origin": EVIL,
        "group": "g",
        "reason": "expired",
        "fingerprint": EVIL,
        "tag": None,
        "hour": datetime(2027, 1, 15, hour, tzinfo=UTC),
        "count": 1_000 + hour,
        "first": datetime(2027, 1, 15, hour, 10, tzinfo=UTC),
        "last": datetime(2027, 1, 15, hour, 50, tzinfo=UTC),
        "samples": [{"partition": 0, "offset": hour, "id": EVIL, "error": EVIL, "body": None}],
    }
    for hour in (8, 9, 11)
]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(
    ("html", "charts"),
    [(report_page(report_of(EVIL, EVIL)), 6), (letters_page(EVIL, LETTERS), 1)],
    ids=["report", "dlq"],
)
def test_without_a_network(
    browser: Browser, tmp_path: Path, html: str, charts: int, scheme: str
) -> None:
    file = tmp_path / "page.html"
    file.write_text(html, encoding="utf-8")
    context = browser.new_context(
        offline=True,
        viewport={"width": 390, "height": 800},
        color_scheme="dark" if scheme == "dark" else "light",
        timezone_id="Asia/Tokyo",
    )
    context.set_default_timeout(WAIT_S * 1_000)
    shown = context.new_page()
    said: list[str] = []
    asked: list[str] = []
    shown.on("console", lambda message: said.append(message.text))
    shown.on("pageerror", lambda error: said.append(str(error)))
    shown.on("request", lambda request: asked.append(request.url))
    shown.goto(file.as_uri())
    assert EVIL in shown.inner_text("h1")
    colours = shown.evaluate(DRAWN)
    assert len(colours) == charts
    assert min(colours) > 3, "each chart is drawn"
    assert shown.locator("figure .u-legend").count() == charts
    assert shown.locator("img").count() == 0
    assert shown.locator("script:not([type='application/json'])").count() == 2
    assert EVIL in shown.locator(".u-legend").first.inner_text()
    assert not shown.evaluate(WIDER), "it is as wide as a phone"
    shown.emulate_media(color_scheme="light" if scheme == "dark" else "dark")
    assert shown.locator("figure .u-legend").count() == charts, "it is drawn anew"
    for each in shown.locator("details").all():
        each.evaluate("details => { details.open = true }")
    assert not shown.evaluate(WIDER)
    assert said == []
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
    shown.evaluate(AXE.read_text(encoding="utf-8"))
    assert shown.evaluate(RULES, TAGS) == []
    context.close()
