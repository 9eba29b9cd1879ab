"""The database of an endpoint (specification, section 4), and who may open it.

`umx` holds the body; what else the envelope says is in the columns beside it. `next_time` is when
something is due for a row: null while that waits for a link, or for a node to come online.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Final

VERSION: Final = "3"

OPEN: Final = "((p_need AND p_ack_status = 'AS_INIT') OR (s_need AND s_ack_status = 'AS_INIT'))"
"""Of a row of the inbox: a node has to know that it has come, and does not yet."""

ALARMING: Final = f"NOT alarmed AND (app_state = 'HELD' OR {OPEN})"
"""Of a row of the inbox that is reported if it stays so."""

_SCHEMA: Final = f"""
CREATE TABLE semq_meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE semq_counter (
  semq_db_id INTEGER, node TEXT, stream INTEGER, seq INTEGER NOT NULL, dead TEXT NOT NULL,
  PRIMARY KEY (semq_db_id, node, stream)) WITHOUT ROWID;
CREATE TABLE tb_0031 (
  object_id INTEGER PRIMARY KEY AUTOINCREMENT, semq_id INTEGER NOT NULL,
  semq_db_id INTEGER NOT NULL, src TEXT NOT NULL, dst TEXT NOT NULL, node TEXT NOT NULL,
  savefwd INTEGER NOT NULL, ack2 INTEGER NOT NULL, ordered INTEGER NOT NULL,
  reliable INTEGER NOT NULL, encrypt INTEGER NOT NULL, fixed INTEGER NOT NULL DEFAULT 0,
  route TEXT NOT NULL, epoch TEXT NOT NULL, stream INTEGER NOT NULL, seq INTEGER NOT NULL,
  app_key TEXT NOT NULL, session_key TEXT NOT NULL, umx BLOB NOT NULL, void INTEGER NOT NULL,
  priority INTEGER NOT NULL, ss_status TEXT NOT NULL, via TEXT NOT NULL DEFAULT '',
  attempt INTEGER NOT NULL DEFAULT 0, sent_time INTEGER, inq_time INTEGER, next_time INTEGER,
  inq_count INTEGER NOT NULL DEFAULT 0, ask_platform INTEGER NOT NULL DEFAULT 0,
  created INTEGER NOT NULL, expires INTEGER NOT NULL, alarmed INTEGER NOT NULL DEFAULT 0,
  error TEXT NOT NULL DEFAULT '', skips TEXT NOT NULL, refused INTEGER NOT NULL DEFAULT 0);
CREATE UNIQUE INDEX tb_0031_mid ON tb_0031 (node, epoch, stream, seq, semq_db_id);
CREATE INDEX tb_0031_out ON tb_0031 (ss_status, node, priority DESC, object_id);
CREATE INDEX tb_0031_due ON tb_0031 (ss_status, next_time);
CREATE INDEX tb_0031_alarm ON tb_0031 (alarmed, created);
CREATE INDEX tb_0031_expires ON tb_0031 (expires)
  WHERE expires > 0 AND ss_status IN ('SS_INIT', 'SS_SENT', 'SS_ACK_FWD');
CREATE TABLE tb_0030 (
  object_id INTEGER PRIMARY KEY AUTOINCREMENT, src TEXT NOT NULL, node TEXT NOT NULL,
  semq_id INTEGER NOT NULL, semq_db_id INTEGER NOT NULL, lk0 TEXT NOT NULL,
  epoch TEXT NOT NULL, stream INTEGER NOT NULL, seq INTEGER NOT NULL, lk1 TEXT,
  p_need INTEGER NOT NULL, p_ack_status TEXT NOT NULL, s_need INTEGER NOT NULL,
  s_ack_status TEXT NOT NULL, inq_time INTEGER, next_time INTEGER,
  inq_count INTEGER NOT NULL DEFAULT 0, app_key TEXT NOT NULL, fields TEXT NOT NULL,
  umx BLOB NOT NULL, app_state TEXT NOT NULL, user TEXT NOT NULL, place INTEGER NOT NULL,
  handed INTEGER NOT NULL DEFAULT 0, created INTEGER NOT NULL,
  alarmed INTEGER NOT NULL DEFAULT 0);
