"""Real processes for the tests of the examples: a broker, and the example programs themselves.

Nothing here waits for time to pass: a program is ready when it says so on its standard output.
"""

from __future__ import annotations

import os
import random
import re
import select
import signal
import socket
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

from tests import forked
from tests.limits import WAIT_S
from tests.process.broker import descendants, kill_all

ROOT = Path(__file__).parents[2]


class Program:
    """A Python program of this checkout, or of another `program` than Python, run until it ends, is
    stopped or killed.

    `with Program("examples/rpc_service.py", "--url", url) as service: service.wait_for("serving")`
    """

    def __init__(self, *arguments: str, program: str = sys.executable) -> None:
        environment = {k: v for k, v in os.environ.items() if not k.startswith("ZBUS_")}
        # Unbuffered: a line that Python has already read would not show up in `select`.
        self.process = forked.Popen[bytes](
            [program, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            bufsize=0,
            cwd=ROOT,
            env=environment,
        )
        self.said = ""

    def wait_for(self, pattern: str) -> re.Match[str]:
        """Read what the program prints until a line matches."""
        assert self.process.stdout is not None
        while True:
            readable, _, _ = select.select([self.process.stdout], [], [], WAIT_S)
            line = self.process.stdout.readline().decode() if readable else ""
            assert line, f"waited for {pattern!r}, and saw only {self.said!r}"
            self.said += line
            if found := re.search(pattern, line):
                return found

    def finish(self) -> str:
        """Wait until the program ends by itself; everything it printed."""
        assert self.process.stdout is not None
        self.said += self.process.stdout.read().decode()
        code = self._ended()
        assert code == 0, self.said
        return self.said

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Ask the program to leave; its exit code."""
        self.process.send_signal(number)
        return self._ended()

    def kill(self) -> None:
        """`kill -9`: no chance to tidy up."""
        others = descendants(self.process.pid) if forked.SERVER != "zbus" else []
        self.process.kill()
        self._ended()
        kill_all(others)

    def _ended(self) -> int:
        code = self.process.wait(WAIT_S)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        if self.process.poll() is None:
            self.kill()
        elif self.process.stdout is not None:
            self.process.stdout.close()


class BrokerProcess(Program):
    """A broker whose "200" means that it is on the disk. To start it again after its end, make
    another one of the same directory and port."""

    def __init__(self, data_dir: Path, port: int = 0, *options: str) -> None:
        super().__init__(
            "-m",
            forked.SERVER,
            "serve",
            "--port",
            str(port),
            "--data-dir",
            str(data_dir),
            "--durability",
            "disk",
            "--set",
            "log_level=warning",
            *options,
        )
        try:
            self.url = self.wait_for(r"serves (http://\S+)")[1]
        except BaseException:
            self.kill()
            raise
        self.port = int(self.url.rpartition(":")[2])


def lasting_port() -> int:
    """A port for a broker that is to come back. It lies below those that the system gives to
    outgoing connections: a client that tries to connect while the broker is away might get just
    that port, and the broker could not have it again."""
    while True:
        port = random.randrange(20_000, 30_000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
