"""WebSockets of a real browser: JSON objects, HTTP messages in Binary frames, and the example."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.hostile import Site
from tests.process.broker import BrokerProcess

EXAMPLE = Path(__file__).parent.parent.parent / "examples/websocket"

TALK = """
async ([url, messages, replies]) => {
  const socket = new WebSocket(url);
  socket.binaryType = "arraybuffer";
  const got = [];
  return await new Promise((resolve) => {
    socket.onopen = () => {
      for (const text of messages) {
        socket.send(text.startsWith("{") ? text : new TextEncoder().encode(text));
      }
    };
    socket.onmessage = (event) => {
      const isText = typeof event.data === "string";
      const bytes = isText ? new TextEncoder().encode(event.data) : new Uint8Array(event.data);
      got.push([isText, btoa(String.fromCharCode(...bytes))]);
      if (got.length === replies) socket.close(1000, "enough");
    };
    socket.onclose = (event) => resolve([got, event.code, event.reason, event.wasClean]);
  });
}
"""


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with Site() as started:
        started.pages["/"] = (200, {}, "<!doctype html><link rel=icon href='data:,'>")
        for name, kind in (("page.html", "text/html"), ("broker.js", "text/javascript")):
            text = (EXAMPLE / name).read_text(encoding="utf-8")
            started.pages[f"/{name}"] = (200, {"content-type": f"{kind}; charset=utf-8"}, text)
        yield started


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, site: Site) -> Iterator[BrokerProcess]:
    data = tmp_path_factory.mktemp("broker") / "data"
    listed = f"cors_origins=http://app.test:{site.port}"
    with BrokerProcess(data, "--set", listed) as process:
        yield process
        assert process.stop() == 0
        assert "Traceback" not in process.log()


def talk(page: Page, site: Site, broker: BrokerProcess, *messages: str, replies: int) -> Any:
    """From a page that the broker lists."""
    page.goto(f"http://app.test:{site.port}/")
    url = f"ws://127.0.0.1:{broker.port}/"
    got, *close = page.evaluate(TALK, [url, list(messages), replies])
    return [(is_text, base64.b64decode(data)) for is_text, data in got], close


def test_json(page: Page, site: Site, broker: BrokerProcess) -> None:
    got, close = talk(
        page,
        site,
        broker,
        '{"cmd":"declare","topic":"Json","id":1}',
        '{"cmd":"produce","topic":"Json","id":2,"body":{"a":"ä"}}',
        '{"cmd":"consume","topic":"Json","id":3}',
        replies=3,
    )
    assert close == [1000, "", True]
    assert all(is_text for is_text, _ in got)
    delivery = next(data for _, data in got if b'"id":"3"' in data)
    assert '"body":{"a":"ä"}'.encode() in delivery


def test_http_in_binary_frames(page: Page, site: Site, broker: BrokerProcess) -> None:
    """As the stock JavaScript client sends it. What is not UTF-8 comes back as Binary."""
    assert broker.get("/Http?cmd=declare").status == 200
    assert broker.get("/Http", body=b"\xff\x00").status == 200
    got, close = talk(
        page,
        site,
        broker,
        "GET / HTTP/1.1\r\ncmd: consume\r\ntopic: Http\r\nid: 1\r\ncontent-length: 0\r\n\r\n",
        "GET / HTTP/1.1\r\ncmd: ping\r\nid: 2\r\n\r\n",
        replies=2,
    )
    assert close == [1000, "", True]
    by_form = dict(got)
    assert by_form[True].startswith(b"HTTP/1.1 200 OK\r\n")
    assert by_form[False].endswith(b"\r\n\r\n\xff\x00")


def test_a_bad_message_closes_with_a_reason(page: Page, site: Site, broker: BrokerProcess) -> None:
    got, close = talk(page, site, broker, "hello", replies=1)
    assert (got, close) == (
        [],
        [1007, "a frame is one HTTP message or one JSON object", True],
    )


def test_the_example(page: Page, site: Site, broker: BrokerProcess) -> None:
    target = f"/page.html?broker=ws://127.0.0.1:{broker.port}/"
    site.pages[target] = site.pages["/page.html"]
    url = f"http://app.test:{site.port}{target}"
    page.goto(url)
    expect(page.locator("#state")).to_have_text("connected")
    other = page.context.new_page()
    other.goto(url)
    expect(other.locator("#state")).to_have_text("connected")
    page.fill("input", "It <works>")
    page.click("button")
    for one in (page, other):
        expect(one.locator("#news li")).to_have_text(["It <works>"])
    assert (
        broker.get("/News", "content-type: application/json", body=b'{"title":"2"}').status == 200
    )
    for one in (page, other):
        expect(one.locator("#news li")).to_have_text(["2", "It <works>"])
    page.goto(f"http://foreign.test:{site.port}{target}")
    expect(page.locator("#state")).to_contain_text("closed: 1006")
