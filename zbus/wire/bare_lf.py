"""One tolerated sin: a WebSocket handshake whose lines end with a bare LF.

The stock Adf queue client on Linux ends the lines of its handshake so. A bare LF elsewhere is
refused, because two parsers that disagree about line ends can be made to disagree about where
requests end. Here nothing can be hidden: only an upgrade request for one of two paths is taken, it
may announce no body, and its client sends nothing more before the answer.
"""

from __future__ import annotations

from zbus.wire.errors import WireError
from zbus.wire.head import Head

_TARGETS = (b"/queue/json", b"/queue/bin")


def find_handshake(data: bytes | bytearray) -> int:
    """Length of a handshake without its blank line; -1 if there is more to come.

    `data` is known to hold a bare LF. Raises WireError if it is not such a handshake.
    """
    first = bytes(data[: data.index(b"\n")])
    method, _, rest = first.partition(b" ")
    target, _, version = rest.partition(b" ")
    size = data.find(b"\n\n")
    tolerated = method == b"GET" and version == b"HTTP/1.1"
    tolerated = tolerated and target.partition(b"?")[0] in _TARGETS
    if not tolerated or b"\r" in (data if size < 0 else data[:size]):
        raise WireError(400, "a line of the head must end with CR LF")
    return size


def check_handshake(head: Head) -> None:
    """Refuse what is not a plain upgrade request."""
    fields = head.fields
    if b"upgrade" not in fields or b"content-length" in fields or head.chunked:
        raise WireError(400, "only a WebSocket handshake may end its lines with LF")
