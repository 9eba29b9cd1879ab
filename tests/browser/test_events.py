"""A browser's own EventSource on a topic, and over a restart of the broker."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Page

from tests.process.broker import BrokerProcess

EXAMPLE = Path(__file__).parent.parent.parent / "examples/live.html"

LISTEN = """
url => {
  window.told = []
  window.opened = 0
  const source = window.source = new EventSource(url)
  source.onopen = () => window.opened++
  source.onmessage = event => window.told.push([event.lastEventId, event.data])
  for (const type of ["base64", "skipped", "end"])
    source.addEventListener(type, event => window.told.push([type, event.data]))
}
"""


def put(broker: BrokerProcess, body: bytes, topic: str = "T") -> None:
    assert broker.get(f"/{topic}?cmd=produce", body=body).status == 200


def wait_for(page: Page, count: int) -> list[list[str]]:
    page.wait_for_function(f"told.length >= {count}")
    told: list[list[str]] = page.evaluate("told")
    return told


def test_an_event_source_over_a_restart(page: Page, tmp_path: Path) -> None:
    """The browser connects again by itself, and says where it was."""
    with BrokerProcess(tmp_path / "data") as broker:
        port = broker.port
        broker.get("/T?cmd=declare")
        put(broker, b"before")
        page.route("**/page.html", lambda route: route.fulfill(body="", content_type="text/html"))
        page.goto(f"http://127.0.0.1:{port}/page.html")
        page.evaluate(LISTEN, "/T?cmd=consume&offset=begin")
        assert wait_for(page, 1) == [["0", "before"]]
        put(broker, "zeile eins\r\nzwei\r\u00fc\n".encode())
        put(broker, b"\xff")
        put(broker, b"")
        assert wait_for(page, 4)[1:] == [
            ["1", "zeile eins\nzwei\n\u00fc\n"],
            ["base64", "/w=="],
            ["3", ""],
        ]
        assert broker.stop() == 0
        assert wait_for(page, 5)[4] == ["end", "503: the broker is stopping"]
    with BrokerProcess(tmp_path / "data", port=port) as broker:
        put(broker, b"after")
        assert wait_for(page, 6)[5:] == [["4", "after"]]
        assert page.evaluate("opened") == 2
        broker.kill()
    with BrokerProcess(tmp_path / "data", port=port) as broker:
        put(broker, b"and after a crash")
        assert wait_for(page, 7)[6:] == [["5", "and after a crash"]]
        broker.get("/T?cmd=remove")
        assert wait_for(page, 8)[7:] == [["end", "404: Topic(T) Not Found"]]
        page.wait_for_function("source.readyState == EventSource.CLOSED")


def test_the_example_page(page: Page, tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        broker.get("/News?cmd=declare")
        origin = f"http://127.0.0.1:{broker.port}"
        text = EXAMPLE.read_text(encoding="utf-8")
        page.route(
            "**/live.html*", lambda route: route.fulfill(body=text, content_type="text/html")
        )
        page.goto(f"{origin}/live.html?topic=News")
        for body in (b"first", b"<b>second</b>"):
            put(broker, body, "News")
        page.wait_for_function("document.querySelectorAll('li').length == 2")
        assert page.locator("li").all_inner_texts() == ["first", "<b>second</b>"]
