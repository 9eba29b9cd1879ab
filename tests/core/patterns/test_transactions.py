"""Staged messages are stored as a whole, once, whatever ends in between."""

from __future__ import annotations

from random import Random

import pytest

from tests.core.patterns.test_completions import crashes
from tests.core.support import Box, CrashJournal, Probe, again, refusal
from tests.limits import checked
from zbus.core.cursor.state import GroupOptions, TopicOptions
from zbus.core.model.chunk import Chunk
from zbus.core.model.errors import Refusal
from zbus.core.model.message import Message
from zbus.core.patterns.transaction_log import Decision, Stage, Status
from zbus.core.patterns.transactions import AGAIN_MS
from zbus.core.topics.outcomes import Changed, Committed

READING = GroupOptions(lease=True, window=100_000, lease_ms=1_000_000)
APP = "query-1"
ROWS = f"txn.{APP}.rows"


def prepared(durability: str = "disk", partitions: int = 1) -> Box:
    """An application may stage; Out and Other have readers."""
    box = Box(CrashJournal())
    for name in ("Out", "Other"):
        box.declare(TopicOptions(name, durability=durability, partitions=partitions), "r", READING)
    box.settle()
    assert box.broker.transactions.begin(APP) is None
    box.settle()
    return box


def stage(box: Box, *bodies: bytes, topic: str = "Out") -> Stage:
    probe = box.put(*bodies, topic=ROWS)
    box.settle()
    assert probe.fine
    return Stage(probe.offset, probe.offset + len(bodies), topic)


def commit(box: Box, batch: int, *stages: Stage, app: str = APP) -> Probe:
    probe = Probe()
    box.broker.transactions.commit(probe, app, batch, stages)
    return probe


def abort(box: Box, batch: int, *ranges: range) -> Probe:
    probe = Probe()
    box.broker.transactions.abort(probe, APP, batch, ranges)
    return probe


def committed(probe: Probe) -> tuple[int, bool]:
    assert not probe.open
    (outcome,) = probe.answers
    assert isinstance(outcome, Committed), outcome
    return outcome.count, outcome.duplicate


def everything(box: Box, topic: str = "Out") -> list[bytes]:
    """All that is stored there, whoever has read it."""
    found: list[tuple[Chunk, int]] = []
    for partition in box.topic(topic).partitions:
        for offset in range(partition.first, partition.visible):
            partition.log.get(offset, found.append)  # type: ignore[arg-type]
        box.settle()
    return [chunk.bodies[at] for chunk, at in found]


def status(box: Box) -> Status:
    box.broker.transactions.status(APP)
    box.settle()
    found = box.broker.transactions.status(APP)
    assert isinstance(found, Status)
    return found


def test_nobody_sees_it_before_it_is_committed() -> None:
    box = prepared()
    first, second = stage(box, b"a", b"b"), stage(box, b"c")
    assert box.take("r", topic="Out") == []
    assert status(box) == Status(None, True, 3)
    probe = commit(box, 0, second, first)
    box.settle()
    assert committed(probe) == (3, False)
    assert box.take("r", topic="Out") == [b"c", b"a", b"b"]
    assert status(box) == Status(0, True, 0)


def test_a_batch_is_committed_once() -> None:
    box = prepared()
    stages = stage(box, b"a")
    probes = [commit(box, 5, stages) for _ in range(3)]
    box.settle()
    assert [committed(probe) for probe in probes] == [(1, False), (0, True), (0, True)]
    other = stage(box, b"b")
    for batch in (5, 4, 0):
        late = commit(box, batch, other)
        box.settle()
        assert committed(late) == (0, True)
    assert everything(box) == [b"a"]
    box = again(box)
    box.settle()
    replayed = commit(box, 5, stage(box, b"a"))
    box.settle()
    assert committed(replayed) == (0, True)
    assert everything(box) == [b"a"]
    following = commit(box, 6, stage(box, b"c"))
    box.settle()
    assert committed(following) == (1, False)
    assert everything(box) == [b"a", b"c"]


def test_messages_keep_what_they_were_staged_with() -> None:
    box = prepared()
    now_ms = box.now_ms
    message = Message(b"id", b"tag", b"key", b"x: y\r\n", b"body")
    message.due_ms, message.expires_ms, message.attempts_max = now_ms + 50, now_ms + 5_000, 3
    message.once = b"staged-with"
    box.broker.put_all(box.partition(ROWS), Probe(), Chunk.of([message]))
    box.settle()
    probe = commit(box, 0, Stage(0, 1, "Out"))
    box.settle()
    assert committed(probe) == (1, False)
    assert box.take("r", topic="Out") == []
    box.settle(50)
    pull = box.pull("r", topic="Out")
    box.settle()
    (record,) = pull.records
    found = record.message
    assert (found.id, found.tag, found.key, found.headers) == (b"id", b"tag", b"key", b"x: y\r\n")
    assert (found.expires_ms, found.attempts_max, found.once) == (now_ms + 5_000, 3, b"")


