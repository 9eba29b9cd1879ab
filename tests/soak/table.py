"""The table: each attack beside a brisk client, with a broker of its own.

A row compares the brisk client alone, just before, with the same client beside the attack, and the
broker's resident memory before the attack with that some seconds after it.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from tests.soak.attacks import ATTACKS
from tests.soak.crew import Stage, pause
from tests.soak.figures import Figures

MIB: Final = 1 << 20
WARM_UP_S: Final = 1.5
LAST_S: Final = 2.0  # of the rest: whether puts are taken again is looked at in these
HEAD: Final = (
    "attack              conns |    p50     p99   p99.9     max ms | alone p99  times |"
    "  MiB before   peak  after  times | errors, later | cpu % | what the attackers did"
)


class Row(NamedTuple):
    """What one attack did to a broker."""

    attack: str
    connections: int
    alone: Figures
    beside: Figures
    before_bytes: int
    peak_bytes: int
    after_bytes: int
    errors: Sequence[str]  # of the brisk client, all
    errors_later: int  # in the last seconds of the rest
    cpu_percent: float
    did: str

    def line(self) -> str:
        beside = self.beside
        memory = (self.before_bytes, self.peak_bytes, self.after_bytes)
        before, peak, after = (count / MIB for count in memory)
        return (
            f"{self.attack:19} {self.connections:5} |"
            f" {beside.p50:6.1f} {beside.p99:7.1f} {beside.p999:7.1f} {beside.max:7.1f}    |"
            f" {self.alone.p99:9.1f} {beside.p99 / self.alone.p99:6.1f} |"
            f" {before:11.0f} {peak:6.0f} {after:6.0f} {after / before:6.2f} |"
            f" {len(self.errors):6} {self.errors_later:6} | {self.cpu_percent:5.0f} | {self.did}"
        )


def measure(
    name: str, connections: int, seconds: float, rest_s: float, options: dict[str, str]
) -> Row:
    with (
        tempfile.TemporaryDirectory(prefix="zbus-soak-") as folder,
        Stage(Path(folder), 1, options) as stage,
    ):
        stage.prepare(name)
        pause(WARM_UP_S)
        alone_s = time.monotonic()
        pause(seconds)
        before = stage.watch.look()
        with stage.attack(name, connections) as attackers:
            began_s = time.monotonic()
            pause(seconds)
            ended_s = time.monotonic()
            at_end = stage.watch.look()
        pause(rest_s)
        for client in stage.clients:
            client.wait_past(ended_s)
        after = stage.watch.look()
        return Row(
            name,
            connections,
            stage.figures(alone_s, began_s),
            stage.figures(began_s, ended_s),
            before.resident_bytes,
            stage.watch.peak_bytes(began_s, after.at_s),
            after.resident_bytes,
            stage.errors(),
            len(stage.errors(after.at_s - LAST_S)),
            (at_end.cpu_s - before.cpu_s) / (at_end.at_s - before.at_s) * 100,
            in_words(attackers.did),
        )


def in_words(did: dict[str, object]) -> str:
    """What attackers did, short."""
    counts = {key: value for key, value in did.items() if isinstance(value, int)}
    sent, received = (counts.get(f"{way}_bytes", 0) / MIB for way in ("sent", "received"))
    text = f"{counts.get('connections', 0)} conns, {sent:.1f} MiB out, {received:.1f} in"
    replies = did.get("replies")
    return f"{text}, {replies}" if replies else text


def print_table(
    names: Sequence[str],
    counts: Sequence[int],
    seconds: float,
    rest_s: float,
    options: dict[str, str],
) -> None:
    print(HEAD)
    for name in names:
        assert name in ATTACKS
        for connections in counts:
            row = measure(name, connections, seconds, rest_s, options)
            print(row.line(), flush=True)
            for error in sorted(set(row.errors))[:3]:
                print(f"    {error}", flush=True)
