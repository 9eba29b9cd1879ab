"""What the benchmarks share: brokers and the floor as processes, load generators, a machine's own
speeds. Ratios of one run count; absolute figures are only printed."""

from __future__ import annotations

import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.bench.templates import SCRIPT, for_wrk, produces
from tests.process.broker import BrokerProcess

HERE = Path(__file__).parent


class Server(NamedTuple):
    """What is measured."""

    port: int
    pid: int

    @classmethod
    def of(cls, broker: BrokerProcess) -> Server:
        return cls(broker.port, broker.process.pid)


@contextmanager
def floor(end: bytes = b"\r\n\r\n") -> Iterator[Server]:
    """The floor server, for requests that end so."""
    command = [sys.executable, "-u", str(HERE / "floor.py"), "--port", "0", "--end", end.hex()]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            found = re.search(r"listening on (\d+)", process.stdout.readline())
            assert found is not None
            yield Server(int(found[1]), process.pid)
        finally:
            process.terminate()


def need(tool: str) -> None:
    if shutil.which(tool) is None:
        pytest.skip(f"{tool} is not installed")


def ab(
    port: int, target: str, count: int = 200_000, connections: int = 32, scheme: str = "http"
) -> float:
    """Requests a second as ApacheBench sees them; every reply must be a success."""
    need("ab")
    url = f"{scheme}://127.0.0.1:{port}{target}"
    command = ["ab", "-q", "-k", "-c", str(connections), "-n", str(count), url]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "Non-2xx" not in printed, printed
    assert re.search(r"Failed requests:\s+0\n", printed), printed
    found = re.search(r"Requests per second:\s+([\d.]+)", printed)
    assert found is not None, printed
    return float(found[1])


def wrk(
    port: int, clients: Sequence[Sequence[bytes]], seconds: int = 4, connections: int = 32
) -> float:
    """Requests a second of wrk, where each of the clients has a thread: the templates that it sends
    in turn (`tests/bench/templates.py`)."""
    need("wrk")
    with tempfile.NamedTemporaryFile() as file:
        file.write(for_wrk(clients))
        file.flush()
        command = ["wrk", f"-t{len(clients)}", f"-c{connections}", f"-d{seconds}s"]
        command += ["-s", str(SCRIPT), f"http://127.0.0.1:{port}", "--", file.name]
        printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "Non-2xx" not in printed, printed
    assert "Socket errors" not in printed, printed
    found = re.search(r"Requests/sec:\s+([\d.]+)", printed)
    assert found is not None, printed
    assert float(found[1]), printed
    return float(found[1])


def wrk_unique_ids(port: int, topic: str, seconds: int = 4) -> float:
    """Requests a second of wrk, each with an id of its own."""
    return wrk(port, produces("id", topic, port), seconds)


@contextmanager
def checkout(commit: str) -> Iterator[Path]:
    """The files of another version."""
    git = ["git", "-C", str(HERE), "worktree"]
    with tempfile.TemporaryDirectory(prefix="zbus-against-") as folder:
        other = Path(folder) / "checkout"
        subprocess.run([*git, "add", "--quiet", "--detach", other, commit], check=True)
        try:
            yield other
        finally:
            subprocess.run([*git, "remove", "--force", other], check=True)


def alternate(rounds: int, *measures: Callable[[], float]) -> list[float]:
    """The medians of several measures taken in turn, so that a machine's moods hit all alike."""
    taken: list[list[float]] = [[] for _ in measures]
    for _ in range(rounds):
        for column, measure in zip(taken, measures, strict=True):
            column.append(measure())
    return [statistics.median(column) for column in taken]


def disk_bytes_per_second(
    folder: Path, block_bytes: int = 100 * 1024, total: int = 64 << 20
) -> float:
    """Sequential write and sync of one file, a sync every `block_bytes`."""
    block = os.urandom(block_bytes)
    path = folder / "sequential"
    with path.open("wb", buffering=0) as file:
        started = time.perf_counter()
        for _ in range(max(1, total // block_bytes)):
            file.write(block)
            os.fdatasync(file.fileno())
        seconds = time.perf_counter() - started
    path.unlink()
    return max(1, total // block_bytes) * block_bytes / seconds


def resident_bytes(pid: int) -> int:
    fields = Path(f"/proc/{pid}/statm").read_text().split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE")


def run_seconds(pid: int) -> float:
    """Processor time of all threads of a process, kernel included, to the nanosecond. Of one that
    runs at this moment the last milliseconds may be missing."""
    total = 0
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with suppress(OSError):  # it has ended
            total += int((thread / "schedstat").read_text().split()[0])
    return total / 1e9


def cpu_seconds(pid: int) -> float:
    """Processor time of a process, kernel included, to 10 ms."""
    return sum(_ticks(pid)) / os.sysconf("SC_CLK_TCK")


def system_seconds(pid: int) -> float:
    """The kernel's share of that."""
    return _ticks(pid)[1] / os.sysconf("SC_CLK_TCK")


def _ticks(pid: int) -> tuple[int, int]:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]), int(fields[12])


def show(**figures: float | str) -> None:
    """Print a line of figures; they are what a benchmark is for."""
    rounded = {k: round(v, 3) if isinstance(v, float) else v for k, v in figures.items()}
    print("\n" + json.dumps(rounded), flush=True)
