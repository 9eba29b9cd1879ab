"""What a message is in this dialect: names, statuses, and how it is shown.

A message that was sent without an id is named by its place: 32 lower-case hexadecimal digits, as
the original's ids, that say which topic, partition and offset. So such ids cost no memory, and are
known for as long as the message is stored.
"""

from __future__ import annotations

import enum
from typing import Final

import msgspec

from zbus.core.api import (
    BrokerError,
    Chunk,
    Disposition,
    Group,
    MessageState,
    Partition,
    Topic,
    locate_id,
)
from zbus.edge.params import INT_MAX
from zbus.wire.numbers import parse_number
from zbus.wire.target import decode_valid_percent, encode_header_value

NEVER_MS: Final = (1 << 53) - 1
"""The `expireTime` of a message that does not expire: the largest number that all JSON readers
have."""

_PLACE_BYTES: Final = 16
_HEX: Final = b"0123456789abcdef"
_DELAY: Final = b"delay: "


class Status(enum.IntEnum):
    """As the original numbers them. From CONSUMED on it is over."""

    WAITING = 1
    READY = 2
    CONSUMING = 3
    CONSUMED = 4
    EXPIRED = 5  # and was never delivered
    DROPPED = 6  # it was, and its attempts or its time are used up
    DELETED = 7


class DelayMsg(msgspec.Struct, rename="camel"):
    """A message as it is shown."""

    topic: str
    msg_id: str
    msg: str
    produce_time: int
    trigger_time: int
    expire_time: int
    max_retry: int
    retry: int  # times delivered so far
    status: int


# -- names -------------------------------------------------------------------------------------


def stored_id(given: bytes) -> bytes:
    """An id as it is stored; in other dialects it is a header's value."""
    return encode_header_value(given)


def place_id(topic: Topic, index: int, offset: int) -> bytes:
    """The id of a message that has no other."""
    return b"%012x%04x%016x" % (topic.options.created_ms, index, offset)


def place_of(topic: Topic, id: bytes) -> tuple[Partition, int] | None:
    """Which place of a topic an id names, if it does."""
    if len(id) != 2 * _PLACE_BYTES or id.translate(None, _HEX):
        return None
    place = bytes.fromhex(id.decode())
    created_ms, index, offset = [
        int.from_bytes(part, "big") for part in (place[:6], place[6:8], place[8:])
    ]
    if created_ms != topic.options.created_ms or index >= len(topic.partitions):
        return None
    return topic.partitions[index], offset


def id_of(topic: Topic, index: int, chunk: Chunk, at: int) -> bytes:
    """The id of row `at` as it is stored. Where ids are not remembered no request could name
    it by the one that it has: there its place is its id."""
    return (topic.options.dedupe_live and chunk.ids[at]) or place_id(topic, index, chunk.first + at)


def places_of(topic: Topic, id: bytes, now_ms: int) -> list[tuple[Partition, int]]:
    """Where the message of an id may be, the most likely first."""
    found = locate_id(topic, id, now_ms) if topic.options.dedupe_live else None
    return [place for place in (found, place_of(topic, id)) if place is not None]


def unknown_now(topic: Topic) -> BrokerError | None:
    """Why it is not known whether there is a message: what is stored is being read again."""
    return next((one.fenced for one in topic.partitions if one.fenced is not None), None)


# -- statuses ----------------------------------------------------------------------------------


def status_of(
    group: Group | None, index: int, chunk: Chunk, at: int, now_ms: int
) -> tuple[Status, int] | None:
    """Its status and how often it was delivered; None if it ended and is not remembered."""
    due_ms = 0 if chunk.due is None else chunk.due[at]
    if group is None:
        return (Status.WAITING if due_ms > now_ms else Status.READY), 0
    backlog, offset = group.progress(index), chunk.first + at
    attempts = backlog.attempts.get(offset, 0)
    life = backlog.life(offset)
    if life is MessageState.LEASED:
        return Status.CONSUMING, attempts
    if life is MessageState.DONE:
        return _ended(group, index, offset, now_ms)
    expires_ms = 0 if chunk.expires is None else chunk.expires[at]
    if 0 < expires_ms <= now_ms:
        return (Status.DROPPED if attempts else Status.EXPIRED), attempts
    if 0 < _attempts_max(group, chunk, at) <= attempts:
        return Status.DROPPED, attempts  # when its turn comes
    if offset in backlog.delayed:
        due_ms = backlog.delayed.due_of(offset)
    elif offset in backlog.places:
        due_ms = 0  # it was due
    return (Status.WAITING if due_ms > now_ms else Status.READY), attempts


def _ended(group: Group, index: int, offset: int, now_ms: int) -> tuple[Status, int] | None:
    fates = group.progress(index).fates
    ending = None
    if fates is not None:
        ending = fates.find(offset, now_ms, group.topic.options.settled_ms)
    if ending is None:
        return None
    match ending.fate:
        case Disposition.DONE:
            status = Status.CONSUMED
        case Disposition.DEAD:
            status = Status.DROPPED
        case Disposition.EXPIRED:
            status = Status.DROPPED if ending.attempts else Status.EXPIRED
        case _:
            status = Status.DELETED
    return status, ending.attempts


def _attempts_max(group: Group | None, chunk: Chunk, at: int) -> int:
    """How often it may be delivered; 0 = without limit."""
    own = 0 if chunk.attempts is None else chunk.attempts[at]
    return own or (0 if group is None else group.options.attempts_max)


# -- showing -----------------------------------------------------------------------------------


def delay_lines(delay_ms: int) -> bytes:
    """The header lines of a message. The delay is stored beside the time when it is due, because
    that is counted from a later moment than the time of the write is."""
    return b"%b%d\r\n" % (_DELAY, delay_ms) if delay_ms > 0 else b""


def times_of(chunk: Chunk, at: int) -> tuple[int, int]:
    """When a message was produced, and when it is or was due."""
    due_ms = 0 if chunk.due is None else chunk.due[at]
    produced_ms, headers = chunk.time_of(at), chunk.headers[at]
    if not due_ms:
        return produced_ms, produced_ms
    if headers.startswith(_DELAY):
        delay_ms = parse_number(headers[len(_DELAY) : headers.find(b"\r")]) or 0
        return due_ms - delay_ms, due_ms
    return produced_ms, max(produced_ms, due_ms)


def show(
    group: Group | None,
    topic: Topic,
    index: int,
    chunk: Chunk,
    at: int,
    status: Status,
    retry: int,
) -> DelayMsg:
    """Row `at` of a chunk of partition `index`."""
    produced_ms, due_ms = times_of(chunk, at)
    limit = _attempts_max(group, chunk, at)
    return DelayMsg(
        topic.name,
        shown(decode_valid_percent(id_of(topic, index, chunk, at))),
        shown(chunk.bodies[at]),
        produced_ms,
        due_ms,
        (chunk.expires is not None and chunk.expires[at]) or NEVER_MS,
        limit - 1 if limit else INT_MAX,
        retry,
        status,
    )


def shown(text: bytes) -> str:
    """Text as it came; JSON cannot hold what is not UTF-8."""
    return text.decode("utf-8", "replace")
