"""Which browser tests drive."""

from __future__ import annotations

import shutil
from typing import Final

WHOLE: Final = ("chromium", "chromium-browser", "google-chrome")
QUICK: Final = ("chromium-headless-shell", *WHOLE)
"""The first has no window, fetches no icons, and takes half the processor time of the others."""


def find_chromium(names: tuple[str, ...] = QUICK) -> str:
    found = next(filter(None, map(shutil.which, names)), None)
    assert found, "Chromium is missing: `make test` installs it"
    return found
