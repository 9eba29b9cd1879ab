"""The batch: one tick's records of one partition, in memory, on disk and on the wire alike.

A batch is columnar: first all lengths of a column, then all its bytes, so that a reader with
numpy or Arrow maps a whole column at once and a reader without them needs one pass per column and
not one per message. Everything is little-endian and starts at a multiple of 8 bytes.

     0        4    5    6       8       12            20        28         32        36      40
    +--------+----+----+-------+-------+-------------+---------+----------+---------+-------+
    | "zbus" | v2 |kind| flags | count | base offset | time ms | previous | payload | crc32 |
    |        |    |    |       |       |             |         | crc32    | length  |       |
    +--------+----+----+-------+-------+-------------+---------+----------+---------+-------+
    | payload ...                                       zero padding to a multiple of 8 bytes |
    +------------------------------------------------------------------------------------------+

* `payload length` includes the padding, so the next batch is at 40 + payload length.
* `crc32` covers the first 36 bytes and the payload. `previous crc32` is that of the lane's batch
  before (0 for the first), which chains them: a lost or foreign batch cannot go unnoticed.
* `count` records have the offsets `base offset ...`. STATE and CHECKPOINT batches have none;
  their base offset is the end of the log at that time.
* `time ms` is the tick's time, and of a DATA batch every message's time of production.

`flags` of a DATA batch tells which columns its payload has: see `zbus.storage.format.columns`. The
payload of STATE and CHECKPOINT is described in `zbus.storage.format.checkpoint`; it is the same in
all versions. Batches of version 1 are read wherever those of version 2 are, and no longer written.
A batch is of version 3 if it has the column that was added then.

Lengths from a disk are as hostile as those from a peer: all are checked before they are used.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple
from zlib import crc32

from zbus.core.model.chunk import Chunk
from zbus.storage.errors import JournalDamage
from zbus.storage.format.columns import (
    ATTEMPTS,
    COLUMNS,
    KEY_LINE,
    PADDING,
    Column,
    ColumnReader,
    encode_columns,
)

MAGIC: Final = b"zbus"
SNAPSHOT: Final = 1
"""The bit in a STATE batch's flags: it holds all there is, as a CHECKPOINT does. Stored."""
VERSION: Final = 2
"""Of nearly all batches that are written."""
_NEWEST: Final = max(COLUMNS)
HEADER_BYTES: Final = 40
COUNT_MAX: Final = 1 << 20  # records in a batch: a batch of no columns must not be a memory bomb
_SMALL_BYTES: Final = 1 << 10
SEARCH_BYTES_MAX: Final = 1 << 30  # checked while looking for a whole batch behind a bad one

_HEADER = struct.Struct("<4sBBHIQQIII")
_unsealed = struct.Struct("<4sBBHIQQII").pack  # the header without its crc
_u32 = struct.Struct("<I").pack
_make = tuple.__new__


class Kind(enum.IntEnum):
    """What a batch holds. Stored: never renumber."""

    DATA = 1
    STATE = 2  # what a tick changed in the groups
    CHECKPOINT = 3  # everything about the groups; begins a segment


_KINDS = (None, Kind.DATA, Kind.STATE, Kind.CHECKPOINT)
_DATA = Kind.DATA
_ONCE = int(Column.ONCE)
_STATE_FLAGS = {Kind.STATE: SNAPSHOT, Kind.CHECKPOINT: 0}


class BatchHeader(NamedTuple):
    """The fixed part of a batch."""

    kind: Kind
    flags: int
    records: int
    base_offset: int
    time_ms: int
    previous_crc: int
    payload_length: int
    crc: int
    version: int = VERSION

    @property
    def length(self) -> int:
        """Bytes of the whole batch."""
        return HEADER_BYTES + self.payload_length

    @property
    def is_whole_state(self) -> bool:
        """Recovery may begin here: a checkpoint or a snapshot."""
        return self.kind is Kind.CHECKPOINT or (self.kind is Kind.STATE and self.flags == SNAPSHOT)

    @property
    def end_offset(self) -> int:
        """The offset after the batch's last record."""
        return self.base_offset + self.records


class Batch(NamedTuple):
    """A whole batch and what its header says."""

    header: BatchHeader
    raw: bytes


def encode_chunk(chunk: Chunk, previous_crc: int) -> Batch:
    """Make a DATA batch of the chunk's rows, which all have its time of production."""
    count = len(chunk.bodies)
    if not 0 < count <= COUNT_MAX:
        raise ValueError(f"a DATA batch holds 1 to {COUNT_MAX} messages, not {count}")
    assert chunk.times is None
    flags, parts = encode_columns(chunk)
    return _seal(_DATA, flags, count, chunk.first, chunk.time_ms, previous_crc, parts)


