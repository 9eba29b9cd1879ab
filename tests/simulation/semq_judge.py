"""What has to hold in a SEMQ world: the invariants of section 16 of the specification."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from tests.records import Record
from tests.simulation.semq_book import Known, Sent
from tests.simulation.semq_links import IDLE, Link
from tests.simulation.semq_tables import FINAL, Noted, has_seen, intervals
from zbus.semq.endpoint.events import Frame, Happened, Taken
from zbus.semq.protocol.words import PLATFORM, read_seqs

if TYPE_CHECKING:
    from tests.simulation.semq import SemqSimulation
    from tests.simulation.semq_node import Node

IGNORED: Final = frozenset(("id", "content-length", "connection"))
INTERVALS_MAX: Final = 1_000  # of stream 2, which may have gaps for ever


class Judge:
    """See the module. `committed` is what nodes have, or had, on their disks."""

    def __init__(self, world: SemqSimulation) -> None:
        self.world = world
        self.check = world.check
        self.committed: dict[str, set[str]] = {}
        self.came: dict[str, set[str]] = {}  # those of them that had a body
        self.traffic: Counter[str] | None = None  # while everybody has to be silent

    # -- tables -------------------------------------------------------------------------------

    def changed(self, node: Node, changes: list[Noted]) -> None:
        """Rows of a node that a step has changed."""
        committed = self.committed.setdefault(node.name, set())
        for one in changes:
            if one.what == "in":
                mid = f"{one.mid.rpartition('/')[0]}/{one.peer}"
                committed.add(mid)
                self.came.setdefault(node.name, set()).add(mid)
            elif one.what == "clean":
                self.check(one.old == "00DONE", f"{node.name}: row of {one.mid} goes: {one.old}")
            elif one.what == "change":
                self._moved(node, one)
            elif one.what == "gone":
                self._gone(node, one)

    def _moved(self, node: Node, one: Noted) -> None:
        """I4, I6."""
        mid = f"{node.name}/{one.mid}"
        text = f"{node.name}: row {one.row} for {one.peer} goes from {one.old} to {one.new}"
        self.check(one.old != FINAL, f"I6: {text}")
        confirmed = one.old == "SS_ACK" and one.kind < 10
        self.check(not confirmed or one.new == FINAL, f"I6: {text}")
        if one.new == FINAL:
            self.check(self.has(one.peer.partition("/")[0], mid), f"I4: {text}, not there: {mid}")

    def _gone(self, node: Node, one: Noted) -> None:
        """Section 9."""
        final = one.old in (FINAL, "SS_DEAD") or (one.old == "SS_ACK" and one.kind < 10)
        # Of these nobody but the platform answers, and directly nobody at all; a topic need not
        # know what it was sent.
        answered = ("SS_INIT", "SS_ACK_FWD") + (("SS_SENT",) if one.peer[:2] == "0:" else ())
        unconfirmed = one.kind == 2 and one.old in answered
        text = f"{node.name}: row {one.row} for {one.peer} is deleted in {one.old}"
        self.check(final or unconfirmed, text)

    def has(self, name: str, mid: str) -> bool:
        """That node has committed it; or the platform, into a topic."""
        if mid in self.committed.get(name, ()):
            return True
        if name == PLATFORM:
            return self.world.platform.has(mid)
        node = self.world.nodes.get(name)
        if node is not None and has_seen(node.database, mid):  # void: it has no row
            self.committed[name].add(mid)
            return True
        return False

    # -- frames -------------------------------------------------------------------------------

    def transmits(self, node: Node, link: Link, frame: Frame) -> None:
        """A node sends something."""
        command = frame.command
        self.world.counts[command or "answer"] += 1
        if command not in IDLE:
            self._noise(command or f"answer of {frame.fields}", node.name)
        if command != "heartbeat":
            self.world.tell_frame(node.name, link.peer, frame)
        if command == "semq_ack":
            self._acks(node, frame)

    def platform_says(self, node: Node, frame: Frame) -> None:
        """The platform sends something."""
        command = frame.command
        self.world.counts[command or "answer"] += 1
        if command and command not in IDLE:
            self._noise(command, f"the platform for {node.name}")
        if command not in IDLE and not frame.fields.keys() <= IGNORED:
            self.world.tell_frame("platform", node.name, frame)

    def _noise(self, command: str, who: str) -> None:
        if self.traffic is not None:
            self.traffic[f"{command} of {who}"] += 1

    def _acks(self, node: Node, frame: Frame) -> None:
        """I11: what is confirmed is on the disk."""
        fields = frame.fields
        if not fields.get("lk0") or fields.get("ack_flag") not in ("1", "2"):
            return
        store = fields["lk0"].rpartition("/")[0]
        for seqs in read_seqs(fields.get("seqs") or fields["seq"]):
            for seq in seqs:
                mid = f"{store}/{fields['epoch']}/{fields['stream']}/{seq}"
                self.check(self.has(node.name, mid), f"I11: {node.name} confirms {mid}")

    def left_mailbox(self, name: str, record: Record) -> None:
        """I5: the platform has done with a message."""
        mid = self.world.platform.mid_of(record)
        expired = b"expires: " in record.message.headers
        if mid and not expired and not self.world.book.gave_up(name, mid):
            self.check(self.has(name, mid), f"I5: {mid} is no more for {name}, which has it not")

    def happened(self, node: Node, event: Happened) -> None:
        """What an application is told beside messages."""
        sent = self.world.book.of(node.name, event.record, node.life)
        self.world.say(f"{node.name} is told {event.kind} of row {event.record}: {event.text}")
        if event.kind == "dead" and sent is not None:
            self._gives_up(node, sent, event.text)
        elif event.kind == "received" and sent is not None:
            target = sent.destination.node
            came = sent.number in self.came.get(target, ())
            right = came or (target == PLATFORM and self.world.platform.has(sent.number))
            self.check(right, f"{sent} has not come, and {node.name} says that it has")

    def _gives_up(self, node: Node, sent: Sent, why: str) -> None:
        """It says that a message is dead."""
        known = sent.destination.node in (*self.world.nodes, PLATFORM)
        known = known and sent.destination.node != self.world.work.stranger
        limited = sent.expires_ms > 0 or node.options.attempts_max > 0 or sent.given_up
        self.check(not known or limited, f"{sent} is given up: {why}")
        sent.given_up = True

    def _is_dead(self, sent: Sent) -> bool:
        """Its node has put it by, and may have ended before it could say so."""
        node = self.world.nodes.get(sent.source)
        if node is None or not sent.mid:
            return False
        dead = "SELECT why FROM semq_dead WHERE mid = ?"
        row = node.database.execute(dead, (sent.mid,)).fetchone()
        if row is not None:
            self._gives_up(node, sent, row[0])
        return row is not None

    def handed(self, node: Node, sent: Sent, taken: Taken) -> None:
        """I2, I7: a message is with an application, and so it is in the ledger; if it is ordered,
        all before it are."""
        self.world.counts["handed over"] += 1
        if taken.frame is None or not sent.numbered or node.endpoint is None:
            return
        fields = taken.frame.fields
        store, stream = fields["lk0"].rpartition("/")[0], int(fields["stream"])
        line, seq = f"{store}/{fields['epoch']}", int(fields["seq"])
        seen = intervals(node.database).get((line, stream), [])
        self.check(any(seq in each for each in seen), f"{sent} is not in the ledger")
        if sent.ordered and self.world.book.keeps_order(sent):
            right = seen[0].start == 1 and seq in seen[0]
            self.check(right, f"I7: {sent}, number {seq}, is before others: {seen}")

    # -- rest ---------------------------------------------------------------------------------

    def drained(self) -> bool:
        return not self.left_over()

    def left_over(self) -> str:
        """What has still to come, or to go."""
        world = self.world
        for sent in world.book.missing():
            if self._is_dead(sent):
                continue
            return f"{sent} was {'not done' if sent.handed else 'never handed over'}"
        for node in world.nodes.values():
            if node.endpoint is None:
                return f"{node.name} does not run"
            for table, kept in (("tb_0031", "ss_status <> 'SS_DEAD'"), ("tb_0030", "TRUE")):
                found = node.database.execute(f"SELECT * FROM {table} WHERE {kept} LIMIT 3")
                names = [column[0] for column in found.description]
                for row in found:
                    fields = {n: v for n, v in zip(names, row, strict=True) if n != "umx"}
                    return f"{node.name} has in {table}: {fields}"
        if not world.platform.runs:
            return "the platform does not run"
        for name in world.nodes:
            waiting = world.platform.waiting(name)
            if waiting:
                return f"the mailbox of {name} has {waiting}"
        return world.work.left_over()

    def at_rest(self) -> None:
        """I8, I12: what is left in the tables."""
        self.check(self.drained(), f"I3: {self.left_over()}")
        for node in self.world.nodes.values():
            for (source, stream), found in intervals(node.database).items():
                text = f"I8: {node.name} remembers {found} of {source}, stream {stream}"
                right = all(a.stop < b.start for a, b in pairwise(found))
                self.check(right, text)
                whole = stream != 3 or self._has_gaps(node, source) or len(found) == 1
                self.check(whole and len(found) <= INTERVALS_MAX, text)
        for sent in self.world.book.sent.values():
            if sent.numbered and sent.known is Known.REFUSED:
                self.check(not sent.handed, f"{sent} was refused, and was handed over")
        self.world.work.at_rest()

    def _has_gaps(self, node: Node, source: str) -> bool:
        """Numbers of it are with nobody: a disk was replaced, or the node was not known and is sent
        nothing any more that would tell it of them."""
        other = self.world.nodes.get(source.partition("/")[0])
        lost = node.life > 0 or (other is not None and other.life > 0)
        return lost or node.name == self.world.work.stranger

    def listen(self) -> None:
        """From now on everybody has to be silent."""
        self.traffic = Counter()

    def heard(self) -> None:
        """I9."""
        assert self.traffic is not None
        self.check(not self.traffic, f"I9: after all was done: {dict(self.traffic)}")
        self.traffic = None
