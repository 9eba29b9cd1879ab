"""Waiting pulls: who is served first, and how those end that get nothing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.core.support import Box, CrashJournal, Probe, PullProbe, Remembers, cool, refusal
from zbus.core.cursor.backlog import Backlog
from zbus.core.cursor.state import GroupOptions, TopicOptions
from zbus.core.delivery.budget import ALL_SKIPS_PER_TICK_MAX, SKIPS_PER_TICK_MAX
from zbus.core.model.chunk import Chunk
from zbus.core.model.errors import Refusal
from zbus.core.model.limits import Limits
from zbus.core.model.message import Message
from zbus.core.model.pull_options import PullOptions
from zbus.core.topics.outcomes import Empty, EmptyReason
from zbus.core.topics.topic import Session


@pytest.fixture
def box() -> Box:
    """Topic T with three partitions and the group g."""
    box = Box(CrashJournal())
    box.declare(TopicOptions("T", partitions=3, durability="os"), "g")
    box.settle()
    return box


def pull(
    box: Box,
    partition: int | None = None,
    session: Session | None = None,
    credit: int = 1,
    replaces: bool = False,
    wait_ms: int | None = None,
) -> PullProbe:
    wants = PullOptions(partition=partition, credit=credit, replaces=replaces)
    pull = PullProbe(session or box.session(), wants)
    deadline_ms = None if wait_ms is None else box.now_ms + wait_ms
    box.broker.pull(box.group(), pull, deadline_ms)
    return pull


def reason(probe: Remembers) -> EmptyReason:
    (answer,) = probe.answers
    assert isinstance(answer, Empty)
    return answer.reason


def put(box: Box, *places: tuple[int, bytes]) -> None:
    for index, body in places:
        box.put(body, index=index)
    box.settle()


def test_first_come_first_served_in_each_partition(box: Box) -> None:
    pulls = {name: pull(box, index) for index, name in ((0, "a"), (1, "b"), (0, "c"), (None, "d"))}
    put(box, (1, b"1"))
    assert pulls["b"].bodies == [b"1"]
    put(box, (2, b"2"))
    assert pulls["d"].bodies == [b"2"], "the others want nothing of that partition"
    put(box, (0, b"3"))
    assert pulls["a"].bodies == [b"3"], "it kept its place while others were served"
    put(box, (0, b"4"))
    assert pulls["c"].bodies == [b"4"]


def test_who_was_passed_over_keeps_its_place(box: Box) -> None:
    pulls = [pull(box, 1) for _ in range(3)]
    put(box, (0, b"not for them"))
    for number, one in enumerate(pulls):
        put(box, (1, b"%d" % number))
        assert one.bodies == [b"%d" % number]


def test_an_earlier_pull_of_any_partition_goes_before_one_of_a_named(box: Box) -> None:
    named = pull(box, 1)
    any_of_them, later = pull(box), pull(box, 0)
    put(box, (0, b"1"))
    assert any_of_them.bodies == [b"1"]
    put(box, (0, b"2"), (1, b"3"))
    assert (later.bodies, named.bodies) == ([b"2"], [b"3"])


def test_credit_is_shared_in_turns(box: Box) -> None:
    one, other = pull(box, 0, credit=3), pull(box, 0, credit=2)
    put(box, *[(0, b"%d" % number) for number in range(4)])
    assert one.bodies == [b"0", b"2"]
    assert one.open
    assert other.bodies == [b"1", b"3"]
    assert not other.open


def test_a_later_pull_replaces_an_earlier_one_of_its_session(box: Box) -> None:
    session = box.session()
    first, second = (pull(box, session=session, replaces=True) for _ in range(2))
    beside = pull(box, session=session)
    put(box, (0, b"1"))
    assert reason(first) is EmptyReason.REPLACED
    assert second.bodies == [b"1"]
    assert beside.open


def test_the_partitions_have_their_turns(box: Box) -> None:
    put(box, *[(index, b"%d" % index) for index in (0, 0, 1, 1, 2, 2)])
    pulls = [pull(box) for _ in range(6)]
    box.settle()
    got = [probe.bodies for probe in pulls]
    assert got == [[b"0"], [b"1"], [b"2"], [b"0"], [b"1"], [b"2"]]


@pytest.mark.parametrize(
    ("options", "bodies", "why"),
    [
        (GroupOptions(), 0, EmptyReason.DRAINED),
        (GroupOptions(filter="a"), 3, EmptyReason.FILTERED),
        (GroupOptions(lease=True, window=1), 3, EmptyReason.LEASED),
        (GroupOptions(paused=True), 3, EmptyReason.PAUSED),
    ],
)
def test_the_reason_why_there_is_nothing(
    options: GroupOptions, bodies: int, why: EmptyReason
) -> None:
    box = Box(CrashJournal())
    box.declare("T", "g", options)
    box.settle()
    if bodies:
        put(box, *[(0, b"x")] * bodies)
    if why is EmptyReason.LEASED:
        assert box.take(count=1) == [b"x"]
    probe = pull(box, wait_ms=100)
    box.settle(99)
    assert probe.open
    box.settle(1)
    box.settle(1)  # if it could have had a message yet it waits for one more turn
    assert reason(probe) is why


def test_delayed_is_a_reason_too(box: Box) -> None:
    box.put(b"late", due_ms=box.now_ms + 1_000)
    box.settle()
    probe = pull(box, wait_ms=0)
    box.settle()
    box.settle(1)
    assert reason(probe) is EmptyReason.DELAYED


def test_an_acknowledgement_opens_the_window() -> None:
    box = Box(CrashJournal())
    box.declare("T", "g", GroupOptions(lease=True, window=2))
    box.put(b"0", b"1", b"2")
    box.settle()
    assert box.take() == [b"0", b"1"]
    waiting = box.pull(wait=True)
    box.settle()
    assert waiting.open
    box.ack(1)
    box.settle()
    assert waiting.bodies == [b"2"]


def test_a_pull_with_a_window_holds_no_more_than_that() -> None:
    box = Box(CrashJournal())
    box.declare("T", "g", GroupOptions(lease=True, window=100, lease_ms=1_000))
    box.put(*[b"%d" % number for number in range(10)])
    box.settle()
    narrow = PullProbe(box.session(), PullOptions(credit=10, window=2))
    box.broker.pull(box.group(), narrow, None)
    box.settle()
    assert narrow.bodies == [b"0", b"1"]
    other = box.pull(wait=True)
    box.settle()
    assert other.bodies == [b"2"], "it keeps nobody else waiting"
    box.ack(0)
    box.settle()
    assert narrow.bodies == [b"0", b"1", b"3"]
    box.settle()
    box.nack(3, due_ms=box.now_ms + 10)
    box.ack(1)
    box.settle()
    assert narrow.bodies == [b"0", b"1", b"3", b"4", b"5"]
    box.settle(999)
    assert len(narrow.bodies) == 5
    box.settle(1)
    assert len(narrow.bodies) == 7, "the leases have ended"


def test_what_becomes_due_when_a_pull_ends_is_in_time_for_it() -> None:
    """Though the pull was put off once before, while its message was read back."""
    box = Box(CrashJournal())
    box.declare("T", "g")
    box.put(b"late", due_ms=box.now_ms + 1)
    box.settle()
    cool(box)
    probe = box.pull()
    box.turn()
    assert probe.open
    box.turn(100)
    box.turn()
    assert probe.bodies == [b"late"]


def test_an_exclusive_group_is_free_when_its_reader_leaves() -> None:
    box = Box(CrashJournal())
    box.declare("T", "g", GroupOptions(exclusive=True))
    box.settle()
    session = box.session()
    held = pull(box, session=session)
    assert refusal(pull(box)).refusal is Refusal.EXCLUSIVE
    box.broker.leave(session)
    assert reason(held) is EmptyReason.LEFT
    waiting = pull(box)
    put(box, (0, b"1"))
    assert waiting.bodies == [b"1"]


def test_removing_and_stopping_end_all_pulls(box: Box) -> None:
    waiting = pull(box)
    box.broker.remove_group(Probe(), box.group())
    assert refusal(waiting).refusal is Refusal.GROUP_UNKNOWN
    box.declare(box.topic().options, "g")
    waiting = pull(box)
    box.settle()
    box.broker.stop()
    assert reason(waiting) is EmptyReason.STOPPING
    assert refusal(pull(box)).refusal is Refusal.STOPPING
    box.settle()


def test_batches_of_a_tick_are_bounded_and_groups_take_turns() -> None:
    """However many messages are asked for in batches: others have their turn in between."""
    box = Box(CrashJournal(), limits=Limits(batch_messages_max=40_000))
    names = ["g", "h", "live"]
    for name in names:
        box.declare("T", name)
    box.settle()
    box.put(*[b"x"] * 24_000)
    box.settle()
    probes = {name: [box.pull(name, 3_000, wait=True) for _ in range(8)] for name in ("g", "h")}
    live = box.pull("live", wait=True)
    done: list[tuple[int, int, bool]] = []
    for _ in range(11):
        box.broker.finish()
        g, h = (sum(not probe.open for probe in group) for group in probes.values())
        done.append((g, h, not live.open))
        assert box.broker.next_due() == box.now_ms or done[-1][:2] == (8, 8)
        box.broker.begin(box.now_ms)
    assert done[:4] == [(2, 0, True), (2, 2, True), (4, 2, True), (4, 4, True)]
    assert done[-1] == (8, 8, True)
    assert all(len(probe.bodies) == 3_000 for group in probes.values() for probe in group)


def test_a_batch_that_had_no_turn_is_not_told_that_there_is_nothing() -> None:
    box = Box(CrashJournal(), limits=Limits(batch_messages_max=40_000))
    box.declare("T", "g")
    box.settle()
    box.put(*[b"x"] * 30_000)
    box.settle()
    probes = [box.pull("g", 3_000) for _ in range(11)]
    for _ in range(8):
        box.turn(1)
    assert [len(probe.bodies) for probe in probes] == [3_000] * 10 + [0]
    assert isinstance(probes[-1].answers[-1], Empty)


@pytest.mark.parametrize("wait", [True, False])
def test_what_a_tick_passes_over_is_bounded_for_all_groups_together(wait: bool) -> None:
    """And each group has its turn: none is told that there is nothing before it had."""
    box = Box(CrashJournal())
    names = [f"g{number}" for number in range(30)]
    for name in names:
        box.declare("T", name, GroupOptions(filter="wanted"))
    box.settle()
    skipped = SKIPS_PER_TICK_MAX - 1
    messages = [Message(b"i", b"other")] * skipped + [Message(b"i", b"wanted", body=b"here")]
    box.broker.put_all(box.partition(), Probe(), Chunk.of(messages))
    box.settle()
    probes = [box.pull(name, wait=wait) for name in names]
    before, turns = 0, 0
    while any(probe.open for probe in probes):
        box.turn(1)
        turns += 1
        passed = sum(box.group(name).backlogs[0].cursor for name in names)
        assert passed - before <= ALL_SKIPS_PER_TICK_MAX + len(names)
        before = passed
    assert [probe.bodies for probe in probes] == [[b"here"]] * len(names)
    assert turns <= 5


class Counted(list[Backlog]):
    """Knows how often somebody went through all of it."""

    walks = 0

    def __iter__(self) -> Iterator[Backlog]:
        self.walks += 1
        return super().__iter__()


def test_leases_are_counted_once_for_a_message_however_many_partitions_there_are() -> None:
    box = Box(CrashJournal())
    box.declare(TopicOptions("T", partitions=64), "g", GroupOptions(lease=True, window=999))
    box.settle()
    box.put(*[b"x"] * 50, index=63)
    box.settle()
    backlogs = box.group().backlogs = Counted(box.group().backlogs)
    probe = box.pull(count=50)
    box.turn()
    assert len(probe.bodies) == 50
    assert backlogs.walks <= 52


def test_so_many_pulls_wait_and_one_more_is_refused() -> None:
    box = Box(CrashJournal(), limits=Limits(waiting_max=3))
    box.declare("T", "g")
    box.declare("T", "h")
    box.settle()
    session = box.session()
    waiting = [pull(box, session=session) for _ in range(2)] + [box.pull("h", wait=True)]
    box.settle()
    over_limit = [pull(box) for _ in range(2)]
    now = box.pull("h")
    box.settle()
    box.settle(1)
    for one in over_limit:
        error = refusal(one)
        assert error.refusal is Refusal.TOO_MANY
        assert error.text == "3 consumes are waiting on this broker, which is the limit"
    assert reason(now) is EmptyReason.DRAINED, "it need not wait"
    assert all(one.open for one in waiting)
    box.broker.leave(session)
    assert box.broker._dispatch.pulls.count == 1
    again = [pull(box) for _ in range(3)]
    box.settle()
    assert [one.open for one in again] == [True, True, False], "there is room for two"


def test_a_pull_too_many_for_which_there_is_something_is_served() -> None:
    box = Box(CrashJournal(), limits=Limits(waiting_max=1))
    box.declare("T", "g")
    box.declare("T", "h")
    box.settle()
    box.take("h")
    waiting = box.pull("h", wait=True)
    box.settle()
    box.group("h").paused = True
    put(box, (0, b"x"))
    served = box.pull("g", wait=True)
    box.settle()
    assert served.bodies == [b"x"]
    assert waiting.open
    assert box.broker._dispatch.pulls.count == 1
