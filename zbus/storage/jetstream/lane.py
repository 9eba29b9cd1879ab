"""What the engine knows of one lane: where it ends, where its segments and messages are.

The checkpoint of a segment names the segments before it in a header line (`SEGMENTS`), so that
opening a lane costs one message and not one for each segment.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple
from zlib import crc32

from zbus.storage.errors import JournalDamage
from zbus.storage.jetstream.stream import Outgoing, Stored
from zbus.storage.jetstream.wire import decode_number
from zbus.storage.port import Lane, StoredSegment
from zbus.storage.segments import Segments

EPOCH: Final = "Zb"
CHECKSUM: Final = "Zb-Crc"
"""Of what has no checksum otherwise: header lines that say something, pieces, documents."""
SEGMENTS: Final = "Zb-Segments"
TOPIC: Final = "Zb-Topic"
"""Of a checkpoint: its topic as it is written, which a subject does not tell."""
BEGIN: Final = "Zb-Begin"
"""Of a snapshot: the bytes of its segment before it."""

PIECES: Final = "Zb-Pieces"
"""Of the first message of an append that does not fit into one: how many messages it has."""
PIECE: Final = "Zb-Piece"
"""Of the others, which come right behind it: their number, from 1 on."""

_INDEX_MAX: Final = 4_096
_SEGMENTS_MAX: Final = 1_000
"""More are named as fewer: two neighbours become one, which is trimmed as one."""


class SegmentPlace(NamedTuple):
    """A segment in the stream."""

    base: int  # offset
    sequence: int  # of its checkpoint
    size: int  # bytes of its batches
    time_ms: int  # epoch, of its checkpoint


class JetLane:
    """One lane."""

    __slots__ = (
        "end",
        "first",
        "index",
        "last_crc",
        "name",
        "segments",
        "size",
    )

    def __init__(self, name: Lane) -> None:
        self.name = name
        self.last_crc = 0
        self.first = self.end = 0
        self.segments: Segments[SegmentPlace] = Segments()  # as far as they are stored
        self.size = 0  # of the newest segment
        self.index: list[tuple[int, int]] = []  # offset and sequence of some messages with DATA

    def segments_before(self, base: int) -> list[SegmentPlace]:
        """The segments that stay when one begins at this offset: one without messages there is
        replaced."""
        if not self.segments:
            return []
        segments = [*self.segments[:-1], self.segments[-1]._replace(size=self.size)]
        if segments[-1].base == base:
            del segments[-1]
        if len(segments) >= _SEGMENTS_MAX:
            first, second = segments[:2]
            segments[:2] = [first._replace(size=first.size + second.size)]
        return segments

    def begin_segment(self, base: int, sequence: int, time_ms: int) -> None:
        """A checkpoint is stored there."""
        self.segments = Segments(self.segments_before(base))
        self.segments.begin(SegmentPlace(base, sequence, 0, time_ms))
        self.size = 0

    def note(self, offset: int, sequence: int) -> None:
        """A message that begins with this offset is stored there."""
        index = self.index
        if index and index[-1][0] >= offset:
            return
        index.append((offset, sequence))
        if len(index) > _INDEX_MAX:
            del index[1::2]

    def place(self, offset: int) -> int:
        """The sequence from which to look for an offset."""
        known = [(segment.base, segment.sequence) for segment in self.segments]
        best = 0
        for places in (known, self.index):
            at = bisect_right(places, (offset, 1 << 63)) - 1
            if at >= 0:
                best = max(best, places[at][1])
        return best

    def trim(self, before: int) -> int:
        """Forget segments that end at or before this offset; the sequence before which nothing is
        needed any more, 0 if nothing was forgotten."""
        segments = self.segments
        if not segments.forget_before(before):
            return 0
        self.first = max(self.first, segments[0].base)
        at = bisect_right(self.index, (self.first, 0))
        del self.index[:at]
        return segments[0].sequence

    def stored_segments(self) -> list[StoredSegment]:
        """All, the oldest first."""
        places = [*self.segments[:-1], self.segments[-1]._replace(size=self.size)]
        return [StoredSegment(place.base, place.time_ms, place.size) for place in places]


class Pieces:
    """Puts together what was stored in several messages, and knows where to read on."""

    __slots__ = ("_bodies", "_first", "_missing", "sequence")

    def __init__(self, sequence: int) -> None:
        self.sequence = sequence
        self._bodies: list[bytes] = []
        self._first: Stored | None = None
        self._missing = 0

    def take(self, found: Sequence[Stored], use: Callable[[Stored], object]) -> str:
        """Hand whole messages to `use`, until it says that it has enough. Give what is wrong with
        one, which is to be read again, and empty if nothing is."""
        for piece in found:
            whole = None
            try:
                whole = self._add(piece)
                enough = whole is not None and use(whole)
            except (JournalDamage, ValueError) as error:
                begin = self._first if whole is None else whole
                if begin is not None:
                    self.sequence = begin.sequence
                self._forget()
                return f"sequence {piece.sequence} of the stream: {error}"
            self.sequence = piece.sequence + 1
            if enough:
                break
        return ""

    def _add(self, message: Stored) -> Stored | None:
        """The whole message that ends with this one, if it does. Raises ValueError for a piece that
        does not belong there."""
        if not is_intact(message):
            raise ValueError("the checksum of a message is wrong")
        number = decode_number(message.headers.get(PIECE, "0"))
        if number != len(self._bodies):
            raise ValueError(f"piece {number} of a message where {len(self._bodies)} is expected")
        if not number:
            self._first = message
            self._missing = decode_number(message.headers.get(PIECES, "1"))
        self._bodies.append(message.body)
        self._missing -= 1
        if self._missing or self._first is None:
            return None
        whole = self._first
        if number:
            whole = whole._replace(body=b"".join(self._bodies))
        self._forget()
        return whole

    def _forget(self) -> None:
        """Begin anew."""
        self._bodies, self._first, self._missing = [], None, 0


def make_document(subject: str, epoch: int | str, body: bytes) -> Outgoing:
    """A message that is JSON and no batch."""
    headers = {EPOCH: str(epoch)}
    return Outgoing(subject, {**headers, CHECKSUM: checksum_of(headers, body)}, body)


def checksum_of(headers: Mapping[str, str], body: bytes) -> str:
    """Of this engine's header lines and the body."""
    lines = [f"{name}:{text}\n" for name, text in headers.items() if name.startswith(EPOCH)]
    said = "".join([line for line in sorted(lines) if not line.startswith(CHECKSUM)])
    return f"{crc32(body, crc32(said.encode())):08x}"


def is_intact(message: Stored) -> bool:
    """Whether it is what was written; one without a checksum may be."""
    checksum = message.headers.get(CHECKSUM)
    return checksum is None or checksum == checksum_of(message.headers, message.body)


def encode_segments(segments: list[SegmentPlace]) -> str:
    """As a header line of the next checkpoint."""
    return ";".join([",".join(map(str, place)) for place in segments])


def decode_segments(text: str) -> list[SegmentPlace]:
    """Raises ValueError for anything else than what `encode_segments` writes."""
    found = []
    for part in text.split(";") if text else ():
        numbers = part.split(",")
        if len(numbers) != len(SegmentPlace._fields):
            raise ValueError("a segment has other fields")
        found.append(SegmentPlace(*map(decode_number, numbers)))
    return found
