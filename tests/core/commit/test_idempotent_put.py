"""Puts that came before, and puts that want the log to end at an offset: case by case."""

from __future__ import annotations

from collections.abc import Collection

import attrs
import pytest

from tests.core.support import Box, CrashJournal, Probe, again, refusal, same_state
from zbus.core.cursor.state import TopicOptions
from zbus.core.dedup.entries import Original
from zbus.core.dedup.window import (
    KEY_MS,
    OWN_KEY_MS,
    DedupWindow,
    fingerprint,
    fingerprint_of,
    id_name,
    key_name,
)
from zbus.core.model.chunk import Chunk, make_row
from zbus.core.model.errors import BrokerError, Refusal
from zbus.core.model.message import Message
from zbus.core.topics.delta import snapshot
from zbus.core.topics.outcomes import Duplicate, Stored
from zbus.core.verbs.puts import PutOptions
from zbus.storage.format.batch import Batch, Kind, read_header
from zbus.storage.port import Found, Lane, OpenDone, StoredLane

DEDUPE = TopicOptions("T", dedupe_ms=1_000)


def new_box(options: TopicOptions = DEDUPE, segment_bytes_max: int = 64 << 20) -> Box:
    box = Box(CrashJournal(), segment_bytes_max=segment_bytes_max)
    box.declare(options)
    box.settle()
    return box


def journal_of(box: Box) -> CrashJournal:
    assert isinstance(box.journal, CrashJournal)
    return box.journal


def put(
    box: Box,
    *ids: bytes,
    key: bytes = b"",
    expected: int | None = None,
    route: bytes = b"",
    body: bytes = b"x",
) -> Probe:
    messages = [Message(id, b"", route, b"", body, once=key) for id in ids]
    probe = Probe()
    box.broker.put_all(
        box.topic().partition_for(route),
        probe,
        Chunk.of(messages),
        PutOptions(expected_offset=expected),
    )
    return probe


def crash(box: Box, kept: int) -> Box:
    """The same log after a power cut that leaves so many batches of what was not synced."""
    return Box(journal_of(box).crash(lambda lane, unsynced: min(kept, unsynced)), now_ms=box.now_ms)


def duplicate(probe: Probe) -> tuple[int, int]:
    """The original offset, and how many messages were there."""
    (answer,) = probe.answers
    assert isinstance(answer, Duplicate)
    return probe.offset, answer.count


def stored(probe: Probe) -> int:
    (answer,) = probe.answers
    assert isinstance(answer, Stored)
    return probe.offset


# -- time and number --------------------------------------------------------------------------


@pytest.mark.parametrize("key", [b"", b"k"])
@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize(("age_ms", "known"), [(0, True), (999, True), (1_000, False)])
def test_ids_and_keys_are_remembered_as_long_as_the_option_says(
    key: bytes, restarted: bool, age_ms: int, known: bool
) -> None:
    box = new_box()
    assert put(box, b"1", key=key).open
    box.settle()
    box.turn(age_ms)
    box = again(box) if restarted else box
    probe = put(box, b"1", key=key)
    box.settle()
    assert (duplicate(probe) == (0, 1)) if known else (stored(probe) == 1)


@pytest.mark.parametrize(("age_ms", "known"), [(KEY_MS - 1, True), (KEY_MS, False)])
def test_keys_are_remembered_in_every_topic(age_ms: int, known: bool) -> None:
    box = new_box(TopicOptions("T"))
    put(box, b"1", key=b"k")
    box.settle()
    box.turn(age_ms)
    probe = put(again(box), b"2", key=b"k")
    assert probe.open is not known


