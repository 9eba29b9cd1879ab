"""What is stored for a node is handed to it, in order, as it has room for it.

Each of its connections pulls for as long as it lasts, with the window it wants; what it is handed
is leased, which is SS_SENT. Before a connection gets anything new it is asked for what was sent
before (`zbus.faces.semq.asking`), so that what was lost goes first; but nobody waits for its
answers for long.

A message whose time is over is not delivered, but put by (`zbus.faces.semq.dead`).
"""

from __future__ import annotations

from typing import Final

from zbus.core.broker import Broker
from zbus.core.chunk import Chunk
from zbus.core.errors import BrokerError
from zbus.core.outcomes import Delivered, Empty, EmptyReason, Outcome
from zbus.core.topic import Pull
from zbus.core.wants import ENDLESS, Wants
from zbus.faces.peer import Peer
from zbus.faces.plain import PlainAnswering, PlainHead
from zbus.faces.rights import admit_reader
from zbus.faces.semq.asking import Asking
from zbus.faces.semq.context import Call, Context
from zbus.faces.semq.dead import DeadRows
from zbus.faces.semq.frames import encode_push
from zbus.faces.semq.links import Link, Links
from zbus.faces.semq.mailboxes import MARK, Mailbox, Mailboxes
from zbus.faces.semq.rows import delivery_lines, number_of
from zbus.faces.status import STATUS, retry_line
from zbus.semq.words import Malformed, read_node

ANSWERS_MS: Final = 2_000
"""How long a connection that was asked gets nothing new, if it does not answer."""

POLLS_MAX: Final = 100
"""Of one connection, at a time."""

WAIT_S_MAX: Final = 300

_ALONE_MS: Final = 10_000
"""A row for an instance that is not here is looked at again so much later."""


class Delivery(Pull):
    """Of one connection, until it ends."""

    __slots__ = ("_delivering", "link")

    def __init__(self, delivering: Delivering, link: Link) -> None:
        # One at a time: so it gets no more than its window, and nothing once it is stalled.
        wants = Wants(credit=ENDLESS, window=link.hello.window)
        super().__init__(link.peer, wants)
        self._delivering = delivering
        self.link = link

    def answer(self, outcome: Outcome) -> None:
        self._delivering.came(self.link, outcome)


class Delivering:
    """See the module."""

    def __init__(
        self, broker: Broker, mailboxes: Mailboxes, links: Links, asking: Asking, dead: DeadRows
    ) -> None:
        self._broker = broker
        self._mailboxes = mailboxes
        self._links = links
        self._asking = asking
        self._dead = dead
        self._waiting = broker.timers.timer(self._begin, lambda link: link.peer)

    def opened(self, link: Link, mailbox: Mailbox) -> None:
        """A connection has said hello."""
        if self._asking.begin(mailbox):
            self._waiting.set(link, self._broker.now_ms + ANSWERS_MS)
        else:
            self._begin(link)

    def answered(self, node: str) -> None:
        """A node has said what it has of what it was sent."""
        self._asking.heard(node)
        waiting = [link for link in self._links.online(node) if link in self._waiting]
        mailbox = self._mailboxes.find(node) if waiting else None
        if mailbox is not None and not self._asking.lost(mailbox):
            for link in waiting:
                self._waiting.discard(link)
                self._begin(link)

    def _begin(self, link: Link) -> None:
        mailbox = self._mailboxes.find(link.node)
        if mailbox is None or link not in self._links.online(link.node):
            return
        self._broker.pull(mailbox.group, Delivery(self, link), None)
        admit_reader(link.peer, mailbox.group, link.bearer)

    def came(self, link: Link, outcome: Outcome) -> None:
        """Rows for a connection; or it gets no more."""
        if isinstance(outcome, BrokerError):
            self._links.close(link, outcome.refusal.value.replace(" ", "-"))
            return
        mailbox = self._mailboxes.find(link.node)
        if not isinstance(outcome, Delivered) or mailbox is None:
            return
        for _, chunk, start, stop, _ in outcome.pieces:
            for at in range(start, stop):
                self._hand_over(link, mailbox, chunk, at)
        self._asking.sent(link.node)

    def _hand_over(self, link: Link, mailbox: Mailbox, chunk: Chunk, at: int) -> None:
        lines, body = chunk.headers[at], chunk.bodies[at]
        if self._dead.is_late(lines):
            self._dead.bury(mailbox, chunk, at)
            return
        target: Link | None = link
        if lines.startswith(MARK) and b"\r\nfixed: 1\r\n" in lines:
            target = self._fixed(link, number_of(lines, b"semq_id") or 1)
            if target is None:
                later_ms = self._broker.now_ms + _ALONE_MS
                self._mailboxes.postpone(mailbox, chunk.first + at, later_ms)
                return
        assert target is not None
        data = encode_push("semq_deliver", delivery_lines(mailbox, chunk, at), body)
        target.peer.work -= len(body) >> 11
        self._links.push(target, data)

    def _fixed(self, link: Link, semq_id: int) -> Link | None:
        """The connection of the only instance that a row is for."""
        if semq_id in link.hello.semq_ids:
            return link
        links = [one for one in self._links.instance(link.node, semq_id) if one.takes]
        return links[-1] if links else None


