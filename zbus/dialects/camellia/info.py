"""How many messages a topic has in which state."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import pairwise
from typing import Final

import msgspec

from zbus.core.api import DELAYS_PAGE as PAGE
from zbus.core.api import Broker, Delays, Group
from zbus.dialects.camellia.context import CamelliaContext

_MINUTE_MS, _HOUR_MS, _DAY_MS = 60_000, 3_600_000, 86_400_000

BOUNDS_MS: Final = (
    _MINUTE_MS,
    10 * _MINUTE_MS,
    30 * _MINUTE_MS,
    _HOUR_MS,
    6 * _HOUR_MS,
    _DAY_MS,
    7 * _DAY_MS,
    30 * _DAY_MS,
)
"""Where each part of what waits ends, and the next begins."""

PARTS: Final = (
    "sizeOf0To1min",
    "sizeOf1minTo10min",
    "sizeOf10minTo30min",
    "sizeOf30minTo1hour",
    "sizeOf1hourTo6hour",
    "sizeOf6hourTo1day",
    "sizeOf1dayTo7day",
    "sizeOf7dayTo30day",
    "sizeOf30dayToInfinite",
)


class TopicInfo(msgspec.Struct, rename="camel"):
    """As it is shown."""

    topic: str
    waiting_queue_size: int
    waiting_queue_info: dict[str, int]
    ready_queue_size: int
    ack_queue_size: int


def info_of(context: CamelliaContext, name: str) -> TopicInfo:
    """Of any topic; nothing is known of one that is not there."""
    topic = context.broker.topic(name)
    group = None if topic is None else topic.group(name)
    if group is None:
        return _info(name, [0] * len(PARTS), 0, 0)
    return _of_group(context.broker, group)


def all_infos(context: CamelliaContext) -> list[TopicInfo]:
    """Of the topics that this dialect uses."""
    return [_of_group(context.broker, group) for group in context.queues.listed()]


def _of_group(broker: Broker, group: Group) -> TopicInfo:
    now_ms, parts = broker.now_ms, [0] * len(PARTS)
    ready, leased, delayed, _ = group.counts()
    for index in range(len(group.topic.partitions)):
        _count(group.progress(index).delayed, now_ms, parts)
    ready += delayed - sum(parts)  # what is due, and its turn has not come
    return _info(group.topic.name, parts, ready, leased)


def _count(delayed: Delays, now_ms: int, parts: list[int]) -> None:
    """Add what waits to the parts. Neighbours are mostly due about the same time, so of most pages
    only the ends are looked at."""
    # Where each part ends, as keys: what is due already comes before all of them.
    ends = [(now_ms + ms) * PAGE for ms in (1, *BOUNDS_MS)]
    for number in delayed.numbers():
        keys = delayed.keys_of(number)
        first, last = bisect_right(ends, keys[0]), bisect_right(ends, keys[-1])
        if first == last:
            if first:
                parts[first - 1] += len(keys)
            continue
        places = [bisect_left(keys, end) for end in ends]
        for part, (start, stop) in enumerate(pairwise([*places, len(keys)])):
            parts[part] += stop - start


def _info(name: str, parts: list[int], ready: int, leased: int) -> TopicInfo:
    named = dict(zip(PARTS, parts, strict=True))
    return TopicInfo(name, sum(parts), named, ready, leased)
