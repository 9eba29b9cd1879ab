"""What a connection reads with: the port that is `zbus.wire.http.HttpReader` at first, and after a
handshake a codec's reader."""

from __future__ import annotations

from typing import Literal, Protocol

from zbus.wire.bodies.budget import Budget
from zbus.wire.errors import WireError
from zbus.wire.heads.heads import Head
from zbus.wire.http import Request
from zbus.wire.limits import DEFAULT_LIMITS, WireLimits


class Reader(Protocol):
    """Cuts what a connection received into requests: `HttpReader`, or after a handshake another."""

    interim: bytes
    done: bool
    error: WireError | None
    spent: int  # work that the requests do not show, in microseconds or so, since it was set to 0

    came_bytes: int  # of what came in parts
    more: bool  # `receive` can go on without new bytes: a call does no more than a step
    refused: Head | None
    """The error is about its body, which is too long."""

    @property
    def bounds(self) -> tuple[WireLimits, Budget | None]:
        """The limits of a request, and what the bodies of all connections share."""

    def receive(self, data: bytes) -> list[Request]: ...
    def waiting_for(self) -> Literal["nothing", "head", "body"]: ...
    def close(self) -> None: ...


class Deaf:
    """The reader of a connection from which nothing more is read."""

    interim = b""
    done = more = False
    error: WireError | None = None
    came_bytes = spent = 0
    refused: Head | None = None
    bounds: tuple[WireLimits, Budget | None] = (DEFAULT_LIMITS, None)

    def receive(self, data: bytes) -> list[Request]:
        return []

    def waiting_for(self) -> Literal["nothing", "head", "body"]:
        return "nothing"

    def close(self) -> None:
        pass


DEAF = Deaf()
