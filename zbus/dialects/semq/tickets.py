"""Tickets: with one, a node shows another that the platform lets it send there.

    ticket    <asker>|<target>|<expires, ms>|<HMAC-SHA256 of what is before it>    key: the target's
    key       HMAC-SHA256 of "key" and the ticket                                  likewise

The target's key of tickets is told to it alone, when it says hello. So it can work out `key`, which
the asker is told: each shows the other that it knows that. All are lower-case hexadecimal digits,
and are used as keys as they are written.
"""

from __future__ import annotations

import hmac
from typing import Final

TICKET_MS: Final = 60_000


class Tickets:
    """`secret` is of this run of the broker."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def key_of(self, node: str) -> str:
        """What tickets to a node are made with."""
        return _sign(self._secret, f"ticket_key {node}")

    def make(self, asker: str, target: str, now_ms: int) -> tuple[str, str]:
        """A ticket, and its key."""
        claims = f"{asker}|{target}|{now_ms + TICKET_MS}"
        own = self.key_of(target).encode()
        ticket = f"{claims}|{_sign(own, claims)}"
        return ticket, _sign(own, f"key{ticket}")


def _sign(key: bytes, text: str) -> str:
    return hmac.new(key, text.encode(), "sha256").hexdigest()
