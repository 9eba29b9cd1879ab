"""Messages with a limit of attempts of their own, which takes the place of their group's."""

from __future__ import annotations

from collections.abc import Callable

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.support import Box, CrashJournal, Probe, again, cool
from tests.limits import examples
from zbus.core.cursor.leases import SETTLE_MS
from zbus.core.cursor.state import GroupOptions, TopicOptions
from zbus.core.log import Found
from zbus.core.model.chunk import Chunk
from zbus.core.model.errors import damaged, offset_unknown
from zbus.core.model.message_state import MessageState

LEASE_MS = 10_000
GROUP = GroupOptions(lease=True, window=100, lease_ms=LEASE_MS)


def prepared(*limits: int, dead_letter: str = "", group_max: int = 0) -> Box:
    """Messages named by their numbers, with these limits; 0 = as the group says."""
    box = Box(CrashJournal())
    box.declare(TopicOptions("D", durability="os"), "g", GroupOptions())
    options = attrs.evolve(GROUP, attempts_max=group_max, dead_letter=dead_letter)
    box.declare(TopicOptions("T", durability="os"), "g", options)
    box.settle()
    chunk = Chunk()
    for number, limit in enumerate(limits):
        chunk.add(b"%d" % number, b"", b"%d" % number, attempts_max=limit)
    probe = Probe()
    box.broker.put_all(box.partition(), probe, chunk)
    box.settle()
    assert probe.fine
    return box


@pytest.mark.parametrize("group_max", [0, 2])
@pytest.mark.parametrize("where", ["in memory", "in storage", "again after each lease"])
def test_each_is_handed_out_as_often_as_it_says(group_max: int, where: str) -> None:
    box = prepared(1, 3, 0, 4, group_max=group_max)
    others = b"2" if group_max != 2 else b""
    expected = [b"0123", b"123", b"1" + others + b"3", others + b"3", others]
    for bodies in expected:
        if where == "in storage":
            cool(box)
        elif where == "again after each lease":
            box = again(box)
        assert b"".join(box.take()) == bodies
        if where == "again after each lease":
            box = again(box)
        box.settle(LEASE_MS)
    backlog = box.group().backlogs[0]
    box.take()
    assert backlog.dead == (3 if others else 4)
    assert [backlog.life(n) for n in (0, 1, 3)] == [MessageState.DONE] * 3


def test_of_a_group_that_acknowledges_on_delivery_it_says_nothing() -> None:
    box = prepared(1)
    box.declare(TopicOptions("T", durability="os"), "other", GroupOptions(lease=False))
    box.settle()
    assert box.take("other") == [b"0"]


@pytest.mark.parametrize("restart", [False, True])
def test_the_dead_go_to_the_dead_letter_topic(restart: bool) -> None:
    box = prepared(1, 3, 0, dead_letter="D", group_max=2)
    reasons = [b"expired"] * 3
    for bodies in (b"012", b"12", b"1", b""):
        assert b"".join(box.take()) == bodies
        if restart:
            box = again(box)
            reasons = [b"attempts", b"expired", b"expired"]
        box.settle(LEASE_MS)
    pull = box.pull("g", 10, "D")
    box.settle()
    dead = {record.message.id: record.message for record in pull.records}
    assert sorted(dead) == [b"0", b"1", b"2"]
    assert len(pull.records) == 3
    assert [one.attempts_max for one in dead.values()] == [0] * 3, "a dead letter has none"
    lines = [dead[id].headers for id in (b"0", b"2", b"1")]
    counts = (1, 2, 3)
    for found, attempts, reason in zip(lines, counts, reasons, strict=True):
        assert b"dead_attempts: %d\r\ndead_reason: %b\r\n" % (attempts, reason) in found


@pytest.mark.parametrize("backoff_ms", [0, 500])
def test_what_has_more_attempts_than_its_group_gives_has_its_pauses(backoff_ms: int) -> None:
    box = prepared(3, group_max=1)
    options = attrs.evolve(GROUP, attempts_max=1, backoff_ms=backoff_ms)
    box.declare(TopicOptions("T", durability="os"), "g", options)
    box.settle()
    for pause_ms in (backoff_ms, 2 * backoff_ms):
        assert box.take() == [b"0"]
        box = again(box)
        box.settle(LEASE_MS)
        if pause_ms:
            box.settle(pause_ms - 1)
            assert box.take() == []
            box.settle(1)
    assert box.take() == [b"0"]
    box = again(box)
    box.settle(LEASE_MS)
    assert (box.take(), box.group().backlogs[0].dead) == ([], 1)


