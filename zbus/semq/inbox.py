"""The inbox, tb_0030: what has come, whom that is to be told, and who takes it (specification,
sections 5.3, 7, 9 and 13).

A row and its number in the ledger are one transaction, and whatever confirms it leaves after that.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Final

from zbus.semq.context import Context
from zbus.semq.events import Frame, Refused, Submit, Take, Taken, Told
from zbus.semq.ledger import Ledger
from zbus.semq.links import Links
from zbus.semq.options import SEQS_MAX
from zbus.semq.words import (
    PLATFORM,
    Envelope,
    Hop,
    Level,
    Locator,
    Mid,
    PlatformLocator,
    Stream,
    read_address,
    show_seqs,
)

_HANDED: Final = (
    *("src", "dst", "lk0", "epoch", "stream", "seq", "savefwd", "app_key", "encrypt"),
    *("session_key", "ordered", "origin_id", "tag", "key", "content-type"),
)
"""Fields that the application is shown."""

_OPEN: Final = "((p_need AND p_ack_status = 'AS_INIT') OR (s_need AND s_ack_status = 'AS_INIT'))"

Ack = tuple[Mid, int, Locator, PlatformLocator | None, str]
"""What came, its row (0: there is none), and what finds the row of whoever is told."""


class Inbox:
    """See the module."""

    def __init__(self, context: Context, links: Links, ledger: Ledger) -> None:
        self._context = context
        self._links = links
        self._ledger = ledger
        self._takes: dict[str, list[Take]] = {}  # those that wait, by user
        self._holders: dict[int, int] = {}  # row -> who has taken it
        self._acks: dict[tuple[Hop, str], list[Ack]] = {}  # of this step
        self._fresh: set[str] = set()  # users for whom there may be something
        context.execute("UPDATE tb_0030 SET app_state = 'NEW' WHERE app_state = 'TAKEN'")
        place = context.execute("SELECT coalesce(max(place), 0) FROM tb_0030").fetchone()
        self._place: int = place[0]

    # -- coming -------------------------------------------------------------------------------

    def come(self, envelope: Envelope, frame: Frame) -> None:
        """A message, from whatever link."""
        mid = envelope.mid
        if mid is None or envelope.lk0 is None:
            self._pass_by(envelope, frame)
            return
        arrives = envelope.level == Level.ARRIVE and envelope.lk1 is None
        source_wants = (envelope.ack2 or arrives) and envelope.source.node != PLATFORM
        record = 0
        if self._ledger.add(mid):
            if not envelope.void:
                record = self._insert(envelope, mid, frame, source_wants)
            self._release(mid)
        else:
            record = self._again(envelope, mid, source_wants)
        ack = (mid, record, envelope.lk0, envelope.lk1, envelope.app_key)
        if envelope.lk1 is not None:
            self._acks.setdefault((Hop.PLATFORM, PLATFORM), []).append(ack)
        if source_wants:
            self._acks.setdefault((Hop.SOURCE, envelope.source.node), []).append(ack)

    def _pass_by(self, envelope: Envelope, frame: Frame) -> None:
        """Level 1: whoever waits for it gets it, or nobody does."""
        takes = self._takes.get(envelope.destination.user)
        if takes:
            take = self._pop(takes)
            self._context.effects.append(Taken(take.ask, 0, _shown(frame.fields, frame.body)))

    def _insert(self, envelope: Envelope, mid: Mid, frame: Frame, source_wants: bool) -> int:
        held = envelope.ordered and mid.stream == Stream.CONTIGUOUS
        return self.put(
            envelope,
            mid,
            frame,
            needs=(envelope.lk1 is not None, source_wants),
            state="HELD" if held else "NEW",
        )

    def put(
        self, envelope: Envelope, mid: Mid, frame: Frame, needs: tuple[bool, bool], state: str
    ) -> int:
        """A row. `needs`: whether the platform, and the source, are to confirm that they know."""
        context, user = self._context, envelope.destination.user
        if state == "NEW":
            self._fresh.add(user)
        self._place += 1
        due_ms = context.now_ms + context.interval_ms if any(needs) else None
        cursor = context.execute(
            "INSERT INTO tb_0030 (src, node, semq_id, semq_db_id, lk0, epoch, stream, seq, lk1,"
            " p_need, p_ack_status, s_need, s_ack_status, inq_time, next_time, app_key, fields,"
            " umx, app_state, user, place, created)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 'AS_INIT', ?, 'AS_INIT', ?, ?, ?, ?, ?, ?, ?,"
            " ?, ?)",
            (
                *(str(envelope.source), mid.store.node, mid.store.semq, mid.store.db),
                *(str(envelope.lk0), mid.epoch, mid.stream, mid.seq),
                str(envelope.lk1) if envelope.lk1 is not None else None,
                *(int(needs[0]), int(needs[1]), context.now_ms, due_ms, envelope.app_key),
                *(_others(frame.fields), frame.body, state, user, self._place, context.now_ms),
            ),
        )
        return cursor.lastrowid or 0

    def _again(self, envelope: Envelope, mid: Mid, source_wants: bool) -> int:
        """One that has come before. Who is told may be more than before."""
        context = self._context
        found = context.execute(
            "SELECT object_id, p_need, lk1, s_need FROM tb_0030 WHERE node = ? AND epoch = ?"
            " AND stream = ? AND seq = ? AND semq_id = ? AND semq_db_id = ?",
            (mid.store.node, mid.epoch, mid.stream, mid.seq, mid.store.semq, mid.store.db),
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
        if source_wants and not found[3]:
            context.execute(
                "UPDATE tb_0030 SET s_need = 1, next_time = ?, inq_count = 0 WHERE object_id = ?",
                (due_ms, record),
            )
        return record

    def _release(self, mid: Mid) -> None:
        """Ordered messages before which nothing is missing any more."""
        if mid.stream != Stream.CONTIGUOUS:
            return
        context = self._context
        rows = context.execute(
            "SELECT object_id, user FROM tb_0030 INDEXED BY tb_0030_held WHERE node = ?"
            " AND epoch = ? AND stream = ? AND semq_id = ? AND semq_db_id = ? AND seq < ?"
            " AND app_state = 'HELD' ORDER BY seq",
            (
                *(mid.store.node, mid.epoch, mid.stream, mid.store.semq, mid.store.db),
                self._ledger.of(mid).complete,
            ),
        ).fetchall()
        for record, user in rows:
            self._place += 1
            context.execute(
                "UPDATE tb_0030 SET app_state = 'NEW', place = ? WHERE object_id = ?",
                (self._place, record),
            )
            self._fresh.add(user)

    def has(self, mid: Mid, ranges: list[range]) -> tuple[list[int], list[int]]:
        """Which of these numbers have ever come, and which have not."""
        seen = self._ledger.of(mid)
        there: list[int] = []
        missing: list[int] = []
        for each in ranges:
            for seq in each:
                (there if seq in seen else missing).append(seq)
        return there, missing

    # -- telling ------------------------------------------------------------------------------

    def tell(self) -> None:
        """Acks of all that came in this step: one frame for many."""
        acks, self._acks = self._acks, {}
        for (hop, node), each in acks.items():
            link = self._links.to(node)
            if link is None:
                continue
            streams: dict[tuple[object, ...], list[Ack]] = {}
            for ack in each:
                mid = ack[0]
                streams.setdefault((mid.store, mid.epoch, mid.stream), []).append(ack)
            for part in streams.values():
                for begin in range(0, len(part), SEQS_MAX):
                    fields = _ack_fields(hop, node, part[begin : begin + SEQS_MAX])
                    self._links.say(link, fields)

    def confirmed(self, hop: Hop, node: str, mid: Mid, ranges: list[range], lk1: str) -> None:
        """Whoever was told knows it: ReAck, ReAck2, or an answer that says so. One of the platform
        about a single message names its row there."""
        column = "p" if hop == Hop.PLATFORM else "s"
        if hop == Hop.SOURCE and mid.store.node != node:
            return
        for each in ranges:
            self._context.execute(
                f"UPDATE tb_0030 SET {column}_ack_status = 'AS_ACK' WHERE node = ? AND epoch = ?"
                f" AND stream = ? AND seq BETWEEN ? AND ? AND semq_id = ? AND semq_db_id = ?"
                f" AND {column}_need AND (? = '' OR lk1 = ?)",
                (
                    *(mid.store.node, mid.epoch, mid.stream, each.start, each.stop - 1),
                    *(mid.store.semq, mid.store.db, lk1, lk1),
                ),
            )
            self._clean(
                "node = ? AND epoch = ? AND stream = ? AND seq BETWEEN ? AND ?",
                (mid.store.node, mid.epoch, mid.stream, each.start, each.stop - 1),
            )

    def _clean(self, which: str, values: tuple[object, ...]) -> None:
        """Rows that nobody needs (section 9); and nothing is due for others that are confirmed."""
        self._context.execute(
            f"DELETE FROM tb_0030 WHERE {which} AND app_state = 'DONE' AND NOT {_OPEN}", values
        )
        self._context.execute(
            f"UPDATE tb_0030 SET next_time = NULL WHERE {which} AND next_time IS NOT NULL"
            f" AND NOT {_OPEN}",
            values,
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
            while takes and self._hand_one(user, takes):
                pass
            for take in [take for take in takes or () if not take.wait]:
                assert takes is not None
                takes.remove(take)
                self._context.effects.append(Taken(take.ask))

    def _hand_one(self, user: str, takes: list[Take]) -> bool:
        context = self._context
        row = context.execute(
            "SELECT object_id, fields, umx, handed FROM tb_0030 WHERE app_state = 'NEW'"
            " AND user = ? ORDER BY place LIMIT 1",
            (user,),
        ).fetchone()
        if row is None:
            return False
        record, fields, body, handed = row
        take = self._pop(takes)
        context.execute(
            "UPDATE tb_0030 SET app_state = 'TAKEN', handed = 1 WHERE object_id = ?", (record,)
        )
        self._holders[record] = take.holder
        context.undo.append(lambda: self._holders.pop(record, None))
        frame = _shown(json.loads(fields), body)
        context.effects.append(Taken(take.ask, record, frame, bool(handed)))
        return True

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
        row = self._context.execute(
            "UPDATE tb_0030 SET app_state = 'DONE' WHERE object_id = ? AND (app_state IN ('TAKEN',"
            " 'DONE') OR (app_state = 'NEW' AND handed)) RETURNING object_id",
            (record,),
        ).fetchone()
        if row is None:
            # It was done before, and is gone; or it was never handed out.
            other = "SELECT 1 FROM tb_0030 WHERE object_id = ?"
            if self._context.execute(other, (record,)).fetchone():
                self._context.effects.append(Refused(ask, 409, f"row {record} is not taken"))
                return
        self._drop_holder(record)
        self._clean("object_id = ?", (record,))
        self._context.effects.append(Told(ask, {"row": record}))

    # -- inside -------------------------------------------------------------------------------

    def deliver(self, wish: Submit, mid: Mid, record: int) -> None:
        """A message from this node to this node, in the transaction that has sent it."""
        own, sealed = self._context.options.node, wish.sealed or {}
        source = f"{own}/{wish.user}" if wish.user else own
        fields = {"src": source, "dst": str(wish.destination), "lk0": f"{mid.store}/{record}"}
        fields |= {"epoch": mid.epoch, "stream": str(mid.stream), "seq": str(mid.seq)}
        fields |= {"savefwd": str(wish.level), "app_key": wish.app_key, **sealed}
        frame = Frame(fields, wish.body)
        envelope = Envelope(
            *(read_address(source), wish.destination, Level(wish.level), None, mid, None, False),
            *(wish.ordered, True, False, 1, 0, wish.app_key),
        )._replace(lk0=Locator(mid.store, record))
        self._ledger.add(mid)
        self.put(envelope, mid, frame, needs=(False, False), state="NEW")

    def pass_inside(self, wish: Submit) -> None:
        """The same at level 1: it is nobody's if nobody waits for it."""
        takes = self._takes.get(wish.destination.user)
        if takes:
            source = self._context.options.node
            fields = {"src": f"{source}/{wish.user}" if wish.user else source}
            fields |= {"dst": str(wish.destination), "savefwd": "1", "app_key": wish.app_key}
            take = self._pop(takes)
            self._context.effects.append(Taken(take.ask, 0, _shown(fields, wish.body)))


