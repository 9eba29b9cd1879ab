"""What one client asks of another worker: requests that share a connection there, and whose answers
are whose.
"""

from __future__ import annotations

import re
import socket
from collections import deque
from contextlib import suppress
from enum import Enum, auto
from itertools import chain
from typing import Final, Protocol

from zbus.dialects.zbus.request.event_stream import encode_end
from zbus.edge.connection import Connection
from zbus.server.loop.loop import Loop
from zbus.wire.errors import WireError
from zbus.wire.heads.head import Head
from zbus.wire.replies import encode_reply
from zbus.wire.websocket import CLOSE, encode_frame
from zbus.workers.frames import FrameUpstream, mask
from zbus.workers.upstream import Answers, Upstream

BODIES: Final = frozenset((b"PATCH", b"POST", b"PUT"))
"""Methods of requests that say how long their bodies are, also if these are empty."""

_CLOSES: Final = mask(encode_frame(CLOSE, (1_000).to_bytes(2, "big")))
_GONE: Final = b"503: the worker that has this topic has ended and is starting again; retry in 1 s"
_RETRY: Final = b"content-type: text/plain\r\nretry-after: 1\r\n"
_STOPPING: Final = encode_end(b"503: the broker is stopping")
_EVENT_END: Final = b"\n\n"
_ID: Final = re.compile(rb"\r\nid: ([^\r]*)\r\n")
_CUT: Final = frozenset((b"content-length", b"expect", b"transfer-encoding"))


def request_start(head: Head) -> bytes:
    """A head as it is passed on, but for what differs between requests."""
    version = b"1.1" if head.version_11 else b"1.0"
    lines = [b"%b %b HTTP/%b\r\n" % (head.method, head.target, version)]
    lines += [b"%b: %b\r\n" % pair for pair in head.fields.items() if pair[0] not in _CUT]
    return b"".join(lines)


def passed_on(start: bytes, id: bytes, body: bytes, takes_body: bool) -> bytes:
    """A request as another worker gets it."""
    id_line = b"id: %b\r\n" % id if id else b""
    if body or takes_body:
        return b"%b%bcontent-length: %d\r\n\r\n%b" % (start, id_line, len(body), body)
    return b"%b%b\r\n" % (start, id_line)


class Asking(Protocol):
    """Who waits for an answer: a `zbus.edge.connection.Reply`, or who asks on."""

    id: bytes
    ordered: bool

    def send(self, data: bytes) -> None: ...


class Door(Protocol):
    """What is needed of `zbus.workers.forwarding.Forwarder`."""

    loop: Loop

    def open_upstream(
        self,
        worker: int,
        peer: Connection,
        answers: Answers,
        kind: type[Upstream] = Upstream,
        *,
        head_only: bool = False,
    ) -> Upstream | None: ...

    def forget(self, visit: Visit) -> None: ...

    def hold(self, visit: Visit) -> bool:
        """Whether it may wait for an owner of its shard: it is tried again, or given up."""


class Kind(Enum):
    """Of requests that share a connection to another worker: how their answers are known."""

    ONE_EACH = auto()  # in order, or by id
    LOOSE = auto()  # by id, and there may be none, or many
    HEAD = auto()  # they have no bodies
    FRAMES = auto()  # they are messages of a WebSocket


LOOSE: Final = frozenset((Kind.LOOSE, Kind.FRAMES))


