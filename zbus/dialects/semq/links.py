"""Who is online: connections that have said hello, and what becomes of them.

A node may have several connections, each of some of its instances (`semq_id`); the newest of an
instance has it, and the one before is closed. Each instance has a ledger of its own: so what is for
any of them goes to the steady one, of the lowest `semq_id` that is online. A node is online as long
as one of them is alive: that much was heard of it. A connection that takes nothing is not alive
either, and the server ends it (`stall_timeout_ms`); until then nothing is forwarded there.

Presence is sent to clients that sent something to a node, or asked for it: for as long as
their connection lasts, and of the last nodes only (`WATCHED_MAX`). The rest is found out by
asking.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from sys import maxsize
from typing import Final, NamedTuple

from zbus.core.api import Broker
from zbus.dialects.semq.frames import PLATFORM_LINE, encode_push
from zbus.dialects.semq.mailboxes import GROUP
from zbus.edge.access import Bearer
from zbus.edge.connection import Connection
from zbus.semq.protocol.words import HEARTBEAT_MS, SILENCE_MS
from zbus.wire.errors import WireError
from zbus.wire.websocket import GOING_AWAY

WATCHED_MAX: Final = 1_000
"""Nodes that one connection watches."""

WATCHES_MAX: Final = 200_000
"""Of all connections together: with more, one has fewer."""

_CONTROL_BYTES: Final = 256 << 10
"""What a connection may leave untaken of confirmations, beyond what stalls it."""

_LINK_BYTES: Final = 2_500
_WATCH_BYTES: Final = 250


class Hello(NamedTuple):
    """What a node says of itself, on one connection."""

    semq_ids: frozenset[int]
    epoch: str
    listen: str
    cert: str
    window: int
    max_size: int  # bytes of a body; 0 = as the platform


class Link:
    """A connection that has said hello."""

    __slots__ = ("bearer", "came_bytes", "heard_ms", "hello", "node", "peer", "sent_ms", "watched")

    def __init__(
        self, peer: Connection, node: str, hello: Hello, bearer: Bearer | None, now_ms: int
    ) -> None:
        self.peer = peer
        self.node = node
        self.hello = hello
        self.bearer = bearer  # of the client that sent it; None = all may
        self.heard_ms = self.sent_ms = now_ms
        self.came_bytes = 0  # when it was looked at last
        self.watched: dict[str, None] = {}  # nodes it watches, the last one last

    @property
    def first(self) -> int:
        """Its lowest instance."""
        return min(self.hello.semq_ids)

    @property
    def takes(self) -> bool:
        """A message that is written there is on its way, as far as anybody knows here."""
        peer = self.peer
        return not (peer.stalled or peer.closing or peer.leaving or peer.closed)

    @property
    def takes_control(self) -> bool:
        peer = self.peer
        if peer.closing or peer.leaving or peer.closed:
            return False
        return peer.out_bytes <= peer.out_bytes_max + _CONTROL_BYTES


class Links:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._by_peer: dict[Connection, Link] = {}
        self._by_node: dict[str, list[Link]] = {}  # the steady one first
        self.when_changed: Callable[[str], None] = lambda node: None
        """Called for a node that has one connection less."""
        self._watchers: dict[str, dict[Link, None]] = {}
        self._watches = 0
        self._alive = broker.timers.timer(self._look, lambda link: link.peer)

    def of(self, peer: Connection) -> Link | None:
        """That of a connection; something was heard on it."""
        link = self._by_peer.get(peer)
        if link is not None:
            link.heard_ms = self._broker.now_ms
        return link

    def online(self, node: str) -> list[Link]:
        """The connections of a node, the steady one first."""
        return self._by_node.get(node, [])

    def all(self) -> Iterable[Link]:
        return self._by_peer.values()

    def bytes_used(self) -> int:
        return len(self._by_peer) * _LINK_BYTES + self._watches * _WATCH_BYTES

    def instance(self, node: str, semq_id: int | None) -> list[Link]:
        """That of one instance, if it is said which one; else all, the steady one first."""
        links = self.online(node)
        return links if semq_id is None else [one for one in links if semq_id in one.hello.semq_ids]

    def size_max(self, node: str) -> int:
        """How long a body the node takes, as it says of itself."""
        links = self.online(node)
        return (links[0].hello.max_size if links else 0) or maxsize

    # -- coming and going ---------------------------------------------------------------------

    def add(self, peer: Connection, node: str, hello: Hello, bearer: Bearer | None) -> Link:
        """A connection has said hello for the first time. Every node that watches it is
        told so, even if it was online before: what was on its way to another connection may be
        lost."""
        for other in list(self.online(node)):
            if other.hello.semq_ids & hello.semq_ids:
                self._take_out(other)
                self._end(other, "replaced")
        link = Link(peer, node, hello, bearer, self._broker.now_ms)
        self._by_peer[peer] = link
        links = self._by_node.setdefault(node, [])
        links.append(link)
        links.sort(key=lambda one: one.first)
        peer.when_left(self._left)
        if peer.bearer is None:
            peer.bearer = bearer  # what follows need not show the token again
        self._alive.set(link, self._broker.now_ms + HEARTBEAT_MS)
        self._notify(node, online=True)
        return link

    def remove(self, link: Link) -> None:
        """It is online no more; whether its connection lasts is another matter."""
        if self._by_peer.get(link.peer) is link:
            self._take_out(link)
            if self.online(link.node):
                self.when_changed(link.node)
            else:
                del self._by_node[link.node]
                self._notify(link.node, online=False)

    def close(self, link: Link, why: str) -> None:
        """The same, and its connection ends."""
        self.remove(link)
        self._end(link, why)

    def _take_out(self, link: Link) -> None:
        del self._by_peer[link.peer]
        self._by_node[link.node].remove(link)
        self._alive.discard(link)
        for node in link.watched:
            self._unwatch(link, node)
        self._watches -= len(link.watched)
        link.watched.clear()
        self.take_no_more(link)

    def take_no_more(self, link: Link) -> None:
        """It is handed nothing any more."""
        if not link.peer.leaving:
            for group in list(link.peer.groups or ()):
                if group.name == GROUP:
                    self._broker.leave_group(link.peer, group)

    def _end(self, link: Link, why: str) -> None:
        """Say so, and close."""
        peer = link.peer
        if peer.closed or peer.closing:
            return
        peer.write(encode_push("semq_bye", b"%breason: %b\r\n" % (PLATFORM_LINE, why.encode())))
        peer.forget_requests()
        framing = peer.framing
        peer.take_leave(b"" if framing is None else framing.farewell(WireError(GOING_AWAY, why)))

    def _left(self, peer: Connection) -> None:
        link = self._by_peer.get(peer)
        if link is not None:
            self.remove(link)

    def _look(self, link: Link) -> None:
        """Is it alive, and did it get our heartbeat?"""
        now_ms, peer = self._broker.now_ms, link.peer
        came_bytes = peer.reader.came_bytes
        if came_bytes != link.came_bytes:  # half a message, or a ping
            link.came_bytes, link.heard_ms = came_bytes, max(link.heard_ms, now_ms - HEARTBEAT_MS)
        if peer.stalled:
            link.heard_ms = now_ms  # nothing is read from it; the server looks after it
        if now_ms - link.heard_ms >= SILENCE_MS:
            self.close(link, "silent")
            return
        if now_ms - link.sent_ms >= HEARTBEAT_MS and link.takes:
            self.push(link, encode_push("heartbeat", PLATFORM_LINE))
        next_ms = max(now_ms + 1, link.sent_ms + HEARTBEAT_MS)
        self._alive.set(link, min(next_ms, link.heard_ms + SILENCE_MS))

    # -- presence ----------------------------------------------------------------------------

    def push(self, link: Link, data: bytes) -> None:
        """Send a frame there."""
        link.sent_ms = self._broker.now_ms
        link.peer.write(data)

    def watch(self, link: Link | None, node: str) -> None:
        """This connection watches the node from now on, and gets its state at once."""
        if link is None or node == link.node:
            return
        watched = link.watched
        if node in watched:
            del watched[node]
            watched[node] = None
            return
        if len(watched) >= WATCHED_MAX or self._watches >= WATCHES_MAX:
            if not watched:
                return
            oldest = next(iter(watched))
            del watched[oldest]
            self._unwatch(link, oldest)
            self._watches -= 1
        watched[node] = None
        self._watches += 1
        self._watchers.setdefault(node, {})[link] = None
        self._notify_one(link, node, bool(self.online(node)))

    def _unwatch(self, link: Link, node: str) -> None:
        watchers = self._watchers[node]
        del watchers[link]
        if not watchers:
            del self._watchers[node]

    def _notify(self, node: str, *, online: bool) -> None:
        for link in self._watchers.get(node, ()):
            self._notify_one(link, node, online)

    def _notify_one(self, link: Link, node: str, online: bool) -> None:
        if link.takes_control:
            state = b"online" if online else b"offline"
            lines = b"%bnode: %b\r\nstate: %b\r\n" % (PLATFORM_LINE, node.encode(), state)
            self.push(link, encode_push("semq_presence", lines))
