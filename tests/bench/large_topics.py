"""What 10,000 topics with 20,000 groups cost: to declare, to keep, to use, to start with.

    python -m tests.bench.large_topics [--topics 10000]

Half of the topics wait for the disk, half for the operating system. Produces to topics at random
are measured in turn with produces to one topic: their rate, and the broker's processor time.
"""

from __future__ import annotations

import argparse
import itertools
import random
import signal

from tests.bench.large import (
    descriptors,
    each,
    end,
    folder,
    forget_caches,
    storm,
    timed_start,
)
from tests.bench.measure import alternate, resident_bytes, run_seconds, show
from tests.process.broker import BrokerProcess
from tests.process.pipe import ask

ROUNDS = 3


def rates(broker: BrokerProcess, durability: str, names: list[str], count: int) -> None:
    """Produces a second, to one topic and to all at random, and microseconds of each."""
    chance = random.Random(2)
    one = [ask(f"/{names[0]}?cmd=produce", b"x" * 100)] * count
    # A new choice for every round: no round finds what the one before left in caches.
    many = (
        [ask(f"/{chance.choice(names)}?cmd=produce", b"x" * 100) for _ in range(count)]
        for _ in itertools.count()
    )
    spent_us: dict[bool, list[float]] = {False: [], True: []}

    def rate(requests: list[bytes], spread: bool) -> float:
        before = run_seconds(broker.process.pid)
        found = storm(broker.port, requests)
        spent_us[spread].append((run_seconds(broker.process.pid) - before) / count * 1e6)
        return found

    single, spread = alternate(ROUNDS, lambda: rate(one, False), lambda: rate(next(many), True))
    show(
        durability=durability,
        one_topic=single,
        many_topics=spread,
        ratio=spread / single,
        one_topic_us=min(spent_us[False]),
        many_topics_us=min(spent_us[True]),
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--topics", type=int, default=10_000)
    count = parser.parse_args().topics
    names = {level: [f"{level}{n}" for n in range(count // 2)] for level in ("os", "disk")}
    with folder() as data_dir:
        broker, _ = timed_start(data_dir)
        empty = resident_bytes(broker.process.pid)
        topics = {
            level: each(
                broker.port,
                [ask(f"/{name}?cmd=declare&durability={level}") for name in names[level]],
            )
            for level in names
        }
        every = [*names["os"], *names["disk"]]
        groups = each(broker.port, [ask(f"/{name}/second?cmd=declare") for name in every])
        show(
            topics=len(every),
            declared_os_s=topics["os"],
            declared_disk_s=topics["disk"],
            groups_s=groups,
            kb_a_topic=(resident_bytes(broker.process.pid) - empty) / 1e3 / len(every),
            descriptors=descriptors(broker),
        )
        rates(broker, "os", names["os"], 20_000)
        rates(broker, "disk", names["disk"], 5_000)
        show(resident_mb=resident_bytes(broker.process.pid) / 1e6, descriptors=descriptors(broker))
        show(stop_s=end(broker, signal.SIGTERM))
        for after in ("a stop", "kill -9"):
            dropped = forget_caches()
            broker, ready_s = timed_start(data_dir)
            show(
                after=after,
                cache_dropped=str(dropped),
                ready_s=ready_s,
                resident_mb=resident_bytes(broker.process.pid) / 1e6,
                descriptors=descriptors(broker),
            )
            end(broker, signal.SIGKILL)


if __name__ == "__main__":
    main()
