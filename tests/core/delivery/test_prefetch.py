"""Messages that are not at hand: read back from storage, or not to be had."""

from __future__ import annotations

import pytest

from tests.core.support import Box, CrashJournal, Probe, PullProbe, SlowJournal, cool, refusal
from zbus.core.cursor.state import GroupOptions, TopicOptions
from zbus.core.model.errors import Refusal
from zbus.core.model.limits import Limits
from zbus.core.model.pull_options import PullOptions
from zbus.core.topics.outcomes import Raw
from zbus.storage.format.batch import iterate
from zbus.storage.memory import MemoryJournal
from zbus.storage.port import JournalError, Lane, ReadDone
from zbus.testing.engines import bodies


def cold_box(late: bool, partitions: int = 1) -> tuple[Box, SlowJournal]:
    """Ten messages in each partition, none of them in memory."""
    journal = SlowJournal(late=late, portion_bytes=1)
    box = Box(journal)
    box.declare(TopicOptions("T", partitions=partitions))
    box.broker._memory.recent_max = 0
    for index in range(partitions):
        for number in range(10):
            box.put(b"%d-%d" % (index, number), index=index)
            box.settle()
    cool(box)
    return box, journal


def turns(box: Box, journal: SlowJournal, count: int = 300) -> None:
    for _ in range(count):
        box.turn()
        journal.release()
        journal.answer()


def pull(box: Box, group: str, count: int, partition: int | None = None) -> PullProbe:
    probe = PullProbe(box.session(), PullOptions(count, partition))
    box.broker.pull(box.group(group), probe, None)
    return probe


LATE = pytest.mark.parametrize("late", [False, True])


@LATE
def test_many_groups_read_old_messages_with_memory_for_one(late: bool) -> None:
    """What is read back for one group must not push out another's before its turn, for ever."""
    box, journal = cold_box(late)
    box.broker._memory.replayed_max = 0
    groups = [f"g{number}" for number in range(5)]
    for number, group in enumerate(groups):
        box.declare("T", group)
        box.group(group).backlogs[0].seek(number)
    got: dict[str, list[bytes]] = {group: [] for group in groups}
    for _ in range(10):
        pulls = {group: pull(box, group, 1) for group in groups}
        turns(box, journal, 60)
        for group, probe in pulls.items():
            got[group] += probe.bodies
    wanted = [[b"0-%d" % number for number in range(first, 10)] for first in range(5)]
    assert list(got.values()) == wanted


@LATE
def test_a_pull_ends_with_the_error_when_nothing_can_be_read(late: bool) -> None:
    box, journal = cold_box(late)
    box.declare("T", "g")
    journal.damaged.add(("T", 0))
    probe = pull(box, "g", 5)
    turns(box, journal, 3)
    assert refusal(probe).refusal is Refusal.DAMAGED


@LATE
def test_what_was_read_before_the_damage_is_delivered(late: bool) -> None:
    box, journal = cold_box(late)
    box.declare("T", "g", GroupOptions(lease=True))
    box.declare("T", "before")
    first = pull(box, "g", 1)
    turns(box, journal, 3)
    assert first.bodies == [b"0-0"]
    for _ in range(3):
        pull(box, "before", 1)
        turns(box, journal, 3)
    journal.damaged.add(("T", 0))
    at_hand = next(number for number in range(1, 10) if box.partition().log.find(number) is None)
    assert at_hand == 4, "0 to 2, and one that was read ahead"
    probe = pull(box, "g", 10)
    turns(box, journal, 3)
    assert probe.bodies == [b"0-%d" % number for number in range(1, at_hand)]
    assert not probe.open
    after = pull(box, "g", 10)
    turns(box, journal, 3)
    assert refusal(after).refusal is Refusal.DAMAGED


@LATE
def test_damage_in_one_partition(late: bool) -> None:
    box, journal = cold_box(late, partitions=3)
    box.declare(box.topic().options, "g")
    journal.damaged.add(("T", 1))
    for probe in (pull(box, "g", 10, partition=1), pull(box, "g", 10, partition=1)):
        turns(box, journal, 3)
        assert refusal(probe).refusal is Refusal.DAMAGED
    for index in (0, 2):
        probe = pull(box, "g", 1, partition=index)
        turns(box, journal, 3)
        assert probe.bodies == [b"%d-0" % index]
    box.broker.check()


@LATE
def test_a_portion_that_was_let_go_comes_again(late: bool) -> None:
    box, journal = cold_box(late)
    box.declare("T", "g")
    got = []
    for _ in range(10):
        probe = pull(box, "g", 1)
        cool(box)
        turns(box, journal, 5)
        got += probe.bodies
    assert got == [b"0-%d" % number for number in range(10)]


@LATE
def test_what_is_in_a_delivery_stays_while_memory_lets_go_of_it(late: bool) -> None:
    """Reading on makes room by what the reader has passed, and that is in its hands."""
    box, journal = cold_box(late)
    box.declare("T", "g")
    box.broker._memory.replayed_max = 0
    got = []
    for _ in range(10):
        probe = pull(box, "g", 10)
        turns(box, journal, 5)
        got += probe.bodies
        assert late or len(probe.bodies) in (10, 0)
    assert got == [b"0-%d" % number for number in range(10)]


def test_a_message_that_is_not_there_is_said_to_be_missing() -> None:
    """Not looked for again and again: the log has an end that its batches do not reach."""

    class Gap(MemoryJournal):
        def read(
            self,
            lane: Lane,
            offset: int,
            bytes_max: int,
            done: ReadDone,
        ) -> None:
            done(b"")

    box = Box(Gap(), limits=Limits(cache_bytes_max=0))
    box.declare("T", "g")
    for number in range(3):
        box.put(b"%d" % number)
        box.settle()
    cool(box)
    probe = box.pull(wait=True)
    box.settle()
    assert refusal(probe).refusal is Refusal.DAMAGED
    assert "offset 0 of partition 0 is missing" in refusal(probe).text


def test_a_batch_that_is_missing_among_others_is_not_passed_over() -> None:
    """What comes behind a hole is not taken for what should be there."""

    class Hole(MemoryJournal):
        def read(
            self,
            lane: Lane,
            offset: int,
            bytes_max: int,
            done: ReadDone,
        ) -> None:
            found: list[bytes | JournalError] = []
            super().read(lane, offset, bytes_max, found.append)
            assert isinstance(found[0], bytes)
            batches = [batch for batch in iterate(found[0]) if batch.header.base_offset != 2]
            done(b"".join([batch.raw for batch in batches]))

    box = Box(Hole())
    box.declare("T", "g")
    for number in range(5):
        box.put(b"%d" % number)
        box.settle()
    cool(box)
    assert box.take() == [b"0", b"1"]
    probe = box.pull(wait=True)
    box.settle()
    assert refusal(probe).refusal is Refusal.DAMAGED
    assert "offset 2 of partition 0 is missing" in refusal(probe).text


def test_batches_as_they_are_end_where_the_log_is_durable() -> None:
    box = Box(CrashJournal())
    box.declare(TopicOptions("T", durability="disk"))
    box.put(b"0")
    box.settle()
    box.put(b"1")
    box.turn()
    for expected in ([b"0"], [b"0", b"1"]):
        probe = Probe()
        box.broker.read(probe, box.partition(), 0, 1 << 20)
        (raw,) = probe.answers
        assert isinstance(raw, Raw)
        assert (bodies(raw.batches), raw.end) == (expected, len(expected))
        box.settle()
