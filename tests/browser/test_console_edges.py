"""The console where things go wrong: hostile messages, odd names, tokens, restarts, crowds."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.console import Console, ask, console_of
from tests.limits import SLOWNESS, checked
from tests.process.broker import BrokerProcess

RAN = "window.ran = 1; document.title = 'ran'"

HOSTILE = [
    f"<script>{RAN}</script>".encode(),
    f'<img src=x onerror="{RAN}">'.encode(),
    f'</pre></code></textarea><svg onload="{RAN}">'.encode(),
    f"<iframe srcdoc='<script>parent.{RAN}</script>'></iframe>".encode(),
    b"<link rel=stylesheet href=https://evil.test/x.css><meta http-equiv=refresh content=0>",
    b'{"__proto__": {"x": 1}, "constructor": "<b>", "html": "<script>window.ran = 1</script>"}',
    json.dumps({f"<img src=x onerror={RAN!r}>": [f"javascript:{RAN}"]}).encode(),
    b'{"type": "img", "props": {"src": "x", "onerror": "window.ran = 1"}, "__v": 1, "__k": null}',
    b"[" * 50_000 + b"]" * 50_000,
    bytes(range(256)),
    "\u202eevil\u200b\u0000\ufeff \U0001f4a9".encode(),
    b"\xff\xfe<\x00s\x00c\x00r\x00i\x00p\x00t\x00>",
    b"${7*7} {{7*7}} `${document.title='ran'}`",
]

NAMES = [
    "#?&=;:@!$'()*,~[]{}|^`<>\" a+b%20d%zz%",
    "__proto__",
    "queue",
    "ünï-ﬀ-日本-\U0001f4a9",
    "<img src=x onerror=document.title='ran'>",
    "%2e%2e%2f",
    "_console",
    "constructor",
    "x" * 200,
]
"""Each is a topic and a group."""

TOKENS = """
[[token]]
name = "Anna <b>"
sha256 = "{anna}"
operations = ["server", "query", "produce", "consume"]
expires = {expires}
[token.topics]
"orders" = []

[[token]]
name = "admin"
sha256 = "{admin}"
operations = ["admin"]
"""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    data = tmp_path_factory.mktemp("edges") / "data"
    limits = ("--set", "message_bytes_max=16777216", "--set", "body_bytes_max=16777216")
    with BrokerProcess(data, *limits) as process:
        yield process


def test_a_message_runs_nothing(console: Console, broker: BrokerProcess) -> None:
    page = console.page
    ask(broker, "declare", topic="hostile", sender_headers=1)
    script = f"<script>{RAN}</script>"
    for body in HOSTILE:
        kind = f"content-type: text/html{script}"
        ask(broker, "produce", kind, f"x: {script}", topic="hostile", tag=script[:100], body=body)
    console.move("topics", "hostile")
    rows = page.locator(".log .row")
    expect(rows).to_have_count(len(HOSTILE))
    for at in range(len(HOSTILE)):
        rows.nth(at).click()
        shown = page.locator(".body")
        expect(shown).to_have_count(1)
        for button in shown.locator(".choice button").all():
            button.click()
            expect(shown.locator(".code")).to_have_count(1)
        expect(page.locator(".log .open")).to_contain_text(script)  # its header
        rows.nth(at).click()
    assert page.evaluate("[window.ran, document.title.includes('ran')]") == [None, False]
    kinds = page.locator("main").locator("script, img, iframe, svg, link, meta, style")
    assert kinds.count() == 0


def test_no_text_can_become_markup(console: Console) -> None:
    """Not even by a mistake of the console's own scripts."""
    console.allowed = ["TrustedHTML", "Content Security Policy"]
    page = console.page
    script = "() => { try { document.body.innerHTML = '<b>' } catch (error) { return error.name } }"
    assert page.evaluate(script) == "TypeError"
    style = "() => { document.body.setAttribute('style', 'opacity: 0') }"
    page.evaluate(style)
    assert page.evaluate("getComputedStyle(document.body).opacity") == "1"


def test_a_download_stays_a_download(console: Console, broker: BrokerProcess) -> None:
    page = console.page
    ask(broker, "declare", topic="pages")
    ask(broker, "produce", "content-type: text/html", topic="pages", body=HOSTILE[0])
    console.move("topics", "pages")
    page.locator(".log .row").first.click()
    with page.expect_download() as download:
        page.get_by_role("link", name="Download").click()
    assert Path(download.value.path()).read_bytes() == HOSTILE[0]


def test_a_large_body_comes_when_it_is_wanted(console: Console, broker: BrokerProcess) -> None:
    page = console.page
    ask(broker, "declare", topic="large")
    ask(broker, "produce", topic="large", body=b"<b>" + b"x" * ((16 << 20) - 3))
    sizes: list[int] = []
    page.on("response", lambda reply: sizes.append(int(reply.headers.get("content-length", "0"))))
    console.move("topics", "large")
    page.locator(".log .row").first.click()
    console.shows("16.0 MiB, the first 512 B of it")
    console.press("Load 1.0 MiB")
    console.shows("16.0 MiB, the first 1.0 MiB of it")
    assert (1 << 20) < max(sizes) < (2 << 20), "and no more"
    shown = page.get_by_role("region", name="Body as text")
    assert len(shown.inner_text()) == 64 << 10
    console.press("Show more")
    expect(shown).to_have_text("<b>" + "x" * ((5 * 64 << 10) - 3))


