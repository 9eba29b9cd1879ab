"""One tolerated sin: a WebSocket handshake whose lines end with a bare LF.

The stock Adf queue client on Linux ends the lines of its handshake so. A bare LF elsewhere is
refused, because two parsers that disagree about line ends can be made to disagree about where
requests end. Here nothing can be hidden: only an upgrade request for one of two paths is taken, it
may announce no body, and its client sends nothing more before the answer.
"""

from __future__ import annotations

from zbus.wire.errors import WireError
from zbus.wire.heads.head import Head

_BEGINNING = b"GET /queue/"
_TARGETS = (b"/queue/json", b"/queue/bin")
_BYTES_MAX = 2048


def may_be_handshake(data: bytes | bytearray) -> bool:
    """Whether these bytes are the beginning of such a handshake, at least its first line."""
    if not data.startswith(_BEGINNING) or b"\r" in data or len(data) > _BYTES_MAX:
        return False
    target, _, version = bytes(data[4 : data.find(b"\n")]).partition(b" ")
    return version == b"HTTP/1.1" and target.partition(b"?")[0] in _TARGETS


def find_handshake(data: bytes, at: int) -> bytes:
    """The whole handshake at `data[at:]`, without its last line end; b"" if there is none."""
    if not data.startswith(_BEGINNING, at):
        return b""
    end = data.find(b"\n\n", at, at + _BYTES_MAX)
    handshake = data[at : max(end, at)]
    return handshake if may_be_handshake(handshake) else b""


def check_handshake(head: Head) -> None:
    """Refuse what is not a plain upgrade request."""
    fields = head.fields
    if b"upgrade" not in fields or b"content-length" in fields or head.chunked:
        raise WireError(400, "only a WebSocket handshake may end its lines with LF")
