"""What browsers may do here: typed addresses, our own page, pages that are listed. And that what
others put into the broker is shown, not run."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest
from playwright.sync_api import Page

from tests.browser.hostile import Site
from tests.process.broker import BrokerProcess

OUTSIDE = "http://127.0.0.1:{}"
SCRIPT = "<script>document.title = 'run'; fetch('/T?cmd=remove')</script><h1>hello</h1>"


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with Site() as started:
        started.pages["/"] = (200, {}, "<!doctype html><link rel=icon href='data:,'><body>")
        yield started


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, site: Site) -> Iterator[BrokerProcess]:
    data = tmp_path_factory.mktemp("broker") / "data"
    listed = f"cors_origins=http://app.test:{site.port}"
    with BrokerProcess(data, "--set", listed) as process:
        yield process


def bodies(broker: BrokerProcess, topic: str) -> list[bytes]:
    found = []
    while (answer := broker.get(f"/{topic}?cmd=consume&timeout=0")).status == 200:
        found.append(answer.body)
    return found


def test_a_page_that_is_loaded_again_puts_once(page: Page, broker: BrokerProcess) -> None:
    assert broker.get("/R?cmd=declare").status == 200
    url = f"http://127.0.0.1:{broker.port}/R?body="
    page.goto(url + "a")
    answer = page.reload()
    assert answer is not None
    assert (answer.status, answer.headers["duplicate"]) == (200, "1")
    page.goto(url + "b")
    assert bodies(broker, "R") == [b"a", b"b"]


PUT_AND_TAKE = """async broker => {
  await fetch(broker + '/C?cmd=declare');
  const put = await fetch(broker + '/C', {
    method: 'POST', body: 'from a page', credentials: 'include',
    headers: {tag: 'x', 'content-type': 'text/x'},
  });
  const taken = await fetch(broker + '/C', {headers: {cmd: 'consume', topic: 'C', id: '7'}});
  const names = ['id', 'tag', 'offset'];
  return [put.status, put.headers.get('offset'), await taken.text(),
          ...names.map(name => taken.headers.get(name))];
}"""


def test_a_listed_page_puts_and_takes(page: Page, broker: BrokerProcess, site: Site) -> None:
    page.goto(f"http://app.test:{site.port}/")
    found = page.evaluate(PUT_AND_TAKE, f"http://127.0.0.1:{broker.port}")
    assert found == [200, "0", "from a page", "7", "x", "0"]


SPEAK = """url => new Promise((done, failed) => {
  const socket = new WebSocket(url);
  socket.onerror = () => done('refused');
  socket.onopen = () => socket.send(JSON.stringify({cmd: 'version', id: 7}));
  socket.onmessage = frame => done(JSON.parse(frame.data).status);
})"""


def test_pages_that_may_open_a_websocket(page: Page, broker: BrokerProcess, site: Site) -> None:
    socket = f"ws://127.0.0.1:{broker.port}/"
    for host, outcome in (("app.test", 200), ("evil.test", "refused"), ("127.0.0.1", "refused")):
        page.goto(f"http://{host}:{site.port}/")
        assert page.evaluate(SPEAK, socket) == outcome, host


def test_the_same_page_elsewhere_does_not(page: Page, broker: BrokerProcess, site: Site) -> None:
    page.goto(f"http://127.0.0.1:{site.port}/")
    outcome = page.evaluate(
        "url => fetch(url).then(() => 'read', () => 'refused')",
        f"http://127.0.0.1:{broker.port}/?cmd=version",
    )
    assert outcome == "refused"


@pytest.mark.parametrize("kind", ["text/html", "image/svg+xml", "application/xhtml+xml", "", "x"])
def test_a_message_is_shown_as_text(page: Page, broker: BrokerProcess, kind: str) -> None:
    broker.get("/T?cmd=declare")
    lines = ("set-cookie: a=b; path=/", "refresh: 0; url=/T?cmd=remove", "link: </T>; rel=prefetch")
    types = (f"content-type: {kind}",) if kind else ()
    assert broker.connect().get("/T", *types, *lines, body=SCRIPT.encode()).status == 200
    page.goto(f"http://127.0.0.1:{broker.port}/T?cmd=consume")
    assert page.title() != "run"
    assert page.inner_text("body") == SCRIPT
    assert page.context.cookies() == []
    assert page.evaluate("origin") == "null", "of no site"
    assert broker.get("/T?cmd=query").status == 200


def test_what_a_service_answers_is_a_page_without_powers(page: Page, broker: BrokerProcess) -> None:
    broker.get("/T?cmd=declare")
    assert broker.get("/web?cmd=declare&topic_mask=3").status == 200
    service = broker.connect()
    service.send(b"GET / HTTP/1.1\r\ncmd: consume\r\ntopic: web\r\nid: p\r\n\r\n")
    with page.expect_response("**/web/index") as answered:
        page.evaluate("url => { location = url }", f"http://127.0.0.1:{broker.port}/")
        page.wait_for_url("**/")
        page.evaluate("location = '/web/index'")
        call = service.read()
        head = (
            f"GET / HTTP/1.1\r\ncmd: route\r\nrecver: {call.headers['sender']}\r\n"
            f"id: {call.headers['origin_id']}\r\ncontent-type: text/html\r\n"
            f"content-length: {len(SCRIPT)}\r\n\r\n{SCRIPT}"
        )
        service.send(head.encode())
    assert answered.value.status == 200
    page.wait_for_selector("h1")
    assert (page.title(), page.inner_text("h1")) == ("", "hello")
    assert page.evaluate("origin") == "null"
    assert broker.get("/T?cmd=query").status == 200


TOKENS = f"""
[[token]]
name = "me"
sha256 = "{sha256(b"secret").hexdigest()}"
operations = ["*"]
topics = {{ "*" = ["*"] }}
"""


def test_logging_in_by_form(page: Page, site: Site, tmp_path: Path) -> None:
    file = tmp_path / "tokens.toml"
    file.write_text(TOKENS)
    file.chmod(0o600)
    with BrokerProcess(tmp_path / "data", "--set", f"token_file={file}") as broker:
        home = f"http://127.0.0.1:{broker.port}/"
        form = f"<form method=post action='{home}?cmd=login'><input name=token value=secret></form>"
        site.pages["/login"] = (200, {}, form + "<script>document.forms[0].submit()</script>")
        with page.expect_response("**/?cmd=login") as answered:
            page.goto(f"http://evil.test:{site.port}/login", wait_until="commit")
        page.wait_for_url("**/?cmd=login")
        assert answered.value.status == 403, "nobody is logged in by others"
        assert page.context.cookies() == []

        page.goto(f"{home}?cmd=login")
        page.fill("input", "secret")
        page.click("button")
        page.wait_for_url(f"{home}_console/")
        answer = page.goto(f"{home}T?cmd=declare")
        assert answer is not None
        assert answer.status == 200
