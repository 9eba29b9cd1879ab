"""The console of a cluster: its nodes, the owners of its shards, and a shard that is moved."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme
from playwright.sync_api import Browser, expect

from tests.browser.console import DESKTOP, PHONE, console_of
from tests.browser.test_console import WIDER
from tests.process.nats import NatsCluster, find_program
from tests.process.test_nodes import SHARDS, Member, start_node
from zbus import __version__

pytestmark = pytest.mark.skipif(
    find_program() is None, reason="needs nats-server: the extra `replicated`"
)


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[list[Member]]:
    (tmp_path / "nats").mkdir()
    with NatsCluster(tmp_path / "nats") as servers:
        authority, engine = trustme.CA(), servers.engine("console")
        made = [start_node(tmp_path, engine, name, authority) for name in "ab"]
        try:
            for node in made:
                node.wait_for("/_health/all", 200)
            yield made
        finally:
            for node in made:
                node.kill()


def test_nodes_and_shards(browser: Browser, nodes: list[Member]) -> None:
    first, second = nodes
    with console_of(browser, first.port, viewport=DESKTOP) as console:
        console.open("nodes")
        page = console.page
        table = page.get_by_role("region", name="Shards").locator("tbody tr")
        expect(table).to_have_count(SHARDS)
        assert console.violations() == []
        assert page.evaluate(WIDER) == []
        console.shows("The cluster console, as node a knows it.")
        nodes_table = page.get_by_role("region", name="Nodes").locator("tbody tr")
        expect(nodes_table).to_have_count(2)
        expect(nodes_table.nth(0)).to_contain_text(__version__)
        expect(table.nth(0).locator("td").nth(3)).to_have_text(re.compile(r"^\d+(\.\d+)? (s|ms)$"))
        owner = table.nth(0).locator("td").nth(1).inner_text()
        other = {"a": "b", "b": "a"}[owner]
        console.press("Move")
        assert console.violations() == []
        console.press("Move it")
        expect(table.nth(0).locator("td").nth(1)).to_have_text(f"{other} moved by hand")
        second.kill()
        console.shows("Node b is gone.")
        expect(table.nth(0).locator("td").nth(1)).to_contain_text("a")
        assert console.violations() == []
    with console_of(browser, first.port, viewport=PHONE, color_scheme="dark") as console:
        console.open("nodes")
        console.page.get_by_role("region", name="Shards").wait_for()
        assert console.violations() == []
        assert console.page.evaluate(WIDER) == [], "nothing is wider than the screen"
