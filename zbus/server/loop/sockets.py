"""Listening sockets: TCP, and Unix sockets with the files that stand for them."""

from __future__ import annotations

import errno
import os
import socket
import stat
import struct
import sys
from contextlib import suppress
from typing import Protocol

import attrs

from zbus.server.loop.addresses import Address

_BACKLOG = 1_024
_KEEPALIVE = (
    (socket.TCP_KEEPIDLE, 60),
    (socket.TCP_KEEPINTVL, 15),
    (socket.TCP_KEEPCNT, 4),
)
"""Gone for two minutes is gone: seconds, seconds, times."""


class Acceptor(Protocol):
    """Something that accepts connections (`zbus.server.process.listener`)."""

    def accept(self) -> None: ...
    def close(self) -> None: ...


class Listening:
    """A socket that listens at an address. A Unix socket's file goes when it is closed."""

    def __init__(self, address: Address, unix_socket_mode: int = 0o600) -> None:
        """OSError if the address cannot be had. A socket file without a listener is
        replaced."""
        self._file: tuple[int, int] | None = None
        if address.kind == "unix":
            self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        else:
            family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
            self.sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            if address.kind == "unix":
                _clear(address.path)
                self.sock.bind(address.path)
                self._file = _file_number(address.path)
                os.chmod(address.path, unix_socket_mode)  # before anybody can connect
                self.address = address
            else:
                self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                self._notice_the_dead()
                self.sock.bind((address.host, address.port))
                self.address = attrs.evolve(address, port=self.sock.getsockname()[1])
            self.sock.listen(_BACKLOG)
        except OSError:
            self.sock.close()
            raise
        self.sock.setblocking(False)

    def _notice_the_dead(self) -> None:
        """The system asks silent clients whether they are there; what is accepted inherits it. Some
        may be silent for as long as they like (`Peer.patient`)."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _KEEPALIVE:
            self.sock.setsockopt(socket.IPPROTO_TCP, name, value)

    def close(self) -> None:
        path = self.address.path
        if self._file is not None and _file_number(path) == self._file:
            with suppress(OSError):
                os.unlink(path)  # before the socket: a file that answers is never replaced
        self._file = None
        self.sock.close()


def _file_number(path: str) -> tuple[int, int] | None:
    """Tells one file from another of the same name; None if there is none."""
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _clear(path: str) -> None:
    """Remove the socket of a broker that is gone; OSError if it is not gone, or no socket."""
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise FileExistsError(errno.EEXIST, "a file of this name exists, and it is not a socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)
            return
        except BlockingIOError:  # there is a listener, and it is busy
            pass
    raise OSError(errno.EADDRINUSE, "a program listens there already")


def peer_address(sock: socket.socket, address: object) -> str:
    """Who connected, for people: `ip:port`, or the process at the other end of a Unix socket.
    `address` is what `accept` gave."""
    if isinstance(address, tuple):
        return f"{address[0]}:{address[1]}"
    if sys.platform != "linux":
        return "unix:"
    pid, uid, _ = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return f"unix:pid={pid},uid={uid}"
