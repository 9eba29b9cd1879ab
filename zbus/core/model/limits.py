"""The bounds the broker keeps, whatever dialect asks.

Tests: `tests/conformance/test_limits.py`.
"""

from __future__ import annotations

import attrs

from zbus.option import number

_MIB = 1 << 20
_TIB = 1 << 40


@attrs.frozen(slots=False, kw_only=True)
class Limits:
    """How much a broker keeps, and does at once.

    Those that are declared as options are set from the configuration."""

    message_bytes_max: int = number(
        16 * _MIB, 1, 64 * _MIB, "Longest body of one message, stored or routed."
    )
    # In one answer, too.
    batch_messages_max: int = number(100_000, 1, 1_000_000, "Messages in one batch request.")
    cache_bytes_max: int = number(128 * _MIB, 0, _TIB, "Recent messages kept in memory.")
    history_bytes_max: int = number(
        64 * _MIB, _MIB, _TIB, "Older messages in memory, as read back for groups behind."
    )
    topics_max: int = number(10_000, 1, 10_000_000, "Topics.")
    groups_per_topic_max: int = number(1_000, 1, 1_000_000, "Consumer groups of one topic.")
    partitions_max: int = number(64, 1, 4_096, "Partitions of one topic.")
    waiting_max: int = number(
        400_000, 1, 100_000_000, "Requests that wait for messages, of all connections together."
    )
    topic_messages_per_s: int = number(
        0, 0, 1_000_000_000, "Messages a second that a topic takes; more get a 429. 0 = all."
    )
    topic_bytes_per_s: int = number(
        0, 0, _TIB, "Bytes of messages a second that a topic takes; more get a 429. 0 = all."
    )
    txn_ttl_ms: int = number(
        7 * 86_400_000,
        0,
        100 * 366 * 86_400_000,
        "Staged messages that are not committed, and idle applications, are forgotten"
        " after this. 0 = never.",
    )
    calls_max: int = 100_000  # calls that wait for a service, all sessions together


DEFAULT_LIMITS = Limits()

DELAY_MS_MAX = 10 * 365 * 86_400_000
"""Ten years: more is a mistake in the unit."""
