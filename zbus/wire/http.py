"""The bytes of one connection, cut into requests.

Nearly always a receive brings exactly one whole request, or several; then nothing is stored and
no state changes. Only a request that is not complete yet is kept: half a head as a `bytearray`,
a head whose body is under way as a `_Pending`. An idle connection holds neither.

Whatever way the bytes are split, the outcome is the same, and the work is linear in their number:
a half head is searched only where it grew, a body is appended to, a burst of requests is walked
with an index.
"""

from __future__ import annotations

import re
from typing import Any, Literal

from zbus.wire.bodies.body import Body
from zbus.wire.bodies.budget import Budget
from zbus.wire.bodies.chunks import ChunkedBody
from zbus.wire.errors import BAD_LINE_END, WireError
from zbus.wire.heads.bare_lf import check_handshake, find_handshake, may_be_handshake
from zbus.wire.heads.fields import TOKEN
from zbus.wire.heads.head import Head, Request
from zbus.wire.heads.heads import Heads
from zbus.wire.heads.shapes import Shape, used_last
from zbus.wire.limits import WireLimits

__all__ = ["HttpReader", "Request"]

_HEAD_END = b"\r\n\r\n"
_BARE_LF = re.compile(rb"(?<!\r)\n")
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_REQUESTS_PER_STEP = 100
_MISSES_MAX = 8  # heads in a row that have none of the shapes that are tried first
_WORK_PER_STEP = 200


class _LengthBody(Body):
    """A body with a known length on its way in; like `ChunkedBody`."""

    __slots__ = ("_missing", "finished", "spent")

    def __init__(self, length: int) -> None:
        super().__init__()
        self._missing = length
        self.spent = 0
        self.finished = False

    def feed(self, data: bytes, at: int) -> int:
        piece = data[at : at + self._missing]
        self.add(piece)
        self._missing -= len(piece)
        self.finished = not self._missing
        return at + len(piece)


class _Pending:
    """A request whose body has not arrived completely."""

    __slots__ = ("body", "given", "head", "held_bytes")

    def __init__(self, head: Head, given: Any, body: _LengthBody | ChunkedBody) -> None:  # noqa: ANN401
        self.held_bytes = 0  # counted in the budget
        self.head = head
        self.given = given  # as in a request
        self.body = body

    @property
    def id(self) -> bytes:
        """The request's."""
        id: bytes = self.head.id_of(self.given) if type(self.head) is Shape else self.given
        return id


