"""The bounds the broker keeps, whatever dialect asks."""

from __future__ import annotations

import attrs


@attrs.frozen
class Limits:
    """Each is set from the configuration of the same name."""

    message_bytes_max: int = 1 << 20  # one body
    batch_messages_max: int = 10_000  # in one put or one answer
    topics_max: int = 10_000
    groups_per_topic_max: int = 1_000
    partitions_max: int = 64
    calls_max: int = 100_000  # calls that wait for a service, all sessions together
    cache_bytes_max: int = 128 << 20
    history_bytes_max: int = 64 << 20


DEFAULT_LIMITS = Limits()

DELAY_MS_MAX = 10 * 365 * 86_400_000
"""Ten years: more is a mistake in the unit."""
