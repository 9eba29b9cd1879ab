"""A new broker on the same bytes: topics, groups and backlogs are exactly as they were."""

from __future__ import annotations

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.support import Box, CrashJournal, Probe, again, same_state
from tests.limits import examples
from zbus.core.cursor import journal
from zbus.core.cursor.backlog import Backlog
from zbus.core.cursor.state import (
    Entries,
    Entry,
    EntryState,
    GroupChange,
    GroupOptions,
    StateChange,
    TopicOptions,
)
from zbus.core.dedup.entries import Original
from zbus.core.persistence.replay import recover
from zbus.storage.format.batch import SNAPSHOT, Kind, encode_state
from zbus.storage.format.checkpoint import decode_change, encode_change
from zbus.storage.port import JournalDamage, Lane

LEASES = GroupOptions(lease=True, lease_ms=1_000)

ODD_TOPIC = TopicOptions(
    "Ünïcode Name",
    opaque=b'{"mask":[11,null]}',
    partitions=3,
    durability="os",
    calls=True,
    competing=False,
    lease=True,
    exclusive=True,
    temporary=True,
    paused=True,
)
ODD_GROUP = GroupOptions(
    opaque=b"64",
    filter="a.*;stock.#",
    lease=False,
    lease_ms=1,
    window=7,
    exclusive=False,
    temporary=False,
    paused=True,
)


def new_box(segment_bytes_max: int = 64 << 20) -> Box:
    return Box(CrashJournal(), segment_bytes_max=segment_bytes_max)


def checkpoints(box: Box, lane: Lane = ("T", 0)) -> int:
    assert isinstance(box.journal, CrashJournal)
    written = [batch for batch in box.journal.written[lane] if not isinstance(batch, int)]
    return sum(batch.header.kind is Kind.CHECKPOINT for batch in written)


def test_nothing() -> None:
    assert recover(CrashJournal()) == ([], 0)


@pytest.mark.parametrize("topic", [TopicOptions("T"), ODD_TOPIC])
@pytest.mark.parametrize("group", [GroupOptions(), LEASES, ODD_GROUP])
def test_options(topic: TopicOptions, group: GroupOptions) -> None:
    box = new_box()
    box.declare(topic, "Group A", group)
    box.settle()
    after = again(box)
    same_state(box, after)
    assert after.topic(topic.name).options == attrs.evolve(topic, created_ms=box.now_ms)
    found = after.group("gROUP a", topic.name)
    assert found.name == "Group A"
    assert found.options == attrs.evolve(group, created_ms=box.now_ms)
    assert (found.match is None) == (not group.filter)
    for word in ("lease", "exclusive", "temporary", "paused"):
        own = getattr(group, word)
        assert getattr(found, word) == (getattr(topic, word) if own is None else own)


def test_a_topic_without_groups_keeps_its_messages() -> None:
    box = new_box()
    box.declare("T")
    box.put(b"0", b"1")
    box.settle()
    after = again(box)
    assert after.topic().groups == {}
    after.declare("T", "g")
    assert after.take() == [b"0", b"1"]


def test_changed_options_are_those_of_the_last_change() -> None:
    box = new_box()
    box.declare("T", "g", GroupOptions(filter="a.*"))
    box.settle()
    for window in (5, 6, 7):
        options = attrs.evolve(LEASES, window=window, filter="b.#")
        box.declare(TopicOptions("T", opaque=b"%d" % window), "G", options)
        box.settle()
    after = again(box)
    same_state(box, after)
    assert after.group().options.window == 7
    assert after.group().name == "g", "the first spelling stays"
    assert after.topic().options.opaque == b"7"
    match = after.group().match
    assert match is not None
    assert (match(b"a.x"), match(b"b.x")) == (False, True)


def test_topic_options_reach_groups_that_leave_them_open() -> None:
    box = new_box()
    box.declare(TopicOptions("T", lease=False), "g")
    box.declare(TopicOptions("T", lease=True), "")
    assert box.group().lease
    box.settle()
    assert again(box).group().lease


