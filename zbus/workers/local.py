"""Workers that keep files, in one data directory: as many as shards, and each has its own for
good."""

from __future__ import annotations

import socket

from zbus.config import Config
from zbus.server.process.banner import Where
from zbus.server.process.shards import take_shards
from zbus.storage.local.directory import take_directory
from zbus.storage.local.files import OsFiles
from zbus.storage.local.reserve import SharedReserves
from zbus.workers import parent
from zbus.workers.parent import Parent, Process
from zbus.workers.seats import Seat
from zbus.workers.server import run_worker
from zbus.workers.socket_directory import RELAY_BACKLOG, open_socket, socket_path


class LocalParent(Parent):
    """Raises CannotStart."""

    def prepare(self) -> None:
        config, count = self.config, self.config.workers
        doors = self.open_doors(count)
        relays = self._open_sockets(socket.SOCK_STREAM, "asked")
        for relay in relays:
            relay.listen(RELAY_BACKLOG)
        takers = self._open_sockets(socket.SOCK_DGRAM, "given")
        self._seats = [
            Seat(*each) for each in zip(range(count), doors, relays, takers, strict=True)
        ]
        self.shared = self.share(count, SharedReserves.make(count))
        self._lock = take_directory(OsFiles(), config.data_dir)
        take_shards(config.data_dir, count)
        self.processes = [Process(number) for number in range(count)]

    def work(self, process: Process, life: socket.socket, told: int) -> int:
        return run_worker(self.config, self.shared, self._seats[process.number], life, told)

    def where(self) -> Where:
        config = self.config
        return Where(str(config.data_dir.resolve()), "", "workers", config.workers)

    def _open_sockets(self, kind: socket.SocketKind, name: str) -> list[socket.socket]:
        """A Unix socket for each worker."""
        paths = [socket_path(self.directory, name, each) for each in range(self.config.workers)]
        return [open_socket(path, kind) for path in paths]


def run(config: Config) -> int:
    """Run a server of several workers; returns the exit code of the process."""
    return parent.run(config, LocalParent)