@pytest.mark.parametrize(("age_ms", "known"), [(OWN_KEY_MS - 1, True), (OWN_KEY_MS, False)])
@pytest.mark.parametrize("dedupe_ms", [0, 1_000])
@pytest.mark.parametrize("snapshot_bytes", [100, 1 << 20])
def test_keys_of_the_broker_itself_are_remembered_for_longer(
    age_ms: int, known: bool, dedupe_ms: int, snapshot_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between others, in the log and in a snapshot. Others are forgotten in their time meanwhile,
    and a key that only contains those letters is one of them."""
    monkeypatch.setattr("zbus.core.persistence.storage.SNAPSHOT_EVERY_BYTES", snapshot_bytes)
    box = new_box(TopicOptions("T", dedupe_ms=dedupe_ms))
    for key in (b"a", b"zb:1", b"b", b"xzb:1"):
        put(box, b"1", key=key)
        box.settle()
    box = again(box)
    assert box.broker.next_due() is not None
    box.settle(KEY_MS)
    assert len(box.partition().originals) == 1, "though nothing is put"
    put(box, b"1", key=b"c")
    box.settle()
    box.settle(KEY_MS)
    assert len(box.partition().originals) == 1
    box.turn(age_ms - 2 * KEY_MS)
    box = again(box)
    probe = put(box, b"1", key=b"zb:1")
    box.settle()
    assert (duplicate(probe) == (1, 1)) if known else (stored(probe) == 5)


def test_ids_have_none_without_the_option() -> None:
    box = new_box(TopicOptions("T"))
    probes = [put(box, b"1"), put(box, b"1")]
    box.settle()
    assert [stored(probe) for probe in probes] == [0, 1]


def test_messages_without_an_id_are_always_new() -> None:
    """The id that is implied is where they are, so none can come twice."""
    box = new_box()
    probes = [put(box, b""), put(box, b"", b"1", b""), put(box, b"", b"1", b"")]
    box.settle()
    assert [stored(probe) for probe in probes[:2]] == [0, 1]
    assert duplicate(probes[2]) == (4, 1)
    assert box.partition().end == 6
    named = put(box, b"0-0")
    box.settle()
    assert stored(named) == 6, "nobody gave the first one that id"
    assert len(box.partition().originals) == 2
    same_state(box, again(box))


def test_the_oldest_go_first_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zbus.core.dedup.window.COUNT_MAX", 3)
    box = new_box()
    for id in (b"1", b"2", b"3", b"4"):
        put(box, id)
        box.settle()
    after = again(box)
    for each in (box, after):
        assert [duplicate(put(each, id)) for id in (b"2", b"3", b"4")] == [(1, 1), (2, 1), (3, 1)]
        assert len(each.partition().originals) == 3
    assert put(after, b"1").open, "this one is forgotten, so it is new"


def test_ids_and_keys_are_different_names() -> None:
    box = new_box()
    probes = [
        put(box, b"a"),
        put(box, b"other", key=b"a"),
        put(box, b"b", key=b"b"),
        put(box, b"c"),
    ]
    box.settle()
    assert [stored(probe) for probe in probes] == [0, 1, 2, 3]
    assert id_name(b"a") != key_name(b"a")


def test_a_key_goes_before_the_ids_of_its_messages() -> None:
    box = new_box()
    put(box, b"1")
    again_with_key = put(box, b"1", key=b"k")
    box.settle()
    assert stored(again_with_key) == 1
    assert duplicate(put(box, b"2", key=b"k")) == (1, 1), "the key alone counts"
    assert duplicate(put(box, b"1")) == (0, 1), "the first of an id stays the original"


# -- one fate ---------------------------------------------------------------------------------


@pytest.mark.parametrize("turns", [0, 1], ids=["same turn", "while it is being synced"])
def test_a_duplicate_waits_for_its_original(turns: int) -> None:
    box = new_box()
    first = put(box, b"1")
    for _ in range(turns):
        box.turn()
    second = put(box, b"1")
    box.turn()
    assert first.open
    assert second.open
    journal_of(box).release(1)
    box.turn()
    assert stored(first) == 0
    assert second.open is (turns == 1), "a sync that was asked for before may not cover it"
    box.settle()
    assert duplicate(second) == (0, 1)


def test_a_duplicate_is_refused_with_its_original() -> None:
    box = new_box()
    journal_of(box).full = True
    probes = [put(box, b"1"), put(box, b"1"), put(box, b"2", key=b"k"), put(box, b"2", key=b"k")]
    box.turn()
    assert [refusal(probe).refusal for probe in probes] == [Refusal.FULL] * 4
    assert len(box.partition().originals) == 0
    journal_of(box).full = False
    retry = put(box, b"1")
    box.settle()
    assert stored(retry) == 0


def test_a_full_disk_does_not_refuse_what_was_stored_before() -> None:
    box = new_box()
    put(box, b"1")
    box.turn()
    journal_of(box).full = True
    known, new = put(box, b"1"), put(box, b"2")
    box.settle()
    assert duplicate(known) == (0, 1)
    assert refusal(new).refusal is Refusal.FULL


@pytest.mark.parametrize(("ids", "key"), [((b"1",), b""), ((b"1", b"2"), b""), ((b"1",), b"k")])
def test_who_refuses_what_is_new_answers_what_was_stored(
    ids: tuple[bytes, ...], key: bytes
) -> None:
    box = new_box()
    put(box, *ids, key=key)
    box.settle()
    box.broker._puts.refusing = BrokerError(Refusal.FULL, "the disk is nearly full")
    known, new = put(box, *ids, key=key), put(box, b"new")
    box.settle()
    assert duplicate(known) == (0, len(ids))
    assert refusal(new).refusal is Refusal.FULL


def put_with_key(box: Box, index: int, once: bytes, along: Probe | None = None) -> Probe:
    """By the short ways; an answer is there only if it was not put along."""
    partition = box.partition(index=index)
    row = make_row(b"", b"", b"x", once=once)
    if along is not None and box.broker.put_along(partition, along, row):
        return along
    probe = Probe()
    box.broker.put(partition, probe, row)
    return probe


@pytest.mark.parametrize("home", range(3))
def test_a_key_is_found_in_whichever_partition_it_is(home: int) -> None:
    box = new_box(TopicOptions("T", partitions=3))
    original = put_with_key(box, home, b"k")
    box.settle()
    assert stored(original) == 0
    box = again(box)
    for index in range(3):
        before = put_with_key(box, index, b"before %d" % index)
        along = put_with_key(box, index, b"k", along=before)
        alone = put_with_key(box, index, b"k")
        whole = Probe()
        chunk = Chunk.of([Message(b"", body=b"x", once=b"k")])
        box.broker.put_all(box.partition(index=index), whole, chunk)
        box.settle()
        assert along is not before
        for probe in (along, alone, whole):
            assert duplicate(probe) == (0, 1)
            (answer,) = probe.answers
            assert isinstance(answer, Duplicate)
            assert answer.partition.index == home


@pytest.mark.parametrize("options", [DEDUPE, TopicOptions("T")])
@pytest.mark.parametrize("kept", [0, 1])
def test_a_crash_before_the_sync(options: TopicOptions, kept: int) -> None:
    """The message and its entry are there, or neither: nothing is in between."""
    box = new_box(options)
    probes = [put(box, b"1", key=b"k"), put(box, b"1", key=b"k")]
    box.turn()
    assert [probe.open for probe in probes] == [True, True]
    after = crash(box, kept)
    assert after.partition().end == kept
    retry = put(after, b"1", key=b"k")
    after.settle()
    assert (duplicate(retry) == (0, 1)) if kept else (stored(retry) == 0)
    assert after.partition().end == 1


@pytest.mark.parametrize("name", ["kept", "purged"])
def test_what_is_remembered_outlives_its_messages(name: str) -> None:
    box = new_box()
    put(box, b"1")
    if name == "purged":
        box.settle()
        box.broker.purge_topic(Probe(), box.topic())
    box.settle()
    for each in (box, again(box)):
        assert duplicate(put(each, b"1")) == (0, 1)


def test_a_removed_topic_is_forgotten() -> None:
    box = new_box()
    put(box, b"1")
    box.settle()
    box.broker.remove_topic(Probe(), box.topic())
    box.declare(DEDUPE)
    probe = put(box, b"1")
    box.settle()
    assert stored(probe) == 0


# -- batches ----------------------------------------------------------------------------------


@pytest.mark.parametrize("restarted", [False, True])
def test_a_batch_with_a_key(restarted: bool) -> None:
    box = new_box()
    put(box, b"0")
    put(box, b"1", b"2", b"3", key=b"k")
    put(box, b"4", key=b"other")
    box.settle()
    box = again(box) if restarted else box
    assert duplicate(put(box, b"1", b"2", b"3", key=b"k")) == (1, 3)
    assert duplicate(put(box, b"4", key=b"other")) == (4, 1)
    for ids in ((b"1", b"2"), (b"1", b"2", b"3", b"4")):
        assert refusal(put(box, *ids, key=b"k")).refusal is Refusal.REUSED
    assert refusal(put(box, b"1", b"2", b"3", key=b"k", body=b"y")).refusal is Refusal.REUSED


@pytest.mark.parametrize(
    ("ids", "offset", "new", "count"),
    [
        ((b"1", b"2"), 0, 0, 2),
        ((b"2", b"1"), 1, 0, 2),
        ((b"2",), 1, 0, 1),
        ((b"1", b"3"), 2, 1, 1),
        ((b"3", b"2", b"4"), 2, 2, 1),
        ((b"3", b"3", b"3"), 2, 1, 2),
        ((b"1", b"1"), 0, 0, 2),
    ],
)
@pytest.mark.parametrize("synced", [False, True])
def test_a_batch_of_which_some_ids_are_known(
    ids: tuple[bytes, ...], offset: int, new: int, count: int, synced: bool
) -> None:
    box = new_box()
    put(box, b"1", b"2")
    if synced:
        box.settle()
    probe = put(box, *ids)
    box.settle()
    assert duplicate(probe) == (offset, count)
    assert box.partition().end == 2 + new
    rows = [id for chunk in box.partition().log.chunks for id in chunk.ids]
    assert rows == [b"1", b"2", *[id for id in dict.fromkeys(ids) if id not in (b"1", b"2")]]
    same_state(box, again(box))


def test_a_batch_is_never_torn(monkeypatch: pytest.MonkeyPatch) -> None:
    """A turn may be too much for one DATA batch. Regression: it was cut wherever that was, and a
    crash between the two left half of a put."""
    monkeypatch.setattr("zbus.core.persistence.storage._PORTION_MESSAGES", 70)
    box = new_box()
    ids = [b"%d" % number for number in range(50)]
    for key in (b"a", b"b", b"c"):
        put(box, *ids, key=key)
    box.turn()
    data = [
        batch.header.records
        for batch in journal_of(box).written["T", 0]
        if not isinstance(batch, int) and batch.header.kind is Kind.DATA
    ]
    assert data == [100, 50]
    after = crash(box, 1)
    assert after.partition().end == 100
    assert duplicate(put(after, *ids, key=b"b")) == (50, 50)
    assert put(after, *ids, key=b"c").open


# -- partitions -------------------------------------------------------------------------------


@pytest.mark.parametrize("restarted", [False, True])
def test_an_original_is_found_in_whichever_partition_it_is(restarted: bool) -> None:
    box = new_box(attrs.evolve(DEDUPE, partitions=3))
    homes = {}
    for id in (b"1", b"2", b"3"):
        probe = put(box, id)
        box.settle()
        (answer,) = probe.answers
        assert isinstance(answer, Stored)
        homes[id] = answer.partition.index
    assert sorted(homes.values()) == [0, 1, 2]
    box = again(box) if restarted else box
    for id, index in homes.items():
        (answer,) = put(box, id, route=b"elsewhere").answers
        assert isinstance(answer, Duplicate)
        assert answer.partition.index == index
    mixed = put(box, b"1", b"2", b"3", b"4")
    box.settle()
    assert duplicate(mixed)[1] == 3


def test_a_batch_waits_for_its_duplicates_in_other_partitions() -> None:
    box = new_box(attrs.evolve(DEDUPE, partitions=2))
    first = put(box, b"1")
    box.turn()
    second = put(box, b"1", b"2")
    box.turn()
    assert first.open
    journal = journal_of(box)
    after = crash(box, 0)
    assert [partition.end for partition in after.topic().partitions] == [0, 0]
    assert second.open, "its first message could still be lost"
    journal.release()
    assert duplicate(second)[1] == 1


# -- the expected offset ----------------------------------------------------------------------


def test_an_expected_offset() -> None:
    box = new_box()
    first, second = put(box, b"1", expected=0), put(box, b"2", b"3", expected=1)
    late = put(box, b"4", expected=1)
    box.settle()
    assert (stored(first), stored(second)) == (0, 1)
    assert (refusal(late).refusal, refusal(late).name) == (Refusal.CONFLICT, "3")
    for each in (box, again(box)):
        assert refusal(put(each, b"5", expected=4)).name == "3"
        assert duplicate(put(each, b"2", expected=0)) == (1, 1), "it came before: what counts then"
    box = again(box)
    assert put(box, b"6", expected=3).open


def test_a_conflict_is_told_when_the_end_is_durable() -> None:
    box = new_box()
    put(box, b"1")
    early = put(box, b"2", expected=0)
    box.turn()
    assert early.open, "after a crash the log might end at 0 after all"
    box.settle()
    assert refusal(early).name == "1"


# -- what recovery makes of it ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("segment_bytes_max", "snapshot_bytes"),
    [(200, 1 << 20), (64 << 20, 100), (64 << 20, 1 << 20)],
    ids=["checkpoints", "snapshots", "data"],
)
def test_a_restart_remembers_the_same(
    segment_bytes_max: int, snapshot_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("zbus.core.persistence.storage.SNAPSHOT_EVERY_BYTES", snapshot_bytes)
    box = new_box(segment_bytes_max=segment_bytes_max)
    for number in range(20):
        put(box, b"%d" % number)
        put(box, b"a%d" % number, b"b%d" % number, key=b"k%d" % number)
        box.settle(3)
    after = again(box, segment_bytes_max)
    same_state(box, after)
    assert snapshot(after.partition()).originals == snapshot(box.partition()).originals
    assert len(after.partition().originals) == 40


class LateJournal(CrashJournal):
    """Recovery is given no more than it needs: from the last checkpoint or snapshot on."""

    def open(self, lanes: Collection[Lane] | None, found: Found, done: OpenDone) -> None:
        def late(stored: StoredLane) -> None:
            batches = list(stored.batches)
            whole = [n for n, batch in enumerate(batches) if read_header(batch).is_whole_state]
            begin = sum(map(len, batches[: whole[-1]]))
            found(StoredLane(stored.lane, stored.first_offset, batches[whole[-1] :], begin))

        super().open(lanes, late, done)


@pytest.mark.parametrize("count", range(1, 12))
@pytest.mark.parametrize("dedupe_ms", [0, 1_000])
def test_a_restart_from_a_snapshot(
    count: int, dedupe_ms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("zbus.core.persistence.storage.SNAPSHOT_EVERY_BYTES", 100)
    box = new_box(TopicOptions("T", dedupe_ms=dedupe_ms))
    for number in range(count):
        put(box, b"%d" % number, b"%d-too" % number, key=b"k%d" % number)
        put(box, b"id-%d" % number)
        box.settle(1)
    journal = LateJournal()
    for batch in journal_of(box).written["T", 0]:
        assert isinstance(batch, Batch)
        journal.append(("T", 0), batch.header.previous_crc, [batch])
    after = Box(journal, now_ms=box.now_ms)
    same_state(box, after)
    assert len(after.partition().originals) == count * (2 if dedupe_ms else 1)


@pytest.mark.parametrize("kept", range(6))
def test_an_option_that_comes_with_the_messages(kept: int) -> None:
    """Declared and put in one turn: the log has the messages first, then the option."""
    box = new_box(TopicOptions("T"))
    put(box, b"0")
    box.settle()
    box.declare(DEDUPE)
    put(box, b"1")
    box.turn()
    after = crash(box, kept)
    after.declare(DEDUPE)
    after.settle()
    end = after.partition().end
    retry = put(after, b"1")
    after.settle()
    if after.partition().end == end:
        assert duplicate(retry) == (1, 1)
    else:
        assert kept < 2, "message and option were there"


def test_partitions_that_missed_a_change_follow() -> None:
    """Regression: a lane without the option made nothing of the ids in it at the next restart."""
    box = new_box(TopicOptions("T", partitions=2))
    box.declare(attrs.evolve(DEDUPE, partitions=2))
    box.turn()
    journal = journal_of(box).crash(lambda lane, unsynced: unsynced if lane[1] == 0 else 0)
    after = Box(journal, now_ms=box.now_ms)
    assert after.topic().options.dedupe_ms == 1_000
    probe = Probe()
    after.broker.put_all(after.partition(index=1), probe, Chunk.of([Message(b"1")]))
    after.settle()
    later = again(after)
    assert duplicate(put(later, b"1")) == (0, 1)


def test_a_key_in_a_body_is_no_key() -> None:
    box = new_box(TopicOptions("T"))
    put(box, b"1", body=b"idempotency-key: k\r\n")
    box.settle()
    after = again(box)
    assert len(after.partition().originals) == 0
    assert put(after, b"1", key=b"k").open


def test_originals() -> None:
    originals = DedupWindow()
    originals.note(Chunk.of([Message(b"1"), Message(b"2")], 5, 10), True)
    originals.note(Chunk.of([Message(b"3")], 7, 20), True)
    originals.remember(Original(id_name(b"1"), 99, 1, 30, 0))
    originals.check()
    assert originals.find(id_name(b"1")) == Original(id_name(b"1"), 5, 1, 10, 0)
    originals.expire(9 + KEY_MS, 0)
    assert len(originals) == 3
    originals.expire(10 + KEY_MS, 0)
    assert [entry.offset for entry in originals.snapshot()] == [7]
    originals.truncate(8)
    assert len(originals) == 1
    originals.truncate(7)
    assert originals.snapshot() == ()


def test_a_conflict_names_no_end_that_found_no_room() -> None:
    box = new_box()
    stored = put(box, b"0")
    box.settle()
    assert stored.fine
    journal_of(box).full = True
    lost, expecting = put(box, b"1"), put(box, b"2", expected=1)
    box.settle()
    assert [refusal(probe).refusal for probe in (lost, expecting)] == [Refusal.FULL] * 2
    assert refusal(put(box, b"3", expected=2)).text.endswith("1")


@pytest.mark.parametrize("restarted", [False, True])
def test_silent_partitions_forget_too(restarted: bool) -> None:
    box = new_box(attrs.evolve(DEDUPE, partitions=6))
    for partition in box.topic().partitions:
        message = Message(b"%d" % partition.index)
        box.broker.put_all(partition, Probe(), Chunk.of([message]))
    box.settle()
    if restarted:
        box = again(box)
        box.settle()
    wakes = 0
    while (due_ms := box.broker.next_due()) is not None:
        box.settle(due_ms - box.now_ms)
        wakes += 1
    assert [len(partition.originals) for partition in box.topic().partitions] == [0] * 6
    assert wakes <= 6


def test_the_same_bytes_cut_otherwise_are_other_content() -> None:
    def told(*parts: tuple[bytes, bytes, bytes]) -> int:
        messages = [Message(b"", tag=tag, key=key, body=body) for tag, key, body in parts]
        return fingerprint(Chunk.of(messages))

    contents = [
        told((b"a", b"", b"bc")),
        told((b"b", b"", b"bc")),
        told((b"", b"a", b"bc")),
        told((b"", b"b", b"bc")),
        told((b"ab", b"", b"c")),
        told((b"", b"ab", b"c")),
        told((b"", b"", b"abc")),
        told((b"", b"", b"ab"), (b"", b"", b"c")),
        told((b"", b"", b"a"), (b"", b"", b"bc")),
    ]
    assert len(set(contents)) == len(contents)
    assert max(contents) >= 1 << 32
    for one in ((b"a", b"b", b"c"), (b"", b"", bytes(5_000))):
        assert told(one) == fingerprint_of(*one), "the short way finds the same"