class HttpReader:
    """Feed it what a connection received; it gives back complete requests in order."""

    __slots__ = (
        "_blank",
        "_budget",
        "_heads",
        "_idle",
        "_limits",
        "_misses",
        "_pending",
        "_rest",
        "_shapes",
        "_unread",
        "behind",
        "came_bytes",
        "done",
        "error",
        "interim",
        "more",
        "refused",
        "spent",
    )

    def __init__(self, heads: Heads, limits: WireLimits, budget: Budget | None = None) -> None:
        """`budget` is what all connections' unfinished bodies share."""
        self._budget = budget
        self._heads = heads
        self._limits = limits
        self._idle = True  # at a clean boundary between requests
        self._blank = False  # an empty line came before the next request line
        self._rest: bytearray | None = None  # the beginning of a head
        self._pending: _Pending | None = None
        self._shapes: tuple[Shape, ...] = ()
        self._misses = 0
        self._unread = b""  # came, and is for the next step
        # Work that the requests themselves do not show, in units of about a microsecond: its
        # reader sets it to 0.
        self.spent = 0
        self.came_bytes = 0  # of requests that came in parts
        self.more = False  # there is something unread
        self.done = False  # a request after which no other is read was returned
        self.behind: bytes | None = None  # what came after it, if it may change the protocol
        self.error: WireError | None = None  # the stream broke after the requests returned
        self.refused: Head | None = None  # whose body is too long: the error is about it
        self.interim = b""  # to be sent now, before any body can come; the caller clears it

    def receive(self, data: bytes) -> list[Request]:
        """Take received bytes; return the requests they complete. The list stays as it is: the same
        bytes may bring it again, to any reader.

        One call does a step of bounded work. If `more` is set then, the next call goes on."""
        if not self._idle:
            return self._go_on(data)
        heads = self._heads
        if len(data) in heads.sizes:
            known = heads.receives.get(data)
            if known is not None:
                return known
        for shape in self._shapes:
            found = shape.match(data)
            if found is not None:
                end = found.end()
                length = int(found[shape.length_at]) if shape.length_at else shape.content_length
                if end + length != len(data) or end > shape.bytes_max:
                    break
                if length > self._limits.body_bytes_max:
                    break
                self._misses = 0
                return [(shape, found, data[end:])]
        raw, ended, body = data.partition(_HEAD_END)
        if ended:
            try:
                head, id_ = heads.read(raw, True)
            except WireError:
                pass  # comes up again below, where it is recorded
            else:
                if self._shapes or type(head) is Shape:
                    length = self._note(head, id_)
                else:
                    length = head.content_length
                if length == len(body) <= self._limits.body_bytes_max and head.direct:
                    requests = [(head, id_, body)]
                    if not (length or id_):
                        heads.remember(data, requests)
                    return requests
        requests = self._go_on(data)
        if self._idle:
            heads.remember(data, requests)
        return requests

    def _go_on(self, data: bytes) -> list[Request]:
        """Take what begins or ends amid a request, holds several, or is wrong."""
        requests: list[Request] = []
        self.spent += len(data) >> 9
        self.came_bytes += len(data)
        if self.more:
            data, self._unread, self.more = self._unread + data, b"", False
        if self.done or self.error is not None:
            if self.behind is not None:
                self.behind += data
            return requests
        try:
            self._walk(data, requests)
        except WireError as error:
            self.error = error.bare()
            if self._pending is not None:
                self.error.id = self._pending.id
                if error.status == 413:
                    self.refused = self._pending.head
            self.close()
        self._idle = not (
            self.done
            or self._blank
            or self._rest
            or self._pending
            or self.more
            or self.error is not None
        )
        return requests

    def waiting_for(self) -> Literal["nothing", "head", "body"]:
        """What the peer has begun and owes us the rest of, for timeouts."""
        if self._pending is not None:
            return "body"
        return "nothing" if self._rest is None else "head"

    @property
    def bounds(self) -> tuple[WireLimits, Budget | None]:
        """The limits of a request, and what the bodies of all connections share."""
        return self._limits, self._budget

    def close(self) -> None:
        """No more comes: what is not complete is dropped."""
        pending, self._pending = self._pending, None
        self._rest, self._unread, self.more = None, b"", False
        if pending is not None and self._budget is not None:
            self._budget.give_back(pending.held_bytes)

    def _walk(self, data: bytes, requests: list[Request]) -> None:
        if self._rest is not None:
            data = self._grown(self._rest, data)
        at, heads = 0, self._heads
        enough = heads.spent + self.spent + _WORK_PER_STEP
        while at < len(data) and not self.done:
            if len(requests) >= _REQUESTS_PER_STEP or heads.spent + self.spent >= enough:
                self._unread, self.more = data[at:], True
                return
            pending = self._pending
            if pending is None:
                began = at
                if self._shapes:
                    at = self._take_shaped(data, at, requests)
                if at == began:
                    at = self._begin(data, at, requests)
            else:
                at = pending.body.feed(data, at)
                self.spent += pending.body.spent
                pending.body.spent = 0
                if self._budget is not None:
                    self._hold(pending, self._budget)
                if pending.body.finished:
                    self._pending = None
                    if self._budget is not None:
                        self._budget.give_back(pending.held_bytes)
                    self._finish(pending.head, pending.given, bytes(pending.body.data), requests)
        if self.done and requests[-1][0].websocket:
            self.behind = data[at:]

    def _take_shaped(self, data: bytes, at: int, requests: list[Request]) -> int:
        """Take the requests that begin here, as long as their heads are of shapes that this
        connection used last; return where another begins, or the rest of a body."""
        size, length_max = len(data), self._limits.body_bytes_max
        room = _REQUESTS_PER_STEP - len(requests)
        while at < size and room > 0:
            for shape in self._shapes:
                found = shape.match(data, at)
                if found is not None:
                    break
            else:
                break
            end = found.end()
            stop = end + (int(found[shape.length_at]) if shape.length_at else shape.content_length)
            if stop - end > length_max or end - at > shape.bytes_max:
                break
            self._misses, self._blank = 0, False
            if stop > size:
                # The match of a copy: it is not to hold all that has come.
                body = _LengthBody(stop - end)
                self._pending = _Pending(shape, shape.match(data[at:end]), body)
                return end
            requests.append((shape, found, data[end:stop]))
            at = stop
            room -= 1
        return at

    def _begin(self, data: bytes, at: int, requests: list[Request]) -> int:
        """Read the head that begins here, and its body if that is here too; return the end."""
        end = data.find(_HEAD_END, at)
        if end < 0:
            return self._begin_oddly(data, at, requests) or self._keep_rest(data, at)
        raw = data[at:end]
        try:
            head, id_ = self._heads.read(raw, True)
        except WireError:
            after = self._begin_oddly(data, at, requests)
            if not after:
                raise
            return after
        self._blank = False
        end += 4
        if self._shapes or type(head) is Shape:
            length = self._note(head, id_)
        else:
            length = head.content_length
        if length > self._limits.body_bytes_max:
            if type(head) is Shape:  # what is refused is looked at
                head, id_ = self._heads.read(raw)
            self.refused = head
            raise WireError(413, f"the body is over {self._limits.body_bytes_max} bytes", id_)
        if not head.chunked and end + length <= len(data):
            self._finish(head, id_, data[end : end + length], requests)
            return end + length
        body = ChunkedBody(self._limits) if head.chunked else _LengthBody(length)
        self._pending = _Pending(head, id_, body)
        if head.expects_continue and end == len(data):
            self.interim = _CONTINUE
        return end

    def _note(self, head: Head, given: Any) -> int:  # noqa: ANN401
        """This head was none of the shapes that are tried first. Returns the length of the body."""
        if type(head) is Shape:
            self._shapes, self._misses = used_last(head, self._shapes), 0
            return head.length_of(given)
        if self._shapes:
            self._misses += 1
            if self._misses > _MISSES_MAX:  # what comes now has no values that differ
                self._shapes, self._misses = (), 0
        return head.content_length

    def _begin_oddly(self, data: bytes, at: int, requests: list[Request]) -> int:
        """Take what no head begins with, an empty line, or has in it, bare line feeds; return the
        end, or 0 if it is neither."""
        if data.startswith(b"\r\n", at):
            if self._blank:
                raise WireError(400, "only one empty line may precede a request")
            self._blank = True  # old clients send one after a body (RFC 9112, section 2.2)
            return at + 2
        handshake = find_handshake(data, at)
        if not handshake:
            return 0
        head, id_ = self._heads.read(handshake.replace(b"\n", b"\r\n"))
        check_handshake(head)
        self._blank = False
        self._finish(head, id_, b"", requests)
        return at + len(handshake) + 2

    def _keep_rest(self, data: bytes, at: int) -> int:
        """Keep the beginning of a head."""
        self._rest = bytearray(data[at:])
        if self._check_rest(self._rest, 0):
            raise WireError(400, BAD_LINE_END)
        return len(data)

    def _hold(self, pending: _Pending, budget: Budget) -> None:
        """Count what the body takes by now."""
        taken = pending.body.taken
        if not budget.take(taken - pending.held_bytes):
            raise WireError(503, "request bodies in transit use all their memory; retry in 1 s")
        pending.held_bytes = taken

    def _finish(self, head: Head, given: Any, body: bytes, requests: list[Request]) -> None:  # noqa: ANN401
        requests.append((head, given, body))
        self.done = not head.keep_alive

    def _grown(self, rest: bytearray, data: bytes) -> bytes:
        """Put half a head and what came now together; b"" while the head is not complete."""
        if len(rest) < 4:  # may be half of an empty line, and is as good as new
            self._rest = None
            return bytes(rest) + data
        searched = len(rest) - 3
        rest += data
        if rest.find(_HEAD_END, searched) < 0 and not self._check_rest(rest, searched):
            return b""
        self._rest = None
        return bytes(rest)

    def _check_rest(self, rest: bytearray, searched: int) -> bool:
        """Refuse what can no longer become a head; tell whether it may be a bare-LF handshake.

        The limits are those of the judge, so that a split cannot change the verdict: an end of
        line or of head that is not here yet may still begin within the last bytes.
        """
        limits = self._limits
        if rest[0] not in TOKEN and rest != b"\r":
            raise WireError(400, "a request must begin with a method")
        line_max = limits.line_bytes_max
        crosses = searched + 2 <= line_max < len(rest) - 1  # only now it can have become too long
        if crosses and rest.find(b"\r\n", 0, line_max + 2) < 0:
            raise WireError(414, f"the request line is over {line_max} bytes")
        if len(rest) - 3 > limits.head_bytes_max:
            raise WireError(431, f"the request head is over {limits.head_bytes_max} bytes")
        if _BARE_LF.search(rest, searched):
            if rest.find(b"\n\n", searched) >= 0:
                return True
            if not may_be_handshake(rest):
                raise WireError(400, BAD_LINE_END)
        return False
