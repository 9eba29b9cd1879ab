"""The browser of these tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from tests.browser.chromium import find_chromium
from tests.limits import WAIT_S

OPTIONS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP *.test 127.0.0.1",
]


@pytest.fixture(scope="module")
def chromium() -> str:
    return find_chromium()


@pytest.fixture(scope="module")
def browser(chromium: str) -> Iterator[Browser]:
    """Not one for the session: as long as playwright is there, its event loop is running in this
    thread, and tests of other folders could not run one of their own."""
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium, args=OPTIONS)
        yield started
        started.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    context = browser.new_context()
    context.set_default_timeout(WAIT_S * 1_000)
    yield context.new_page()
    context.close()
