"""What a journal has to remember beside the messages: options and backlogs.

A tick's change and a whole checkpoint have one form, `StateChange`: a checkpoint is the change
from nothing. Applying the changes of a partition in order gives the same state on any engine, and
applying one twice does no harm, because each entry says where an offset *is*, not what happened.

Tests: `tests/storage/test_checkpoint.py`.
"""

from __future__ import annotations

import enum
from array import array
from collections.abc import Collection, Iterable, Iterator
from functools import partial
from typing import Final

import attrs

from zbus.core.dedup.entries import NO_IDS, IdColumns, Original
from zbus.core.model.dispositions import NO_ENDINGS, Endings
from zbus.core.model.schema import Schema
from zbus.core.model.webhook import Push
from zbus.core.timing.delays import NOTHING, Columns

TOMBSTONE_MS: Final = 86_400_000
"""A day: who reads a compact topic as often as that learns of every key that is no more."""


class EntryState(enum.IntEnum):
    """Where an offset is, when the cursor alone does not tell. Stored: never renumber."""

    DONE = 0  # below the cursor: no exception any more. At or past it: taken ahead of the cursor
    # Of a double-ended queue they say, too, where a message stood
    # (`zbus.core.cursor.return_order`): the time of what is ready again, and the rank of what is
    # leased; 0 = that is not known.
    READY = 1  # put back; `rank` gives its place
    LEASED = 2  # delivered; `time_ms` is the deadline
    DELAYED = 3  # waits for `time_ms`


@attrs.frozen
class Entry:
    """One exception of a backlog."""

    offset: int
    state: EntryState
    time_ms: int = 0
    attempts: int = 0  # times delivered so far
    rank: int = 0


@attrs.define
class Entries:
    """Exceptions of a backlog in columns, as they are stored: there may be millions. One that was
    given away is not changed any more."""

    offsets: array[int] = attrs.Factory(partial(array, "Q"))
    times: array[int] = attrs.Factory(partial(array, "Q"))  # milliseconds
    ranks: array[int] = attrs.Factory(partial(array, "q"))
    attempts: array[int] = attrs.Factory(partial(array, "I"))
    states: bytearray = attrs.Factory(bytearray)

    @classmethod
    def of(cls, *entries: Entry) -> Entries:
        """Make columns of single entries."""
        made = cls()
        for entry in entries:
            made.add(entry.offset, entry.state, entry.time_ms, entry.attempts, entry.rank)
        return made

    def __len__(self) -> int:
        return len(self.states)

    def __iter__(self) -> Iterator[Entry]:
        for offset, state, time_ms, attempts, rank in self.rows():
            yield Entry(offset, EntryState(state), time_ms, attempts, rank)

    def rows(self) -> Iterable[tuple[int, int, int, int, int]]:
        """Offset, state, time, attempts and rank of each, without an object."""
        return zip(self.offsets, self.states, self.times, self.attempts, self.ranks, strict=True)

    def add(
        self, offset: int, state: int, time_ms: int = 0, attempts: int = 0, rank: int = 0
    ) -> None:
        """Add one."""
        self.offsets.append(offset)
        self.states.append(state)
        self.times.append(time_ms)
        self.attempts.append(attempts)
        self.ranks.append(rank)

    def add_all(
        self,
        state: EntryState,
        offsets: Collection[int],
        attempts: Iterable[int] | None = None,
        times: Iterable[int] | None = None,
        ranks: Iterable[int] | None = None,
    ) -> None:
        """Add many of one state; a column that is not given is zero."""
        count = len(offsets)
        self.offsets.extend(offsets)
        self.states.extend(bytes((state,)) * count)
        for column, values in ((self.attempts, attempts), (self.times, times), (self.ranks, ranks)):
            if values is None:
                column.frombytes(bytes(column.itemsize * count))
            else:
                column.extend(values)

    def truncated(self, end: int) -> Entries:
        """The same, knowing nothing of offsets from `end` on."""
        if not self or (max(self.offsets) < end and max(self.ranks) <= end):
            return self
        kept = Entries()
        for offset, state, time_ms, attempts, rank in self.rows():
            if offset < end:
                place = min(rank, end) if state == EntryState.READY else rank
                kept.add(offset, state, time_ms, attempts, place)
        return kept


