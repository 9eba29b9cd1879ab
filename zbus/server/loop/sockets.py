"""Where a broker listens, `http://127.0.0.1:15555, https://0.0.0.0:15556, unix:/run/zbus.sock`, and
the sockets for it: TCP, and Unix sockets with the files that stand for them."""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
import stat
import struct
import sys
from contextlib import suppress
from typing import Literal, Protocol

import attrs

from zbus.config.server import ServerOptions
from zbus.server.exits import CannotStart

FORMS = "http://host:port, https://host:port or unix:/path"


class BadAddress(CannotStart):
    """What was given as an address to listen on is none; the text says what and why."""


@attrs.frozen
class Address:
    """One address to listen on. `str` gives it back as it is written."""

    kind: Literal["tcp", "unix"]
    host: str = ""  # tcp: a name or a number, without the brackets of IPv6
    port: int = 0  # tcp: 0 lets the system pick one
    path: str = ""  # unix
    tls: bool = False

    @property
    def is_loopback(self) -> bool:
        """Only this machine reaches it. A host name other than `localhost` counts as reachable
        from elsewhere: what it stands for is not looked up."""
        if self.kind == "unix" or self.host.lower() == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def authority(self) -> str:
        """`host:port`, `[host]:port` for IPv6; the path of a Unix socket."""
        if self.kind == "unix":
            return self.path
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    def __str__(self) -> str:
        scheme = "unix:" if self.kind == "unix" else "https://" if self.tls else "http://"
        return scheme + self.authority


def parse_listen(text: str) -> list[Address]:
    """The addresses of a comma-separated list, in its order; BadAddress if one is none of
    `http://host:port`, `https://host:port`, `unix:/path`, or comes twice."""
    addresses: list[Address] = []
    for part in text.split(","):
        address = _parse(part.strip())
        if address in addresses and not (address.kind == "tcp" and address.port == 0):
            raise BadAddress(f"{address} is listed twice")
        addresses.append(address)
    return addresses


def _parse(text: str) -> Address:
    if text.startswith("unix:"):
        path = text.removeprefix("unix:")
        if not path or "\0" in path:
            raise BadAddress(f"{text!r} names no socket file; write unix:/path")
        return Address("unix", path=path)
    scheme, separator, authority = text.partition("://")
    if not separator or scheme not in ("http", "https"):
        raise BadAddress(f"invalid address {text!r}: expected {FORMS}")
    host, colon, digits = authority.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    name = host[1:-1] if bracketed else host
    if not name or not colon or bracketed != (":" in name):
        raise BadAddress(f"{text!r} is not of the form {scheme}://host:port")
    if set(name) & set("[]/@?# \t\0"):
        raise BadAddress(f"{text!r}: invalid host {name!r}")
    if not (digits.isascii() and digits.isdecimal() and len(digits) <= 5 and int(digits) <= 65535):
        raise BadAddress(f"{text!r}: invalid port {digits!r}, expected 0 to 65535")
    return Address("tcp", name, int(digits), tls=scheme == "https")


def addresses_of(config: ServerOptions) -> list[Address]:
    """Where a broker of this configuration listens: `listen`, or `host` and `port`."""
    if config.listen:
        return parse_listen(config.listen)
    return [Address("tcp", config.host, config.port)]


def exposed(addresses: list[Address]) -> list[Address]:
    """Those of them that other machines may reach."""
    return [address for address in addresses if not address.is_loopback]


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

    def __init__(
        self,
        address: Address,
        unix_socket_mode: int = 0o600,
        *,
        shared: bool = False,
        later: bool = False,
    ) -> None:
        """OSError if the address cannot be had. A socket file without a listener is replaced.
        `shared`: others of this process listen at the same port, too. `later`: nobody can connect
        before `listen` is called."""
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
                if shared:
                    self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
                self._notice_the_dead()
                self.sock.bind((address.host, address.port))
                self.address = attrs.evolve(address, port=self.sock.getsockname()[1])
            if not later:
                self.listen()
        except OSError:
            self.sock.close()
            raise
        self.sock.setblocking(False)

    def listen(self) -> None:
        self.sock.listen(_BACKLOG)

    @classmethod
    def inherited(cls, address: Address, sock: socket.socket) -> Listening:
        """One that another process has opened, and closes."""
        self = cls.__new__(cls)
        self._file, self.address, self.sock = None, address, sock
        return self

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


def split_address(address: str) -> tuple[str, int]:
    """Host and port of `host:port`; port 0 if it is not of that form."""
    host, _, port = address.rpartition(":")
    is_number = port.isascii() and port.isdecimal() and len(port) <= 5
    return host.strip("[]"), int(port) if is_number else 0