CREATE UNIQUE INDEX tb_0030_mid ON tb_0030 (node, epoch, stream, seq, semq_id, semq_db_id);
CREATE INDEX tb_0030_new ON tb_0030 (app_state, user, place);
CREATE INDEX tb_0030_held ON tb_0030 (node, epoch, stream, semq_id, semq_db_id, seq)
  WHERE app_state = 'HELD';
CREATE INDEX tb_0030_due ON tb_0030 (next_time) WHERE next_time IS NOT NULL;
CREATE INDEX tb_0030_alarm ON tb_0030 (created) WHERE {ALARMING};
CREATE TABLE semq_ledger (
  src TEXT, semq_id INTEGER, semq_db_id INTEGER, epoch TEXT, stream INTEGER, seen TEXT NOT NULL,
  void TEXT NOT NULL, since INTEGER NOT NULL,
  PRIMARY KEY (src, semq_id, semq_db_id, epoch, stream)) WITHOUT ROWID;
CREATE TABLE semq_dead (
  object_id INTEGER PRIMARY KEY, dst TEXT NOT NULL, mid TEXT NOT NULL, app_key TEXT NOT NULL,
  umx BLOB NOT NULL, created INTEGER NOT NULL, died INTEGER NOT NULL, why TEXT NOT NULL);
"""


class StoreError(Exception):
    """The database of an endpoint cannot be used: it is full, locked, of another version, or
    damaged. Nothing of the step has happened."""


def open_file(path: Path) -> tuple[sqlite3.Connection, int]:
    """The database, and the lock that keeps every other program from it: a file beside it. Raises
    StoreError."""
    path = path.resolve()  # or a link to the database would have a lock of its own
    lock = os.open(
        path.with_name(path.name + ".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
    )
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(lock)
        raise StoreError(f"{path} is in use by another program") from error
    with ExitStack() as on_error:
        on_error.callback(os.close, lock)
        try:
            database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            on_error.callback(database.close)
            database.execute("PRAGMA journal_mode = WAL").fetchone()
            database.execute("PRAGMA synchronous = FULL")
        except sqlite3.Error as error:
            raise StoreError(f"{path} is no database: {error}") from error
        on_error.pop_all()
    return database, lock


def prepare(database: sqlite3.Connection, random: Random, node: str, renewed: bool) -> str:
    """Make the tables if there are none. Gives the epoch of its messages, which is a new one for a
    new database, and for one that is not what it was (`renewed`). Raises StoreError."""
    database.isolation_level = None
    try:
        tables = "SELECT count(*) FROM sqlite_master WHERE name = 'semq_meta'"
        if not database.execute(tables).fetchone()[0]:
            script = "BEGIN;" + _SCHEMA
            for statement in script.split(";"):
                if statement.strip():
                    database.execute(statement)
            values = [("version", VERSION), ("node", node), ("epoch", _epoch(random))]
            database.executemany("INSERT INTO semq_meta VALUES (?, ?)", values)
            database.execute("COMMIT")
        meta = dict(database.execute("SELECT name, value FROM semq_meta"))
        if meta.get("version") != VERSION:
            text = (
                f"the database is of version {meta.get('version')}, and this program of {VERSION}"
            )
            raise StoreError(text)
        if meta["node"] != node:
            raise StoreError(f"the database is that of the node {meta['node']}, not of {node}")
        if renewed:
            meta["epoch"] = _epoch(random)
            database.execute("BEGIN")
            change = "UPDATE semq_meta SET value = ? WHERE name = 'epoch'"
            database.execute(change, (meta["epoch"],))
            database.execute("DELETE FROM semq_counter")
            database.execute("COMMIT")
    except sqlite3.Error as error:
        if database.in_transaction:
            database.execute("ROLLBACK")
        raise StoreError(f"the database cannot be used: {error}") from error
    return str(meta["epoch"])


def _epoch(random: Random) -> str:
    return f"{random.getrandbits(64):016x}"
