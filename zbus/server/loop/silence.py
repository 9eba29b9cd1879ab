"""When a loop must say nothing: another broker may have taken its log over.

A process that was stopped, or cut off from its engine, finds out before it reads or sends anything.
Until it is certain again that the log is its own, only the engine's answers are taken. If that
takes too long, clients get errors, and the process gives up.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, Protocol

from zbus.wire.errors import WireError

if TYPE_CHECKING:
    from zbus.server.loop.socket_connection import SocketConnection

PAUSE_S: Final = 0.005

log = logging.getLogger("zbus")


class Ownership(Protocol):
    """Whether this process may speak for its log."""

    @property
    def is_certain(self) -> bool:
        """It is this process's now."""

    @property
    def is_late(self) -> bool:
        """That was not certain for so long that clients that wait get an error."""


class Silence:
    """See above."""

    def __init__(self, ownership: Ownership) -> None:
        self._ownership = ownership
        self._withheld: set[SocketConnection] = set()
        self._since_ms: int | None = None
        self.gave_up = False
        """The engine did not answer for too long."""

    @property
    def needed(self) -> bool:
        return not self._ownership.is_certain

    def begin(self, now_ms: int) -> None:
        """Nothing is said from this time of the loop on. It may have begun before."""
        if self._since_ms is None:
            self._since_ms = now_ms
            log.warning("ownership not confirmed; nothing is answered until it is")

    def withhold(self, links: Iterable[SocketConnection]) -> None:
        """These have replies that were made before it was known that nothing may be said."""
        self._withheld.update(links)

    def end(self, now_ms: int) -> None:
        """It was this process's log all the time: what was withheld is true."""
        self._withheld.clear()
        if self._since_ms is not None:
            log.info("ownership confirmed again", extra={"after_ms": now_ms - self._since_ms})
            self._since_ms = None

    def give_up(self, links: Iterable[SocketConnection]) -> list[SocketConnection]:
        """If it took too long: refuse what these connections wait for. Returns those whose replies
        may be wrong by now: they must be dropped."""
        if not self._ownership.is_late:
            return []
        self.gave_up = True
        wrong = []
        for link in list(links):
            if link in self._withheld:
                wrong.append(link)
            elif link.framing is None or not link.broken:
                link.refuse(WireError(503, "the storage engine does not answer"))
        return wrong
