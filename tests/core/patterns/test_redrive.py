"""Dead messages go back, each of them once; what cannot go stays as it was."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

import attrs
import pytest

from tests.core.commit.test_state_full import NoRoom
from tests.core.patterns.test_completions import crashes
from tests.core.support import Box, CrashJournal, Probe, again, ranges, refusal
from tests.core.upkeep.test_fencing import LateBox
from zbus.core.cursor.state import GroupOptions, TopicOptions
from zbus.core.model.chunk import Chunk, make_row
from zbus.core.model.errors import Refusal
from zbus.core.model.message import Message
from zbus.core.model.message_state import MessageState
from zbus.core.patterns.completions import Source
from zbus.core.patterns.redrive import PORTION
from zbus.core.topics.outcomes import Moved
from zbus.core.topics.topic import Topic
from zbus.storage.format.batch import Batch
from zbus.storage.port import JournalFull, Lane, Verdict

DEAD = b"dead_topic: %b\r\ndead_group: g\r\ndead_reason: expired\r\n"


def prepared(
    *origins: bytes, durability: str = "disk", attempts_max: int = 0, order: str = ""
) -> Box:
    """A dead message from each of these topics; In and Other are there."""
    box = Box(CrashJournal())
    options = GroupOptions(lease=True, window=9_999, attempts_max=attempts_max, order=order)
    for name in ("In", "Other", "Dead"):
        box.declare(TopicOptions(name, durability=durability), "g", options)
    for number, origin in enumerate(origins):
        message = Message(b"id%d" % number, headers=b"x: y\r\n" + DEAD % origin)
        where = box.partition("Dead")
        body = b"%d" % number
        box.broker.put(where, Probe(), make_row(message.id, message.headers, body, b"tag", b"key"))
    box.settle()
    return box


def redrive(
    box: Box,
    *offsets: int,
    count: int = 1_000,
    target: Callable[[str], Topic | None] | None = None,
) -> Probe:
    probe = Probe()
    partition = box.partition("Dead") if offsets else None
    where = box.group("g", "Dead"), target or box.broker.topic, count, partition, ranges(offsets)
    box.broker.redrive(probe, *where)
    return probe


def moved(probe: Probe) -> tuple[int, int]:
    assert not probe.open
    (outcome,) = probe.answers
    assert isinstance(outcome, Moved)
    return outcome.count, outcome.stayed


def test_they_go_where_they_come_from() -> None:
    box = prepared(b"In", b"Other", b"In")
    probe = redrive(box)
    box.settle()
    assert moved(probe) == (3, 0)
    pull = box.pull(topic="In")
    box.settle()
    (record,) = pull.records
    message = record.message
    assert (message.id, message.headers, message.tag, message.key) == (
        b"id0",
        b"x: y\r\n",
        b"tag",
        b"key",
    )
    assert box.take(topic="In") == [b"2"]
    assert box.take(topic="Other") == [b"1"]
    assert box.take(topic="Dead") == []
    box.settle(1_000_000)
    assert box.take(topic="Dead") == []


def test_so_many_or_these() -> None:
    box = prepared(*[b"In"] * 6)
    first = redrive(box, count=2)
    box.settle()
    assert moved(first) == (2, 0)
    named = redrive(box, 0, 3, 5, 9)
    box.settle()
    assert moved(named) == (2, 0)
    assert box.take(topic="In") == [b"0", b"1", b"3", b"5"]
    assert box.take(topic="Dead") == [b"2", b"4"]


def test_all_that_a_group_with_priorities_has_compared() -> None:
    """What it has not delivered is parked, and nothing is in line."""
    box = prepared(*[b"In"] * 3, order="priority")
    assert box.take(topic="Dead", count=1) == [b"0"]
    probe = redrive(box)
    box.settle()
    assert moved(probe) == (2, 0)
    assert box.take(topic="In") == [b"1", b"2"]


def test_what_cannot_go_stays_and_was_handed_to_nobody() -> None:
    box = prepared(b"Gone", b"In", b"No%20such")
    probe = redrive(box)
    box.settle()
    assert moved(probe) == (1, 2)
    assert box.group("g", "Dead").backlogs[0].attempts == {}
    pull = box.pull(topic="Dead", count=9)
    box.settle()
    assert [(record.message.body, record.attempts) for record in pull.records] == [
        (b"0", 1),
        (b"2", 1),
    ]


def test_what_is_not_ready_is_not_moved() -> None:
    """Nobody has read the group yet, so it is not known before what is due later."""
    box = prepared()
    box.declare(TopicOptions("Dead"), "g", GroupOptions(lease=True, filter="tag"))
    where, headers = box.partition("Dead"), DEAD % b"In"
    later, over = box.broker.now_ms + 5_000, box.broker.now_ms + 10
    for number, (tag, due_ms, expires_ms) in enumerate(
        [(b"tag", later, 0), (b"tag", 0, over), (b"other", 0, 0), (b"tag", 0, 0)]
    ):
        message = Message(b"id%d" % number, headers=headers, body=b"%d" % number, tag=tag)
        message.due_ms, message.expires_ms = due_ms, expires_ms
        box.broker.put_all(where, Probe(), Chunk.of([message]))
    box.settle(100)
    probe = redrive(box)
    box.settle()
    assert moved(probe) == (1, 0)
    assert box.take(topic="In") == [b"3"]
    assert box.group("g", "Dead").backlogs[0].attempts == {}
    assert box.take(topic="Dead") == []
    box.settle(5_000)
    assert box.take(topic="Dead") == [b"0"]


def test_nowhere_at_all() -> None:
    box = prepared(b"In", b"In")
    probe = redrive(box, target=lambda name: None)
    box.settle()
    assert moved(probe) == (0, 2)


def test_an_old_value_does_not_become_the_newest_of_a_compact_topic() -> None:
    """Its letter stays."""
    box = prepared(b"In", b"Other")
    box.declare(TopicOptions("In", durability="disk", compact=True))
    newer = make_row(b"", b"", b"newer", key=b"key")
    box.broker.put(box.partition("In"), Probe(), newer)
    box.settle()
    probe = redrive(box)
    box.settle()
    assert moved(probe) == (1, 1)
    assert box.take(topic="In") == [b"newer"]
    assert box.take(topic="Dead") == [b"0"]


def test_many_take_several_turns() -> None:
    box = prepared(*[b"In"] * (2 * PORTION + 1))
    probe = redrive(box, count=10_000)
    box.turn()
    assert box.topic("In").depth() <= 2 * PORTION
    box.settle()
    assert moved(probe) == (2 * PORTION + 1, 0)
    assert box.take(topic="In", count=9_999) == [b"%d" % n for n in range(2 * PORTION + 1)]


def test_what_dies_meanwhile_waits_for_the_next_time() -> None:
    """Or a message that dies at once would go round for ever."""
    box = prepared(b"Dead2", b"Dead2")
    probe = redrive(box, target=lambda name: box.topic("Dead"))
    box.settle()
    assert moved(probe) == (2, 0)
    assert len(box.take(topic="Dead")) == 2


def test_a_full_disk_stops_it() -> None:
    box = prepared(b"In", b"In")
    assert isinstance(box.journal, CrashJournal)
    box.journal.full = True
    probe = redrive(box)
    box.settle()
    assert refusal(probe).refusal is Refusal.FULL
    box.journal.full = False
    assert box.take(topic="Dead") == [b"0", b"1"]


@pytest.mark.parametrize("tried", [False, True])
def test_of_a_group_with_order_per_key(tried: bool) -> None:
    """All of them have one key."""
    box = prepared(*[b"In"] * 3, order="key")
    if tried:
        assert len(box.take(topic="Dead")) == 3
        box.settle(20_000)
    probe = redrive(box)
    box.settle()
    assert moved(probe) == (3, 0)
    assert box.take(topic="In") == [b"0", b"1", b"2"]
    assert box.take(topic="Dead") == []


@pytest.mark.parametrize("gone", ["group", "topic"])
def test_the_group_goes_meanwhile(gone: str) -> None:
    box = prepared(b"In", b"In")
    probe = redrive(box)
    if gone == "group":
        box.broker.remove_group(Probe(), box.group("g", "Dead"))
    else:
        box.broker.remove_topic(Probe(), box.topic("Dead"))
    box.settle()
    assert moved(probe) == (2, 0)
    assert box.take(topic="In") == [b"0", b"1"]


def test_nothing_is_there_and_a_paused_group() -> None:
    box = prepared()
    probe = redrive(box)
    box.settle()
    assert moved(probe) == (0, 0)
    paused = GroupOptions(lease=True, paused=True)
    box.declare(TopicOptions("Dead", durability="disk"), "g", paused)
    box.settle()
    assert refusal(redrive(box)).refusal is Refusal.ILLEGAL


@pytest.mark.parametrize("attempts_max", [0, 1])
@pytest.mark.parametrize("synced", range(5))
def test_a_crash_leaves_each_in_one_place(synced: int, attempts_max: int) -> None:
    """And what was not moved can be had after a while: to be redriven was no attempt."""
    box = prepared(b"In", b"Other", attempts_max=attempts_max)
    assert isinstance(box.journal, CrashJournal)
    box.settle(10)
    redrive(box)
    for _ in range(synced):
        box.turn()
        box.journal.release(1)
    box.turn(10)
    for after in crashes(box):
        after.settle(1_000_000)
        found = [after.take(topic=name) for name in ("In", "Other", "Dead")]
        assert sorted([body for bodies in found for body in bodies]) == [b"0", b"1"]
        assert found[0] in ([], [b"0"])
        assert found[1] in ([], [b"1"])
        assert again(after).topic("Dead").partitions[0].completions is None


@pytest.mark.parametrize("fate", [Verdict.LOST, Verdict.CONFLICT])
def test_the_group_is_read_again_before_it_is_stored(fate: Verdict) -> None:
    """With the lease, which was not written, or without: it is moved once."""
    box = LateBox()
    for name in ("Out", "T"):
        box.declare(TopicOptions(name, durability="disk"), "g", GroupOptions(lease=True))
        box.settle()
    box.broker.put(box.partition(), Probe(), make_row(b"id", DEAD % b"Out", b"0"))
    box.settle()
    for _ in range(2):  # somebody who got no answer asks again
        probe = Probe()
        box.broker.redrive(probe, box.group(), box.broker.topic, 10)
        box.turn()
        box.fail(fate=fate)
        for _ in range(10):
            while ("T", 0) in box.late.waiting:
                box.late.step(("T", 0))
            box.run_posted()
            box.turn(500)
    box.settle(60_000)
    box.settle()
    assert box.take(topic="Out") == [b"0"]
    assert box.take() == []


def test_what_stays_is_not_taken_from_whoever_has_it_by_now() -> None:
    """The group was read again before the others were moved."""
    box = LateBox()
    box.declare(TopicOptions("Out", durability="disk"), "g", GroupOptions(lease=True))
    for number, origin in enumerate((b"gone", b"Out")):
        box.broker.put(box.partition(), Probe(), make_row(b"id", DEAD % origin, b"%d" % number))
    box.settle()
    probe = Probe()
    box.broker.redrive(probe, box.group(), box.broker.topic, 10)
    box.turn()
    box.fail()
    pull = box.pull(wait=True)
    while pull.open:
        while ("T", 0) in box.late.waiting:
            box.late.step(("T", 0))
        box.run_posted()
        box.turn(100)
    assert pull.bodies == [b"0"]
    box.settle()
    assert moved(probe) == (1, 1)
    assert box.group().backlogs[0].life(0) is MessageState.LEASED
    assert box.take() == []


# -- back to the group alone -------------------------------------------------------------------


def given_up(
    *bodies: bytes, order: str = "", partitions: int = 1, journal: CrashJournal | None = None
) -> Box:
    """The group g of In has given these up: they are in Dead. The group h has finished them."""
    box = Box(journal or CrashJournal())
    options = GroupOptions(lease=True, window=9_999, attempts_max=1, order=order)
    box.declare(TopicOptions("Dead", durability="disk"), "g", GroupOptions(lease=True, window=99))
    topic = TopicOptions("In", durability="disk", partitions=partitions)
    box.declare(topic, "g", attrs.evolve(options, dead_letter="Dead"))
    box.declare(topic, "h", GroupOptions())
    for index in range(partitions):
        for number, body in enumerate(bodies):
            row = make_row(b"id%d" % number, b"x: y\r\n", body, b"tag", b"key")
            box.broker.put(box.partition("In", index), Probe(), row)
    box.settle()
    for name in ("g", "h"):
        assert len(box.take(name, topic="In")) == partitions * len(bodies)
    box.settle(20_000)
    assert box.topic("Dead").depth() == partitions * len(bodies)
    return box


def hand_back(box: Box, *offsets: int) -> Probe:
    probe = Probe()
    partition = box.partition("Dead") if offsets else None
    where = box.group("g", "Dead"), box.broker.topic, 1_000, partition, ranges(offsets)
    box.broker.redrive(probe, *where, only_group=True)
    box.settle()
    return probe


@pytest.mark.parametrize("order", ["", "key", "priority"])
def test_the_group_alone_has_them_again(order: str) -> None:
    """In their order and before what is newer, as new messages: they may die again."""
    box = given_up(b"0", b"1", b"2", order=order)
    box.put(b"new", topic="In")
    assert moved(hand_back(box)) == (3, 0)
    assert box.topic("In").depth() == 4, "nothing was put"
    assert box.take("h", topic="In") == [b"new"]
    found = []
    while bodies := box.take("g", topic="In"):
        found += bodies
        offsets = ranges(box.group("g", "In").backlogs[0].leased.dues)
        box.broker.ack(Probe(), box.group("g", "In"), box.partition("In"), offsets)
        box.settle()
    assert found == [b"0", b"1", b"2", b"new"]
    assert box.take(topic="Dead") == []


def test_they_die_again_and_come_back_again() -> None:
    box = given_up(b"0", partitions=2)
    for _ in range(3):
        assert moved(hand_back(box)) == (2, 0)
        assert box.take("g", topic="In") == [b"0", b"0"]
        box.settle(20_000)
    assert box.topic("Dead").depth() == 8


def test_only_these() -> None:
    box = given_up(b"0", b"1", b"2")
    assert moved(hand_back(box, 1, 7)) == (1, 0)
    assert box.take("g", topic="In") == [b"1"]
    assert box.take(topic="Dead") == [b"0", b"2"]


def forge(box: Box, lines: bytes, **said: bytes) -> None:
    """What is in Dead says of itself that it was that message."""
    what = {"id": b"id0", "body": b"0", "tag": b"tag", "key": b"key", **said}
    row = make_row(what["id"], b"x: y\r\n" + lines, what["body"], what["tag"], what["key"])
    box.broker.put(box.partition("Dead"), Probe(), row)
    box.settle()


LINES = b"dead_topic: In\r\ndead_group: g\r\ndead_partition: 0\r\ndead_offset: 0\r\n"

NOT_THAT = {
    "another body": (LINES, {"body": b"1"}),
    "another id": (LINES, {"id": b"no"}),
    "another key": (LINES, {"key": b"no"}),
    "another tag": (LINES, {"tag": b""}),
    "another line": (LINES + b"z: 1\r\n", {}),
    "no offset": (LINES[: LINES.index(b"dead_offset")], {}),
    "offset": (LINES.replace(b"offset: 0", b"offset: 9"), {}),
    "huge offset": (LINES.replace(b"offset: 0", b"offset: %d" % 10**40), {}),
    "offset below 0": (LINES.replace(b"offset: 0", b"offset: -1"), {}),
    "partition": (LINES.replace(b"partition: 0", b"partition: 1"), {}),
    "group": (LINES.replace(b"group: g", b"group: no"), {}),
    "topic": (LINES.replace(b"topic: In", b"topic: no"), {}),
    "no lines": (b"", {}),
    "no UTF-8": (LINES.replace(b"group: g", b"group: %ff"), {}),
}


@pytest.mark.parametrize("name", NOT_THAT)
def test_what_is_another_message_stays(name: str) -> None:
    box = given_up(b"0")
    assert moved(hand_back(box)) == (1, 0)
    assert box.take("g", topic="In") == [b"0"]
    box.broker.ack(Probe(), box.group("g", "In"), box.partition("In"), ranges([0]))
    lines, said = NOT_THAT[name]
    forge(box, lines, **said)
    assert moved(hand_back(box)) == (0, 1)
    assert box.take("g", topic="In") == []
    assert len(box.take(topic="Dead")) == 1


@pytest.mark.parametrize("how", ["leased", "ready", "purged", "gone", "filtered", "removed"])
def test_what_cannot_be_handed_back_stays(how: str) -> None:
    box = given_up(b"0")
    group, there = box.group("g", "In"), box.partition("In")
    if how in ("leased", "ready"):
        box.broker.again(Probe(), group, there, 0)
    if how == "leased":
        assert box.take("g", topic="In") == [b"0"]
    if how == "purged":
        box.broker.purge_topic(Probe(), box.topic("In"))
    if how == "gone":
        box.broker.remove_group(Probe(), group)
    if how == "filtered":
        options = GroupOptions(lease=True, filter="other")
        box.declare(TopicOptions("In", durability="disk"), "g", options)
    if how == "removed":
        box.broker.remove_topic(Probe(), box.topic("In"))
    box.settle(10)
    assert moved(hand_back(box)) == (0, 1)
    assert box.take(topic="Dead") == [b"0"]


def test_what_has_expired_stays() -> None:
    box = given_up()
    message = Message(b"id0", body=b"0", expires_ms=box.broker.now_ms + 30_000)
    box.broker.put_all(box.partition("In"), Probe(), Chunk.of([message]))
    box.settle()
    assert box.take("g", topic="In") == [b"0"]
    box.settle(20_000)
    assert box.topic("Dead").depth() == 1
    box.settle(20_000)
    assert moved(hand_back(box)) == (0, 1)


@pytest.mark.parametrize("others", [False, True])
@pytest.mark.parametrize("synced", range(6))
def test_a_crash_leaves_each_with_the_group_or_dead(synced: int, others: bool) -> None:
    """Whatever each log keeps, and though messages are put in the same write."""
    box = given_up(b"0", b"1")
    assert isinstance(box.journal, CrashJournal)
    box.settle(10)
    probe = Probe()
    box.broker.redrive(probe, box.group("g", "Dead"), box.broker.topic, 10, only_group=True)
    for n in range(synced + 1):
        if n:
            box.journal.release(1)
        if others:
            box.broker.put(box.partition("In"), Probe(), make_row(b"n", b"", b"new"))
        box.turn(10)
    answered = not probe.open
    for after in crashes(box):
        after.settle(1_000_000)
        alive = [body for body in after.take("g", topic="In") if body != b"new"]
        dead = after.take(topic="Dead")
        assert sorted(alive + dead) == [b"0", b"1"]
        assert not (answered and dead)
        assert set(after.take("h", topic="In")) <= {b"new"}
        assert again(after).topic("In").partitions[0].completions is None


@pytest.mark.parametrize("synced", range(8))
@pytest.mark.parametrize("before", range(6))
def test_a_crash_leaves_what_had_another_end_since_with_the_group(before: int, synced: int) -> None:
    """It came back and was settled by a result; then another group redrives the letter."""
    box = given_up(b"0")
    box.declare(TopicOptions("Dead", durability="disk"), "other", GroupOptions(lease=True))
    box.declare(TopicOptions("Out", durability="disk"))
    box.settle()
    assert moved(hand_back(box)) == (1, 0)
    assert box.take("g", topic="In") == [b"0"]
    box.settle(10)
    assert isinstance(box.journal, CrashJournal)
    source = Source(box.group("g", "In"), box.partition("In"), ranges([0]))
    result = Chunk.of([Message(b"r", body=b"r")])
    box.broker._completions.put(box.partition("Out"), Probe(), result, [source])
    for _ in range(before):
        box.journal.release(1)
        box.turn(10)
    probe = Probe()
    box.broker.redrive(probe, box.group("other", "Dead"), box.broker.topic, 9, only_group=True)
    for _ in range(synced):
        box.turn(10)
        box.journal.release(1)
    if probe.open or moved(probe) == (0, 1):
        assert synced < 5 or not probe.open
        return
    for after in crashes(box):
        after.settle(1_000_000)
        assert after.take("g", topic="In") == [b"0"]


class NoRoomThere(NoRoom):
    """For the topic alone in which they died."""

    def append(self, lane: Lane, after: int, batches: Sequence[Batch]) -> None:
        if self.shut and lane[0] == "In":
            raise JournalFull("no space left")
        CrashJournal.append(self, lane, after, batches)


def test_without_any_room_they_stay() -> None:
    journal = NoRoom()
    box = given_up(b"0", journal=journal)
    journal.shut = True
    assert refusal(hand_back(box)).refusal is Refusal.FULL
    journal.shut = False
    assert box.take("g", topic="In") == []
    assert box.take(topic="Dead") == [b"0"]


def test_a_disk_without_room_for_it_is_waited_for() -> None:
    """The group has it in memory already, so there is no way back; a crash takes both."""
    journal = NoRoomThere()
    box = given_up(b"0", journal=journal)
    journal.shut = True
    probe = hand_back(box)
    assert probe.open
    assert box.take(topic="Dead") == []
    for after in crashes(box):
        after.settle(1_000_000)
        assert after.take("g", topic="In") + after.take(topic="Dead") == [b"0"]
    journal.shut = False
    box.settle(5_000)
    assert moved(probe) == (1, 0)
    assert box.take("g", topic="In") == [b"0"]
    assert again(box).topic("In").partitions[0].completions is None
    assert box.take(topic="Dead") == []


def test_the_topic_is_removed_while_the_disk_has_no_room() -> None:
    journal = NoRoomThere()
    box = given_up(b"0", journal=journal)
    journal.shut = True
    probe = hand_back(box)
    box.broker.remove_topic(Probe(), box.topic("In"))
    journal.shut = False
    box.settle(5_000)
    assert moved(probe) == (0, 1)
    assert box.take(topic="Dead") == [b"0"]


@pytest.mark.parametrize("fate", [Verdict.LOST, Verdict.CONFLICT])
@pytest.mark.parametrize("written", [False, True])
def test_the_topic_is_read_again_before_that_is_stored(fate: Verdict, written: bool) -> None:
    """Then it is asked for again: the group has it once."""
    box = LateBox()
    box.declare(TopicOptions("Dead", durability="disk"), "g", GroupOptions(lease=True))
    limit = GroupOptions(lease=True, attempts_max=1, dead_letter="Dead")
    box.declare(TopicOptions("T", durability="disk"), "g", limit)
    box.put(b"0")
    box.settle()
    assert box.take() == [b"0"]
    box.settle(20_000)
    assert box.topic("Dead").depth() == 1
    probe = Probe()
    box.broker.redrive(probe, box.group("g", "Dead"), box.broker.topic, 10, only_group=True)
    box.turn()
    while ("T", 0) in box.late.waiting:
        box.late.step(("T", 0), fate, written)
    box.run_posted()
    box.settle(5_000)
    assert not probe.open
    hand_back(box)
    box.settle(5_000)
    assert box.take() == [b"0"]
    box.ack(0)
    box.settle(1_000_000)
    assert box.take() + box.take(topic="Dead") == []


def _acked(box: Box) -> list[bytes]:
    """All that g is handed now, acknowledged."""
    found: list[bytes] = []
    for partition in box.topic("In").partitions:
        group = box.group("g", "In")
        found += box.take("g", topic="In")
        for index, one in enumerate(box.topic("In").partitions):
            held = group.backlogs[index].leased
            offsets = ranges([o for o in held.dues if o not in held.settling])
            box.broker.ack(Probe(), group, one, offsets)
        box.settle()
        assert partition.fenced is None
    return found


@pytest.mark.parametrize("seed", range(60))
def test_whatever_is_handed_back_and_when_the_power_goes(seed: int) -> None:
    """The group h has each message once. The group g finishes each once, whatever it gave up, was
    handed again, some or all, with power cuts in between that keep any part of the logs."""
    random = Random(seed)
    bodies = [b"%d" % n for n in range(random.randrange(1, 6))]
    box = given_up(*bodies, partitions=2)
    done: list[bytes] = []
    for _ in range(random.randrange(1, 8)):
        probe = Probe()
        dead = box.partition("Dead")
        chosen = [o for o in range(dead.end) if random.random() < 0.5]
        assert isinstance(box.journal, CrashJournal)
        where = box.group("g", "Dead"), box.broker.topic, random.choice((1, 100))
        if chosen:
            box.broker.redrive(probe, *where, dead, ranges(chosen), only_group=True)
        else:
            box.broker.redrive(probe, *where, only_group=True)
        for _ in range(random.randrange(6)):
            box.turn(random.choice((0, 10)))
            box.journal.release(random.choice((0, 1, 2)))
        if random.random() < 0.6:
            box = random.choice(list(crashes(box)))
            box.settle(100_000)
        assert isinstance(box.journal, CrashJournal)
        if random.random() < 0.5:
            box.settle()
        if random.random() < 0.3:
            done += _acked(box)
        elif random.random() < 0.6:
            box.take("g", topic="In")
            box.turn(20_000)  # they die once more
            for _ in range(random.randrange(4)):
                box.journal.release(1)
                box.turn(10)
    box.settle(100_000)
    while moved(hand_back(box)) != (0, 0):
        done += _acked(box)
    done += _acked(box)
    assert sorted(done) == sorted(bodies * 2)
    assert box.take(topic="Dead") == []
    assert box.take("h", topic="In") == []
    assert box.topic("In").depth() == 2 * len(bodies), "nothing was put"
