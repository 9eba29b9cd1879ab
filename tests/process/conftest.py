"""What the processes that tests start inherit."""

from __future__ import annotations

import signal


def pytest_configure() -> None:
    """A shell starts what it runs in the background with SIGINT ignored, and that is inherited by
    all that is started from there: then a program that is to end by it would not."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
