"""Messages that are not at hand: read back from storage, or not to be had."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.core.support import Box, Probe, refusal
from zbus.core.errors import Refusal
from zbus.core.group import Pull
from zbus.core.limits import Limits
from zbus.core.state import GroupOptions, TopicOptions
from zbus.journal.memory import MemoryJournal
from zbus.journal.ports import JournalError, Lane


class ColdJournal(MemoryJournal):
    """Reads answer at once or when `arrive` is called, one batch each, or fail in some lanes."""

    def __init__(self, *, late: bool) -> None:
        super().__init__()
        self.late = late
        self.damaged: set[Lane] = set()
        self.coming: list[Callable[[], None]] = []

    def read(
        self,
        lane: Lane,
        offset: int,
        bytes_max: int,
        done: Callable[[bytes | JournalError], None],
    ) -> None:
        answers: list[bytes | JournalError] = []
        if lane in self.damaged:
            answers.append(JournalError(f"{lane} is damaged"))
        else:
            super().read(lane, offset, 1, answers.append)
        if self.late:
            self.coming.append(lambda: done(answers[0]))
        else:
            done(answers[0])

    def arrive(self) -> None:
        coming, self.coming = self.coming, []
        for call in coming:
            call()


def cold_box(late: bool, partitions: int = 1) -> tuple[Box, ColdJournal]:
    """Ten messages in each partition, none of them in memory."""
    journal = ColdJournal(late=late)
    box = Box(journal)
    box.declare(TopicOptions("T", partitions=partitions))
    box.broker.cache.bytes_max = 0
    for index in range(partitions):
        for number in range(10):
            box.put(b"%d-%d" % (index, number), index=index)
            box.settle()
        box.partition(index=index).cache.clear()
    return box, journal


def turns(box: Box, journal: ColdJournal, count: int = 300) -> None:
    for _ in range(count):
        box.turn()
        journal.arrive()


def pull(box: Box, group: str, count: int, partition: int | None = None) -> Probe:
    probe = Probe()
    box.broker.pull(box.group(group), Pull(probe, box.session(), count, partition=partition), None)
    return probe


LATE = pytest.mark.parametrize("late", [False, True])


@LATE
def test_many_groups_read_old_messages_with_a_cache_for_one(late: bool) -> None:
    """What is read back for one group must not push out another's before its turn, for ever."""
    box, journal = cold_box(late)
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
    box.put(b"hot")
    first = pull(box, "g", 1)
    turns(box, journal, 3)
    assert first.bodies == [b"0-0"]
    journal.damaged.add(("T", 0))
    for number in range(1, 4):
        box.partition().cache[number] = first.records[0].message
    probe = pull(box, "g", 10)
    turns(box, journal, 3)
    assert len(probe.records) == 3
    assert not probe.open


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
def test_a_portion_that_came_twice_stays_for_the_second_time(late: bool) -> None:
    box, journal = cold_box(late)
    box.declare("T", "g")
    got = []
    for _ in range(10):
        probe = pull(box, "g", 1)
        box.partition().cache.clear()  # its portion is known to the cache all the same
        turns(box, journal, 5)
        got += probe.bodies
    assert got == [b"0-%d" % number for number in range(10)]


def test_a_message_that_is_not_there_is_said_to_be_missing() -> None:
    """Not looked for again and again: the log has an end that its batches do not reach."""

    class Gap(MemoryJournal):
        def read(
            self,
            lane: Lane,
            offset: int,
            bytes_max: int,
            done: Callable[[bytes | JournalError], None],
        ) -> None:
            done(b"")

    box = Box(Gap(), limits=Limits(cache_bytes_max=0))
    box.declare("T", "g")
    for number in range(3):
        box.put(b"%d" % number)
        box.settle()
    probe = box.pull(wait=True)
    box.settle()
    assert refusal(probe).refusal is Refusal.DAMAGED
    assert "offset 0 of partition 0 is missing" in refusal(probe).text
