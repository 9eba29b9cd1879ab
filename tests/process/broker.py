"""A real broker process for tests: started on a free port, ended by its id."""

from __future__ import annotations

import os
import re
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tests import forked
from tests.limits import WAIT_S

WORKERS: Final = int(os.environ.get("ZBUS_WORKERS", "1"))
"""Processes of each broker that does not say it otherwise: `make check-workers`."""


def serve_command(
    data_dir: Path, *options: str, port: int = 0, program: Sequence[str] = (forked.SERVER,)
) -> list[str]:
    """How a broker is started; `program` is a module, and arguments before `serve`."""
    return [
        sys.executable,
        "-m",
        *program,
        "serve",
        "--port",
        str(port),
        "--data-dir",
        str(data_dir),
        *options,
    ]


def descendants(pid: int) -> list[int]:
    """The processes that it has started, and those that they have."""
    found, parents = list[int](), [pid]
    while parents:
        words = ["pgrep", "-P", ",".join(map(str, parents))]
        parents = [int(word) for word in subprocess.run(words, capture_output=True).stdout.split()]
        found += parents
    return found


def kill_all(pids: Sequence[int]) -> None:
    """All at about the same moment, and until they have ended; others may collect them later."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    deadline_s = time.monotonic() + WAIT_S
    while any(map(_runs, pids)):
        assert time.monotonic() < deadline_s, "a process does not end"
        time.sleep(0.001)


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def eventually(holds: Callable[[], bool]) -> None:
    """Wait until it holds: for what another program or thread does in its own time."""
    end_s = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < end_s
        time.sleep(0.01)


class BrokerProcess:
    """`with BrokerProcess(tmp_path) as broker: broker.connect()`."""

    def __init__(
        self,
        data_dir: Path,
        *options: str,
        port: int = 0,
        program: Sequence[str] = (forked.SERVER,),
        checkout: Path | None = None,
        start_timeout_s: float = WAIT_S,
    ) -> None:
        """`checkout`: the folder of another version, instead of this one."""
        self.data_dir = data_dir
        self._several = WORKERS > 1 or "--workers" in options
        command = serve_command(data_dir, *options, port=port, program=program)
        self.log_path = data_dir.with_name(data_dir.name + ".log")
        with self.log_path.open("ab") as log:
            # Unbuffered: a line that Python has already read would not show up in `select`.
            self.process = forked.Popen[bytes](
                command, stdout=subprocess.PIPE, stderr=log, bufsize=0, cwd=checkout
            )
        try:
            self.port = self._read_port(start_timeout_s)
        except BaseException:
            self.kill()
            raise

    def _read_port(self, timeout_s: float) -> int:
        assert self.process.stdout is not None
        said = b""
        deadline = time.monotonic() + timeout_s
        while b"try:" not in said:
            readable, _, _ = select.select([self.process.stdout], [], [], 0.5)
            if readable:
                piece = self.process.stdout.readline()
                if not piece:
                    raise AssertionError(f"the broker ended: {said!r} {self.log()}")
                said += piece
            assert time.monotonic() < deadline, "the broker does not start"
        found = re.search(rb"https?://[^:]+:(\d+)", said)
        assert found is not None, said
        return int(found[1])

    def log(self) -> str:
        return self.log_path.read_text()

    def connect(self) -> Wire:
        return Wire(self.port)

    def get(self, target: str, *lines: str, body: bytes = b"") -> Answer:
        """One request on a connection of its own."""
        wire = self.connect()
        try:
            return wire.get(target, *lines, body=body)
        finally:
            wire.close()

    def stop(self, number: signal.Signals = signal.SIGTERM, timeout_s: float = WAIT_S) -> int:
        """Send a signal and wait for the end; the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        code = self.process.wait(timeout_s)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code

    def workers(self) -> list[int]:
        """The processes of a server that has several, beside the first."""
        found = subprocess.run(["pgrep", "-P", str(self.process.pid)], capture_output=True)
        return [int(pid) for pid in found.stdout.split()]

    def kill(self) -> None:
        """All of its processes, at about the same moment."""
        several = self._several or forked.SERVER != "zbus"
        others = descendants(self.process.pid) if several else []
        self.stop(signal.SIGKILL)
        kill_all(others)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.process.poll() is None:
            self.kill()


class Answer:
    """A reply as it came."""

    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body

    def __repr__(self) -> str:
        return f"<{self.status} {self.headers} {self.body!r}>"


def request(target: str, *lines: str, body: bytes = b"") -> bytes:
    """The bytes of a request."""
    head = f"GET {target} HTTP/1.1\r\nhost: localhost\r\n"
    head += "".join(f"{line}\r\n" for line in lines)
    if body:
        head += f"content-length: {len(body)}\r\n"
    return head.encode() + b"\r\n" + body


class Wire:
    """A raw TCP client."""

    def __init__(self, port: int) -> None:
        self.sock = socket.create_connection(("127.0.0.1", port), timeout=WAIT_S)
        self._buffer = b""

    def send(self, data: bytes) -> None:
        self.sock.sendall(data)

    def get(self, target: str, *lines: str, body: bytes = b"") -> Answer:
        self.send(request(target, *lines, body=body))
        return self.read()

    def read(self) -> Answer:
        """The next reply."""
        while b"\r\n\r\n" not in self._buffer:
            self._more()
        head, _, rest = self._buffer.partition(b"\r\n\r\n")
        first, *lines = head.decode().split("\r\n")
        headers = dict(line.split(": ", 1) for line in lines)
        length = int(headers.get("content-length", "0"))
        pieces, missing = [rest], length - len(rest)
        while missing > 0:
            pieces.append(self._receive())
            missing -= len(pieces[-1])
        rest = b"".join(pieces)
        self._buffer = rest[length:]
        return Answer(int(first.split()[1]), headers, rest[:length])

    def _more(self) -> None:
        self._buffer += self._receive()

    def _receive(self) -> bytes:
        data = self.sock.recv(1 << 18)
        if not data:
            raise EOFError(f"the broker closed; unread: {self._buffer[:1_000]!r}")
        return data

    def at_end(self) -> bool:
        """The broker closes without a word more."""
        try:
            return self.sock.recv(1 << 16) == b""
        except ConnectionResetError:
            return True

    def reset(self) -> None:
        """Close with an RST."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        self.sock.close()

    def close(self) -> None:
        self.sock.close()

    def __del__(self) -> None:
        if "sock" in vars(self):  # it may never have been connected
            self.sock.close()


def established(port: int, wire: Wire) -> bool:
    """Whether the broker's end is open, as the kernel has it."""
    mine = wire.sock.getsockname()[1]
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        local, remote, state = line.split()[1:4]
        if (int(local[-4:], 16), int(remote[-4:], 16)) == (port, mine):
            return state == "01"
    return False


def run_serve(*options: str) -> subprocess.CompletedProcess[str]:
    """A broker that is expected not to start."""
    return forked.run_zbus("serve", *options)
