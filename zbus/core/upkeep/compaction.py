"""The newest message of each key stays for ever, older ones go: topics with `compact`.

What is stored is never written anew in place. The oldest ended segment is taken; what in it is
still the newest of its key is put again at the end of the log; when that is durable, the segment is
forgotten as with retention. So nothing on the disk is other than it was, and a crash at any moment
leaves a message once or twice, never not at all.

A copy is no news. It *moves* the message in each group: where the original is finished, the copy is
finished in the write that stores it; where the original waits, the original is finished when the
copy is durable, and the copy waits in its place. What is leased is not moved: the segment stays
until its lease ended. Subscribers who have passed the original pass the copy, too
(`zbus.core.fanout.follow`). A copy has the line `first-stored` with the time of the original.

A pass looks up in the table of newest offsets (`zbus.core.topics.newest`) what of the segment has
to stay, copies that a portion at a time, and looks again. When there is nothing more to copy, the
segment goes: so it does not matter what came in between, a failed write or a crash of the program.
Segments go in the order of the log, so a tombstone that goes leaves no older value behind.

The table is made by reading the log, a portion at a time, and follows it from then on. Nothing is
copied, and no `get` answered, before it is where the log ends. There is no clock here: a portion
takes a millisecond or two, and with the pauses between portions that is the share of a core.

Tests: `tests/core/upkeep/test_compaction.py`.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from functools import partial
from itertools import repeat
from typing import Final, NamedTuple

from zbus.core.cursor.backlog import Backlog
from zbus.core.delivery.run_queue import RunQueue
from zbus.core.log import Size
from zbus.core.model.chunk import Chunk
from zbus.core.model.dispositions import Disposition
from zbus.core.model.errors import BrokerError, Outcome, Refusal
from zbus.core.model.message import Message
from zbus.core.model.message_state import MessageState
from zbus.core.model.ticket import Calling, Ticket
from zbus.core.timing.timers import Timers
from zbus.core.topics.newest import FIRST_STORED, SHARDS, NewestOffsets, first_stored_ms
from zbus.core.topics.outcomes import Peeked, Slice
from zbus.core.topics.point_reads import PointReads
from zbus.core.topics.topic import Group, Partition, Topic
from zbus.core.upkeep.retention import Retention

PAUSE_MS: Final = 10
"""Between two portions."""

WAIT_MS: Final = 1_000
"""Before what stands in the way is looked at again: a lease, a group that retains, a full disk."""

INDEXED: Final = Size(bytes_max=64 << 10, count_max=250)
REBUILD_PAUSE_MS: Final = 2
"""Messages that the table takes up in one go: 4 us each, and reading them back takes as long. The
pause after a portion that was read back is short: more may be put meanwhile."""

COPIED_MAX: Final = 64
COPIED_BYTES_MAX: Final = 64 << 10
"""What is copied in one go: 20 us for each message, and more if it is large."""

SLOTS_MAX: Final = 20_000
"""Of the table that are looked through in one go."""

SPAN: Final = 1 << 14
"""Offsets whose messages are copied in order; the order of spans is that of the log, too."""

UNINDEXED_MAX: Final = 4_096
"""Messages on their way to the disk whose keys are looked through for each portion."""

AHEAD_MAX: Final = 100_000
"""Of a group that is far behind, so many copies are known as finished before it gets there. Of more
it is given the copies, though it had the originals: they have the line that says so."""

SPARE: Final = 2
"""Something is done when there are that many times as many messages as keys whose newest message
is to stay."""

GET_MS_MAX: Final = 10_000
GETS_MAX: Final = 1_000
"""How long, and how many, `get` wait for the table of a partition."""

REBUILDING: Final = BrokerError(
    Refusal.OVERLOADED, "the newest messages are being looked up after a start: retry in 5 s", "", 5
)


class Move(NamedTuple):
    """A message and its copy."""

    offset: int
    copy: int


class _Pass:
    """Through one segment, as often as there is something to copy in it."""

    __slots__ = ("again", "at", "busy", "end", "found", "offsets", "shard")

    def __init__(self, end: int) -> None:
        self.end = end  # the offset before which the segment ends
        self.shard = 0  # of the table, the one to look through next
        # What is to stay, by `SPAN`s of the log: to sort a million offsets takes too long.
        self.found: dict[int, array[int]] = {}
        self.offsets: list[int] = []  # of the span that is copied now
        self.at = 0  # the next of them
        self.again = False  # something was copied, or is not known yet: look once more
        self.busy = False  # it waits for a read or a write


class _Get:
    """Waits for the newest message of a key."""

    __slots__ = ("key", "partition", "ticket")

    def __init__(self, partition: Partition, key: bytes, ticket: Ticket) -> None:
        self.partition = partition
        self.key = key
        self.ticket = ticket


class Compaction:
    """`new_id` makes secrets."""

    def __init__(
        self, runs: RunQueue, retention: Retention, timers: Timers, new_id: Callable[[], bytes]
    ) -> None:
        self._runs = runs
        self._tick = runs.tick
        self._retention = retention
        self._new_id = new_id
        self._steps = timers.timer(self._step, lambda partition: partition)
        self._deadlines = timers.timer(self._give_up, lambda get: get.partition)
        self._passes: dict[Partition, _Pass] = {}
        self._reading: dict[Partition, NewestOffsets] = {}  # its next messages are read back
        self._gets: dict[Partition, list[_Get]] = {}
        self._tick.hooks.durable = self.note

    # -- beginning and end ----------------------------------------------------------------

    def note(self, partition: Partition) -> None:
        """It was read, or more of it is durable, or it is another kind of topic by now."""
        if not partition.topic.options.compact:
            partition.newest = None
            self._forget(partition, _not_compact(partition.topic))
            return
        if partition.fenced is not None:
            return  # what was on its way before that is durable: it has to be read again
        newest = partition.newest
        if newest is None:
            newest = partition.newest = NewestOffsets(self._new_id(), partition.first)
            self._passes.pop(partition, None)
        if not self._index_at_hand(partition, newest):
            self._later(partition, PAUSE_MS)
        elif newest.end == partition.visible:
            self._answer_gets(partition, newest)
            if not self._is_soon(partition):
                self._rest(partition, newest)

    def end(self, topic: Topic, why: BrokerError) -> None:
        """The topic is gone, or the broker stops."""
        for partition in topic.partitions:
            self._forget(partition, why)

    def _forget(self, partition: Partition, why: BrokerError) -> None:
        self._steps.discard(partition)
        self._passes.pop(partition, None)
        for get in self._gets.pop(partition, ()):
            self._deadlines.discard(get)
            get.ticket.settle(why)

    def _later(self, partition: Partition, pause_ms: int) -> None:
        due_ms = self._tick.now_ms + pause_ms
        if partition not in self._steps or self._steps.due_of(partition) > due_ms:
            self._steps.set(partition, due_ms)

    def _rest(self, partition: Partition, newest: NewestOffsets) -> None:
        """Until there is work, or may be because the time of messages is over."""
        if self._has_work(partition, newest):
            self._later(partition, PAUSE_MS)
        elif newest.mortals.next_ms:
            self._later(partition, newest.mortals.next_ms - self._tick.now_ms)

    def _is_soon(self, partition: Partition) -> bool:
        """Its next step is not just that the time of some messages is over."""
        soon_ms = self._tick.now_ms + WAIT_MS
        return partition in self._steps and self._steps.due_of(partition) <= soon_ms

    def _step(self, partition: Partition) -> None:
        newest = partition.newest
        if partition.removed or partition.fenced is not None or newest is None:
            return  # it begins again when it was read again
        if not self._index_at_hand(partition, newest):
            self._read_back(partition, newest)
        elif newest.end == partition.visible:
            self._answer_gets(partition, newest)
            pause_ms = self._clean(partition, newest)
            if pause_ms:
                self._later(partition, pause_ms)
            elif partition not in self._passes:
                self._rest(partition, newest)

    # -- the table ------------------------------------------------------------------------

    def _index_at_hand(self, partition: Partition, newest: NewestOffsets) -> bool:
        """Take up what is in memory; whether it was all."""
        newest.end = max(newest.end, partition.first)
        left = INDEXED.count_max
        while newest.end < partition.visible and left > 0:
            chunk = partition.log.find(newest.end)
            if chunk is None:
                return False
            left -= _index(partition, newest, chunk, left, self._tick.now_ms)
        if newest.end < partition.visible:
            self._later(partition, 0)
        return True

    def _read_back(self, partition: Partition, newest: NewestOffsets) -> None:
        if self._reading.get(partition) is newest:
            return
        self._reading[partition] = newest
        partition.fetch(newest.end, INDEXED, partial(self._came, partition, newest))

    def _came(
        self, partition: Partition, newest: NewestOffsets, found: Chunk | BrokerError | None
    ) -> None:
        if self._reading.get(partition) is newest:
            del self._reading[partition]
        if partition.newest is not newest or partition.fenced is not None:
            return
        pause_ms = WAIT_MS  # the disk is odd: nothing is copied, and a `get` waits in vain
        if isinstance(found, Chunk) and found.first <= newest.end < found.end:
            _index(partition, newest, found, INDEXED.count_max, self._tick.now_ms)
            pause_ms = REBUILD_PAUSE_MS
            if newest.end == partition.visible:
                self._answer_gets(partition, newest)
        elif newest.end < partition.first:
            pause_ms = 0  # forgotten meanwhile
        self._later(partition, pause_ms)

    # -- looking for the newest message ---------------------------------------------------

    def get(self, ticket: Ticket, partition: Partition, key: bytes) -> None:
        """The newest message of a key; settles with Peeked, or OFFSET_UNKNOWN if there is none or a
        tombstone. All that was acknowledged before is known to it."""
        if not partition.topic.options.compact:
            ticket.settle(_not_compact(partition.topic))
        elif partition.fenced is not None:
            ticket.settle(partition.fenced)
        elif (newest := partition.newest) is not None and newest.end >= partition.visible:
            self._find(newest, partition, key, ticket)
        elif len(gets := self._gets.setdefault(partition, [])) >= GETS_MAX:
            ticket.settle(REBUILDING)
        else:
            gets.append(get := _Get(partition, key, ticket))
            self._deadlines.set(get, self._tick.now_ms + GET_MS_MAX)
            self._later(partition, 0)  # a small topic is read in one go

    def _give_up(self, get: _Get) -> None:
        self._gets[get.partition].remove(get)
        get.ticket.settle(get.partition.fenced or REBUILDING)

    def _answer_gets(self, partition: Partition, newest: NewestOffsets) -> None:
        for get in self._gets.pop(partition, ()):
            self._deadlines.discard(get)
            self._find(newest, partition, get.key, get.ticket)

    def _find(
        self, newest: NewestOffsets, partition: Partition, key: bytes, ticket: Ticket
    ) -> None:
        offset = newest.find(key)
        if offset is None or offset < partition.first:
            ticket.settle(_no_value(key))
            return

        def done(found: tuple[Chunk, int] | BrokerError) -> None:
            if isinstance(found, BrokerError):
                moved = newest.find(key) != offset or offset < partition.first
                unknown = found.refusal is Refusal.OFFSET_UNKNOWN
                if unknown and moved and partition.newest is newest:
                    self.get(ticket, partition, key)  # it was moved while it was read
                else:
                    ticket.settle(found)
                return
            chunk, at = found
            message = chunk.message(at)
            gone = message.key != key or not message.body
            if gone or 0 < message.expires_ms <= self._tick.now_ms:
                ticket.settle(_no_value(key))
            else:
                pieces = [Slice(partition.index, chunk, at, at + 1)]
                ticket.settle(Peeked(partition.topic, pieces))

        partition.log.get(offset, done)

    # -- a pass through the oldest segments -----------------------------------------------

    def _has_work(self, partition: Partition, newest: NewestOffsets) -> bool:
        if partition in self._passes:
            return True
        newest.mortals.look(self._tick.now_ms, partition.first, partition.end)
        stay = max(0, newest.count - newest.mortals.count)
        # A purge that found no room for a checkpoint leaves segments before the first message.
        segments, first = partition.stored.segments, partition.first
        ended = segments.holding(partition.visible) > segments.holding(first)
        return ended and partition.end - first > SPARE * stay

    def _clean(self, partition: Partition, newest: NewestOffsets) -> int:
        """A portion of what is to be done, and after which pause to go on, in ms; 0 = there is
        nothing to do, or what is under way says it. The table is up to date."""
        work = self._passes.get(partition)
        if partition.purged_to > partition.first or (work and work.end <= partition.first):
            # What a pass was about is about to go, or the topic is being emptied: then no copy may
            # come behind that.
            self._passes.pop(partition, None)
            return 10 * PAUSE_MS
        if work is None:
            if not self._has_work(partition, newest):
                return 0
            end = _pass_end(partition, newest)
            if _retained(partition, end):
                return WAIT_MS
            work = self._passes[partition] = _Pass(end)
        if work.busy:
            return 0
        if work.shard < SHARDS:
            _look_through(partition, newest, work)
            return PAUSE_MS
        if work.at == len(work.offsets) and work.found:
            work.offsets, work.at = sorted(work.found.pop(min(work.found))), 0
        if work.at < len(work.offsets):
            self._copy(partition, newest, work)
            return 0
        if work.again:
            self._passes[partition] = _Pass(work.end)
            return PAUSE_MS
        if _retained(partition, work.end) or _leased(partition, work.end):
            return WAIT_MS
        del self._passes[partition]
        self._retention.forget_before(partition, work.end)
        return PAUSE_MS

    def _copy(self, partition: Partition, newest: NewestOffsets, work: _Pass) -> None:
        """Read the next that are to stay, and put them again."""
        places = [(partition, o) for o in work.offsets[work.at : work.at + COPIED_MAX]]
        found: list[tuple[int, Message]] = []
        left = COPIED_BYTES_MAX

        def each(_: Partition, chunk: Chunk, at: int) -> bool:
            nonlocal left
            message = chunk.message(at)  # the chunk may be emptied before the next one is read
            message.id = chunk.id_of(at, partition.index)
            found.append((chunk.first + at, message))
            left -= len(message.body) + len(message.headers)
            return left > 0

        def done(problem: BrokerError | None) -> None:
            work.busy = False
            if partition.newest is newest and self._passes.get(partition) is work:
                pause_ms = WAIT_MS  # the disk is odd: the segment stays
                if problem is None and partition.fenced is None:
                    pause_ms = self._put_again(partition, newest, work, found)
                self._later(partition, pause_ms)

        work.busy = True
        PointReads(places, each, done)

    def _put_again(
        self,
        partition: Partition,
        newest: NewestOffsets,
        work: _Pass,
        found: list[tuple[int, Message]],
    ) -> int:
        """Stage copies of what of these is still the newest; when to go on, in ms."""
        newer = _newer_keys(partition, newest)
        if newer is None or partition.purged_to > partition.first:
            return PAUSE_MS
        leased = [g.backlogs[partition.index].leased for g in partition.topic.groups.values()]
        free = 0
        while free < len(found) and not any(found[free][0] in one for one in leased):
            free += 1
        work.at += free
        now_ms = self._tick.now_ms
        tombstone_ms = partition.topic.options.compact_tombstone_ms
        stay = [
            (offset, message)
            for offset, message in found[:free]
            if message.key not in newer
            and newest.find(message.key, offset) == offset
            and not _may_go(message, now_ms, tombstone_ms)
        ]
        # A put that is on its way may be refused yet: then the older value has to stay.
        work.again = work.again or bool(stay) or any(m.key in newer for _, m in found[:free])
        pause_ms = PAUSE_MS if free == len(found) else WAIT_MS
        if not stay:
            return pause_ms
        moves = [Move(offset, copy) for copy, (offset, _) in enumerate(stay, partition.end)]
        copies = Chunk.of([_copy_of(message) for _, message in stay])
        ticket = Calling(partial(self._moved, partition, work, moves))
        work.busy = True
        self._tick.stage(partition, ticket, copies)
        for group in partition.topic.groups.values():
            if _finish_copies(group.backlogs[partition.index], moves):
                self._tick.change(partition, group)
        return pause_ms

    def _moved(
        self, partition: Partition, work: _Pass, moves: list[Move], outcome: Outcome
    ) -> None:
        """The copies are durable, or were not stored."""
        work.busy = False
        if self._passes.get(partition) is not work:
            return
        if isinstance(outcome, BrokerError):
            # Mostly the disk is full. The next look finds what is left to be copied.
            self._passes[partition] = _Pass(work.end)
            self._later(partition, WAIT_MS)
            return
        for offset, _ in moves:
            if partition.newest is not None:
                partition.newest.forget(offset)
        for group in partition.topic.groups.values():
            _move_waiting(self._runs, group, partition, moves)
        self._later(partition, PAUSE_MS)


def _index(
    partition: Partition, newest: NewestOffsets, chunk: Chunk, count_max: int, now_ms: int
) -> int:
    """Take up some messages of a chunk that has the next one; how many."""
    begin = newest.end - chunk.first
    stop = min(len(chunk), begin + count_max, partition.visible - chunk.first)
    keys = repeat(b"") if chunk.keys is None else chunk.keys[begin:stop]
    first, note = partition.first, newest.note
    for offset, key in zip(range(newest.end, chunk.first + stop), keys, strict=False):
        note(key, offset, first)
    if chunk.expires is not None or b"" in chunk.bodies[begin:stop]:
        tombstone_ms = partition.topic.options.compact_tombstone_ms
        for at in range(begin, stop):
            if until_ms := _goes_ms(chunk.message(at), tombstone_ms):
                newest.mortals.note(until_ms, now_ms)
    newest.end = max(newest.end, chunk.first + stop)
    return stop - begin


def _look_through(partition: Partition, newest: NewestOffsets, work: _Pass) -> None:
    """Find what is to stay, in some shards of the table."""
    left = SLOTS_MAX
    while left > 0 and work.shard < SHARDS:
        found, slots = newest.below(work.shard, partition.first, work.end)
        for offset in found:
            work.found.setdefault(offset // SPAN, array("Q")).append(offset)
        work.shard += 1
        left -= slots


def _pass_end(partition: Partition, newest: NewestOffsets) -> int:
    """Where the pass ends: with the first segment, or with more that are short."""
    segments = partition.stored.segments
    oldest = segments.holding(partition.first)
    most = min(partition.visible, segments[oldest].base + max(newest.count, 1))
    return segments[max(oldest + 1, segments.holding(most))].base


def _newer_keys(partition: Partition, newest: NewestOffsets) -> set[bytes] | None:
    """The keys of what is on its way to the disk; None = they are not known now."""
    begin, keys = newest.end, set[bytes]()
    if partition.end - begin > UNINDEXED_MAX:
        return None
    while begin < partition.written:
        chunk = partition.log.find(begin)
        if chunk is None:
            return None
        keys.update(chunk.keys[begin - chunk.first :] if chunk.keys else ())
        begin = chunk.end
    staged = partition.staged
    keys.update(staged.keys if staged is not None and staged.keys else ())
    return keys - {b""}


def _may_go(message: Message, now_ms: int, tombstone_ms: int) -> bool:
    """Though it is the newest of its key."""
    return 0 < _goes_ms(message, tombstone_ms) <= now_ms


def _goes_ms(message: Message, tombstone_ms: int) -> int:
    """From when on; 0 = never."""
    expires_ms = message.expires_ms
    if not message.key or message.body:
        return expires_ms
    over_ms = (first_stored_ms(message.headers) or message.produced_ms) + tombstone_ms
    return min(expires_ms, over_ms) if expires_ms else over_ms


def _copy_of(message: Message) -> Message:
    """The same, to be put once more. It is not recognised by an idempotency key: that names the put
    of its original."""
    message.once = b""
    if not first_stored_ms(message.headers):
        message.headers += b"%b%d\r\n" % (FIRST_STORED, message.produced_ms)
    return message


def _has_room(backlog: Backlog) -> bool:
    return len(backlog.ahead) < AHEAD_MAX


def _finish_copies(backlog: Backlog, moves: list[Move]) -> bool:
    """Of what the group is done with; whether there was any."""
    done = [copy for offset, copy in moves if backlog.life(offset) is MessageState.DONE]
    if not done or not _has_room(backlog):
        return False
    for copy in done:
        backlog.finish(copy)
    return True


def _move_waiting(runs: RunQueue, group: Group, partition: Partition, moves: list[Move]) -> None:
    """Copies take the place of what waits for the group."""
    backlog, changed = group.backlogs[partition.index], False
    for offset, copy in moves:
        life = backlog.life(offset)
        reached = offset < backlog.cursor or offset in backlog.ahead
        again = life is not MessageState.DONE and reached
        if again and life is not MessageState.LEASED and backlog.life(copy) is MessageState.DONE:
            backlog.again(copy)  # the original was finished, and is wanted again by now
        if life is MessageState.LEASED or backlog.life(copy) is not MessageState.READY:
            continue  # it was handed out meanwhile, and the copy will be: twice is allowed
        if not (reached or group.readers) or not _has_room(backlog):
            continue  # the original goes before the group comes to it
        changed = True
        if life is MessageState.DONE:
            backlog.finish(copy)
            continue
        due_ms = backlog.delayed.due_of(offset) if life is MessageState.DELAYED else 0
        attempts = backlog.attempts.get(offset, 0)
        backlog.finish(offset, Disposition.DELETED)
        if due_ms:
            backlog.delay(copy, due_ms)
        elif attempts:
            backlog.put_back(copy)
        if attempts:
            backlog.attempts[copy] = attempts
    if changed:
        runs.finished(group, partition)
        runs.schedule(group, partition.index)


def _leased(partition: Partition, end: int) -> bool:
    """A group has a lease of something before that."""
    groups, index = partition.topic.groups.values(), partition.index
    return any(offset < end for group in groups for offset in group.backlogs[index].leased)


def _retained(partition: Partition, end: int) -> bool:
    """A group is not to lose anything before that, and has not finished it."""
    groups, index = partition.topic.groups.values(), partition.index
    return any(g.options.retain and g.backlogs[index].floor() < end for g in groups)


def _not_compact(topic: Topic) -> BrokerError:
    text = f"{topic.name} is not compact: declare it with compact=true to get messages by key"
    return BrokerError(Refusal.ILLEGAL, text)


def _no_value(key: bytes) -> BrokerError:
    name = key[:100].decode("utf-8", "replace")
    return BrokerError(Refusal.OFFSET_UNKNOWN, f"there is no message of the key {name!r}")
