"""A WebSocket client's bytes: handshake and frames, whose mask of zeros changes nothing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tests.process.websocket import HANDSHAKE as HANDSHAKE
from tests.wire.websocket_frames import frame

NO_MASK: Final = b"\0\0\0\0"
TEXT: Final = 1
CONTINUATION: Final = 0
PING: Final = 9


def message(payload: bytes) -> bytes:
    """A message in one frame."""
    return frame(TEXT, payload, key=NO_MASK)


def empty_ping() -> bytes:
    return frame(PING, key=NO_MASK)


def fragmented(pieces: Iterable[bytes]) -> bytes:
    """One message, a frame for each piece."""
    frames = [
        frame(CONTINUATION if number else TEXT, piece, fin=False, key=NO_MASK)
        for number, piece in enumerate(pieces)
    ]
    return b"".join(frames) + frame(CONTINUATION, key=NO_MASK)


def in_bytes(payload: bytes) -> bytes:
    """One message, a frame for each byte."""
    return fragmented(payload[at : at + 1] for at in range(len(payload)))
