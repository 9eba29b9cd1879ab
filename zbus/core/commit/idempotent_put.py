"""Putting what may have been put before, or only where the log ends as expected.

A put is recognised by its idempotency key if it has one, else (in a topic with `dedupe_ms` or
`dedupe_live`) each message by its id. What is recognised is not stored again. Its ticket ends with
Duplicate when the original is durable, and is refused if the original is: the two have one fate.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from zbus.core.dedup.window import (
    KEY_MS,
    Original,
    fingerprint,
    fingerprint_of,
    id_name,
    key_name,
)
from zbus.core.model.chunk import Chunk, Row
from zbus.core.model.errors import BrokerError, Refusal, conflict
from zbus.core.model.ticket import Parts, Ticket
from zbus.core.topics import ids_in_use as taken
from zbus.core.topics.outcomes import Duplicate
from zbus.core.topics.topic import Partition, Topic

if TYPE_CHECKING:
    from zbus.core.commit.tick import Tick

EXPIRY_EVERY_MS = 10_000
"""A partition is gone through at most that often for what is to be forgotten."""

EXPIRIES_PER_TURN_MAX = 4
"""Partitions: each may have `COUNT_MAX` entries to forget."""

_Place = tuple[Partition, Original]

_NOWHERE: list[_Place] = []

_REUSED = BrokerError(Refusal.REUSED, "this idempotency-key was used for a different message")


def put_once(
    tick: Tick,
    partition: Partition,
    chunk: Chunk,
    ticket: Ticket,
    expected_offset: int | None,
    refused: BrokerError | None = None,
) -> None:
    """Store those of the messages that are not stored yet, all or none; at least one is given.
    With `refused` nothing is stored now, but what was stored before is answered.

    All have the same key, or none has one. Originals are found in whichever partition they are.
    """
    topic = partition.topic
    _expire(tick, topic)
    if chunk.once is not None:
        _put_with_key(tick, partition, chunk, ticket, expected_offset, refused)
        return
    fresh, known = chunk, _NOWHERE
    if topic.options.remembers_ids:
        fresh, known = _by_ids(tick, topic, chunk)
    if fresh and refused is not None:
        ticket.settle(refused)
    elif fresh and expected_offset not in (None, partition.end):
        _refuse(tick, partition, ticket)
    elif topic.options.dedupe_live and not _make_room(tick, partition, fresh):
        ticket.settle(_too_many_ids(partition))
    elif len(fresh) == len(chunk):
        _store(tick, partition, fresh, ticket)
    else:
        _answer(tick, partition, fresh, known, len(chunk), ticket)


def put_with_key(tick: Tick, partition: Partition, ticket: Ticket, row: Row) -> None:
    """Store one message with an idempotency key, unless it is stored. This is what `put_once` does,
    without a chunk: it is how clients put that send again what was not answered."""
    _expire(tick, partition.topic)
    name, digest = key_name(row[7]), fingerprint_of(row[3], row[4], row[2])
    place = _find(partition.topic, name)
    if place is not None:
        _answer_known(tick, partition, place, digest, 1, ticket)
        return
    _remember(tick, partition, name, 1, digest)
    tick.put(partition, ticket, row)


def remember_along(tick: Tick, partition: Partition, row: Row) -> bool:
    """Remember one more message with an idempotency key of its own, which is put behind one that
    `put_with_key` staged in this turn; False if it is stored already."""
    name = key_name(row[7])
    if len(partition.topic.partitions) > 1 and _find(partition.topic, name) is not None:
        return False
    return _remember(tick, partition, name, 1, fingerprint_of(row[3], row[4], row[2]))


def _put_with_key(
    tick: Tick,
    partition: Partition,
    chunk: Chunk,
    ticket: Ticket,
    expected_offset: int | None,
    refused: BrokerError | None,
) -> None:
    """All rows have one key."""
    assert chunk.once is not None
    name, digest, count = key_name(chunk.once[0]), fingerprint(chunk), len(chunk)
    place = _find(partition.topic, name)
    if place is not None:
        _answer_known(tick, partition, place, digest, count, ticket)
    elif refused is not None:
        ticket.settle(refused)
    elif expected_offset not in (None, partition.end):
        _refuse(tick, partition, ticket)
    else:
        _remember(tick, partition, name, count, digest)
        tick.put_all(partition, chunk, ticket)


def _answer_known(
    tick: Tick, partition: Partition, place: _Place, digest: int, count: int, ticket: Ticket
) -> None:
    """The key came before: with the same content, or with another."""
    if place[1].digest != digest or place[1].records != count:
        ticket.settle(_REUSED)
    else:
        _answer(tick, partition, Chunk(), [place], count, ticket)


def _remember(tick: Tick, partition: Partition, name: bytes, count: int, digest: int) -> bool:
    """What is put now has this name; False if something has it already."""
    entry = Original(name, partition.end, count, tick.now_ms, digest)
    if not partition.originals.remember(entry):
        return False
    if partition not in tick.dedup_timer.entries:
        remind(tick, partition)
    return True


def remind(tick: Tick, partition: Partition) -> None:
    """See to it that originals are forgotten in time though nothing is put."""
    oldest_ms = partition.originals.oldest_ms()
    if oldest_ms is not None:
        due_ms = oldest_ms + (partition.topic.options.dedupe_ms or KEY_MS)
        tick.dedup_timer.set(partition, max(due_ms, tick.now_ms + EXPIRY_EVERY_MS))


def forget(tick: Tick, partition: Partition) -> None:
    """Forget what is due, so much of it in a turn that others get their turn."""
    tick.forgotten += 1
    if tick.forgotten > EXPIRIES_PER_TURN_MAX:
        tick.dedup_timer.set(partition, tick.now_ms)
        return
    partition.originals.expire(tick.now_ms - (partition.topic.options.dedupe_ms or KEY_MS))
    remind(tick, partition)


def _expire(tick: Tick, topic: Topic) -> None:
    before_ms = tick.now_ms - (topic.options.dedupe_ms or KEY_MS)
    for partition in topic.partitions:
        partition.originals.expire(before_ms)


def _find(topic: Topic, name: bytes) -> _Place | None:
    for partition in topic.partitions:
        original = partition.originals.find(name)
        if original is not None:
            return partition, original
    return None


def _find_id(tick: Tick, topic: Topic, name: bytes) -> _Place | None:
    place = _find(topic, name)
    if place is not None or not topic.options.dedupe_live:
        return place
    for partition in topic.partitions:
        found, offset = taken.find(partition, name, tick.now_ms)
        if found == taken.TAKEN:
            return partition, Original(name, offset, 1, 0, 0)
    return None


def _make_room(tick: Tick, partition: Partition, chunk: Chunk) -> bool:
    count = len(chunk) - chunk.ids.count(b"")
    return not count or taken.make_room(partition, tick.now_ms, count)


def _too_many_ids(partition: Partition) -> BrokerError:
    topic, most = partition.topic.name, taken.LIVE_IDS_MAX
    text = f"{topic} holds {most} unfinished messages with ids in partition {partition.index}"
    return BrokerError(Refusal.TOO_MANY, f"{text}: retry when some are finished")


def _by_ids(tick: Tick, topic: Topic, chunk: Chunk) -> tuple[Chunk, list[_Place]]:
    """The messages that are new, each id once, and where the others are. One without an id of its
    own is always new."""
    rows: list[int] = []
    seen: set[bytes] = set()
    known = []
    for at, id in enumerate(chunk.ids):
        place = _find_id(tick, topic, id_name(id)) if id else None
        if place is not None:
            known.append(place)
        elif not id or id not in seen:
            seen.add(id)
            rows.append(at)
    return (chunk if len(rows) == len(chunk) else chunk.pick(rows)), known


def _store(tick: Tick, partition: Partition, chunk: Chunk, ticket: Ticket) -> None:
    """New messages without a key."""
    if partition.topic.options.dedupe_ms > 0:
        chunk.first, chunk.time_ms = partition.end, tick.now_ms
        partition.originals.note(chunk, True)
        if partition not in tick.dedup_timer:
            remind(tick, partition)
    if partition.ids is not None:
        for at, id in enumerate(chunk.ids):
            if id:
                partition.ids.stage(id_name(id), partition.end + at)
    tick.put_all(partition, chunk, ticket)


def _answer(
    tick: Tick,
    partition: Partition,
    fresh: Chunk,
    known: list[_Place],
    count: int,
    ticket: Ticket,
) -> None:
    """Store what is new and wait for what is not."""
    last: dict[Partition, int] = {}
    for home, original in known:
        last[home] = max(last.get(home, 0), original.offset + original.records - 1)
    reported_of, offset = partition, partition.end
    if not fresh:
        reported_of, offset = (known[0][0], known[0][1].offset) if known else (partition, offset)
    ticket.offset = offset
    parts = Parts(ticket, Duplicate(reported_of, count - len(fresh)), len(last) + bool(fresh))
    if fresh:
        _store(tick, partition, fresh, parts.part())
    for home, offset in last.items():
        tick.join(home, offset, parts.part())


def _refuse(tick: Tick, partition: Partition, ticket: Ticket) -> None:
    """Say where the log ends: not before that end is one that no crash takes back. What is before
    it may find no room yet: then this is refused like that."""
    refusal = conflict(partition.index, partition.end)
    if partition.end == partition.visible:
        ticket.settle(refusal)
    else:
        tick.join(partition, partition.end - 1, Parts(ticket, refusal, 1).part())
