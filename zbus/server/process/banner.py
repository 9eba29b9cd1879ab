"""What a broker says when it is ready: where it is, and what to try. Its address for clients."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Sequence
from shlex import quote
from typing import NamedTuple

from zbus import __version__
from zbus.config import Config
from zbus.server.loop.sockets import Address


class Where(NamedTuple):
    """Where messages are, and a number that says something of it."""

    place: str
    durability: str  # "" = as the configuration says
    counted: str
    number: int


def banner(config: Config, where: Where, addresses: Sequence[Address], advertised: str) -> str:
    """Some lines for a person."""
    first, *others = addresses
    if first.kind == "unix":
        url, base, options = str(first), "http://localhost", f"--unix-socket {quote(first.path)} "
        console = ""
    else:
        url = base = f"{'https' if first.tls else 'http'}://{advertised}"
        options = f"--cacert {quote(config.tls_cert_file)} " if first.tls else ""
        console = f"  console         {url}/_console/\n"
    more = "".join(f"  and             {address}\n" for address in others)
    tokens = ""
    if config.token_file:
        tokens = f"  tokens          {config.token_file}\n"
        options += "-H 'token: <token>' "
    return (
        f"zbus {__version__} serves {url}\n{more}"
        f"  {'data directory' if config.engine == 'files' else 'engine        '}  {where.place}\n"
        f"  durability      {where.durability or config.durability}\n"
        f"  {where.counted:<16}{where.number}\n{console}{tokens}"
        f"try: curl {options}'{base}/MyTopic?cmd=declare'"
    )


# For documentation (RFC 5737, RFC 3849): nothing is ever sent there.
_FAR = {socket.AF_INET: "192.0.2.1", socket.AF_INET6: "2001:db8::1"}


def advertised_address(server_name: str, host: str, port: int) -> str:
    """`host:port`. `server_name` is what it is to be, with or without a port; if it is empty, it
    is where the broker listens. Of a broker that listens on every address it is that of the
    interface of the default route, or else the machine's name."""
    name = server_name or _reachable(host)
    if name.startswith("["):
        return name if "]:" in name else f"{name}:{port}"
    if name.count(":") > 1:
        return f"[{name}]:{port}"
    return name if ":" in name else f"{name}:{port}"


def _reachable(host: str) -> str:
    try:
        everywhere = ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return host
    if not everywhere:
        return host
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return _own_address(family) or _own_address(socket.AF_INET) or socket.gethostname()


def _own_address(family: socket.AddressFamily) -> str:
    """What this machine would send from; empty if it has no route."""
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as sock:
            sock.connect((_FAR[family], 9))
            address: str = sock.getsockname()[0]
            return address
    except OSError:
        return ""