def _shown(fields: dict[str, str], body: bytes) -> Frame:
    return Frame({name: fields[name] for name in _HANDED if fields.get(name)}, body)


def _others(fields: dict[str, str]) -> str:
    """What is kept of the envelope for the application."""
    return json.dumps({name: fields[name] for name in _HANDED if fields.get(name)})


def _ack_fields(hop: Hop, node: str, acks: list[Ack]) -> dict[str, str]:
    mid, record, lk0, lk1, app_key = acks[0]
    fields = {"cmd": "semq_ack", "ack_flag": str(int(hop)), "dst": node}
    single = len(acks) == 1
    if single:
        if hop == Hop.PLATFORM and lk1 is not None:
            place = (lk1.semq, lk1.db, lk1.record)
        else:
            place = (lk0.store.semq, lk0.store.db, lk0.record)
        fields |= dict(
            zip(("src_semq_id", "src_semq_db_id", "src_ref_id"), map(str, place), strict=True)
        )
        fields |= {"dest_semq_id": "1", "dest_semq_db_id": "1", "dest_ref_id": str(record)}
        fields |= {"app_key": app_key} if app_key else {}
    fields |= {"lk0": str(Locator(mid.store, lk0.record if single else 0))}
    fields |= {"epoch": mid.epoch, "stream": str(mid.stream)}
    return fields | numbers([ack[0].seq for ack in acks])


def numbers(seqs: Iterable[int]) -> dict[str, str]:
    """One number as `seq`, and several as `seqs`."""
    ordered = sorted(set(seqs))
    if len(ordered) == 1:
        return {"seq": str(ordered[0])}
    ranges: list[range] = []
    for seq in ordered:
        if ranges and ranges[-1].stop == seq:
            ranges[-1] = range(ranges[-1].start, seq + 1)
        else:
            ranges.append(range(seq, seq + 1))
    return {"seqs": show_seqs(ranges)}
