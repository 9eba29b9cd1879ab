"""An HTTP endpoint that webhooks are sent to, as bad as a test wants it, in a thread of its own."""

from __future__ import annotations

import enum
import queue
import ssl
import threading
from collections.abc import Callable
from types import TracebackType
from typing import NamedTuple, Self

import trio

from tests.limits import WAIT_S

BODY_PART = 64 << 10


class Received(NamedTuple):
    """A request."""

    target: str
    head: dict[str, str]
    body: bytes
    connection: int


class Bad(enum.Enum):
    """What an endpoint may do instead of answering."""

    HANG = enum.auto()  # say nothing, and keep the connection
    RESET = enum.auto()  # close it
    STREAM = enum.auto()  # a 200 whose body never ends
    EARLY = enum.auto()  # a 200 before it has read the body, and close
    GARBAGE = enum.auto()  # what is no HTTP
    HEAD = enum.auto()  # a head that never ends
    DRIP = enum.auto()  # a byte of its head now and then


Answer = int | Bad | bytes
"""A status, or what to do, or a reply as it is."""


class Endpoint:
    """`with Endpoint(lambda received: 200) as endpoint`. The answer is asked for in its thread."""

    def __init__(
        self, answer: Callable[[Received], Answer], tls: ssl.SSLContext | None = None
    ) -> None:
        self._answer = answer
        self._tls = tls
        self._ready: queue.SimpleQueue[int] = queue.SimpleQueue()
        self.received: queue.SimpleQueue[Received] = queue.SimpleQueue()
        self.open = self.open_max = 0  # requests at once
        self._connections = 0
        self._thread = threading.Thread(target=trio.run, args=(self._run,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self.port = self._ready.get(timeout=WAIT_S)
        return self

    def __exit__(
        self, _type: type | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._token.run_sync_soon(self._scope.cancel)
        self._thread.join(WAIT_S)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/in"

    def next(self) -> Received:
        return self.received.get(timeout=WAIT_S)

    async def _run(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        with trio.CancelScope() as self._scope:
            async with trio.open_nursery() as nursery:
                listener = (await trio.open_tcp_listeners(0, host="127.0.0.1"))[0]
                self._ready.put(listener.socket.getsockname()[1])
                found = listener if self._tls is None else trio.SSLListener(listener, self._tls)
                await trio.serve_listeners(self._serve, [found], handler_nursery=nursery)

    async def _serve(self, stream: trio.abc.Stream) -> None:
        self._connections += 1
        connection, data = self._connections, b""
        try:
            while True:
                while b"\r\n\r\n" not in data:
                    part = await stream.receive_some(BODY_PART)
                    if not part:
                        return
                    data += part
                raw, _, data = data.partition(b"\r\n\r\n")
                line, *lines = raw.decode("ascii").split("\r\n")
                pairs = [one.split(": ", 1) for one in lines]
                head = {name.lower(): value for name, value in pairs}
                length = int(head["content-length"])
                early = Received(line.split(" ")[1], head, b"", connection)
                if length > 1 << 20 and self._answer(early) is Bad.EARLY:
                    self.received.put(early)
                    await stream.send_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
                    return
                while len(data) < length:
                    data += await stream.receive_some(length - len(data))
                body, data = data[:length], data[length:]
                self.open += 1
                self.open_max = max(self.open_max, self.open)
                try:
                    if not await self._reply(stream, early._replace(body=body)):
                        return
                finally:
                    self.open -= 1
        except trio.BrokenResourceError:
            pass
        finally:
            await trio.aclose_forcefully(stream)

    async def _reply(self, stream: trio.abc.Stream, received: Received) -> bool:
        """Whether the connection goes on."""
        answer = self._answer(received)
        self.received.put(received)
        match answer:
            case bytes():
                await stream.send_all(answer)
            case int():
                await stream.send_all(b"HTTP/1.1 %d X\r\ncontent-length: 2\r\n\r\nok" % answer)
                return True
            case Bad.HANG:
                await stream.receive_some(1)  # until it is closed
            case Bad.STREAM:
                await stream.send_all(b"HTTP/1.1 200 OK\r\ncontent-length: 10000000000\r\n\r\n")
                while True:
                    await stream.send_all(bytes(BODY_PART))
            case Bad.GARBAGE:
                await stream.send_all(b"\x16\x03\x01 what?\r\n\r\n")
            case Bad.HEAD:
                await stream.send_all(b"HTTP/1.1 200 OK\r\n")
                while True:
                    await stream.send_all(b"x: " + b"y" * 1_000 + b"\r\n")
            case Bad.DRIP:
                for byte in b"HTTP/1.1 200 OK\r\n":
                    await stream.send_all(bytes((byte,)))
                    await trio.sleep(0.05)
                await trio.sleep_forever()
        return False
