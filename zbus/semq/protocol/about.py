"""Which messages a control message is about, as far as it says so.

    lk0, epoch, stream, seq          the MID; or `seqs`, several numbers of one stream
    semq_id, semq_db_id, ref_id      the row of the node that is asked, or asks; `src_...` in an Ack

A part that is left out is compared with nothing. Only of several numbers the MID must be whole.
"""

from __future__ import annotations

from typing import Final

from zbus.semq.protocol.words import (
    Fields,
    Malformed,
    Mid,
    PlatformLocator,
    Store,
    Stream,
    read_epoch,
    read_locator,
    read_number,
    read_seqs,
)

OF_ACKS: Final = "src_"
"""Before the names of the row's fields, in an Ack."""


class About:
    """Raises Malformed for what cannot be."""

    __slots__ = ("attempt", "epoch", "place", "ranges", "record", "several", "store", "stream")

    def __init__(self, fields: Fields, prefix: str = "") -> None:
        self.store: Store | None = None
        self.record = 0  # of LK0; 0 = it is not said
        if fields.text("lk0"):
            self.store, self.record = read_locator(fields.text("lk0"))
        self.epoch = read_epoch(fields.text("epoch")) if fields.text("epoch") else ""
        self.stream = fields.number("stream", 0, Stream.GAPS, Stream.CONTIGUOUS)
        self.ranges: list[range] = []
        self.several = bool(fields.text("seqs"))
        if self.several:
            self.ranges = read_seqs(fields.text("seqs"))
        elif fields.text("seq"):
            seq = read_number("seq", fields.text("seq"), 1)
            self.ranges = [range(seq, seq + 1)]
        self.place: PlatformLocator | None = None
        if fields.text(f"{prefix}ref_id"):
            semq, db = [fields.number(f"{prefix}{name}", 1) for name in ("semq_id", "semq_db_id")]
            self.place = PlatformLocator(semq, db, fields.number(f"{prefix}ref_id", 0))
        self.attempt = fields.number("attempt", 0)

    @property
    def count(self) -> int:
        return sum(map(len, self.ranges))

    @property
    def seqs(self) -> list[int]:
        """All its numbers."""
        return [seq for numbers in self.ranges for seq in numbers]

    @property
    def whole(self) -> bool:
        """It says the MID."""
        return bool(self.store and self.epoch and self.stream and self.ranges)

    @property
    def partly(self) -> bool:
        """It says something of it."""
        return bool(self.store or self.epoch or self.stream or self.ranges)

    def own(self, node: str, epoch: str) -> None:
        """It is about a row of the caller: what is not said of its MID is that of his store."""
        if self.store is None and self.place is not None:
            self.store = Store(node, self.place.semq, self.place.db)
        if not self.record and self.place is not None:
            self.record = self.place.record
        self.epoch = self.epoch or epoch

    def mid(self) -> Mid:
        """The MID, of several the first. Raises Malformed if it is not said."""
        if self.store is None:
            raise Malformed("lk0 is missing")
        if not self.epoch:
            raise Malformed("epoch is missing")
        if not self.ranges:
            raise Malformed("seq is missing")
        stream = self.stream or Stream.CONTIGUOUS
        return Mid(self.store, self.epoch, stream, self.ranges[0].start)

    def matches(self, mid: Mid) -> bool:
        """A row has this MID, as far as that is said."""
        if self.store not in (None, mid.store) or self.epoch not in ("", mid.epoch):
            return False
        if self.stream not in (0, mid.stream):
            return False
        return not self.ranges or any(mid.seq in numbers for numbers in self.ranges)
