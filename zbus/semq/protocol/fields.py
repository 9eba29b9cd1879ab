"""The fields of frames by what they are for: which of them travel on, and which come back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

FRAMING: Final = frozenset(
    (
        "content-length",
        "transfer-encoding",
        "connection",
        "keep-alive",
        "host",
        "expect",
        "upgrade",
        "te",
        "trailer",
        "proxy-connection",
        "cache-control",
    )
)
"""What a frame is framed by, as HTTP is: none of these is a field of SEMQ."""

TRANSPORT: Final = frozenset(
    (
        "topic",
        "attempt",
        "reliable",
        "ack2",
        "expires",
        "fixed",
        "route",
        "void",
        "skips",
        "semq_id",
    )
)
"""What is said of a message to those on its way, and is nothing to an application."""

ENVELOPE: Final = TRANSPORT | {"dst", "lk0", "epoch", "stream", "seq", "savefwd", "ordered"}
"""All that is said of a message for its way. Consumers of a topic have no use for it."""

NOT_HANDED: Final = TRANSPORT | {"cmd", "id", "status", "lk1"}
"""What an application is not shown; it is shown all else, fields of its own as well."""

RESERVED: Final = (
    ENVELOPE
    | FRAMING
    | {"src", "lk1", "seqs", "encrypt", "session_key", "app_key", "cmd", "id", "status"}
    | {"origin_id", "tag", "key"}
)
"""What mean nothing in a message that another dialect has put: here they would."""

OF_THE_HOP: Final = (
    FRAMING
    | {"cmd", "id", "lk1", "token", "authorization", "proxy-authorization", "cookie"}
    | {"recver", "sender", "remote-addr", "origin", "referer", "user-agent", "pragma"}
    | {"accept", "accept-encoding", "accept-language"}
)
"""Fields between the two ends of a connection, which are not passed on. Only the platform may send
`lk1`."""

_LOCATORS: Final = ("semq_id", "semq_db_id", "ref_id")

ECHOED: Final = (
    "ack_flag",
    "flag",
    "about",
    "lk0",
    "epoch",
    "stream",
    "attempt",
    "app_key",
    "topic",
    *(f"{prefix}{name}" for prefix in ("", "src_", "dest_") for name in _LOCATORS),
)
"""What an answer repeats, so that each side finds its row: all but numbers, of which it may be
about a part."""


NUMBERS: Final = ("seq", "seqs")


def echoed(fields: Mapping[str, str], *more: str) -> dict[str, str]:
    """These of the fields, as far as they are there."""
    return {name: fields[name] for name in (*ECHOED, *more) if fields.get(name)}
