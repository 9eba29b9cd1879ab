"""The console: every page of it, and everything that it can do."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.console import DESKTOP, PHONE, Console, ask, console_of
from tests.limits import checked
from tests.process.broker import BrokerProcess

PAGES: dict[str, tuple[str, ...]] = {
    "overview": (),
    "topics": ("topics",),
    "messages": ("topics", "orders"),
    "groups of a topic": ("topics", "orders", "groups"),
    "charts of a topic": ("topics", "orders", "charts"),
    "delayed": ("topics", "orders", "delayed"),
    "settings of a topic": ("topics", "orders", "settings"),
    "the schema of a topic": ("topics", "invoices", "settings"),
    "groups": ("groups",),
    "group": ("topics", "orders", "groups", "billing"),
    "ready": ("topics", "orders", "groups", "billing", "ready"),
    "leases": ("topics", "orders", "groups", "billing", "leases"),
    "dead letters": ("topics", "orders", "groups", "billing", "dead"),
    "settings of a group": ("topics", "orders", "groups", "billing", "settings"),
    "compare": ("compare", "orders", "billing", "payments", "payments"),
    "compare with none": ("compare", "orders", "billing"),
    "connections": ("connections",),
    "why": ("why", "orders", "0", "3", "billing"),
    "try it": ("try", "produce"),
    "an unknown topic": ("topics", "no such topic"),
}

SIMILAR = (
    "groups of a topic",
    "settings of a topic",
    "ready",
    "delayed",
    "settings of a group",
    "dead letters",
    "topics",
    "compare with none",
)
"""Made of the same parts as others: `make check` looks at them."""

ORDER = {"order": 7, "customer": {"name": "Ada", "id": 12345678901234567890}, "paid": True}


def fill(broker: BrokerProcess) -> None:
    for topic in ("orders", "dead.orders", "payments"):
        ask(broker, "declare", topic=topic)
    for kind in ("integer", "number"):
        ask(broker, "declare", topic="invoices", schema=json.dumps({"type": kind}))
    billing: dict[str, Any] = {"topic": "orders", "consume_group": "billing"}
    retries: dict[str, Any] = {"group_max_attempts": 1, "group_dead_letter": "dead.orders"}
    ask(broker, "declare", **billing, ack=1, **retries)
    for _ in range(40):
        ask(broker, "produce", topic="orders", tag="eu.new", body=json.dumps(ORDER).encode())
    for delay_ms in (3_600_000, 7_200_000, 9_000_000):
        ask(broker, "produce", topic="orders", delay=delay_ms, body=b"later")
    ask(broker, "consume", **billing, batch=2, on_loss="keep")
    ask(broker, "nack", **billing, offset="0-1")  # dead: it was the last attempt
    ask(broker, "consume", **billing, batch=3, on_loss="keep", lease=3_600_000)


DIALOGS: dict[str, tuple[tuple[str, ...], str]] = {
    "new topic": (PAGES["topics"], "New topic"),
    "change a topic": (PAGES["settings of a topic"], "Change"),
    "change a schema": (PAGES["the schema of a topic"], "New version"),
    "produce": (PAGES["messages"], "Produce"),
    "purge a topic": (PAGES["messages"], "Purge"),
    "new group": (PAGES["groups of a topic"], "New group"),
    "change a group": (PAGES["settings of a group"], "Change"),
    "seek": (PAGES["group"], "Seek"),
    "remove a group": (PAGES["group"], "Remove"),
    "reschedule": (PAGES["delayed"], "Reschedule"),
    "cancel": (PAGES["delayed"], "Cancel"),
    "redrive all": (PAGES["dead letters"], "Redrive all"),
    "close a connection": (PAGES["connections"], "Close"),
}
ALIKE = ("purge a topic", "remove a group", "cancel", "close a connection", "change a topic")
"""Forms of `tests/browser/test_console_forms.py` are looked at there, too."""


@pytest.fixture(
    scope="module",
    params=[
        pytest.param({}, id="desktop"),
        *checked([{"viewport": PHONE, "color_scheme": "dark"}]),
    ],
)
def look(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture(scope="module")
def broker(look: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("console") / "data") as process:
        fill(process)
        yield process


def test_a_browser_is_led_to_it(console: Console, broker: BrokerProcess) -> None:
    console.page.goto(f"http://127.0.0.1:{broker.port}/")
    console.shows("Busiest topics")
    assert console.page.url.startswith(console.url)
    assert broker.get("/").headers["location"] == "/_console/"


WIDER = """[document.documentElement, ...document.querySelectorAll(".sheet, dialog")]
  .filter(each => each.scrollWidth > each.clientWidth).map(each => each.outerHTML.slice(0, 99))"""


def accessible(console: Console, name: str) -> None:
    console.gone.add("no such topic")  # the browser says so of any reply
    console.move(*PAGES[name])
    if name == "messages":
        console.page.locator(".log .row").first.click()
    elif name == "why":
        console.page.get_by_role("button", name="Why?", exact=True).click()
        console.page.locator(".sentence").wait_for()
    assert console.violations() == []
    assert console.page.evaluate(WIDER) == [], "nothing is wider than the screen"


@pytest.mark.parametrize(
    "name", [*(name for name in PAGES if name not in SIMILAR), *checked(SIMILAR)]
)
def test_every_page_is_accessible(console: Console, name: str) -> None:
    accessible(console, name)


@pytest.mark.parametrize(
    "name", [*(name for name in DIALOGS if name not in ALIKE), *checked(ALIKE)]
)
def test_every_dialog_is_accessible(console: Console, name: str) -> None:
    place, button = DIALOGS[name]
    console.move(*place)
    console.press(button)
    for folded in console.page.locator("dialog summary").all():
        folded.click()
    assert console.violations() == []
    assert console.page.evaluate(WIDER) == []
    console.page.keyboard.press("Escape")
    expect(console.page.get_by_role("dialog")).to_have_count(0)


@pytest.mark.check
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("viewport", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_every_page_is_accessible_everywhere(
    browser: Browser, broker: BrokerProcess, scheme: str, viewport: dict[str, int]
) -> None:
    with console_of(browser, broker.port, color_scheme=scheme, viewport=viewport) as console:
        console.open()
        for name in PAGES:
            accessible(console, name)


def test_it_is_used_with_the_keyboard(console: Console) -> None:
    page = console.page
    console.open("topics")
    page.keyboard.press("Tab")
    expect(page.locator(":focus")).to_have_text("Skip to the content")
    page.keyboard.press("Enter")
    expect(page.locator(":focus")).to_have_id("main")
    page.keyboard.press("Tab")
    expect(page.locator(":focus")).to_have_text("New topic")
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog")
    expect(dialog).to_be_visible()
    assert page.evaluate("document.activeElement.closest('dialog') !== null")
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    expect(page.locator(":focus")).to_have_text("New topic")


def test_a_topic_from_its_beginning_to_its_end(console: Console, broker: BrokerProcess) -> None:
    console.allowed = ["409"]  # the browser says so of any reply
    console.gone.add("made here")
    page = console.page
    console.move("topics")
    console.press("New topic")
    console.field("Name").fill("made here")
    console.field("Keep for").fill("60000")
    console.press("Make it")
    expect(page.locator("h1")).to_have_text("made here")
    told = ask(broker, "query", topic="made here")
    assert (told["topicName"], told["retentionMs"]) == ("made here", 60_000)

    console.press("Produce")
    console.field("Body").fill("hello, <b>you</b>")
    console.field("Tag").fill("a.b")
    page.get_by_label("Headers").fill("colour: blue\nname: Jürgen ✓")
    console.press("Put the message")
    console.shows("Stored at offset 0.")
    page.locator(".log .row").first.click()
    console.shows("blue")
    expect(page.get_by_role("region", name="Body as text")).to_have_text("hello, <b>you</b>")
    (stored,) = ask(broker, "read", topic="made here", count=9)
    told = {name: text for name, text in stored["headers"].items() if name != "sender"}
    assert told == {"colour": "blue", "name": "Jürgen ✓", "origin_method": "POST"}
    assert stored["tag"] == "a.b"

    console.move("topics", "made here", "settings")
    console.press("Change")
    console.field("Keep for").fill("")
    console.press("Change it")
    console.shows("The topic is changed.")
    assert "retentionMs" not in ask(broker, "query", topic="made here")

    console.press("Set a schema")
    console.field("JSON Schema").fill('{"type": "object", "required": ["n"]}')
    console.press("Set it")
    console.shows("The schema is set.")
    schema = page.get_by_role("region", name="Version 1 of the schema")
    expect(schema).to_contain_text('"required": [')
    console.press("New version")
    console.field("JSON Schema").fill('{"type": "object", "required": ["n", "m"]}')
    console.press("Set it")
    console.shows("/m: it is required now, and was not")
    page.keyboard.press("Escape")
    assert ask(broker, "query", topic="made here")["schemaVersion"] == 1

    for button, done in (("Purge", "The topic is empty."), ("Remove", "The topic is gone.")):
        console.press(button)
        dialog = page.get_by_role("dialog")
        sure = dialog.get_by_role("button", name=button, exact=True)
        expect(sure).to_be_disabled()
        dialog.locator("input").fill("made her")
        expect(sure).to_be_disabled()
        dialog.locator("input").fill("made here")
        sure.click()
        console.shows(done)
    assert broker.get("/?cmd=query&topic=made+here").status == 404
    expect(page.get_by_role("link", name="made here")).to_have_count(0)  # the stream told so


def test_messages_are_found(console: Console, broker: BrokerProcess) -> None:
    page = console.page
    before = ask(broker, "query", topic="orders")["consumeGroupList"]
    console.move("topics", "orders")
    rows = page.locator(".log .row")
    expect(rows).to_have_count(25)
    expect(rows.first.locator(".offset")).to_have_text("42")
    console.press("Older")
    expect(rows.first.locator(".offset")).to_have_text("17")
    expect(rows.last.locator(".offset")).to_have_text("0")
    console.press("Newer")
    expect(rows.first.locator(".offset")).to_have_text("42")
    console.field("Offset").fill("7")
    console.press("Go")
    expect(page.locator(".log .open .offset")).to_have_text("7")
    tree = page.get_by_role("region", name="Body as JSON")
    expect(tree).to_contain_text("12345678901234567890")  # exactly, beyond what a double holds
    console.press("Hex")
    expect(page.get_by_role("region", name="Body as bytes")).to_contain_text("7b 22 6f")
    page.get_by_label("Find by").select_option("id")
    console.field("Message id").fill("0-12")
    console.press("Go")
    expect(page.locator(".log .open .offset")).to_have_text("12")
    page.get_by_label("Find by").select_option("time")
    console.field("Stored at or after").fill("2020-01-01T00:00:00")
    console.press("Go")
    expect(rows.first.locator(".offset")).to_have_text("0")
    console.field("Stored at or after").fill("2100-01-01T00:00:00")
    console.press("Go")
    console.shows("There is nothing from there on.")
    assert ask(broker, "query", topic="orders")["consumeGroupList"] == before, "nobody noticed"


def test_delayed_messages(console: Console, broker: BrokerProcess) -> None:
    page = console.page
    console.move("topics", "orders", "delayed")
    page.get_by_label("Of group").select_option("billing")
    rows = page.locator("tbody tr")
    expect(rows).to_have_count(3)
    rows.nth(0).get_by_role("button", name="Fire now").click()
    console.shows("It is due now.")
    expect(rows).to_have_count(2)
    rows.nth(0).get_by_role("button", name="Cancel").click()
    console.press("Cancel it")
    console.shows("It is never delivered.")
    expect(rows).to_have_count(1)
    rows.nth(0).get_by_role("button", name="Reschedule").click()
    console.field("Due at").fill("2030-01-01T00:00:00")
    console.press("Reschedule")
    console.shows("It is due then.")
    listed = ask(broker, "peek", topic="orders", consume_group="billing", state="delayed")
    assert [each["offset"] for each in listed] == [42]
    assert 1_893_400_000_000 < listed[0]["until"] < 1_893_600_000_000


def test_leases(console: Console, broker: BrokerProcess) -> None:
    console.move(*PAGES["leases"])
    rows = console.page.locator("tbody tr")
    expect(rows).to_have_count(3)
    rows.nth(0).get_by_role("button", name="Acknowledge").click()
    console.shows("It is acknowledged.")
    expect(rows).to_have_count(2)
    rows.nth(0).get_by_role("button", name="Give back").click()
    console.shows("It was given back")
    expect(rows).to_have_count(1)
    told = ask(broker, "query", topic="orders", consume_group="billing")
    assert told["leasedCount"] == 1


def test_dead_letters(console: Console, broker: BrokerProcess) -> None:
    console.move(*PAGES["dead letters"])
    page = console.page
    console.shows("it was given back")
    rows = page.locator("tbody tr")
    waiting = rows.filter(has_text="open")
    redrive = page.locator("main").get_by_role("button", name="Redrive", exact=True)
    dead = ask(broker, "query", topic="orders", consume_group="billing")["deadCount"]
    expect(waiting).to_have_count(dead)
    red = page.locator(".tile.low", has_text="Dead letters")
    expect(red).to_contain_text(f"open, of {dead} ever")
    redrive.first.click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("is delivered again, and finished in dead.orders.")
    console.press("Redrive")
    console.shows("1 of them were put back into orders.")
    expect(waiting).to_have_count(dead - 1)
    expect(redrive).to_have_count(dead - 1)

    other: dict[str, Any] = {"topic": "returns", "consume_group": "other"}
    dying: dict[str, Any] = {"group_max_attempts": 1, "group_dead_letter": "dead.orders"}
    ask(broker, "declare", topic="returns")
    ask(broker, "declare", **other, ack=1, **dying)
    ask(broker, "produce", topic="returns", body=b"of another group")
    ask(broker, "consume", **other, on_loss="keep")
    ask(broker, "nack", **other, offset=0)
    console.press("Redrive all")
    console.press("Redrive")
    expect(waiting).to_have_count(0)
    expect(rows).to_have_count(dead)
    expect(redrive).to_have_count(0)
    expect(red).to_have_count(0)
    left = ask(broker, "peek", topic="dead.orders", count=9)
    assert [each["size"] for each in left] == [16], "the letter of the other group stays"
    ask(broker, "remove", topic="returns")


def test_letters_go_back_to_their_group_alone(console: Console, broker: BrokerProcess) -> None:
    """Those that were chosen, of one cause; another group of the topic is handed nothing."""
    page = console.page
    of: dict[str, Any] = {"topic": "trips", "consume_group": "cars"}
    ask(broker, "declare", topic="dead.trips")
    ask(broker, "declare", topic="trips", consume_group="log")
    ask(broker, "declare", **of, ack=1, group_max_attempts=1, group_dead_letter="dead.trips")
    for n in range(4):
        ask(broker, "produce", topic="trips", body=b"trip %d" % n)
        ask(broker, "consume", topic="trips", consume_group="log")
        ask(broker, "consume", **of, on_loss="keep", lease=1 if n == 3 else 60_000)
    ask(broker, "nack", **of, offset="0-2")
    console.move("topics", "trips", "groups", "cars", "dead")
    rows = page.locator("tbody tr")
    expect(rows).to_have_count(4)
    page.get_by_label("Because").select_option("it was given back")
    expect(rows).to_have_count(3)
    page.get_by_label("All 3 open").check()
    rows.filter(has_text="trip 1").get_by_role("checkbox").uncheck()
    assert console.violations() == []
    console.press("Redrive 2 chosen")
    page.get_by_label("Only cars").check()
    assert console.violations() == []
    console.press("Redrive")
    console.shows("2 of them were given back to cars.")
    expect(rows.filter(has_text="finished")).to_have_count(2)
    assert ask(broker, "query", topic="trips")["messageDepth"] == 4, "nothing was put"
    again = ask(broker, "consume", "accept: application/json", **of, batch=9, timeout=0)
    assert [each["body"] for each in again] == ["trip 0", "trip 2"]
    empty = broker.get("/trips/log?cmd=consume&timeout=0")
    assert empty.status == 204
    console.move("topics")
    for topic in ("trips", "dead.trips"):
        ask(broker, "remove", topic=topic)


def test_a_search_over_partitions(console: Console, broker: BrokerProcess) -> None:
    """By the newest first, and what it finds is downloaded with its whole bodies."""
    page = console.page
    ask(broker, "declare", topic="parts", partitions=4)
    for n in range(60):
        shop, body = ("north", "south")[n % 2], f"part {n} {'bolt' if n % 10 == 3 else 'nut'}"
        where = {"topic": "parts", "partition": n * 7 % 4, "key": f"k{n % 5}"}
        ask(broker, "produce", f"x-shop: {shop}", **where, body=body.encode() + b"." * 2_000)
    ask(broker, "produce", topic="parts", partition=0, body=b"\xff bolt")
    console.move("topics", "parts")
    rows = page.locator(".log .row")
    expect(rows).to_have_count(25)
    places = page.locator(".log .offset")
    newest = places.all_inner_texts()
    console.press("Older")
    expect(places.nth(0)).not_to_have_text(newest[0])
    older = places.all_inner_texts()
    assert len({*newest, *older}) == 50
    times = page.locator(".log time").all_inner_texts()
    assert times == sorted(times, reverse=True), "in the same millisecond they are by partition"
    console.press("Newer")
    expect(places.nth(0)).to_have_text(newest[0])
    assert places.all_inner_texts() == newest
    page.get_by_label("Order").select_option("oldest")
    expect(rows.nth(0)).to_contain_text("part 0")
    oldest = places.all_inner_texts()
    console.press("Newer")
    expect(places.nth(0)).not_to_have_text(oldest[0])
    assert len({*newest, *older, *oldest, *places.all_inner_texts()}) == 61
    console.press("Older")
    expect(places.nth(0)).to_have_text(oldest[0])
    page.get_by_label("Order").select_option("newest")

    console.press("Search")
    assert console.violations() == []
    console.field("Text in the body").fill("bolt")
    console.press("Look for it")
    console.shows("61 looked at, 7 found")
    expect(rows).to_have_count(7)
    expect(rows.filter(has_text="part 53 bolt")).to_have_count(1)
    with page.expect_download() as saved:
        console.press("Download")
    lines = saved.value.path().read_text(encoding="utf-8").splitlines()
    assert saved.value.suggested_filename == "parts.ndjson"
    found = [json.loads(line) for line in lines]
    bodies = [f"part {n} bolt" + "." * 2_000 for n in range(3, 60, 10)]
    assert [each.get("body") for each in found] == [*bodies, None]
    assert found[-1]["body_base64"] == "/yBib2x0"
    console.field("Header").fill("x-shop: north")
    console.press("Look for it")
    console.shows("No message fits.")
    console.field("Header").fill("x-shop: south")
    console.field("Key").fill("k3")
    console.press("Look for it")
    expect(rows).to_have_count(6)
    console.field("Stored before").fill("2020-01-01T00:00:00")
    console.press("Look for it")
    console.shows("No message fits.")
    assert console.page.evaluate(WIDER) == []
    for field in ("Header", "Key", "Stored before"):
        console.field(field).fill("")
    bolts, kind = b"bolt\n" * 1_500, "content-type: application/x-ndjson"
    ask(broker, "produce", kind, topic="parts", partition=1, body=bolts)
    console.press("Look for it")
    console.shows("looked at, 1,000 found")
    expect(rows).to_have_count(50)
    console.press("Go on")
    console.shows("1,561 looked at, 1,507 found")
    console.press("Show more")
    expect(rows).to_have_count(100)
    assert console.violations() == []
    console.move("topics")
    ask(broker, "remove", topic="parts")


def test_a_group_is_made_moved_and_held(console: Console, broker: BrokerProcess) -> None:
    console.gone.add("audit")
    page = console.page
    at: dict[str, Any] = {"topic": "payments", "consume_group": "audit"}
    ask(broker, "produce", topic="payments", body=b"1")
    console.move("topics", "payments", "groups")
    console.press("New group")
    console.field("Name").fill("audit")
    console.field("Begin at").fill("latest")
    console.field("Filter on tags").fill("a.*")
    console.press("Make it")
    expect(page.locator("h1")).to_have_text("audit")
    assert ask(broker, "query", **at)["filter"] == "a.*"
    console.press("Seek")
    console.press("Move it")
    console.shows("The group reads on from there.")
    assert ask(broker, "query", **at)["messageCount"] == 1
    console.press("Pause")
    expect(page.locator(".badges")).to_contain_text("paused")
    assert ask(broker, "query", **at)["paused"] is True
    console.press("Resume")
    expect(page.locator(".badges")).not_to_contain_text("paused")
    console.move("topics", "payments", "groups", "audit", "settings")
    console.press("Change")
    console.field("Filter on tags").fill("")
    console.press("Change it")
    console.shows("The group is changed.")
    assert "filter" not in ask(broker, "query", **at)
    console.press("Remove")
    console.field("Type").fill("audit")
    console.press("Remove")
    console.shows("The group is gone.")
    assert broker.get("/payments/audit?cmd=query").status == 404


def test_figures_come_by_themselves(console: Console, broker: BrokerProcess) -> None:
    page = console.page
    console.move("topics", "payments")
    ask(broker, "produce", topic="payments", body=b"by a program")
    console.shows("by a program")
    console.move()
    expect(page.locator(".chart canvas")).to_have_count(2)


def test_a_connection_is_closed(console: Console, broker: BrokerProcess) -> None:
    wire = broker.connect()
    assert wire.get("/payments?cmd=declare").status == 200
    (port,) = {wire.sock.getsockname()[1]}
    console.move("connections")
    row = console.page.locator("tr", has_text=f":{port}")
    row.get_by_role("button", name="Close").click()
    console.press("Close it")
    console.shows("It was closed.")
    expect(row).to_have_count(0)
    assert wire.at_end()
    wire.close()


def test_why(console: Console, broker: BrokerProcess) -> None:
    console.move("why")
    console.field("Topic").fill("orders")
    console.field("Group").fill("billing")
    console.field("Offset or id").fill("0-30")
    console.press("Why?")
    sentence = console.page.locator(".sentence")
    expect(sentence).to_contain_text("offset 30 of orders")
    assert (
        sentence.inner_text()
        == ask(
            broker, "why", "accept: application/json", topic="orders", group="billing", offset=30
        )["text"]
    )


def test_every_command_is_a_form(console: Console, broker: BrokerProcess) -> None:
    page = console.page
    console.move("try", "produce")
    commands = page.locator("select").first.locator("option").all_inner_texts()
    assert len(commands) >= 35
    console.field("topic").fill("payments")
    page.locator("textarea:visible").first.fill("it's <b>")
    curl = shlex.split(page.get_by_role("region", name="The same with curl").inner_text())
    assert curl == ["curl", "--data-raw", "it's <b>", f"http://127.0.0.1:{broker.port}/payments"]
    console.press("Send")
    expect(page.locator(".reply")).to_contain_text("200 OK")
    offset = re.search(r"offset: (\d+)", page.locator(".reply").inner_text())
    assert offset is not None
    got = ask(broker, "read", topic="payments", count=1, offset=offset[1])
    assert got[0]["body"] == "it's <b>"
    console.gone.add("nothing")
    console.move("try", "query")
    console.field("topic").fill("nothing")
    console.press("Send")
    expect(page.locator(".reply")).to_contain_text("404: Topic(nothing) Not Found")
