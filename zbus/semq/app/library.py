"""The endpoint for applications of trio and asyncio.

    async with zbus.semq.connect("semq.sock") as semq:
        await semq.send("1:56001", "two chairs", app_key="order,doc,new,S0001")
        async for message in semq.take():
            print(message.source, message.text)
            await message.done()

When the endpoint ends, or is started again, whatever is under way raises ConnectionLost, and the
application connects anew. What it has not done by then is there again. A `send` without an answer
may have been done or not.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import AsyncIterator, Mapping
from types import TracebackType
from typing import Any, Final, Self, Unpack

import anyio
from anyio.abc import TaskGroup

from zbus.client.errors import ConnectionLost
from zbus.client.links.async_link import disown_stream
from zbus.client.links.forking import Unpicklable, follow_forks, require_own
from zbus.semq.app.protocol import (
    SOCKET,
    Happened,
    Received,
    Sent,
    WishArguments,
    Wishes,
    as_document,
    as_happened,
    as_received,
    as_sent,
    checked,
    manage_frame,
    send_frame,
    take_frame,
)
from zbus.semq.endpoint.events import Frame
from zbus.semq.program.connection import Connection
from zbus.semq.program.frames import ResponseFrames, encode_request, limits

_BODY_BYTES_MAX: Final = 1 << 30  # the endpoint says what is too large
_HAPPENED_MAX: Final = 10_000


class Message(Received):
    """A message that was taken. It is this application's until `done`, or `back`; as the subject of
    `async with`, it is done at the end, and given back if there is an error."""

    __slots__ = ("_semq",)

    def __init__(self, semq: Semq, received: Received) -> None:
        super().__init__(received.row, received.take, received.fields, received.body)
        self._semq = semq

    async def done(self) -> None:
        """It is dealt with, and is never delivered again. Raises Full if that cannot be written."""
        await self._semq.done(self.row)

    def back(self) -> None:
        """It is there again for the next consumer."""
        self._semq.give_back(self.take)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: object
    ) -> None:
        if error is None:
            await self.done()
        else:
            self.back()


class Semq(Unpicklable):
    """A connection to an endpoint. `connect` makes one; it works within `async with`."""

    def __init__(self, path: str | os.PathLike[str] = SOCKET) -> None:
        self._path = os.fspath(path)
        self._numbers = itertools.count(1)
        self._waiting: dict[str, _Waiting] = {}
        self._connection: Connection | None = None
        self._tasks: TaskGroup | None = None
        self._lost = "it was never opened"
        self._happened: list[Happened] | None = None
        self._news = anyio.Event()
        self._parent = 0  # the process that is connected, and forked this one
        follow_forks(self)

    def forked(self, parent: int) -> None:
        """A connection belongs to an event loop, which stays in the parent."""
        if self._connection is not None:
            self._parent = self._parent or parent
            disown_stream(self._connection.stream)

    async def __aenter__(self) -> Self:
        try:
            stream = await anyio.connect_unix(self._path)
        except OSError as error:
            why = error.strerror or error
            raise ConnectionLost(f"no endpoint at {self._path}: {why}") from None
        reader = ResponseFrames(limits(_BODY_BYTES_MAX))
        self._connection = Connection(stream, reader, encode_request, self._path)
        self._lost = ""
        self._tasks = anyio.create_task_group()
        await self._tasks.__aenter__()
        self._tasks.start_soon(self._run, self._connection)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._tasks is not None
        self._tasks.cancel_scope.cancel()
        await self._tasks.__aexit__(None, None, None)

    async def _run(self, connection: Connection) -> None:
        try:
            await connection.run(self._came)
        finally:
            self._lost = f"lost the endpoint at {self._path}: {connection.why or 'it is closed'}"
            for waiting in self._waiting.values():
                waiting.event.set()
            self._news.set()

    async def _came(self, frame: Frame) -> None:
        if frame.command == "happened":
            if self._happened is not None and len(self._happened) < _HAPPENED_MAX:
                self._happened.append(as_happened(frame))
                self._news.set()
            return
        waiting = self._waiting.get(frame.fields.get("id", ""))
        if waiting is not None:
            waiting.answer = frame
            waiting.event.set()

    # -- messages -----------------------------------------------------------------------------

    async def send(
        self, destination: str, body: bytes | str, **wishes: Unpack[WishArguments]
    ) -> Sent:
        """Send a message to a node (`1:56001`), a user of one (`1:56001/bob`) or a topic of the
        platform (`0:1/orders`). When this returns it is durable in this endpoint, which owes it
        from then on. `wishes` are those of `Wishes`.

        Raises BadRequest for what cannot be sent so, Full if there is no space, and ConnectionLost,
        after which it is not known whether it was sent if `unknown` is true.
        """
        return as_sent(await self._ask(send_frame(destination, body, Wishes(**wishes))))

    async def take_one(self, user: str = "", wait_s: float | None = None) -> Message | None:
        """The next message that is for `user` of this node, or for no user. Waits for this long, or
        for ever; None if nothing came."""
        id = str(next(self._numbers))
        try:
            answer = await self._ask(take_frame(user, wait_s), id)
            received = as_received(answer, id)
        except anyio.get_cancelled_exc_class():
            self.give_back(id)
            raise
        return None if received is None else Message(self, received)

    def take(self, user: str = "", wait_s: float | None = None) -> AsyncIterator[Message]:
        """One message after the other, for ever, or until nothing came for this long."""
        return _Takes(self, user, wait_s)

    async def done(self, row: int) -> None:
        """The same as `Message.done`, by the number of the message."""
        checked(await self._ask(Frame({"cmd": "done", "row": str(row)})))

    def give_back(self, take: str) -> None:
        """End a take without `done`."""
        if self._connection is not None and not self._parent:
            self._connection.send(Frame({"cmd": "back", "take": take}))

    async def watch(self) -> AsyncIterator[Happened]:
        """What becomes of sent messages from now on: `received` is the receipt of one. Events
        that come without a listener are dropped; messages that are not finished are in `list`."""
        self._happened = []
        checked(await self._ask(Frame({"cmd": "watch"})))
        return _Watched(self)

    async def next_happened(self) -> Happened:
        """The next of them."""
        while not self._happened:
            if self._happened is None:
                raise RuntimeError("nothing is told before watch()")
            if self._lost:
                raise ConnectionLost(self._lost)
            self._news = anyio.Event()
            await self._news.wait()
        return self._happened.pop(0)

    # -- the endpoint itself ------------------------------------------------------------------

    async def stat(self) -> Any:  # noqa: ANN401 - what the endpoint tells
        """How it is: links, and what waits for each destination."""
        return await self.manage("stat")

    async def list(self, **fields: str) -> Any:  # noqa: ANN401 - what the endpoint tells
        """Messages that are not finished: of the outbox, or with `box="in"` of the inbox. `node` is
        the other end, `state` the state, `count` how many at most."""
        return await self.manage("list", fields)

    async def retry(self, **fields: str) -> Any:  # noqa: ANN401 - what the endpoint tells
        """What waits is sent, or asked for, now: all, what is for a `node`, or one `row`."""
        return await self.manage("retry", fields)

    async def release(self, node: str) -> Any:  # noqa: ANN401 - what the endpoint tells
        """Ordered messages from a node wait no more for what is missing before them."""
        return await self.manage("release", {"node": node})

    async def dead(self, **fields: str) -> Any:  # noqa: ANN401 - what the endpoint tells
        """Messages that could not be delivered, and why; `count` is how many at most."""
        return await self.manage("dead", fields)

    async def manage(self, command: str, fields: Mapping[str, str] | None = None) -> Any:  # noqa: ANN401
        """`stat`, `list`, `dead`, `retry` or `release`, with whatever fields these know."""
        return as_document(await self._ask(manage_frame(command, fields or {})))

    # -- the connection -----------------------------------------------------------------------

    async def _ask(self, frame: Frame, id: str = "") -> Frame:
        """The answer. Raises ConnectionLost, ValueError for what cannot be said."""
        require_own("connection", self._parent)
        connection = self._connection
        if self._lost or connection is None:
            raise ConnectionLost(self._lost)
        id = id or str(next(self._numbers))
        frame = Frame({**frame.fields, "id": id}, frame.body)
        encode_request(frame)  # so that the caller is told, not the writer
        waiting = self._waiting[id] = _Waiting()
        connection.send(frame)
        try:
            await waiting.event.wait()
        finally:
            del self._waiting[id]
        if waiting.answer is None:
            raise ConnectionLost(self._lost, unknown=True)
        return waiting.answer


class _Takes(AsyncIterator[Message]):
    """A loop over messages. It holds nothing, so it may be left at any time."""

    def __init__(self, semq: Semq, user: str, wait_s: float | None) -> None:
        self._semq = semq
        self._wanted = user, wait_s

    async def __anext__(self) -> Message:
        message = await self._semq.take_one(*self._wanted)
        if message is None:
            raise StopAsyncIteration
        return message


class _Watched(AsyncIterator[Happened]):
    """A loop over what happens."""

    def __init__(self, semq: Semq) -> None:
        self._semq = semq

    async def __anext__(self) -> Happened:
        return await self._semq.next_happened()


class _Waiting:
    """For an answer."""

    def __init__(self) -> None:
        self.event = anyio.Event()
        self.answer: Frame | None = None


def connect(path: str | os.PathLike[str] = SOCKET) -> Semq:
    """The endpoint whose program listens at this Unix socket, for trio and asyncio."""
    return Semq(path)
