"""Logs of a new topic with many partitions are made a few in a turn; it comes to life whole."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import attrs
import pytest

from tests.core.support import Box, CrashJournal, Probe, again, refusal, same_state
from zbus.core.commit.making import LOGS_PER_TURN, Unmade
from zbus.core.cursor.state import TopicOptions
from zbus.core.model.errors import Refusal
from zbus.core.patterns.schedules import NOTES
from zbus.core.topics.topic import Topic
from zbus.storage.format.batch import Batch, Kind
from zbus.storage.port import JournalFull, Lane

PARTITIONS = 64
TURNS = PARTITIONS // LOGS_PER_TURN


class Narrow(CrashJournal):
    """Counts lanes that begin; there is room for so many."""

    made = 0
    lanes_max = 1 << 30

    def append(self, lane: Lane, after: int, batches: Sequence[Batch]) -> None:
        if batches[0].header.kind is Kind.CHECKPOINT and not after:
            if self.made >= self.lanes_max:
                raise JournalFull("no space left")
            self.made += 1
        super().append(lane, after, batches)


def narrow(durability: str = "os") -> tuple[Box, Narrow, TopicOptions]:
    journal = Narrow()
    box = Box(journal)
    box.declare("Live", "g")
    box.settle()
    journal.made = 0
    return box, journal, TopicOptions("T", partitions=PARTITIONS, durability=durability)


@pytest.mark.parametrize("durability", ["os", "disk"])
def test_a_few_in_a_turn_and_others_are_served(durability: str) -> None:
    box, journal, options = narrow(durability)
    declared = box.declare(options, "g")
    for turn in range(1, TURNS):
        put = box.put(b"x", topic="Live")
        box.turn()
        assert journal.made == turn * LOGS_PER_TURN
        assert declared.open
        assert box.broker.next_due() == box.now_ms, "the next turn begins at once"
        journal.release()
        assert put.fine
    box.settle()
    assert declared.fine
    assert journal.made == PARTITIONS
    same_state(box, again(box))


def test_in_memory_and_with_few_partitions_it_is_there_in_its_turn() -> None:
    box, _, options = narrow("memory")
    declared = (
        box.declare(options, "g"),
        box.declare(TopicOptions("U", partitions=LOGS_PER_TURN, durability="os")),
    )
    box.turn()
    assert all(one.fine for one in declared)


def test_topics_take_turns() -> None:
    box, _, options = narrow()
    large = box.declare(options)
    small = box.declare(TopicOptions("Small", partitions=LOGS_PER_TURN + 2, durability="os"))
    for _ in range(4):
        box.turn()
    assert small.fine
    assert large.open


def test_what_is_put_meanwhile_is_answered_when_all_is_made() -> None:
    box, journal, options = narrow()
    declared = box.declare(options, "g")
    puts = [box.put(b"early"), box.put(b"late", index=PARTITIONS - 1)]
    box.turn()
    puts.append(box.put(b"made", index=1))
    pull = box.pull(wait=True)
    box.turn()
    assert all(one.open for one in (*puts, declared, pull))
    assert journal.made == 2 * LOGS_PER_TURN, "what is written to a log takes none of their places"
    box.settle()
    assert all(one.fine for one in (*puts, declared))
    assert pull.bodies == [b"early"]
    assert sorted(box.take()) == [b"late", b"made"]


@pytest.mark.parametrize("durability", ["os", "disk"])
@pytest.mark.parametrize("room", [0, 1, LOGS_PER_TURN, 3 * LOGS_PER_TURN + 1, PARTITIONS - 1])
def test_without_room_for_the_last_there_is_nothing_of_it(durability: str, room: int) -> None:
    box, journal, options = narrow(durability)
    journal.lanes_max = room
    waiting = [box.declare(options, "g"), box.put(b"0"), box.put(b"1", index=PARTITIONS - 1)]
    box.settle()
    assert [refusal(one).refusal for one in waiting[:2]] == [Refusal.FULL] * 2
    assert refusal(waiting[2]).refusal in (Refusal.FULL, Refusal.TOPIC_UNKNOWN), (
        "if not written yet"
    )
    assert box.broker.topic("T") is None
    assert not box.broker.has_unwritten()
    assert again(box).broker.topic("T") is None
    journal.lanes_max = 1 << 30
    declared = box.declare(options, "g")
    box.settle()
    assert declared.fine


@pytest.mark.parametrize("durability", ["os", "disk"])
@pytest.mark.parametrize("turns", [0, 1, TURNS - 1])
def test_it_is_removed_while_it_is_made(turns: int, durability: str) -> None:
    box, _, options = narrow(durability)
    waiting = [box.declare(options, "g"), box.put(b"0"), box.put(b"1", index=PARTITIONS - 1)]
    for _ in range(turns):
        box.turn()
    box.broker.remove_topic(removed := Probe(), box.topic())
    assert [refusal(one).refusal for one in waiting] == [Refusal.TOPIC_UNKNOWN] * 3
    assert box.broker.topic("T") is None
    box.settle()
    assert removed.fine
    assert not box.broker.has_unwritten()
    assert again(box).broker.topic("T") is None


@pytest.mark.parametrize("durability", ["os", "disk"])
def test_what_comes_after_its_removal_is_of_the_next_topic(durability: str) -> None:
    box, _, options = narrow(durability)
    box.declare(options, "g")
    box.turn()
    box.broker.remove_topic(removed := Probe(), box.topic())
    after = [box.declare(options, "g"), box.put(b"after")]
    box.settle()
    assert all(one.fine for one in (removed, *after))
    assert box.take() == [b"after"]
    same_state(box, again(box))


@pytest.mark.parametrize("durability", ["os", "disk"])
def test_its_schedules_go_with_it(durability: str) -> None:
    box, _, options = narrow(durability)
    box.declare(options, "g")
    box.declare(TopicOptions("cron.T", notes=NOTES, durability="os"))
    box.turn()
    box.broker.remove_topic(removed := Probe(), box.topic())
    box.settle()
    assert removed.fine
    assert box.broker.topic("cron.T") is None


def test_others_that_are_being_made_cost_a_turn_nothing() -> None:
    box, _, options = narrow()
    for number in range(100):
        box.declare(attrs.evolve(options, name=f"T{number}"))
    box.turn()
    making = box.broker._tick.making
    looked: list[Topic] = []

    class Looked(dict[Topic, Unmade]):
        def get(self, topic: Topic, default: None = None) -> Unmade | None:  # type: ignore[override]
            looked.append(topic)
            return super().get(topic, default)

    making.topics = Looked(making.topics)
    box.turn()
    assert len(looked) <= 3 * LOGS_PER_TURN


def test_it_grows_while_it_is_made() -> None:
    box, journal, _ = narrow()
    half = PARTITIONS // 2
    declared = box.declare(TopicOptions("T", partitions=half, durability="os"), "g")
    box.turn()
    put = box.put(b"before", index=half - 1)
    grown = box.declare(TopicOptions("T", partitions=PARTITIONS, durability="os"))
    assert put.fine, "it is before the line"
    assert declared.fine
    assert journal.made == PARTITIONS, "a growth is made at once"
    box.settle()
    assert grown.fine
    same_state(box, again(box))


@pytest.mark.parametrize("seed", range(40))
def test_after_a_crash_it_is_there_whole_or_not_at_all(seed: int) -> None:
    random = Random(seed)
    box, journal, options = narrow(random.choice(("os", "disk")))
    declared = box.declare(options, "g")
    for _ in range(random.randrange(TURNS + 3)):
        box.turn()
        if random.random() < 0.3:
            journal.release()
    after = Box(journal.crash(lambda lane, count: random.randint(0, count)))
    after.settle()
    topic = after.broker.topic("T")
    if topic is not None:
        assert len(topic.partitions) == PARTITIONS
        assert all(after.broker._storage.holds(one) for one in topic.partitions)
        assert topic.group("g") is not None
    else:
        assert options.durability == "os" or not declared.fine


@pytest.mark.parametrize("durability", ["os", "disk"])
def test_what_a_crash_left_half_made_is_made_a_few_in_a_turn(durability: str) -> None:
    box, journal, options = narrow(durability)
    for number in range(4):
        box.declare(attrs.evolve(options, name=f"T{number}"), "g")
    for _ in range(8):
        box.turn()
    journal.release()
    after = Box(left := journal.crash(lambda lane, count: count))
    holds = after.broker._storage.holds
    topics = [after.topic(f"T{number}") for number in range(4)]
    logs = [sum(map(holds, topic.partitions)) for topic in topics]
    assert sum(logs) == 8 * LOGS_PER_TURN
    put = after.put(b"x", topic="Live")
    held = after.put(b"x", topic="T1", index=PARTITIONS - 1)
    after.turn()
    assert sum([sum(map(holds, topic.partitions)) for topic in topics]) <= 9 * LOGS_PER_TURN
    left.release()
    assert put.fine
    assert held.open
    after.settle()
    assert held.fine
    assert all(holds(one) for topic in topics for one in topic.partitions)
    same_state(after, again(after))
