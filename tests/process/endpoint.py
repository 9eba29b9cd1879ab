"""A real endpoint of SEMQ for tests: a process, ended by its id."""

from __future__ import annotations

import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from tests import forked
from tests.limits import WAIT_S
from zbus.client.errors import ZbusError
from zbus.semq import BlockingSemq, connect_blocking


class EndpointProcess:
    """`with EndpointProcess(tmp_path / "a", "1:1", broker.port) as endpoint:`. Its files are in the
    folder; it lets others connect directly."""

    def __init__(
        self,
        folder: Path,
        node: str,
        port: int,
        *options: str,
        direct: bool = True,
        program: Sequence[str] = ("zbus",),
    ) -> None:
        folder.mkdir(exist_ok=True)
        self.node = node
        self.socket = folder / "s"
        self.log_path = folder / "log"
        ways = ("--listen", "127.0.0.1:0") if direct else ("--no-direct",)
        command = [
            sys.executable,
            "-m",
            *program,
            "semq",
            "run",
            "--node",
            node,
            *ways,
            "--database",
            str(folder / "db"),
            "--socket",
            str(self.socket),
            "--platform",
            f"127.0.0.1:{port}",
            *options,
        ]
        with self.log_path.open("ab") as log:
            out = subprocess.PIPE
            self.process = forked.Popen[bytes](command, stdout=out, stderr=log, bufsize=0)
        try:
            self.said = self._read_start()
        except BaseException:
            self.kill()
            raise

    def _read_start(self) -> str:
        assert self.process.stdout is not None
        readable, _, _ = select.select([self.process.stdout], [], [], WAIT_S)
        said = self.process.stdout.readline().decode() if readable else ""
        if "listens at" not in said:
            raise AssertionError(f"the endpoint does not start: {said!r} {self.log()}")
        return said

    def log(self) -> str:
        return self.log_path.read_text()

    def connect(self) -> BlockingSemq:
        return connect_blocking(self.socket)

    def stat(self) -> dict[str, Any]:
        with self.connect() as semq:
            found: dict[str, Any] = semq.manage("stat")
            return found

    def is_empty(self) -> bool:
        """It owes nothing, and nobody owes it an answer or a `done`."""
        try:
            found = self.stat()
        except ZbusError:
            return False
        return not found["outbox"] and not found["inbox"]

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        if self.process.poll() is None:
            self.process.send_signal(number)
        code = self.process.wait(WAIT_S)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code

    def kill(self) -> None:
        self.stop(signal.SIGKILL)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self.process.poll() is None:
            self.kill()


def run_endpoint(*options: str) -> subprocess.CompletedProcess[str]:
    """One that is expected not to start."""
    return forked.run_zbus("semq", "run", *options)


def wait_for(condition: Any, seconds: float = WAIT_S) -> bool:
    """Whether it comes true."""
    deadline = time.monotonic() + seconds
    while not (found := bool(condition())) and time.monotonic() < deadline:
        time.sleep(0.05)
    return found
