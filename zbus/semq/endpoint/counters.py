"""Numbers of what is sent: of each destination, store and stream 1, 2, 3 and so on.

An undeliverable message is followed by a void one with its number, so that those behind it do not
wait for it. If not even that can be delivered, because its node is unknown or takes nothing
from here, its number is kept as dead. The next message to that node takes it along (`skips`), and
its receiver takes those numbers as void. If it dies in the same way, they come back.
"""

from __future__ import annotations

from typing import Final

from zbus.semq.endpoint.context import Context
from zbus.semq.endpoint.received_ids import Intervals
from zbus.semq.protocol.words import SKIPS_BYTES_MAX, Stream, read_intervals, show_seqs

_KNOWN_MAX: Final = 10_000

Key = tuple[int, str, int]
"""A store, a destination, and a stream."""


class Counters:
    """What a step has changed is written at its end."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._known: dict[Key, tuple[int, str]] = {}  # the last number, and the dead ones
        self._changed: dict[Key, None] = {}

    def next(self, db: int, node: str, stream: Stream) -> tuple[int, str]:
        """The number of a message, and the dead ones that it takes along."""
        key = db, node, int(stream)
        last, dead = self._of(key)
        taken, left = dead, ""
        if len(dead) > SKIPS_BYTES_MAX:
            cut = dead.rindex(",", 0, SKIPS_BYTES_MAX)
            taken, left = dead[:cut], dead[cut + 1 :]
        self._set(key, last + 1, left)
        return last + 1, taken

    def dead(self, db: int, node: str, stream: int, seq: int, skips: str) -> None:
        """A number that no client will hear of, with those that its message took along."""
        key = db, node, int(stream)
        last, dead = self._of(key)
        found = Intervals(read_intervals(dead))
        for each in (range(seq, seq + 1), *read_intervals(skips)):
            found.add(each)
        self._set(key, last, show_seqs(found.ranges()))

    def _of(self, key: Key) -> tuple[int, str]:
        found = self._known.get(key)
        if found is None:
            query = (
                "SELECT seq, dead FROM semq_counter"
                " WHERE semq_db_id = ? AND node = ? AND stream = ?"
            )
            found = self._context.execute(query, key).fetchone() or (0, "")
        return found

    def _set(self, key: Key, last: int, dead: str) -> None:
        self._known[key] = last, dead
        self._changed[key] = None

    def write(self) -> None:
        """What is new, before the commit."""
        rows = [(*key, *self._known[key]) for key in self._changed]
        if rows:
            put = "INSERT OR REPLACE INTO semq_counter VALUES (?, ?, ?, ?, ?)"
            self._context.database.executemany(put, rows)
            self._changed.clear()
        if len(self._known) > _KNOWN_MAX:
            self._known.clear()

    def forget(self) -> None:
        """The step has failed: the database knows."""
        self._known.clear()
        self._changed.clear()
