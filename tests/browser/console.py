"""The console in a browser, and a watch over what it must never do.

No page may complain, run what a message brought, or ask anything of another host.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from playwright.sync_api import Browser, ConsoleMessage, Locator, Page, Request, expect

from tests.limits import WAIT_S
from tests.process.broker import BrokerProcess

expect.set_options(timeout=WAIT_S * 1_000)

AXE = Path(__file__).parent / "vendor" / "axe.min.js"

DESKTOP = {"width": 1280, "height": 860}
PHONE = {"width": 390, "height": 844}

TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
RULES = """async tags => (await axe.run(document, {runOnly: tags})).violations.map(found =>
  found.id + ': ' + found.nodes.map(node => node.target.join(' ') + ' '
    + (node.any[0]?.message ?? '')).join('; '))"""

MOMENTS = """async count => {
  const { live } = await import("/_console/live.js")
  const times = new Set([live.doc.time])
  while (times.size <= count) {
    await new Promise(done => setTimeout(done, 50))
    times.add(live.doc.time)
  }
  await new Promise(requestAnimationFrame)
}"""


def ask(broker: BrokerProcess, cmd: str, *lines: str, body: bytes = b"", **params: Any) -> Any:
    """A command of a program; its JSON, if it answers with some."""
    answer = broker.get("/?" + urlencode({"cmd": cmd, **params}), *lines, body=body)
    assert answer.status in (200, 204), (cmd, params, answer)
    kind = answer.headers.get("content-type", "")
    return json.loads(answer.body) if kind.startswith("application/json") else answer


def place(*parts: str) -> str:
    """An address within the console, as its links have it."""
    return "#/" + "/".join(quote(part, safe="") for part in parts)


class Console:
    """One page of it."""

    def __init__(self, page: Page, port: int) -> None:
        self.page = page
        self.url = f"http://127.0.0.1:{port}/_console/"
        self.problems: list[str] = []
        self.allowed: list[str] = []  # what the browser may complain of, by a part of its text
        # Names of topics and groups that a 404 may be about, in all tests that follow: the stream
        # may tell that one is gone before the page has left it, and the browser may say so of the
        # reply when the next test has begun.
        self.gone: set[str] = set()
        page.on("console", self._said)
        page.on("pageerror", lambda error: self.problems.append(f"error: {error}"))
        page.on("dialog", lambda dialog: self.problems.append(f"dialog: {dialog.message}"))
        page.on("request", self._asked)

    def _said(self, message: ConsoleMessage) -> None:
        if message.type not in ("error", "warning"):
            return
        text, url = message.text, message.location["url"]
        where = urlsplit(url)
        names = {*unquote(where.path).split("/"), *(value for _, value in parse_qsl(where.query))}
        gone = "404" in text and self.gone & names
        if not gone and not any(one in text for one in self.allowed):
            self.problems.append(f"{message.type}: {text} ({url})")

    def _asked(self, request: Request) -> None:
        ours = self.url.removesuffix("_console/")
        if not request.url.startswith((ours, f"blob:{ours}")):
            self.problems.append(f"asked of another host: {request.url}")

    def open(self, *parts: str) -> None:
        """Load it anew at one of its pages, and wait until that is there."""
        self.page.goto("about:blank")
        self.page.goto(self.url + place(*parts))
        self._arrive(parts)

    def move(self, *parts: str) -> None:
        """The same without loading it anew, as a link does."""
        self.page.evaluate("to => { location.hash = to }", place(*parts))
        self._arrive(parts)

    def _arrive(self, parts: tuple[str, ...]) -> None:
        expect(self.page.locator("main")).to_have_attribute("data-place", place(*parts))
        self.page.locator("main .card, main .problem").first.wait_for()

    def shows(self, text: str) -> None:
        """Wait until this can be read in it."""
        self.page.locator("#app").get_by_text(text).first.wait_for()

    @property
    def front(self) -> Locator:
        """What can be used: the dialog, if one is open."""
        return self.page.locator("dialog, #app:not(:has(dialog))")

    def press(self, name: str) -> None:
        self.front.get_by_role("button", name=name, exact=True).first.click()

    def field(self, label: str) -> Locator:
        """What is written into, by what its label begins with."""
        named = self.page.locator("span").filter(has_text=re.compile(f"^{label}\\b"))
        return (
            self.front.locator("label").filter(has=named).locator("input, textarea, select").first
        )

    def moments(self, count: int) -> None:
        """Wait until the broker has told so many more moments, and the page was drawn with each."""
        self.page.evaluate(MOMENTS, count)

    def violations(self) -> list[str]:
        if not self.page.evaluate("'axe' in window"):
            self.page.evaluate(AXE.read_text(encoding="utf-8"))
        found: list[str] = self.page.evaluate(RULES, TAGS)
        return found


@contextmanager
def console_of(browser: Browser, port: int, **options: Any) -> Iterator[Console]:
    """A console of its own, with no cookie of another; at the end it must have kept the rules."""
    options.setdefault("viewport", DESKTOP)
    context = browser.new_context(**options)
    context.set_default_timeout(WAIT_S * 1_000)
    console = Console(context.new_page(), port)
    try:
        yield console
        assert console.problems == []
    finally:
        context.close()
