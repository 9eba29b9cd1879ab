"""The console of a broker with 10,000 topics: what opening a page, and keeping it open, takes.

Processor time is measured, of the page and of the broker: a busy machine does not change it much.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.console import Console, ask, console_of, place
from tests.process.broker import BrokerProcess, request

TOPICS = 10_000
BATCH = 500
OPEN_S_MAX = 1.0
"""To open a page, in all; about half of it is usual."""
SECONDS = 5
BUSY_S_MAX = 0.5
"""Of the page, in so many seconds; a tenth of it is usual."""

pytestmark = pytest.mark.check

PAGES = {
    "overview": ((), ".tile .value"),
    "a topic": (("topics", "t-77"), ".tabs"),
    "topics": (("topics",), "tbody tr"),
    "groups": (("groups",), "tbody tr"),
    "a group": (("topics", "t-78", "groups", "g"), ".chart"),
    "compare": (("compare", "t-78", "g", "t-79", "g"), ".sides"),
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    folder: Path = tmp_path_factory.mktemp("many") / "data"
    with BrokerProcess(folder) as process:
        wire = process.connect()
        for first in range(0, TOPICS, BATCH):
            names = [f"t-{number}" for number in range(first, first + BATCH)]
            asked = [f"/{name}/g?cmd=declare&durability=memory" for name in names]
            wire.send(b"".join([request(target) for target in asked]))
            assert {wire.read().status for _ in names} == {200}
            wire.send(b"".join([request(f"/{name}", body=b"x") for name in names[::3]]))
            assert {wire.read().status for _ in names[::3]} == {200}
        yield process


def processor_s(console: Console, broker: BrokerProcess) -> tuple[float, float]:
    """Of the page's process, and of the broker's, until now."""
    session = console.page.context.new_cdp_session(console.page)
    session.send("Performance.enable")
    found = {one["name"]: one["value"] for one in session.send("Performance.getMetrics")["metrics"]}
    return found["ProcessTime"], ask(broker, "stats", topics=0)["cpuMs"] / 1_000


@pytest.mark.parametrize("name", PAGES)
def test_a_page_opens_and_does_not_stall(
    browser: Browser, broker: BrokerProcess, name: str
) -> None:
    parts, selector = PAGES[name]
    with console_of(browser, broker.port) as console:
        console.page.goto(console.url + "vendor/uplot.css")
        begun = processor_s(console, broker)
        console.page.goto(console.url + place(*parts))
        console.page.locator(selector).first.wait_for()
        opened = processor_s(console, broker)
        assert sum(opened) - sum(begun) < OPEN_S_MAX
        console.moments(SECONDS)
        assert processor_s(console, broker)[0] - opened[0] < BUSY_S_MAX
        assert console.violations() == []


def test_warnings_of_thousands_are_a_line(browser: Browser, broker: BrokerProcess) -> None:
    """Every third topic has a message, and nobody reads any."""
    with console_of(browser, broker.port) as console:
        console.open()
        lines = console.page.get_by_role("list", name="Warnings").locator("> li")
        expect(lines.filter(has_text="groups of")).to_have_count(1, timeout=120_000)
