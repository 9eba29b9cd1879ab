"""The outbox, tb_0031: what this endpoint owes (specification, sections 5.1, 7 and 9)."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple
from zlib import crc32

from zbus.semq.context import Context
from zbus.semq.events import Frame, Happened, Submit
from zbus.semq.links import Link, Links
from zbus.semq.words import (
    MAILBOX,
    PLATFORM,
    AckFlag,
    Level,
    Locator,
    Mid,
    Store,
    Stream,
    read_number,
)

_PART: Final = 16
"""Rows of one destination before the next one has its turn."""

_WINDOW_BYTES: Final = 32 << 20
"""Bodies that are under way on one link."""

_REFUSALS_FOR_GOOD: Final = (400, 403, 404, 409, 410, 413)
ROW_BYTES: Final = 500
"""What a row takes beside its body, about."""

_COLUMNS: Final = (
    "object_id, semq_id, semq_db_id, src, dst, node, savefwd, ack2, ordered, reliable, encrypt,"
    " route, epoch, stream, seq, app_key, session_key, umx, void, attempt, expires"
)


class Row(NamedTuple):
    """One of tb_0031, as far as it is sent."""

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
        texts = {"app_key": self.app_key, "session_key": self.session_key}
        fields |= {name: value for name, value in texts.items() if value}
        return fields | ({"expires": str(self.expires)} if self.expires else {})


class Outbox:
    """See the module."""

    def __init__(self, context: Context, links: Links) -> None:
        self._context = context
        self._links = links
        self._ready: dict[str, None] = {}  # nodes for which there may be rows to send
        self.expect_all()
        count = "SELECT count(*), coalesce(sum(length(umx)), 0) FROM tb_0031"
        rows_count, bodies_bytes = context.execute(count).fetchone()
        self.bytes_used: int = rows_count * ROW_BYTES + bodies_bytes

    # -- submitting ---------------------------------------------------------------------------

    def put(self, wish: Submit, status: str = "SS_INIT") -> tuple[int, Mid]:
        """A row for a message. What is final at once is not kept."""
        context, node = self._context, wish.destination.node
        db = 1 + crc32(str(wish.destination).encode()) % context.options.stores
        stream = Stream.CONTIGUOUS if wish.level == Level.ARRIVE else Stream.GAPS
        seq = context.execute(
            "INSERT INTO semq_counter VALUES (?, ?, ?, 1) ON CONFLICT DO UPDATE"
            " SET seq = seq + 1 RETURNING seq",
            (db, node, int(stream)),
        ).fetchone()[0]
        sealed = wish.sealed or {}
        source = f"{context.options.node}/{wish.user}" if wish.user else context.options.node
        cursor = context.execute(
            "INSERT INTO tb_0031 (semq_id, semq_db_id, src, dst, node, savefwd, ack2, ordered,"
            " reliable, encrypt, route, epoch, stream, seq, app_key, session_key, umx, void,"
            " priority, ss_status, next_time, created, expires)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0, ?, ?, 0, ?, ?)",
            (
                *(context.options.semq_id, db, source, str(wish.destination), node),
                *(wish.level, int(wish.ack2), int(wish.ordered), int(wish.reliable)),
                *(int(bool(sealed)), wish.route, context.epoch, int(stream), seq, wish.app_key),
                *(sealed.get("session_key", ""), wish.body, wish.priority, status),
                *(context.now_ms, wish.expires_ms),
            ),
        )
        record = cursor.lastrowid or 0
        mid = Mid(
            Store(context.options.node, context.options.semq_id, db), context.epoch, stream, seq
        )
        self._count(ROW_BYTES + len(wish.body))
        if status == "SS_INIT":
            self._ready[node] = None
        else:
            self._delete([(record, len(wish.body))])
        return record, mid

    def _count(self, size: int) -> None:
        self.bytes_used += size

        def undo() -> None:
            self.bytes_used -= size

        self._context.undo.append(undo)

    def _delete(self, rows: list[tuple[int, int]]) -> None:
        """Rows with the sizes of their bodies."""
        if rows:
            ids = [(record,) for record, _ in rows]
            self._context.database.executemany("DELETE FROM tb_0031 WHERE object_id = ?", ids)
            self._count(-sum(ROW_BYTES + size for _, size in rows))
            for record, _ in rows:
                self._links.answered(record)

    # -- sending ------------------------------------------------------------------------------

    def send(self) -> None:
        """What has a way, and room in its window; some of each destination at a time."""
        ready = True
        while ready:
            ready = False
            for node in list(self._ready):
                ready |= self._send_to(node)

    def _send_to(self, node: str) -> bool:
        """Says whether there may be more to send to it now."""
        context, ways = self._context, self._links.routes(node)
        if not ways:
            return False
        more = False
        for way, link in ways.items():
            room = min(_PART, context.options.window - len(link.waiting))
            if room <= 0:
                continue
            routes = "('auto', 'direct')" if way == "direct" else "('auto', 'platform')"
            if way == "platform" and self._links.given_up(node):
                routes = "('auto', 'platform', 'direct')"
            cursor = context.execute(
                f"SELECT {_COLUMNS} FROM tb_0031 WHERE ss_status = 'SS_INIT' AND node = ?"
                f" AND next_time <= ? AND route IN {routes}"
                " ORDER BY priority DESC, object_id LIMIT ?",
                (node, context.now_ms, room),
            )
            rows = _that_fit(cursor, link.waiting_bytes, bool(link.waiting))
            if rows:
                self._transmit(link, way, rows)
                more |= len(rows) == room
        if "direct" not in ways:
            self._links.look_up(node)
        if not more:
            self._forget(node)
        return more

    def _forget(self, node: str) -> None:
        """Nothing is left that could be sent now; what has to wait is looked at when it is due."""
        left = "SELECT 1 FROM tb_0031 WHERE ss_status = 'SS_INIT' AND node = ? LIMIT 1"
        if not self._context.execute(left, (node,)).fetchone():
            del self._ready[node]
            self._context.undo.append(lambda: self._ready.setdefault(node, None))

    def _transmit(self, link: Link, way: str, rows: list[Row]) -> None:
        context, now_ms = self._context, self._context.now_ms
        for row in rows:
            self._links.say(link, row.fields(context.options.node), row.umx)
        kept = [row for row in rows if row.savefwd == Level.ARRIVE or row.ack2]
        self._delete([(row.object_id, len(row.umx)) for row in rows if row not in kept])
        due_ms = now_ms + context.interval_ms
        values = [(way, now_ms, now_ms, due_ms, row.object_id) for row in kept]
        context.database.executemany(
            "UPDATE tb_0031 SET ss_status = 'SS_SENT', via = ?, attempt = attempt + 1,"
            " sent_time = ?, inq_time = ?, next_time = ?, inq_count = 0, ask_platform = 0"
            " WHERE object_id = ?",
            values,
        )
        for row in kept:
            self._links.sent(link, row.object_id, len(row.umx))
            if row.attempt == 0 and not row.void:
                context.effects.append(Happened("sent", row.object_id, way))

    # -- what becomes of it -------------------------------------------------------------------

    def answered(self, link: Link, frame: Frame) -> None:
        """The platform's answer to a `semq_send`: Ack-Fwd, Ack-Save, or a refusal."""
        record_text, _, attempt_text = frame.fields["id"][1:].partition(".")
        record, attempt = read_number("id", record_text), read_number("id", attempt_text or "0")
        said = frame.fields.get("epoch")
        if said is not None and said != self._epoch_of(record):
            return  # of a message of an earlier life that had this record
        self._links.answered(record, link)
        if frame.status == 200:
            flag = read_number("flag", frame.fields.get("flag", "1"), 1, 2)
            states = ("SS_SENT",) if flag == AckFlag.FORWARDED else ("SS_SENT", "SS_ACK_FWD")
            state = "SS_ACK_FWD" if flag == AckFlag.FORWARDED else "SS_ACK"
            self._move([record], states, state)
        elif frame.fields.get("reason") == "offline":
            node = frame.fields.get("dst", "").partition("/")[0] or self._node_of(record)
            self._links.presence(node, online=False)
            self.again([record], attempt, self._context.interval_ms)
        elif frame.status in _REFUSALS_FOR_GOOD:
            self.die(record, _text(frame), attempt=attempt)
        else:
            self._postpone(record, attempt, _text(frame))

    def _node_of(self, record: int) -> str:
        row = self._context.execute(
            "SELECT node FROM tb_0031 WHERE object_id = ?", (record,)
        ).fetchone()
        return row[0] if row else ""

    def _epoch_of(self, record: int) -> str | None:
        row = self._context.execute(
            "SELECT epoch FROM tb_0031 WHERE object_id = ?", (record,)
        ).fetchone()
        return row[0] if row else None

    def _postpone(self, record: int, attempt: int, why: str) -> None:
        """The platform has no room now."""
        count = "SELECT attempt FROM tb_0031 WHERE object_id = ? AND ss_status = 'SS_SENT'"
        row = self._context.execute(count, (record,)).fetchone()
        if row is not None and row[0] == attempt:
            self.again([record], attempt, self._context.backoff_ms(attempt), why)

    def again(self, records: Iterable[int], attempt: int, wait_ms: int = 0, why: str = "") -> None:
        """They have not come: SS_INIT, if nothing was sent since."""
        due_ms = self._context.now_ms + wait_ms if wait_ms else 0
        for record in records:
            row = self._context.execute(
                "UPDATE tb_0031 SET ss_status = 'SS_INIT', next_time = ?, error = ?"
                " WHERE object_id = ? AND attempt <= ? AND ss_status IN ('SS_SENT', 'SS_ACK_FWD',"
                " 'SS_ACK') AND (ss_status <> 'SS_ACK' OR ack2) RETURNING node, attempt, void",
                (due_ms, why, record, attempt),
            ).fetchone()
            if row is None:
                continue
            self._links.answered(record)
            most = self._context.options.attempts_max
            if most and row[1] >= most and not row[2]:  # a void one is what is left of it
                self.die(record, f"it was sent {row[1]} times")
            else:
                self._ready[row[0]] = None

    def _move(self, records: Iterable[int], states: tuple[str, ...], state: str) -> None:
        """Another state, and in an interval the next question; what is final goes."""
        context, now_ms = self._context, self._context.now_ms
        marks = ", ".join("?" * len(states))
        gone = []
        for record in records:
            row = context.execute(
                f"UPDATE tb_0031 SET ss_status = ?, inq_time = ?, next_time = ?, inq_count = 0,"
                f" ask_platform = 0 WHERE object_id = ? AND ss_status IN ({marks})"
                " RETURNING ack2, length(umx)",
                (state, now_ms, now_ms + context.interval_ms, record, *states),
            ).fetchone()
            if row is None:
                continue
            self._links.answered(record)
            if state == "SS_ACK2" or (state == "SS_ACK" and not row[0]):
                gone.append((record, row[1]))
            if state == "SS_ACK2" and row[0]:
                context.effects.append(Happened("received", record, ""))
        self._delete(gone)

    def stored(self, records: Iterable[int]) -> None:
        """The platform has them."""
        self._move(records, ("SS_SENT", "SS_ACK_FWD"), "SS_ACK")

    def received(self, records: Iterable[int]) -> None:
        """Their destination has them: final."""
        self._move(records, ("SS_INIT", "SS_SENT", "SS_ACK_FWD", "SS_ACK"), "SS_ACK2")

    def ask_platform(self, records: Iterable[int]) -> None:
        """Their destination has them not; the platform said that it stores them: has it still?"""
        self._context.database.executemany(
            "UPDATE tb_0031 SET ask_platform = 1, next_time = ? WHERE object_id = ?"
            " AND ss_status = 'SS_ACK'",
            [(self._context.now_ms, record) for record in records],
        )

    def find(self, node: str, mid: Mid, ranges: list[range]) -> Iterator[tuple[int, int, str]]:
        """Rows of these numbers that are for that node: record, seq, state."""
        if mid.store.node != self._context.options.node:
            return
        for each in ranges:
            yield from self._context.execute(
                "SELECT object_id, seq, ss_status FROM tb_0031 WHERE node = ? AND epoch = ?"
                " AND stream = ? AND seq BETWEEN ? AND ? AND semq_db_id = ?",
                (node, mid.epoch, mid.stream, each.start, each.stop - 1, mid.store.db),
            ).fetchall()

    # -- the end of the road ------------------------------------------------------------------

    def die(self, record: int, why: str, attempt: int | None = None) -> None:
        """Nobody can deliver it, as the answer to an attempt may say: the operator is told. Its
        number must not be missing, so a void message takes its place, unless nobody is there who
        would miss it (section 10)."""
        context = self._context
        row = context.execute(
            "SELECT dst, semq_id, semq_db_id, epoch, stream, seq, app_key, umx, created, void,"
            " attempt, length(umx), node, ss_status FROM tb_0031 WHERE object_id = ? AND ss_status"
            " IN ('SS_INIT', 'SS_SENT', 'SS_ACK_FWD')",
            (record,),
        ).fetchone()
        if row is None:
            return
        if attempt is not None and (row[10] != attempt or row[13] == "SS_INIT"):
            return  # the answer of an attempt that was followed by another, or is to be
        store = Store(context.options.node, row[1], row[2])
        mid = Mid(store, row[3], row[4], row[5])
        context.execute(
            "UPDATE tb_0031 SET ss_status = 'SS_DEAD', error = ?, next_time = NULL"
            " WHERE object_id = ?",
            (why, record),
        )
        if not row[9]:
            said = (record, row[0], str(mid), row[6], row[7], row[8], context.now_ms, why)
            context.execute(
                "INSERT OR REPLACE INTO semq_dead VALUES (?, ?, ?, ?, ?, ?, ?, ?)", said
            )
            context.effects.append(Happened("dead", record, why))
        self._links.answered(record)
        missed = mid.stream == Stream.CONTIGUOUS and not why.startswith("404") and not row[9]
        if missed and row[12] != PLATFORM:
            context.execute(
                "UPDATE tb_0031 SET ss_status = 'SS_INIT', void = 1, umx = x'', next_time = 0,"
                " expires = 0, ack2 = 0, encrypt = 0, session_key = '' WHERE object_id = ?",
                (record,),
            )
            self._count(-row[11])
            self._ready[row[12]] = None
        else:
            self._delete([(record, row[11])])

    def expire(self) -> None:
        """Those whose time is over, and that nobody else owes."""
        rows = self._context.execute(
            "SELECT object_id FROM tb_0031 INDEXED BY tb_0031_expires WHERE expires > 0"
            " AND expires <= ? AND ss_status IN ('SS_INIT', 'SS_SENT', 'SS_ACK_FWD') LIMIT 1000",
            (self._context.now_ms,),
        ).fetchall()
        for (record,) in rows:
            self.die(record, "its time is over")

    def expect(self, node: str) -> None:
        """There may be something to send to it."""
        self._ready[node] = None

    def expect_all(self) -> None:
        """There is something to send to whoever has rows."""
        query = "SELECT DISTINCT node FROM tb_0031 WHERE ss_status = 'SS_INIT'"
        self._ready.update({node: None for (node,) in self._context.execute(query).fetchall()})

    def wake(self) -> None:
        """Rows that were to be sent later are due."""
        rows = self._context.execute(
            "SELECT DISTINCT node FROM tb_0031 WHERE ss_status = 'SS_INIT' AND next_time > 0"
            " AND next_time <= ?",
            (self._context.now_ms,),
        ).fetchall()
        for (node,) in rows:
            self._ready[node] = None


def _that_fit(cursor: sqlite3.Cursor, waiting_bytes: int, waiting: bool) -> list[Row]:
    """The first rows that fit into the window of a link, or one that fits into none."""
    rows: list[Row] = []
    for found in cursor:
        row = Row(*found)
        waiting_bytes += len(row.umx)
        if waiting_bytes > _WINDOW_BYTES and (rows or waiting):
            break
        rows.append(row)
    cursor.close()
    return rows


def _text(frame: Frame) -> str:
    """Of a refusal, with its status in front."""
    text, status = frame.body[:200].decode("utf-8", "replace"), str(frame.status)
    return text if text.startswith(status) else f"{status}: {text}"
