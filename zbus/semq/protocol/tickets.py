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

from zbus.semq.protocol.words import Malformed, read_node, read_number

TICKET_MS: Final = 60_000


def key_of(secret: bytes, node: str) -> str:
    """What tickets to a node are made with. `secret` is of this run of the broker."""
    return hmac.new(secret, f"ticket_key {node}".encode(), "sha256").hexdigest()


def sign(key: str, text: str) -> str:
    return hmac.new(key.encode(), text.encode(), "sha256").hexdigest()


def same(one: str, other: str) -> bool:
    """Two signatures, compared in constant time."""
    return hmac.compare_digest(one.encode(), other.encode())


def make_ticket(key: str, asker: str, target: str, now_ms: int) -> tuple[str, str]:
    """A ticket, and its key. `key` is that of tickets to the target."""
    claims = f"{asker}|{target}|{now_ms + TICKET_MS}"
    ticket = f"{claims}|{sign(key, claims)}"
    return ticket, sign(key, f"key{ticket}")


def read_ticket(key: str, ticket: str, target: str, now_ms: int) -> tuple[str, str]:
    """The node that was given a ticket to this one, and the ticket's key. Raises Malformed."""
    claims, _, signature = ticket.rpartition("|")
    parts = claims.split("|")
    if not key or not same(sign(key, claims), signature) or len(parts) != 3:
        raise Malformed("the ticket is not one of the platform's for this node")
    asker, meant, expires = parts
    if meant != target or read_number("expires", expires) < now_ms:
        raise Malformed("the ticket is for another node, or has expired")
    return read_node(asker), sign(key, f"key{ticket}")
