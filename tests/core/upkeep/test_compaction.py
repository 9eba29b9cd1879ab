"""Compaction: which messages stay, what groups see of it, and what is refused."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from tests.core.commit.test_state_full import NoRoom
from tests.core.support import Box, CrashJournal, Probe, SlowJournal, again, cool, refusal
from tests.core.upkeep.test_fencing import LateBox
from zbus.core.cursor.state import TOMBSTONE_MS, GroupOptions, TopicOptions
from zbus.core.model.chunk import Chunk
from zbus.core.model.errors import BrokerError, Refusal, fenced
from zbus.core.model.message import Message
from zbus.core.topics.newest import first_stored_ms
from zbus.core.topics.outcomes import Peeked
from zbus.core.upkeep.compaction import GET_MS_MAX, PAUSE_MS, WAIT_MS
from zbus.core.verbs.puts import FRONT, PLAIN, PutOptions
from zbus.storage.port import Lane, ReadDone

COMPACT = TopicOptions("T", compact=True)
SEGMENT_BYTES = 3_000


def compact_box(options: TopicOptions = COMPACT, **groups: GroupOptions) -> Box:
    box = Box(CrashJournal(), segment_bytes_max=SEGMENT_BYTES)
    box.declare(options)
    for name, group in groups.items():
        box.declare(options, name, group)
    box.settle()
    return box


def put(box: Box, key: str, body: str, options: PutOptions = PLAIN, **fields: Any) -> Probe:
    message = Message(b"", key=key.encode(), body=body.encode(), **fields)
    partition, probe = box.topic().partition_for(message.key), Probe()
    box.broker.put_all(partition, probe, Chunk.of([message]), options)
    return probe


def put_many(box: Box, keys: int, count: int, begin: int = 0) -> None:
    """Values `begin` to before `begin + count`, the keys in turn, a few in each turn."""
    for number in range(begin, begin + count):
        put(box, f"k{number % keys}", f"v{number}-" + 40 * "x")
        if number % 10 == 9:
            box.settle()
    box.settle()


def get(box: Box, key: str) -> str | None:
    probe, name = Probe(), key.encode()
    box.broker.get(probe, box.topic().partition_for(name), name)
    for _ in range(1_000):
        if not probe.open:
            break
        box.settle(PAUSE_MS)
    answer = probe.answers[-1]
    if isinstance(answer, Peeked):
        (piece,) = answer.pieces
        assert piece.chunk.key_of(piece.start) == name
        return piece.chunk.bodies[piece.start].decode().partition("-")[0]
    assert isinstance(answer, BrokerError)
    assert answer.refusal is Refusal.OFFSET_UNKNOWN
    return None


def pass_by(box: Box, ms: int = 10_000) -> None:
    """Let the cleaner do what there is to do."""
    for _ in range(ms // PAUSE_MS):
        box.settle(PAUSE_MS)


def stored(box: Box, index: int = 0) -> list[tuple[str, str, bool]]:
    """Key, value, and whether it is a copy, of all that the log has."""
    found: list[tuple[str, str, bool]] = []
    partition = box.partition(index=index)
    for offset in range(partition.first, partition.end):
        probe = Probe()
        box.broker.peek(probe, partition, offset)
        box.settle()
        answer = probe.answers[-1]
        assert isinstance(answer, Peeked), answer
        chunk, at = answer.pieces[0].chunk, answer.pieces[0].start
        value = chunk.bodies[at].decode().partition("-")[0]
        found.append((chunk.key_of(at).decode(), value, first_stored_ms(chunk.headers[at]) > 0))
    return found


def take(box: Box, group: str = "g") -> list[tuple[str, str]]:
    """All that a group is given now, and acknowledges."""
    found: list[tuple[str, str]] = []
    while True:
        box.broker._tick.put_ms = 0
        probe = box.pull(group, 1_000)
        for _ in range(1_000):
            box.settle(1)
            if not probe.open:
                break
        if not probe.records:
            return found
        for record in probe.records:
            value = record.message.body.decode().partition("-")[0]
            found.append((record.message.key.decode(), value))
            if box.group(group).lease:
                box.ack(record.offset, group, index=record.partition)
        box.settle()


# -- what stays --------------------------------------------------------------------------------


def test_the_newest_of_each_key_stays_and_older_ones_go() -> None:
    box = compact_box()
    put_many(box, keys=10, count=1_000)
    pass_by(box)
    partition = box.partition()
    assert partition.first > 900
    assert partition.end - partition.first < 100
    newest = dict((key, value) for key, value, _ in stored(box))
    assert newest == {f"k{n % 10}": f"v{n}" for n in range(990, 1_000)}
    assert all(get(box, f"k{n % 10}") == f"v{n}" for n in range(990, 1_000))
    box = again(box, SEGMENT_BYTES)
    assert all(get(box, f"k{n % 10}") == f"v{n}" for n in range(990, 1_000))


@pytest.mark.parametrize("turns", range(8))
def test_no_copy_comes_behind_a_newer_value_that_is_on_its_way_to_the_disk(turns: int) -> None:
    box = compact_box()
    put(box, "rare", "old-")
    put_many(box, keys=5, count=300)
    journal = box.journal
    assert isinstance(journal, CrashJournal)
    for _ in range(turns):
        box.turn(PAUSE_MS)
        journal.release()
    put(box, "rare", "new-")
    for _ in range(20):
        box.turn(PAUSE_MS)  # nothing is synced
    pass_by(box)
    assert box.partition().first > 0
    assert get(box, "rare") == "new"


def test_nothing_is_copied_again_while_its_copy_is_on_its_way_to_the_disk() -> None:
    box = compact_box()
    put(box, "rare", "old-")
    put_many(box, keys=5, count=300)
    ends = []
    for _ in range(80):
        box.turn(PAUSE_MS)  # nothing is synced
        ends.append(box.partition().end)
    assert ends[-1] == ends[39] == 302
    pass_by(box)
    assert box.partition().first > 0
    assert get(box, "rare") == "old"


def while_reading() -> tuple[Box, SlowJournal]:
    """What is to be copied is being read: the value `old` of `rare`."""
    journal = SlowJournal(late=False, portion_bytes=1 << 20)
    box = Box(journal, segment_bytes_max=SEGMENT_BYTES)
    box.declare(COMPACT)
    put(box, "rare", "old-")
    put_many(box, keys=5, count=300)
    journal.late = True
    for _ in range(40):
        cool(box)
        if box.broker._compaction._passes and journal.waiting:
            return box, journal
        box.settle(PAUSE_MS)
    raise AssertionError("nothing is read")


def test_a_newer_value_that_is_refused_drops_no_older_one() -> None:
    """It is put while the older one is being read, and then the disk is full."""
    box, journal = while_reading()
    refused = put(box, "rare", "new-")
    journal.answer()
    journal.full = True
    box.turn()
    assert refusal(refused).refusal is Refusal.FULL
    journal.full = journal.late = False
    pass_by(box)
    assert box.partition().first > 0
    assert get(box, "rare") == "old"


def test_a_key_that_rests_is_copied_again_and_again() -> None:
    box = compact_box()
    put(box, "old", "first-")
    box.settle()
    time_ms = box.now_ms
    for begin in range(0, 2_000, 400):
        put_many(box, keys=10, count=400, begin=begin)
        pass_by(box)
        assert get(box, "old") == "first"
        found = [copied for key, _, copied in stored(box) if key == "old"]
        assert found == [True]
    probe = Probe()
    box.broker.get(probe, box.partition(), b"old")
    box.settle()
    answer = probe.answers[-1]
    assert isinstance(answer, Peeked)
    chunk, at = answer.pieces[0].chunk, answer.pieces[0].start
    assert first_stored_ms(chunk.headers[at]) <= time_ms
    assert chunk.ids[at] == b"0-0", "a copy has the id of its original"


def test_an_idle_topic_comes_to_rest() -> None:
    box = compact_box()
    put_many(box, keys=10, count=300)
    pass_by(box)
    assert (box.broker.next_due() or 1 << 60) > box.now_ms + WAIT_MS


def test_a_topic_that_is_not_compact_stays_as_it_is() -> None:
    box = compact_box(TopicOptions("T"))
    put_many(box, keys=10, count=300)
    pass_by(box)
    assert box.partition().first == 0
    probe = Probe()
    box.broker.get(probe, box.partition(), b"k1")
    assert refusal(probe).text == (
        "T is not compact: declare it with compact=true to get messages by key"
    )


def test_messages_from_before_without_a_key_stay() -> None:
    box = compact_box(TopicOptions("T"))
    for number in range(5):
        box.put(b"keyless %d" % number)
    put_many(box, keys=10, count=300)
    box.declare(COMPACT)
    box.settle()
    put_many(box, keys=10, count=300, begin=300)
    pass_by(box)
    assert box.partition().first > 200
    assert sorted(v for k, v, _ in stored(box) if not k) == [f"keyless {n}" for n in range(5)]


def test_compact_is_taken_away_and_comes_again() -> None:
    box = compact_box()
    put_many(box, keys=10, count=300)
    pass_by(box)
    first = box.partition().first
    assert first > 0
    box.declare(TopicOptions("T"))
    box.settle()
    assert box.partition().newest is None
    put_many(box, keys=10, count=300, begin=300)
    pass_by(box)
    assert box.partition().first == first
    box.declare(COMPACT)
    box.settle()
    pass_by(box)
    assert box.partition().first > first
    assert get(box, "k9") == "v599"


# -- tombstones and expiry ---------------------------------------------------------------------


def test_a_tombstone_goes_when_its_time_is_over() -> None:
    box = compact_box()
    put_many(box, keys=10, count=100)
    put(box, "k3", "")
    put_many(box, keys=1, count=300, begin=100)
    pass_by(box)
    assert get(box, "k3") is None
    assert ("k3", "", True) in stored(box)
    box.settle(TOMBSTONE_MS)
    put_many(box, keys=1, count=300, begin=400)
    pass_by(box)
    assert get(box, "k3") is None
    assert "k3" not in {key for key, _, _ in stored(box)}
    put(box, "k3", "back-")
    box.settle()
    assert get(box, "k3") == "back"


@pytest.mark.parametrize("how", ["removed", "expired"])
@pytest.mark.parametrize("restarted", [False, True])
def test_keys_that_come_once_and_go_take_no_room_for_ever(how: str, restarted: bool) -> None:
    """As sessions do: there are never twice as many messages as keys."""
    box = compact_box(attrs.evolve(COMPACT, compact_tombstone_ms=60_000))
    put(box, "rests", "value-")
    over_ms = box.now_ms + 60_000 if how == "expired" else 0
    for number in range(200):
        put(box, f"k{number}", "v-" + 40 * "x", expires_ms=over_ms)
        if how == "removed":
            put(box, f"k{number}", "")
        if number % 10 == 9:
            box.settle()
    pass_by(box)
    partition = box.partition()
    assert partition.first == 0
    if restarted:
        box = again(box, SEGMENT_BYTES)
        assert get(box, "rests") == "value"
        partition = box.partition()
    box.settle(119_000)
    pass_by(box)
    assert partition.end - partition.first < 100
    assert get(box, "rests") == "value"
    assert (box.broker.next_due() or 1 << 60) > box.now_ms + WAIT_MS, "it is at rest"


def test_tombstones_that_had_newer_values_cost_one_round() -> None:
    """Their time is over, and nothing goes for it: all that there is is copied once."""
    box = compact_box(attrs.evolve(COMPACT, compact_tombstone_ms=60_000))
    for number in range(400):
        put(box, f"k{number % 40}", "" if number < 360 else "v-")
        if number % 10 == 9:
            box.settle()
    pass_by(box)
    end = box.partition().end
    box.settle(119_000)
    pass_by(box)
    assert box.partition().end <= end + 80
    assert (box.broker.next_due() or 1 << 60) > box.now_ms + WAIT_MS
    assert all(get(box, f"k{number}") == "v" for number in range(40))
    box.settle(59_000)
    put_many(box, keys=40, count=400)
    pass_by(box)
    end, first = box.partition().end, box.partition().first
    assert end - first < 200
    put_many(box, keys=40, count=2, begin=400)
    pass_by(box)
    assert box.partition().first == first, "it is done when there is twice as much as stays"


def test_no_older_value_comes_back_behind_a_tombstone() -> None:
    box = compact_box(attrs.evolve(COMPACT, compact_tombstone_ms=1))
    put_many(box, keys=40, count=200)
    put(box, "k3", "")
    box.settle(10)
    for begin in range(200, 1_000, 10):
        put_many(box, keys=3, count=10, begin=begin)
        pass_by(box, 100)
        assert get(box, "k3") is None
        again_box = again(box, SEGMENT_BYTES)
        assert get(again_box, "k3") is None


def test_a_purge_on_a_full_disk_is_not_the_end_of_it() -> None:
    """It leaves ended segments behind of which nothing is there any more."""
    journal = NoRoom()
    box = Box(journal, segment_bytes_max=SEGMENT_BYTES)
    box.declare(COMPACT)
    put_many(box, keys=200, count=200)
    box.broker.purge_topic(Probe(), box.topic())
    box.broker.finish()
    journal.shut = True
    box.broker.begin(box.now_ms)
    box.settle()
    journal.shut = False
    partition = box.partition()
    assert len(partition.stored.segments) > 2
    assert partition.first == 200
    put_many(box, keys=10, count=1_000)
    pass_by(box)
    assert partition.first > 1_000
    assert all(get(box, f"k{n % 10}") == f"v{n}" for n in range(990, 1_000))


def test_what_expires_is_not_copied() -> None:
    box = compact_box()
    put(box, "k0", "short-", expires_ms=box.now_ms + 100)
    box.settle()
    assert get(box, "k0") == "short"
    box.settle(200)
    assert get(box, "k0") is None
    put_many(box, keys=1, count=300)
    put(box, "k5", "long-", expires_ms=box.now_ms + 10**9)
    put_many(box, keys=1, count=300, begin=300)
    pass_by(box)
    assert get(box, "k5") == "long"
    assert {key for key, _, _ in stored(box)} == {"k0", "k5"}


def test_nothing_comes_back_into_a_topic_that_is_emptied() -> None:
    box, journal = while_reading()
    box.broker.purge_topic(Probe(), box.topic())
    journal.answer()
    journal.late = False
    pass_by(box, 3_000)
    assert get(box, "rare") is None
    assert stored(box) == []
    assert not box.broker._compaction._passes
    put_many(box, keys=5, count=300)
    pass_by(box, 3_000)
    assert get(box, "k4") == "v299"


# -- groups and subscribers --------------------------------------------------------------------


@pytest.mark.parametrize("lease", [False, True])
def test_a_group_at_the_end_is_not_given_copies(lease: bool) -> None:
    box = compact_box(g=GroupOptions(lease=lease))
    seen = []
    put(box, "rare", "r-")
    for begin in range(0, 2_000, 100):
        put_many(box, keys=5, count=100, begin=begin)
        seen += take(box)
        pass_by(box, 500)
    assert box.partition().first > 1_000
    assert seen == [("rare", "r"), *[(f"k{n % 5}", f"v{n}") for n in range(2_000)]]
    assert take(box) == []
    assert box.partition().end > 2_001, "something was copied"
    assert take(again(box, SEGMENT_BYTES)) == []


def test_a_copy_and_what_it_means_to_groups_are_one_write() -> None:
    """Whatever is written of a turn after a crash, a group that had the original is not given the
    copy."""
    box = compact_box(g=GroupOptions())
    put(box, "rare", "r-")
    put_many(box, keys=5, count=300)
    assert len(take(box)) == 301
    end = box.partition().end
    for _ in range(100):
        box.turn(PAUSE_MS)
        if box.partition().end > end:
            break
        assert isinstance(box.journal, CrashJournal)
        box.journal.release()
    box.broker._tick.commit()
    after = again(box, SEGMENT_BYTES)
    assert after.partition().end > end, "the copy is stored"
    assert take(after) == []


def test_a_group_that_begins_later_sees_the_state_and_then_the_changes() -> None:
    box = compact_box()
    put(box, "rare", "r-")
    put_many(box, keys=5, count=1_000)
    pass_by(box)
    box.declare(COMPACT, "late")
    box.settle()
    state = dict(take(box, "late"))
    assert state == {"rare": "r", **{f"k{n % 5}": f"v{n}" for n in range(995, 1_000)}}
    put(box, "k1", "new-")
    box.settle()
    assert take(box, "late") == [("k1", "new")]


def test_a_slow_group_sees_the_newest_of_each_key_once() -> None:
    box = compact_box(g=GroupOptions(lease=True))
    put(box, "rare", "r-")
    put_many(box, keys=5, count=1_000)
    pass_by(box)
    assert box.partition().first > 800
    seen = take(box)
    assert seen.count(("rare", "r")) == 1
    assert dict(seen) == {"rare": "r", **{f"k{n % 5}": f"v{n}" for n in range(995, 1_000)}}
    assert box.group().skipped_count() == 0, "what newer messages replaced is not lost"


@pytest.mark.parametrize("key", ["rare", "k0"])
def test_what_is_leased_holds_its_segment_back(key: str) -> None:
    """Also if it is not the newest any more: its consumer may still give it back."""
    box = compact_box(g=GroupOptions(lease=True, lease_ms=60_000, attempts_max=0))
    put(box, key, "r-")
    box.settle()
    assert box.pull().bodies == []  # it comes with the turn
    box.settle()
    put_many(box, keys=5, count=1_000)
    pass_by(box, 20_000)
    assert box.partition().first == 0
    box.ack(0)
    box.settle()
    pass_by(box, 20_000)
    assert box.partition().first > 800
    assert (key, "r") not in take(box)


@pytest.mark.parametrize("waits", ["front", "place", "delayed"])
def test_what_is_wanted_again_while_its_copy_is_written_is_delivered(waits: str) -> None:
    """The copy was finished, as the original was then."""
    box = compact_box(attrs.evolve(COMPACT, durability="disk"), g=GroupOptions(lease=True))
    put(box, "rare", "old-")
    for begin in (0, 200):
        put_many(box, keys=5, count=200, begin=begin)
        take(box)
    journal, partition = box.journal, box.partition()
    assert isinstance(journal, CrashJournal)
    while not any(work.busy for work in box.broker._compaction._passes.values()):
        journal.release()
        box.turn(PAUSE_MS)
    assert partition.visible < partition.end
    box.broker.again(Probe(), box.group(), partition, 0)
    if waits == "place":
        box.group().backlogs[0].put_back(0)
    if waits == "delayed":
        box.group().backlogs[0].delay(0, box.now_ms + 60_000)
    pass_by(box)
    assert partition.first > 0
    box.settle(60_000)
    assert take(box) == [("rare", "old")]


def test_what_waits_for_another_attempt_is_moved_with_its_count() -> None:
    box = compact_box(g=GroupOptions(lease=True, attempts_max=9))
    put(box, "rare", "r-")
    put(box, "later", "l-")
    box.settle()
    box.pull(count=2)
    box.settle()
    box.nack(0, front=False)
    box.nack(1, due_ms=box.now_ms + 3_600_000)
    box.settle()
    put_many(box, keys=5, count=1_000)
    pass_by(box, 20_000)
    assert box.partition().first > 800
    for one in (box, again(box, SEGMENT_BYTES)):
        backlog = one.group().backlogs[0]
        assert sorted(backlog.attempts.values()) == [1, 1]
        assert len(backlog.delayed) == 1
        assert ("rare", "r") in take(one)
        one.settle(3_600_000)
        assert ("later", "l") in take(one)


def test_a_group_that_retains_loses_nothing() -> None:
    box = compact_box(g=GroupOptions(lease=True, retain=True))
    put_many(box, keys=5, count=1_000)
    pass_by(box, 20_000)
    assert box.partition().first == 0
    assert take(box) == [(f"k{n % 5}", f"v{n}") for n in range(1_000)]
    pass_by(box, 20_000)
    assert box.partition().first > 800
    assert take(box) == []


# -- what is refused ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "options", "why"),
    [
        ({"key": ""}, PLAIN, "T is compact, which keeps the newest message of each key: give key"),
        ({"due_ms": 1 << 41}, PLAIN, "T is compact and takes no delayed messages"),
        ({}, FRONT, "T is compact and takes no messages in front"),
    ],
)
def test_puts_that_make_no_sense(fields: dict[str, Any], options: PutOptions, why: str) -> None:
    box = compact_box()
    probe = put(box, fields.pop("key", "k"), "v", options, **fields)
    box.settle()
    assert refusal(probe).refusal is Refusal.ILLEGAL
    assert refusal(probe).text.startswith(why)
    assert box.partition().end == 0


def test_a_batch_without_one_key_and_another_partition_are_refused() -> None:
    box = compact_box(attrs.evolve(COMPACT, partitions=3))
    topic = box.topic()
    wrong = next(one for one in topic.partitions if topic.partition_for(b"k") is not one)
    for partition, keys in ((topic.partition_for(b"k"), (b"k", b"")), (wrong, (b"k",))):
        probe = Probe()
        messages = [Message(b"", key=key, body=b"v") for key in keys]
        box.broker.put_all(partition, probe, Chunk.of(messages))
        box.settle()
        assert refusal(probe).refusal is Refusal.ILLEGAL
    assert topic.depth() == 0


@pytest.mark.parametrize(
    ("other", "why"),
    [
        ({"calls": True, "competing": True}, "calls"),
        ({"durability": "memory"}, "memory"),
        ({"retention_ms": 1}, "retention"),
        ({"retention_bytes": 1}, "retention"),
        ({"retention_count": 1}, "retention"),
        ({"retention_done": True}, "retention"),
        ({"dedupe_ms": 1}, "ids"),
        ({"dedupe_live": True}, "ids"),
    ],
)
def test_options_that_do_not_go_with_it(other: dict[str, Any], why: str) -> None:
    box = Box(CrashJournal())
    probe = box.declare(attrs.evolve(COMPACT, **other))
    box.settle()
    assert refusal(probe).text.startswith("compact: ")
    assert why in refusal(probe).text


def test_a_compact_topic_does_not_grow_and_one_that_grew_is_not_compact() -> None:
    box = compact_box()
    grown = box.declare(attrs.evolve(COMPACT, partitions=2))
    box.settle()
    assert "one number of partitions" in refusal(grown).text
    box.declare(TopicOptions("U"))
    box.settle()
    box.declare(TopicOptions("U", partitions=2))
    box.settle()
    late = box.declare(TopicOptions("U", partitions=2, compact=True))
    box.settle()
    assert "one number of partitions" in refusal(late).text


def test_a_compact_topic_takes_no_dead_letters() -> None:
    box = compact_box()
    options = GroupOptions(lease=True, attempts_max=1, dead_letter="T")
    probe = box.declare(TopicOptions("U"), "g", options)
    box.settle()
    assert "compact" in refusal(probe).text


def test_what_takes_dead_letters_is_not_made_compact() -> None:
    box = compact_box()
    box.declare("Dead")
    options = GroupOptions(lease=True, attempts_max=1, dead_letter="dead")
    box.declare("U", "g", options)
    box.settle()
    for _ in range(2):
        probe = box.declare(TopicOptions("Dead", compact=True))
        box.settle()
        assert "dead letters of group g of U" in refusal(probe).text
        if box.broker.topic("Dead") is not None:
            box.broker.remove_topic(Probe(), box.topic("Dead"))
            box.settle()


# -- looking up --------------------------------------------------------------------------------


def test_a_get_waits_for_the_table_after_a_start() -> None:
    box = compact_box()
    put_many(box, keys=200, count=300)
    box = again(box, SEGMENT_BYTES)
    probe = Probe()
    box.broker.get(probe, box.partition(), b"k7")
    box.settle()
    assert probe.open
    pass_by(box, 1_000)
    assert isinstance(probe.answers[-1], Peeked)


def test_a_get_of_a_small_topic_takes_no_time_after_a_start() -> None:
    box = compact_box()
    put_many(box, 5, 10)
    box = again(box, SEGMENT_BYTES)
    probe = Probe()
    box.broker.get(probe, box.partition(), b"k4")
    box.settle()
    box.settle()
    assert isinstance(probe.answers[-1], Peeked)


def test_a_get_is_not_answered_from_a_partition_that_is_to_be_read_again() -> None:
    """What was on its way to the disk before that is durable."""
    box = LateBox()
    box.declare(TopicOptions("T", durability="disk", compact=True))
    box.settle()
    partition = box.partition()
    messages = [Message(b"", key=b"k%d" % number, body=b"v") for number in range(600)]
    box.broker.put_all(partition, Probe(), Chunk.of(messages))
    box.turn()
    box.late.run()
    box.run_posted()
    put(box, "on its way", "v")
    box.turn()
    assert partition.newest is not None
    partition.newest.end = 250  # it is not that far
    waits = Probe()
    box.broker.get(waits, partition, b"k5")
    assert waits.open
    box.broker._tick.hooks.fence(partition, fenced(*partition.lane, "a mistake"))
    put(box, "refused", "v")
    box.turn()
    while partition.fenced is not None:
        box.late.step(("T", 0))
        box.run_posted()
        box.turn()
        assert waits.open or isinstance(waits.answers[0], Peeked)
    pass_by(box, 1_000)
    assert isinstance(waits.answers[0], Peeked)


class Holed(CrashJournal):
    """What is read back begins behind a hole."""

    hole = 0
    reads = 0

    def read(self, lane: Lane, offset: int, bytes_max: int, done: ReadDone) -> None:
        self.reads += 1
        super().read(lane, max(offset, self.hole), bytes_max, done)


def test_a_get_of_what_is_not_on_the_disk_ends() -> None:
    journal = Holed()
    box = Box(journal)
    box.declare(COMPACT)
    put_many(box, keys=100, count=100)
    cool(box)
    journal.hole = 90
    assert get(box, "k5") is None
    assert journal.reads < 10


def test_a_get_waits_no_longer_than_it_may() -> None:
    box = compact_box()
    put_many(box, keys=200, count=300)
    box = again(box, SEGMENT_BYTES)
    probe = Probe()
    box.broker.get(probe, box.partition(), b"k7")
    box.broker.begin(box.now_ms + GET_MS_MAX)
    assert refusal(probe).refusal is Refusal.OVERLOADED


def test_gets_that_wait_end_with_their_topic() -> None:
    box = compact_box()
    put_many(box, keys=200, count=300)
    box = again(box, SEGMENT_BYTES)
    probe = Probe()
    box.broker.get(probe, box.partition(), b"k7")
    box.broker.remove_topic(Probe(), box.topic())
    assert refusal(probe).refusal is Refusal.TOPIC_UNKNOWN