def test_cursors() -> None:
    box = new_box()
    for group in ("a", "b", "c"):
        box.declare(TopicOptions("T"), group)
    box.put(*[b"%d" % number for number in range(10)])
    box.settle()
    assert len(box.take("a", 3)) == 3
    assert len(box.take("b", 7)) == 7
    after = again(box)
    same_state(box, after)
    assert [len(after.take(group)) for group in ("a", "b", "c")] == [7, 3, 10]


def test_leases_keep_their_deadlines_and_attempts() -> None:
    box = new_box()
    box.declare("T", "g", LEASES)
    box.put(b"0", b"1", b"2", b"3")
    box.settle()
    assert box.take(count=3) == [b"0", b"1", b"2"]
    for _ in range(2):
        box.nack(1)
        box.settle()
        assert box.take(count=1) == [b"1"]
    box.ack(0)
    box.settle()
    after = again(box)
    same_state(box, after)
    after.settle(500)
    assert after.take() == [b"3"]
    after.settle(600)
    probe = after.pull(count=10)
    after.settle()
    assert [(r.message.body, r.attempts) for r in probe.records] == [
        (b"1", 4),
        (b"2", 2),
    ], "and what was acknowledged does not come again"


def test_put_back_in_front_and_at_the_end_keep_their_order() -> None:
    box = new_box()
    box.declare("T", "g", LEASES)
    box.put(*[b"%d" % number for number in range(8)])
    box.settle()
    assert len(box.take(count=6)) == 6
    box.nack(3, front=False)
    box.nack(1, front=False)
    box.nack(4)
    box.nack(2)
    box.put(b"8")
    box.settle()
    after = again(box)
    same_state(box, after)
    wanted = [b"2", b"4", b"6", b"7", b"3", b"1", b"8"]
    assert again(after).take() == wanted
    assert after.take() == wanted
    assert box.take() == wanted


def test_what_is_put_back_again_in_one_turn_goes_behind_the_others() -> None:
    """The order of equal ranks is that of the last change, on both sides of a restart."""
    box = new_box()
    box.declare("T", "g", LEASES)
    box.put(b"0", b"1")
    box.settle()
    assert len(box.take()) == 2
    box.broker._tick.commit()
    backlog = box.group().backlogs[0]
    backlog.put_end(0, 2)
    backlog.put_end(1, 2)
    backlog.put_end(0, 2)
    box.broker._tick.change(box.partition(), box.group())
    after = again(box)
    assert after.take() == [b"1", b"0"]
    assert box.take() == [b"1", b"0"]


def test_delays() -> None:
    box = new_box()
    box.declare("T", "g", LEASES)
    box.put(b"late", due_ms=box.now_ms + 500)
    box.put(b"now")
    box.settle()
    assert box.take() == [b"now"]
    box.nack(1, due_ms=box.now_ms + 300)
    box.settle()
    for known in (again(box), again(again(box))):
        same_state(box, known)
        start_ms = known.now_ms
        waiting = known.pull(count=1, wait=True)
        due_ms = known.broker.next_due()
        while waiting.open and due_ms is not None:
            known.settle(max(0, due_ms - known.now_ms))
            due_ms = known.broker.next_due()
        assert waiting.bodies == [b"now"]
        assert known.now_ms >= start_ms + 290  # some of it had passed before the restart
        assert known.take() == []
        known.settle(500)
        assert known.take() == [b"late"]


def test_delays_as_they_were_stored_before() -> None:
    """As entries, each with its state."""
    offsets = (3, 4, 300, 0)
    entries = Entries.of(*[Entry(o, EntryState.DELAYED, 700 - o % 2) for o in offsets])
    old, new = Backlog(), Backlog()
    payload = encode_change(StateChange(groups=(GroupChange("g", 5, entries=entries),)))
    assert b"pages" not in payload
    for _ in range(2):
        journal.apply(old, decode_change(payload).groups[0])
        old.check()
    for offset in range(5):
        new.finish(offset)
    new.delay(300, 700)
    for offset in (0, 3, 4):
        new.delay(offset, 700 - offset % 2)
    assert journal.snapshot(old, "g") == journal.snapshot(new, "g")
    assert old.delayed.pop_due(700, 9) == [3, 0, 4, 300]


