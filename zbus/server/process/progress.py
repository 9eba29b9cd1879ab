"""How far the broker is while it opens its logs, logged if that takes long."""

from __future__ import annotations

import logging
import time

PROGRESS_EVERY_S = 2.0

log = logging.getLogger("zbus")


class Progress:
    """Tells how far opening is, if it takes long."""

    def __init__(self) -> None:
        self._next_s = time.monotonic() + PROGRESS_EVERY_S

    def report(self, done: int, total: int) -> None:
        now = time.monotonic()
        if now >= self._next_s:
            self._next_s = now + PROGRESS_EVERY_S
            log.info("opening", extra={"topics": f"{done} of {total}"})
