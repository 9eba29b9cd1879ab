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

_WHICH: Final = "semq_db_id = ? AND node = ? AND stream = ?"


class Counters:
    def __init__(self, context: Context) -> None:
        self._context = context

    def next(self, db: int, node: str, stream: Stream) -> tuple[int, str]:
        """The number of a message, and the dead ones that it takes along."""
        seq, dead = self._context.execute(
            "INSERT INTO semq_counter VALUES (?, ?, ?, 1, '') ON CONFLICT DO UPDATE"
            " SET seq = seq + 1 RETURNING seq, dead",
            (db, node, int(stream)),
        ).fetchone()
        if not dead:
            return seq, ""
        taken, left = dead, ""
        if len(dead) > SKIPS_BYTES_MAX:
            cut = dead.rindex(",", 0, SKIPS_BYTES_MAX)
            taken, left = dead[:cut], dead[cut + 1 :]
        self._write(db, node, stream, left)
        return seq, taken

    def dead(self, db: int, node: str, stream: int, seq: int, skips: str) -> None:
        """A number that no client will hear of, with those that its message took along."""
        values = (db, node, int(stream))
        row = self._context.execute(f"SELECT dead FROM semq_counter WHERE {_WHICH}", values)
        found = Intervals(read_intervals(row.fetchone()[0]))
        for each in (range(seq, seq + 1), *read_intervals(skips)):
            found.add(each)
        self._write(db, node, stream, show_seqs(found.ranges()))

    def _write(self, db: int, node: str, stream: int, dead: str) -> None:
        values = (dead, db, node, int(stream))
        self._context.execute(f"UPDATE semq_counter SET dead = ? WHERE {_WHICH}", values)
