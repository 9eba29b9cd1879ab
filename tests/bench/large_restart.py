"""How long a start takes, and what it holds in memory, with 10 GB in 1,000 topics.

    python -m tests.bench.large_restart [--gib 10] [--topics 1000]

After a clean stop and after `kill -9` under load, each with the page cache dropped (if that is
allowed) and with it.
"""

from __future__ import annotations

import argparse
import random
import signal
from pathlib import Path

from tests.bench.large import (
    descriptors,
    each,
    end,
    fill,
    folder,
    forget_caches,
    stored_bytes,
    timed_start,
)
from tests.bench.measure import resident_bytes, show
from tests.process.pipe import ask


def start_twice(data_dir: Path, after: str) -> None:
    """A cold and a warm start, and how the second run ends does not matter."""
    for cache in ("dropped", "warm"):
        if cache == "dropped" and not forget_caches():
            cache = "could not be dropped"
        broker, ready_s = timed_start(data_dir)
        show(
            after=after,
            cache=cache,
            ready_s=ready_s,
            resident_mb=resident_bytes(broker.process.pid) / 1e6,
            descriptors=descriptors(broker),
        )
        broker.kill()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--gib", type=float, default=10)
    parser.add_argument("--topics", type=int, default=1_000)
    chosen = parser.parse_args()
    names = [f"Topic{n}" for n in range(chosen.topics)]
    with folder() as data_dir:
        broker, _ = timed_start(data_dir, "--durability", "os")
        each(broker.port, [ask(f"/{name}?cmd=declare") for name in names])
        speed = fill(broker, names, int(chosen.gib * (1 << 30) / chosen.topics))
        stop_s = end(broker, signal.SIGTERM)
        show(topics=len(names), gb=stored_bytes(data_dir) / 1e9, fill_mb_s=speed, stop_s=stop_s)
        start_twice(data_dir, "a stop")
        broker, _ = timed_start(data_dir)
        chance = random.Random(1)
        some = [ask(f"/{chance.choice(names)}?cmd=produce", b"x" * 100) for _ in range(20_000)]
        each(broker.port, some)
        end(broker, signal.SIGKILL)
        start_twice(data_dir, "kill -9")


if __name__ == "__main__":
    main()
