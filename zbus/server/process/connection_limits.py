"""How many connections there are, of all clients and of each address: one client must not take all
there are."""

from __future__ import annotations

import socket
import sys
from collections.abc import Sized
from contextlib import suppress

from zbus.wire.replies import encode_reply

REFUSAL = b"429: this address has %d connections, and may have no more"
_LINES = b"content-type: text/plain\r\nretry-after: 1\r\n"


class ConnectionLimits:
    """How many clients all listeners together have, and of each address."""

    def __init__(
        self,
        connections_max: int,
        per_address_max: int,
        links: Sized = (),
        links_max: int = sys.maxsize,
    ) -> None:
        """This many of one address; 0 = as many as come. `links` are all connections of the
        process, not of clients alone, for which descriptors are left."""
        self.connections_max = connections_max
        self.per_address_max = per_address_max
        self.refused = 0  # since the last log line
        self._links = links
        self._links_max = links_max
        self._open = 0
        self._counts: dict[str, int] = {}

    @property
    def full(self) -> bool:
        return self._open >= self.connections_max or self.exhausted

    @property
    def exhausted(self) -> bool:
        """No descriptor is left for one more connection of any kind."""
        return len(self._links) >= self._links_max

    def enter(self, host: str) -> bool:
        """One more; False if it is one too many of its address, which a socket may not have."""
        if host and self.per_address_max:
            count = self._counts.get(host, 0)
            if count >= self.per_address_max:
                self.refused += 1
                return False
            self._counts[host] = count + 1
        self._open += 1
        return True

    def leave(self, host: str) -> None:
        """One of those that entered is closed."""
        self._open -= 1
        count = self._counts.pop(host, 0)
        if count > 1:
            self._counts[host] = count - 1

    def refuse(self, sock: socket.socket, secure: bool) -> None:
        """Say so, unless that would take a handshake, and close."""
        text = REFUSAL % self.per_address_max
        with suppress(OSError):
            if not secure:
                sock.send(encode_reply(429, _LINES, text, close=True))
                sock.shutdown(socket.SHUT_WR)
        sock.close()
