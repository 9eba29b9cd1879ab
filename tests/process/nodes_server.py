"""A server of three nodes behind one port, in the place of `zbus serve`: `make check-nodes`.

    python -m tests.process.nodes_server serve --port 0 --data-dir data ...

Each connection goes to a random node that lives. The messages are in the streams of the NATS
servers that `tests.process.several_nodes` started, under a name made from the data directory: who
starts it again with that directory finds them. Signals go to all nodes, and they end with this
process.
"""

from __future__ import annotations

import ctypes
import hashlib
import http.client
import os
import signal
import socket
import struct
import sys
import time
import traceback
from argparse import ArgumentParser
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Final

import trio

from tests.limits import WAIT_S
from tests.process.nats import ports_in_a_row

NODES: Final = "abc"
SHARDS: Final = 3
ENGINE, FOLDER = "TESTED_ENGINE", "TESTED_NODES"
"""Variables: the NATS servers' address without a cluster, and a folder with certificates."""

_PR_SET_PDEATHSIG: Final = 1
_START_S: Final = WAIT_S / 2
_CHUNK_BYTES: Final = 64 << 10
_RESET: Final = struct.pack("ii", 1, 0)  # linger: not at all


def _start(run: Callable[[], int]) -> int:
    """The id of a process that ends with this one."""
    if pid := os.fork():
        return pid
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    code = 70
    try:
        code = run()
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _serve(words: list[str]) -> int:
    from zbus.cli import main

    try:
        main(words)
    except SystemExit as end:
        return int(end.code or 0)
    return 0


class Server:
    """The nodes, and the port in front of them."""

    def __init__(self, data_dir: Path, options: list[str]) -> None:
        name = "t" + hashlib.sha256(str(data_dir.resolve()).encode()).hexdigest()[:12]
        self._random = Random(name + os.environ.get("EDGES_SEED", "1"))
        engine, folder = f"{os.environ[ENGINE]}{name}", os.environ[FOLDER]
        first = ports_in_a_row(len(NODES) * (1 + SHARDS))
        self._ports = list(range(first, first + len(NODES)))
        self._pids: list[int] = []
        for number, (node, port) in enumerate(zip(NODES, self._ports, strict=True)):
            relay = first + len(NODES) + number * SHARDS
            settings = {
                "node": node,
                "relay_listen": f"127.0.0.1:{relay}",
                "relay_ca_file": f"{folder}/ca.pem",
                "relay_cert_file": f"{folder}/node.pem",
            }
            words = ["serve", "--port", str(port), "--data-dir", str(data_dir / node)]
            words += ["--engine", engine, "--shards", str(SHARDS)]
            words += [word for pair in settings.items() for word in ("--set", "=".join(pair))]
            self._pids.append(_start(lambda words=words: _serve(words + options)))  # type: ignore[misc]
        self._codes: list[int] = []

    async def run(self, port: int) -> int:
        """Until all nodes have ended; the exit code of the first that failed."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._pass_signals_on)
            async with trio.open_nursery() as living:
                for pid in self._pids:
                    living.start_soon(self._reap, pid)
                nursery.start_soon(self._open, port, nursery)
            nursery.cancel_scope.cancel()
        return max(self._codes)

    async def _pass_signals_on(self) -> None:
        with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as signals:
            async for number in signals:
                for pid in self._pids:
                    os.kill(pid, number)

    async def _reap(self, pid: int) -> None:
        file = os.pidfd_open(pid)
        await trio.lowlevel.wait_readable(file)
        os.close(file)
        self._pids.remove(pid)
        _, status = os.waitpid(pid, 0)  # noqa: ASYNC222  # it has ended
        self._codes.append(os.waitstatus_to_exitcode(status))

    async def _open(self, port: int, nursery: trio.Nursery) -> None:
        deadline_s = time.monotonic() + _START_S
        for each in self._ports:
            while not await trio.to_thread.run_sync(_is_well, each, abandon_on_cancel=True):
                assert not self._codes, f"a node has ended: {self._codes}"
                assert time.monotonic() < deadline_s, "the nodes do not start"
                await trio.sleep(0.05)
        [listener] = await trio.open_tcp_listeners(port, host="127.0.0.1")
        port = listener.socket.getsockname()[1]
        print(f"zbus serves http://127.0.0.1:{port} with three nodes\ntry: it", flush=True)
        nursery.start_soon(trio.serve_listeners, self._pass_on, [listener])

    async def _pass_on(self, client: trio.SocketStream) -> None:
        ports = self._random.sample(self._ports, len(self._ports))
        server = None
        while server is None:
            if not ports:
                await client.aclose()
                return
            try:
                server = await trio.open_tcp_stream("127.0.0.1", ports.pop())
            except OSError:
                pass  # that node has ended
        async with client, server, trio.open_nursery() as nursery:
            for source, sink in ((client, server), (server, client)):
                nursery.start_soon(_copy, source, sink, nursery.cancel_scope)


async def _copy(
    source: trio.SocketStream, sink: trio.SocketStream, scope: trio.CancelScope
) -> None:
    """The end of one side is the end of the other, and of the same kind; who takes nothing is sent
    nothing."""
    try:
        while data := await source.receive_some(_CHUNK_BYTES):
            await sink.send_all(data)
        await sink.send_eof()
    except trio.BrokenResourceError:
        for stream in (source, sink):
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        scope.cancel()


def _is_well(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT_S)
    try:
        connection.request("GET", "/_health/all")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def main() -> int:
    parser = ArgumentParser()
    parser.add_argument("command", choices=["serve"])
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--data-dir", type=Path, required=True)
    options, more = parser.parse_known_args()
    return trio.run(Server(options.data_dir, more).run, options.port)


if __name__ == "__main__":
    sys.exit(main())
