"""The tables of a node, watched while it writes them, and what must hold of every change.

Triggers that live on the connection alone note what becomes of rows. What a transaction that is
rolled back did is not among it, and what a node did before its process ended, is.
"""

from __future__ import annotations

import sqlite3
from typing import Final, NamedTuple

from tests.semq.database import Database
from zbus.semq.protocol.words import read_seqs

FINAL: Final = "SS_ACK2"

_COLUMNS = "semq_id || '/' || {0}.semq_db_id || '/' || {0}.epoch || '/' || {0}.stream"
_MID = "{0}." + _COLUMNS + " || '/' || {0}.seq, {0}.dst, {0}.savefwd + 10 * {0}.ack2"
_CAME = "{0}.lk0, {0}.epoch || '/' || {0}.stream || '/' || {0}.seq, 0"
_OPEN = "({0}.{1}_need AND {0}.{1}_ack_status <> 'AS_ACK')"
_CLEAN = f"{_OPEN.format('OLD', 'p')} || {_OPEN.format('OLD', 's')} || OLD.app_state"
_LOG = "INSERT INTO noted (what, row, old, new, mid, peer, kind) VALUES"
_TRIGGERS: Final = f"""
CREATE TEMP TABLE noted (what, row, old, new, mid, peer, kind);
CREATE TEMP TRIGGER noted_out AFTER INSERT ON main.tb_0031 BEGIN
  {_LOG} ('out', NEW.object_id, '', NEW.ss_status, {_MID.format("NEW")}); END;
CREATE TEMP TRIGGER noted_change AFTER UPDATE OF ss_status ON main.tb_0031
WHEN OLD.ss_status <> NEW.ss_status BEGIN
  {_LOG} ('change', NEW.object_id, OLD.ss_status, NEW.ss_status, {_MID.format("NEW")}); END;
CREATE TEMP TRIGGER noted_gone AFTER DELETE ON main.tb_0031 BEGIN
  {_LOG} ('gone', OLD.object_id, OLD.ss_status, '', {_MID.format("OLD")}); END;
CREATE TEMP TRIGGER noted_in AFTER INSERT ON main.tb_0030 BEGIN
  {_LOG} ('in', NEW.object_id, '', NEW.app_state, {_CAME.format("NEW")}); END;
CREATE TEMP TRIGGER noted_clean AFTER DELETE ON main.tb_0030 BEGIN
  {_LOG} ('clean', OLD.object_id, {_CLEAN}, '', {_CAME.format("OLD")}); END;
"""


class Noted(NamedTuple):
    """One change of a row."""

    what: str  # of tb_0031: out, change, gone; of tb_0030: in, clean
    row: int
    old: str
    new: str
    mid: str  # without its node; of tb_0030: LK0
    peer: str  # whom it is for; of tb_0030: the rest of the MID
    kind: int  # the level, and 10 more with Ack2


def watch(database: Database) -> None:
    """From now on changes are noted."""
    database.executescript(_TRIGGERS)


def noted(database: Database) -> list[Noted]:
    """All since the last time. This is no commit of the node's."""
    found = [Noted(*row) for row in database.execute("SELECT * FROM temp.noted ORDER BY rowid")]
    if found:
        sqlite3.Connection.execute(database, "DELETE FROM temp.noted")
        sqlite3.Connection.commit(database)
    return found


def intervals(database: Database) -> dict[tuple[str, int], list[range]]:
    """The ledger: of each source (node, semq, db, epoch) and stream, which numbers have come."""
    rows = database.execute("SELECT src, semq_id, semq_db_id, epoch, stream, seen FROM semq_ledger")
    return {
        (f"{src}/{semq}/{db}/{epoch}", stream): read_seqs(seen)
        for src, semq, db, epoch, stream, seen in rows
    }


def has_seen(database: Database, mid: str) -> bool:
    """The ledger remembers it."""
    line, _, seq = mid.rpartition("/")
    source, _, stream = line.rpartition("/")
    return any(int(seq) in each for each in intervals(database).get((source, int(stream)), ()))
