"""The identity of a peer: what it reads, and how to push to it what it did not ask for."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from zbus.core.outcomes import Routed

if TYPE_CHECKING:
    from zbus.core.flock import Follower
    from zbus.core.group import Group, Pull


class Session:
    """Lives as long as its connection. An idle one holds next to nothing: there are thousands."""

    __slots__ = ("address", "follower", "groups", "id", "left", "pulls", "stalled")

    def __init__(self, id: bytes, address: str) -> None:
        self.id = id
        self.address = address  # ip:port of the peer, for people
        self.groups: dict[Group, None] | None = None  # where it is registered as a reader
        self.pulls: dict[Pull, None] | None = None  # that wait behind another of the same group
        self.follower: Follower | None = None  # it is told all of a topic (`zbus.core.flock`)
        self.left: Callable[[Any], None] | None = None  # called with the session when it is gone
        self.stalled = False  # does not take what it was sent: it is given no more messages

    def push(self, routed: Routed) -> bool:
        """Send a routed message to the peer; False if that cannot be done."""
        raise NotImplementedError
