"""The links of an endpoint: who is at the other end, whether that is certain, and who is online.

A link to the platform is ready when its hello was answered. One to another endpoint is ready when
both have shown that they know the key of a ticket, which the platform has given to one of them and
which the other can work out (specification, section 12):

    caller   semq_hello  ticket, nonce a
    called   semq_hello  nonce b, proof = HMAC(key, "B" + a + b)
    caller   semq_hello  proof = HMAC(key, "A" + a + b)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeVar

from zbus.semq.endpoint.context import Context
from zbus.semq.endpoint.events import Close, Connect, Frame, Opened
from zbus.semq.protocol.tickets import read_ticket, same, sign
from zbus.semq.protocol.words import HEARTBEAT_MS, PLATFORM, SILENCE_MS, Fields, Malformed

HANDSHAKE_MS: Final = 10_000
_FAILURES: Final = 3
_WITHIN_MS: Final = 300_000
"""This many failures of direct links within this long, and the platform is used for as long
again."""

_KNOWN_MAX: Final = 10_000
_NONCE_LENGTH: Final = 32
_ADDRESSES_MAX: Final = 8

_SEQS_MAX: Final = 500
_SEQS_TEXT_MAX: Final = 4_000
"""Numbers that are asked for, or confirmed, in one frame, and the bytes that they take: a platform
takes lines of 8 KiB."""

Item = TypeVar("Item")


class Link:
    """One connection."""

    __slots__ = (
        "called",
        "direct",
        "heard_ms",
        "key",
        "max_bytes",
        "node",
        "nonce",
        "number",
        "opened_ms",
        "passed",
        "passed_bytes",
        "proof",
        "ready",
        "sent_ms",
        "waiting",
        "waiting_bytes",
    )

    def __init__(self, opened: Opened, now_ms: int) -> None:
        self.number = opened.link
        self.node = opened.node if opened.direct else PLATFORM  # empty: it has not said who it is
        self.direct = opened.direct
        self.called = bool(opened.node) or not opened.direct  # by us
        self.key = opened.key
        self.ready = False
        self.nonce = self.proof = ""
        self.opened_ms = self.heard_ms = self.sent_ms = now_ms
        self.waiting: dict[int, int] = {}  # rows that were sent there and not answered: bytes
        self.waiting_bytes = 0
        self.passed = self.passed_bytes = 0  # sent in this step, without an answer
        self.max_bytes = 1 << 62  # of a body, as a direct link takes it


class Way:
    """The direct way to a node: what is known of it."""

    __slots__ = ("asked_ms", "failures")

    def __init__(self) -> None:
        self.asked_ms: int | None = None  # when the platform was asked for it last
        self.failures: deque[int] = deque(maxlen=_FAILURES)


class Links:
    def __init__(self, context: Context) -> None:
        self._context = context
        self.all: dict[int, Link] = {}
        self.platform: Link | None = None  # the one that is ready
        self.peers: dict[str, Link] = {}  # by node, those that are ready
        self.offline: dict[str, None] = {}  # nodes, as the platform says
        self.max_bytes = 1 << 62
        self._ways: dict[str, Way] = {}
        self._ticket_key = ""
        self._sent: dict[int, Link] = {}  # rows that are not answered: where they were sent

    # -- routes -------------------------------------------------------------------------------

    def to(self, node: str) -> Link | None:
        """The link over which a control message reaches a node."""
        return (self.peers.get(node) if node != PLATFORM else None) or self.platform

    def routes(self, node: str) -> dict[str, Link]:
        """Ways for a message to a node: `direct`, `platform`; the better one first."""
        found = {}
        if node != PLATFORM and (link := self.peers.get(node)) is not None:
            found["direct"] = link
        if self.platform is not None:
            found["platform"] = self.platform
        return found

    def only_direct(self, node: str) -> bool:
        """The platform cannot be asked about it, and it can."""
        return self.platform is None and node in self.peers

    def believed(self, node: str) -> bool:
        """A question to it may be answered."""
        if node == PLATFORM:
            return self.platform is not None
        return node in self.peers or (self.platform is not None and node not in self.offline)

    def look_up(self, node: str) -> None:
        """Ask the platform for the direct way to a node, now and then."""
        context = self._context
        if not context.options.direct or self.platform is None or node in (PLATFORM, ""):
            return
        way = self._ways.get(node)
        if way is None:
            if len(self._ways) >= _KNOWN_MAX:
                self._ways.pop(next(iter(self._ways)))
            way = self._ways[node] = Way()
        now_ms = context.now_ms
        again_ms = _WITHIN_MS if self.given_up(node) else context.interval_ms
        if way.asked_ms is None or not way.asked_ms <= now_ms < way.asked_ms + again_ms:
            way.asked_ms = now_ms
            self.send_frame(self.platform, {"cmd": "semq_lookup", "dst": node, "id": f"l{node}"})

    def given_up(self, node: str) -> bool:
        """The direct way has failed so often lately that messages which want it go by the
        platform."""
        way = self._ways.get(node)
        failures = () if way is None else way.failures
        lately_ms = self._context.now_ms - _WITHIN_MS
        oldest_ms = next(iter(failures), 0)
        known = len(failures) == _FAILURES
        return known and lately_ms < oldest_ms <= self._context.now_ms

    def found(self, frame: Frame) -> None:
        """The platform's answer."""
        node = frame.fields["id"][1:]
        fields = Fields(frame.fields)
        listen = fields.text("listen")
        if frame.status == 200 and listen and node not in self.peers:
            addresses = tuple(listen.split(",")[:_ADDRESSES_MAX])
            identity = fields.text("cert"), fields.required("ticket"), fields.required("key")
            self._context.effects.append(Connect(node, addresses, *identity))
        elif node not in self.peers:
            self.failed(node)

    def failed(self, node: str) -> None:
        """A direct link could not be made, or has broken."""
        if (way := self._ways.get(node)) is not None:
            way.failures.append(self._context.now_ms)

    def sent(self, link: Link, record: int, size: int) -> None:
        """A row was sent there: it counts in the window of that link until it is answered."""
        self.answered(record)
        self._sent[record] = link
        link.waiting[record] = size
        link.waiting_bytes += size
        self._context.undo.append(lambda: self.answered(record))

    def answered(self, record: int, link: Link | None = None) -> None:
        """A row is answered, or sent again; on that link, if one is given."""
        sent = self._sent.get(record)
        if sent is not None and link in (None, sent):
            del self._sent[record]
            sent.waiting_bytes -= sent.waiting.pop(record)

    # -- life ---------------------------------------------------------------------------------

    def opened(self, event: Opened) -> None:
        """A connection stands: the side that called says hello."""
        link = self.all[event.link] = Link(event, self._context.now_ms)
        self._context.undo.append(lambda: self.all.pop(event.link, None))
        if link.direct and link.called:
            link.nonce = self._nonce()
            self._hello(link, {"ticket": event.ticket, "nonce": link.nonce})
        elif not link.direct:
            listen = ",".join(self._context.options.listen)
            window = str(self._context.options.deliveries)
            more = {"listen": listen, "cert": self._context.options.fingerprint}
            self._hello(link, {"window": window, "version": "1", **(more if listen else {})})

    def _hello(self, link: Link, more: dict[str, str]) -> None:
        options = self._context.options
        stores = ",".join(f"{options.semq_id}/{db}" for db in range(1, options.stores + 1))
        fields = {"cmd": "semq_hello", "id": "hello", "node": options.node, "semq": stores}
        if link.direct:
            fields["max_size"] = str(options.body_bytes_max)
        self.send_frame(link, {**fields, "epoch": self._context.epoch, **more})

    def _nonce(self) -> str:
        return f"{self._context.random.getrandbits(128):0{_NONCE_LENGTH}x}"

    def closed(self, number: int) -> Link | None:
        """A link is no more. Gives it if it was ready."""
        link = self.all.pop(number, None)
        if link is None:
            return None
        for record in link.waiting:
            self._sent.pop(record, None)
        if link is self.platform:
            self.platform = None
            self.offline.clear()
        if self.peers.get(link.node) is link:
            del self.peers[link.node]
            self.peers |= {one.node: one for one in self._direct(link.node)}
        if link.direct and link.called:
            self.failed(link.node)
        return link if link.ready else None

    def close(self, link: Link, why: str) -> Link | None:
        """End it."""
        self._context.effects.append(Close(link.number, why))
        return self.closed(link.number)

    # -- hello --------------------------------------------------------------------------------

    def welcomed(self, link: Link, frame: Frame) -> bool:
        """The platform has answered our hello. Says whether the link is ready."""
        if frame.status != 200:
            self.close(link, f"the platform refuses the hello: {frame.status} {frame.text}")
            return False
        fields = Fields(frame.fields)
        context = self._context
        context.interval_ms = fields.number("interval", context.options.interval_ms, 1, 86_400_000)
        self.max_bytes = fields.number("max_size", self.max_bytes)
        self._ticket_key = fields.text("ticket_key")
        if self.platform is not None and self.platform is not link:
            self.close(self.platform, "there is a newer one")
        link.ready, self.platform = True, link
        return True

    def greeted(self, link: Link, frame: Frame) -> bool:
        """Another endpoint says hello. Says whether the link is ready."""
        fields = Fields(frame.fields)
        if link.ready or not link.direct:
            return False
        link.max_bytes = fields.number("max_size", link.max_bytes)
        if link.called:
            nonce, proof = fields.required("nonce"), fields.required("proof")
            right = sign(link.key, f"B{link.nonce}{nonce}")
            if not same(right, proof):
                raise Malformed(f"authentication of node {link.node} failed: wrong proof")
            self._hello(link, {"proof": sign(link.key, f"A{link.nonce}{nonce}")})
            return self._ready(link)
        if not link.proof:
            self._answer(link, fields)
            return False
        if not same(link.proof, fields.required("proof")):
            raise Malformed("authentication failed: the proof is not that of the ticket's node")
        return self._ready(link)

    def _answer(self, link: Link, fields: Fields) -> None:
        """Of the calling node: is its ticket good?"""
        ticket, nonce = fields.required("ticket"), fields.required("nonce")
        own, now_ms = self._context.options.node, self._context.now_ms
        link.node, link.key = read_ticket(self._ticket_key, ticket, own, now_ms)
        if link.node != fields.required("node") or len(nonce) != _NONCE_LENGTH:
            raise Malformed("the ticket is for another node, or the nonce is wrong")
        link.nonce = self._nonce()
        link.proof = sign(link.key, f"A{nonce}{link.nonce}")
        proof = sign(link.key, f"B{nonce}{link.nonce}")
        self._hello(link, {"nonce": link.nonce, "proof": proof})

    def _direct(self, node: str) -> list[Link]:
        """Links with another endpoint that are ready, the newest last."""
        return [one for one in self.all.values() if one.ready and one.direct and one.node == node]

    def _ready(self, link: Link) -> bool:
        """The newest is used. The one before is kept: when two have crossed, each end may take
        another one for the newest, and with one alone each would end the other's."""
        for former in self._direct(link.node)[:-1]:
            self.close(former, "there are newer ones")
        link.ready = True
        self.peers[link.node] = link
        if (way := self._ways.get(link.node)) is not None and link.called:
            way.asked_ms = None
        return True

    # -- being there --------------------------------------------------------------------------

    def send_frame(self, link: Link, fields: dict[str, str], body: bytes = b"") -> None:
        link.sent_ms = self._context.now_ms
        self._context.send_frame(link.number, fields, body)

    def presence(self, node: str, online: bool) -> None:
        """The platform says so."""
        if online:
            self.offline.pop(node, None)
            if (way := self._ways.get(node)) is not None and node not in self.peers:
                way.asked_ms = None
                self.look_up(node)  # it was to be sent something, and could not be called
        else:
            if len(self.offline) >= _KNOWN_MAX:
                self.offline.pop(next(iter(self.offline)))
            self.offline[node] = None

    def due_ms(self) -> int | None:
        """When a heartbeat is due, or a link has been silent for too long."""
        dues = []
        for link in self.all.values():
            if link.ready:
                dues.append(min(link.sent_ms + HEARTBEAT_MS, link.heard_ms + SILENCE_MS))
            else:
                dues.append(link.opened_ms + HANDSHAKE_MS)
        return min(dues, default=None)

    def look_after(self) -> list[Link]:
        """Heartbeats, and links that are dead. Gives those that were ready."""
        now_ms, lost = self._context.now_ms, []
        for link in list(self.all.values()):
            link.heard_ms, link.sent_ms = min(link.heard_ms, now_ms), min(link.sent_ms, now_ms)
            link.opened_ms = min(link.opened_ms, now_ms)
            if not link.ready:
                if now_ms >= link.opened_ms + HANDSHAKE_MS:
                    self.close(link, "it has not said hello in time")
            elif now_ms >= link.heard_ms + SILENCE_MS:
                if (gone := self.close(link, "it is silent")) is not None:
                    lost.append(gone)
            elif now_ms >= link.sent_ms + HEARTBEAT_MS:
                self.send_frame(link, {"cmd": "heartbeat"})
        return lost


def in_parts(items: Iterable[Item], seq_of: Callable[[Item], int]) -> Iterator[list[Item]]:
    """Things with numbers, as many at once as one field may name, however they are scattered."""
    part: list[Item] = []
    size = 0
    for item in items:
        length = len(str(seq_of(item))) + 1
        if part and (len(part) == _SEQS_MAX or size + length > _SEQS_TEXT_MAX):
            yield part
            part, size = [], 0
        part.append(item)
        size += length
    if part:
        yield part
