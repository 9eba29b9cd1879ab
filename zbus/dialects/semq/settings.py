"""Options of the SEMQ dialect."""

from __future__ import annotations

from typing import Final

import attrs

from zbus.option import number, option

WINDOW_MAX: Final = 1_000

_NODE = r"[1-3]:[A-Za-z0-9._-]{1,64}"


@attrs.frozen(slots=False, kw_only=True)
class SemqOptions:
    """The dialect of SEMQ."""

    semq_nodes: str = option(
        "",
        "Nodes of SEMQ that have a mailbox from the start, separated by commas: `1:10008`. Any "
        "other gets one when it says hello.",
        rf"^\s*(?:{_NODE}\s*)?(?:,\s*{_NODE}\s*)*\Z",
        "{item!r} is no node address: expected type:id, for example 1:10008",
    )
    semq_interval_ms: int = number(
        15_000,
        100,
        3_600_000,
        "How long a stored message of SEMQ is unconfirmed before its node is asked for it, and how "
        "long endpoints are told to wait before they ask.",
    )
    semq_store_always: bool = option(
        False,
        "Whether what must arrive is stored though its node is online, so that its sender need not "
        "wait for it.",
    )
    semq_window: int = number(
        100,
        1,
        WINDOW_MAX,
        "Stored messages that a connection of a node is handed before it confirms some, if it does "
        "not ask for another number.",
    )
    semq_rows_max: int = number(
        1_000_000, 1, 1_000_000, "Messages that are stored for one node; more get a 429."
    )


@attrs.frozen(slots=False, kw_only=True)
class SemqSettings(SemqOptions):
    """The options, and what only a running server knows."""

    # Declared by others.
    body_bytes_max: int = 64 << 20
    message_headers_bytes_max: int = 2_048
    secret: bytes = b""  # of this run: keys of tickets are made of it; empty in tests alone
    identity: str = ""  # of the data directory; a restored one has another