# -- nodes without a connection of their own ----------------------------------------------------


class Poll(PlainAnswering, Pull):
    """`semq_poll`: one row, as the answer. It comes again if it is not confirmed within the
    interval: nobody can be asked."""

    __slots__ = ("asked", "data", "face", "id", "node", "ordered", "peer")

    def __init__(
        self, face: Context, asked: PlainHead, peer: Peer, id: bytes, node: str, wants: Wants
    ) -> None:
        super().__init__(peer, wants)
        self.face = face
        self.asked = asked
        self.node = node
        self.peer = peer
        self.id = id
        self.ordered = not id
        self.data: bytes | None = None
        peer.open_tickets += 1
        peer.open_waits += 1
        if self.ordered:
            peer.take_turn(self)

    def settle(self, outcome: Outcome) -> None:
        self.peer.open_waits -= 1
        super().settle(outcome)

    def answer(self, outcome: Outcome) -> None:
        mailbox = self.face.mailboxes.find(self.node)
        if isinstance(outcome, BrokerError):
            text = f"{STATUS[outcome.refusal]}: {outcome.text}".encode()
            self._say(STATUS[outcome.refusal], retry_line(outcome), text)
        elif isinstance(outcome, Delivered) and mailbox is not None:
            piece = outcome.pieces[0]
            self._hand_over(mailbox, piece.chunk, piece.start)
        else:
            stopping = isinstance(outcome, Empty) and outcome.reason is EmptyReason.STOPPING
            self._say(503 if stopping else 204, b"", b"")

    def _hand_over(self, mailbox: Mailbox, chunk: Chunk, at: int) -> None:
        if self.face.dead.is_late(chunk.headers[at]):
            self.face.dead.bury(mailbox, chunk, at)
            self._say(204, b"", b"")
            return
        lines = b"cmd: semq_deliver\r\n" + delivery_lines(mailbox, chunk, at)
        self._say(200, lines, chunk.bodies[at])

    def _say(self, status: int, lines: bytes, body: bytes) -> None:
        self.tell(status, b"id: %b\r\n%b" % (self.id, lines) if self.id else lines, body)


def poll(call: Call) -> None:
    """`semq_poll`."""
    face, fields = call.face, call.fields
    node = read_node(fields.text("node") or call.source())
    if call.link is not None:
        raise Malformed("a connection that has said hello is told what comes: it polls nothing")
    wait_s = fields.number("wait", 0, 0, WAIT_S_MAX)
    peer = call.peer
    if peer.open_waits >= POLLS_MAX:
        call.reply().refuse(429, "too-many", f"a connection has at most {POLLS_MAX} polls")
        return

    mailbox = face.mailboxes.ensure(node)
    if isinstance(mailbox, BrokerError):
        call.reply().settle(mailbox)
        return
    wants = Wants(lease_ms=face.settings.semq_interval_ms)
    pull = Poll(face, call.asked, peer, call.id, node, wants)
    face.broker.pull(mailbox.group, pull, face.broker.now_ms + wait_s * 1_000)
    admit_reader(peer, mailbox.group, peer.asker)
