"""The inbox, tb_0030: what has come, whom that is to be told, and who takes it (specification,
sections 5.3, 7, 9 and 13).

A row and its number in the ledger are one transaction, and whatever confirms it leaves after that.
"""

from __future__ import annotations

from typing import Final

import msgspec

from zbus.semq.endpoint.context import Context
from zbus.semq.endpoint.events import Frame, Refused, Reported, Submit, Take, Taken
from zbus.semq.endpoint.links import Links, in_parts
from zbus.semq.endpoint.received_ids import ReceivedIds
from zbus.semq.endpoint.schema import OPEN
from zbus.semq.protocol.fields import NOT_HANDED
from zbus.semq.protocol.words import (
    PLATFORM,
    Envelope,
    Hop,
    Level,
    Locator,
    Mid,
    PlatformLocator,
    Store,
    Stream,
    number_fields,
    read_envelope,
)

_HANDED_BYTES_MAX: Final = 32 << 10
_HANDED_MAX: Final = 100
"""More than a platform takes; what came directly may have more, and is cut."""

_MID: Final = "node = ? AND epoch = ? AND stream = ? AND semq_id = ? AND semq_db_id = ?"

_read_others = msgspec.json.Decoder(dict[str, str]).decode

Ack = tuple[Mid, int, Locator, PlatformLocator | None, str]
"""What came, its row (0: there is none), and what finds the row at the receiver of the ack."""


