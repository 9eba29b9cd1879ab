"""How long a start takes, and what it holds in memory, with 10 GB in 1,000 topics.

    python -m tests.bench.large_restart [--gb 10] [--topics 1000]

After a clean stop and after `kill -9`, with the page cache dropped (if allowed) and with it.
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


def measure_starts(data_dir: Path, after: str, *caches: str) -> None:
    """A start for each state of the cache; the runs are ended by kills."""
    for cache in caches:
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
    parser.add_argument("--gb", type=float, default=10)
    parser.add_argument("--topics", type=int, default=1_000)
    chosen = parser.parse_args()
    names = [f"Topic{n}" for n in range(chosen.topics)]
    with folder() as data_dir:
        broker, _ = timed_start(data_dir, "--durability", "os")
        each(broker.port, [ask(f"/{name}?cmd=declare") for name in names])
        speed = fill(broker, names, int(chosen.gb * 1e9 / chosen.topics))
        stop_s = end(broker, signal.SIGTERM)
        show(topics=len(names), gb=stored_bytes(data_dir) / 1e9, fill_mb_s=speed, stop_s=stop_s)
        measure_starts(data_dir, "a stop", "dropped", "warm")
        broker, _ = timed_start(data_dir)
        chance = random.Random(1)
        some = [ask(f"/{chance.choice(names)}?cmd=produce", b"x" * 100) for _ in range(20_000)]
        each(broker.port, some)
        end(broker, signal.SIGKILL)
        measure_starts(data_dir, "kill -9", "dropped")


if __name__ == "__main__":
    main()
