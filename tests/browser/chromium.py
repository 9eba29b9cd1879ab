"""Which browser tests drive, and how it is started."""

from __future__ import annotations

import shutil
from contextlib import ExitStack
from functools import cache
from typing import Final

from playwright.sync_api import Browser, Playwright, sync_playwright

WHOLE: Final = ("chromium", "chromium-browser", "google-chrome")
QUICK: Final = ("chromium-headless-shell", *WHOLE)
"""The first has no window, fetches no icons, and takes half the processor time of the others."""

OPTIONS: Final = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP *.test 127.0.0.1",
    "--js-flags=--no-opt",  # what is compiled for speed would have to run for longer
]

_open = ExitStack()


@cache
def _playwright() -> Playwright:
    return _open.enter_context(sync_playwright())


@cache
def launched(names: tuple[str, ...] = QUICK) -> Browser:
    """One for all tests, until `close`."""
    program = next(filter(None, map(shutil.which, names)), None)
    assert program, "Chromium is missing: `make test` installs it"
    found = _playwright().chromium.launch(executable_path=program, args=OPTIONS)
    _open.callback(found.close)
    return found


def close() -> None:
    for each in (launched, _playwright):
        each.cache_clear()
    _open.close()
