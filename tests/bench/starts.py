"""What the start of a command costs, in processor time: `zbus --version`, `zbus query` of a running
broker, an import of the client, and `zbus serve` until it listens.

    python -m tests.bench.starts [COMMIT] [--rounds 15]

With a commit, that version starts in turn with this one, and the last column is the median of the
ratios. Compiled files are made first, as an installation has them.
"""

from __future__ import annotations

import argparse
import compileall
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from tests.bench.measure import checkout, run_seconds
from tests.process.broker import BrokerProcess

HERE = Path(__file__).parents[2]
CLIENT = "import zbus.client; zbus.client.connect"


def command_s(arguments: list[str], home: Path) -> float:
    """Processor time of a command of the version in `home`, in seconds."""
    process = subprocess.Popen([sys.executable, *arguments], cwd=home, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, arguments
    return used.ru_utime + used.ru_stime


def serve_s(home: Path) -> float:
    """That of a broker with an empty directory, until it says that it listens."""
    with tempfile.TemporaryDirectory() as data_dir:
        command = [sys.executable, "-m", "zbus", "serve", "--port", "0", "--data-dir", data_dir]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, cwd=home, stdout=pipe, stderr=subprocess.STDOUT) as process:
            assert process.stdout is not None
            try:
                assert any(b"listening" in line for line in process.stdout)
                return run_seconds(process.pid)
            finally:
                process.terminate()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("commit", nargs="?")
    parser.add_argument("--rounds", type=int, default=15)
    chosen = parser.parse_args()
    with ExitStack() as stack:
        data_dir = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "data"
        broker = stack.enter_context(BrokerProcess(data_dir))
        broker.get("/Orders?cmd=declare")
        homes = [HERE, *([stack.enter_context(checkout(chosen.commit))] if chosen.commit else [])]
        for home in homes:
            compileall.compile_dir(home / "zbus", quiet=1)
        query = ["-m", "zbus", "query", "Orders", "--url", f"http://127.0.0.1:{broker.port}"]
        starts: dict[str, Callable[[Path], float]] = {
            "python": partial(command_s, ["-c", "pass"]),
            "zbus --version": partial(command_s, ["-m", "zbus", "--version"]),
            "zbus query": partial(command_s, query),
            "zbus.client.connect": partial(command_s, ["-c", CLIENT]),
            "zbus serve": serve_s,
        }
        for name, start in starts.items():
            rounds = [[start(home) for home in homes] for _ in range(chosen.rounds)]
            least = "".join(f"{min(column) * 1e3:9.0f} ms" for column in zip(*rounds, strict=True))
            ratio = f"{statistics.median(one[0] / one[-1] for one in rounds):8.2f}"
            print(f"{name:20}{least}{ratio if chosen.commit else ''}", flush=True)


if __name__ == "__main__":
    main()