def test_several_topics_and_partitions() -> None:
    box = prepared(partitions=3)
    keyed = [Message(b"%d" % n, key=b"k%d" % n, body=b"%d" % n) for n in range(20)]
    box.broker.put_all(box.partition(ROWS), Probe(), Chunk.of(keyed))
    box.settle()
    more = stage(box, b"x", b"y", topic="Other")
    probe = commit(box, 0, Stage(0, 20, "Out"), more)
    box.settle()
    assert committed(probe) == (22, False)
    assert sorted(everything(box), key=int) == [b"%d" % n for n in range(20)]
    assert everything(box, "Other") == [b"x", b"y"]
    for number in range(3):
        partition = box.partition("Out", number)
        found: list[tuple[Chunk, int]] = []
        for offset in range(partition.visible):
            partition.log.get(offset, found.append)  # type: ignore[arg-type]
        box.settle()
        keys = [chunk.key_of(at) for chunk, at in found]
        assert all(box.topic("Out").partition_for(key) is partition for key in keys)


def test_what_was_given_up_is_dropped_with_the_next_commit() -> None:
    box = prepared()
    stage(box, b"lost")
    kept = stage(box, b"a")
    stage(box, b"for later")
    commit(box, 0, kept)
    box.settle()
    assert status(box).staged == 1
    commit(box, 1, stage(box, b"b"))
    box.settle()
    assert status(box).staged == 0
    assert everything(box) == [b"a", b"b"]


@pytest.mark.parametrize(
    ("stages", "refused"),
    [
        ([Stage(0, 3, "Out")], Refusal.CONFLICT),
        ([Stage(2, 2, "Out")], Refusal.CONFLICT),
        ([Stage(1, 0, "Out")], Refusal.CONFLICT),
        ([Stage(0, 1, "Out"), Stage(7, 9, "Out")], Refusal.CONFLICT),
        ([Stage(0, 1, "Nowhere")], Refusal.TOPIC_UNKNOWN),
    ],
)
def test_what_cannot_be_committed(stages: list[Stage], refused: Refusal) -> None:
    box = prepared()
    stage(box, b"a", b"b")
    probe = commit(box, 0, *stages)
    box.settle()
    assert refusal(probe).refusal is refused
    assert status(box) == Status(None, True, 2)
    fine = commit(box, 0, Stage(0, 2, "Out"))
    box.settle()
    assert committed(fine) == (2, False)


def test_an_application_that_never_staged() -> None:
    box = prepared()
    probe = commit(box, 0, app="nobody")
    box.settle()
    assert refusal(probe).refusal is Refusal.TOPIC_UNKNOWN


def test_an_empty_batch_counts() -> None:
    box = prepared()
    probe = commit(box, 3)
    box.settle()
    assert committed(probe) == (0, False)
    assert status(box) == Status(3, True, 0)


def test_what_is_aborted_is_gone() -> None:
    box = prepared()
    first, second = stage(box, b"a"), stage(box, b"b")
    probe = abort(box, 0, range(first.first, first.end))
    box.settle()
    (outcome,) = probe.answers
    assert isinstance(outcome, Changed)
    refused = commit(box, 0, first, second)
    box.settle()
    assert refusal(refused).refusal is Refusal.CONFLICT
    fine = commit(box, 0, second)
    box.settle()
    assert committed(fine) == (1, False)
    assert everything(box) == [b"b"]


def test_what_is_committed_cannot_be_aborted() -> None:
    box = prepared()
    stages = stage(box, b"a")
    done = commit(box, 0, stages)
    probe = abort(box, 0, range(stages.first, stages.end))
    box.settle()
    assert committed(done) == (1, False)
    assert refusal(probe).refusal is Refusal.CONFLICT
    assert everything(box) == [b"a"]


def test_a_topic_that_goes_before_all_is_moved() -> None:
    """Decided is decided: it is moved when the topic is there again."""
    box = prepared()
    stages = stage(box, b"a"), stage(box, b"b", topic="Other")
    probe = commit(box, 0, *stages)
    box.turn()
    box.turn()
    assert probe.open
    box.broker.remove_topic(Probe(), box.topic("Other"))
    box.settle()
    if probe.open:  # it was moved before
        return
    assert refusal(probe).refusal is Refusal.TOPIC_UNKNOWN
    assert status(box).applied is False
    box.declare(TopicOptions("Other"), "r", READING)
    box.settle(2 * AGAIN_MS)
    assert status(box) == Status(0, True, 0)
    assert (everything(box), everything(box, "Other")) == ([b"a"], [b"b"])


