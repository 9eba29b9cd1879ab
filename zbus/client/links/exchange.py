"""What a connection carries, without IO: requests and answers (`RequestTracker`), or the events of
a watch (`Watching`)."""

from __future__ import annotations

from typing import Protocol

from zbus.client.links.attempts import Attempts


class Exchange(Protocol):
    """Whoever has the connection hands it what came, and sends what it gives."""

    attempts: Attempts
    has_news: bool
    """Something is to be sent that no caller is about to flush."""

    @property
    def patience_s(self) -> float:
        """How long nothing may come on a connection."""

    @property
    def out_count(self) -> int:
        """How much `take` has not taken yet."""

    def take(self) -> bytes:
        """All that is to be sent now."""

    def connected(self) -> None:
        """There is a new connection."""

    def receive(self, data: bytes) -> bool:
        """Bytes came. False if the connection is of no more use: close it and call `lost`."""

    def lost(self, now_s: float, why: str) -> None:
        """The connection broke, or could not be made."""

    def forked(self, parent: int) -> None:
        """This is a child of the process `parent`, which has the connection."""

    def close(self) -> None:
        """There will be no other."""