def test_a_delay_that_ended_while_the_broker_was_away() -> None:
    box = new_box()
    box.declare("T", "g")
    box.put(b"late", due_ms=box.now_ms + 500)
    box.settle()
    assert box.take() == []
    after = again(box)
    assert list(after.group().backlogs[0].delayed) == [0]
    later = Box(after.journal, now_ms=box.now_ms + 1_000)
    later.settle(1)  # its first turn
    assert later.take() == [b"late"]


def test_time_does_not_go_back() -> None:
    box = new_box()
    box.declare("T", "g")
    box.settle(5_000)
    box.put(b"0")
    box.settle()
    assert Box(again(box).journal, now_ms=1).now_ms == box.now_ms


def test_removed_groups_and_topics_stay_away() -> None:
    box = new_box()
    for topic in ("T", "U"):
        for group in ("a", "b"):
            box.declare(TopicOptions(topic, partitions=3), group)
    box.settle()
    box.broker.remove_group(Probe(), box.group("a"))
    box.broker.remove_topic(Probe(), box.topic("U"))
    box.settle()
    after = again(box)
    same_state(box, after)
    assert list(after.broker.topics) == ["t"]
    assert list(after.topic().groups) == ["b"]


def test_a_group_declared_again_has_nothing_of_the_old_one() -> None:
    box = new_box()
    box.declare("T", "g", LEASES)
    box.put(b"0", b"1", b"2")
    box.settle()
    assert box.take(count=2) == [b"0", b"1"]
    box.broker.remove_group(Probe(), box.group())
    box.declare("T", "G", GroupOptions(filter="#"))
    box.settle()
    after = again(box)
    same_state(box, after)
    assert after.group().name == "G"
    assert not after.group().leased_count()
    assert after.group().options.filter == "#"


def test_a_purge() -> None:
    box = new_box()
    box.declare("T", "g", LEASES)
    box.put(b"0", b"1", b"2")
    box.settle()
    box.take(count=2)
    box.broker.purge_group(Probe(), box.group())
    box.put(b"3")
    box.settle()
    after = again(box)
    same_state(box, after)
    after.settle(2_000)
    assert after.take() == [b"3"]


@pytest.mark.parametrize("segment_bytes_max", [1, 300, 2_000])
def test_segments_begin_with_everything_there_is(segment_bytes_max: int) -> None:
    box = new_box(segment_bytes_max)
    box.declare("T", "g", attrs.evolve(LEASES, filter=""))
    box.declare("T", "other", GroupOptions(filter="#"))
    for turn in range(60):
        box.put(b"%d" % turn, due_ms=box.now_ms + 10 if turn % 7 == 0 else 0)
        box.settle(1)
        box.pull(count=2)
        box.settle()
        leased = list(box.group().backlogs[0].leased)
        if leased and turn % 3:
            if turn % 2:
                box.ack(leased[0])
            else:
                box.nack(leased[0], front=turn % 4 == 0)
        box.settle()
        if turn % 10 == 0:
            same_state(box, again(box, segment_bytes_max))
    assert checkpoints(box) > 3
    after = again(box, segment_bytes_max)
    same_state(box, after)
    for known in (box, after):
        known.settle(2_000)
    wanted = box.take()
    assert wanted
    assert after.take() == wanted


def test_a_segment_that_ends_with_its_checkpoint_knows_where_the_log_ends() -> None:
    """The newest segment may hold nothing but what it begins with."""
    box = new_box(1)
    box.declare("T", "g")
    box.settle()
    assert checkpoints(box) == 1
    put = box.put(bytes(2_000))
    box.settle()
    assert checkpoints(box) == 2
    after = again(box)
    assert after.partition().end == box.partition().end == put.offset + 1
    late = after.put(b"next")
    after.settle()
    assert late.offset == put.offset + 1


# -- what a crash leaves of a change to several lanes -------------------------------------


def crashed(box: Box, kept: dict[int, int]) -> Box:
    """The power went: of the batches not synced, lane i of the topic keeps `kept[i]`."""
    assert isinstance(box.journal, CrashJournal)
    return Box(box.journal.crash(lambda lane, unsynced: min(unsynced, kept.get(lane[1], 0))))


