"""From node to node of a cluster: TCP with TLS, and certificates of the cluster's own authority.

Whoever has such a certificate is a node, and is believed whose requests it passes on. So the
authority signs nodes and nobody else.
"""

from __future__ import annotations

import errno
import ipaddress
import socket
import ssl
import time
from collections.abc import Callable, Sequence
from typing import Final

import attrs

from zbus.config import Config
from zbus.server.exits import CannotStart
from zbus.server.loop.sockets import Address, Listening, split_address
from zbus.storage.jetstream.presence import Membership
from zbus.wire.tls import TlsStream
from zbus.workers.routes import Way
from zbus.workers.upstream import connect

_PORT_MAX: Final = 65_535
_BUSY_S: Final = 5.0
_DEAD_S: Final = 5
"""A node whose system confirms nothing for so long is cut off, or has no power: what was asked of
it and is not answered is refused. Nobody else may own its shard, so there may be no other sign."""


@attrs.frozen
class Relay:
    """How a node reaches others, and is reached."""

    host: str
    port: int  # of shard 0; the owner of shard 1 listens at the next one
    server: ssl.SSLContext
    client: ssl.SSLContext

    @classmethod
    def of(cls, config: Config) -> Relay | None:
        """None: this node is alone. Raises CannotStart for options that do not fit."""
        if not config.relay_listen:
            return None
        host, port = split_address(config.relay_listen)
        if not is_reachable(host) or not 0 < port <= _PORT_MAX - config.shards:
            text = "it must be an IP address that others reach, with a port for each shard"
            raise CannotStart(f"relay_listen {config.relay_listen}: {text}")
        if not (config.relay_ca_file and config.relay_cert_file):
            raise CannotStart("relay_listen needs relay_ca_file and relay_cert_file")
        try:
            server = _context(ssl.PROTOCOL_TLS_SERVER, config)
            client = _context(ssl.PROTOCOL_TLS_CLIENT, config)
        except (OSError, ssl.SSLError) as error:
            text = "relay_ca_file, relay_cert_file, relay_key_file"
            raise CannotStart(f"{text}: {error}") from None
        return cls(host, port, server, client)

    def listen(self, shard: int) -> socket.socket:
        """Where other nodes come for this shard. Raises CannotStart."""
        address = Address("tcp", self.host, self.port + shard)
        until_s = time.monotonic() + _BUSY_S
        while True:
            try:
                return Listening(address).sock
            except OSError as error:
                if error.errno == errno.EADDRINUSE and time.monotonic() < until_s:
                    time.sleep(0.02)  # a former owner on this node, which is being killed
                    continue
                text = f"cannot listen on {address.authority}: {error.strerror or error}"
                raise CannotStart(text) from None


def _context(kind: int, config: Config) -> ssl.SSLContext:
    context = ssl.SSLContext(kind)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # a node may be at any address: the authority says who is one
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(config.relay_ca_file)
    key_file = config.relay_key_file or config.relay_cert_file
    context.load_cert_chain(config.relay_cert_file, key_file)
    return context


def is_reachable(host: str) -> bool:
    """It is an address, and of one machine. A name would have to be looked up in a turn of the
    loop."""
    try:
        return not ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def _notice_a_cut(sock: socket.socket) -> None:
    """The connection ends soon when it leads nowhere: with what was sent and is not confirmed, and
    while an answer is waited for."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1_000 * _DEAD_S)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 1)


@attrs.frozen
class ClusterRoutes:
    """Owners may be on any node, and move (`zbus.workers.routes.Routes`)."""

    node: str
    paths: Sequence[str]  # of owners on this node
    membership: Membership
    relay: Relay | None
    hold_ms: int

    @property
    def count(self) -> int:
        return len(self.paths)

    @property
    def cluster(self) -> str:
        return self.membership.cluster.name

    def when_moved(self, call: Callable[[int], None]) -> None:
        self.membership.changed = call

    def is_here(self, shard: int) -> bool:
        owner = self.membership.owner(shard)
        return owner is not None and owner.node == self.node

    def better(self, shard: int) -> str:
        return self.membership.better(self.node, shard)

    def open(self, shard: int) -> Way:
        owner = self.membership.owner(shard)
        if owner is None:
            raise ConnectionRefusedError(errno.ECONNREFUSED, f"shard {shard} has no owner just now")
        if owner.node == self.node:
            return Way(connect(self.paths[shard]))
        host, port = split_address(owner.relay)
        is_known = is_reachable(host) and 0 < port <= _PORT_MAX - shard
        if self.relay is None or not is_known:
            text = f"node {owner.node} owns shard {shard}, and one of the two has no relay_listen"
            raise ConnectionRefusedError(errno.ECONNREFUSED, text)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            _notice_a_cut(sock)
            sock.connect((host, port + shard))
        except BlockingIOError:
            pass  # under way
        except OSError:
            sock.close()
            raise
        return Way(sock, TlsStream(self.relay.client, client=True))
