"""Topics in memory are rings: the oldest messages go, and puts go on being taken."""

from __future__ import annotations

import pytest

from tests.core.support import Box, CrashJournal, Probe, PullProbe, refusal
from zbus.core.cursor.state import GroupOptions, TopicOptions
from zbus.core.model.errors import Refusal
from zbus.core.topics.outcomes import Delivered

KIB = 1 << 10
BODY = b"x" * KIB  # which is the id, too: a message takes twice that


def ring(
    *names: str,
    memory_bytes_max: int | None = None,
    topic_bytes_max: int = 1 << 30,
    partitions: int = 1,
) -> Box:
    """Topics in memory, each with the group g, which nobody reads yet."""
    box = Box(
        CrashJournal(),
        memory_bytes_max=memory_bytes_max,
        memory_topic_bytes_max=topic_bytes_max,
    )
    for name in names:
        box.declare(TopicOptions(name, durability="memory", partitions=partitions), "g")
    box.settle()
    return box


def fill(box: Box, topic: str, count: int, begin: int = 0) -> None:
    """One after the other, each with its number."""
    for number in range(begin, begin + count):
        probe = box.put(b"%d " % number + BODY, topic=topic)
        box.settle()
        assert probe.fine, probe.answers


def numbers(probe: PullProbe) -> list[int]:
    return [int(body.split()[0]) for body in probe.bodies]


def read(box: Box, topic: str) -> tuple[list[int], int]:
    """What the group gets, and how many messages it is told that it has lost."""
    box.broker._tick.put_ms = 0
    probe = box.pull("g", 10_000, topic)
    box.settle(100)
    box.settle(100)
    skipped = [answer.skipped for answer in probe.answers if isinstance(answer, Delivered)]
    return numbers(probe), sum(skipped)


def test_two_topics_share_what_there_is() -> None:
    box = ring("A", "B", memory_bytes_max=200 * KIB)
    for turn in range(10):
        fill(box, "A", 50, turn * 50)
        fill(box, "B", 50, turn * 50)
    for topic in "AB":
        got, skipped = read(box, topic)
        assert got == list(range(skipped, 500)), "the newest, in order, and nothing is lost unsaid"
        assert 20 <= len(got) <= 100
        assert box.group("g", topic).skipped_count() == skipped


def test_the_largest_topic_gives_way() -> None:
    box = ring("Large", "Small", memory_bytes_max=200 * KIB)
    fill(box, "Small", 10)
    fill(box, "Large", 1_000)
    assert read(box, "Small") == (list(range(10)), 0)
    got, skipped = read(box, "Large")
    assert got == list(range(skipped, 1_000))
    assert len(got) > 60


@pytest.mark.parametrize("partitions", [1, 4])
def test_a_topic_has_a_bound_of_its_own(partitions: int) -> None:
    box = ring("A", topic_bytes_max=100 * KIB, partitions=partitions)
    for number in range(1_000):
        box.put(b"%d " % number + BODY, topic="A", index=number % partitions)
        box.settle()
    lanes = [partition.lane for partition in box.topic("A").partitions]
    sizes = [box.memory.size_of(lane) for lane in lanes]
    assert 40 * KIB <= sum(sizes) <= 110 * KIB
    assert box.group("g", "A").skipped_count() == sum(p.first for p in box.topic("A").partitions)


def test_what_all_groups_have_read_goes_first_and_is_no_loss() -> None:
    box = ring("A", memory_bytes_max=3 << 20)
    for turn in range(10):
        fill(box, "A", 500, turn * 500)
        got, skipped = read(box, "A")
        while got[-1] < turn * 500 + 499:
            more, _ = read(box, "A")
            got += more
        assert (got, skipped) == (list(range(turn * 500, turn * 500 + 500)), 0)
    assert box.group("g", "A").skipped_count() == 0


def test_leased_and_delayed_messages_go_too() -> None:
    box = Box(CrashJournal(), memory_topic_bytes_max=50 * KIB)
    options = GroupOptions(lease=True, window=5)
    box.declare(TopicOptions("A", durability="memory"), "g", options)
    box.settle()
    fill(box, "A", 10)
    assert len(box.take("g", topic="A")) == 5
    fill(box, "A", 200, 10)
    group = box.group("g", "A")
    assert group.leased_count() == 0
    assert group.skipped_count() == box.partition("A").first > 100
    box.check()


def test_a_message_that_is_larger_than_all_there_is_is_refused_and_moves_nothing() -> None:
    box = ring("A", "B", memory_bytes_max=100 * KIB)
    fill(box, "A", 20)
    probe = box.put(b"y" * (100 * KIB), topic="B")
    box.settle()
    assert refusal(probe).refusal is Refusal.FULL
    assert read(box, "A") == (list(range(20)), 0)


def test_a_put_of_many_makes_room_for_all_of_them() -> None:
    box = ring("A", "B", memory_bytes_max=100 * KIB)
    fill(box, "A", 80)
    probe = box.put(*[b"%d " % number + BODY for number in range(30)], topic="B")
    box.settle()
    assert probe.fine
    got, skipped = read(box, "A")
    assert got == list(range(skipped, 80))
    assert 10 <= len(got) <= 20


def test_the_topic_that_gave_way_may_be_removed() -> None:
    box = ring("A", "B", memory_bytes_max=100 * KIB)
    fill(box, "A", 90)
    box.broker.remove_topic(Probe(), box.topic("A"))
    fill(box, "B", 200)
    assert read(box, "B")[0][-1] == 199
