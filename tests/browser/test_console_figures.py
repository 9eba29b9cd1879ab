"""What the console says of a broker is so: no false alarm, no false all-clear, no false zero."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.console import Console, ask, console_of
from tests.process.broker import BrokerProcess
from tests.process.nats import NatsCluster, find_program

UNKNOWN = "\u2013"

WARNED = 105
"""Groups: more than the document lists."""
LISTED = 100

TOKENS = {"admin": '["admin"]', "put": '["produce"]', "look": '["query", "consume"]'}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    marks = ("--set", "disk_free_percent_min=0", "--set", "disk_free_bytes_min=0")
    folder = tmp_path_factory.mktemp("figures") / "data"
    with BrokerProcess(folder, *marks) as process:  # a disk that is nearly full is a warning, too
        yield process


def tile(console: Console, label: str) -> Any:
    return console.page.locator(".tile", has_text=label).locator(".value").first


def test_what_nobody_asked_for_waits_for_nobody(console: Console, broker: BrokerProcess) -> None:
    ask(broker, "declare", topic="unread")
    for _ in range(30):
        ask(broker, "produce", topic="unread", body=b"x")
    console.move()
    console.moments(2)
    expect(tile(console, "Backlog")).to_have_text("0")
    console.shows("Every group has read everything.")
    console.shows("Nothing needs your attention.")
    console.move("groups")
    expect(console.page.locator("tr", has_text="unread")).to_contain_text("never read")
    console.move("topics", "unread")
    expect(tile(console, "Backlog")).to_have_text("0")
    console.move("topics", "unread", "groups", "unread")
    expect(tile(console, "Lag")).to_have_text(UNKNOWN)
    ask(broker, "consume", topic="unread", timeout=0)
    expect(tile(console, "Lag")).to_have_text("29")
    console.move()
    expect(tile(console, "Backlog")).to_have_text("29")
    ask(broker, "remove", topic="unread")


@pytest.mark.skipif(find_program() is None, reason="needs nats-server: the extra `replicated`")
def test_a_stream_has_a_tile_instead_of_the_disk(
    browser: Browser, console: Console, tmp_path: Path
) -> None:
    console.move()
    tiles = console.page.locator(".tile")
    expect(tiles.filter(has_text="Disk free")).to_have_count(1)
    expect(tiles.filter(has_text="Stream")).to_have_count(0)
    with NatsCluster(tmp_path / "nats") as cluster:
        engine = cluster.engine("console")
        with (
            BrokerProcess(tmp_path / "data", "--engine", engine) as broker,
            console_of(browser, broker.port) as other,
        ):
            ask(broker, "declare", topic="orders")
            other.open()
            tiles = other.page.locator(".tile")
            expect(tiles.filter(has_text="Stream")).to_contain_text("epoch 1")
            expect(tiles.filter(has_text="Disk free")).to_have_count(0)
            other.shows(engine.replace(",", ", "))
            assert other.violations() == []
            other.move("topics", "orders")
            other.shows("replicated")


def test_many_warnings_do_not_hide_the_figures(console: Console, broker: BrokerProcess) -> None:
    ask(broker, "declare", topic="dying")
    wire = broker.connect()
    for number in range(WARNED):
        at = f"/dying/g{number}?cmd="
        assert wire.get(at + "declare&ack=1&group_max_attempts=1").status == 200
    assert wire.get("/dying", body=b"x").status == 200
    for number in range(WARNED):
        assert wire.get(f"/dying/g{number}?cmd=consume&on_loss=keep").status == 200
        assert wire.get(f"/dying/g{number}?cmd=nack&offset=0").status == 200
    wire.close()
    console.move()
    lines = console.page.get_by_role("list", name="Warnings").locator("> li")
    expect(lines).to_have_count(1)
    expect(lines).to_contain_text(f"{WARNED} groups of topic dying have dead-lettered messages.")
    console.press("Which")
    listed = lines.locator("li")
    expect(listed).to_have_count(LISTED + 1)
    expect(listed.first).to_contain_text("has dead-lettered 1 message after too many attempts.")
    expect(listed.last).to_contain_text(f"{WARNED - LISTED} more are not listed")
    assert console.violations() == []
    console.press("Fewer")
    expect(listed).to_have_count(0)
    ask(broker, "declare", topic="dying too", consume_group="g", ack=1, group_max_attempts=1)
    ask(broker, "produce", topic="dying too", body=b"x")
    ask(broker, "consume", topic="dying too", consume_group="g", on_loss="keep")
    ask(broker, "nack", topic="dying too", consume_group="g", offset=0)
    expect(lines).to_contain_text(f"{WARNED + 1} groups of 2 topics have dead-lettered messages.")
    ask(broker, "remove", topic="dying")
    expect(lines).to_have_count(1)
    expect(lines).to_contain_text("Group g of topic dying too has dead-lettered 1 message")
    ask(broker, "remove", topic="dying too")
    console.shows("Nothing needs your attention.")


def test_a_chart_tells_each_moment_and_begins_with_what_is_known(console: Console) -> None:
    page = console.page
    console.move()
    console.press("10 min")
    console.moments(2)
    chart = page.locator(".chart", has_text="Messages a second")
    expect(chart.locator("time")).to_have_count(0)
    plot = chart.locator(".u-over")
    box = plot.bounding_box()
    assert box is not None
    plot.hover(position={"x": 1, "y": box["height"] / 2})
    expect(chart.locator("time")).to_have_text(page.evaluate(FIRST_MOMENT))
    expect(chart.locator(".key b").first).to_have_text(UNKNOWN)  # one moment has no rate
    plot.hover(position={"x": box["width"] - 1, "y": box["height"] / 2})
    expect(chart.locator(".key b").first).not_to_have_text(UNKNOWN)
    page.mouse.move(1, 1)
    expect(chart.locator("time")).to_have_count(0)


FIRST_MOMENT = """async () => {
  const [{ live }, { clock }] = await Promise.all(
    [import("/_console/live.js"), import("/_console/format.js")])
  return clock(live.history.t[0])
}"""


def test_a_connection_has_no_rate_before_it_was_seen_twice(console: Console) -> None:
    console.move("connections")
    row = console.page.locator("tbody tr", has_text="events")
    expect(row).to_contain_text(f"{UNKNOWN} / {UNKNOWN}")
    expect(row).not_to_contain_text(f"{UNKNOWN} / {UNKNOWN}")
    assert not row.locator("code").inner_text().startswith("/")


def test_one_stream_is_open_however_often_it_is_begun(
    console: Console, broker: BrokerProcess
) -> None:
    twice = """async () => {
      const { start } = await import("/_console/live.js")
      await Promise.all([start(), start(), start()])
    }"""
    console.page.evaluate(twice)
    console.moments(2)
    kinds = [each["kind"] for each in ask(broker, "connections")]
    assert kinds.count("events") == 1


@pytest.mark.parametrize(
    ("asked", "offset"),
    [
        ("12-1", "0"),  # no partition 12, but a sender gave that id
        ("0-1", "2"),  # its own before the place
        ("0-2", "2"),  # nobody has it: the place
        ("named", "3"),
    ],
)
def test_an_id_is_found(console: Console, broker: BrokerProcess, asked: str, offset: str) -> None:
    if b"ids" not in broker.get("/?cmd=query&names=1").body:
        ask(broker, "declare", topic="ids")
        for id in ("12-1", "x", "0-1", "named"):
            ask(broker, "produce", topic="ids", id=id, body=b"x")
    console.move("topics", "ids")
    console.page.get_by_label("Find by").select_option("id")
    console.field("Message id").fill(asked)
    console.press("Go")
    expect(console.page.locator(".log .open .offset")).to_have_text(offset)


def test_an_id_that_is_not_found_says_how_far_was_looked(
    console: Console, broker: BrokerProcess
) -> None:
    ask(broker, "declare", topic="empty")
    console.move("topics", "empty")
    console.page.get_by_label("Find by").select_option("id")
    console.field("Message id").fill("7-7")
    console.press("Go")
    console.shows("There is no message 7-7 among the newest 10,000 of this topic")


def test_how_a_message_came_is_folded_away(console: Console, broker: BrokerProcess) -> None:
    ask(broker, "declare", topic="came", sender_headers=1)
    ask(broker, "produce", "colour: blue", topic="came", body=b"x")
    console.move("topics", "came")
    console.page.locator(".log .row").first.click()
    console.shows("colour")
    noise = console.page.get_by_text("origin_method")
    expect(noise).to_be_hidden()
    console.page.locator("summary", has_text="How it came").click()
    expect(noise).to_be_visible()


def test_a_token_that_may_not_see_figures_is_told_so(browser: Browser, tmp_path: Path) -> None:
    file = tmp_path / "tokens.toml"
    digest = {name: sha256(name.encode()).hexdigest() for name in TOKENS}
    file.write_text(
        "".join(
            f'[[token]]\nname = "{name}"\nsha256 = "{digest[name]}"\noperations = {operations}\n'
            f"[token.topics]\n{'' if name == 'admin' else 'orders = []'}\n"
            for name, operations in TOKENS.items()
        )
    )
    file.chmod(0o600)
    with BrokerProcess(tmp_path / "data", "--token-file", str(file)) as broker:
        ask(broker, "declare", "token: admin", topic="orders")
        with logged_in(browser, broker, "put") as console:
            console.shows("This token may not see figures")
            expect(console.page.get_by_text("Nothing needs your attention.")).to_have_count(0)
            for label in ("Messages in", "Backlog", "Topics"):
                expect(tile(console, label)).to_have_text(UNKNOWN)
            console.move("topics")
            console.field("Topic").fill("orders")
            console.press("Open")
            console.press("Produce")
            console.field("Body").fill("hello")
            console.press("Put the message")
            console.shows("Stored at offset 0.")
            assert console.violations() == []
            console.move("try")
            expect(console.page.locator("option[value=produce]")).to_have_count(1)
            for command in ("remove", "consume", "query"):
                expect(console.page.locator(f"option[value={command}]")).to_have_count(0)
            console.move("try", "remove")
            console.shows("This token may not do remove.")
        with logged_in(browser, broker, "look") as console:
            console.shows("This token may not see figures")
            console.shows("Busiest topics")
            expect(tile(console, "Messages in")).to_have_text(UNKNOWN)
            expect(tile(console, "Topics")).to_have_text("1")
            console.move("topics", "orders")
            expect(console.page.locator(".log .row")).to_have_count(1)


@contextmanager
def logged_in(browser: Browser, broker: BrokerProcess, token: str) -> Iterator[Console]:
    with console_of(browser, broker.port) as console:
        console.allowed = ["403"]  # the browser says so of any such reply
        console.page.goto(console.url)
        console.field("Token").fill(token)
        console.press("Log in")
        yield console
