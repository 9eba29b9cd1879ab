"""How much of something a second is taken: token buckets, in whole numbers, on the broker's clock.

A bucket fills evenly, up to what one second brings. A request that comes while there is at least
one token in it passes, and takes what it needs even if that is more: then it is below zero, and
others wait until it has filled again. So one large batch passes, and the rate holds all the same.
"""

from __future__ import annotations

RATE_MAX = 1 << 40
"""A second, of whatever is counted."""

_PARTS = 1_000
"""Of a token: with one token a second there is one part a millisecond."""


def so_many(*counts: tuple[int, str]) -> str:
    """In words: those of the counts that are not 0."""
    return " and ".join(f"{n} {one}{'' if n == 1 else 's'}" for n, one in counts if n)


class TokenBucket:
    __slots__ = ("_filled_ms", "_level", "per_s")

    def __init__(self, per_s: int) -> None:
        """It begins full."""
        assert 0 < per_s <= RATE_MAX
        self.per_s = per_s
        self._level = per_s * _PARTS
        self._filled_ms = 0

    def wait_ms(self, now_ms: int) -> int:
        """How long until something may be taken; 0 = now."""
        passed_ms = now_ms - self._filled_ms
        if passed_ms > 0:
            self._filled_ms = now_ms
            self._level = min(self.per_s * _PARTS, self._level + passed_ms * self.per_s)
        missing = _PARTS - self._level
        return 0 if missing <= 0 else -(-missing // self.per_s)

    def left(self) -> int:
        """How many may be taken that it is not below zero then; as of the last `wait_ms`."""
        return self._level // _PARTS

    def take(self, count: int) -> None:
        """To be called after `wait_ms` has said 0."""
        self._level -= count * _PARTS


class RateLimit:
    """This many things, and that many bytes of them, a second; 0 = as many as come."""

    __slots__ = ("_buckets", "_bytes", "_count")

    def __init__(self, count_per_s: int, bytes_per_s: int) -> None:
        self._count = TokenBucket(count_per_s) if count_per_s else None
        self._bytes = TokenBucket(bytes_per_s) if bytes_per_s else None
        self._buckets = [one for one in (self._count, self._bytes) if one is not None]

    def wait_s(self, now_ms: int) -> int:
        """How long until more is let in, in whole seconds; 0 = it is now."""
        wait_ms = max([bucket.wait_ms(now_ms) for bucket in self._buckets], default=0)
        return -(-wait_ms // 1_000)

    def take(self, count: int, size: int) -> None:
        """It was let in."""
        if self._count is not None:
            self._count.take(count)
        if self._bytes is not None:
            self._bytes.take(size)
