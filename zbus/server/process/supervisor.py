"""Messages to systemd (sd_notify(3)): that the broker is ready, reloads or stops, and that its
loop turns. A loop that does not turn any more is restarted by `WatchdogSec=`."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping
from contextlib import suppress

_SHARE = 2
"""The loop says that it turns that often in the time after which it is taken for stuck."""


class Supervisor:
    """Silent unless `NOTIFY_SOCKET` is set; a message that cannot be sent is not waited for."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        path = environment.get("NOTIFY_SOCKET", "")
        self._address = "\0" + path[1:] if path.startswith("@") else path
        text = environment.get("WATCHDOG_USEC", "")
        mine = environment.get("WATCHDOG_PID") in (None, "", str(os.getpid()))
        self._watchdog_s = int(text) / 1e6 if text.isdecimal() and mine else 0.0
        self._next_s = 0.0

    def ready(self, topics: int) -> None:
        """All addresses are listened on."""
        self._notify(f"READY=1\nSTATUS=serves {topics} topics")

    def waiting(self) -> None:
        """Another broker owns the data: this one is ready to take it over."""
        self._notify("READY=1\nSTATUS=standby")

    def reloading(self) -> None:
        """Files are being loaded again; `ready` comes after."""
        self._notify(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1_000}")

    def stopping(self) -> None:
        """No more requests are taken."""
        self._notify("STOPPING=1\nSTATUS=answers what is open")

    def turns(self) -> None:
        """The loop turns. To be called about once a second."""
        now_s = time.monotonic()
        if self._watchdog_s and now_s >= self._next_s:
            self._next_s = now_s + self._watchdog_s / _SHARE - 1.0
            self._notify("WATCHDOG=1")

    def _notify(self, text: str) -> None:
        if not self._address:
            return
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as socket_:
            socket_.setblocking(False)
            socket_.sendto(text.encode(), self._address)