def encode_state(
    kind: Kind, base_offset: int, time_ms: int, payload: bytes, previous_crc: int, flags: int = 0
) -> Batch:
    """Make a STATE or CHECKPOINT batch. The payload is padded with zeros."""
    payload += PADDING[len(payload) & 7]
    return _seal(kind, flags, 0, base_offset, time_ms, previous_crc, [payload])


def _seal(
    kind: Kind,
    flags: int,
    count: int,
    base_offset: int,
    time_ms: int,
    previous_crc: int,
    parts: list[bytes],
) -> Batch:
    """The payload is these parts. Few bytes are put together first: that takes less than a call for
    each part. Megabytes are copied once."""
    length = sum(map(len, parts))
    if length <= _SMALL_BYTES:
        parts = [b"".join(parts)]
    version = VERSION if flags < ATTEMPTS else _NEWEST
    head = _unsealed(MAGIC, version, kind, flags, count, base_offset, time_ms, previous_crc, length)
    crc = crc32(head)
    for part in parts:
        crc = crc32(part, crc)
    fields = (kind, flags, count, base_offset, time_ms, previous_crc, length, crc, version)
    header = _make(BatchHeader, fields)  # in half the time of BatchHeader(...)
    return _make(Batch, (header, b"".join([head, _u32(crc), *parts])))


def inspect_header(buffer: bytes, position: int = 0) -> BatchHeader | str:
    """Give the header at `position`, or in words why there is none."""
    try:
        magic, version, number, *fields = _HEADER.unpack_from(buffer, position)
    except struct.error:
        return "header is cut short"
    if magic != MAGIC:
        return "does not begin with the magic bytes"
    columns = COLUMNS.get(version)
    if columns is None:
        return f"version {version} is unknown"
    kind = _KINDS[number] if number < len(_KINDS) else None
    if kind is None:
        return f"kind {number} is unknown"
    header = _make(BatchHeader, (kind, *fields, version))
    if header.payload_length & 7:
        return "length is not a multiple of 8"
    if header.records > COUNT_MAX or header.flags & ~columns:
        return "count or flags are out of range"
    if kind is not _DATA and (header.records or header.flags & ~_STATE_FLAGS[kind]):
        return "holds state but counts records"
    return header


def inspect(buffer: bytes, position: int = 0) -> BatchHeader | str:
    """Give the header of the whole and undamaged batch at `position`, or why there is none."""
    header = inspect_header(buffer, position)
    if isinstance(header, str):
        return header
    if position + header.length > len(buffer):
        return "batch is cut short"
    return header if is_intact(buffer, position, header) else "checksum is wrong"


def is_intact(buffer: bytes, position: int, header: BatchHeader) -> bool:
    """Tell whether the whole batch at `position`, of which this is the header, is undamaged."""
    view = memoryview(buffer)
    start = position + HEADER_BYTES
    crc = crc32(view[start : start + header.payload_length], crc32(view[position : start - 4]))
    return crc == header.crc


def newer(buffer: bytes, position: int = 0) -> BatchHeader | None:
    """Give the header of the batch at `position` if it is of a version that is not known yet. All
    versions have the fixed part in common; of what it says, only the length can be relied on."""
    if len(buffer) - position < HEADER_BYTES:
        return None
    magic, version, _, *fields = _HEADER.unpack_from(buffer, position)
    if magic != MAGIC or version <= _NEWEST:
        return None
    return _make(BatchHeader, (_DATA, *fields, version))


def read_header(buffer: bytes, position: int = 0) -> BatchHeader:
    """Give the header at `position`; nothing is known yet about the payload."""
    header = inspect_header(buffer, position)
    if isinstance(header, str):
        raise JournalDamage(f"batch at byte {position}: {header}")
    return header


def headers_of(batches: bytes) -> Iterator[BatchHeader]:
    """Give the headers of whole batches; checksums are not verified. Raises JournalDamage."""
    position = 0
    while position < len(batches):
        header = read_header(batches, position)
        yield header
        position += header.length


def check(buffer: bytes, position: int = 0) -> BatchHeader:
    """Give the header of the batch at `position` if the batch is whole and undamaged."""
    header = inspect(buffer, position)
    if isinstance(header, str):
        raise JournalDamage(f"batch at byte {position}: {header}")
    return header


def require_link(batches: Sequence[Batch], previous_crc: int) -> None:
    """Refuse batches that were made to follow another one."""
    if not batches or batches[0].header.previous_crc != previous_crc:
        raise JournalDamage("there are no batches, or the first does not follow the batch before")


