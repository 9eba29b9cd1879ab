"""The directory of the sockets between workers, where the system keeps what is temporary.

A server's processes hold a lock on theirs, as long as one of them runs. One without a lock was left
behind by a server that was killed, and goes when the next one starts.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import stat
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

PREFIX: Final = "zbus-workers-"
RELAY_BACKLOG: Final = 1_024


def make_directory(place: Path | None = None) -> Path:
    """A new one, that only this user may open, and this process and its children hold."""
    place = place or Path(tempfile.gettempdir())
    for path in place.glob(f"{PREFIX}*"):
        _remove_if_left(path)
    while True:
        path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=place))
        # Until it is locked, another server that starts may take it for one that was left.
        with suppress(FileNotFoundError):
            file = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
            fcntl.flock(file, fcntl.LOCK_EX)
            if path.exists():
                return path  # the lock is held until the last of the processes ends
            os.close(file)


def socket_path(directory: Path, name: str, shard: int) -> str:
    """Where the worker of a shard takes what this names."""
    return str(directory / f"{name}-{shard}")


def open_socket(path: str, kind: socket.SocketKind) -> socket.socket:
    """A Unix socket there, in the place of one that an ended process may have left."""
    with suppress(FileNotFoundError):
        os.unlink(path)
    sock = socket.socket(socket.AF_UNIX, kind)
    sock.bind(path)
    sock.setblocking(False)
    return sock


def _remove_if_left(path: Path) -> None:
    try:
        file = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:  # it is another user's, or no directory
        return
    try:
        found = os.fstat(file)
        if found.st_uid == os.geteuid() and stat.S_IMODE(found.st_mode) == stat.S_IRWXU:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path, ignore_errors=True)
    except OSError:  # its server runs
        pass
    finally:
        os.close(file)
