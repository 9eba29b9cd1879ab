"""A group with very many leases out at once: what each costs, and how they end."""

from __future__ import annotations

import tracemalloc
from random import Random

import pytest

from tests.core.support import Box, CrashJournal, Probe, again, ranges, same_state
from zbus.core.cursor.backlog import ENDED_MAX, NEAR, Backlog
from zbus.core.cursor.journal import changes
from zbus.core.cursor.key_order import KeyLocks
from zbus.core.cursor.state import GroupOptions, TopicOptions
from zbus.core.model.chunk import Chunk
from zbus.core.model.dispositions import Disposition
from zbus.core.model.message import Message
from zbus.core.model.message_state import MessageState
from zbus.core.topics.outcomes import DONE
from zbus.core.verbs.listing import Listing, Wanted

MANY = 20_000
LEASE_MS = 60_000
LEASE_BYTES_MAX = 200
KEYED_BYTES_MAX = 200
"""Of a busy key beside its lease, without the key."""


def leasing(count: int = MANY, **options: object) -> Box:
    """A group g that has handed out all there is, in batches."""
    box = Box(CrashJournal())
    group = GroupOptions(lease=True, lease_ms=LEASE_MS, window=1_000_000, **options)  # type: ignore[arg-type]
    box.declare(TopicOptions("T", durability="os"), "g", group)
    for first in range(0, count, 5_000):
        box.put(*[b"%d" % number for number in range(first, first + 5_000)])
        box.settle()
    taken = 0
    while taken < count:
        taken += len(box.take(count=5_000))
    assert box.group().leased_count() == count
    return box


def test_each_is_settled_in_any_order_and_stays_so_after_a_restart() -> None:
    box = leasing()
    order = list(range(MANY))
    Random(1).shuffle(order)
    probes = []
    for at in range(0, MANY, 2_000):
        probes += [box.ack(offset) for offset in order[at : at + 1_500]]
        probes += [box.nack(offset) for offset in order[at + 1_500 : at + 1_600]]
        box.turn(1)
    box.settle()
    assert all(probe.fine for probe in probes)
    assert box.group().leased_count() == MANY // 2_000 * 400
    after = again(box)
    same_state(box, after)
    assert len(after.take(count=5_000)) == MANY // 2_000 * 100


def test_those_that_end_at_one_time_are_spread_over_turns() -> None:
    box = leasing(15_000)
    box.broker.begin(box.now_ms + 2 * LEASE_MS)
    ready = [len(box.group().backlogs[0].places)]
    while ready[-1] < 15_000:
        due_ms = box.broker.next_due()
        assert due_ms is not None
        assert due_ms <= box.now_ms, "the next turn comes at once"
        box.broker.finish()
        box.broker.begin(box.now_ms)
        ready.append(len(box.group().backlogs[0].places))
    assert ready[:2] == [ENDED_MAX, 2 * ENDED_MAX]
    assert box.take(count=3) == [b"0", b"1", b"2"]


def test_a_range_acknowledges_all_of_them_at_once() -> None:
    box = leasing(10_000)
    probe = Probe()
    count = box.broker.ack(probe, box.group(), box.partition(), ranges(range(10_000)))
    box.settle()
    assert (count, probe.fine, box.group().leased_count()) == (10_000, True, 0)


@pytest.mark.parametrize("per_ms", [1, 200])
def test_what_a_lease_costs_in_memory(per_ms: int) -> None:
    """Also if each of them ends at a time of its own."""
    backlog = Backlog()
    holder = b"session"
    tracemalloc.start()
    for number in range(MANY):
        offset = backlog.lease_next(LEASE_MS + number // per_ms)
        backlog.leased.holders[offset] = holder
        if number % 200 == 199:
            changes(backlog, "g")
    size_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    backlog.check()
    assert size_bytes <= MANY * (LEASE_BYTES_MAX if per_ms > 1 else LEASE_BYTES_MAX + 40)


def test_what_a_busy_key_costs_in_memory() -> None:
    backlog, keyed = Backlog(), KeyLocks(())
    keys = [b"key-%d" % number for number in range(MANY)]
    offsets = [backlog.lease_next(LEASE_MS) for _ in keys]
    tracemalloc.start()
    for offset, key in zip(offsets, keys, strict=True):
        keyed.batch += 1
        assert keyed.admits(backlog, offset, Chunk.of([Message(b"", key=key)]), 0)
    size_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    keyed.check(backlog, set(), ())
    assert size_bytes <= MANY * KEYED_BYTES_MAX


@pytest.mark.parametrize("step", [1, NEAR + 7], ids=["near", "far"])
def test_the_floor_goes_up_with_what_is_finished(step: int) -> None:
    """It is looked for among what comes next, and if that is far away, everywhere."""
    backlog = Backlog()
    left = []
    for number in range(20 * step):
        offset = backlog.lease_next(LEASE_MS)
        if number % step:
            backlog.finish(offset)
        else:
            left.append(offset)
    for lowest, following in zip(left, [*left[1:], backlog.cursor], strict=True):
        assert backlog.floor() == lowest
        backlog.finish(lowest, Disposition.DONE)
        assert backlog.floor() == following
    backlog.again(3)
    assert backlog.floor() == 3


def test_what_a_long_turn_leased_ends_later_as_a_whole() -> None:
    box = leasing(5_000)
    backlog, request_clock = box.group().backlogs[0], box.broker.request_clock
    box.nack(7)
    box.settle(1_000)
    before = dict(backlog.leased.dues)
    probe = box.pull()
    box.broker.finish()
    assert probe.bodies == [b"7"]
    begun_ms = box.now_ms
    request_clock.received_ms = lambda: begun_ms + 30
    box.broker.sent()
    assert backlog.leased.due_of(7) == begun_ms + 30 + LEASE_MS
    assert {**before, 7: 0} == {**backlog.leased.dues, 7: 0}, "those of other turns do not"
    box.broker.begin(box.now_ms + 1)
    box.check()


def test_a_page_of_them_is_chosen_in_steps() -> None:
    box = leasing()
    box.settle(50)
    box.extend(5, box.now_ms + 1)
    found: list[int] = []
    done = Probe()
    listing = Listing(
        box.group(),
        Wanted(MessageState.LEASED, 3),
        box.now_ms,
        lambda row: not found.append(row.offset),  # type: ignore[func-returns-value]
        lambda problem: done.settle(problem or DONE),
    )
    assert max(listing.steps()) <= 1_100, "no step is a long turn"
    assert (found, listing.more, done.fine) == ([5, 0, 1], True, True)
