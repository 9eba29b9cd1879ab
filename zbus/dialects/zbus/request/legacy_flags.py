"""The bits of `topic_mask` and `group_mask` (specification, section 6.4), and the words for them.

The broker keeps a mask as it was sent, as what only this dialect understands of the options. What
the options say themselves goes before it: others may have changed them.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import attrs

from zbus.core.api import GroupOptions, TopicOptions
from zbus.wire.numbers import parse_number

MEMORY = 1
RPC = 2
PROXY = 4
PAUSE = 8
EXCLUSIVE = 16
DELETE_ON_EXIT = 32
ACK_REQUIRED = 64

GROUP_WORDS = {
    b"ack": ACK_REQUIRED,
    b"exclusive": EXCLUSIVE,
    b"temporary": DELETE_ON_EXIT,
    b"paused": PAUSE,
}
TOPIC_WORDS = {
    b"rpc": RPC,
    b"proxy": PROXY,
    **{b"topic_" + word: bit for word, bit in GROUP_WORDS.items()},
}
"""What a topic's bits say of its groups, they say of those that leave it open. `durability` is the
word for `MEMORY`."""

_OPTIONS = {word: "lease" if word == b"ack" else word.decode() for word in GROUP_WORDS}


def with_topic_mask(options: TopicOptions, mask: int) -> TopicOptions:
    """The options of a topic with this mask. Bit 0 counts at creation only: the caller sees to
    the durability."""
    called = bool(mask & (RPC | PROXY))
    return attrs.evolve(
        options,
        opaque=_kept(mask),
        calls=called,
        competing=called,
        lease=bool(mask & ACK_REQUIRED) and not called,
        exclusive=bool(mask & EXCLUSIVE),
        temporary=bool(mask & DELETE_ON_EXIT),
        paused=bool(mask & PAUSE),
    )


def with_group_mask(options: GroupOptions, mask: int) -> GroupOptions:
    """The options of a group with this mask; 0 leaves everything to the topic's mask."""

    def bit(value: int) -> bool | None:
        return bool(mask & value) if mask else None

    return attrs.evolve(
        options,
        opaque=_kept(mask),
        lease=bit(ACK_REQUIRED),
        exclusive=bit(EXCLUSIVE),
        temporary=bit(DELETE_ON_EXIT),
        paused=bit(PAUSE),
    )


def with_words(mask: int, words: dict[bytes, bool]) -> int:
    """A topic's mask with what words say of it."""
    for word, on in words.items():
        mask = mask | TOPIC_WORDS[word] if on else mask & ~TOPIC_WORDS[word]
    return mask


def with_group_words(options: GroupOptions, words: dict[bytes, bool]) -> GroupOptions:
    """The options of a group with what words say of them; the others stay as they are."""
    given: dict[str, Any] = {_OPTIONS[word]: value for word, value in words.items()}
    return attrs.evolve(options, **given)


def topic_mask(options: TopicOptions) -> int:
    """The mask of a topic with these options."""
    sent = _sent(options.opaque)
    if not options.calls:
        return _bits(options, sent & ~(RPC | PROXY | ACK_REQUIRED))
    return _bits(options, sent if sent & (RPC | PROXY) else sent | PROXY)


def group_mask(options: GroupOptions) -> int:
    """The mask of a group with these options."""
    return _bits(options, _sent(options.opaque) & ~ACK_REQUIRED)


def _bits(options: TopicOptions | GroupOptions, sent: int) -> int:
    """`sent` with those bits that the options say themselves."""
    return (
        sent & ~(PAUSE | EXCLUSIVE | DELETE_ON_EXIT)
        | (PAUSE if options.paused else 0)
        | (EXCLUSIVE if options.exclusive else 0)
        | (DELETE_ON_EXIT if options.temporary else 0)
        | (ACK_REQUIRED if options.lease else 0)
    )


def _kept(mask: int) -> bytes:
    return b"%d" % mask if mask else b""


@lru_cache(maxsize=256)
def _sent(opaque: bytes) -> int:
    """The mask that was sent; 0 if another dialect keeps something of its own there."""
    return parse_number(opaque) or 0
