"""The way from a worker to the owner of each shard."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import attrs

from zbus.wire.tls import TlsStream
from zbus.workers.upstream import connect


class Way(NamedTuple):
    """A socket to the owner of a shard, which may not be connected yet."""

    sock: socket.socket
    tls: TlsStream | None = None


class Routes(Protocol):
    """See above."""

    @property
    def count(self) -> int:
        """How many shards there are."""

    @property
    def cluster(self) -> str:
        """Its name; "" = all workers are on this machine."""

    @property
    def hold_ms(self) -> int:
        """How long requests may wait for an owner; 0 = they are refused at once."""

    def is_here(self, shard: int) -> bool:
        """Whether its owner is on this machine."""

    def better(self, shard: int) -> str:
        """The node to which this worker should give its shard; "" = to none."""

    def open(self, shard: int) -> Way:
        """Raises OSError if its owner is not known, or cannot be reached."""

    def when_moved(self, call: Callable[[int], None]) -> None:
        """Call this with the number of a shard that has another owner, or whose owner serves
        now."""


@attrs.frozen
class LocalRoutes:
    """Each shard has an owner on this machine, which listens at its path."""

    paths: Sequence[str]
    cluster = ""
    hold_ms: int = 0  # they wait in the socket, which is there as long as the server

    @property
    def count(self) -> int:
        return len(self.paths)

    def when_moved(self, call: Callable[[int], None]) -> None:
        pass  # they stay where they are

    def is_here(self, shard: int) -> bool:
        return True

    def better(self, shard: int) -> str:
        return ""

    def open(self, shard: int) -> Way:
        return Way(connect(self.paths[shard]))