def test_a_full_disk() -> None:
    box = prepared()
    stages = stage(box, b"a", b"b")
    assert isinstance(box.journal, CrashJournal)
    box.journal.full = True
    probe = commit(box, 0, stages)
    box.settle()
    assert refusal(probe).refusal is Refusal.FULL
    box.journal.full = False
    box.settle(2 * AGAIN_MS)
    fine = commit(box, 0, stages)
    box.settle()
    assert not fine.open
    assert everything(box) == [b"a", b"b"]


@pytest.mark.parametrize("synced", range(12))
def test_a_power_cut_leaves_all_or_nothing(synced: int) -> None:
    """After so many syncs, each log keeps any part of what was not synced. What is there after the
    start is whole; the same commit makes it whole otherwise; and never is anything there twice."""
    box = prepared()
    assert isinstance(box.journal, CrashJournal)
    stage(box, b"lost")
    stages = stage(box, b"a", b"b"), stage(box, b"x", topic="Other"), stage(box, b"c")
    probe = commit(box, 7, *stages)
    for _ in range(synced):
        box.turn()
        box.journal.release(1)
    box.turn(1)
    seen = set()
    for after in crashes(box):
        after.settle(2 * AGAIN_MS)
        found = everything(after), everything(after, "Other")
        assert found in (([], []), ([b"a", b"b", b"c"], [b"x"])), found
        assert found[0] or not probe.answers, "it was answered"
        seen.add(bool(found[0]))
        repeated = commit(after, 7, *stages)
        after.settle(2 * AGAIN_MS)
        assert committed(repeated) == ((0, True) if found[0] else (4, False))
        assert everything(after) == [b"a", b"b", b"c"]
        assert everything(after, "Other") == [b"x"]
        assert status(after).staged == 0
    assert seen


def test_thousands_are_moved_in_portions() -> None:
    box = prepared()
    bodies = [b"%d" % number for number in range(2_500)]
    stages = stage(box, *bodies)
    probe = commit(box, 0, stages)
    box.settle()
    assert committed(probe) == (2_500, False)
    assert box.take("r", count=5_000, topic="Out") == bodies


@pytest.mark.parametrize("seed", [*range(4), *checked(range(4, 40))])
def test_any_history(seed: int) -> None:
    """Batches are staged, some twice, committed, committed again, aborted, and the power goes at
    any moment: what is in the topic is what was decided, in order, each message once."""
    random = Random(seed)
    box = prepared()
    expected: list[bytes] = []
    batch = serial = 0
    for _ in range(25):
        bodies = [b"%d" % (serial + number) for number in range(random.randint(1, 5))]
        serial += len(bodies)
        stages = [stage(box, body) for body in bodies]
        if random.random() < 0.3:
            abort(box, batch, range(stages[0].first, stages[-1].end))
            box.settle()
            continue
        probe = commit(box, batch, *stages)
        for _ in range(random.randint(0, 8)):
            box.turn()
            assert isinstance(box.journal, CrashJournal)
            box.journal.release(random.randint(0, 2))
        if random.random() < 0.5:
            assert isinstance(box.journal, CrashJournal)
            journal = box.journal.crash(lambda lane, unsynced: random.randint(0, unsynced))
            box = Box(journal, now_ms=box.now_ms)
            box.settle(2 * AGAIN_MS)
            decided = everything(box) == expected + bodies
            assert decided or everything(box) == expected
            assert decided or not probe.answers
            probe = commit(box, batch, *stages)
        box.settle(2 * AGAIN_MS)
        if probe.answers and not isinstance(probe.answers[-1], Committed):
            assert refusal(probe).refusal is Refusal.CONFLICT
            raise AssertionError("what was staged durably is there")
        expected += bodies
        assert everything(box) == expected
        batch += 1
    assert box.take("r", count=10_000, topic="Out") == expected


@pytest.mark.parametrize(
    "decision",
    [
        Decision(0, ()),
        Decision(1 << 62, (Stage(0, 1, "a b c"), Stage(1 << 60, 1 << 61, "ÄÖ"))),
    ],
)
def test_a_decision_is_written_and_read(decision: Decision) -> None:
    assert Decision.read(decision.body()) == decision
