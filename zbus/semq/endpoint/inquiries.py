"""Questions: what this endpoint misses, after a while and after a link has come (specification,
sections 5, 6 and 8).

A row waits without a time while its question could not be delivered: `wake` gives it one. Questions
of one stream to one party are one frame.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from zbus.semq.endpoint.context import Context
from zbus.semq.endpoint.inbox import Inbox
from zbus.semq.endpoint.links import Links
from zbus.semq.endpoint.numbers import in_parts, numbers
from zbus.semq.endpoint.outbox import Outbox
from zbus.semq.protocol import (
    MAILBOX,
    PLATFORM,
    Fields,
    Hop,
    Level,
    Locator,
    Malformed,
    Mid,
    Store,
    Stream,
    read_locator,
    read_number,
    read_platform_locator,
    read_seqs,
)

_ROUND_MAX: Final = 2_000
"""Rows that are looked at in one step; the others have their turn in the next one."""

_GATED: Final = 20
"""This often was asked for a row, as it were, whose party is offline: the longest time passes."""

_WAITING: Final = "ss_status IN ('SS_SENT', 'SS_ACK_FWD', 'SS_ACK')"


_ECHOED: Final = (
    "src_semq_id",
    "src_semq_db_id",
    "src_ref_id",
    "dest_semq_id",
    "dest_semq_db_id",
    "dest_ref_id",
    "app_key",
    "lk0",
)
"""What a ReAck2 repeats of its Ack2."""

_REPEATED: Final = (
    "about",
    "flag",
    "lk0",
    "epoch",
    "stream",
    "attempt",
    "semq_id",
    "semq_db_id",
    "ref_id",
    "topic",
    "dest_semq_id",
)
"""What an answer repeats of its question."""


class About(NamedTuple):
    """Which messages a control message is about."""

    mid: Mid  # of the first of them
    ranges: list[range]

    @property
    def single(self) -> bool:
        return len(self.ranges) == 1 and len(self.ranges[0]) == 1


def read_about(fields: Fields) -> About:
    """`lk0`, `epoch`, `stream` and `seq` or `seqs`. Raises Malformed."""
    store = read_locator(fields.required("lk0")).store
    stream = fields.number("stream", Stream.CONTIGUOUS, Stream.GAPS, Stream.CONTIGUOUS)
    if seqs := fields.text("seqs"):
        ranges = read_seqs(seqs)
    else:
        seq = read_number("seq", fields.required("seq"), 1)
        ranges = [range(seq, seq + 1)]
    return About(Mid(store, fields.epoch(), stream, ranges[0].start), ranges)


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
                fields |= {"stream": str(stream), **numbers(seq for _, seq in part)}
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
                fields |= _row_of(party, part[0]) if len(part) == 1 else {}
                record = read_locator(part[0][1]).record if len(part) == 1 else 0
                fields |= {"lk0": str(Locator(store, record)), "epoch": epoch}
                fields |= {"stream": str(stream), **numbers(one[0] for one in part)}
                if link is not None:
                    self._links.send_frame(link, fields)

    # -- being asked --------------------------------------------------------------------------

    def asked(self, node: str, fields: Fields, given: dict[str, str]) -> None:
        """`semq_inquiry`: of the sender, or of the receiver of a message."""
        about, kind = read_about(fields), fields.required("about")
        store_node = about.mid.store.node
        answers: list[tuple[dict[str, str], list[int]]]
        if kind == "ack":
            if store_node == self._context.options.node:
                self._received(node, about)
            answers = [({"result": "1"}, [seq for each in about.ranges for seq in each])]
        elif kind == "send":
            if node not in (PLATFORM, store_node):
                raise Malformed(f"{about.mid.store} is none of {node}'s")
            there, void, missing = self._inbox.has(about.mid, about.ranges)
            own = {"dest_semq_id": str(self._context.options.semq_id)}
            answers = [({**own, "result": "1"}, there), ({**own, "result": "0"}, missing)]
            answers.append(({**own, "result": "1", "void": "1"}, void))
        else:
            raise Malformed("about is send or ack")
        echo = {name: given[name] for name in _REPEATED if given.get(name)}
        link = self._links.to(node)
        if link is None:
            return
        for result_fields, seqs in answers:
            for part in in_parts(seqs, int):
                answer = {"cmd": "semq_inquiry_resp", "dst": node, **echo, **result_fields}
                self._links.send_frame(link, answer | numbers(part))

    def _received(self, node: str, about: About, void: bool = False) -> list[int]:
        """Another node has these of ours; or their numbers alone."""
        found = list(self._outbox.find(node, about.mid, about.ranges))
        self._outbox.received([record for record, _, _ in found], void)
        return [seq for _, seq, _ in found]

    def answered(self, node: str, fields: Fields, given: dict[str, str]) -> None:
        """`semq_inquiry_resp`."""
        about, kind = read_about(fields), fields.required("about")
        result = fields.number("result", 0, 0, 1)
        if kind == "ack":
            if result:
                hop = Hop.PLATFORM if node == PLATFORM else Hop.SOURCE
                self._inbox.confirmed(hop, node, about.mid, about.ranges, "")
            return
        attempt = fields.number("attempt", 1 << 62)
        if node == PLATFORM:
            self._platform_answered(fields, about, result, attempt)
        elif result:
            if seqs := self._received(node, about, fields.flag("void")):
                self.reack(node, about, seqs, {"dest_semq_id": given.get("dest_semq_id", "")})
        else:
            found = list(self._outbox.find(node, about.mid, about.ranges))
            stored = [record for record, _, state in found if state == "SS_ACK"]
            self._outbox.ask_platform(stored)
            others = [record for record, _, state in found if state in ("SS_SENT", "SS_ACK_FWD")]
            self._outbox.again(others, attempt)

    def _platform_answered(self, fields: Fields, about: About, result: int, attempt: int) -> None:
        topic = fields.text("topic")
        node = topic[len(MAILBOX) :] if topic.startswith(MAILBOX) else PLATFORM
        found = list(self._outbox.find(node, about.mid, about.ranges))
        if result and node == PLATFORM:  # it is in its topic: it has arrived
            self._outbox.received([record for record, _, _ in found])
        elif result:
            self._outbox.stored([record for record, _, _ in found])
        else:
            # One that was forwarded since is not the platform's to know.
            again = [record for record, _, state in found if state in ("SS_SENT", "SS_ACK")]
            self._outbox.again(again, attempt)

    def reack(self, node: str, about: About, seqs: list[int], given: dict[str, str]) -> None:
        """ReAck2: we know that it has come."""
        link = self._links.to(node)
        if link is None:
            return
        echo = {name: given[name] for name in _ECHOED if given.get(name)}
        fields = {"cmd": "semq_reack", "ack_flag": "2", "dst": node}
        fields |= {"lk0": str(Locator(about.mid.store, 0)), **echo, "epoch": about.mid.epoch}
        for part in in_parts(seqs, int):
            self._links.send_frame(
                link, fields | {"stream": str(about.mid.stream), **numbers(part)}
            )

    def acked(self, node: str, fields: Fields, given: dict[str, str]) -> None:
        """`semq_ack`, which here is an Ack2."""
        about = read_about(fields)
        if about.mid.store.node == self._context.options.node:
            self._received(node, about, fields.flag("void"))
        seqs = [seq for each in about.ranges for seq in each]
        self.reack(node, about, seqs, given)

    def reacked(self, node: str, fields: Fields) -> None:
        """`semq_reack`: of the platform, or of a sender."""
        about = read_about(fields)
        flag = fields.number("ack_flag", Hop.SOURCE, Hop.PLATFORM, Hop.SOURCE)
        hop = Hop(flag)
        if (hop == Hop.PLATFORM) != (node == PLATFORM):
            return
        lk1 = ""
        if hop == Hop.PLATFORM and about.single and fields.text("src_ref_id"):
            semq, db = fields.number("src_semq_id", 1), fields.number("src_semq_db_id", 1)
            lk1 = f"{semq}/{db}/{fields.number('src_ref_id', 0)}"
        self._inbox.confirmed(hop, node, about.mid, about.ranges, lk1)


def _row_of(party: str, asked: tuple[int, str, str | None]) -> dict[str, str]:
    """The locator of the asked party's row."""
    _, lk0, lk1 = asked
    if party == PLATFORM and lk1:
        place = read_platform_locator(lk1)
        values = (place.semq, place.db, place.record)
    else:
        locator = read_locator(lk0)
        values = (locator.store.semq, locator.store.db, locator.record)
    return dict(zip(("semq_id", "semq_db_id", "ref_id"), map(str, values), strict=True))
