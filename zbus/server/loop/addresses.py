"""Where a broker listens: `http://127.0.0.1:15555, https://0.0.0.0:15556, unix:/run/zbus.sock`."""

from __future__ import annotations

import ipaddress
from typing import Literal

import attrs

from zbus.config.server import ServerOptions

FORMS = "http://host:port, https://host:port or unix:/path"


class BadAddress(ValueError):
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
