"""The browser of these tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from tests.browser.chromium import close, launched
from tests.browser.console import Console, console_of
from tests.limits import WAIT_S
from tests.process.broker import BrokerProcess


@pytest.fixture(scope="module")
def browser() -> Browser:
    return launched()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """As long as playwright is there, its event loop is running in this thread, and tests of other
    folders could not run one of their own."""
    try:
        return (yield)
    finally:
        if nextitem is None or nextitem.path.parent != item.path.parent:
            close()


pytest_sessionfinish = close  # if it was interrupted


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    context = browser.new_context()
    context.set_default_timeout(WAIT_S * 1_000)
    yield context.new_page()
    context.close()


@pytest.fixture(scope="module")
def look() -> dict[str, Any]:
    """Of a page of the console."""
    return {}


@pytest.fixture(scope="module")
def opened(browser: Browser, broker: BrokerProcess, look: dict[str, Any]) -> Iterator[Console]:
    with console_of(browser, broker.port, **look) as console:
        console.open()
        yield console


@pytest.fixture
def console(opened: Console) -> Iterator[Console]:
    """One for all tests of a file; where the test before has left it."""
    yield opened
    assert opened.problems == []
    opened.allowed = []
