"""A spare process of a node, and the owner of a shard that it becomes."""

from __future__ import annotations

import os
import select
import signal
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final

import attrs

from zbus.config import Config
from zbus.server.exits import EXIT_OK, CannotStart
from zbus.server.loop.mailbox import Mailbox
from zbus.server.loop.sockets import Listening
from zbus.server.process.banner import advertised_address
from zbus.server.process.replicated import ReplicatedEngine
from zbus.workers.cluster.relay import Relay
from zbus.workers.seats import TURNS, Seat, Shared
from zbus.workers.socket_directory import RELAY_BACKLOG, open_socket

IDLE: Final = b"I"
CLAIMED: Final = b"C%d %d %d\n"  # shard, epoch, length of what is known
OWNED: Final = b"O%d %d\n"  # a shard that has another owner, and its epoch
FAILED: Final = b"F%d\n"  # a shard that cannot be claimed
ENDED: Final = b"E %d %d\n"  # of an owner: shard, epoch
AVOID: Final = b"A %d %d\n"  # a shard, and until when, in milliseconds of the monotonic clock
_LOOK_MS: Final = 500


@attrs.frozen
class Doors:
    """What an owner opens once it has a shard: where clients come, and where other workers do."""

    shared: Shared
    edge: Sequence[socket.socket]  # those of the edge, one for each address
    relay: Relay | None

    def open(self, shard: int) -> Seat:
        """Raises CannotStart."""
        doors = []
        for address, sock in zip(self.shared.addresses, self.edge, strict=True):
            if address.kind == "unix":
                doors.append(sock.dup())
                continue
            try:
                doors.append(Listening(address, shared=True, later=True).sock)
            except OSError as error:
                text = f"cannot listen on {address.authority}: {error.strerror or error}"
                raise CannotStart(text) from None
        relay = open_socket(self.shared.paths[shard], socket.SOCK_STREAM)
        relay.listen(RELAY_BACKLOG)
        taker = open_socket(self.shared.taker_paths[shard], socket.SOCK_DGRAM)
        far = None if self.relay is None else (self.relay.listen(shard), self.relay.server)
        return Seat(shard, doors, relay, taker, far)


def claim(
    config: Config,
    doors: Doors,
    life: socket.socket,
    status: int,
    avoid: Mapping[int, float],
    known: bytes,
) -> tuple[Seat, ReplicatedEngine] | None:
    """Wait for a shard that is this process's then; None: the parent has ended first. `life` says
    when it has; `status` tells it how this one does, and says which owners have ended. `avoid` and
    `known`: see `zbus.storage.jetstream.standby.Standby`. Raises CannotStart."""
    first = doors.shared.addresses[0]
    address = advertised_address(config.server_name, first.host, first.port)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # there is nothing yet to load again
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, frame: os._exit(EXIT_OK))
    engine = ReplicatedEngine(config, Mailbox(), address, avoid, known)
    try:
        if not _wait(engine, life, status):
            return None
    except CannotStart:
        if not engine.standby.problem:  # it is the shard's fault
            _tell(status, FAILED % engine.standby.shard.number)
        raise
    shard, known = engine.standby.shard.number, engine.standby.tell()
    _tell(status, CLAIMED % (shard, engine.epoch, len(known)) + known)
    return doors.open(shard), engine


def _wait(engine: ReplicatedEngine, life: socket.socket, status: int) -> bool:
    """Whether a shard is this process's now; else the parent has ended. Raises CannotStart if that
    will never be."""
    presence = engine.standby.membership.presence
    engine.standby.membership.changed = lambda shard: _tell(
        status, OWNED % (shard, presence.owners[shard].epoch)
    )
    engine.standby.start()
    looked_at = select.poll()
    looked_at.register(engine.mailbox.receiver, select.POLLIN)
    looked_at.register(life, select.POLLIN)
    looked_at.register(status, select.POLLIN)
    while not engine.is_decided:
        ready = [file for file, _ in looked_at.poll(_LOOK_MS)]
        if life.fileno() in ready:
            return False
        if status in ready:
            _hear(engine, os.read(status, 64 << 10))
        engine.mailbox.run()
        _tell(status, IDLE if engine.is_waiting else TURNS)
    engine.check()
    return True


def _hear(engine: ReplicatedEngine, said: bytes) -> None:
    """What the parent says of shards."""
    for line in said.splitlines():
        kind, shard, number = line.split()
        if kind == b"E":
            engine.standby.ended(int(shard), int(number))
        else:
            engine.standby.avoid(int(shard), int(number) / 1_000)


def _tell(status: int, what: bytes) -> None:
    with suppress(OSError):  # the parent does not listen
        os.write(status, what)
