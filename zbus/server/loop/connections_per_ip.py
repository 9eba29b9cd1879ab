"""How many connections each address has: one client must not take all there are."""

from __future__ import annotations

import socket
from contextlib import suppress

from zbus.wire.replies import encode_reply

REFUSAL = b"429: this address has %d connections, and may have no more"
_LINES = b"content-type: text/plain\r\nretry-after: 1\r\n"


class ConnectionsPerIp:
    """The connections of all listeners, by the address that they come from."""

    def __init__(self, connections_max: int) -> None:
        """This many of one address; 0 = as many as come."""
        self.connections_max = connections_max
        self.refused = 0  # since the last log line
        self._counts: dict[str, int] = {}

    def enter(self, host: str) -> bool:
        """One more; False if it is one too many. A socket without an address is not counted."""
        if not (host and self.connections_max):
            return True
        count = self._counts.get(host, 0)
        if count >= self.connections_max:
            self.refused += 1
            return False
        self._counts[host] = count + 1
        return True

    def leave(self, host: str) -> None:
        """One of those that entered is closed."""
        count = self._counts.pop(host, 0)
        if count > 1:
            self._counts[host] = count - 1

    def refuse(self, sock: socket.socket, secure: bool) -> None:
        """Say so, unless that would take a handshake, and close."""
        text = REFUSAL % self.connections_max
        with suppress(OSError):
            if not secure:
                sock.send(encode_reply(429, _LINES, text, close=True))
                sock.shutdown(socket.SHUT_WR)
        sock.close()
