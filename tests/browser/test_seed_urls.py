"""The URLs of the seed document, typed into a real browser."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page

from tests.process.broker import BrokerProcess, Wire, request


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data") as process:
        yield process


def visit(page: Page, broker: BrokerProcess, target: str) -> tuple[int, str]:
    """Type a URL; the status and the text that a person sees."""
    answer = page.goto(f"http://127.0.0.1:{broker.port}{target}")
    assert answer is not None
    return answer.status, page.inner_text("body")


def test_the_urls_of_the_seed(page: Page, broker: BrokerProcess) -> None:
    status, text = visit(page, broker, "/MyTopic?cmd=declare")
    document = json.loads(text)
    assert (status, document["topicName"]) == (200, "MyTopic")
    assert [group["groupName"] for group in document["consumeGroupList"]] == ["MyTopic"]

    status, text = visit(page, broker, "/MyTopic/group1?cmd=declare")
    assert (status, json.loads(text)["groupName"]) == (200, "group1")
    status, text = visit(page, broker, "/MyTopic/group1?cmd=declare&group_filter=abc&group_mask=16")
    assert (json.loads(text)["filter"], json.loads(text)["mask"]) == ("abc", 16)

    assert visit(page, broker, "/MyTopic?tag=abc&body=hello from the address bar")[0] == 200
    status, text = visit(page, broker, "/MyTopic?cmd=consume")
    assert (status, text) == (200, "hello from the address bar")
    status, text = visit(page, broker, "/MyTopic/group1?cmd=consume")
    assert (status, text) == (200, "hello from the address bar")

    status, text = visit(page, broker, "/MyTopic?cmd=query")
    assert json.loads(text)["messageDepth"] == 1
    status, text = visit(page, broker, "/MyTopic/group1?cmd=query")
    assert json.loads(text)["messageCount"] == 0
    assert visit(page, broker, "/MyTopic/group1?cmd=remove")[0] == 200
    assert visit(page, broker, "/MyTopic/group1?cmd=query")[0] == 404
    assert visit(page, broker, "/MyTopic?cmd=remove")[0] == 200
    status, text = visit(page, broker, "/MyTopic?cmd=query")
    assert (status, text) == (404, "404: Topic(MyTopic) Not Found")


def serve_plus(wire: Wire) -> None:
    """A service that adds, for one call."""
    wire.send(
        b"GET / HTTP/1.1\r\ncmd: consume\r\ntopic: myrpc\r\nid: pull\r\ncontent-length: 0\r\n\r\n"
    )
    call = wire.read()
    asked = json.loads(call.body)
    assert asked["method"] == "plus"
    body = json.dumps(sum(asked["params"])).encode()
    head = (
        f"GET / HTTP/1.1\r\ncmd: route\r\nrecver: {call.headers['sender']}\r\n"
        f"id: {call.headers['origin_id']}\r\norigin_status: 200\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    wire.send(head.encode() + body)


def test_rpc_by_url(page: Page, broker: BrokerProcess) -> None:
    assert broker.get("/myrpc?cmd=declare&topic_mask=3").status == 200
    wire = broker.connect()
    service = threading.Thread(target=serve_plus, args=(wire,))
    service.start()
    assert visit(page, broker, "/myrpc/plus/1/2") == (200, "3")
    service.join()


def test_a_script_of_another_page_reads_nothing(page: Page, broker: BrokerProcess) -> None:
    """No CORS header is sent, so that only pages of the broker itself read its replies."""
    page.goto("about:blank")
    outcome = page.evaluate(
        "url => fetch(url).then(() => 'read', () => 'refused')",
        f"http://127.0.0.1:{broker.port}/?cmd=version",
    )
    assert outcome == "refused"


def test_the_broker_answers_after_all_this(broker: BrokerProcess, tmp_path: Path) -> None:
    wire = broker.connect()
    wire.send(request("/?cmd=ping"))
    assert wire.read().status == 200
    assert broker.stop() == 0
    assert "Traceback" not in broker.log()
