"""Why a message is not with a request that waits for it: what became of it in a group, or what it
waits for. Nothing changes by asking.

What a group has finished it mostly forgets, so then there is a reason only if the topic keeps it
(`settled_ms`, `zbus.core.model.dispositions`). Else what is known of the message may still tell it,
and the group's dead-letter topic (`zbus.core.diagnosis.dead_letter_lookup`).

Tests: `tests/conformance/test_why.py`.
"""

from __future__ import annotations

import enum
from collections.abc import Callable

import attrs

from zbus.core.cursor.backlog import Backlog
from zbus.core.delivery import retries
from zbus.core.diagnosis.dead_letter_lookup import Letter, Wanted, find_letter
from zbus.core.model.chunk import Chunk
from zbus.core.model.dispositions import Disposition
from zbus.core.model.errors import BrokerError
from zbus.core.model.message_state import MessageState
from zbus.core.topics import growth
from zbus.core.topics.topic import Group, Partition, Topic
from zbus.core.verbs.listing import holder_of


class Cause(enum.Enum):
    """In one word."""

    NOT_STORED = "not stored"  # the log ends before it
    FORGOTTEN = "forgotten"  # purged, or not retained
    DELAYED = "delayed"
    LEASED = "leased"
    READY = "ready"  # it is delivered when a client asks, and its turn has come
    PAUSED = "paused"
    WINDOW_FULL = "window full"  # the group has as many leased as it may
    KEY_BUSY = "key busy"  # another message of its key has to be finished before
    OLDER_FIRST = "older first"  # the topic got more partitions (`zbus.core.topics.growth`)
    FINISHED = "finished"  # how is not known
    # What `Disposition` tells apart. Three of them may be still to come: then there is no time.
    DONE = "done"
    DEAD = "dead"
    DELETED = "deleted"
    EXPIRED = "expired"
    FILTERED = "filtered"


_CAUSES = {fate: Cause[fate.name] for fate in Disposition}


@attrs.frozen
class Why:
    """The answer. What is not known, or does not matter here, is 0 or empty."""

    cause: Cause
    group: Group
    partition: int
    offset: int
    first: int = 0  # of the partition: what is stored, for an offset that is not
    end: int = 0
    stored_ms: int = 0  # from here on only of what is stored
    id: bytes = b""
    tag: bytes = b""
    key: bytes = b""
    expires_ms: int = 0
    until_ms: int = 0  # delayed or leased until then
    attempts: int = 0  # times delivered under a lease
    holder: bytes = b""  # of the lease
    ended_ms: int = 0  # when it was finished
    before: int = 0  # messages that the group has to come past
    letter: Letter | None = None  # of a dead one, if it was found in the dead-letter topic
    behind: int = -1  # the offset of the message that it waits for; -1 = none


def ask(
    group: Group,
    partition: Partition,
    offset: int,
    now_ms: int,
    done: Callable[[Why | BrokerError], None],
    letters: Topic | None = None,
) -> None:
    """Find out; the message may have to be read from storage. `letters`: its dead letters."""
    first, end = partition.first, partition.visible
    index = partition.index
    if partition.fenced is None and not first <= offset < end:
        cause = Cause.FORGOTTEN if offset < first else Cause.NOT_STORED
        done(Why(cause, group, index, offset, first, end))
        return

    def found(found: tuple[Chunk, int] | BrokerError) -> None:
        if not isinstance(found, BrokerError):
            why = _explain(group, index, *found, now_ms)
            if why.cause is Cause.FINISHED and letters is not None:
                wanted = Wanted(group, index, offset, why.stored_ms, why.key)
                find_letter(letters, wanted, lambda letter: done(_died(why, letter)))
            else:
                done(why)
        elif offset < partition.first:  # while it was read
            done(Why(Cause.FORGOTTEN, group, index, offset, partition.first, partition.visible))
        else:
            done(found)

    partition.log.get(offset, found)


def _explain(group: Group, index: int, chunk: Chunk, at: int, now_ms: int) -> Why:
    backlog, offset = group.backlogs[index], chunk.first + at
    why = Why(
        Cause.READY,
        group,
        index,
        offset,
        stored_ms=chunk.time_of(at),
        id=chunk.id_of(at, index),
        tag=chunk.tag_of(at),
        key=chunk.key_of(at),
        expires_ms=0 if chunk.expires is None else chunk.expires[at],
        attempts=backlog.attempts.get(offset, 0),
    )
    life = backlog.life(offset)
    if life is MessageState.LEASED:
        if offset in backlog.leased.settling and _tried(group, backlog, chunk, at):
            return attrs.evolve(why, cause=Cause.DEAD)
        until_ms, holder = backlog.leased.due_of(offset), holder_of(backlog, offset)
        return attrs.evolve(why, cause=Cause.LEASED, until_ms=until_ms, holder=holder)
    if life is MessageState.DONE:
        return _finished(why, backlog, now_ms)
    due_ms = 0
    if offset in backlog.delayed:
        due_ms = backlog.delayed.due_of(offset)
    elif chunk.due is not None and offset not in backlog.places:
        due_ms = chunk.due[at]  # the group has not come to it
    if due_ms > now_ms:
        return attrs.evolve(why, cause=Cause.DELAYED, until_ms=due_ms)
    return _waiting(why, backlog, now_ms)


def _tried(group: Group, backlog: Backlog, chunk: Chunk, at: int) -> bool:
    attempts = backlog.attempts.get(chunk.first + at, 0)
    return 0 < group.options.attempts_max <= attempts or retries.tried(backlog, chunk, at)


def _died(why: Why, letter: Letter | None) -> Why:
    if letter is None:
        return why
    dead = attrs.evolve(why, cause=Cause.DEAD, letter=letter, attempts=letter.attempts)
    return attrs.evolve(dead, ended_ms=letter.time_ms)


def _finished(why: Why, backlog: Backlog, now_ms: int) -> Why:
    kept_ms = why.group.topic.options.settled_ms
    fates = backlog.fates
    ending = None if fates is None else fates.find(why.offset, now_ms, kept_ms)
    if ending is None:
        return attrs.evolve(why, cause=Cause.FINISHED)
    cause, ended_ms = _CAUSES[ending.fate], ending.time_ms
    return attrs.evolve(why, cause=cause, ended_ms=ended_ms, attempts=ending.attempts)


def _waiting(why: Why, backlog: Backlog, now_ms: int) -> Why:
    """It is ready: what keeps it there, the lasting first."""
    group = why.group
    if 0 < why.expires_ms <= now_ms:
        return attrs.evolve(why, cause=Cause.EXPIRED)
    if group.match is not None and not group.match(why.tag):
        return attrs.evolve(why, cause=Cause.FILTERED)
    if group.paused:
        return attrs.evolve(why, cause=Cause.PAUSED)
    if group.window_full():
        return attrs.evolve(why, cause=Cause.WINDOW_FULL)
    found = growth.limits(group) if group.topic.options.grown else []
    if found and why.offset >= max(found[why.partition], backlog.cursor):
        return attrs.evolve(why, cause=Cause.OLDER_FIRST)
    if backlog.order is not None and why.key:
        behind = backlog.order.waits_for(backlog, why.offset, why.key)
        if behind is not None:
            return attrs.evolve(why, cause=Cause.KEY_BUSY, behind=behind)
    return attrs.evolve(why, before=max(0, why.offset - backlog.cursor))
