"""This version against another one: the key lines of the benchmarks, in turn, as ratios.

    python -m tests.bench.against <commit> [--rounds 5] [--only WORD]
                                                   (make bench-against COMMIT=... [ARGS=...])

Both brokers run beside each other, each from its own files; the load generator is this one. A
ratio above 1 means that this version is faster, or takes less processor time. Two runs of one
version against itself tell what the machine's own noise is.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from tests.bench.drain import drain, fill
from tests.bench.lockstep import LINES, Line, cost, one_core
from tests.bench.measure import HERE, Server, ab, checkout, show, wrk
from tests.bench.templates import MODES, produces
from tests.bench.test_speed import load
from tests.process.broker import BrokerProcess

ROOT = HERE.parent.parent
QUICK = 3  # so many times fewer requests than `make bench`: there are many lines and two brokers
DRAINED = 100_000


class Row(NamedTuple):
    """Something that is measured of a broker."""

    name: str
    measure: Callable[[BrokerProcess], float]
    cost: bool = False  # less is better, and the least is shown
    times: int = 1  # in a round

    def figure(self, found: Sequence[float]) -> float:
        """What stands for all rounds, without digits that mean nothing."""
        one = min(found) if self.cost else statistics.median(found)
        return round(one) if one > 1_000 else one


def cpu_us(line: Line, broker: BrokerProcess) -> float:
    with one_core(broker.process.pid):
        return cost(Server.of(broker), line).us


def sent(mode: str, broker: BrokerProcess) -> float:
    return wrk(broker.port, produces(mode, "Os", broker.port), seconds=2)


def drained(field: str, broker: BrokerProcess) -> float:
    """Messages that were put just before."""
    assert broker.get("/Drain?cmd=declare&durability=os").status == 200
    fill(broker.port, "Drain", DRAINED)
    found = drain(Server.of(broker), "Drain")
    assert broker.get("/Drain?cmd=remove").status == 200
    return float(getattr(found, field))


ROWS = (
    *(Row(f"us, {line.name}", partial(cpu_us, line), cost=True, times=6) for line in LINES),
    Row("us, a message of a batch of 1000", partial(drained, "us"), cost=True),
    Row("batches of 1000 from memory", partial(drained, "messages_s")),
    Row("ab produce, os", lambda broker: ab(broker.port, "/Os?cmd=produce", 200_000 // QUICK)),
    Row("ab consume, os", lambda broker: ab(broker.port, "/Os?cmd=consume", 200_000 // QUICK)),
    *(
        Row(
            f"wrk, {mode} differs, os" if mode != "fixed" else "wrk, fixed, os", partial(sent, mode)
        )
        for mode in MODES
    ),
    *(
        Row(
            f"produce, disk, {connections} connections",
            partial(load, topic="Disk", connections=connections, messages=200_000 // QUICK),
        )
        for connections in (128, 256)
    ),
    Row(
        "batches of 100 KiB, disk",
        partial(
            load,
            topic="Disk",
            connections=8,
            messages=200_000 // QUICK,
            body_bytes=1024,
            batch=100,
        ),
    ),
)


def start(data_dir: Path, checkout: Path) -> BrokerProcess:
    broker = BrokerProcess(data_dir, checkout=checkout)
    topics = {"Disk": "disk", "Os": "os"} | {line.topic: "os" for line in LINES}
    for topic, durability in topics.items():
        assert broker.get(f"/{topic}?cmd=declare&durability={durability}").status == 200
    return broker


def compare(here: BrokerProcess, there: BrokerProcess, rounds: int, rows: Sequence[Row]) -> None:
    for row in rows:
        ours: list[float] = []
        theirs: list[float] = []
        for turn in range(rounds * row.times):
            order = [(here, ours), (there, theirs)]
            for broker, found in order if turn % 2 else reversed(order):
                found.append(row.measure(broker))
        pairs = zip(theirs, ours, strict=True) if row.cost else zip(ours, theirs, strict=True)
        ratios = [better / worse for better, worse in pairs]
        show(
            line=row.name,
            ratio=statistics.median(ratios),
            lowest=min(ratios),
            highest=max(ratios),
            here=row.figure(ours),
            there=row.figure(theirs),
        )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("commit")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="", help="rows with this in their names")
    chosen = parser.parse_args()
    rows = [row for row in ROWS if chosen.only in row.name]
    with (
        tempfile.TemporaryDirectory(prefix="zbus-against-") as folder,
        checkout(chosen.commit) as other,
        start(Path(folder) / "here", ROOT) as here,
        start(Path(folder) / "there", other) as there,
    ):
        compare(here, there, chosen.rounds, rows)


if __name__ == "__main__":
    main()
