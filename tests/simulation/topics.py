"""Which topics and groups a simulated world has, and how its groups read."""

from __future__ import annotations

from random import Random

from tests.simulation.groups import GroupBook, Retries
from tests.simulation.model import TopicBook
from tests.simulation.verbs import DEAD


def topics_of(random: Random) -> list[TopicBook]:
    """Between one and four, and perhaps one for dead letters before them."""
    topics = []
    if random.random() < 0.6:
        readers = [GroupBook("g0", True, b"", lease_ms=1_000, window=100)]
        topics.append(TopicBook(DEAD, "disk", random.choice((1, 2)), False, readers))
    for number in range(random.randint(1, 4)):
        durability = random.choice(("disk", "disk", "disk", "os", "memory"))
        # In memory what all groups have finished is dropped, and is not there for later ones.
        count = 1 if durability == "memory" else random.randint(1, 3)
        groups = [
            GroupBook(
                f"g{index}",
                leased=random.random() < 0.6,
                filter=random.choice((b"", b"", b"#", b"a.*", b"a.#;b")),
                lease_ms=random.choice((50, 1_000, 10_000)),
                window=random.choice((1, 3, 100)),
            )
            for index in range(count)
        ]
        partitions = random.choice((1, 1, 2, 3))
        volatile = random.random() < 0.2
        buries = durability == "disk" and not volatile and topics and topics[0].name == DEAD
        for group in groups:
            if group.leased and random.random() < (0.8 if buries else 0.6):
                group.retries = _retries(random, bool(buries))
        topics.append(TopicBook(f"T{number}", durability, partitions, volatile, groups))
    return topics


def _retries(random: Random, buries: bool) -> Retries:
    attempts_max = random.choice((1, 1, 2, 3) if buries else (0, 0, 1, 2, 5))
    return Retries(
        attempts_max,
        pauses_ms=random.choice(((0, 0), (0, 0), (10, 10), (500, 30_000))),
        dead_letter=DEAD if attempts_max and buries else "",
        front=random.random() < 0.3,
        by_key=random.random() < 0.3,
        rate=random.choice((0, 0, 0, 0, 5, 1_000)),
        one_batch=random.random() < 0.1,
    )
