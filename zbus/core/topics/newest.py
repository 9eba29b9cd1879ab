"""Of each key of a partition, the offset of its newest message: 21 to 32 bytes for each key.

A table with open addressing in two arrays of numbers, for a dictionary of ten million keys would
take a gigabyte. It is cut into shards, so that none of them takes longer than milliseconds to grow.
A key is known by 93 bits of a hash under a secret: that two of ten million keys have them in common
has a chance of 5 in 10 ** 15, and no client can look for two that do.

What is below the first offset of the partition is forgotten as a shard grows or is looked through.
A message without a key is kept as if it had one that no other message has.

Tests: `tests/core/topics/test_newest.py`.
"""

from __future__ import annotations

import struct
from array import array
from collections import deque
from hashlib import blake2b
from typing import Final

SHARDS: Final = 1_024
SLOTS_MIN: Final = 8
OFFSET_MAX: Final = (1 << 44) - 2

FIRST_STORED: Final = b"first-stored: "
"""How the header line of a copy begins that the broker made when it compacted a log: then comes
when its original was stored, epoch ms. It is no line of a client."""

_COPYING: Final = 20
"""To put an entry into another table takes so many times as long as to look at one."""

_MINUTE_MS: Final = 60_000
_DAY: Final = 1_440
"""In minutes."""

_DIGITS_MAX: Final = 15
_MARK_BITS: Final = 20
_MARK: Final = (1 << _MARK_BITS) - 1
_split = struct.Struct("<QQ").unpack


class _Shard:
    """`tags` are 64 bits of each hash, `places` the offset and 20 bits more; 0 = a free slot."""

    __slots__ = ("places", "tags", "used")

    def __init__(self, slots: int) -> None:
        self.tags = array("Q", bytes(8 * slots))
        self.places = array("Q", bytes(8 * slots))
        self.used = 0

    def slot(self, tag: int, mark: int) -> int:
        """Where an entry is, or the free slot where it would be."""
        tags, places = self.tags, self.places
        size = len(places)
        at = tag % size
        while place := places[at]:
            if tags[at] == tag and place & _MARK == mark:
                break
            at = at + 1 if at + 1 < size else 0
        return at

    def without(self, first: int, slots: int) -> _Shard:
        """A copy of that size, knowing nothing of offsets below `first`."""
        copy, lowest = _Shard(slots), first + 1 << _MARK_BITS
        for tag, place in zip(self.tags, self.places, strict=True):
            if place >= lowest:
                at = copy.slot(tag, place & _MARK)
                copy.tags[at], copy.places[at] = tag, place
                copy.used += 1
        return copy


class Mortals:
    """How many messages may go by now though they were the newest of their keys: they have expired,
    or are tombstones whose time is over. Some of them had newer ones, which is not known: so they
    count until the log begins where it ended as their time was over."""

    __slots__ = ("_minutes", "_over", "count", "next_ms")

    def __init__(self) -> None:
        self._minutes: dict[int, int] = {}  # when their time is over -> how many
        self._over: deque[tuple[int, int]] = deque()  # where the log ended then, and how many
        self.next_ms = 0  # when the time of the next ones is over; 0 = never
        self.count = 0

    def note(self, due_ms: int, now_ms: int) -> None:
        """There is one, until then."""
        minute = due_ms // _MINUTE_MS + 1
        if minute - now_ms // _MINUTE_MS > 2 * _DAY:
            minute += -minute % _DAY  # far away: whole days, or there were many
        self._minutes[minute] = self._minutes.get(minute, 0) + 1
        if not self.next_ms or minute * _MINUTE_MS < self.next_ms:
            self.next_ms = minute * _MINUTE_MS

    def look(self, now_ms: int, first: int, end: int) -> None:
        """It is that late, and the log goes from `first` to `end`."""
        while self._over and self._over[0][0] <= first:
            self.count -= self._over.popleft()[1]
        if 0 < self.next_ms <= now_ms:
            past = [minute for minute in self._minutes if minute * _MINUTE_MS <= now_ms]
            found = sum([self._minutes.pop(minute) for minute in past])
            self._over.append((end, found))
            self.count += found
            self.next_ms = min(self._minutes, default=0) * _MINUTE_MS


