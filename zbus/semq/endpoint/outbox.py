"""The outbox, tb_0031: what this endpoint owes (specification, sections 5.1, 7 and 9)."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple
from zlib import crc32

from zbus.semq.endpoint.context import Context
from zbus.semq.endpoint.counters import Counters
from zbus.semq.endpoint.events import Frame, Happened, Submit
from zbus.semq.endpoint.links import Link, Links
from zbus.semq.protocol.words import (
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

_REFUSALS_FOR_GOOD: Final = (400, 403, 404, 409, 410, 413, 422)
_DIGITS_MAX: Final = 6
"""Of the seconds after which the platform wants to be asked again."""

_WINDOW_BYTES: Final = 32 << 20
"""Bodies that are under way on one link."""

ROW_BYTES: Final = 500
"""What a row takes beside its body, about."""


class Row(NamedTuple):
    """A row of tb_0031, as far as it is sent: its fields are columns."""

    object_id: int
    semq_id: int
    semq_db_id: int
    src: str
    dst: str
    node: str
    savefwd: int
    ack2: int
    ordered: int
    encrypt: int
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


_COLUMNS: Final = ", ".join(Row._fields)


class Outbox:
    def __init__(self, context: Context, links: Links) -> None:
        self._context = context
        self._links = links
        self._counters = Counters(context)
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
        seq, skips = self._counters.next(db, node, stream)
        sealed = wish.sealed or {}
        row: dict[str, object] = {
            "semq_id": context.options.semq_id,
            "semq_db_id": db,
            "src": wish.source(context.options.node),
            "dst": str(wish.destination),
            "node": node,
            "savefwd": wish.level,
            "ack2": int(wish.ack2),
            "ordered": int(wish.ordered),
            "reliable": int(wish.reliable),
            "encrypt": int(bool(sealed)),
            "route": wish.route,
            "epoch": context.epoch,
            "stream": int(stream),
            "seq": seq,
            "app_key": wish.app_key,
            "session_key": sealed.get("session_key", ""),
            "umx": wish.body,
            "void": 0,
            "priority": wish.priority,
            "ss_status": status,
            "next_time": 0,
            "created": context.now_ms,
            "expires": wish.expires_ms,
            "skips": skips,
        }
        cursor = context.insert("tb_0031", row)
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

    def write(self) -> None:
        """What a step has left in memory, before the commit."""
        self._counters.write()

    def forget(self) -> None:
        """The step has failed: the database knows."""
        self._counters.forget()

    # -- sending ------------------------------------------------------------------------------

    def send(self) -> None:
        """What has a way, and room in its window; some of each destination at a time."""
        for link in self._links.all.values():
            link.passed = link.passed_bytes = 0
        ready = True
        while ready:
            ready = False
            for node in list(self._ready):
                ready |= self._send_to(node)

    @property
    def goes_on(self) -> bool:
        """Something was sent for which no window waits: more may follow, in the next step."""
        return any(link.passed for link in self._links.all.values())

    def _send_to(self, node: str) -> bool:
        """Says whether there may be more to send to it now."""
        context, ways = self._context, self._links.routes(node)
        if not ways:
            return False
        more = False
        for way, link in ways.items():
            waiting = len(link.waiting) + link.passed
            room = min(_PART, context.options.window - waiting)
            if room <= 0:
                continue
            which, values = self._routed(way, node, ways)
            # Without being told, SQLite sorts all that wait, for each part of them.
            cursor = context.execute(
                f"SELECT {_COLUMNS} FROM tb_0031 INDEXED BY tb_0031_out"
                f" WHERE ss_status = 'SS_INIT' AND node = ? AND next_time <= ? AND {which}"
                " ORDER BY priority DESC, object_id LIMIT ?",
                (node, context.now_ms, *values, room),
            )
            rows = _that_fit(cursor, link.waiting_bytes + link.passed_bytes, waiting > 0)
            if rows:
                self._transmit(link, way, rows)
                more |= len(rows) == room
        if "direct" not in ways:
            self._links.look_up(node)
        if not more:
            self._forget(node)
        return more

    def _routed(self, way: str, node: str, ways: dict[str, Link]) -> tuple[str, tuple[int, ...]]:
        """Which rows go that way. What is too large for a direct link goes by the platform,
        whatever it wants."""
        direct = ways.get("direct")
        if way == "direct":
            assert direct is not None
            return "route IN ('auto', 'direct') AND length(umx) <= ?", (direct.max_bytes,)
        if self._links.given_up(node):
            return "route IN ('auto', 'platform', 'direct')", ()
        if direct is None:
            return "route IN ('auto', 'platform')", ()
        return "(route IN ('auto', 'platform') OR length(umx) > ?)", (direct.max_bytes,)

    def _forget(self, node: str) -> None:
        """Nothing is left that could be sent now; what has to wait is looked at when it is due."""
        left = "SELECT 1 FROM tb_0031 WHERE ss_status = 'SS_INIT' AND node = ? LIMIT 1"
        if not self._context.execute(left, (node,)).fetchone():
            del self._ready[node]
            self._context.undo.append(lambda: self._ready.setdefault(node, None))

    def _transmit(self, link: Link, way: str, rows: list[Row]) -> None:
        context, now_ms = self._context, self._context.now_ms
        for row in rows:
            self._links.send_frame(link, row.fields(context.options.node), row.umx)
        # The platform answers to all, another endpoint to those that it has to confirm.
        kept = [row for row in rows if way == "platform" or row.confirmed]
        gone = [(row.object_id, len(row.umx)) for row in rows if row not in kept]
        self._delete(gone)
        link.passed += len(gone)
        link.passed_bytes += sum(size for _, size in gone)
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
        for row in rows:
            if row.attempt == 0 and not row.void:
                context.effects.append(Happened("sent", row.object_id, way))

    # -- what becomes of it -------------------------------------------------------------------

    def answered(self, link: Link, frame: Frame) -> None:
        """The platform's answer to a `semq_send`: Ack-Fwd, Ack-Save, or a refusal."""
        record_text, _, attempt_text = frame.fields["id"][1:].partition(".")
        record, attempt = read_number("id", record_text), read_number("id", attempt_text or "0")
        sent_epoch = frame.fields.get("epoch")
        if sent_epoch is not None and sent_epoch != self._of(record, "epoch"):
            return  # of a message of an earlier life that had this record
        self._links.answered(record, link)
        if frame.status == 200:
            flag = read_number("flag", frame.fields.get("flag", "1"), 1, 2)
            states = ("SS_SENT",) if flag == AckFlag.FORWARDED else ("SS_SENT", "SS_ACK_FWD")
            state = "SS_ACK_FWD" if flag == AckFlag.FORWARDED else "SS_ACK"
            self._move([record], states, state)
        elif frame.fields.get("reason") == "offline":
            node = frame.fields.get("dst", "").partition("/")[0] or self._of(record, "node")
            self._links.presence(node or "", online=False)
            self.again([record], attempt, self._context.interval_ms)
        elif frame.status in _REFUSALS_FOR_GOOD:
            self.die(record, _text(frame), attempt=attempt)
        else:
            self._postpone(record, attempt, frame)

    def _of(self, record: int, column: str, which: str = "TRUE") -> Any:  # noqa: ANN401  # of SQL
        """A value of a row; None if there is no such row."""
        query = f"SELECT {column} FROM tb_0031 WHERE object_id = ? AND {which}"
        row = self._context.execute(query, (record,)).fetchone()
        return row[0] if row else None

    def _postpone(self, record: int, attempt: int, frame: Frame) -> None:
        """The platform has no room now. It may say when it has."""
        if self._of(record, "attempt", "ss_status = 'SS_SENT'") != attempt:
            return
        wait_ms, after = self._context.backoff_ms(attempt), frame.fields.get("retry-after", "")
        if after.isdecimal() and len(after) < _DIGITS_MAX:
            after_ms = 1_000 * max(1, int(after))
            wait_ms = max(after_ms, min(wait_ms, after_ms << min(attempt, 20)))
        self.again([record], attempt, wait_ms, _text(frame), refused=1)

    def again(
        self,
        records: Iterable[int],
        attempt: int,
        wait_ms: int = 0,
        why: str = "",
        refused: int = 0,
    ) -> None:
        """They have not come: SS_INIT, if nothing was sent since. An attempt for which there was no
        room (`refused`) does not count."""
        due_ms = self._context.now_ms + wait_ms if wait_ms else 0
        for record in records:
            row = self._context.execute(
                "UPDATE tb_0031 SET ss_status = 'SS_INIT', next_time = ?, error = ?,"
                " refused = refused + ? WHERE object_id = ? AND attempt <= ?"
                " AND ss_status IN ('SS_SENT', 'SS_ACK_FWD', 'SS_ACK')"
                " AND (ss_status <> 'SS_ACK' OR ack2) RETURNING node, attempt - refused, void",
                (due_ms, why, refused, record, attempt),
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
                " RETURNING ack2, length(umx), savefwd",
                (state, now_ms, now_ms + context.interval_ms, record, *states),
            ).fetchone()
            if row is None:
                continue
            self._links.answered(record)
            if state == "SS_ACK2" or (not row[0] and (state == "SS_ACK" or row[2] < Level.ARRIVE)):
                gone.append((record, row[1]))
            if state == "SS_ACK2" and row[0]:
                context.effects.append(Happened("received", record, ""))
        self._delete(gone)

    def stored(self, records: Iterable[int]) -> None:
        """The platform has them."""
        self._move(records, ("SS_SENT", "SS_ACK_FWD"), "SS_ACK")

    def received(self, records: Iterable[int], void: bool = False) -> None:
        """Their destination has them: final. `void`: it has their numbers alone, as their time was
        over before they came."""
        arrived = []
        for record in records:
            buried = self._bury(record, "it expired on its way", "NOT void") if void else None
            if buried is not None:
                self._delete([(record, buried["bytes"])])
            else:
                arrived.append(record)
        self._move(arrived, ("SS_INIT", "SS_SENT", "SS_ACK_FWD", "SS_ACK"), "SS_ACK2")

    def unanswered(self, rows: list[tuple[int, int]]) -> None:
        """Rows with the sizes of their bodies, of which it is never known what became of them."""
        self._delete(rows)

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
        """It cannot be delivered, as the answer to an attempt may say: the operator is told. Its
        number must not be missing, so a void message takes its place, or whatever is sent to its
        node next takes the number along (section 10)."""
        context = self._context
        states = "ss_status IN ('SS_INIT', 'SS_SENT', 'SS_ACK_FWD')"
        if attempt is not None:  # and not that of one that was followed by another, or is to be
            states = f"ss_status IN ('SS_SENT', 'SS_ACK_FWD') AND attempt = {attempt:d}"
        row = self._bury(record, why, states)
        if row is None:
            return
        missed = row["stream"] == Stream.CONTIGUOUS and row["node"] != PLATFORM
        if missed and not why.startswith("404") and not row["void"]:
            context.execute(
                "UPDATE tb_0031 SET ss_status = 'SS_INIT', void = 1, umx = x'', next_time = 0,"
                " expires = 0, ack2 = 0, encrypt = 0, session_key = '' WHERE object_id = ?",
                (record,),
            )
            self._count(-row["bytes"])
            self._ready[row["node"]] = None
            return
        if missed and row["epoch"] == context.epoch:
            values = [row[name] for name in ("semq_db_id", "node", "stream", "seq", "skips")]
            self._counters.dead(*values)
        self._delete([(record, row["bytes"])])

    def _bury(self, record: int, why: str, which: str) -> dict[str, Any] | None:
        """If it is such a row, it is SS_DEAD, and the operator finds it. Gives what it was."""
        context = self._context
        names = ("dst", "node", "semq_id", "semq_db_id", "epoch", "stream", "seq", "void", "skips")
        found = context.execute(
            f"UPDATE tb_0031 SET ss_status = 'SS_DEAD', error = ?, next_time = NULL"
            f" WHERE object_id = ? AND {which} RETURNING {', '.join(names)}, length(umx)",
            (why, record),
        ).fetchone()
        if found is None:
            return None
        row = dict(zip((*names, "bytes"), found, strict=True))
        if not row["void"]:
            store = Store(context.options.node, row["semq_id"], row["semq_db_id"])
            mid = Mid(store, row["epoch"], row["stream"], row["seq"]).of_record(record)
            context.execute(
                "INSERT OR REPLACE INTO semq_dead SELECT object_id, dst, ?, app_key, umx, created,"
                " ?, ? FROM tb_0031 WHERE object_id = ?",
                (mid, context.now_ms, why, record),
            )
            context.effects.append(Happened("dead", record, why))
        self._links.answered(record)
        return row

    def expire(self) -> None:
        """Those whose time is over, and that no other client owes."""
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
        """There is something to send to each node that has rows."""
        self._expect("TRUE")

    def wake(self) -> None:
        """Rows that were to be sent later are due."""
        self._expect("next_time > 0 AND next_time <= ?", self._context.now_ms)

    def _expect(self, which: str, *values: object) -> None:
        """There is something to send to the nodes of such rows."""
        query = f"SELECT DISTINCT node FROM tb_0031 WHERE ss_status = 'SS_INIT' AND {which}"
        self._ready.update(dict.fromkeys(node for (node,) in self._context.execute(query, values)))


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
    text, status = frame.text, str(frame.status)
    return text if text.startswith(status) else f"{status}: {text}"