class Inbox:
    def __init__(self, context: Context, links: Links, ledger: ReceivedIds) -> None:
        self._context = context
        self._links = links
        self._ledger = ledger
        self._takes: dict[str, list[Take]] = {}  # those that wait, by user
        self._holders: dict[int, int] = {}  # row -> who has taken it
        self._acks: dict[tuple[Hop, str], list[Ack]] = {}  # of this step
        self._fresh: set[str] = set()  # users for whom there may be something
        held = "SELECT EXISTS (SELECT 1 FROM tb_0030 WHERE app_state = 'HELD')"
        self._holds: bool = context.execute(held).fetchone()[0] == 1  # ordered messages, perhaps
        context.execute("UPDATE tb_0030 SET app_state = 'NEW' WHERE app_state = 'TAKEN'")
        place = context.execute("SELECT coalesce(max(place), 0) FROM tb_0030").fetchone()
        self._place: int = place[0]

    # -- coming -------------------------------------------------------------------------------

    def come(self, envelope: Envelope, frame: Frame) -> None:
        """A message, from whatever link."""
        mid = envelope.mid
        void = envelope.void or 0 < envelope.expires_ms <= self._context.now_ms
        numbered = envelope.level > Level.DROP or envelope.ack2
        if mid is None or envelope.lk0 is None or not numbered:
            if not void:
                self._pass_by(envelope.destination.user, frame.fields, frame.body)
            return
        arrives = envelope.level == Level.ARRIVE and envelope.lk1 is None
        source_wants = (envelope.ack2 or arrives) and envelope.source.node != PLATFORM
        record = 0
        if self._ledger.add(mid, void, envelope.skips):
            if not void:
                record = self._insert(envelope, mid, frame, source_wants)
            if self._holds and mid.stream == Stream.CONTIGUOUS:
                for epoch in self._ledger.former(mid):  # what is missing of it was lost with it
                    self._release(mid._replace(epoch=epoch), 1 << 62)
                self._release(mid, self._ledger.of(mid).complete)
        else:
            record = self._again(envelope, mid, source_wants)
        ack = (mid, record, envelope.lk0, envelope.lk1, envelope.app_key)
        if envelope.lk1 is not None:
            self._acks.setdefault((Hop.PLATFORM, PLATFORM), []).append(ack)
        if source_wants:
            self._acks.setdefault((Hop.SOURCE, envelope.source.node), []).append(ack)

    def _pass_by(self, user: str, fields: dict[str, str], body: bytes) -> None:
        """Level 1: a request that waits for it gets it, or it is dropped."""
        takes = self._takes.get(user)
        if takes:
            take = self._pop(takes)
            self._context.effects.append(Taken(take.ask, 0, _shown(fields, body)))

    def _insert(self, envelope: Envelope, mid: Mid, frame: Frame, source_wants: bool) -> int:
        held = envelope.ordered and mid.stream == Stream.CONTIGUOUS
        needs, state = (envelope.lk1 is not None, source_wants), "HELD" if held else "NEW"
        record = self.put(envelope, mid, frame, needs, state)
        return record or self._again(envelope, mid, source_wants)

    def put(
        self, envelope: Envelope, mid: Mid, frame: Frame, needs: tuple[bool, bool], state: str
    ) -> int:
        """A row. `needs`: whether the platform, and the source, are to confirm that they know."""
        context, user = self._context, envelope.destination.user
        if state == "NEW":
            self._fresh.add(user)
        else:
            self._holds = True
        self._place += 1
        due_ms = context.now_ms + context.interval_ms if any(needs) else None
        row: dict[str, object] = {
            "src": str(envelope.source),
            "node": mid.store.node,
            "semq_id": mid.store.semq,
            "semq_db_id": mid.store.db,
            "lk0": str(envelope.lk0),
            "epoch": mid.epoch,
            "stream": mid.stream,
            "seq": mid.seq,
            "lk1": str(envelope.lk1) if envelope.lk1 is not None else None,
            "p_need": int(needs[0]),
            "p_ack_status": "AS_INIT",
            "s_need": int(needs[1]),
            "s_ack_status": "AS_INIT",
            "inq_time": context.now_ms,
            "next_time": due_ms,
            "app_key": envelope.app_key,
            "fields": _others(frame.fields),
            "umx": frame.body,
            "app_state": state,
            "user": user,
            "place": self._place,
            "created": context.now_ms,
        }
        cursor = context.insert("tb_0030", row, "ON CONFLICT DO NOTHING")
        return (cursor.lastrowid or 0) if cursor.rowcount else 0

    def _again(self, envelope: Envelope, mid: Mid, source_wants: bool) -> int:
        """One that has come before. Who is told may be more than before."""
        context = self._context
        found = context.execute(
            f"SELECT object_id, s_need FROM tb_0030 WHERE {_MID} AND seq = ?",
            (*_which(mid), mid.seq),
        ).fetchone()
        if found is None:
            return 0
        record: int = found[0]
        due_ms = context.now_ms + context.interval_ms
        if envelope.lk1 is not None:
            context.execute(
                "UPDATE tb_0030 SET lk1 = ?, p_need = 1, p_ack_status = 'AS_INIT', next_time = ?,"
                " inq_count = 0 WHERE object_id = ?",
                (str(envelope.lk1), due_ms, record),
            )
        if source_wants and not found[1]:
            context.execute(
                "UPDATE tb_0030 SET s_need = 1, next_time = ?, inq_count = 0 WHERE object_id = ?",
                (due_ms, record),
            )
        return record

    def _release(self, mid: Mid, below: int) -> int:
        """Ordered messages of that stream before which nothing is waited for any more."""
        context = self._context
        rows = context.execute(
            f"SELECT object_id, user FROM tb_0030 INDEXED BY tb_0030_held WHERE {_MID}"
            " AND seq < ? AND app_state = 'HELD' ORDER BY seq",
            (*_which(mid), below),
        ).fetchall()
        for record, user in rows:
            self._place += 1
            context.execute(
                "UPDATE tb_0030 SET app_state = 'NEW', place = ? WHERE object_id = ?",
                (self._place, record),
            )
            self._fresh.add(user)
        return len(rows)

    def release(self, node: str) -> int:
        """An operator says that what ordered messages of a node wait for does not come any more.
        Gives how many waited."""
        streams = self._context.execute(
            "SELECT semq_id, semq_db_id, epoch, stream, max(seq) FROM tb_0030"
            " INDEXED BY tb_0030_held WHERE node = ? AND app_state = 'HELD'"
            " GROUP BY semq_id, semq_db_id, epoch, stream ORDER BY max(object_id)",
            (node,),
        ).fetchall()
        released = 0
        for semq, db, epoch, stream, last in streams:
            mid = Mid(Store(node, semq, db), epoch, stream, last)
            self._ledger.give_up(mid)
            released += self._release(mid, last + 1)
        return released

    def has(self, mid: Mid, ranges: list[range]) -> tuple[list[int], list[int], list[int]]:
        """Which of these numbers have ever come with a message, which without, and which not."""
        seen = self._ledger.of(mid)
        there: list[int] = []
        void: list[int] = []
        missing: list[int] = []
        for each in ranges:
            for seq in each:
                (missing if seq not in seen else void if seq in seen.void else there).append(seq)
        return there, void, missing

    # -- acknowledging ------------------------------------------------------------------------

    def acknowledge(self) -> None:
        """Acks of all that came in this step: one frame for many."""
        acks, self._acks = self._acks, {}
        for (hop, node), each in acks.items():
            link = self._links.to(node)
            if link is None:
                continue
            streams: dict[tuple[Store, str, int, bool], list[Ack]] = {}
            for ack in each:
                mid = ack[0]
                void = hop == Hop.SOURCE and mid.seq in self._ledger.of(mid).void
                streams.setdefault((mid.store, mid.epoch, mid.stream, void), []).append(ack)
            for (*_, void), acks_of in streams.items():
                for part in in_parts(acks_of, lambda ack: ack[0].seq):
                    fields = _ack_fields(hop, node, part, self._context.options.semq_id)
                    self._links.send_frame(link, fields | ({"void": "1"} if void else {}))

    def confirmed(self, hop: Hop, node: str, mid: Mid, ranges: list[range], lk1: str) -> None:
        """The receiver of an ack has it: ReAck, ReAck2, or an answer that says so. One of the
        platform about a single message names its row there."""
        column = "p" if hop == Hop.PLATFORM else "s"
        if hop == Hop.SOURCE and mid.store.node != node:
            return
        for each in ranges:
            which = *_which(mid), each.start, each.stop - 1
            self._context.execute(
                f"UPDATE tb_0030 SET {column}_ack_status = 'AS_ACK' WHERE {_MID}"
                f" AND seq BETWEEN ? AND ? AND {column}_need AND (? = '' OR lk1 = ?)",
                (*which, lk1, lk1),
            )
            self._remove(f"{_MID} AND seq BETWEEN ? AND ?", which)
            self._context.execute(  # nothing is due for others that are confirmed
                f"UPDATE tb_0030 SET next_time = NULL WHERE {_MID} AND seq BETWEEN ? AND ?"
                f" AND next_time IS NOT NULL AND NOT {OPEN}",
                which,
            )

    def _remove(self, which: str, values: tuple[object, ...]) -> None:
        """Those of these rows that are without use (section 9)."""
        self._context.execute(
            f"DELETE FROM tb_0030 WHERE {which} AND app_state = 'DONE' AND NOT {OPEN}", values
        )

    # -- handing over -------------------------------------------------------------------------

    def take(self, take: Take) -> None:
        """An application wants one."""
        takes = self._takes.setdefault(take.user, [])
        takes.append(take)
        self._context.undo.append(lambda: self._forget(takes, take))
        self._fresh.add(take.user)

    def forget(self) -> None:
        """The step has failed: what it was to tell is not true."""
        self._acks.clear()
        self._fresh.update(self._takes)

    def _forget(self, takes: list[Take], take: Take) -> None:
        if take in takes:
            takes.remove(take)

    def _pop(self, takes: list[Take]) -> Take:
        take = takes.pop(0)
        self._context.undo.append(lambda: takes.insert(0, take))
        return take

    def hand_over(self) -> None:
        """What is new, to those who wait, in order; the others are told if they do not wait."""
        fresh, self._fresh = self._fresh, set()
        for user in fresh:
            takes = self._takes.get(user)
            if not takes:
                continue
            self._hand_to(user, takes)
            for take in [take for take in takes if not take.wait]:
                takes.remove(take)
                self._context.effects.append(Taken(take.ask))

    def _hand_to(self, user: str, takes: list[Take]) -> None:
        context = self._context
        rows = context.execute(
            "SELECT object_id, fields, umx, handed FROM tb_0030 WHERE app_state = 'NEW'"
            " AND user = ? ORDER BY place LIMIT ?",
            (user, len(takes)),
        ).fetchall()
        context.database.executemany(
            "UPDATE tb_0030 SET app_state = 'TAKEN', handed = 1 WHERE object_id = ?",
            [(record,) for record, *_ in rows],
        )
        for record, fields, body, handed in rows:
            take = self._pop(takes)
            self._hold(record, take.holder)
            frame = Frame(_read_others(fields), body)
            context.effects.append(Taken(take.ask, record, frame, bool(handed)))

    def _hold(self, record: int, holder: int) -> None:
        self._holders[record] = holder
        self._context.undo.append(lambda: self._holders.pop(record, None))

    def left(self, holder: int) -> None:
        """What it holds is there again, and it takes no more."""
        for takes in self._takes.values():
            takes[:] = [take for take in takes if take.holder != holder]
        records = [record for record, other in self._holders.items() if other == holder]
        for record in records:
            row = self._context.execute(
                "UPDATE tb_0030 SET app_state = 'NEW' WHERE object_id = ? AND app_state = 'TAKEN'"
                " RETURNING user",
                (record,),
            ).fetchone()
            self._drop_holder(record)
            if row is not None:
                self._fresh.add(row[0])

    def _drop_holder(self, record: int) -> None:
        holder = self._holders.pop(record, None)
        if holder is not None:
            self._context.undo.append(lambda: self._holders.__setitem__(record, holder))

    def done(self, ask: int, record: int) -> None:
        """An application has done with it."""
        done = self._context.execute(
            "UPDATE tb_0030 SET app_state = 'DONE' WHERE object_id = ? AND (app_state IN ('TAKEN',"
            " 'DONE') OR (app_state = 'NEW' AND handed))",
            (record,),
        )
        if not done.rowcount:
            # It was done before, and is gone; or it was never delivered.
            other = "SELECT 1 FROM tb_0030 WHERE object_id = ?"
            if self._context.execute(other, (record,)).fetchone():
                self._context.effects.append(Refused(ask, 409, f"row {record} is not taken"))
                return
        self._drop_holder(record)
        self._remove("object_id = ?", (record,))
        self._context.effects.append(Reported(ask, {"row": record}))

    # -- inside -------------------------------------------------------------------------------

    def deliver(self, wish: Submit, mid: Mid, record: int) -> None:
        """A message from this node to this node, in the transaction that has sent it."""
        fields = wish.fields(self._context.options.node)
        fields |= {"lk0": f"{mid.store}/{record}", "epoch": mid.epoch}
        fields |= {"stream": str(mid.stream), "seq": str(mid.seq)}
        self._ledger.add(mid)
        frame = Frame(fields, wish.body)
        self.put(read_envelope(fields), mid, frame, needs=(False, False), state="NEW")

    def pass_inside(self, wish: Submit) -> None:
        """The same at level 1."""
        fields = wish.fields(self._context.options.node)
        self._pass_by(wish.destination.user, fields, wish.body)


