"""The platform asks: has a node what it was sent, and never confirmed?

Rows in SS_SENT are leases, and so is what was sent before the broker was started again. A node
that comes online is asked for all of them at once. From then on it is asked for those that are
unconfirmed for the interval, for all in one frame as far as one can name them, and then after twice
as long each time. Whatever it says of what it was sent, beside heartbeats, begins that anew. Who is
offline is not asked.
"""

from __future__ import annotations

from functools import partial
from typing import Final, NamedTuple
from zlib import crc32

from zbus.core.api import Broker, BrokerError, Chunk, Partition, Place, PointReads
from zbus.dialects.semq.frames import PLATFORM_LINE, encode_push, lines_of
from zbus.dialects.semq.links import Link, Links
from zbus.dialects.semq.mailboxes import Mailbox, Mailboxes, locator
from zbus.dialects.semq.rows import instance_of, lk0_of, mid_of
from zbus.semq.protocol.words import Locator, Mid, back_off_ms, number_fields

_JITTER: Final = 20
"""Percent, either way: those who were online when the broker was started are not asked in step."""

_ASKED_MAX: Final = 2_000
"""Rows in one round; the others have their turn in the next one."""

_NAMED_MAX: Final = 500
"""Of them, in one frame."""

Stream = tuple[Link | None, str, str, int, int]
"""Of messages that one question can name: who is asked, store, epoch, stream, and the attempt it is
about."""


class Inquiry(NamedTuple):
    """A row that is asked for."""

    offset: int
    mid: Mid
    lk0: str
    semq_id: int  # of the only instance that it is for; 0 = any


class Inquiries:
    def __init__(
        self, broker: Broker, mailboxes: Mailboxes, links: Links, interval_ms: int
    ) -> None:
        self._broker = broker
        self._mailboxes = mailboxes
        self._links = links
        self._interval_ms = interval_ms
        self._rounds: dict[str, int] = {}  # node -> questions without an answer
        self._timer = broker.timers.timer(self._ask, lambda node: None)

    def begin(self, mailbox: Mailbox) -> bool:
        """A connection of its node has come. Says whether there is something to ask: what was sent
        over a connection that is no more."""
        self._rounds.pop(mailbox.node, None)
        sent = self.lost(mailbox)
        if sent:
            self._look(mailbox, sent[:_ASKED_MAX])
            self._set(mailbox.node, self._wait_ms(mailbox.node))
        return bool(sent)

    def lost(self, mailbox: Mailbox) -> list[int]:
        """What was sent to its node over connections that are no more, and is unconfirmed."""
        return mailbox.sent({link.peer.id for link in self._links.online(mailbox.node)})

    def sent(self, node: str) -> None:
        """It was sent something."""
        due_ms = self._broker.now_ms + self._interval_ms
        if node not in self._timer or self._timer.due_of(node) > due_ms:
            self._timer.set(node, due_ms)

    def heard(self, node: str) -> None:
        """It has said something of what it was sent."""
        if self._rounds.pop(node, 0) and node in self._timer:
            self.sent(node)

    def next_ms(self, node: str) -> int:
        """When it is asked next; 0 = it is not."""
        return self._timer.due_of(node) if node in self._timer else 0

    def _wait_ms(self, node: str) -> int:
        rounds = self._rounds.get(node, 0)
        wait_ms = back_off_ms(self._interval_ms, rounds)
        percent = crc32(f"{node} {rounds}".encode()) % (2 * _JITTER + 1) - _JITTER
        return wait_ms + (wait_ms * percent // 100 if rounds else 0)

    def _set(self, node: str, wait_ms: int) -> None:
        self._timer.set(node, self._broker.now_ms + wait_ms)

    def _ask(self, node: str) -> None:
        """It is time."""
        mailbox = self._mailboxes.find(node)
        if mailbox is None or not self._links.online(node):
            self._rounds.pop(node, None)
            return
        now_ms, sent = self._broker.now_ms, mailbox.sent()
        due = [offset for offset in sent if mailbox.sent_ms(offset) + self._interval_ms <= now_ms]
        if due:
            self._rounds[node] = self._rounds.get(node, 0) + 1
            self._look(mailbox, due[:_ASKED_MAX])
            self._set(node, self._wait_ms(node))
        elif sent:
            next_ms = min(mailbox.sent_ms(offset) for offset in sent) + self._interval_ms
            self._timer.set(node, max(next_ms, now_ms + 1))
        else:
            self._rounds.pop(node, None)

    def _look(self, mailbox: Mailbox, offsets: list[int]) -> None:
        """Find out what to ask for: which messages these are is in the log."""
        rows: list[Inquiry] = []
        places: list[Place] = [(mailbox.partition, offset) for offset in offsets]

        def each(partition: Partition, chunk: Chunk, at: int) -> bool:
            mid, lk0 = mid_of(mailbox, chunk, at), lk0_of(chunk, at)
            rows.append(Inquiry(chunk.first + at, mid, lk0, instance_of(chunk.headers[at])))
            return True

        PointReads(places, each, partial(self._found, mailbox.node, rows))

    def _found(self, node: str, rows: list[Inquiry], problem: BrokerError | None) -> None:
        mailbox = self._mailboxes.find(node)
        if problem is not None or mailbox is None:
            return  # it is asked again
        backlog = mailbox.group.progress(0)
        streams: dict[Stream, list[Inquiry]] = {}
        for row in rows:
            if row.offset in backlog.leased:
                link = self._holder(node, row, backlog.leased.holders.get(row.offset))
                mid, attempt = row.mid, backlog.attempts.get(row.offset, 1)
                key = link, str(mid.store), mid.epoch, mid.stream, attempt
                streams.setdefault(key, []).append(row)
        for (link, _, _, _, attempt), found in streams.items():
            for begin in range(0, len(found), _NAMED_MAX):
                if link is not None and link.takes_control:
                    self._push(link, node, found[begin : begin + _NAMED_MAX], attempt)

    def _holder(self, node: str, row: Inquiry, holder: bytes | None) -> Link | None:
        """The connection that was sent a row, as long as it lasts; else the steady one. Instances
        do not know what another one has."""
        if row.semq_id:
            return next(iter(self._links.instance(node, row.semq_id)), None)
        links = self._links.online(node)
        return next((link for link in links if link.peer.id == holder), links[0] if links else None)

    def _push(self, link: Link, node: str, rows: list[Inquiry], attempt: int) -> None:
        mid, single = rows[0].mid, len(rows) == 1
        fields = {"dst": node, "about": "send", "flag": "1"}
        if single:
            fields |= locator(rows[0].offset).fields()
        fields["lk0"] = rows[0].lk0 if single else str(Locator(mid.store, 0))
        fields |= {"epoch": mid.epoch, "stream": str(int(mid.stream)), "attempt": str(attempt)}
        fields |= number_fields(row.mid.seq for row in rows)
        self._links.push(link, encode_push("semq_inquiry", PLATFORM_LINE + lines_of(fields)))
