"""A row of tb_0031, as far as it is sent."""

from __future__ import annotations

import sqlite3
from typing import Final, NamedTuple

from zbus.semq.protocol.words import MAILBOX, PLATFORM, Level, Locator, Store

WINDOW_BYTES: Final = 32 << 20
"""Bodies that are under way on one link."""

ROW_BYTES: Final = 500
"""What a row takes beside its body, about."""


class Row(NamedTuple):
    """Its fields are columns."""

    object_id: int
    semq_id: int
    semq_db_id: int
    src: str
    dst: str
    node: str
    savefwd: int
    ack2: int
    ordered: int
    reliable: int
    encrypt: int
    route: str
    epoch: str
    stream: int
    seq: int
    app_key: str
    session_key: str
    umx: bytes
    void: int
    attempt: int
    expires: int
    skips: str

    @property
    def confirmed(self) -> bool:
        """Its destination says that it has come. Of others only the platform answers."""
        return self.savefwd == Level.ARRIVE or bool(self.ack2)

    def fields(self, own: str) -> dict[str, str]:
        """Its `semq_send`, of the attempt that begins."""
        lk0 = Locator(Store(own, self.semq_id, self.semq_db_id), self.object_id)
        attempt = self.attempt + 1
        fields = {"cmd": "semq_send", "id": f"m{self.object_id}.{attempt}", "src": self.src}
        fields |= {"dst": self.dst, "lk0": str(lk0), "epoch": self.epoch}
        fields |= {"stream": str(self.stream), "seq": str(self.seq), "attempt": str(attempt)}
        fields |= {"savefwd": str(self.savefwd), "ack2": str(self.ack2)}
        if self.node != PLATFORM:
            fields["topic"] = f"{MAILBOX}{self.node}"
        more = {"ordered": self.ordered, "encrypt": self.encrypt, "void": self.void}
        fields |= {name: "1" for name, value in more.items() if value}
        texts = {"app_key": self.app_key, "session_key": self.session_key, "skips": self.skips}
        fields |= {name: value for name, value in texts.items() if value}
        return fields | ({"expires": str(self.expires)} if self.expires else {})


COLUMNS: Final = ", ".join(Row._fields)


def that_fit(cursor: sqlite3.Cursor, waiting_bytes: int, waiting: bool) -> list[Row]:
    """The first rows that fit into the window of a link, or one that fits into none."""
    rows: list[Row] = []
    for found in cursor:
        row = Row(*found)
        waiting_bytes += len(row.umx)
        if waiting_bytes > WINDOW_BYTES and (rows or waiting):
            break
        rows.append(row)
    cursor.close()
    return rows
