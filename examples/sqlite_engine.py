"""An engine of its own: the log in one SQLite file (`docs/howto/write-an-engine.md`).

A lane is rows of one table, a row for each batch, in the order of their numbers. Everything that a
turn writes is one transaction, which the commit ends. It passes `zbus.testing.contract`, and is
there to be read: the engine over files is faster, and syncs on a thread.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from zbus.storage.format.batch import Batch, Kind, require_link
from zbus.storage.port import (
    CommitDone,
    Found,
    JournalError,
    JournalFull,
    Lane,
    OpenDone,
    ReadDone,
    StoredLane,
    Verdict,
    of_lanes,
)

SCHEMA = """
    CREATE TABLE IF NOT EXISTS batch (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        topic TEXT NOT NULL, partition INTEGER NOT NULL,
        kind INTEGER NOT NULL, first INTEGER NOT NULL, stop INTEGER NOT NULL,
        mark INTEGER NOT NULL, raw BLOB NOT NULL);
    CREATE INDEX IF NOT EXISTS of_lane ON batch (topic, partition, kind, stop);
"""

OF_LANE = "FROM batch WHERE topic = ? AND partition = ?"


class SqliteJournal:
    """See above. `path` is the database, made if it is missing."""

    late = True  # only the commit puts anything into the file

    def __init__(self, path: Path) -> None:
        self.verdicts: dict[Lane, Verdict] = {}
        self._sql = sqlite3.connect(path, isolation_level=None)
        self._sql.executescript("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;" + SCHEMA)
        self._sql.execute("BEGIN")
        newest = "number IN (SELECT max(number) FROM batch GROUP BY topic, partition)"
        rows = self._sql.execute(f"SELECT topic, partition, mark FROM batch WHERE {newest}")
        self._marks: dict[Lane, int] = {(topic, index): mark for topic, index, mark in rows}

    def append(self, lane: Lane, after: int, batches: Sequence[Batch]) -> None:
        known = self._marks.get(lane)
        if after != (known or 0):
            self.verdicts[lane] = Verdict.CONFLICT
        if lane in self.verdicts:
            return
        require_link(batches, after)
        if known is None and batches[0].header.kind is not Kind.CHECKPOINT:
            raise JournalError(f"{lane} is new and must begin with a checkpoint")
        values = [
            (*lane, header.kind, header.base_offset, header.end_offset, header.crc, raw)
            for header, raw in batches
        ]
        fields = "topic, partition, kind, first, stop, mark, raw"
        self._sql.execute("SAVEPOINT append")  # all of them or none
        try:
            self._sql.executemany(
                f"INSERT INTO batch ({fields}) VALUES (?, ?, ?, ?, ?, ?, ?)", values
            )
        except sqlite3.OperationalError as error:
            self._sql.execute("ROLLBACK TO append")
            raise JournalFull(str(error)) from error
        self._sql.execute("RELEASE append")
        self._marks[lane] = batches[-1].header.crc

    def commit(self, lanes: Collection[Lane], synced: bool, done: CommitDone) -> None:
        self._sql.execute("COMMIT")  # synced, whether that was asked for or not
        self._sql.execute("BEGIN")
        done(of_lanes(self.verdicts, lanes))

    def read(self, lane: Lane, offset: int, bytes_max: int, done: ReadDone) -> None:
        if lane not in self._marks:
            done(JournalError(f"there is no {lane} to read"))
            return
        found: list[bytes] = []
        left = bytes_max
        query = f"SELECT raw {OF_LANE} AND kind = ? AND stop > ? ORDER BY stop"
        for (raw,) in self._sql.execute(query, (*lane, Kind.DATA, offset)):
            left -= len(raw)
            if found and left < 0:
                break
            found.append(raw)
        done(b"".join(found))

    def trim(self, lane: Lane, before: int) -> None:
        # The newest stays: where the log ends must be known.
        newest = f"(SELECT max(stop) {OF_LANE} AND kind = {Kind.DATA:d})"
        condition = f"kind = {Kind.DATA:d} AND stop <= ? AND stop < {newest}"
        self._sql.execute(f"DELETE {OF_LANE} AND {condition}", (*lane, before, *lane))

    def remove(self, lanes: Collection[Lane], done: Callable[[], None]) -> None:
        for lane in lanes:
            self.verdicts.pop(lane, None)
            self._marks.pop(lane, None)
            self._sql.execute(f"DELETE {OF_LANE}", lane)
        self.commit(lanes, True, lambda _: done())

    def open(self, lanes: Collection[Lane] | None, found: Found, done: OpenDone) -> None:
        for lane in self._marks | self.verdicts if lanes is None else lanes:
            self.verdicts.pop(lane, None)
            if lane not in self._marks:
                continue
            checkpoint = f"SELECT max(number) {OF_LANE} AND kind = {Kind.CHECKPOINT:d}"
            query = f"SELECT raw {OF_LANE} AND number >= ({checkpoint}) ORDER BY number"
            batches = [raw for (raw,) in self._sql.execute(query, (*lane, *lane))]
            query = f"SELECT min(first) {OF_LANE} AND kind = {Kind.DATA:d}"
            (oldest,) = self._sql.execute(query, lane).fetchone()
            if oldest is None:
                query = f"SELECT first {OF_LANE} AND number = ({checkpoint})"
                (oldest,) = self._sql.execute(query, (*lane, *lane)).fetchone()
            found(StoredLane(lane, oldest, batches))
        self.commit((), True, lambda _: done(None))  # what was found is handed out next

    def upkeep(self, now_ms: int) -> None:
        """Nothing is put off."""

    def close(self) -> None:
        self._sql.execute("COMMIT")
        self._sql.close()
