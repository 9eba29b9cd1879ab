"""The bits of `topic_mask` and `group_mask` (specification, section 6.4), and their meaning."""

from __future__ import annotations

import attrs

from zbus.core.state import GroupOptions, TopicOptions

MEMORY = 1
RPC = 2
PROXY = 4
PAUSE = 8
EXCLUSIVE = 16
DELETE_ON_EXIT = 32
ACK_REQUIRED = 64


def with_topic_mask(options: TopicOptions, mask: int) -> TopicOptions:
    """The options of a topic with this mask. Bit 0 counts at creation only: the caller sees to
    the durability."""
    called = bool(mask & (RPC | PROXY))
    return attrs.evolve(
        options,
        mask=mask,
        rpc=called,
        competing=called,
        lease=bool(mask & ACK_REQUIRED) and not called,
        exclusive=bool(mask & EXCLUSIVE),
        delete_on_exit=bool(mask & DELETE_ON_EXIT),
        paused=bool(mask & PAUSE),
    )


def with_group_mask(options: GroupOptions, mask: int) -> GroupOptions:
    """The options of a group with this mask; 0 leaves everything to the topic's mask."""

    def bit(value: int) -> bool | None:
        return bool(mask & value) if mask else None

    return attrs.evolve(
        options,
        mask=mask,
        lease=bit(ACK_REQUIRED),
        exclusive=bit(EXCLUSIVE),
        delete_on_exit=bit(DELETE_ON_EXIT),
        paused=bit(PAUSE),
    )
