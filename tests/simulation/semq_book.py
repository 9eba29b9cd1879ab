"""What the applications of a SEMQ world know: what they submitted, were handed, and have done.

It knows nothing of how SEMQ works. What a node's disk has lost, because an old backup took its
place, is what nobody can be held to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum

import attrs

from zbus.semq.app.protocol import Received
from zbus.semq.endpoint.events import Frame, Taken
from zbus.semq.protocol.words import PLATFORM, Address


class Known(Enum):
    """What an application knows of a message that it submitted."""

    ASKED = "asked"  # and no answer has come; if the node ended, none will
    SURE = "sure"  # it is durable
    REFUSED = "refused"  # it was never sent


@attrs.define(eq=False)
class Sent:
    """One message, and what became of it."""

    serial: int
    source: str
    destination: Address
    level: int
    body: bytes
    ack2: bool = False
    ordered: bool = False
    app_key: str = ""
    expires_ms: int = 0
    known: Known = Known.ASKED
    mid: str = ""  # as its application was told it
    record: int = 0
    life: int = 0  # which life of the disk of its source
    given_up: bool = False  # its node said that it is dead, or an operator that it is to be
    lost: bool = False  # a disk that held it was replaced by an older one
    doubtful: int = 0  # its receiver may have forgotten it so many times
    handed: int = 0  # times, those in which it was not done included
    holder: tuple[str, int] | None = None
    done: bool = False
    done_asked: bool = False
    at_ms: int = 0
    handed_ms: int = 0
    done_ms: int = 0

    def __str__(self) -> str:
        kind = f"level {self.level}" + " ack2" * self.ack2 + " ordered" * self.ordered
        return f"message {self.serial} ({kind}, {self.source} -> {self.destination}, {self.mid})"

    @property
    def number(self) -> str:
        """The MID as platform and nodes have it: without the record, which it names as well."""
        parts = self.mid.split("/")
        return "/".join(parts[:3] + parts[4:])

    @property
    def numbered(self) -> bool:
        return self.level > 1 or self.ack2

    def done_before(self, ms: int) -> bool:
        return self.done and self.done_ms < ms

    @property
    def owed(self) -> bool:
        """It has to arrive."""
        sure = self.known is Known.SURE and self.level == 3
        return sure and not (self.lost or self.given_up or self.expires_ms)


class Book:
    """All messages of a world. `check(right, text)` tells of what is wrong."""

    def __init__(self, check: Callable[[bool, str], None], now_ms: Callable[[], int]) -> None:
        self.check = check
        self._now_ms = now_ms
        self.sent: dict[int, Sent] = {}
        self.order: dict[tuple[str, str, int, Address, str], int] = {}
        self.replaced: set[str] = set()  # nodes that had another disk

    # -- sending ------------------------------------------------------------------------------

    def submit(self, sent: Sent) -> None:
        sent.at_ms = self._now_ms()
        self.sent[sent.serial] = sent

    def submitted(self, serial: int, record: int, mid: str) -> None:
        sent = self.sent[serial]
        sent.known, sent.record, sent.mid = Known.SURE, record, mid
        self.check(bool(mid) == sent.numbered, f"{sent} has the mid {mid!r}")
        if mid:
            twins = [s for s in self.sent.values() if s.mid == mid and s is not sent]
            self.check(not twins, f"{sent} has the MID of {twins}")

    def refused(self, serial: int) -> None:
        self.sent[serial].known = Known.REFUSED

    def of(self, source: str, record: int, life: int) -> Sent | None:
        """The message of a row of an outbox."""
        for sent in self.sent.values():
            if (sent.source, sent.record, sent.life) == (source, record, life) and sent.record:
                return sent
        return None

    def gave_up(self, node: str, mid: str) -> bool:
        """Somebody has given up the message for that node."""
        return any(
            sent.given_up and sent.number == mid and sent.destination.node == node
            for sent in self.sent.values()
        )

    # -- receiving ----------------------------------------------------------------------------

    def handed(self, node: str, holder: int, user: str, taken: Taken) -> Sent:
        """I1, I2, I7, I12: an application is handed a message."""
        frame = taken.frame
        assert frame is not None
        serial = int(frame.body.partition(b":")[0] or b"0") if not frame.fields.get("void") else 0
        sent = self.sent.get(serial)
        who = f"{node}/{user}" if user else node
        assert sent is not None, f"{who} is handed {frame}, which nobody sent"
        self._check_envelope(sent, who, frame)
        self.check(sent.known is not Known.REFUSED, f"{sent} was refused, and {who} is handed it")
        if sent.numbered and not sent.doubtful:
            self.check(not sent.done, f"I2: {sent} is handed over again, and was done")
            self.check(sent.holder is None, f"I2: {sent} is handed over twice, to {who} last")
            again = taken.again or not sent.handed
            self.check(again, f"I2: {sent} is handed over again, and {who} is not told so")
        if sent.ordered and not sent.handed and self.keeps_order(sent):
            self._check_order(sent, frame)
        sent.handed_ms = sent.handed_ms or self._now_ms()
        sent.handed += 1
        sent.holder = (node, holder)
        return sent

    def _check_envelope(self, sent: Sent, who: str, frame: Frame) -> None:
        fields = frame.fields
        self.check(who == str(sent.destination), f"{sent} is handed to {who}")
        self.check(frame.body == sent.body, f"{sent}: body {frame.body[:20]!r}")
        source = fields.get("src", "").partition("/")[0]
        right = source == sent.source and fields.get("app_key", "") == sent.app_key
        mid = Received(0, "", fields, b"").mid
        right = right and (not sent.mid or sent.mid == mid)
        self.check(right, f"{sent} comes as {fields}, {mid}")

    def keeps_order(self, sent: Sent) -> bool:
        """Nothing of what was before it was lost with a disk."""
        return self.replaced.isdisjoint((sent.source, sent.destination.node))

    def _check_order(self, sent: Sent, frame: Frame) -> None:
        """In the order of their numbers, as whoever reads this mailbox gets them."""
        epoch, seq = frame.fields.get("epoch", ""), int(frame.fields.get("seq", "0"))
        domain = sent.app_key.partition(",")[0]
        line = (sent.source, epoch, sent.life, sent.destination, domain)
        last = self.order.get(line, 0)
        self.check(seq > last, f"I7: {sent}, number {seq}, comes after {last}")
        self.order[line] = max(last, seq)

    def let_go(self, node: str, holder: int | None = None) -> None:
        """Whoever held messages does so no more."""
        for sent in self.sent.values():
            if sent.holder is None or sent.holder[0] != node:
                continue
            if holder is None or sent.holder[1] == holder:
                sent.holder = None

    def done(self, serial: int) -> None:
        """The node has said that it is."""
        sent = self.sent[serial]
        sent.done, sent.done_ms, sent.holder = True, self._now_ms(), None

    # -- a disk that is older than what was on it ---------------------------------------------

    def restored(self, node: str, since_ms: int, committed: dict[str, set[str]]) -> None:
        """The node's disk is as it was then. `committed`: what nodes had on their disks."""
        self.replaced.add(node)
        for sent in self.sent.values():
            if sent.source == node and (sent.at_ms >= since_ms or sent.known is Known.ASKED):
                sent.lost = True
            if sent.destination.node == node and not sent.done_before(since_ms):
                sent.doubtful += 1
                sent.lost = sent.lost or not sent.mid or sent.number in committed[node]

    # -- rest ---------------------------------------------------------------------------------

    def missing(self) -> Iterator[Sent]:
        """What is owed and was not handed over, or not done."""
        for sent in self.sent.values():
            over = sent.done or sent.done_asked  # and the answer was lost with its node
            if sent.owed and not over and sent.destination.node != PLATFORM:
                yield sent
