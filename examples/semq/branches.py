"""A head office and three branches exchange orders, through outages of everything between them.

    python examples/semq/branches.py [ORDERS]

The head office sends orders to each branch, and each branch confirms each order. Meanwhile the line
of one branch is cut, the machine of another is switched off, and the broker is killed. Each party
only sends, takes and says done; the endpoints beside them do the rest.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import trio

import zbus.semq
from zbus.client.errors import ConnectionLost

HEAD, BRANCHES = "1:1", ("1:11", "1:12", "1:13")


class Program:
    """One of this computer's programs: the broker, or an endpoint."""

    def __init__(self, *arguments: str) -> None:
        self.command = [sys.executable, "-m", "zbus", *arguments]
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(self.command, stdout=subprocess.DEVNULL)

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


class Line:
    """The line between an endpoint and the broker, which can be cut."""

    def __init__(self, broker_port: int) -> None:
        self.broker_port = broker_port
        self.cut = False
        self.scopes: set[trio.CancelScope] = set()

    async def carry(self, near: trio.SocketStream) -> None:
        if self.cut:
            return
        with trio.CancelScope() as scope:
            self.scopes.add(scope)
            try:
                far = await trio.open_tcp_stream("127.0.0.1", self.broker_port)
                async with far, trio.open_nursery() as nursery:
                    for source, target in ((near, far), (far, near)):
                        nursery.start_soon(self.copy, source, target, scope)
            except* OSError:
                pass  # the broker is down: so is the line
        self.scopes.discard(scope)

    async def copy(
        self, source: trio.abc.Stream, target: trio.abc.Stream, scope: trio.CancelScope
    ) -> None:
        try:
            async for data in source:
                await target.send_all(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        scope.cancel()

    def set(self, cut: bool) -> None:
        self.cut = cut
        for scope in self.scopes if cut else ():
            scope.cancel()


async def branch(path: Path) -> None:
    """Confirms each order. Its endpoint may end at any time: then it connects anew."""
    while True:
        try:
            async with zbus.semq.connect(path) as semq:
                async for order in semq.take():
                    await semq.send(HEAD, f"{order.text} is on its way")
                    await order.done()
        except ConnectionLost:
            await trio.sleep(0.1)


async def head_office(path: Path, orders: int) -> list[str]:
    """Sends orders, and takes what the branches say."""
    async with zbus.semq.connect(path) as semq:
        for number in range(orders):
            for node in BRANCHES:
                await semq.send(node, f"order {number} of {node}", ordered=True)
        print(f"head office: sent {orders} orders to each of {len(BRANCHES)} branches", flush=True)
        said: list[str] = []
        while len(set(said)) < orders * len(BRANCHES):
            message = await semq.take_one()
            assert message is not None
            said.append(message.text)
            await message.done()
        return said


async def outages(broker: Program, line: Line, machine: Program) -> None:
    """Everything fails, one after another and together."""
    print("the line of the first branch is cut", flush=True)
    line.set(cut=True)
    await trio.sleep(1)
    print("the machine of the second branch is switched off", flush=True)
    machine.kill()
    await trio.sleep(1)
    print("the broker is killed", flush=True)
    broker.kill()
    await trio.sleep(1)
    print("the line is back, the machine is on, the broker runs", flush=True)
    line.set(cut=False)
    machine.start()
    broker.start()


async def main(folder: Path, orders: int) -> None:
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    with trio.socket.socket() as free:
        await free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    nodes = ",".join((HEAD, *BRANCHES))
    os.environ |= {"ZBUS_SEMQ_NODES": nodes, "ZBUS_SEMQ_INTERVAL_MS": "2000"}
    broker = Program("serve", "--data-dir", str(folder / "data"), "--port", str(port))
    line = Line(port)
    line_port = listeners[0].socket.getsockname()[1]
    sockets, programs = {}, {}
    for node in (HEAD, *BRANCHES):
        name = node.replace(":", "-")
        sockets[node] = folder / f"{name}.sock"
        at = line_port if node == BRANCHES[0] else port
        where = ("--database", str(folder / f"{name}.db"), "--socket", str(sockets[node]))
        programs[node] = Program(
            *("semq", "run", "--node", node, "--platform", f"127.0.0.1:{at}", *where),
            *("--log-level", "error"),
        )
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.serve_listeners, line.carry, listeners)
            while not sockets[HEAD].exists():  # noqa: ASYNC110 - another program makes it
                await trio.sleep(0.05)
            for node in BRANCHES:
                nursery.start_soon(branch, sockets[node])
            nursery.start_soon(outages, broker, line, programs[BRANCHES[1]])
            said = await head_office(sockets[HEAD], orders)
            nursery.cancel_scope.cancel()
    finally:
        for program in (broker, *programs.values()):
            program.kill()
    twice = len(said) - len(set(said))
    print(f"head office: {len(set(said))} orders are confirmed, {twice} of them twice", flush=True)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="zbus-", dir=os.environ.get("TMPDIR")) as directory:
        trio.run(main, Path(directory), int(sys.argv[1]) if len(sys.argv) > 1 else 20)
