"""Questions: what this endpoint misses, after a while and after a link has come (specification,
sections 5, 6 and 8).

A row waits without a time while its question could not be delivered: `wake` gives it one. Questions
of one stream to one party are one frame.
"""

from __future__ import annotations

from typing import Final

from zbus.semq.endpoint.context import Context
from zbus.semq.endpoint.inbox import Inbox
from zbus.semq.endpoint.links import Links, in_parts
from zbus.semq.endpoint.outbox import Outbox
from zbus.semq.protocol.about import OF_ACKS, About
from zbus.semq.protocol.fields import echoed
from zbus.semq.protocol.words import (
    MAILBOX,
    PLATFORM,
    Fields,
    Hop,
    Level,
    Locator,
    Malformed,
    Mid,
    Store,
    number_fields,
    read_locator,
    read_platform_locator,
)

_ROUND_MAX: Final = 2_000
"""Rows that are looked at in one step; the others have their turn in the next one."""

_GATED: Final = 20
"""This often was asked for a row, as it were, whose party is offline: the longest time passes."""

_WAITING: Final = "ss_status IN ('SS_SENT', 'SS_ACK_FWD', 'SS_ACK')"


class Asking:
    def __init__(self, context: Context, links: Links, outbox: Outbox, inbox: Inbox) -> None:
        self._context = context
        self._links = links
        self._outbox = outbox
        self._inbox = inbox
        self._behind = {PLATFORM: True}  # parties that were asked more than once

    # -- when ---------------------------------------------------------------------------------

    def wake(self, node: str) -> None:
        """It can be asked from now on: at once, for all that is missed."""
        context, now_ms = self._context, self._context.now_ms
        if node == PLATFORM:  # and all nodes behind it
            context.execute(
                "UPDATE tb_0031 SET next_time = 0 WHERE ss_status = 'SS_INIT' AND next_time > 0"
            )
            self._outbox.expect_all()
            context.execute(
                f"UPDATE tb_0031 SET next_time = ?, inq_count = 0 WHERE {_WAITING}", (now_ms,)
            )
            context.execute(
                "UPDATE tb_0030 SET next_time = ?, inq_count = 0 WHERE (p_need AND p_ack_status ="
                " 'AS_INIT') OR (s_need AND s_ack_status = 'AS_INIT')",
                (now_ms,),
            )
        else:
            context.execute(
                f"UPDATE tb_0031 SET next_time = ?, inq_count = 0 WHERE node = ? AND {_WAITING}",
                (now_ms, node),
            )
            context.execute(
                "UPDATE tb_0031 SET next_time = 0 WHERE node = ? AND ss_status = 'SS_INIT'", (node,)
            )
            context.execute(
                "UPDATE tb_0030 SET next_time = ?, inq_count = 0 WHERE node = ? AND s_need"
                " AND s_ack_status = 'AS_INIT'",
                (now_ms, node),
            )
            self._outbox.expect(node)
        self._behind.pop(node, None)

    def heard(self, node: str) -> None:
        """The node sent something: if it was given up for a while, asking begins anew."""
        if self._behind.pop(node, None):
            due_ms = self._context.now_ms + self._context.interval_ms
            which = "node = ?" if node != PLATFORM else "(node = ? OR via = 'platform')"
            self._context.execute(
                "UPDATE tb_0031 SET inq_count = 0, next_time = min(next_time, ?)"
                f" WHERE {which} AND {_WAITING} AND inq_count > 1 AND inq_count <> {_GATED}",
                (due_ms, node),
            )
            self._context.execute(
                "UPDATE tb_0030 SET inq_count = 0, next_time = min(next_time, ?)"
                f" WHERE next_time IS NOT NULL AND inq_count > 1 AND inq_count <> {_GATED}",
                (due_ms,),
            )

    def clock_went_back(self) -> None:
        """Nothing waits for longer than an interval because of that."""
        latest_ms = self._context.now_ms + self._context.interval_ms
        for table in ("tb_0031", "tb_0030"):
            self._context.execute(
                f"UPDATE {table} SET next_time = ? WHERE next_time > ?", (latest_ms, latest_ms)
            )

    # -- asking -------------------------------------------------------------------------------

    def ask(self) -> None:
        """All that is due."""
        self._ask_for_sent()
        self._ask_for_confirmed()

    def _gate(self, party: str, count: int) -> tuple[int | None, int] | None:
        """When to look again at a row whose question cannot be delivered now, and how often it was
        asked; None: it can. The news that a node is online again may be lost: so it is asked now
        and then."""
        if self._links.to(party) is None:
            return None, count
        if self._links.believed(party) or count >= _GATED:
            return None
        return self._context.now_ms + self._context.backoff_ms(_GATED), _GATED

    def _ask_for_sent(self) -> None:
        """Of the outbox: has it come?"""
        context = self._context
        rows = context.execute(
            "SELECT object_id, semq_id, semq_db_id, node, dst, epoch, stream, seq, attempt,"
            " ss_status, via, ask_platform, inq_count, savefwd < ? AND NOT ack2, length(umx)"
            f" FROM tb_0031 WHERE {_WAITING} AND next_time <= ? LIMIT ?",
            (Level.ARRIVE, context.now_ms, _ROUND_MAX),
        ).fetchall()
        asked: dict[tuple[str, str, int, str, int, int], list[tuple[int, int]]] = {}
        later: list[tuple[int | None, int, int]] = []
        lost: list[tuple[int, int]] = []
        for row in rows:
            record, _, db, node, dst, epoch, stream, seq, attempt, state, via, platform = row[:12]
            party = node
            if node == PLATFORM and row[13]:
                # A topic need not know what it was sent, so this might be in it twice.
                lost.append((record, row[14]))
                continue
            if state == "SS_SENT" and via == "platform" and not self._links.only_direct(node):
                party = PLATFORM
            if node == PLATFORM or platform:
                party = PLATFORM
            if (gate := self._gate(party, row[12])) is not None:
                later.append((*gate, record))
                continue
            topic = dst.partition("/")[2] if node == PLATFORM else MAILBOX + node
            key = (party, topic if party == PLATFORM else "", db, epoch, stream, attempt)
            asked.setdefault(key, []).append((record, seq))
            later.append((context.now_ms + context.backoff_ms(row[12] + 1), row[12] + 1, record))
            if row[12]:
                self._behind[party] = True
        self._outbox.unanswered(lost)
        context.database.executemany(
            "UPDATE tb_0031 SET next_time = ?, inq_count = ? WHERE object_id = ?", later
        )
        semq_id = context.options.semq_id
        for (party, topic, db, epoch, stream, attempt), found in asked.items():
            link = self._links.to(party)
            for part in in_parts(found, lambda one: one[1]):
                record = part[0][0] if len(part) == 1 else 0
                fields = {"cmd": "semq_inquiry", "about": "send", "flag": "2", "dst": party}
                fields |= {"semq_id": str(semq_id), "semq_db_id": str(db)}
                fields |= {"ref_id": str(record), "attempt": str(attempt)}
                store = Store(context.options.node, semq_id, db)
                fields |= {"lk0": str(Locator(store, record)), "epoch": epoch}
                fields |= {"stream": str(stream), **number_fields(seq for _, seq in part)}
                fields |= {"topic": topic} if topic else {}
                if link is not None:
                    self._links.send_frame(link, fields)

    def _ask_for_confirmed(self) -> None:
        """Of the inbox: is it known that it has come? The question says so."""
        context = self._context
        rows = context.execute(
            "SELECT object_id, node, semq_id, semq_db_id, lk0, epoch, stream, seq, lk1,"
            " p_need AND p_ack_status = 'AS_INIT', s_need AND s_ack_status = 'AS_INIT', inq_count"
            " FROM tb_0030 WHERE next_time <= ? LIMIT ?",
            (context.now_ms, _ROUND_MAX),
        ).fetchall()
        asked: dict[tuple[str, Store, str, int], list[tuple[int, str, str | None]]] = {}
        later: list[tuple[int | None, int, int]] = []
        for row in rows:
            record, node, semq, db, lk0, epoch, stream, seq, lk1, platform, source, count = row
            parties = [PLATFORM] * bool(platform) + [node] * bool(source)
            gates = [self._gate(party, count) for party in parties]
            reached = [party for party, gate in zip(parties, gates, strict=True) if gate is None]
            for party in reached:
                key = (party, Store(node, semq, db), epoch, stream)
                asked.setdefault(key, []).append((seq, lk0, lk1))
                if count:
                    self._behind[party] = True
            if reached:
                due_ms = context.now_ms + context.backoff_ms(count + 1)
                later.append((due_ms, count + 1, record))
            else:
                later.append((*(gates[0] or (None, count)), record))
        context.database.executemany(
            "UPDATE tb_0030 SET next_time = ?, inq_count = ? WHERE object_id = ?", later
        )
        for (party, store, epoch, stream), found in asked.items():
            link = self._links.to(party)
            for part in in_parts(found, lambda one: one[0]):
                fields = {"cmd": "semq_inquiry", "about": "ack", "flag": "2", "dst": party}
                # Whose row it is, so that it is asked; and who asks, so that he is answered.
                fields |= {"semq_id": str(store.semq)} if party != PLATFORM else {}
                fields |= {"dest_semq_id": str(context.options.semq_id)}
                locator = Locator(store, 0)
                if len(part) == 1:
                    _, lk0, lk1 = part[0]
                    locator, place = read_locator(lk0), read_locator(lk0).place
                    if party == PLATFORM and lk1:
                        place = read_platform_locator(lk1)
                    fields |= place.fields()
                fields |= {"lk0": str(locator), "epoch": epoch}
                fields |= {"stream": str(stream), **number_fields(one[0] for one in part)}
                if link is not None:
                    self._links.send_frame(link, fields)

    # -- being asked --------------------------------------------------------------------------

    def asked(self, node: str, given: dict[str, str]) -> None:
        """`semq_inquiry`: of the sender, or of the receiver of a message."""
        fields = Fields(given)
        about, kind = About(fields), fields.required("about")
        mid, own = about.mid(), self._context.options
        if kind == "ack":
            if mid.store.node == own.node:
                self._received(node, about)
            answers = [({"result": "1"}, about.seqs)]
        elif kind == "send":
            if node not in (PLATFORM, mid.store.node):
                raise Malformed(f"{mid.store} is none of {node}'s")
            there, void, missing = self._inbox.has(mid, about.ranges)
            answers = [({"result": "1"}, there), ({"result": "0"}, missing)]
            answers.append(({"result": "1", "void": "1"}, void))
        else:
            raise Malformed("about is send or ack")
        fields_of_all = {**echoed(given), "cmd": "semq_inquiry_resp", "dst": node}
        if kind == "send":
            fields_of_all["dest_semq_id"] = str(own.semq_id)
        for result, seqs in answers:
            self._send_parts(node, fields_of_all | result, seqs)

    def _send_parts(self, node: str, fields: dict[str, str], seqs: list[int]) -> None:
        """A frame about these numbers, or several."""
        link = self._links.to(node)
        if link is not None:
            for part in in_parts(seqs, int):
                self._links.send_frame(link, fields | number_fields(part))

    def _received(self, node: str, about: About, void: bool = False) -> list[int]:
        """Another node has these of ours; or their numbers alone."""
        found = list(self._outbox.find(node, about.mid(), about.ranges))
        self._outbox.received([record for record, _, _ in found], void)
        return [seq for _, seq, _ in found]

    def answered(self, node: str, given: dict[str, str]) -> None:
        """`semq_inquiry_resp`."""
        fields = Fields(given)
        about, kind = About(fields), fields.required("about")
        mid, result = about.mid(), fields.number("result", 0, 0, 1)
        if kind == "ack":
            if result:
                hop = Hop.PLATFORM if node == PLATFORM else Hop.SOURCE
                self._inbox.confirmed(hop, node, mid, about.ranges, "")
            return
        attempt = fields.number("attempt", 1 << 62)
        if node == PLATFORM:
            self._platform_answered(fields, about, result, attempt)
        elif result:
            if seqs := self._received(node, about, fields.flag("void")):
                self.reack(node, mid, seqs, {"dest_semq_id": fields.text("dest_semq_id")})
        else:
            found = list(self._outbox.find(node, mid, about.ranges))
            stored = [record for record, _, state in found if state == "SS_ACK"]
            self._outbox.ask_platform(stored)
            others = [record for record, _, state in found if state in ("SS_SENT", "SS_ACK_FWD")]
            self._outbox.again(others, attempt)

    def _platform_answered(self, fields: Fields, about: About, result: int, attempt: int) -> None:
        topic = fields.text("topic")
        node = topic[len(MAILBOX) :] if topic.startswith(MAILBOX) else PLATFORM
        found = list(self._outbox.find(node, about.mid(), about.ranges))
        if result and node == PLATFORM:  # it is in its topic: it has arrived
            self._outbox.received([record for record, _, _ in found])
        elif result:
            self._outbox.stored([record for record, _, _ in found])
        else:
            # One that was forwarded since is not the platform's to know.
            again = [record for record, _, state in found if state in ("SS_SENT", "SS_ACK")]
            self._outbox.again(again, attempt)

    def reack(self, node: str, mid: Mid, seqs: list[int], given: dict[str, str]) -> None:
        """ReAck2: we know that it has come."""
        fields = {"lk0": str(Locator(mid.store, 0)), **echoed(given)}
        fields |= {"cmd": "semq_reack", "ack_flag": "2", "dst": node, "epoch": mid.epoch}
        self._send_parts(node, fields | {"stream": str(mid.stream)}, seqs)

    def acked(self, node: str, given: dict[str, str]) -> None:
        """`semq_ack`, which here is an Ack2."""
        fields = Fields(given)
        about = About(fields)
        mid = about.mid()
        if mid.store.node == self._context.options.node:
            self._received(node, about, fields.flag("void"))
        self.reack(node, mid, about.seqs, given)

    def reacked(self, node: str, given: dict[str, str]) -> None:
        """`semq_reack`: of the platform, or of a sender."""
        fields = Fields(given)
        about = About(fields, OF_ACKS)
        mid = about.mid()
        hop = Hop(fields.number("ack_flag", Hop.SOURCE, Hop.PLATFORM, Hop.SOURCE))
        if (hop == Hop.PLATFORM) != (node == PLATFORM):
            return
        single = hop == Hop.PLATFORM and about.count == 1
        lk1 = str(about.place) if single and about.place is not None else ""
        self._inbox.confirmed(hop, node, mid, about.ranges, lk1)
