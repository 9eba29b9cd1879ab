"""A change of a topic with several partitions is whole after a crash, or it never was.

Each row is a change. It is written and not synced; then the power goes, and of the batches that
were not synced each partition keeps none, some or all. What a new broker makes of that is compared
with what it was before and after, never with something between.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from tests.core.support import Box, CrashJournal, Probe, wishing
from zbus.core.cursor.state import GroupOptions, TopicOptions
from zbus.core.verbs.declare import GroupWish
from zbus.core.verbs.seek import Start
from zbus.storage.port import JournalDamage, Lane

COUNT = 3
TOPIC = TopicOptions("T", partitions=COUNT)
LEASES = GroupOptions(lease=True, lease_ms=1_000_000)

Picture = object


def picture(box: Box) -> Picture:
    """What users can tell of a topic."""
    topic = box.broker.topic("T")
    if topic is None:
        return None
    options = topic.options
    groups = {
        name: (
            group.options.filter,
            [(backlog.cursor, sorted(backlog.places)) for backlog in group.backlogs],
            [sorted(backlog.delayed) for backlog in group.backlogs],
            [sorted(backlog.leased) for backlog in group.backlogs],
        )
        for name, group in topic.groups.items()
    }
    return options.opaque, options.created_ms, [p.first for p in topic.partitions], groups


def prepared(segment_bytes: int, count: int = COUNT) -> Box:
    """Three messages in each partition, of which the third is delayed; `old` has the first one
    done, the second one leased."""
    box = Box(CrashJournal(), segment_bytes_max=segment_bytes)
    box.declare(TopicOptions("T", partitions=count), "old", LEASES)
    for index in range(count):
        box.put(b"0", b"1", index=index)
        box.put(b"2", index=index, due_ms=box.now_ms + 1_000_000)
    box.settle()
    for _ in range(2 * count):
        box.pull("old")
        box.settle()
    for index in range(count):
        box.ack(0, "old", index=index)
    box.settle()
    box.settle(10)
    assert all(sorted(b.leased) == [1] for b in box.group("old").backlogs)
    return box


def declare_at(start: Start, group: str = "old") -> Callable[[Box], None]:
    def change(box: Box) -> None:
        wish = GroupWish(group, LEASES, start)
        box.broker.declare(Probe(), "T", wishing(TOPIC, wish))

    return change


def seek(start: Start) -> Callable[[Box], None]:
    return lambda box: box.broker.seek(Probe(), box.group("old"), start)


def change_options(box: Box) -> None:
    options = GroupOptions(lease=True, lease_ms=1_000_000, filter="a.*")
    box.declare(TopicOptions("T", partitions=COUNT), "old", options)


def change_topic(box: Box) -> None:
    box.declare(TopicOptions("T", partitions=COUNT, opaque=b"7"))


def remove_group(box: Box) -> None:
    box.broker.remove_group(Probe(), box.group("old"))


def replace_group(box: Box) -> None:
    remove_group(box)
    declare_at(Start(offset=2))(box)


def empty_group(box: Box) -> None:
    box.broker.purge_group(Probe(), box.group("old"))


def empty_topic(box: Box) -> None:
    box.broker.purge_topic(Probe(), box.topic())


def put_and_empty(box: Box) -> None:
    """What is staged is purged, too; the crash may take it."""
    for index in range(COUNT):
        box.put(b"late", index=index)
    empty_topic(box)


CHANGES: dict[str, Callable[[Box], None]] = {
    "declare like the others": declare_at(Start(), "new"),
    "declare like one": declare_at(Start(copy="old"), "new"),
    "declare at the beginning": declare_at(Start(offset=0), "new"),
    "declare at an offset": declare_at(Start(offset=2), "new"),
    "declare at the end": declare_at(Start(offset=3), "new"),
    "declare at an offset of one partition": declare_at(Start(offset=2, partition=1), "new"),
    "declare at other offsets": declare_at(Start(offset=(1, 2, 3)), "new"),
    "declare and move": declare_at(Start(offset=0, moves=True)),
    "seek": seek(Start(offset=0)),
    "seek in one partition": seek(Start(offset=0, partition=1)),
    "seek the end": seek(Start(latest=True)),
    "seek other offsets": seek(Start(offset=(3, 0, 2))),
    "seek a time": seek(Start(time_ms=0)),
    "change a group": change_options,
    "change a topic": change_topic,
    "remove a group": remove_group,
    "replace a group": replace_group,
    "empty a group": empty_group,
    "empty a topic": empty_topic,
    "put, and empty a topic": put_and_empty,
}


def crashes(box: Box) -> Iterator[Box]:
    """All that a power cut may leave."""
    assert isinstance(box.journal, CrashJournal)
    journal = box.journal
    counts = {lane: len(log) - journal.synced.get(lane, 0) for lane, log in journal.written.items()}
    choices = [sorted({*range(min(count, 4)), count}) for count in counts.values()]
    for chosen in itertools.product(*choices):
        kept = dict(zip(counts, chosen, strict=True))
        yield Box(journal.crash(partial(_kept, kept)), now_ms=box.now_ms)


def _kept(kept: dict[Lane, int], lane: Lane, unsynced: int) -> int:
    return kept[lane]


def settled(box: Box) -> Box:
    """Recovered a second time, from what the first recovery wrote."""
    box.settle()
    assert isinstance(box.journal, CrashJournal)
    return Box(box.journal.crash(lambda lane, unsynced: unsynced), now_ms=box.now_ms)


@pytest.mark.parametrize("segment_bytes", [1, 64 << 20])
@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_whole_or_was_never_made(name: str, segment_bytes: int) -> None:
    """With segments of one byte every write is followed by a checkpoint, which tells everything."""
    whole_or_never(name, prepared(segment_bytes), CHANGES[name])


@pytest.mark.parametrize("segment_bytes", [1, 64 << 20])
@pytest.mark.parametrize("count", [1, COUNT])
def test_a_topic_has_grown_or_it_has_not(count: int, segment_bytes: int) -> None:
    """Any partition that knows of it is enough, and the groups begin at 0 of those that are new."""

    def grow(box: Box) -> None:
        box.declare(TopicOptions("T", partitions=count + 2))

    whole_or_never("grow", prepared(segment_bytes, count), grow)


def whole_or_never(name: str, box: Box, change: Callable[[Box], None]) -> None:
    before = picture(box)
    change(box)
    box.turn()
    assert isinstance(box.journal, CrashJournal)
    written = box.journal
    afters = list(crashes(box))
    written.release()
    after = picture(box)
    assert after != before
    seen = []
    for found in afters:
        seen.append(in_short(name, picture(found)))
        assert seen[-1] in (in_short(name, before), in_short(name, after))
        assert in_short(name, picture(settled(found))) == seen[-1]
    assert in_short(name, before) in seen
    assert in_short(name, after) in seen


def in_short(name: str, shown: Picture) -> Picture:
    """Of messages that nobody was told of the crash may have kept some, and a purge all of them."""
    if name != "put, and empty a topic" or not isinstance(shown, tuple):
        return shown
    opaque, _, firsts, groups = shown
    return opaque, [min(first, 3) for first in firsts], groups if firsts[0] == 0 else list(groups)


def test_after_a_lost_purge_new_messages_stay() -> None:
    """Partition 0 says that three more are purged than the crash left: what is put in their place
    is not purged by the next start."""
    box = prepared(64 << 20)
    put_and_empty(box)
    box.turn()
    assert isinstance(box.journal, CrashJournal)
    found = Box(box.journal.crash(lambda lane, count: 0 if lane[1] else count), now_ms=box.now_ms)
    assert found.partition(index=1).end == 3
    put = found.put(b"new", index=1)
    found.settle()
    assert put.offset == 3
    again = settled(found)
    assert (again.partition(index=1).first, again.partition(index=1).end) == (3, 4)
    again.declare(TOPIC, "reader", start=Start(offset=0))
    assert again.take("reader") == [b"new"]


def test_the_number_of_a_lost_decision_is_not_given_again() -> None:
    """The first decision reaches only partition 1, the second only partition 0."""
    box = prepared(64 << 20)
    declare_at(Start(offset=0), "new")(box)
    box.turn()
    assert isinstance(box.journal, CrashJournal)
    first = Box(box.journal.crash(lambda lane, count: count if lane[1] == 1 else 0))
    assert list(first.topic().groups) == ["old"]
    declare_at(Start(offset=3), "new")(first)
    first.turn()
    assert isinstance(first.journal, CrashJournal)
    second = Box(first.journal.crash(lambda lane, count: count if lane[1] == 0 else 0))
    assert second.group("new").position() == [3, 3, 3]


@pytest.mark.parametrize("has_messages", [False, True])
def test_a_lost_partition_0_is_not_taken_for_a_topic_that_was_never_made(
    has_messages: bool,
) -> None:
    box = Box(CrashJournal())
    box.declare(TOPIC, "g")
    if has_messages:
        box.put(b"0", index=1)
    box.settle()
    assert isinstance(box.journal, CrashJournal)
    journal = box.journal.crash(lambda lane, count: count if lane[1] else 0)
    journal.remove([("T", 0)], lambda: None)
    if has_messages:
        with pytest.raises(JournalDamage, match="partition 0 of topic 'T' is missing"):
            Box(journal)
    else:
        assert not Box(journal).broker.topics
