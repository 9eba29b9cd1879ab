"""What all workers have a part in: each is asked, this one too, and one answer is made of theirs.

An answer that is no 200 is the answer to all: a token that may not do it may not do it anywhere.
"""

from __future__ import annotations

from typing import Any, Final, Protocol

import msgspec

from zbus.dialects.zbus.request.event_stream import HEARTBEAT, RETRY
from zbus.dialects.zbus.request.json_frames import encode_json
from zbus.edge.connection import Connection, Reply
from zbus.edge.places import Everywhere
from zbus.server.loop.loop import Loop
from zbus.wire.heads.head import Head
from zbus.wire.replies import encode_reply
from zbus.wire.responses import Response, ResponseReader
from zbus.workers.streams import StreamReply
from zbus.workers.upstream import Answers, Upstream
from zbus.workers.visits import end_client

_OURS: Final = frozenset((b"connection", b"cache-control", b"content-length"))
"""Lines that are written anew."""

_ENDED: Final = Response(
    503, {b"retry-after": b"1"}, b"503: a worker is starting again, or does not answer"
)
_NOTHING: Final = Response(200, {}, b"")

_PARTIAL_EVENTS: Final = 2
"""A stream in which a worker is missing ends after so many: its client comes again."""

UNANSWERED_MAX: Final = 64
"""Requests that a worker has not answered; another is refused, since it does not answer."""


class Leaver(Protocol):
    """What ends with a client."""

    def leave(self) -> None: ...


class Door(Protocol):
    """What is needed of `zbus.workers.forwarding.Forwarder`."""

    loop: Loop
    unanswered: list[int]  # of each worker

    def gathering(self, peer: Connection) -> dict[Leaver, None]:
        """What ends when the client is gone."""

    @property
    def count(self) -> int: ...

    def open_upstream(self, worker: int, peer: Connection, answers: Answers) -> Upstream | None: ...


class Gather:
    """Plan of such a request."""

    __slots__ = ("_by_id", "_close", "_door", "_head_only", "_id", "_json", "_place", "_start")

    def __init__(
        self, door: Door, place: Everywhere, head: Head, start: bytes, by_id: bool, id: bytes = b""
    ) -> None:
        """`id` is that of a request that shows no other."""
        self._id = id
        self._door = door
        self._place = place
        self._start = start
        self._by_id = by_id
        self._head_only = head.method == b"HEAD"
        self._close = not head.keep_alive
        self._json = head.json

    def run(self, peer: Connection, id: bytes, body: bytes) -> None:
        id = id or self._id
        if self._place.part:
            _Streaming(self, self._door, peer, id, self._place).ask(self._start)
            return
        if self._place.follows:
            _Following(self, self._door, peer, id).ask(self._start)
            return
        reply = Reply(peer, id, ordered=not (self._by_id or id))
        _Answers(self, self._door, reply).ask(self._start)

    def compose(self, id: bytes, responses: list[Response]) -> bytes:
        """The one answer."""
        told = [each for each in responses if each.status != 503]
        if self._place.partial and told:
            responses = [_NOTHING if each.status == 503 else each for each in responses]
        else:
            told = responses
        first = next((each for each in told if each.status != 200), told[0])
        more, body = b"", first.body
        if first.status == 200:
            more, body = self._place.merge(responses)
        fields = {name: value for name, value in first.fields.items() if name not in _OURS}
        if id and (b"id" in fields or first is _ENDED):  # the workers were not told it
            fields[b"id"] = id
        made = b"\r\n" + more
        lines = [b"%b: %b\r\n" % (n, v) for n, v in fields.items() if b"\n%b: " % n not in made]
        lines.append(more)
        head = b"".join(lines)
        if self._json:
            return encode_json(first.status, head, body)
        return encode_reply(first.status, head, body, close=self._close, head_only=self._head_only)


class _Answers:
    """Those to one request."""

    def __init__(self, gather: Gather, door: Door, reply: Reply) -> None:
        self._gather = gather
        self._door = door
        self._reply = reply
        self._came: dict[int, Response] = {}
        self._parts: list[_Part] = []
        self._leavers = door.gathering(reply.peer)

    def ask(self, start: bytes) -> None:
        door, peer = self._door, self._reply.peer
        self._leavers[self] = None
        for worker in range(door.count):
            self._parts.append(_Part(self, door, worker, peer, start))

    def came(self, worker: int, response: Response | None) -> None:
        """The answer of a worker; None = it has ended."""
        reply, door = self._reply, self._door
        if worker in self._came:
            return
        self._came[worker] = response or _ENDED
        if len(self._came) == door.count:
            self._leavers.pop(self, None)
            answers = [self._came[worker] for worker in range(door.count)]
            reply.send(self._gather.compose(reply.id, answers))

    def leave(self) -> None:
        """The client is gone, or only sends no more."""
        if self._reply.peer.closed:
            for part in self._parts:
                part.end()


class _Following:
    """The answers to one request, and all that come after them: one of the newest of each."""

    def __init__(self, gather: Gather, door: Door, peer: Connection, id: bytes) -> None:
        self._gather = gather
        self._door = door
        self._peer = peer
        self._id = id
        self._newest: dict[int, Response] = {}
        self._parts: list[_Part] = []
        peer.when_left(self._left)

    def ask(self, start: bytes) -> None:
        for worker in range(self._door.count):
            self._parts.append(_Part(self, self._door, worker, self._peer, start, follows=True))

    def came(self, worker: int, response: Response | None) -> None:
        """A worker that has ended has no topics until it is asked again, by a client that comes
        again."""
        peer = self._peer
        if peer.closed or peer.leaving or (response and peer.heartbeat is not None):
            return  # a stream has the connection for itself
        if response is None:
            end_client(peer)
            return
        self._newest[worker] = response
        if len(self._newest) == self._door.count:
            answers = [self._newest[worker] for worker in range(self._door.count)]
            peer.write(self._gather.compose(b"", answers))  # a push, the first one, too

    def _left(self, peer: Connection) -> None:
        for part in self._parts:
            part.end()