def _which(mid: Mid) -> tuple[str, str, int, int, int]:
    """The values of `_MID`."""
    return mid.store.node, mid.epoch, mid.stream, mid.store.semq, mid.store.db


def _shown(fields: dict[str, str], body: bytes) -> Frame:
    """As the application sees it."""
    shown: dict[str, str] = {}
    room = _HANDED_BYTES_MAX
    for name, value in fields.items():
        room -= len(name) + len(value.encode())
        if value and name not in NOT_HANDED and room > 0 and len(shown) < _HANDED_MAX:
            shown[name] = value
    return Frame(shown, body)


def _others(fields: dict[str, str]) -> str:
    """What is kept of the envelope for the application."""
    return msgspec.json.encode(_shown(fields, b"").fields).decode()


def _ack_fields(hop: Hop, node: str, acks: list[Ack], semq_id: int) -> dict[str, str]:
    mid, record, lk0, lk1, app_key = acks[0]
    fields = {"cmd": "semq_ack", "ack_flag": str(int(hop)), "dst": node}
    fields |= {"src_semq_id": str(mid.store.semq)} if hop == Hop.SOURCE else {}
    fields |= {"dest_semq_id": str(semq_id)}
    single = len(acks) == 1
    if single:
        place = lk1 if hop == Hop.PLATFORM and lk1 is not None else lk0.place
        fields |= place.fields("src_")
        fields |= {"dest_semq_db_id": "1", "dest_ref_id": str(record)}
        fields |= {"app_key": app_key} if app_key else {}
    fields |= {"lk0": str(Locator(mid.store, lk0.record if single else 0))}
    fields |= {"epoch": mid.epoch, "stream": str(mid.stream)}
    return fields | number_fields([ack[0].seq for ack in acks])
