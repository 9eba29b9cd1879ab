"""What workers have in common, what each has of its own, and what they tell their parent."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Sequence
from typing import Final

import attrs

from zbus.server.loop.sockets import Address
from zbus.storage.local.reserve import SharedReserves

READY: Final = b"R"
TURNS: Final = b"."

NO_SHARD: Final = -1


@attrs.frozen
class Shared:
    """What all workers have in common. The paths of sockets are by shard."""

    addresses: Sequence[Address]
    paths: Sequence[str]  # where a worker takes requests of others
    taker_paths: Sequence[str]  # where it takes connections that they hand over
    secret: bytes
    reserves: SharedReserves | None = None

    @property
    def shards(self) -> int:
        return len(self.paths)


@attrs.frozen
class Seat:
    """What a worker has of its own."""

    shard: int  # NO_SHARD: it only passes on
    doors: Sequence[socket.socket]  # one for each address
    relay: socket.socket | None = None  # where other workers come
    taker: socket.socket | None = None  # where they send connections
    far: tuple[socket.socket, ssl.SSLContext] | None = None  # where other nodes come