@pytest.mark.parametrize("name", [*NAMES[:1], *checked(NAMES[1:])])
def test_a_name_may_be_any(console: Console, broker: BrokerProcess, name: str) -> None:
    console.gone.add(name)
    page = console.page
    console.move("topics")
    console.press("New topic")
    console.field("Name").fill(name)
    console.press("Make it")
    expect(page.locator("h1")).to_have_text(name)
    console.press("Produce")
    console.field("Body").fill("hello")
    console.press("Put the message")
    page.locator(".log .row").first.click()
    page.get_by_role("link", name="Why is it (not) delivered?").click()
    console.field("Offset").wait_for()
    assert console.field("Topic").input_value() == name
    console.press("Why?")
    page.locator(".sentence").wait_for()
    page.get_by_role("link", name="the group", exact=True).click()
    expect(page.locator("h1")).to_have_text(name)
    console.shows("offset 0 of partition 0")
    console.press("Pause")
    expect(page.locator(".badges")).to_contain_text("paused")
    assert name in ask(broker, "query", names=1)
    console.move("topics")
    page.get_by_role("searchbox").fill(name)
    page.get_by_role("link", name=name, exact=True).first.click()
    console.press("Remove")
    console.field("Type").fill(name)
    console.press("Remove")
    console.shows("The topic is gone.")
    assert name not in ask(broker, "query", names=1)
    assert page.title() == "Topics · zbus"


def test_a_broker_that_restarts(browser: Browser, tmp_path: Path) -> None:
    data = tmp_path / "data"
    broker = BrokerProcess(data)
    with console_of(browser, broker.port) as console:
        console.allowed = ["ERR_"]  # the browser says itself that nobody answers
        page = console.page
        ask(broker, "declare", topic="orders")
        console.open("topics", "orders")
        expect(page.locator(".state")).to_have_text("Live")
        broker.kill()
        console.shows("The broker cannot be reached.")
        expect(page.locator("h1")).to_have_text("orders")  # what was seen stays
        with BrokerProcess(data, port=broker.port) as again:
            expect(page.locator(".state")).to_have_text("Live")
            expect(page.locator(".banner")).to_have_count(0)
            ask(again, "produce", topic="orders", body=b"after the restart")
            console.shows("after the restart")


def write_tokens(file: Path, left: timedelta) -> None:
    expires = (datetime.now(UTC) + left).strftime("%Y-%m-%dT%H:%M:%SZ")
    digests = {name: sha256(name.encode()).hexdigest() for name in ("anna", "admin")}
    file.write_text(TOKENS.format(expires=expires, **digests))
    file.chmod(0o600)


def test_a_token_its_rights_and_its_end(browser: Browser, tmp_path: Path) -> None:
    file = tmp_path / "tokens.toml"
    write_tokens(file, timedelta(days=1))
    with (
        BrokerProcess(tmp_path / "data", "--token-file", str(file)) as broker,
        console_of(browser, broker.port) as console,
    ):
        console.allowed = ["403"]  # the browser says so of any such reply
        for topic in ("orders", "secret"):
            ask(broker, "declare", "token: admin", topic=topic)
        page = console.page
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.goto(f"http://127.0.0.1:{broker.port}/")
        console.shows("This broker wants to know who you are.")
        page.wait_for_function("() => performance.now() > 1000")
        assert sum(url.endswith("/_rights") for url in asked) <= 2, "it waits for a token"
        assert console.violations() == []
        console.field("Token").fill("wrong")
        console.press("Log in")
        console.shows("This broker does not know that token")
        console.field("Token").fill("anna")
        console.press("Log in")
        console.shows("Busiest topics")
        page.locator("summary", has_text="Anna <b>").click()
        console.shows("may do consume, produce, query, server, on orders.")
        assert console.violations() == []

        console.move("topics")
        expect(page.locator("td.name")).to_have_text(["orders"])
        expect(page.get_by_role("button", name="New topic")).to_have_count(0)
        console.move("topics", "orders")
        console.shows("There are no messages.")
        expect(page.locator(".head button")).to_have_text(["Produce"])
        console.move("topics", "orders", "groups", "orders")
        expect(page.locator(".head button")).to_have_count(0)
        console.move("connections")
        console.shows("Connections are shown to whoever may see every topic.")

        write_tokens(file, timedelta(seconds=-60))
        os.kill(broker.process.pid, signal.SIGHUP)
        console.shows("Your token is not taken any more")
        write_tokens(file, timedelta(days=1))
        os.kill(broker.process.pid, signal.SIGHUP)
        for _ in range(1_000):
            if broker.get("/_rights", "token: anna").status == 200:
                break
        console.field("Token").fill("anna")
        console.press("Log in")
        console.shows("Connections are shown to whoever may see every topic.")  # where it was

        page.locator("summary", has_text="Anna <b>").click()
        console.press("Log out")
        console.shows("This broker wants to know who you are.")
        assert page.context.cookies() == []


@pytest.mark.check
def test_ten_thousand_topics(browser: Browser, tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        wire = broker.connect()
        for number in range(10_000):
            assert wire.get(f"/topic-{number:05}?cmd=declare&durability=memory").status == 200
        wire.close()
        with console_of(browser, broker.port) as console:
            page = console.page
            page.goto("about:blank")
            start_s = time.perf_counter()
            page.goto(console.url + "#/topics")
            page.locator("tbody tr").first.wait_for()
            shown_s = time.perf_counter() - start_s
            start_s = time.perf_counter()
            page.get_by_role("searchbox").fill("9876")
            expect(page.locator("tbody tr")).to_have_count(1)
            found_s = time.perf_counter() - start_s
            page.get_by_role("searchbox").fill("")
            start_s = time.perf_counter()
            console.press("Next")
            console.shows("Page 2 of 200")
            paged_s = time.perf_counter() - start_s
            print(f"10,000 topics: {shown_s:.2f} s, search {found_s:.2f} s, page {paged_s:.2f} s")
            assert max(shown_s, found_s, paged_s) < 1.0 * SLOWNESS
