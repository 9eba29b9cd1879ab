"""TCP proxies in a process of their own, whose connections can be cut, silenced or delayed.

    with TcpProxies({"a": 4222}) as proxies:
        connect(proxies.ports["a"])
        proxies.set("silent", ["a"])

The process reads what it is to do from its standard input, and ends with it.
"""

from __future__ import annotations

import functools
import subprocess
import sys
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Final, Self

import trio

from tests import forked
from tests.process.nats import free_ports
from tests.process.networks import LOOPBACK

DELAY_S: Final = 0.2
HOW: Final = ("pass", "delay", "silent", "cut")
"""`delay`: each byte comes later. `silent`: bytes wait until they may pass. `cut`: connections are
closed, and new ones at once."""

_CHUNK_BYTES: Final = 64 << 10
_CHUNKS_MAX: Final = 1_000


class TcpProxies:
    """See above. `targets` are ports of this machine, by name. `host` is another address of it at
    which the proxies listen, too."""

    def __init__(self, targets: Mapping[str, int], host: str = LOOPBACK) -> None:
        self.ports = dict(zip(targets, free_ports(len(targets)), strict=True))
        command = [sys.executable, "-m", "tests.process.tcp_proxies", host]
        command += [f"{name}:{self.ports[name]}:{target}" for name, target in targets.items()]
        pipe = subprocess.PIPE
        self._process = forked.Popen[bytes](command, stdin=pipe, stdout=pipe)
        assert self._process.stdout is not None
        self._process.stdout.readline()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.communicate()

    def set(self, how: str, names: Iterable[str]) -> None:
        """What becomes of these proxies' connections from now on."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{how} {' '.join(names)}\n".encode())
        self._process.stdin.flush()


class _Proxy:
    """One port, in the process of the proxies."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._how = "pass"
        self._may_pass = trio.Event()
        self._may_pass.set()
        self._connections: set[trio.CancelScope] = set()

    def set(self, how: str) -> None:
        self._how = how
        if how == "silent":
            self._may_pass = trio.Event()
        else:
            self._may_pass.set()
        if how == "cut":
            for scope in self._connections:
                scope.cancel()

    async def serve(self, client: trio.SocketStream) -> None:
        if self._how == "cut":
            return
        with trio.CancelScope() as scope:
            self._connections.add(scope)
            try:
                server = await trio.open_tcp_stream(LOOPBACK, self._target)
                async with server, trio.open_nursery() as nursery:
                    for source, sink in ((client, server), (server, client)):
                        send, receive = trio.open_memory_channel[tuple[float, bytes]](_CHUNKS_MAX)
                        nursery.start_soon(self._receive, source, send, scope)
                        nursery.start_soon(self._send, sink, receive, scope)
            except OSError:
                pass  # nothing listens there
            finally:
                self._connections.discard(scope)

    async def _receive(
        self,
        source: trio.SocketStream,
        chunks: trio.MemorySendChannel[tuple[float, bytes]],
        scope: trio.CancelScope,
    ) -> None:
        try:
            while data := await source.receive_some(_CHUNK_BYTES):
                late_s = DELAY_S if self._how == "delay" else 0.0
                await chunks.send((trio.current_time() + late_s, data))
        except trio.BrokenResourceError:
            pass
        await self._may_pass.wait()  # who is silent does not say that it is gone either
        scope.cancel()

    async def _send(
        self,
        sink: trio.SocketStream,
        chunks: trio.MemoryReceiveChannel[tuple[float, bytes]],
        scope: trio.CancelScope,
    ) -> None:
        try:
            async for due_s, data in chunks:
                await trio.sleep_until(due_s)
                await self._may_pass.wait()
                await sink.send_all(data)
        except trio.BrokenResourceError:
            scope.cancel()


async def _serve(*words: str) -> None:
    host, *descriptions = words
    proxies: dict[str, _Proxy] = {}
    async with trio.open_nursery() as nursery:
        for description in descriptions:
            name, port, target = description.split(":")
            proxies[name] = _Proxy(int(target))
            for address in {LOOPBACK, host}:
                listen = functools.partial(trio.serve_tcp, host=address)
                await nursery.start(listen, proxies[name].serve, int(port))
        print("ready", flush=True)
        left = b""
        async with trio.lowlevel.FdStream(sys.stdin.fileno()) as commands:
            async for data in commands:
                *lines, left = (left + data).split(b"\n")
                for line in lines:
                    how, *names = line.decode().split()
                    for name in names:
                        proxies[name].set(how)
        nursery.cancel_scope.cancel()


if __name__ == "__main__":
    trio.run(_serve, *sys.argv[1:])
