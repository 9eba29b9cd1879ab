"""The client in JavaScript, in a page: the same scenarios as in Node, kills, and the example."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.process.broker import BrokerProcess
from tests.process.javascript.expected import AFTER_KILLS, COUNT, EXPECTED, FOLDER, KILLS, LIMITS

EXAMPLES = Path(__file__).parents[2] / "examples/javascript"

RUN = """([scenario, ...more]) => {
  window.result = Promise.all([import("./scenarios.mjs"), import("/_client/zbus.js")]).then(
    ([scenarios, zbus]) =>
      scenarios[scenario](zbus, undefined, ...more, text => document.title = text))
  window.result.catch(() => {}) // is read later
}"""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    data = tmp_path_factory.mktemp("broker") / "data"
    with BrokerProcess(data, "--set", f"pages={FOLDER}", *LIMITS) as process:
        yield process
        assert "Traceback" not in process.log()


def begin(page: Page, broker: BrokerProcess, *arguments: Any) -> None:
    """A scenario, in a page of the broker; the module finds the broker by itself."""
    page.goto(f"http://127.0.0.1:{broker.port}/_pages/page.html")
    page.evaluate(RUN, list(arguments))


@pytest.mark.parametrize("scenario", EXPECTED)
def test_a_scenario(page: Page, broker: BrokerProcess, scenario: str) -> None:
    begin(page, broker, scenario)
    assert page.evaluate("result") == EXPECTED[scenario]


def test_over_kills(page: Page, tmp_path: Path) -> None:
    options = ("--set", f"pages={FOLDER}")
    broker = BrokerProcess(tmp_path / "data", *options)
    try:
        begin(page, broker, "overKills", COUNT)
        for consumed in KILLS:
            while int(page.title().partition("consumed ")[2] or 0) < consumed:
                pass
            broker.kill()
            broker = BrokerProcess(tmp_path / "data", *options, port=broker.port)
        assert page.evaluate("result") == AFTER_KILLS
    finally:
        broker.kill()


def test_the_example(page: Page, tmp_path: Path) -> None:
    options = ("--set", f"pages={EXAMPLES}")
    broker = BrokerProcess(tmp_path / "data", *options)
    url = f"http://127.0.0.1:{broker.port}/_pages/page.html"
    try:
        page.goto(url)
        expect(page.locator("#state")).to_have_text("connected")
        other = page.context.new_page()
        page.fill("input", "It <works>")
        page.click("button")
        other.goto(url)
        for one in (page, other):
            expect(one.locator("#news li")).to_have_text(["It <works>"])
        broker.kill()
        page.fill("input", "Still")
        page.click("button")
        expect(page.locator("#state")).not_to_have_text("connected")
        broker = BrokerProcess(tmp_path / "data", *options, port=broker.port)
        for one in (page, other):
            expect(one.locator("#news li")).to_have_text(["Still", "It <works>"])
            expect(one.locator("#state")).to_have_text("connected")
    finally:
        broker.kill()