Held = list[Callable[[Found], None]]


def reading_late(box: Box) -> tuple[Box, Held]:
    """After a restart nothing is at hand, and what is asked for comes when it is told to."""
    box = again(box)
    held: Held = []
    box.topic().fetch = lambda partition, offset, size, done: held.append(done)
    return box, held


def test_what_cannot_be_read_is_looked_at_again() -> None:
    """The group would give it up; whether the message would is not known."""
    box = prepared(3, group_max=1)
    assert box.take() == [b"0"]
    box, held = reading_late(box)
    box.settle(LEASE_MS)
    backlog = box.group().backlogs[0]
    assert (len(held), backlog.life(0), box.take()) == (1, MessageState.LEASED, [])
    held.pop()(damaged(0, 0))
    assert backlog.life(0) is MessageState.LEASED
    box.settle(SETTLE_MS)
    assert len(held) == 1, "it is asked for again"
    box = again(box)
    box.settle(LEASE_MS)
    assert box.take() == [b"0"]


@pytest.mark.parametrize("end", ["acknowledged", "no group", "no topic", "forgotten"])
def test_what_ends_while_it_is_looked_at(end: str) -> None:
    box = prepared(0, group_max=1)
    assert box.take() == [b"0"]
    box, held = reading_late(box)
    box.settle(LEASE_MS)
    group = box.group()
    if end == "acknowledged":
        box.ack(0)
    elif end == "no group":
        box.broker.remove_group(Probe(), group)
    elif end == "no topic":
        box.broker.remove_topic(Probe(), group.topic)
    box.settle()
    chunk = Chunk()
    chunk.add(b"0", b"", b"0")
    held[0](offset_unknown(0) if end == "forgotten" else chunk)
    box.settle()
    assert group.backlogs[0].dead == (end == "forgotten")


STEPS = st.one_of(
    st.tuples(st.just("take"), st.integers(1, 3)),
    st.tuples(st.just("wait"), st.sampled_from([1, LEASE_MS // 2, LEASE_MS])),
    st.tuples(st.sampled_from(["nack front", "nack end", "nack later", "ack"]), st.integers(0, 4)),
    st.tuples(st.sampled_from(["restart", "cool"]), st.just(0)),
)


@examples(100)
@given(
    st.lists(st.sampled_from([0, 1, 2, 3]), min_size=5, max_size=5),
    st.sampled_from([0, 1, 2]),
    st.booleans(),
    st.lists(STEPS, max_size=30),
)
def test_model(
    limits: list[int], group_max: int, letters: bool, steps: list[tuple[str, int]]
) -> None:
    """No message is handed out more often than it says, and none is dead before that."""
    letters = letters and group_max > 0
    box = prepared(*limits, group_max=group_max, dead_letter="D" if letters else "")
    handed, acked = [0] * 5, set()
    for verb, number in steps:
        backlog = box.group().backlogs[0]
        if verb == "take":
            for body in box.take(count=number):
                handed[int(body)] += 1
        elif verb == "wait":
            box.settle(number)
        elif verb == "ack":
            open_before = backlog.life(number) is not MessageState.DONE
            box.ack(number)
            if open_before and backlog.life(number) is MessageState.DONE:
                acked.add(number)
        elif verb == "restart":
            box = again(box)
        elif verb == "cool":
            cool(box)
        else:
            due_ms = box.now_ms + 50 if verb == "nack later" else 0
            box.nack(number, front=verb == "nack front", due_ms=due_ms)
        box.settle()
        backlog = box.group().backlogs[0]
        for offset, limit in enumerate(limits):
            most = limit or group_max
            assert not most or handed[offset] <= most
            if backlog.life(offset) is MessageState.DONE and offset not in acked:
                assert handed[offset] == most > 0
    for _ in range(4):
        box.take()
        box.settle(LEASE_MS)
    box.take()
    dead = {o for o, limit in enumerate(limits) if (limit or group_max) and o not in acked}
    backlog = box.group().backlogs[0]
    assert {o for o in range(5) if backlog.life(o) is MessageState.DONE} == dead | acked
    assert backlog.dead == len(dead)
    if letters:
        found = box.take("g", topic="D")
        assert sorted(found) == sorted(b"%d" % offset for offset in dead)
