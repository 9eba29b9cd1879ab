"""Logging in with a real browser: the cookie, what it shows, and who cannot have it."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest
from playwright.sync_api import Page

from tests.process.broker import BrokerProcess

TOKENS = f"""
[[token]]
name = "Anna <b>"
sha256 = "{sha256(b"anna's +token%41;").hexdigest()}"
operations = ["home", "query", "produce", "consume"]
[token.topics]
Orders = []

[[token]]
name = "admin"
sha256 = "{sha256(b"admin").hexdigest()}"
operations = ["admin"]
"""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    file = tmp_path / "tokens.toml"
    file.write_text(TOKENS)
    file.chmod(0o600)
    with BrokerProcess(tmp_path / "data", "--token-file", str(file)) as process:
        for topic in ("Orders", "Secret"):
            assert process.get(f"/{topic}?cmd=declare", "token: admin").status == 200
        yield process


def log_in(page: Page, token: str) -> None:
    page.fill("input[name=token]", token)
    with page.expect_navigation():
        page.click("button")


def test_logging_in_and_out(page: Page, broker: BrokerProcess) -> None:
    home = f"http://127.0.0.1:{broker.port}/"
    page.goto(home + "?cmd=server")
    assert page.url == home + "?cmd=login"
    log_in(page, "wrong")
    assert page.url == home + "?cmd=login"
    assert "does not know that token" in page.inner_text("body")
    assert page.context.cookies() == []

    log_in(page, "anna's +token%41;")
    assert page.url == home + "_console/"
    page.goto(home + "?cmd=query")
    text = page.inner_text("body")
    assert "Orders" in text
    assert "Secret" not in text
    page.goto(home + "_rights")
    assert "Anna <b>" in page.inner_text("body")
    (cookie,) = page.context.cookies()
    assert (cookie["name"], cookie["httpOnly"], cookie["sameSite"]) == ("token", True, "Strict")

    answer = page.goto(home + "Orders?body=hello")
    assert answer is not None
    assert answer.status == 200
    page.goto(home + "Orders?cmd=consume")
    assert page.inner_text("body") == "hello"
    page.goto(home + "Secret?cmd=query")
    assert page.inner_text("body") == "404: Topic(Secret) Not Found"

    page.goto(home + "?cmd=logout")
    assert page.url == home + "?cmd=login"
    assert page.context.cookies() == []
    page.goto(home + "Orders?cmd=query")
    assert page.url == home + "?cmd=login"


def test_a_token_in_the_url_is_refused(page: Page, broker: BrokerProcess) -> None:
    page.goto(f"http://127.0.0.1:{broker.port}/Orders?cmd=query&token=admin")
    text = "403: a token in the URL is not taken here: send it as a header or cookie"
    assert page.inner_text("body") == text
