"""Many delayed messages: what is due at once comes in lots, in order, and others get their turn."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.core.support import Box, CrashJournal, again, same_state
from zbus.core.cursor import due_queue as overdue
from zbus.core.cursor.state import GroupOptions, TopicOptions
from zbus.core.delivery import budget
from zbus.core.log import GROWS_TO, PORTION, Found, Size
from zbus.core.model.limits import Limits
from zbus.core.topics.topic import Partition
from zbus.core.verbs.seek import Start
from zbus.storage.format.batch import Batch

COUNT = 50
NAMES = [b"%d" % number for number in range(COUNT)]


@pytest.fixture(autouse=True)
def small_lots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overdue, "LOT", 10)
    monkeypatch.setattr(budget, "WOKEN_PER_TURN_MAX", 20)


def delayed(groups: int = 1, lease: bool = False) -> Box:
    """Groups that have passed COUNT messages, all due in 100 ms."""
    box = Box(CrashJournal())
    for number in range(groups):
        box.declare("T", f"g{number}", GroupOptions(lease=lease, window=1_000))
    box.put(*NAMES, due_ms=box.now_ms + 100)
    box.settle()
    for number in range(groups):
        assert box.take(f"g{number}") == []
    return box


@pytest.mark.parametrize("lease", [False, True])
def test_what_nobody_wants_stays_where_it_is(lease: bool) -> None:
    box = delayed(lease=lease)
    box.settle(100)
    backlog = box.group("g0").backlogs[0]
    assert len(backlog.delayed) == COUNT - 10
    box.put(b"later", due_ms=box.now_ms + 1_000)
    box.put(b"new")
    box.settle()
    for _ in range(5):
        due_ms = box.broker.next_due()
        assert due_ms is not None
        assert due_ms > box.now_ms, "there is nothing to do"
        box.settle(due_ms - box.now_ms)
    assert len(backlog.delayed) == COUNT - 10
    assert box.take("g0") == [*NAMES, b"new"]
    box.settle(1_000)
    assert box.take("g0") == [b"later"]


def test_one_at_a_time() -> None:
    box = delayed()
    box.settle(100)
    box.put(b"new")
    box.settle()
    taken = [box.take("g0", 1) for _ in range(COUNT + 2)]
    assert taken == [*([name] for name in NAMES), [b"new"], []]


def test_pulls_that_wait_get_all_at_once() -> None:
    box = delayed()
    probes = [box.pull("g0", 1, wait=True) for _ in range(COUNT)]
    box.settle(99)
    assert all(probe.open for probe in probes)
    box.settle(1)
    assert [probe.bodies for probe in probes] == [[name] for name in NAMES]


def test_groups_have_their_turns() -> None:
    box = delayed(groups=9)
    probes = [box.pull(f"g{number}", COUNT, wait=True) for number in range(9)]
    box.turn(100)
    assert sum(len(box.group(f"g{n}").backlogs[0].delayed) == COUNT for n in range(9)) == 7
    box.settle()
    assert [probe.bodies for probe in probes] == [NAMES] * 9


@pytest.mark.parametrize("due", [False, True])
def test_a_restart(due: bool) -> None:
    box = delayed(lease=True)
    if due:
        box.settle(100)
        assert box.take("g0", 15) == NAMES[:15]
    after = again(box)
    same_state(box, after)
    after.settle(100)
    assert after.take("g0") == NAMES[15 if due else 0 :]
    if due:
        after.settle(10_000)
        assert after.take("g0") == NAMES, "their leases ended"


@pytest.mark.parametrize("copy", ["g0", ""])
def test_another_group_waits_for_the_same(copy: str) -> None:
    box = delayed(lease=True)
    box.settle(100)
    assert box.take("g0", 5) == NAMES[:5]
    box.nack(4, due_ms=box.now_ms + 10, group="g0")
    box.declare("T", "h", start=Start(copy=copy))
    box.settle()
    after = again(box)
    same_state(box, after)
    wanted = [b"4", *NAMES[:4], *NAMES[5:]] if copy else NAMES[10:]
    for known in (box, after):
        known.settle(100)
        assert sorted(known.take("h")) == sorted(wanted)


def test_what_is_not_kept_any_more() -> None:
    box = Box(CrashJournal(), segment_bytes_max=1_000)
    box.declare(TopicOptions("T", retention_count=5), "g")
    box.put(*NAMES, due_ms=box.now_ms + 100_000)
    box.settle()
    assert box.take() == []
    for _ in range(10):
        box.put(b"x")
        box.settle(2_000)
    left = list(box.group().backlogs[0].delayed)
    assert left == list(range(box.partition().first, COUNT))
    after = again(box)
    same_state(box, after)
    assert after.group().backlogs[0].skipped == COUNT - len(left)


@pytest.mark.parametrize(("late", "limit"), [(False, 20), (True, 10)])
def test_recovery_reads_so_many_writes_and_no_more(
    late: bool, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large state is written down seldom; but not so seldom that many small writes follow it."""
    monkeypatch.setattr("zbus.core.persistence.storage.SNAPSHOT_EVERY_BYTES", 100)
    monkeypatch.setattr("zbus.core.persistence.storage.REPLAYS_MAX", 20)
    monkeypatch.setattr("zbus.core.persistence.storage.LATE_REPLAYS_MAX", 10)
    journal = CrashJournal()
    journal.late = late
    box = Box(journal)
    box.declare("T", "g")
    box.put(*[b"x"] * 2_000, due_ms=box.now_ms + 10_000)
    box.settle()
    assert box.take() == []
    most = 0
    for _ in range(60):
        box.put(b"y")
        box.settle()
        after = again(box)
        same_state(box, after)
        most = max(most, box.partition().stored.replays)
        assert box.partition().stored.replays <= after.partition().stored.replays <= 2 * most
    assert most == limit
    written = [batch for batch in journal.written["T", 0] if isinstance(batch, Batch)]
    assert sum(batch.header.is_whole_state for batch in written) < 200 // limit


def test_what_became_due_is_read_back_without_all_that_is_next_to_it() -> None:
    box = Box(CrashJournal(), limits=Limits(cache_bytes_max=1, history_bytes_max=1 << 20))
    box.declare("T", "g")
    box.put(*NAMES, due_ms=box.now_ms + 100)
    box.settle()
    long = bytes(GROWS_TO.bytes_max)  # so that the names are not at hand any more
    box.put(long)
    box.settle()
    asked: list[tuple[int, Size]] = []
    fetch = box.broker._storage.fetch

    def watched(
        partition: Partition, offset: int, portion: Size, done: Callable[[Found], None]
    ) -> None:
        asked.append((offset, portion))
        fetch(partition, offset, portion, done)

    box.broker._storage.fetch = watched  # type: ignore[method-assign]
    assert box.take() == [long]
    assert {portion for _, portion in asked} == {PORTION}
    asked.clear()
    box.put(b"z" * 100)
    log = box.partition().log
    for chunk in [chunk for chunk in log.chunks if not chunk.recent]:
        box.broker._memory.drop(log, chunk)
    box.settle(100)
    assert box.take() == [b"z" * 100, *NAMES]
    assert all(portion.count_max <= len(NAMES) for _, portion in asked)
