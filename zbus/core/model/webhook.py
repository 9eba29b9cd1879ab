"""What a group says of the endpoint that its messages are pushed to, and how that goes. Who sends
them, and how, is the server's business (`zbus.server.push`).

Tests: `tests/conformance/test_webhooks.py`.
"""

from __future__ import annotations

from typing import Final

import attrs

CONCURRENCY: Final = 10
CONCURRENCY_MAX: Final = 100
TIMEOUT_MS: Final = 30_000
TIMEOUT_MS_MIN: Final = 100
TIMEOUT_MS_MAX: Final = 600_000
ENDPOINT_BYTES_MAX: Final = 2_000
SECRETS_MAX: Final = 4
SECRET_BYTES_MAX: Final = SECRETS_MAX * 100
"""Of all secrets together."""


@attrs.frozen
class Push:
    """An endpoint. Stored with the options of its group."""

    endpoint: str  # as the dialect that declared it and the server understand it
    secret: str = ""  # signs what is sent: `whsec_...`, several with spaces between; "" = unsigned
    concurrency: int = CONCURRENCY  # requests that may be open at once
    timeout_ms: int = TIMEOUT_MS  # for a whole request


@attrs.define
class PushState:
    """How pushing goes, since the start of the broker."""

    delivered: int = 0  # requests that the endpoint took
    failed: int = 0  # requests that it did not
    streak: int = 0  # of those, since it took one
    failing_ms: int = 0  # the first of the streak, epoch
    error: str = ""  # of the last of them
    gone: bool = False  # the endpoint said that it is gone for good, so its group was paused

    def took(self) -> None:
        self.delivered += 1
        self.streak = self.failing_ms = 0
        self.error = ""

    def refused(self, error: str, now_ms: int) -> None:
        self.failed += 1
        self.streak += 1
        self.failing_ms = self.failing_ms or now_ms
        self.error = error