@pytest.mark.parametrize("there", [{0}, {1}, {2}, {0, 2}, {1, 2}])
def test_partitions_that_were_created_in_part(there: set[int]) -> None:
    """The topic is there if partition 0 is; the others are made then, or taken away."""
    box = new_box()
    box.declare(TopicOptions("T", partitions=3), "g", LEASES)
    box.turn()  # written, not synced
    after = crashed(box, dict.fromkeys(there, 99))
    assert set(after.broker.topics) == ({"t"} if 0 in there else set())
    after.declare(TopicOptions("T", partitions=3), "g", LEASES)
    after.settle()
    assert after.topic().options.partitions == 3
    puts = [after.put(b"%d" % index, index=index) for index in range(3)]
    after.settle()
    assert [put.offset for put in puts] == [0, 0, 0]
    after = again(after)
    assert sorted(after.take()) == [b"0", b"1", b"2"]
    same_state(after, again(after))


@given(st.fixed_dictionaries({index: st.integers(0, 3) for index in range(3)}))
@examples(64, derandomize=True)
def test_a_group_that_was_declared_in_part(kept: dict[int, int]) -> None:
    box = new_box()
    box.declare(TopicOptions("T", partitions=3), "old")
    for index in range(3):
        box.put(b"%d" % index, index=index)
    box.settle()
    assert len(box.take("old")) == 3
    box.broker._tick.commit()
    box.settle()
    assert isinstance(box.journal, CrashJournal)
    box.declare(TopicOptions("T", partitions=3), "new", LEASES)
    box.turn()
    after = crashed(box, kept)
    assert after.topic().group("old") is not None
    if after.topic().group("new") is not None:
        assert after.group("new").options.lease
        after.take("new")
    put = after.put(b"more")
    after.settle()
    assert put.offset == 1
    same_state(after, again(after))


@pytest.mark.parametrize("kind", [Kind.CHECKPOINT, Kind.STATE])
def test_a_whole_state_takes_the_place_of_all_before_it(kind: Kind) -> None:
    """Recovery may begin at it, and must not end elsewhere if it began earlier."""
    entry = Entry(3, EntryState.LEASED, 99, 1)
    kept = GroupChange("kept", 5, options=LEASES, entries=Entries.of(entry))
    gone = GroupChange("gone", 1, options=LEASES)
    original = Original(b"n" * 16, 1, 1, 1_000, 7)
    journal, crc = CrashJournal(), 0
    changes = [
        StateChange(TopicOptions("T"), (kept, gone), originals=(original,)),
        StateChange(TopicOptions("T"), (GroupChange("kept", 5, options=LEASES),)),
    ]
    for number, change in enumerate(changes):
        as_kind = kind if number else Kind.CHECKPOINT
        flags = SNAPSHOT if as_kind is Kind.STATE else 0
        batch = encode_state(as_kind, 5, 1_000, encode_change(change), crc, flags)
        journal.append(("T", 0), crc, [batch])
        crc = batch.header.crc
    (topic,), _ = recover(journal)
    assert list(topic.groups) == ["kept"]
    assert not topic.groups["kept"].backlogs[0].leased
    assert len(topic.partitions[0].originals) == 0


@pytest.mark.parametrize("born", [False, True])
def test_a_purge_of_messages_of_which_a_crash_left_none(born: bool) -> None:
    """A group that was to begin behind them does not begin behind what comes in their place."""
    box = new_box()
    box.declare("T", "g")
    if born:
        box.settle()
    box.put(b"lost")
    box.broker.purge_group(Probe(), box.group())
    box.turn()
    assert isinstance(box.journal, CrashJournal)
    after = Box(box.journal.crash(lambda lane, unsynced: 1))
    after.put(b"kept")
    after.settle()
    assert after.take()[-1:] == [b"kept"]


def test_a_log_that_does_not_say_what_topic_it_is() -> None:
    box = new_box()
    box.declare("T", "g")
    box.settle()
    assert isinstance(box.journal, CrashJournal)
    only_state = [part for _, part in box.journal._lanes["T", 0].state[1:]]
    assert only_state
    box.journal._lanes["T", 0].state = box.journal._lanes["T", 0].state[1:]
    with pytest.raises(JournalDamage, match="'T'"):
        recover(box.journal)