def decode_chunk(batch: Batch | bytes, first: int = 0, count_max: int = COUNT_MAX) -> Chunk:
    """Give the rows of a DATA batch from number `first` on, at most that many. Trusts its checksum,
    but no length. Equal headers are one object."""
    header, raw = (read_header(batch), batch) if isinstance(batch, bytes) else batch
    if header.kind is not _DATA or len(raw) != header.length:
        raise JournalDamage("this is not a batch of messages")
    count = header.records
    first = min(first, count)
    last = min(first + count_max, count)
    chunk = Chunk(header.base_offset + first, header.time_ms)
    ColumnReader(raw, HEADER_BYTES, count, first, last).fill(chunk, header.version, header.flags)
    return chunk


def may_have_keys(header: BatchHeader, raw: bytes) -> bool:
    """False if surely no message of this DATA batch was put with an idempotency key."""
    return KEY_LINE in raw if header.version == 1 else header.flags & _ONCE != 0


class Ending(enum.Enum):
    """Why a walk over batches stopped."""

    CLEAN = "clean"  # after a whole batch, at the end of the bytes
    TORN = "torn"  # at bytes that are no batch, and no batch follows: an unfinished write
    DAMAGED = "damaged"  # at bytes that are no batch, although whole ones follow


class Walk(Iterator[Batch]):
    """Whole, verified batches in order; `ending` tells how it went once there are no more.

    `position` is always the end of the last good batch, `reason` says what is wrong there.
    """

    def __init__(self, buffer: bytes, position: int, previous_crc: int | None) -> None:
        self._buffer = buffer
        self.position = position
        self.previous_crc = previous_crc
        self.ending: Ending | None = None
        self.reason = ""

    def __next__(self) -> Batch:
        if self.ending is None and self.position >= len(self._buffer):
            self.ending = Ending.CLEAN
        if self.ending is not None:
            raise StopIteration
        found = inspect(self._buffer, self.position)
        if isinstance(found, str):
            self._stop(found)
            raise StopIteration
        if self.previous_crc is not None:
            if found.previous_crc != self.previous_crc:
                # A whole batch in a wrong place is no unfinished write.
                self.ending, self.reason = Ending.DAMAGED, "does not follow the batch before"
                raise StopIteration
            self.previous_crc = found.crc
        start = self.position
        self.position += found.length
        return Batch(found, self._buffer[start : self.position])

    def _stop(self, reason: str) -> None:
        self.reason = reason
        follows = batch_follows(self._buffer, self.position, self.previous_crc)
        self.ending = Ending.DAMAGED if follows else Ending.TORN


def iterate(buffer: bytes, position: int = 0, previous_crc: int | None = None) -> Walk:
    """Walk over the batches from `position` on.

    With `previous_crc` (that of the batch before the first) the chain is verified too. Without
    it the batches need not be neighbours: what `Journal.read` gives leaves out the state.
    """
    return Walk(buffer, position, previous_crc)


def split_whole(buffer: bytes, previous_crc: int | None = None) -> list[Batch]:
    """Give all batches of bytes that hold whole ones and nothing else. Raises JournalDamage."""
    walk = iterate(buffer, 0, previous_crc)
    batches = list(walk)
    if walk.ending is not Ending.CLEAN:
        raise JournalDamage(f"batch at byte {walk.position}: {walk.reason}")
    return batches


def batch_follows(
    buffer: bytes,
    position: int,
    previous_crc: int | None = None,
    budget_bytes: int = SEARCH_BYTES_MAX,
) -> bool:
    """Tell whether a whole batch comes after the bad bytes at `position`.

    Bodies may hold anything, whole batches too, and then an unfinished write would look like
    damage. So if the bad batch's own header is believable, what lies inside the extent it claims
    counts only if it is chained to it: no client can put the crc of a batch into its own body.
    A search that would check more than `budget_bytes` says yes: refusing is the safe answer.
    """
    claimed = inspect_header(buffer, position)
    extent, link = position, -1
    if not isinstance(claimed, str) and previous_crc in (None, claimed.previous_crc):
        extent, link = position + claimed.length, claimed.crc
    at = buffer.find(MAGIC, position + 8)
    while at >= 0:
        header = inspect_header(buffer, at) if (at - position) & 7 == 0 else ""
        if not isinstance(header, str) and (at >= extent or header.previous_crc == link):
            budget_bytes -= header.length
            if budget_bytes < 0 or not isinstance(inspect(buffer, at), str):
                return True
        at = buffer.find(MAGIC, at + 1)
    return False