class _Streaming(_Following):
    """Streams of documents, one of them all: each is told when it comes, with what is newest of the
    others. Its own part, which is about other topics than theirs, is told as it is."""

    def __init__(
        self, gather: Gather, door: Door, peer: Connection, id: bytes, place: Everywhere
    ) -> None:
        super().__init__(gather, door, peer, id)
        self._place = place
        self._documents: dict[int, dict[str, Any]] = {}
        self._first: dict[str, Any] | None = None  # the parts of the first documents
        self._kind = b""  # of the first event
        self._head: bytes | None = None
        self._reply = StreamReply(peer, id)
        self._sent = 0
        self._absent: set[int] = set()

    def came(self, worker: int, response: Response | None) -> None:
        """A worker has no stream for this request, or has ended."""
        is_last = len(self._absent) + 1 == self._door.count
        if response is None and self._place.partial and not (self._sent or is_last):
            self._absent.add(worker)
            self._tell_first()
            return
        if self._reply.open:
            self._reply.open = False
            self._reply.send(self._gather.compose(self._id, [response or _ENDED]))
            self._left(self._peer)
        else:
            super().came(worker, None)

    def _left(self, peer: Connection) -> None:
        super()._left(peer)
        if self._head is not None:
            self._head = None
            peer.end_stream()

    def began(self, head: bytes) -> None:
        peer = self._peer
        if self._head is None and self._reply.open:
            self._head, self._reply.open = head, False
            if self._id:  # the workers were not told it
                before, _, rest = head.partition(b"\r\nid: ")
                head = b"%b\r\nid: %b\r\n%b" % (before, self._id, rest.partition(b"\r\n")[2])
            self._reply.send(head)
            peer.begin_stream(HEARTBEAT)
            peer.write(RETRY + b"\n")

    def event(self, worker: int, event: bytes) -> None:
        """One event of a worker's stream."""
        lines = dict(line.partition(b": ")[::2] for line in event.split(b"\n"))
        if b"data" not in lines or self._peer.closed:
            return
        document = msgspec.json.decode(lines[b"data"])
        part, kind = document.pop(self._place.part, None), lines.get(b"event", b"")
        self._documents[worker] = document
        if self._sent:
            self._tell(kind, part)
            return
        self._kind = kind
        if part is not None:
            self._first = {**(self._first or {}), **part}
        self._tell_first()

    def _tell_first(self) -> None:
        """Once there is a document of each worker that has one."""
        if self._documents and len(self._documents) == self._door.count - len(self._absent):
            self._tell(self._kind, self._first)

    def _tell(self, kind: bytes, part: dict[str, Any] | None) -> None:
        bodies = [msgspec.json.encode(self._documents[each]) for each in sorted(self._documents)]
        _, body = self._place.merge([Response(200, {}, body) for body in bodies])
        if part is not None:
            body = msgspec.json.encode({**msgspec.json.decode(body), self._place.part: part})
        self._peer.write(b"event: %b\nid: %d\ndata: %b\n\n" % (kind, self._sent, body))
        self._sent += 1
        if self._absent and self._sent == _PARTIAL_EVENTS:
            self._left(self._peer)


class Taker(Protocol):
    """Who takes what workers answer."""

    def came(self, worker: int, response: Response | None) -> None: ...


class _Part:
    """What one worker is asked."""

    stalled = False

    def __init__(
        self,
        answers: Taker,
        door: Door,
        worker: int,
        peer: Connection,
        start: bytes,
        *,
        follows: bool = False,
    ) -> None:
        self._answers = answers
        self._follows = follows
        self._came = b""  # of an event
        self._worker = worker
        self._loop = door.loop
        self._unanswered = door.unanswered
        self._waits = True
        self._upstream: Upstream | None = None
        door.unanswered[worker] += 1
        if door.unanswered[worker] <= UNANSWERED_MAX:
            self._upstream = door.open_upstream(worker, peer, self)
        if self._upstream is None:
            self._heard()
            answers.came(worker, None)
        else:
            self._upstream.write(start + b"\r\n")

    def _heard(self) -> None:
        """It answers, or is asked no more."""
        self._unanswered[self._worker] -= self._waits
        self._waits = False

    def answered(self, response: bytes) -> None:
        self._heard()
        found = ResponseReader().receive(response)
        self._answers.came(self._worker, found[0] if found else None)
        if not self._follows:
            self.end()

    def end(self) -> None:
        self._heard()
        upstream, self._upstream = self._upstream, None
        if upstream is not None:
            self._loop.drop(upstream)

    def begins(self, head: bytes) -> None:
        raise ValueError("another worker does not tell how long its answer is")

    def streams(self, head: bytes) -> None:
        if not isinstance(self._answers, _Streaming):
            raise ValueError("another worker does not end its answer")
        self._heard()
        self._answers.began(head)

    def more(self, data: bytes) -> None:
        *events, self._came = (self._came + data).split(b"\n\n")
        assert isinstance(self._answers, _Streaming)
        for event in events:
            self._answers.event(self._worker, event)

    def closes(self, frame: bytes) -> None:
        raise ValueError("another worker was not asked for a WebSocket")

    def drained(self) -> None:
        pass

    def ended(self) -> None:
        self._heard()
        if self._upstream is not None:
            self._upstream = None
            self._answers.came(self._worker, None)
