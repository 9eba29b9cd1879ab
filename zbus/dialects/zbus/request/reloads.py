"""A page that is reloaded within moments would put the same message again by mistake.

So a browser that opens a URL which produces does it under an idempotency key that the broker makes,
and the same one if that URL was opened from there a moment ago.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b

from zbus.wire.heads.heads import Head

COUNT_MAX = 1_024
"""Openings that are remembered. With more within the window, the oldest are forgotten."""

_TELLING = (b"host", b"cookie", b"user-agent")


class Reloads:
    """The keys of what was opened within `window_ms` milliseconds; 0 = every opening is new."""

    def __init__(self, window_ms: int) -> None:
        self.window_ms = window_ms
        self._opened: dict[bytes, tuple[int, bytes]] = {}  # oldest first: since when, the key

    def key(self, head: Head, address: str, now_ms: int, fresh: Callable[[], bytes]) -> bytes:
        """The key for this head from this address, a `fresh` one if it is no reload."""
        host = address.rpartition(":")[0].encode()  # a reload may come on another connection
        parts = (host, head.target, *(head.fields.get(n, b"") for n in _TELLING))
        # Lengths in front: where one part ends and the next begins is not for the sender to say.
        name = blake2b(
            b"".join(b"%d:%b" % (len(part), part) for part in parts), digest_size=16
        ).digest()
        opened = self._opened
        known = opened.get(name)
        if known is not None and now_ms - known[0] < self.window_ms:
            return known[1]
        opened.pop(name, None)
        if len(opened) >= COUNT_MAX:
            del opened[next(iter(opened))]
        key = b"reload-" + fresh()
        opened[name] = (now_ms, key)
        return key
