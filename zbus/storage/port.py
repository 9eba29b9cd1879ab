"""The only storage port. An engine keeps bytes; it knows nothing of messages or groups.

A *lane* is one append-only log: one partition. It is named `(topic, partition)`. What is appended
is one or more whole batches, just sealed (`zbus.storage.format.batch`). An append that begins with
a CHECKPOINT batch starts a new segment; everything needed for recovery is in the newest segment.
A STATE batch with the flag SNAPSHOT holds as much as a checkpoint: recovery may begin there.

Rules every engine keeps:
* `append` says nothing of what becomes of the batches: `commit` does. It may refuse at
  once, with `JournalFull`, what it knows beforehand to have no room; then nothing of it is in the
  lane. Appends that hold no DATA batch have reserved space and are not refused for want of it.
* An append is all or nothing, and conditional: `after` is the mark of the lane's end as the writer
  knows it, the crc of the last batch (0 for a new lane). If the lane ends otherwise, nothing of it
  or of what follows is written. The first of the batches names that crc; that each of the others
  names the one before it is taken on trust.
* `commit` gives a verdict for each lane that is not what the writer thinks. A lane with a verdict
  takes nothing more, until it is opened again or forgotten.
* `done` callbacks run on the broker's thread, either inside the call or through the `post`
  function that the engine was made with; each exactly once.
* After a failed sync nothing may be acknowledged: the engine calls its `fail` function and never
  calls the waiting `done`s.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol, TypeAlias

# What an engine raises and gives is imported from here.
from zbus.storage.errors import JournalDamage as JournalDamage
from zbus.storage.errors import JournalError as JournalError
from zbus.storage.errors import JournalFull as JournalFull
from zbus.storage.format.batch import Batch
from zbus.storage.segments import StoredSegment as StoredSegment

Lane = tuple[str, int]
"""Topic name and partition number."""

Post = Callable[[Callable[[], None]], None]
"""Runs a callable on the broker's thread at the beginning of its next tick; thread-safe."""


class Verdict(enum.Enum):
    """Why appends to a lane are not durable, and will not be."""

    FULL = "the storage is full"
    CONFLICT = "another process wrote to it"
    LOST = "a write failed, and its outcome is unknown"


Verdicts: TypeAlias = "Mapping[Lane, Verdict]"
"""Of lanes that failed. Who is not among them is durable."""

ALL_DURABLE: Final[Verdicts] = MappingProxyType({})


def of_lanes(verdicts: Verdicts, lanes: Collection[Lane]) -> Verdicts:
    """The verdicts of these lanes."""
    if not verdicts:
        return ALL_DURABLE
    return {lane: verdicts[lane] for lane in lanes if lane in verdicts}


class StoredLane(NamedTuple):
    """One lane as found at recovery."""

    lane: Lane
    first_offset: int  # oldest offset that can still be read
    # Of the newest segment: its batches in order, from its CHECKPOINT or a later snapshot on, and
    # the byte of the segment at which they begin.
    batches: Iterable[bytes]
    begin: int = 0
    segments: Sequence[StoredSegment] = ()  # all of them, the oldest first
    # Whether an earlier run knew for certain that it was durable; None = unknown.
    was_durable: bool | None = None


Found = Callable[[StoredLane], None]
"""Receives a lane. Its batches can be read only during the call."""


CommitDone = Callable[[Verdicts], None]
"""Receives what `commit` says of the lanes that failed."""

ReadDone = Callable[["bytes | JournalError"], None]
"""Receives whole batches."""

OpenDone = Callable[["JournalError | None"], None]
"""Receives what stood in the way, if anything."""


class Journal(Protocol):
    """Makes batches durable and reads them back."""

    late: bool
    """Whether what became of an append may be known only later. If not, and there are no
    `verdicts`, a commit that is not `synced` need not be asked for: it saves a tenth of a turn."""

    verdicts: dict[Lane, Verdict]
    """Of all lanes that have failed so far."""

    def append(self, lane: Lane, after: int, batches: Sequence[Batch]) -> None:
        """Write batches behind the one whose mark is `after`."""

    def commit(self, lanes: Collection[Lane], synced: bool, done: CommitDone) -> None:
        """End the tick: call `done` once it is known what became of all appends so far to these
        lanes. `synced`: on stable storage, else only out of this process's hands."""

    def read(self, lane: Lane, offset: int, bytes_max: int, done: ReadDone) -> None:
        """Give whole DATA batches (no others), from the one holding `offset` on. The engine has
        verified their checksums.

        At least one batch if there is any, then more as far as they are near and fit into
        `bytes_max`; empty at the end.
        """

    def trim(self, lane: Lane, before: int) -> None:
        """Forget whole segments that end at or before this offset."""

    def remove(self, lanes: Collection[Lane], done: Callable[[], None]) -> None:
        """Forget a topic, of which these are all lanes: at once here, and after a crash all of
        them or none. Calls `done` when that is durable, and so for lanes that there are not: they
        may have been removed a moment ago. Their space is freed later."""

    def open(self, lanes: Collection[Lane] | None, found: Found, done: OpenDone) -> None:
        """Find out what is stored: call `found` for each of these lanes that there is (None, at
        the start: for all there are), then `done` with what stood in the way, if anything; what was
        torn by a crash is cut off before. What was found is delivered from then on, so it is on
        stable storage by then, whether it was committed or not. The lane ends with its last
        batch, of whichever writer, and its verdict is gone: it takes what is appended behind that.
        One that is not there has no verdict either, and may begin."""

    def upkeep(self, now_ms: int) -> None:
        """To be called about once a second: what need not be done at once. `now_ms` is any clock
        that does not go back."""

    def close(self) -> None:
        """Make everything durable, then let go of files and threads."""
