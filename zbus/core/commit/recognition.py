"""Which of the messages that are put were put before.

A put is recognised by its idempotency key if it has one, else (in a topic with `dedupe_ms` or
`dedupe_live`) each message by its id. Originals are found in whichever partition they are.

What a partition remembers is forgotten in time also if nothing is put.

Tests: `tests/core/commit/test_idempotent_put.py`.
"""

from __future__ import annotations

from typing import NamedTuple

from zbus.core.commit.tick import EXPIRIES_PER_TURN_MAX, Tick
from zbus.core.dedup import active_ids
from zbus.core.dedup.entries import Original
from zbus.core.dedup.window import KEY_MS, fingerprint, fingerprint_of, id_name, key_name
from zbus.core.model.chunk import Chunk, Row
from zbus.core.model.errors import BrokerError, Refusal
from zbus.core.timing.timers import Timers
from zbus.core.topics.topic import Partition, Topic

EXPIRY_EVERY_MS = 10_000
"""A partition is gone through at most that often for what is to be forgotten."""

Known = tuple[Partition, Original]

_REUSED = BrokerError(Refusal.REUSED, "this idempotency-key was used for a different message")


class Recognised(NamedTuple):
    """What is new of a put, and where the originals of the others are."""

    new: Chunk
    known: list[Known]
    problem: BrokerError | None = None  # the put is refused
    name: bytes = b""  # of its key, and the fingerprint of its content
    digest: int = 0

    def too_many_ids(self, partition: Partition, now_ms: int) -> BrokerError | None:
        """Why what is new cannot be told from others later."""
        ids, count = partition.ids, len(self.new) - self.new.ids.count(b"")
        if self.name or ids is None or not count or ids.make_room(now_ms, count):
            return None
        topic, most = partition.topic.name, active_ids.LIVE_IDS_MAX
        where = f"{topic} holds {most} unfinished messages with ids"
        text = f"{where} in partition {partition.index}: retry when some are finished"
        return BrokerError(Refusal.TOO_MANY, text)


class Recognition:
    def __init__(self, tick: Tick, timers: Timers) -> None:
        self._tick = tick
        self._timer = timers.timer(self._forget, lambda partition: partition)

    def recognise(self, partition: Partition, chunk: Chunk) -> Recognised | None:
        """Look for the originals of what is put. All have the same key, or none has one. None: it
        has none, and the topic does not look at ids."""
        topic = partition.topic
        if chunk.once is not None:
            self._expire(topic)
            name, digest = key_name(chunk.once[0]), fingerprint(chunk)
            known = _find(topic, name)
            if known is None:
                return Recognised(chunk, [], None, name, digest)
            other = known[1].digest != digest or known[1].records != len(chunk)
            return Recognised(Chunk(), [known], _REUSED if other else None)
        if topic.options.remembers_ids:
            self._expire(topic)
            return _by_ids(topic, chunk, self._tick.now_ms)
        return None

    def record(self, partition: Partition, found: Recognised, first: int) -> None:
        """Remember what is new of it, which was put at this offset and behind it."""
        chunk = found.new
        if found.name:
            entry = Original(found.name, first, len(chunk), self._tick.now_ms, found.digest)
            partition.originals.remember(entry)
            self._remind_of_first(partition)
            return
        if partition.topic.options.dedupe_ms > 0:
            chunk.first, chunk.time_ms = first, self._tick.now_ms
            partition.originals.note(chunk, True)
            self._remind_of_first(partition)
        if partition.ids is not None:
            for offset, id in enumerate(chunk.ids, first):
                if id:
                    partition.ids.stage(id_name(id), offset)

    def record_along(self, partition: Partition, row: Row) -> bool:
        """Remember one more message with an idempotency key of its own, which is put behind one
        that was put in this turn; False if it is stored already."""
        assert len(row) > 3
        name = key_name(row[7])
        if len(partition.topic.partitions) > 1 and _find(partition.topic, name) is not None:
            return False
        digest = fingerprint_of(row[3], row[4], row[2])
        entry = Original(name, partition.end, 1, self._tick.now_ms, digest)
        if not partition.originals.remember(entry):
            return False
        if partition not in self._timer.entries:  # as below, without a call
            self.remind(partition)
        return True

    def _remind_of_first(self, partition: Partition) -> None:
        if partition not in self._timer.entries:
            self.remind(partition)

    def remind(self, partition: Partition) -> None:
        """See to it that originals are forgotten in time though nothing is put."""
        now_ms, dedupe_ms = self._tick.now_ms, partition.topic.options.dedupe_ms
        due_ms = partition.originals.due_ms(dedupe_ms)
        if due_ms is not None:  # what is put meanwhile may be due before that
            due_ms = min(due_ms, now_ms + (dedupe_ms or KEY_MS))
            self._timer.set(partition, max(due_ms, now_ms + EXPIRY_EVERY_MS))

    def drop(self, topic: Topic) -> None:
        """The topic is gone."""
        for partition in topic.partitions:
            self._timer.discard(partition)

    def _forget(self, partition: Partition) -> None:
        """Forget what is due, so much of it in a turn that others get their turn."""
        tick = self._tick
        tick.forgotten += 1
        if tick.forgotten > EXPIRIES_PER_TURN_MAX:
            self._timer.set(partition, tick.now_ms)
            return
        partition.originals.expire(tick.now_ms, partition.topic.options.dedupe_ms)
        self.remind(partition)

    def _expire(self, topic: Topic) -> None:
        for partition in topic.partitions:
            partition.originals.expire(self._tick.now_ms, topic.options.dedupe_ms)


def _find(topic: Topic, name: bytes) -> Known | None:
    for partition in topic.partitions:
        original = partition.originals.find(name)
        if original is not None:
            return partition, original
    return None


def _find_id(topic: Topic, name: bytes, now_ms: int) -> Known | None:
    known = _find(topic, name)
    if known is not None or not topic.options.dedupe_live:
        return known
    for partition in topic.partitions:
        assert partition.ids is not None
        standing, offset = partition.ids.look_up(name, now_ms)
        if standing == active_ids.TAKEN:
            return partition, Original(name, offset, 1, 0, 0)
    return None


def _by_ids(topic: Topic, chunk: Chunk, now_ms: int) -> Recognised:
    """The messages that are new, each id once, and where the others are. One without an id of its
    own is always new."""
    rows: list[int] = []
    seen: set[bytes] = set()
    known = []
    for at, id in enumerate(chunk.ids):
        place = _find_id(topic, id_name(id), now_ms) if id else None
        if place is not None:
            known.append(place)
        elif not id or id not in seen:
            seen.add(id)
            rows.append(at)
    return Recognised(chunk if len(rows) == len(chunk) else chunk.pick(rows), known)
