"""Attacks beside brisk clients, against a real broker: a table of them, or all of them for long.

    python -m tests.soak --seconds 3600              (make soak SECONDS=3600)
    python -m tests.soak --table --attacks acks,pings --connections 1,100

The table has a row for each attack. Without `--table` one broker is attacked in turn and at random
for as long as told, and the run fails if a brisk client had an error, or if memory grows.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Final

from tests.soak.attacks import ATTACKS
from tests.soak.campaign import Campaign
from tests.soak.crew import Stage
from tests.soak.table import print_table

CLIENTS: Final = 2  # brisk ones, of a run without --table


def numbers(text: str) -> list[int]:
    return [int(word) for word in text.split(",")]


def names(text: str) -> list[str]:
    found = text.split(",")
    if unknown := set(found) - set(ATTACKS):
        raise argparse.ArgumentTypeError(f"there is no attack {', '.join(sorted(unknown))}")
    return found


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--table", action="store_true", help="a row for each attack")
    parser.add_argument("--list", action="store_true", help="tell the attacks")
    parser.add_argument("--attacks", type=names, default=list(ATTACKS), help="some of them: a,b")
    parser.add_argument("--connections", type=numbers, default=[1, 100], help="of a row's attack")
    parser.add_argument(
        "--phase", type=float, default=5.0, help="seconds of an attack in the table"
    )
    parser.add_argument("--rest", type=float, default=10.0, help="seconds after it")
    parser.add_argument("--seconds", type=float, default=3600.0, help="of a run without --table")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--memory-limit", default="", help="memory_limit_bytes of the broker")
    return parser.parse_args()


def end(number: int, frame: FrameType | None) -> None:
    """As Ctrl-C does: everything that was started is ended."""
    raise KeyboardInterrupt


def main() -> int:
    given = arguments()
    if given.list:
        for name, attack in ATTACKS.items():
            print(f"{name:20} {attack.does}")
        return 0
    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    options = {"memory_limit_bytes": given.memory_limit} if given.memory_limit else {}
    try:
        if given.table:
            print_table(given.attacks, given.connections, given.phase, given.rest, options)
            return 0
        return soak(given.attacks, given.seconds, given.seed, options)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


def soak(attacks: Sequence[str], seconds: float, seed: int, options: dict[str, str]) -> int:
    with (
        tempfile.TemporaryDirectory(prefix="zbus-soak-") as folder,
        Stage(Path(folder), CLIENTS, options) as stage,
    ):
        failures = Campaign(stage, attacks, seconds, seed).run()
    for failure in failures:
        print(f"failed: {failure}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
