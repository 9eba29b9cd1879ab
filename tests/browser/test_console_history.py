"""What the console shows of the past, and two groups side by side."""

from __future__ import annotations

import time
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, expect

from tests.browser.console import Console, ask, console_of
from tests.conformance.dialogue import World, http, ok, put
from tests.limits import WAIT_S
from tests.process.broker import BrokerProcess
from zbus.server.watch.history_file import HistoryFile
from zbus.storage.local.files import OsFiles

BEFORE_S = 1_800
"""About as long ago the broker before ended, after an hour of one message every 10 s."""


def remembered(folder: Path) -> None:
    """What a broker leaves behind."""
    # A minute into a step of five: with the first look alone there is no rate.
    start_ms = (int(time.time() - BEFORE_S - 3_600) // 300 * 300 + 60) * 1_000
    world = World(now_ms=start_ms)
    client = world.connect()
    ok(client, http("/orders/billing?cmd=declare&group_ack=1"))
    ok(client, http("/orders/audit?cmd=declare"))
    recorder = world.dialect.history
    assert recorder is not None
    for _ in range(360):
        put(client, "orders", b"x")
        world.advance(10_000)
        recorder.look()
    HistoryFile(OsFiles(), folder).close(recorder.save())


def fill(broker: BrokerProcess) -> None:
    ask(broker, "declare", topic="orders", partitions=2)
    ask(broker, "declare", topic="orders", consume_group="billing", ack=1, group_lease="5m")
    ask(broker, "declare", topic="orders", consume_group="audit", group_filter="eu.*")
    ask(broker, "declare", topic="payments", consume_group="billing", ack=1)
    for _ in range(10):
        ask(broker, "produce", topic="orders", body=b"x", partition=1)
    ask(broker, "consume", topic="orders", consume_group="billing", on_loss="keep")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    folder = tmp_path_factory.mktemp("history") / "data"
    with BrokerProcess(folder) as first:
        fill(first)
        assert first.stop() == 0
    remembered(folder)
    with BrokerProcess(folder) as process:
        yield process


def pointed(chart: Locator, part: float) -> tuple[str, list[str]]:
    """The time and the values at a place of a chart, from 0 at the left to 1."""
    chart.page.mouse.move(1, 1)
    plot = chart.locator(".u-over")
    box = plot.bounding_box()
    assert box is not None
    plot.hover(position={"x": 1 + part * (box["width"] - 2), "y": box["height"] / 2})
    shown = chart.locator("time").inner_text(), chart.locator(".key b").all_inner_texts()
    chart.page.mouse.move(1, 1)
    return shown


def clock(ago_s: float) -> str:
    return time.strftime("%H:%M", time.localtime(time.time() - ago_s))


def until(chart: Locator, part: float, ago_s: float, about_s: int = 60) -> list[str]:
    """The values there, once the time that is shown is about that one."""
    end_s = time.monotonic() + WAIT_S
    while True:
        shown, values = pointed(chart, part)
        if any(clock(ago_s + off_s) in shown for off_s in range(-about_s, about_s + 1, 60)):
            return values
        assert time.monotonic() < end_s, (shown, clock(ago_s))


@pytest.mark.parametrize("place", [(), ("topics", "orders", "charts")])
def test_the_past_is_there_when_the_page_is_opened(
    console: Console, place: tuple[str, ...]
) -> None:
    console.open(*place)
    chart = console.page.locator(".chart", has_text="Messages a second")
    expect(console.page.get_by_role("button", name="Hour")).to_have_attribute(
        "aria-pressed", "true"
    )
    assert until(chart, 0, 3_600)[0] == "0.1"
    assert pointed(chart, 0.75)[1][0] in ("\u2013", "0.1", "0"), "a gap, or what is next to it"
    expect(chart.locator(".key b").first).to_have_text("0")
    console.press("Day")
    chart = console.page.locator(".chart", has_text="Messages a second")
    assert until(chart, 0, BEFORE_S + 3_600, 300)[0] == "0.1"
    console.press("Week")
    backlog = console.page.locator(".chart", has_text="Backlog")
    expect(backlog.locator(".key b")).to_have_text("10")
    shown, _ = pointed(backlog, 0)
    assert shown[:2] in time.strftime("%a"), "Su 21:30"
    console.press("10 min")
    chart = console.page.locator(".chart", has_text="Messages a second")
    until(chart, 1, 0)
    console.press("Hour")
    assert console.violations() == []


def test_a_group(console: Console, broker: BrokerProcess) -> None:
    console.open("topics", "orders", "groups", "billing")
    chart = console.page.locator(".chart", has_text="Lag")
    until(chart, 0, 3_600)
    expect(chart.locator(".key b").first).to_have_text("9")
    ask(broker, "produce", topic="orders", body=b"x", partition=1)
    expect(chart.locator(".key b").first).to_have_text("10")  # the present goes on
    assert console.violations() == []


def row(console: Console, table: str, label: str) -> Any:
    return console.page.get_by_role("table", name=table).locator("tr", has_text=label)


def test_two_groups_of_a_topic(console: Console) -> None:
    console.open("topics", "orders", "groups", "billing")
    console.page.get_by_role("link", name="Compare").click()
    console.shows("Choose the group that it is compared with.")
    console.field("Group").select_option("audit")
    lease = row(console, "Settings", "Leases its messages")
    expect(lease).to_contain_text("differs")
    expect(lease.locator("td")).to_have_text(["yes", "no"])
    expect(row(console, "Settings", "Goes with its last reader")).not_to_contain_text("differs")
    expect(row(console, "Settings", "Filter").locator("td")).to_have_text(["\u2013", "eu.*"])
    positions = console.page.get_by_role("table", name="Positions").locator("tbody tr")
    expect(positions).to_have_count(2)
    expect(positions.nth(1)).to_contain_text("1 of")
    expect(positions.nth(1)).to_contain_text("1 leased")
    expect(positions.nth(1)).to_contain_text("0 of")
    chart = console.page.locator(".chart", has_text="Waiting")
    until(chart, 0, 3_600)
    expect(chart.locator(".key")).to_have_count(2)
    assert console.violations() == []


def test_two_groups_of_two_topics(console: Console) -> None:
    console.open("compare", "orders", "billing")
    console.field("With a group").fill("pay")
    expect(console.page.locator("#compared option")).to_have_count(1)
    console.field("With a group").fill("payments")
    console.field("Group").select_option("billing")
    heads = console.page.get_by_role("table", name="Settings").locator("thead a")
    expect(heads).to_have_text(["orders / billing", "payments / billing"])
    expect(row(console, "Settings", "Lease").nth(1)).to_contain_text("5 min")
    positions = console.page.get_by_role("table", name="Positions").locator("tbody tr")
    expect(positions.nth(1).locator("td").nth(1)).to_have_text("\u2013")  # it has one partition


def test_a_group_that_is_not_there(console: Console) -> None:
    console.allowed = ["404"]
    console.open("compare", "orders", "billing", "orders", "none")
    console.shows("ConsumeGroup(none) Not Found")
    console.move()  # it is asked for again and again


def test_without_a_history_there_is_the_present(browser: Browser, tmp_path: Path) -> None:
    with (
        BrokerProcess(tmp_path / "data", "--set", "history=off") as broker,
        console_of(browser, broker.port) as console,
    ):
        fill(broker)
        console.allowed = ["404"]
        console.open()
        console.shows("This broker keeps no history")
        console.moments(3)
        chart = console.page.locator(".chart", has_text="Backlog")
        expect(chart.locator(".key b")).to_have_text("10")
        until(chart, 0, 0)


def test_a_token_that_may_not_see_the_history(browser: Browser, tmp_path: Path) -> None:
    file = tmp_path / "tokens.toml"
    file.write_text(
        "".join(
            f'[[token]]\nname = "{name}"\nsha256 = "{sha256(name.encode()).hexdigest()}"\n'
            f"operations = {operations}\n[token.topics]\n{topics}\n"
            for name, operations, topics in (
                ("admin", '["admin"]', ""),
                ("some", '["server", "query", "consume"]', "orders = []"),
            )
        )
    )
    file.chmod(0o600)
    with BrokerProcess(tmp_path / "data", "--token-file", str(file)) as broker:
        ask(broker, "declare", "token: admin", topic="orders")
        with console_of(browser, broker.port) as console:
            console.allowed = ["403"]  # before the login
            console.page.goto(console.url)
            console.field("Token").fill("some")
            console.press("Log in")
            console.shows("This token may not see the history")
            console.allowed = []
            console.move("topics", "orders", "charts")
            console.moments(2)
            expect(console.page.get_by_text("may not see the history")).to_have_count(0)