NO_ENTRIES: Final = Entries()
"""Stays empty."""


@attrs.frozen
class TopicOptions:
    """What `declare` fixes for a topic. Zero or empty means none."""

    name: str
    # what only the dialect understands that declared it: JSON, given back as is
    opaque: bytes = b""
    partitions: int = 1
    durability: str = "disk"  # memory | os | disk
    calls: bool = False  # a put waits for what a service routes back
    competing: bool = False  # one queue, whatever group a reader names
    # What a group does that leaves the same word open (None).
    lease: bool = False
    exclusive: bool = False
    temporary: bool = False  # gone with its last reader
    paused: bool = False
    created_ms: int = 0
    dedupe_ms: int = 0  # how long an id is remembered, and no message of that id stored again
    dedupe_live: bool = False  # nor while the message of that id is not finished in every group
    # What may be forgotten, by whole segments; nothing of it = the log is kept for ever.
    retention_ms: int = 0  # older than that much, whether it was read or not
    retention_bytes: int = 0  # beyond the newest that many, likewise; per partition
    retention_count: int = 0  # messages, likewise; per partition
    retention_done: bool = False  # what all groups have finished
    settled_ms: int = (
        0  # how long it is known what became of a message (`zbus.core.model.dispositions`)
    )
    notes: str = ""  # what a dialect keeps along with the topic: JSON
    minimal_headers: bool = (
        False  # a message has what its producer chose to say, and nothing of how it came
    )
    schema: Schema | None = None  # what a body has to fit that a client puts
    # The newest message of each key stays for ever, older ones go (`zbus.core.upkeep.compaction`).
    compact: bool = False
    compact_tombstone_ms: int = (
        TOMBSTONE_MS  # how long a message without a body stays that is the newest
    )
    # Where the partitions ended each time that there were more (`zbus.core.topics.growth`). None in
    # what is declared: their order does not matter.
    grown: tuple[tuple[int, ...], ...] | None = ()

    @property
    def remembers_ids(self) -> bool:
        return self.dedupe_ms > 0 or self.dedupe_live

    @property
    def retains(self) -> bool:
        """Something of the log may be forgotten some time."""
        limited = self.retention_ms or self.retention_bytes or self.retention_count
        return bool(limited or self.retention_done)


@attrs.frozen
class GroupOptions:
    """How a group reads. Chosen by the dialect that declared it; None = as the topic says."""

    opaque: bytes = b""  # as of a topic
    filter: str = ""
    lease: bool | None = None  # False: acknowledged on delivery
    lease_ms: int = 10_000
    window: int = 100  # leases that may be open at once
    exclusive: bool | None = None  # one session at a time
    temporary: bool | None = None
    paused: bool | None = None
    created_ms: int = 0
    # What becomes of a message that is not acknowledged (`zbus.core.delivery.retries`).
    attempts_max: int = 0  # delivered that often, it is dead; 0 = as often as it takes
    backoff_ms: int = 0  # before its second attempt, and twice as long before each one after that
    backoff_max_ms: int = 0  # but never longer; 0 = `BACKOFF_MS_MAX`
    dead_letter: str = ""  # the topic that dead messages are put into; "" = they are dropped
    on_loss: str = "keep"  # "keep" what its holder lost until its time is over; or "front"
    # How fast, and to whom.
    order: str = (
        ""  # "key": messages of one key go out one after another (`zbus.core.cursor.key_order`)
    )
    one_batch: bool = False  # a partition is delivered again when its last batch is settled
    rate_per_s: int = 0  # messages delivered; 0 = no limit
    attempts_kept: bool = False  # as with a limit of them (`zbus.core.delivery.durable`)
    retain: bool = False  # retention forgets nothing that the group has not finished
    push: Push | None = None  # its messages are sent to an HTTP endpoint
    # It came with its topic, and no client has named it or read it yet: it holds nothing back.
    unclaimed: bool = False

    def same_as(self, other: GroupOptions) -> bool:
        """Equal but for the time of creation."""
        return self == attrs.evolve(other, created_ms=self.created_ms)


