"""One connection over which frames go: a task that reads, and one that writes.

Who sends does not wait: what is not written yet is kept, and a peer that leaves much of it there
and takes nothing is let go. The reader waits until a frame is handled, so the input is bounded.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final

import anyio
from anyio.abc import ByteStream

from zbus.client.links.async_link import BROKEN, RECEIVE_BYTES
from zbus.semq.endpoint.events import Frame
from zbus.semq.program.frames import FrameReader

OUT_BYTES_MAX: Final = 64 << 20
"""Not taken yet by the peer: with more, it has to take something now and then."""

STALL_S: Final = 30.0
"""Now and then."""

HEARD_S: Final = 10.0
"""A large frame that is on its way for this long is a sign of life, before it is complete."""

_PIECE_BYTES: Final = 256 << 10
_PARTING_S: Final = 5.0
"""For what was said before the end."""

log = logging.getLogger("zbus.semq")

Handle = Callable[[Frame], Awaitable[None]]


class Connection:
    """It lasts as long as `run`."""

    def __init__(
        self, stream: ByteStream, reader: FrameReader, encode: Callable[[Frame], bytes], peer: str
    ) -> None:
        self.stream = stream
        self._reader = reader
        self._encode = encode
        self.peer = peer  # for people
        self._out: deque[bytes] = deque()
        self._out_bytes = 0
        self._taken_s = anyio.current_time()  # the last time that the peer took something
        self._wake = anyio.Event()
        self._closing = anyio.Event()
        self.ended = anyio.Event()
        self._scope: anyio.CancelScope | None = None
        self.why = ""  # it ended, or is going to

    @property
    def closing(self) -> bool:
        """Nothing that comes is of interest any more."""
        return self._closing.is_set()

    def send(self, frame: Frame) -> None:
        """Write it as soon as it can be; when the connection breaks first, it is lost."""
        if self._closing.is_set():
            return
        if not self._out_bytes:
            self._taken_s = anyio.current_time()
        try:
            data = self._encode(frame)
        except ValueError as error:
            log.error("a frame cannot be sent", extra={"peer": self.peer, "why": str(error)})
            return
        self._out.append(data)
        self._out_bytes += len(data)
        late_s = anyio.current_time() - self._taken_s
        if self._out_bytes > OUT_BYTES_MAX and late_s > STALL_S:
            self._out.clear()
            self.close("it takes nothing")
        self._wake.set()

    def close(self, why: str) -> None:
        """End it, when what was sent before is written."""
        if not self._closing.is_set():
            self._closing.set()
            self.why = why
            self._wake.set()
            if self._scope is not None:
                self._scope.deadline = anyio.current_time() + _PARTING_S

    async def run(self, handle: Handle, alive: Frame | None = None) -> None:
        """Until it ends, on whichever side. Nothing is handled after `close`. While a large frame
        is on its way, `alive` is handled now and then."""
        try:
            async with anyio.create_task_group() as tasks:
                self._scope = tasks.cancel_scope
                if self._closing.is_set():
                    self._scope.deadline = anyio.current_time() + _PARTING_S
                tasks.start_soon(self._write, tasks.cancel_scope)
                await self._read(handle, alive)
                if self._closing.is_set():
                    await anyio.sleep_forever()  # the writer ends it, or the deadline
                tasks.cancel_scope.cancel()
        finally:
            self._closing.set()
            self._scope = None
            self.ended.set()
            self._out.clear()
            await anyio.aclose_forcefully(self.stream)

    async def _read(self, handle: Handle, alive: Frame | None) -> None:
        reader = self._reader
        handled_s = anyio.current_time()
        while not self._closing.is_set():
            try:
                data = await self.stream.receive(RECEIVE_BYTES)
            except BROKEN as error:
                self.why = self.why or str(error) or "it was closed"
                if not reader.between:
                    self.why += ", amid a frame"
                return
            frames = reader.receive(data)
            now_s = anyio.current_time()
            if not frames and alive is not None and now_s - handled_s >= HEARD_S:
                frames = [alive]
            for frame in frames:
                if self._closing.is_set():
                    return
                await handle(frame)
                handled_s = now_s
            if reader.error is not None:
                self.close(f"what came is no frame: {reader.error.text}")
                log.warning("bad bytes", extra={"peer": self.peer, "why": reader.error.text})

    async def _write(self, ended: anyio.CancelScope) -> None:
        """As much at once as a little piece has, so that small frames share system calls."""
        while True:
            while self._out:
                pieces = [self._out.popleft()]
                size = len(pieces[0])
                while self._out and size < _PIECE_BYTES:
                    pieces.append(self._out.popleft())
                    size += len(pieces[-1])
                try:
                    await self.stream.send(b"".join(pieces))
                except BROKEN as error:
                    self.why = self.why or str(error) or "it was closed"
                    ended.cancel()
                    return
                self._out_bytes -= size
                self._taken_s = anyio.current_time()
            if self._closing.is_set():
                ended.cancel()
                return
            self._wake = anyio.Event()
            await self._wake.wait()
