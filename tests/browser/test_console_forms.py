"""What is typed into a form of the console stays, and is what is done, however long it takes.

The page is drawn again with each moment that the broker tells, so each form waits for some of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import attrs
import pytest
from playwright.sync_api import expect

from tests.browser.console import DESKTOP, PHONE, Console, ask
from tests.limits import checked
from tests.process.broker import BrokerProcess

OF_GROUP: dict[str, Any] = {"topic": "orders", "consume_group": "billing"}


@attrs.frozen
class Form:
    """Where it is, what is typed into it, and what the broker says afterwards."""

    place: tuple[str, ...]
    button: str
    typed: dict[str, str]
    submit: str
    of: dict[str, Any]  # parameters of the query
    told: dict[str, Any]
    more: str = ""  # what has to be unfolded


FORMS = {
    "a topic": Form(
        ("topics", "orders", "settings"),
        "Change",
        {"Keep for": "7d", "Keep of each partition": "10MiB", "Know what became": "1.5h"},
        "Change it",
        {"topic": "orders"},
        {"retentionMs": 604_800_000, "retentionBytes": 10 << 20, "settledMs": 5_400_000},
    ),
    "a group": Form(
        ("topics", "orders", "groups", "billing", "settings"),
        "Change",
        {"Lease": "45s", "Backoff": "1s, 10m", "Filter on tags": "eu.*", "Order": "key"}
        | {"Retention waits": "true", "When a connection": "front", "Dead-letter": "orders.dead"}
        | {"Address": "https://shop.example/x", "Requests": "3", "Longest time": "5s"},
        "Change it",
        OF_GROUP,
        {"leaseMs": 45_000, "backoffMs": 1_000, "backoffMaxMs": 600_000, "filter": "eu.*"}
        | {"order": "key", "retain": True, "onLoss": "front", "ack": True},
        "Send its messages to a web server",
    ),
    "a new topic": Form(
        ("topics",),
        "New topic",
        {"Name": "made slowly", "Keep for": "12h", "Partitions": "2"},
        "Make it",
        {"topic": "made slowly"},
        {"retentionMs": 43_200_000, "partitionCount": 2},
    ),
    "a new group": Form(
        ("topics", "orders", "groups"),
        "New group",
        {"Name": "slow", "Leases": "true", "Attempts": "5", "Dead-letter": "orders.dead"},
        "Make it",
        {"topic": "orders", "consume_group": "slow"},
        {"maxAttempts": 5, "deadLetter": "orders.dead"},
    ),
    "where to read on": Form(
        ("topics", "orders", "groups", "moved"),
        "Seek",
        {"To": "2"},
        "Move it",
        {"topic": "orders", "consume_group": "moved"},
        {"messageCount": 3},
    ),
}


@pytest.fixture(
    scope="module",
    params=[
        pytest.param({"viewport": PHONE, "color_scheme": "dark"}, id="phone, dark"),
        *checked([{"viewport": DESKTOP, "color_scheme": "light"}]),
    ],
)
def look(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture(scope="module")
def broker(look: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("forms") / "data") as process:
        for topic in ("orders", "orders.dead"):
            ask(process, "declare", topic=topic)
        ask(process, "declare", **OF_GROUP, ack=1, group_max_attempts=9)
        ask(process, "declare", topic="orders", consume_group="moved")
        for number in range(5):
            ask(process, "produce", topic="orders", body=b"%d" % number)
        yield process


def fill(console: Console, typed: dict[str, str]) -> None:
    for label, text in typed.items():
        field = console.field(label)
        if field.evaluate("each => each.tagName") == "SELECT":
            field.select_option(text)
        else:
            field.clear()
            field.press_sequentially(text)


@pytest.mark.parametrize("name", FORMS)
def test_what_is_typed_slowly_is_what_is_done(
    console: Console, broker: BrokerProcess, name: str
) -> None:
    form = FORMS[name]
    console.move(*form.place)
    console.press(form.button)
    if form.more:
        console.page.locator("summary", has_text=form.more).click()
    fill(console, form.typed)
    console.moments(2)
    for label, text in form.typed.items():
        assert console.field(label).input_value() == text, label
    assert console.violations() == []
    console.press(form.submit)
    expect(console.page.get_by_role("dialog")).to_have_count(0)
    told = ask(broker, "query", **form.of)
    assert {key: told.get(key) for key in form.told} == form.told


@pytest.mark.parametrize("name", [name for name, form in FORMS.items() if form.button == "Change"])
def test_a_form_that_changes_nothing_says_so(console: Console, name: str) -> None:
    console.move(*FORMS[name].place)
    console.press("Change")
    console.moments(2)
    console.press("Change it")
    expect(console.page.get_by_role("dialog")).to_contain_text("Nothing is changed")
    console.press("Cancel")


@pytest.mark.parametrize("text", ["7 days", "1.5ms", "-1s", "1e3", "s"])
def test_what_is_no_duration_is_refused(console: Console, broker: BrokerProcess, text: str) -> None:
    before = ask(broker, "query", topic="orders")
    console.move("topics", "orders", "settings")
    console.press("Change")
    console.field("Keep for").fill(text)
    console.press("Change it")
    dialog = console.page.get_by_role("dialog")
    expect(dialog.get_by_role("alert")).to_contain_text("is not a duration such as")
    console.press("Cancel")
    assert ask(broker, "query", topic="orders") == before


def test_the_settings_of_a_webhook_are_shown(console: Console, broker: BrokerProcess) -> None:
    of: dict[str, Any] = {"topic": "orders", "consume_group": "hooked"}
    url = "https://shop.example/x"
    ask(broker, "declare", **of, push_url=url, push_concurrency=3, push_timeout="5s")
    console.move("topics", "orders", "groups", "hooked", "settings")
    shown = console.page.locator("main")
    for text in (url, "Requests at once3", "Longest time of a request5 s"):
        expect(shown).to_contain_text(text)
    console.press("Change")
    console.field("Address").clear()
    console.press("Change it")
    expect(console.page.get_by_role("dialog")).to_have_count(0)
    assert "push" not in ask(broker, "query", **of)


def test_a_message_with_all_that_it_may_have(console: Console, broker: BrokerProcess) -> None:
    console.move("topics", "orders.dead")
    console.press("Produce")
    console.page.locator("summary", has_text="Id, expiry").click()
    typed = {"Body": "hello", "Delay": "1h", "Id": "mine", "Expires": "2h", "Key": "k"}
    fill(console, typed)
    console.moments(2)
    console.press("Put the message")
    console.shows("Stored at offset 0.")
    (stored,) = ask(broker, "peek", topic="orders.dead", state="delayed")
    assert (stored["id"], stored["key"], stored["size"]) == ("mine", "k", 5)
    assert 3_500_000 < stored["until"] - stored["timestamp"] < 3_700_000

    console.press("Produce")
    console.page.locator("summary", has_text="Id, expiry").click()
    fill(console, {"Body": "report", "Schedule": "0 9 * * 1-5", "Time zone": "Europe/Berlin"})
    console.press("Put the message")
    console.shows("Stored in cron.orders.dead; it comes first at")
    console.page.get_by_role("link", name="Schedules").click()
    expect(console.page.locator("h1")).to_have_text("cron.orders.dead")
    expect(console.page.locator("tbody tr")).to_have_count(1)


def test_a_message_is_rescheduled_to_the_time_that_was_chosen(
    console: Console, broker: BrokerProcess
) -> None:
    ask(broker, "declare", topic="later")
    ask(broker, "declare", topic="later", consume_group="worker")
    ask(broker, "produce", topic="later", delay=60_000, body=b"x")
    console.move("topics", "later", "delayed")
    expect(console.page.get_by_label("Of group")).to_have_value("worker")  # that somebody asked for
    console.press("Reschedule")
    console.field("Due at").fill("2030-06-01T10:00:00")
    console.moments(3)  # the list is asked for every other second
    assert re.match("2030-06-01T10:00", console.field("Due at").input_value())
    console.press("Reschedule")
    console.shows("It is due then.")
    (row,) = ask(broker, "peek", topic="later", consume_group="worker", state="delayed")
    assert abs(row["until"] - 1_906_500_000_000) < 2 * 86_400_000
