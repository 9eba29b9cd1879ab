"""What is stored for a node is handed to it, in order, as it has room for it.

Each of its connections pulls for as long as it lasts, but only the steady one is handed anything,
with the window it wants; what it is handed is leased, which is SS_SENT. Before a connection gets
anything new it is asked for what was sent before (`zbus.dialects.semq.inquiries`), so that what was
lost goes first; but no request waits for its answers for long.

A message whose time is over, or that is larger than its node takes, is not delivered, but put by
(`zbus.dialects.semq.dead`).
"""

from __future__ import annotations

from typing import Final

from zbus.core.api import (
    ENDLESS,
    Broker,
    BrokerError,
    Chunk,
    Delivered,
    Group,
    Outcome,
    Pull,
    PullOptions,
)
from zbus.dialects.semq.dead import TOO_LARGE, DeadRows
from zbus.dialects.semq.frames import encode_push
from zbus.dialects.semq.inquiries import Inquiries
from zbus.dialects.semq.links import Link, Links
from zbus.dialects.semq.mailboxes import Mailbox, Mailboxes
from zbus.dialects.semq.rows import delivery_lines, instance_of
from zbus.dialects.semq.settings import WINDOW_MAX
from zbus.edge.rights import admit_reader

ANSWERS_MS: Final = 2_000
"""How long a connection that was asked gets nothing new, if it does not answer."""

_ALONE_MS: Final = 10_000
"""A row for an instance that is not here is looked at again that much later."""


_WANTS: Final = PullOptions(credit=ENDLESS, window=WINDOW_MAX)
"""One at a time: so a connection gets no more than its window, and nothing once it is stalled."""


class Delivery(Pull):
    """Of one connection, until it ends."""

    __slots__ = ("_delivering", "link")

    def __init__(self, delivering: Delivering, link: Link) -> None:
        super().__init__(link.peer, _WANTS)
        self.handed = set()
        self._delivering = delivering
        self.link = link

    def full(self, group: Group) -> bool:
        """It is handed nothing now. Its node may say hello again with another window."""
        if not self._delivering.serves(self.link):
            return True
        window, handed = self.link.hello.window, self.handed or ()
        if len(handed) < window:
            return False
        leased = group.progress(0).leased
        self.handed = {place for place in handed if place[1] in leased}
        return len(self.handed) >= window

    def answer(self, outcome: Outcome) -> None:
        self._delivering.came(self.link, outcome)


class Delivering:
    def __init__(
        self,
        broker: Broker,
        mailboxes: Mailboxes,
        links: Links,
        asking: Inquiries,
        dead: DeadRows,
        size_max: int,
    ) -> None:
        self._broker = broker
        self._mailboxes = mailboxes
        self._links = links
        self._asking = asking
        self._dead = dead
        self._size_max = size_max
        self._waiting = broker.timers.timer(self._waited, lambda link: link.peer)
        links.when_changed = self._changed

    def opened(self, link: Link, mailbox: Mailbox) -> None:
        """A connection has said hello."""
        self._broker.pull(mailbox.group, Delivery(self, link), None)
        admit_reader(link.peer, mailbox.group, link.bearer)
        self._changed(link.node)

    def _changed(self, node: str) -> None:
        """Connections have come or gone: ask the steady one for what those had that are gone."""
        mailbox, links = self._mailboxes.find(node), self._links.online(node)
        if mailbox is not None and links:
            if self._asking.begin(mailbox):
                self._waiting.set(links[0], self._broker.now_ms + ANSWERS_MS)
            self.wake(node)

    def wake(self, node: str) -> None:
        """See whether it may be handed something."""
        mailbox = self._mailboxes.find(node)
        if mailbox is not None:
            self._broker.activate(mailbox.group)

    def answered(self, node: str) -> None:
        """A node has said what it has of what it was sent."""
        self._asking.heard(node)
        waiting = [link for link in self._links.online(node) if link in self._waiting]
        mailbox = self._mailboxes.find(node) if waiting else None
        if mailbox is not None and not self._asking.lost(mailbox):
            for link in waiting:
                self._waiting.discard(link)
            self.wake(node)

    def _waited(self, link: Link) -> None:
        """It was to answer by now."""
        self.wake(link.node)

    def serves(self, link: Link) -> bool:
        """This connection is handed what is stored for its node."""
        return self._links.online(link.node)[:1] == [link] and link not in self._waiting

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
        semq_id = instance_of(lines)
        if semq_id and semq_id not in link.hello.semq_ids:
            links = [one for one in self._links.instance(link.node, semq_id) if one.takes]
            target = links[0] if links else None
        if target is None:
            later_ms = self._broker.now_ms + _ALONE_MS
            self._mailboxes.postpone(mailbox, chunk.first + at, later_ms)
        elif len(body) > min(self._size_max, target.hello.max_size or self._size_max):
            self._dead.bury(mailbox, chunk, at, TOO_LARGE)
        else:
            data = encode_push("semq_deliver", delivery_lines(mailbox, chunk, at), body)
            target.peer.work -= len(body) >> 11
            self._links.push(target, data)