class Visit:
    """What one client asks of another worker, of one kind."""

    __slots__ = (
        "_begun",
        "_by_id",
        "_counted",
        "_forwarder",
        "_handshake",
        "_held_bytes",
        "_last_asked",
        "_late_head",
        "_open",
        "_streamed",
        "_unsent",
        "_upstream",
        "kind",
        "peer",
        "worker",
    )

    def __init__(
        self,
        forwarder: Door,
        peer: Connection,
        worker: int,
        kind: Kind,
        handshake: Head | None,
    ) -> None:
        self._handshake = handshake
        self._forwarder = forwarder
        self.peer = peer
        self.worker = worker
        self.kind = kind
        self._open: deque[Asking] = deque()  # in order
        self._by_id: dict[bytes, deque[Asking]] = {}
        self._begun = False  # the head of the oldest answer is out
        self._late_head = b""  # it is not
        self._held_bytes = 0  # of requests that the other worker has not taken
        self._streamed: bytes | None = None  # the end of what was told as a stream, if it is one
        self._last_asked = False  # the client sends no more
        self._counted: bool | None = None  # as a ticket of the client, or as one that waits
        self._unsent: list[bytes] = []  # requests that certainly were not sent
        self._upstream = self._connect()

    def _connect(self) -> Upstream | None:
        """None: the other worker cannot be reached."""
        kind = FrameUpstream if self.kind is Kind.FRAMES else Upstream
        upstream = self._forwarder.open_upstream(
            self.worker, self.peer, self, kind, head_only=self.kind is Kind.HEAD
        )
        if upstream is not None and self._handshake is not None:
            upstream.write(request_start(self._handshake) + b"\r\n")
        return upstream

    @property
    def stalled(self) -> bool:
        """The client takes nothing at the moment; it is not gone."""
        peer = self.peer
        return peer.out_bytes > peer.out_bytes_max and not peer.closed

    def ask(self, data: bytes, reply: Asking | None = None) -> None:
        """Pass a request on. Without a reply there may be none, or many."""
        upstream = self._upstream
        if reply is not None:
            replies = self._open if reply.ordered else self._by_id.setdefault(reply.id, deque())
            replies.append(reply)
        if upstream is None and not self._forwarder.hold(self):
            self.give_up()  # others may wait, and nobody has looked after them
            return
        if upstream is None:
            self._unsent.append(data)
            self._hold_back(data)
            return
        if upstream.is_connected:
            self._unsent.clear()
        else:  # that may not take longer than to wait for an owner
            self._unsent.append(data)
            self._forwarder.hold(self)
        upstream.write(data)
        if upstream.out_bytes > upstream.out_bytes_max:
            self._hold_back(data)
            self._forwarder.loop.output.held[upstream] = None

    def _hold_back(self, data: bytes) -> None:
        """The client is not heard as long as this is not taken."""
        self._held_bytes += len(data)
        self.peer.held_bytes += len(data)

    def try_again(self) -> None:
        """If its shard has an owner now, that one gets what waits for it."""
        if self._upstream is not None:
            return
        if self.peer.closed:  # it has left since
            self.give_up()
            return
        upstream = self._upstream = self._connect()
        if upstream is None:
            return
        self._release()
        for data in self._unsent:
            upstream.write(data)
        if self._last_asked:
            self._forwarder.loop.output.held[upstream] = None

    @property
    def waits(self) -> bool:
        """No owner is reached yet."""
        return self._upstream is None or not self._upstream.is_connected

    def answered(self, response: bytes) -> None:
        peer = self.peer
        if self._unsent:
            self._unsent.clear()
        if self.kind in LOOSE:
            if not peer.closed and peer.heartbeat is None:  # a stream is all that is told
                peer.write(response)
        elif self._begun:
            self._begun = False
            peer.patient -= 1
            self._open.popleft().send(response)
        elif self._open or self._by_id:
            head, self._late_head = self._late_head, b""
            peer.patient -= bool(head)
            self._take(head or response).send(head + response)
        self._hold_if_stalled()

    def _take(self, response: bytes) -> Asking:
        """Whose answer it is: mostly the oldest's."""
        by_id = self._by_id
        if by_id:
            found = _ID.search(response, 0, response.find(b"\r\n\r\n") + 2)
            id = found[1] if found is not None else b""
            if id not in by_id and not self._open:
                id = next(iter(by_id))
            if id in by_id:
                reply = by_id[id].popleft()
                if not by_id[id]:
                    del by_id[id]
                return reply
        return self._open.popleft()

    def _hold_if_stalled(self) -> None:
        """Nothing more is read while the client takes nothing."""
        if self.stalled and self._upstream is not None:
            self._forwarder.loop.output.held[self._upstream] = None

    def begins(self, head: bytes) -> None:
        """Told at once if it is its turn. Who waits for it is never silent for too long."""
        peer = self.peer
        peer.patient += 1
        if not self._open or peer.turns is None or peer.turns[0] is not self._open[0]:
            self._late_head = head
            return
        self._begun = True
        peer.write(head)

    def streams(self, head: bytes) -> None:
        """Nothing else is open, and nothing behind it was done."""
        self._take(head).send(head)
        self.peer.begin_stream(b"")
        self._streamed = b""

    def more(self, data: bytes) -> None:
        if self._streamed is not None and not self.peer.closed:
            self.peer.write(data)
            self._streamed = (self._streamed + data)[-len(_STOPPING) - len(_EVENT_END) :]
        self._hold_if_stalled()

    def closes(self, frame: bytes) -> None:
        """It stops, perhaps: what the client is told is the same as by one process."""
        self.peer.take_leave(frame)

    def _release(self) -> None:
        held, self._held_bytes = self._held_bytes, 0
        self.peer.held_bytes -= held

    def drained(self) -> None:
        self._release()
        upstream = self._upstream
        if upstream is None or not upstream.is_connected:
            return
        if self._last_asked and not upstream.out_bytes:
            self._last_asked = False
            with suppress(OSError):  # it has ended, and that will be heard
                upstream.sock.shutdown(socket.SHUT_WR)

    def ended(self) -> None:
        upstream, self._upstream = self._upstream, None
        if upstream is None:
            return
        if self._unsent and not upstream.is_connected and self._forwarder.hold(self):
            return
        self.give_up()

    def give_up(self) -> None:
        """What is open is not answered any more: there is no owner, or there was one."""
        upstream, self._upstream = self._upstream, None
        if upstream is not None:
            self._forwarder.loop.drop(upstream)
        self._release()
        self._forwarder.forget(self)
        if self._streamed is not None:
            self.peer.end_stream()
        self.peer.patient -= self._begun or bool(self._late_head)
        open_ = [*self._open, *chain(*self._by_id.values())]
        self._open.clear()
        self._by_id.clear()
        if self._begun:  # nothing can be told behind the half of an answer
            self.peer.open_tickets -= len(open_)
            end_client(self.peer)
        else:
            for reply in open_:
                reply.send(_gone(reply.id, self.kind is Kind.HEAD))
        if self._counted is not None:
            self.peer.open_tickets -= 1
            self.peer.open_waits -= self._counted
            if not self.peer.closed:
                self.peer.write(b"")  # the loop has to look at it
        if self.kind in LOOSE and not (self.peer.closed or self.peer.leaving):
            end_client(self.peer)

    def stop(self) -> None:
        """This worker ends, and the other one perhaps. Before a WebSocket is told so, it is told
        what others have to say; a stream is ended here, and never amid an event."""
        if self.kind is Kind.FRAMES:
            self.count_as_ticket()
        elif (told := self._streamed) is not None:
            if told.endswith(_EVENT_END) and not told.endswith(_EVENT_END + _STOPPING):
                self.peer.write(_STOPPING)
            self.give_up()

    def leave(self) -> None:
        """The client is gone, or only sends no more: then it still takes what it is answered."""
        upstream = self._upstream
        if upstream is None:
            self._last_asked = True
            if self._unsent and self.peer.closed:
                self.give_up()
            elif self.kind in LOOSE:
                if self.kind is Kind.FRAMES:
                    self._unsent.append(_CLOSES)
                self.count_as_ticket()
            return
        if self.peer.closed:
            self._forwarder.loop.drop(upstream)
        else:  # when all that it has asked is sent
            self._last_asked = True
            if self.kind is Kind.FRAMES:  # what waits there, such as a call, is answered before it
                upstream.write(_CLOSES)
            if self.kind in LOOSE:
                self.count_as_ticket()
            self._forwarder.loop.output.held[upstream] = None

    def count_as_ticket(self, *, waits: bool = False) -> None:
        """The client waits until the other worker has said all. `waits`: that may take for ever, so
        it is noticed if the client does not."""
        if self._counted is None:
            self._counted = waits
            self.peer.open_tickets += 1
            self.peer.open_waits += waits


def end_client(peer: Connection) -> None:
    """It knows its answers by id, or is amid a stream or an answer: it has to come again."""
    if peer.framing is not None:
        peer.refuse(WireError(503, "a worker has ended and is starting again"))
        return
    peer.closing = peer.broken = True
    peer.write(b"")


def _gone(id: bytes, head_only: bool) -> bytes:
    id_line = b"id: %b\r\n" % id if id else b""
    return encode_reply(503, _RETRY + id_line, _GONE, head_only=head_only)
