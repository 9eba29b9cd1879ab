"""Token buckets: no rate is ever passed, nobody waits longer than he must, and a batch is whole."""

from __future__ import annotations

import itertools
from random import Random

import pytest

from tests.core.support import Box, Probe, refusal
from zbus.core.cursor.state import TopicOptions
from zbus.core.model.chunk import Chunk, make_row
from zbus.core.model.errors import Refusal
from zbus.core.model.limits import Limits
from zbus.core.model.message import Message
from zbus.core.model.rate_limit import RATE_MAX, RateLimit, TokenBucket
from zbus.storage.memory import MemoryJournal

T0 = 1_800_000_000_000

# Tokens a second; then steps: milliseconds that pass, what is taken, what is to be waited for.
STEPS: list[tuple[int, list[tuple[int, int, int]]]] = [
    (1, [(0, 1, 0), (0, 1, 1_000), (999, 1, 1), (1, 1, 0), (0, 1, 1_000)]),
    (2, [(0, 1, 0), (0, 1, 0), (0, 1, 500), (500, 1, 0), (0, 1, 500)]),
    (3, [(0, 3, 0), (0, 1, 334), (333, 1, 1), (1, 1, 0)]),
    (10, [(0, 100, 0), (0, 1, 9_100), (9_099, 1, 1), (1, 1, 0), (0, 1, 100)]),
    (5, [(0, 5, 0), (3_600_000, 5, 0), (0, 1, 200)]),  # an hour brings no more than a second
    (RATE_MAX, [(0, RATE_MAX, 0), (0, 1, 1), (1, RATE_MAX // 1_000, 0), (0, 1, 1)]),
]


@pytest.mark.parametrize(("per_s", "steps"), STEPS)
def test_what_is_waited_for(per_s: int, steps: list[tuple[int, int, int]]) -> None:
    bucket, now_ms = TokenBucket(per_s), T0
    for passes_ms, count, wait_ms in steps:
        now_ms += passes_ms
        assert bucket.wait_ms(now_ms) == wait_ms
        if not wait_ms:
            bucket.take(count)


@pytest.mark.parametrize("seed", range(20))
def test_the_rate_holds(seed: int) -> None:
    """In any second no more is let in than two seconds bring, and one batch; over a long time it is
    what the rate says. Who waits as long as told is let in, and not a millisecond earlier."""
    random = Random(seed)
    per_s, batch_max = random.choice((1, 7, 1_000, 33_333)), random.choice((1, 10, 5_000))
    bucket, now_ms, taken = TokenBucket(per_s), T0, 0
    for _ in range(2_000):
        wait_ms = bucket.wait_ms(now_ms)
        if wait_ms:
            if wait_ms > 1:
                assert bucket.wait_ms(now_ms + wait_ms - 1) == 1
            now_ms += wait_ms
            assert bucket.wait_ms(now_ms) == 0
        count = random.randint(1, batch_max)
        bucket.take(count)
        taken += count
        assert (taken - per_s - batch_max) * 1_000 <= per_s * (now_ms - T0)
        now_ms += random.choice((0, 0, 1, 10))


def test_time_that_stands_still_or_goes_back_fills_nothing() -> None:
    bucket = TokenBucket(1)
    assert bucket.wait_ms(T0) == 0
    bucket.take(1)
    assert bucket.wait_ms(T0) == 1_000
    assert bucket.wait_ms(T0 - 5_000) == 1_000
    assert bucket.wait_ms(T0 + 1_000) == 0


@pytest.mark.parametrize(
    ("count_per_s", "bytes_per_s", "taken", "wait_s"),
    [
        (0, 0, (1_000, 1 << 40), 0),
        (1, 0, (1, 1 << 40), 1),
        (0, 100, (1_000, 99), 0),
        (0, 100, (1, 100), 1),
        (0, 100, (1, 200), 2),  # of which one must be there again
        (0, 100, (1, 199), 1),
        (10, 100, (100, 100), 10),
        (10, 100, (10, 5_000), 50),
    ],
)
def test_both_count(
    count_per_s: int, bytes_per_s: int, taken: tuple[int, int], wait_s: int
) -> None:
    quota = RateLimit(count_per_s, bytes_per_s)
    assert quota.wait_s(T0) == 0
    quota.take(*taken)
    assert quota.wait_s(T0) == wait_s


class LimitedBox(Box):
    def __init__(self, messages: int = 0, size: int = 0) -> None:
        limits = Limits(topic_messages_per_s=messages, topic_bytes_per_s=size)
        super().__init__(MemoryJournal(), limits=limits)
        self.serial = itertools.count()
        for name in ("T", "U"):
            self.declare(TopicOptions(name), "g")
            self.turn()

    def puts(self, verb: str, count: int, topic: str = "T") -> list[Probe]:
        """The same ticket as long as that goes along; one for each that does not."""
        partition, broker = self.partition(topic), self.broker
        probes: list[Probe] = []
        for number in range(count):
            body, once = b"%d" % number, b"key %d" % next(self.serial)
            row = make_row(b"1", b"", body, once=once if verb.endswith("with key") else b"")
            along = probes and verb.startswith("along")
            if along and broker.put_along(partition, probes[-1], row):
                continue
            probe = Probe()
            probes.append(probe)
            if verb.startswith("all"):
                broker.put_all(partition, probe, Chunk.single(row))
            else:
                broker.put(partition, probe, row)
        self.turn()
        return probes


VERBS = ["put", "along", "with key", "along with key", "all", "all with key"]


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_counts(verb: str) -> None:
    box = LimitedBox(messages=3)
    probes = box.puts(verb, 5)
    refused = [probe for probe in probes if not probe.fine]
    assert box.partition().end == 3
    assert len(refused) == 2
    for probe in refused:
        assert refusal(probe).refusal is Refusal.THROTTLED
        assert refusal(probe).retry_s == 1
        assert refusal(probe).text == "T accepts 3 messages a second: retry in 1 s"
    assert all(probe.fine for probe in box.puts(verb, 3, "U")), "another topic has its own"
    box.turn(1_000)
    assert all(probe.fine for probe in box.puts(verb, 3))
    assert box.partition().end == 6


def test_a_batch_passes_as_a_whole_and_others_wait_for_it() -> None:
    box = LimitedBox(size=100)
    batch, probe = Chunk.of([Message(b"1", body=bytes(50))] * 20), Probe()
    box.broker.put_all(box.partition(), probe, batch)
    box.turn()
    assert probe.fine
    (late,) = box.puts("put", 1)
    assert refusal(late).retry_s == 10
    assert refusal(late).text == "T accepts 100 bytes a second: retry in 10 s"
    box.turn(9_000)
    assert refusal(box.puts("put", 1)[0]).retry_s == 1
    box.turn(1_000)
    assert box.puts("put", 1)[0].fine


def test_without_a_limit_nobody_looks() -> None:
    box = LimitedBox()
    assert box.topic().quota is None
    assert all(probe.fine for probe in box.puts("put", 1_000))
    assert box.topic().quota is None