@attrs.frozen
class Origin:
    """How a group began in partitions that have not stored it yet; partition 0 stores it."""

    starts: tuple[int, ...]  # by partition: the cursor; -1 = as the model is there
    model: str = ""  # a group; if it is this one, all goes on as it was
    incarnation: int = 0  # of the model
    whole: bool = False  # with all that the model has not finished, not only what it has delayed
    before: Origin | None = None  # how the model began, if some partition may not know that one


@attrs.define  # as good as frozen: frozen ones take twice as long to make
class GroupChange:
    """What became of one group in one partition."""

    name: str
    cursor: int = 0
    options: GroupOptions | None = None  # given when declared or changed, and in a checkpoint
    removed: bool = False
    reset: bool = False  # forget all exceptions before applying `cursor` and `entries`
    entries: Entries = NO_ENTRIES
    delayed: Columns = NOTHING  # what waits, beside those of `entries`: never delivered so far
    skipped: int = 0  # messages that the log forgot before the group had finished them, ever
    unreported: int = 0  # those of them that no delivery reported
    dead: int = 0  # messages that were given up, ever
    incarnation: int = 0  # what partition 0 calls it; of any other, nothing counts
    origin: Origin | None = None  # in partition 0, until all partitions have stored the group
    fates: Endings = NO_ENDINGS  # what became of messages, in a topic that keeps it


@attrs.frozen
class Completion:
    """What becomes of deliveries of some group once messages are stored here, or the change that it
    is a part of (`zbus.core.patterns.completions`)."""

    number: int  # of its partition
    end: int  # it counts if the messages before this offset are here; 0 = with its change
    topic: str
    topic_ms: int  # when that was created, or another may have its name; likewise of the group
    group: str
    group_ms: int
    partition: int
    ranges: tuple[tuple[int, int], ...]  # offsets: the first, and the one after the last
    dead: bool = False  # they are dead-lettered, not done
    due_ms: int = 0  # they are given back until then, not done; 0 = they are done
    attempts: int = 0  # with `due_ms`: how often each was given back before


@attrs.define  # as good as frozen: frozen ones take twice as long to make
class StateChange:
    """All that a tick changed in one partition, or (in a checkpoint) all there is."""

    topic: TopicOptions | None = None
    groups: tuple[GroupChange, ...] = ()
    first: int = 0  # messages below it are no more: purged, or not retained
    originals: tuple[Original, ...] = ()  # stored lately; only with all there is
    ids: IdColumns = NO_IDS  # of messages that are not finished, likewise
    expiries: Columns = NOTHING  # when messages expire, likewise
    # Of topics with several partitions (`zbus.core.commit.topic_changes`).
    incarnation: str = ""  # of the topic; only with all there is
    number: int = 0  # the last one given to a decision; in partition 0
    emptied: tuple[int, ...] = ()  # likewise: a decision's number, then each partition's first
    purges: tuple[tuple[int, int], ...] = ()  # numbers of such decisions, and what is first here
    # What is to be completed elsewhere, and the numbers of what is.
    completions: tuple[Completion, ...] = ()
    completed: tuple[int, ...] = ()

    def truncated(self, end: int) -> StateChange:
        """The same, knowing nothing of offsets from `end` on."""
        groups = [
            attrs.evolve(
                group,
                cursor=min(group.cursor, end),
                entries=group.entries.truncated(end),
                delayed=group.delayed.truncated(end),
            )
            for group in self.groups
        ]
        originals = tuple(original for original in self.originals if original.offset < end)
        first = min(self.first, end)
        purges = tuple((number, min(place, end)) for number, place in self.purges)
        return attrs.evolve(
            self,
            groups=tuple(groups),
            first=first,
            originals=originals,
            ids=self.ids.truncated(end),
            expiries=self.expiries.truncated(end),
            purges=purges,
            completions=tuple([one for one in self.completions if one.end <= end]),
        )
