"""The bounds the broker keeps, whatever dialect asks."""

from __future__ import annotations

from typing import Annotated

import attrs
from msgspec import Meta

_MIB = 1 << 20
_TIB = 1 << 40


@attrs.frozen(slots=False, kw_only=True)
class Limits:
    """Those with a description are options of a broker."""

    message_bytes_max: Annotated[
        int, Meta(ge=1, le=64 * _MIB, description="Longest body of one message.")
    ] = _MIB
    batch_messages_max: Annotated[
        int, Meta(ge=1, le=1_000_000, description="Messages in one batch request.")
    ] = 10_000  # and in one answer
    cache_bytes_max: Annotated[
        int, Meta(ge=0, le=_TIB, description="Recent messages kept in memory.")
    ] = 128 * _MIB
    history_bytes_max: Annotated[
        int,
        Meta(
            ge=_MIB,
            le=_TIB,
            description="Older messages in memory, as read back for groups behind.",
        ),
    ] = 64 * _MIB
    topics_max: Annotated[int, Meta(ge=1, le=10_000_000, description="Topics.")] = 10_000
    groups_per_topic_max: Annotated[
        int, Meta(ge=1, le=1_000_000, description="Consumer groups of one topic.")
    ] = 1_000
    partitions_max: Annotated[int, Meta(ge=1, le=4_096, description="Partitions of one topic.")] = (
        64
    )
    calls_max: int = 100_000  # calls that wait for a service, all sessions together


DEFAULT_LIMITS = Limits()

DELAY_MS_MAX = 10 * 365 * 86_400_000
"""Ten years: more is a mistake in the unit."""
