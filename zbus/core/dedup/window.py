"""What a partition remembers of the messages stored lately, so that none is stored twice.

An entry is made from nothing but the stored message: its id (in a topic with `dedupe_ms`, if it
was given one), or the idempotency key that it was put with. So recovery makes the same entries
from the same bytes, and there is no moment at which a crash leaves a message without its entry.

Ids and keys are kept as 128 bits of their BLAKE2b: entries then have one size, whatever is sent.
Among 100,000 of them two agree by chance once in 10^28 such sets.

Keys that begin with `zb:` are the broker's own, of what one process of a server puts into a topic
of another: such a put is repeated until it is answered, perhaps after a crash, so its key is kept
for longer. The name of such a key says so, and therefore so does what is stored of it.

Tests: `tests/core/commit/test_idempotent_put_model.py`.
"""

from __future__ import annotations

from collections import OrderedDict
from hashlib import blake2b
from itertools import chain, pairwise
from operator import attrgetter
from struct import Struct
from typing import Final

from zbus.core.dedup.entries import NAME_BYTES, Original
from zbus.core.model.chunk import Chunk

COUNT_MAX: Final = 100_000
"""Entries of one partition; past it the oldest go before their time."""

KEY_MS: Final = 600_000
"""How long a key is remembered in a topic that says nothing."""

OWN_KEY: Final = b"zb:"
"""How the keys begin that only the broker itself uses."""

OWN_KEY_MS: Final = 7 * 24 * 3_600_000
"""How long such a key is remembered, at least."""

_OWN_NAME: Final = b"zb:key"
"""How the name of such a key begins: that of another does once in 10^14."""

_SHORT_BYTES: Final = 1024
_time_of = attrgetter("time_ms")
_lengths = Struct("<QQQ").pack
_from_bytes = int.from_bytes


# Copied for each use: that takes half the time of making one.
_ID = blake2b(digest_size=NAME_BYTES, person=b"id")
_KEY = blake2b(digest_size=NAME_BYTES, person=b"key")
_OWN = blake2b(digest_size=NAME_BYTES - len(_OWN_NAME), person=b"own key")
_CONTENT = blake2b(digest_size=8, person=b"content")


def id_name(id: bytes) -> bytes:
    """The name of a message's id."""
    digest = _ID.copy()
    digest.update(id)
    return digest.digest()


def key_name(key: bytes) -> bytes:
    """The name of a key: never that of an id."""
    digest = _KEY.copy()
    if key.startswith(OWN_KEY):
        digest = _OWN.copy()
        digest.update(key)
        return _OWN_NAME + digest.digest()
    digest.update(key)
    return digest.digest()


def fingerprint_of(tag: bytes, key: bytes, body: bytes) -> int:
    """The fingerprint of one message."""
    digest = _CONTENT.copy()
    start = _lengths(len(tag), len(key), len(body)) + tag + key
    if len(body) <= _SHORT_BYTES:  # to put them together costs less than a second call
        digest.update(start + body)
    else:
        digest.update(start)
        digest.update(body)
    return _from_bytes(digest.digest(), "little")


def fingerprint(chunk: Chunk, start: int = 0, stop: int | None = None) -> int:
    """Tells other content from the same: of tags, keys and bodies. A number of 64 bits."""
    digest = _CONTENT.copy()
    tags, keys, bodies = chunk.tags, chunk.keys, chunk.bodies
    for at in range(start, len(bodies) if stop is None else stop):
        tag, key = b"" if tags is None else tags[at], b"" if keys is None else keys[at]
        body = bodies[at]
        digest.update(_lengths(len(tag), len(key), len(body)) + tag + key)
        digest.update(body)
    return int.from_bytes(digest.digest(), "little")


class DedupWindow:
    """What one partition remembers, the oldest first."""

    __slots__ = ("_originals", "_own")

    def __init__(self) -> None:
        self._originals: OrderedDict[bytes, Original] = OrderedDict()
        self._own: OrderedDict[bytes, Original] = OrderedDict()  # those of the broker's own keys

    def __len__(self) -> int:
        return len(self._originals) + len(self._own)

    def __contains__(self, name: bytes) -> bool:
        return self.find(name) is not None

    def find(self, name: bytes) -> Original | None:
        """What was stored under this name, if that is not forgotten."""
        return self._originals.get(name) or self._own.get(name)

    def note(self, chunk: Chunk, ids: bool) -> None:
        """Remember stored messages: each by its key if it was put with one, else by its id, if
        `ids`. Neighbours with one key were one put."""
        count, start = len(chunk), 0
        while start < count:
            key, stop = self._key_of(chunk, start), start + 1
            if key:
                while stop < count and self._key_of(chunk, stop) == key:
                    stop += 1
                digest, time_ms = fingerprint(chunk, start, stop), chunk.time_of(start)
                entry = Original(key_name(key), chunk.first + start, stop - start, time_ms, digest)
                self.remember(entry)
            elif ids and (id := chunk.ids[start]):
                entry = Original(id_name(id), chunk.first + start, 1, chunk.time_of(start), 0)
                self.remember(entry)
            start = stop

    @staticmethod
    def _key_of(chunk: Chunk, at: int) -> bytes:
        return b"" if chunk.once is None else chunk.once[at]

    def remember(self, original: Original) -> bool:
        """Add an entry, unless there is one of that name: the first stays the original. Whether it
        was added."""
        originals = self._own if original[0].startswith(_OWN_NAME) else self._originals
        if originals.setdefault(original[0], original) is not original:
            return False
        if len(originals) > COUNT_MAX:
            originals.popitem(last=False)
        return True

    def due_ms(self, dedupe_ms: int) -> int | None:
        """When the next entry is to be forgotten, in a topic that keeps ids for that long; 0 = it
        does not say."""
        kept = (self._originals, dedupe_ms or KEY_MS), (self._own, max(dedupe_ms, OWN_KEY_MS))
        dues = [next(iter(some.values())).time_ms + kept_ms for some, kept_ms in kept if some]
        return min(dues, default=None)

    def expire(self, now_ms: int, dedupe_ms: int) -> None:
        """Forget what was kept for its time."""
        _forget(self._originals, now_ms - (dedupe_ms or KEY_MS))
        if self._own:
            _forget(self._own, now_ms - max(dedupe_ms, OWN_KEY_MS))

    def truncate(self, end: int) -> None:
        """Forget what was to be stored from this offset on, and found no room."""
        for originals in (self._originals, self._own):
            while originals:
                name = next(reversed(originals))
                if originals[name].offset < end:
                    break
                del originals[name]

    def snapshot(self) -> tuple[Original, ...]:
        """All entries, the oldest first."""
        entries = chain(self._originals.values(), self._own.values())
        return tuple(sorted(entries, key=_time_of)) if self._own else tuple(entries)

    def check(self) -> None:
        """Assert the invariants."""
        entries = self.snapshot()
        assert max(len(self._originals), len(self._own)) <= COUNT_MAX
        assert all(one.time_ms <= other.time_ms for one, other in pairwise(entries))
        for originals in (self._originals, self._own):
            assert all(name == entry.name for name, entry in originals.items())


def _forget(originals: OrderedDict[bytes, Original], before_ms: int) -> None:
    """What was stored then or earlier."""
    while originals:
        name = next(iter(originals))
        if originals[name].time_ms > before_ms:
            return
        del originals[name]
