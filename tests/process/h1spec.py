"""Run h1spec against a broker: `python -m tests.process.h1spec CHECKOUT [OPTIONS]`.

h1spec (https://github.com/dropseed/h1spec) is not on the package index and needs nothing but
Python: CHECKOUT is a clone of it. The exit code is its own; 0 means that every check passed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.process.broker import BrokerProcess


def main(checkout: str, *options: str) -> int:
    """Start a broker, point h1spec at it in strict mode."""
    if not (Path(checkout) / "h1spec").is_dir():
        print(f"there is no clone of h1spec at {checkout!r}", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as folder, BrokerProcess(Path(folder) / "data") as broker:
        command = [sys.executable, "-c", "from h1spec import main; main()", "--strict", *options]
        command.append(f"127.0.0.1:{broker.port}")
        code = subprocess.run(command, env={**os.environ, "PYTHONPATH": checkout}).returncode
        broker.stop()
    return code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
