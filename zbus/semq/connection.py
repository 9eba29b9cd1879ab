"""One connection over which frames go: a task that reads, and one that writes.

Who sends does not wait: what is not written yet is kept, within a bound, and a peer that takes
nothing until that is reached is let go. Who reads waits for whoever handles a frame, so what comes
is bounded, too.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final

import anyio
from anyio.abc import ByteStream

from zbus.client.async_link import BROKEN, RECEIVE_BYTES
from zbus.semq.events import Frame
from zbus.semq.frames import FrameReader

OUT_BYTES_MAX: Final = 256 << 20
"""Written by nobody yet, on one connection. A window of large messages has to fit."""

_PIECE_BYTES: Final = 256 << 10
_PARTING_S: Final = 5.0
"""For what was said before the end."""

log = logging.getLogger("zbus.semq")

Handle = Callable[[Frame], Awaitable[None]]


class Connection:
    """See the module. It lasts as long as `run`."""

    def __init__(
        self, stream: ByteStream, reader: FrameReader, encode: Callable[[Frame], bytes], peer: str
    ) -> None:
        self._stream = stream
        self._reader = reader
        self._encode = encode
        self.peer = peer  # for people
        self._out: deque[bytes] = deque()
        self._out_bytes = 0
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
        try:
            data = self._encode(frame)
        except ValueError as error:
            log.error("a frame cannot be sent", extra={"peer": self.peer, "why": str(error)})
            return
        self._out.append(data)
        self._out_bytes += len(data)
        if self._out_bytes > OUT_BYTES_MAX:
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

    async def run(self, handle: Handle) -> None:
        """Until it ends, on whichever side. Nothing is handled after `close`."""
        try:
            async with anyio.create_task_group() as tasks:
                self._scope = tasks.cancel_scope
                if self._closing.is_set():
                    self._scope.deadline = anyio.current_time() + _PARTING_S
                tasks.start_soon(self._write, tasks.cancel_scope)
                await self._read(handle)
                if self._closing.is_set():
                    await anyio.sleep_forever()  # the writer ends it, or the deadline
                tasks.cancel_scope.cancel()
        finally:
            self._closing.set()
            self._scope = None
            self.ended.set()
            self._out.clear()
            await anyio.aclose_forcefully(self._stream)

    async def _read(self, handle: Handle) -> None:
        reader = self._reader
        while not self._closing.is_set():
            try:
                data = await self._stream.receive(RECEIVE_BYTES)
            except BROKEN as error:
                self.why = self.why or str(error) or "it was closed"
                if not reader.between:
                    self.why += ", amid a frame"
                return
            for frame in reader.receive(data):
                if self._closing.is_set():
                    return
                await handle(frame)
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
                    await self._stream.send(b"".join(pieces))
                except BROKEN as error:
                    self.why = self.why or str(error) or "it was closed"
                    ended.cancel()
                    return
                self._out_bytes -= size
            if self._closing.is_set():
                ended.cancel()
                return
            self._wake = anyio.Event()
            await self._wake.wait()
