"""The endpoint for applications that block: one request after the other.

    with zbus.semq.connect_blocking("semq.sock") as semq:
        semq.send("1:56001", "two chairs")
        for message in semq.take(wait_s=10):
            print(message.source, message.text)
            message.done()

(`zbus.semq.app.library` is the same for trio and asyncio, and says more.)
"""

from __future__ import annotations

import itertools
import os
import socket
from collections.abc import Iterator, Mapping
from typing import Any, Final, Self, Unpack

from zbus.client.errors import ConnectionLost, ProtocolError
from zbus.client.links.forking import Unpicklable, disown, follow_forks
from zbus.semq.app.protocol import (
    SOCKET,
    Received,
    Sent,
    WishArguments,
    Wishes,
    as_document,
    as_received,
    as_sent,
    checked,
    manage_frame,
    send_frame,
    take_frame,
)
from zbus.semq.endpoint.events import Frame
from zbus.semq.program.frames import ResponseFrames, encode_request, limits

_BODY_BYTES_MAX: Final = 1 << 30  # the endpoint says what is too large
_RECEIVE_BYTES: Final = 64 << 10


class BlockingMessage(Received):
    """A message that was taken. It is this connection's until `done`, or `back`; as the subject of
    `with`, it is done at the end, and given back if there is an error."""

    __slots__ = ("_semq",)

    def __init__(self, semq: BlockingSemq, received: Received) -> None:
        super().__init__(received.row, received.take, received.fields, received.body)
        self._semq = semq

    def done(self) -> None:
        """It is dealt with, and is never delivered again."""
        self._semq.done(self.row)

    def back(self) -> None:
        """It is there again for the next consumer."""
        self._semq.give_back(self.take)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None:
            self.done()
        else:
            self.back()


class BlockingSemq(Unpicklable):
    """A connection to an endpoint, for one thread at a time. A forked child gets a connection of
    its own when it first asks for something; what was taken before stays the parent's."""

    def __init__(self, path: str | os.PathLike[str] = SOCKET) -> None:
        """Raises ConnectionLost if there is no endpoint."""
        self._path = os.fspath(path)
        self._numbers = itertools.count(1)
        self._inherited = False
        self._connect()
        follow_forks(self)

    def _connect(self) -> None:
        self._frames: list[Frame] = []  # received, and not looked at
        self._reader = ResponseFrames(limits(_BODY_BYTES_MAX))
        self._socket = socket.socket(socket.AF_UNIX)
        try:
            self._socket.connect(self._path)
        except OSError as error:
            self._socket.close()
            why = error.strerror or error
            raise ConnectionLost(f"no endpoint at {self._path}: {why}") from None

    def forked(self, parent: int) -> None:
        """See `zbus.client.links.forking`."""
        if self._socket.fileno() >= 0:
            disown(self._socket.fileno())
            self._inherited = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """What was taken and not done is there again."""
        self._socket.close()

    def send(self, destination: str, body: bytes | str, **wishes: Unpack[WishArguments]) -> Sent:
        """As `Semq.send`."""
        return as_sent(self._ask(send_frame(destination, body, Wishes(**wishes))))

    def take_one(self, user: str = "", wait_s: float | None = None) -> BlockingMessage | None:
        """As `Semq.take_one`."""
        id = str(next(self._numbers))
        try:
            answer = self._ask(take_frame(user, wait_s), id)
        except BaseException as error:
            if not isinstance(error, Exception):  # Ctrl-C: the message is to be there again
                back = Frame({"cmd": "back", "take": id, "id": str(next(self._numbers))})
                self._socket.sendall(encode_request(back))  # the answer is passed over
            raise
        received = as_received(answer, id)
        return None if received is None else BlockingMessage(self, received)

    def take(self, user: str = "", wait_s: float | None = None) -> Iterator[BlockingMessage]:
        """One message after the other, for ever, or until nothing came for this long."""
        while (message := self.take_one(user, wait_s)) is not None:
            yield message

    def done(self, row: int) -> None:
        """The message with this number is dealt with."""
        checked(self._ask(Frame({"cmd": "done", "row": str(row)})))

    def give_back(self, take: str) -> None:
        """End a take without `done`."""
        checked(self._ask(Frame({"cmd": "back", "take": take})))

    def manage(self, command: str, fields: Mapping[str, str] | None = None) -> Any:  # noqa: ANN401
        """`stat`, `list`, `dead`, `retry` or `release`, with whatever fields these know."""
        return as_document(self._ask(manage_frame(command, fields or {})))

    def _ask(self, frame: Frame, id: str = "") -> Frame:
        if self._inherited:
            self._socket.close()
            self._connect()
            self._inherited = False
        id = id or str(next(self._numbers))
        sent = encode_request(Frame({**frame.fields, "id": id}, frame.body))
        try:
            self._socket.sendall(sent)
            while True:
                while self._frames:
                    answer = self._frames.pop(0)
                    if answer.fields.get("id") == id:
                        return answer
                if self._reader.error is not None:
                    raise ProtocolError(self._reader.error.text)
                data = self._socket.recv(_RECEIVE_BYTES)
                if not data:
                    raise ConnectionLost(f"lost the endpoint at {self._path}", unknown=True)
                self._frames += self._reader.receive(data)
        except OSError as error:
            if isinstance(error, ConnectionLost):
                raise
            why = f"lost the endpoint at {self._path}: {error.strerror or error}"
            raise ConnectionLost(why, unknown=True) from None


def connect_blocking(path: str | os.PathLike[str] = SOCKET) -> BlockingSemq:
    """The endpoint whose program listens at this Unix socket, for programs that block."""
    return BlockingSemq(path)
