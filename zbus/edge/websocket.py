"""A connection that goes on as a WebSocket: each message is one request, each reply is one message.

The handshake exchanges the peer's reader. From then on what is read are messages, of which the
codec of the dialect makes requests; and what is written, always one whole reply at a time, is made
a frame. Everything between, plans, tickets and limits, is as on a plain connection, except that the
connection belongs to one dialect.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, Protocol

from zbus.edge.connection import Connection, Plan, Planner, Reply
from zbus.wire.bodies.budget import Budget
from zbus.wire.errors import WireError
from zbus.wire.heads.head import Head, make_head
from zbus.wire.heads.shapes import Shape
from zbus.wire.http import HttpReader, Request
from zbus.wire.limits import WireLimits
from zbus.wire.replies import encode_reply
from zbus.wire.websocket import (
    BINARY,
    CLOSE,
    PING,
    POLICY,
    PONG,
    TOO_BIG,
    TRY_LATER,
    VERSION_LINE,
    WebSocketReader,
    accept_handshake,
    encode_close,
    encode_frame,
)

_CODES = {408: POLICY, 413: TOO_BIG, 503: TRY_LATER}
"""What the server notices about any connection, as the code of a close frame."""

_READ_COST = 5
"""Of making a request of a message, and 1 more for each KiB; in microseconds, about."""


class Frame(bytes):
    """Written as it is."""

    __slots__ = ()


class Handshake(bytes):
    """The 101: what is written after it is framed."""

    __slots__ = ()


class Codec(Protocol):
    """Makes requests of what comes on one WebSocket."""

    def read(self, kind: int, message: bytes) -> Request:
        """The request of a message, TEXT or BINARY. Its head is `contained`, and remembered by this
        dialect alone: the plan that is kept on it is the dialect's.

        Raises WireError with the code of a close frame, if it is none."""

    def encode(self, message: bytes) -> bytes:
        """A whole reply as one frame."""


Passing = Callable[[int, bytes, Request], Request]
"""Given a message and its request: another request, if it is not to be done here."""

Admit = Callable[[Connection], str]
"""Asks whether a connection may open; returns why not, or ""."""


def plan_upgrade(
    head: Head, planner: Planner, open_codec: Callable[[], Codec], admit: Admit, any_key: bool
) -> Plan:
    """A handshake is done, or refused and the connection closed."""
    try:
        return Upgrade(accept_handshake(head, any_key), planner, open_codec, admit)
    except WireError as error:
        return RefuseUpgrade(error.status, str(error))


class Upgrade:
    """Plan of a handshake."""

    def __init__(
        self, answer: bytes, planner: Planner, open_codec: Callable[[], Codec], admit: Admit
    ) -> None:
        self._answer = answer
        self._planner = planner
        self._open_codec = open_codec
        self._admit = admit
        self.passing: Passing | None = None

    def run(self, peer: Connection, id: bytes, body: bytes) -> None:
        refused = self._admit(peer)
        if refused:
            RefuseUpgrade(403, f"403: {refused}").run(peer, id, body)
            return
        http = peer.reader
        assert isinstance(http, HttpReader)
        limits, budget = http.bounds
        bytes_max = limits.head_bytes_max + 4 + limits.body_bytes_max
        reader = WebSocketReader(bytes_max, budget)
        socket = WebSocket(reader, self._open_codec(), limits, budget, self.passing)
        peer.reader = peer.framing = socket
        peer.planner = self._planner
        peer.multiplexed = True
        reply = Reply(peer, b"", ordered=True)
        assert peer.turns is not None
        if peer.turns[0] is not reply:
            socket.hold(peer)
        reply.send(Handshake(self._answer))
        if http.behind:
            peer.receive(http.behind)


class RefuseUpgrade:
    """Plan of a handshake that is none, of another version, or without a good token."""

    def __init__(self, status: int, text: str) -> None:
        lines = b"content-type: text/plain\r\n"
        if status != 403:
            lines += VERSION_LINE
        self._answer = encode_reply(status, lines, text.encode(), close=True)

    def run(self, peer: Connection, id: bytes, body: bytes) -> None:
        Reply(peer, b"", ordered=True).send(self._answer)


class WebSocket:
    """The reader of a peer after the handshake, and the framing of what it is sent."""

    __slots__ = (
        "_held",
        "_limits",
        "_passing",
        "_reader",
        "begun",
        "bounds",
        "came_bytes",
        "codec",
        "error",
        "more",
        "refused",
        "spent",
    )

    interim = b""
    done = False

    def __init__(
        self,
        reader: WebSocketReader,
        codec: Codec,
        limits: WireLimits,
        budget: Budget | None = None,
        passing: Passing | None = None,
    ) -> None:
        self._reader = reader
        self._passing = passing  # of a worker among several
        self.bounds = limits, budget
        self.codec = codec
        self._limits = limits
        self.begun = False  # the 101 is out
        self._held = 0  # bytes that count as held by the peer until it is
        self.error: WireError | None = None
        self.more = False  # bytes came that were not looked at: `receive(b"")` goes on with them
        self.came_bytes = 0
        self.spent = 0  # work, in units of about a microsecond; the owner sets it to 0
        self.refused: Head | None = None

    # -- as a reader ----------------------------------------------------------------------

    def receive(self, data: bytes) -> list[Request]:
        """Take received bytes; return the requests they complete, pongs and closing included, as
        far as one step goes."""
        requests: list[Request] = []
        if self.error is not None:
            return requests
        self.came_bytes += len(data)
        reader = self._reader
        try:
            for kind, payload in reader.receive(data):
                if kind <= BINARY:
                    requests.append(self._read(kind, payload))
                elif kind == PING:
                    requests.append((_PONG, b"", payload))
                else:
                    last = _CLOSE, b"", payload
                    requests.append(
                        last if self._passing is None else self._passing(kind, b"", last)
                    )
        except WireError as error:
            self.error = error.bare()  # without what the traceback holds
            reader.close()
        else:
            self.error = reader.error
        self.more = reader.more
        self.spent += reader.spent
        reader.spent = 0
        return requests

    def waiting_for(self) -> Literal["nothing", "head", "body"]:
        return "body" if self._reader.midway else "nothing"

    def close(self) -> None:
        self._reader.close()
        self.more = False

    def _read(self, kind: int, message: bytes) -> Request:
        self.spent += _READ_COST + (len(message) >> 10)
        request = self.codec.read(kind, message)
        if len(request[2]) > self._limits.body_bytes_max:
            self.refused = request[0]
            text = f"a body has at most {self._limits.body_bytes_max} bytes"
            head, given, _ = request
            raise WireError(TOO_BIG, text, head.id_of(given) if type(head) is Shape else given)
        return request if self._passing is None else self._passing(kind, message, request)

    # -- as a framing ---------------------------------------------------------------------

    def hold(self, peer: Connection) -> None:
        """Do nothing for this peer before its handshake is answered: others are before it."""
        self._held = peer.out_bytes_max + 1
        peer.held_bytes += self._held

    def wrap(self, peer: Connection, message: bytes) -> bytes:
        """A whole reply as a frame; before the 101 is out, as it is."""
        if self.begun:
            framed = message and type(message) is not Frame
            return self.codec.encode(message) if framed else message
        if type(message) is Handshake:
            self.begun = True
            peer.held_bytes -= self._held
        return message

    def ping(self) -> bytes:
        return Frame(encode_frame(PING, b""))

    def farewell(self, error: WireError) -> bytes:
        """The last words to a peer, with the code that fits."""
        code = error.status if error.status >= 1000 else _CODES.get(error.status, POLICY)
        return Frame(encode_close(code, error.text))


# -- what is no request -------------------------------------------------------------------------


class Pong:
    """Plan of a ping."""

    def run(self, peer: Connection, id: bytes, body: bytes) -> None:
        peer.write(Frame(encode_frame(PONG, body)))


class Close:
    """Plan of a close frame: it is answered with the same code after what can be answered soon."""

    def run(self, peer: Connection, id: bytes, body: bytes) -> None:
        peer.take_leave(Frame(encode_frame(CLOSE, body[:2])))


def planned(plan: Plan) -> Head:
    """The head of a request that was not read from any, and is done by this plan."""
    head = make_head((b"POST", b"/", True), {}, False)
    head.plan = plan
    return head


_PONG = planned(Pong())
_CLOSE = planned(Close())
