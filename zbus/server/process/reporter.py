"""Reporting to another server: when it is reached, with every change, and every 30 s.

It is to forget a broker whose connection ends, so there is nothing to say at the end. One report
is under way at a time: a slow server gets fewer, not more of them.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

import trio

from zbus.core.api import Changes

REPORT_EVERY_S = 30
RECONNECT_AFTER_S = 3
SEND_TIMEOUT_S = 30
"""Longest wait for a connection, and for a report to be taken."""

log = logging.getLogger("zbus")

Connect = Callable[[str, int], Awaitable[trio.abc.HalfCloseableStream]]


def split_address(address: str) -> tuple[str, int]:
    """Host and port of `host:port` or `[host]:port`."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


class Reporter:
    """Reports to one server, for as long as it runs."""

    def __init__(
        self,
        address: str,
        request: Callable[[], bytes],
        changes: Changes,
        connect: Connect = trio.open_tcp_stream,
    ) -> None:
        """`request` makes a report, as it is now."""
        self._address = address
        self._request = request
        self._changes = changes
        self._connect = connect
        self._seen = -1
        self._news = trio.Event()
        self._connected: bool | None = None  # as logged

    async def run(self) -> None:
        """Never returns."""
        self._changes.watch(self._look)
        try:
            while True:
                try:
                    await self._report()
                except* (OSError, trio.BrokenResourceError, trio.TooSlowError) as errors:
                    first = errors.exceptions[0]
                    self._report_state(False, str(first) or type(first).__name__)
                except* Exception:
                    log.exception("reporting failed", extra={"server": self._address})
                await trio.sleep(RECONNECT_AFTER_S)
        finally:
            self._changes.unwatch(self._look)

    def _look(self) -> None:
        """This broker's own changes count: those of others are not its business, and two brokers
        that report to each other would never come to rest."""
        if self._changes.count != self._seen:
            self._news.set()

    async def _report(self) -> None:
        """Until the connection ends."""
        with trio.fail_after(SEND_TIMEOUT_S):
            stream = await self._connect(*split_address(self._address))
        async with stream, trio.open_nursery() as nursery:
            self._report_state(True)
            nursery.start_soon(self._listen, stream, nursery.cancel_scope)
            while True:
                self._news = trio.Event()
                self._seen = self._changes.count
                with trio.fail_after(SEND_TIMEOUT_S):
                    await stream.send_all(self._request())
                with trio.move_on_after(REPORT_EVERY_S):
                    await self._news.wait()

    async def _listen(self, stream: trio.abc.HalfCloseableStream, scope: trio.CancelScope) -> None:
        """Reports are not answered, but for refusals: one of a connection is logged."""
        refused = False
        while data := await stream.receive_some(4096):
            line = data.partition(b"\r\n")[0][:80].decode("latin-1")
            if not refused:
                log.warning(
                    "a report is refused",
                    extra={"server": self._address, "why": line},
                )
            refused = True
        self._report_state(False, "it closed the connection")
        scope.cancel()

    def _report_state(self, connected: bool, why: str = "") -> None:
        """Log what is new."""
        if connected == self._connected:
            return
        self._connected = connected
        if connected:
            log.info("reporting", extra={"server": self._address})
        else:
            log.warning("not reporting", extra={"server": self._address, "why": why})