class NewestOffsets:
    """The table, and how far it is: it has the messages below `end`, which is the reader's to set.
    `secret` are at most 64 bytes."""

    __slots__ = ("_secret", "_shards", "count", "end", "mortals")

    def __init__(self, secret: bytes, first: int) -> None:
        self._secret = secret[:64]
        self._shards: list[_Shard | None] = [None] * SHARDS
        self.count = 0  # keys, those included that are below the first offset and not looked at yet
        self.end = first
        self.mortals = Mortals()

    def note(self, key: bytes, offset: int, first: int = 0) -> None:
        """The newest message of this key is there. An older one changes nothing."""
        assert offset <= OFFSET_MAX
        tag, rest = self._hash(key, offset)
        at, mark = rest % SHARDS, _mark_of(rest)
        shard = self._shards[at]
        if shard is None:
            shard = self._shards[at] = _Shard(SLOTS_MIN)
        elif shard.used * 4 >= len(shard.places) * 3:
            shard = self._replace(at, shard.without(first, len(shard.places) * 3 // 2))
        slot = shard.slot(tag, mark)
        if not shard.places[slot]:
            shard.used += 1
            self.count += 1
            shard.tags[slot] = tag
        shard.places[slot] = max(shard.places[slot], offset + 1 << _MARK_BITS | mark)

    def find(self, key: bytes, offset: int = 0) -> int | None:
        """Where the newest message of this key is; of an empty one, whether it is at `offset`."""
        tag, rest = self._hash(key, offset)
        shard = self._shards[rest % SHARDS]
        place = 0 if shard is None else shard.places[shard.slot(tag, _mark_of(rest))]
        return (place >> _MARK_BITS) - 1 if place > _MARK else None

    def forget(self, offset: int) -> None:
        """A message without a key is not to stay any more: it was put again."""
        tag, rest = self._hash(b"", offset)
        shard, mark = self._shards[rest % SHARDS], _mark_of(rest)
        if shard is not None and shard.places[slot := shard.slot(tag, mark)]:
            shard.places[slot] = mark  # the slot stays taken, with no offset

    def below(self, at: int, first: int, stop: int) -> tuple[list[int], int]:
        """The offsets from `first` to before `stop` in shard `at`, and what work that was, in slots
        looked at. What is below `first` is forgotten."""
        shard = self._shards[at]
        if shard is None:
            return [], 1
        lowest, highest = first + 1 << _MARK_BITS, stop + 1 << _MARK_BITS
        found = [place for place in shard.places if place and place < highest]
        kept = [(place >> _MARK_BITS) - 1 for place in found if place >= lowest]
        work = len(shard.places)
        if len(kept) < len(found):
            left = shard.used - len(found) + len(kept)
            self._replace(at, shard.without(first, max(SLOTS_MIN, left * 2)))
            work += left * _COPYING
        return kept, work

    def bytes_used(self) -> int:
        """What the arrays take of memory."""
        return sum(16 * len(shard.places) for shard in self._shards if shard is not None)

    def _hash(self, key: bytes, offset: int) -> tuple[int, int]:
        if key:
            digest = blake2b(key, digest_size=16, key=self._secret)
        else:
            name = b"%d" % offset
            digest = blake2b(name, digest_size=16, key=self._secret, person=b"no key")
        tag, rest = _split(digest.digest())
        return tag, rest

    def _replace(self, at: int, shard: _Shard) -> _Shard:
        former = self._shards[at]
        self.count += shard.used - (0 if former is None else former.used)
        self._shards[at] = shard
        return shard


def _mark_of(rest: int) -> int:
    return rest >> 64 - _MARK_BITS | 1  # never 0, which would be a free slot


def first_stored_ms(headers: bytes) -> int:
    """When the original of a copy was stored, epoch ms; 0 = it is no copy."""
    if FIRST_STORED not in headers:
        return 0
    for line in headers.split(b"\r\n"):
        if line.startswith(FIRST_STORED):
            digits = line[len(FIRST_STORED) :]  # an older program may have stored a client's
            return int(digits) if digits.isdigit() and len(digits) <= _DIGITS_MAX else 0
    return 0
