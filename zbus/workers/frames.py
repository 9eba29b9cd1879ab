"""Messages of a client's WebSocket that another worker answers.

The handshake was answered here. For each worker that it asks something of, the client has a
WebSocket there, too, opened with its own handshake: so the other worker knows its token, and reads
and writes messages as it does for any client. They are passed on as they are, both ways.
"""

from __future__ import annotations

from typing import Final, Protocol

from zbus.edge.connection import Connection, Plan
from zbus.edge.websocket import Close, Frame, planned
from zbus.wire.heads.head import Head
from zbus.wire.http import Request
from zbus.wire.websocket import BINARY, CLOSE, PING, PONG, TRY_LATER, encode_close, encode_frame
from zbus.workers.upstream import Upstream

_UNMASKED: Final = b"\0\0\0\0"


def mask(frame: bytes) -> bytes:
    """A frame as a client has to send it; with these four bytes its payload stays as it is."""
    head = {126: 4, 127: 10}.get(frame[1], 2)
    return b"%b%c%b%b%b" % (frame[:1], frame[1] | 0x80, frame[2:head], _UNMASKED, frame[head:])


class FrameUpstream(Upstream):
    """A client's WebSocket to another worker."""

    __slots__ = ()

    def receive(self, data: bytes) -> None:
        self._came += data
        came = self._came
        if not self._needed:  # the handshake is not answered yet
            end = came.find(b"\r\n\r\n")
            if end < 0:
                return
            if came[9:12] == b"503":  # it does not own the shard any more
                self._answers.closes(Frame(encode_close(TRY_LATER, "a worker has ended")))
                return
            if came[9:12] != b"101":
                raise ValueError("another worker does not open a WebSocket")
            self._needed = 1
            del came[: end + 4]
        while len(came) >= 2:
            length, at = came[1], 2
            if length == 126:
                length, at = int.from_bytes(came[2:4], "big"), 4
            elif length == 127:
                length, at = int.from_bytes(came[2:10], "big"), 10
            if len(came) < at + length:
                return
            frame, kind = Frame(came[: at + length]), came[0] & 0x0F
            del came[: at + length]
            if kind <= BINARY:
                self._answers.answered(frame)
            elif kind == PING:
                self.write(mask(encode_frame(PONG, frame[at:])))
            elif kind == CLOSE:
                self._answers.closes(frame)
                return


class Passing:
    """Looks at what a client says over one WebSocket, and passes on what another worker answers."""

    __slots__ = ("_forwarder", "_handshake")

    def __init__(self, forwarder: FrameForwarder, handshake: Head) -> None:
        self._forwarder = forwarder
        self._handshake = handshake

    def __call__(self, kind: int, message: bytes, request: Request) -> Request:
        """The request itself, or one that passes the message on."""
        if kind == CLOSE:
            return planned(TakeLeave(self._forwarder)), b"", request[2]
        head = request[0]
        if head.plan is not None:  # it is known here, or no request at all
            return request
        plan = self._forwarder.plan_frame(self._handshake, head)
        if plan is None:
            return request
        if isinstance(plan, Pass):
            return planned(plan), b"", mask(encode_frame(kind, message))
        return planned(plan), request[1], request[2]


class FrameForwarder(Protocol):
    """What is needed of `zbus.workers.forwarding.Forwarder`."""

    def plan_frame(self, handshake: Head, head: Head) -> Plan | None: ...

    def see_off(self, peer: Connection) -> None: ...

    def pass_on(self, peer: Connection, worker: int, handshake: Head, frame: bytes) -> None: ...


class Pass:
    """Plan of a message that another worker answers."""

    __slots__ = ("_forwarder", "_handshake", "_worker")

    def __init__(self, forwarder: FrameForwarder, worker: int, handshake: Head) -> None:
        self._forwarder = forwarder
        self._worker = worker
        self._handshake = handshake

    def run(self, peer: Connection, id: bytes, body: bytes) -> None:
        self._forwarder.pass_on(peer, self._worker, self._handshake, body)


class TakeLeave:
    """Plan of a close frame: the other workers answer first what can be answered soon."""

    def __init__(self, forwarder: FrameForwarder) -> None:
        self._forwarder = forwarder

    def run(self, peer: Connection, id: bytes, body: bytes) -> None:
        self._forwarder.see_off(peer)
        Close().run(peer, id, body)
