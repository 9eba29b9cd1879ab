"""Pulls that are not looked at: nobody pays for them, however many they are; none is forgotten."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.support import Box, CrashJournal, PullProbe, Reader
from tests.limits import examples
from zbus.core.cursor.state import GroupOptions, TopicOptions
from zbus.core.model.pull_options import PullOptions
from zbus.core.topics.parked_pulls import ParkedPulls

MANY = 20_000


def boxed(options: GroupOptions | None = None) -> Box:
    """Topic T with three partitions and the group g."""
    box = Box(CrashJournal())
    box.declare(TopicOptions("T", partitions=3, durability="os"), "g", options)
    box.settle()
    return box


def pull(
    box: Box,
    partition: int | None = None,
    session: Reader | None = None,
    credit: int = 1,
    window: int = 0,
) -> PullProbe:
    wants = PullOptions(partition=partition, credit=credit, window=window)
    probe = PullProbe(session or box.session(), wants)
    box.broker.pull(box.group(), probe, None)
    return probe


class Counting:
    """Counts how many pulls are looked at."""

    def __init__(self, box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
        self.looks = 0
        take = box.broker._dispatch._take

        def counted(*args: object) -> object:
            self.looks += 1
            return take(*args)  # type: ignore[arg-type]

        monkeypatch.setattr(box.broker._dispatch, "_take", counted)


def test_a_put_does_not_look_at_those_who_want_another_partition(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    box = boxed()
    first = [pull(box, 1) for _ in range(MANY)]
    box.settle()
    wanting = pull(box, 0)
    counting = Counting(box, monkeypatch)
    for number in range(3):
        box.put(b"%d" % number, index=0)
        box.settle()
        assert not box.broker._dispatch.runs.active, "there is nothing to do"
    assert wanting.bodies == [b"0"]
    assert counting.looks < 10
    box.put(b"x", b"y", index=1)
    box.settle()
    assert [probe.bodies for probe in first[:3]] == [[b"x"], [b"y"], []]


def test_a_put_does_not_look_at_those_who_take_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    box = boxed()
    sessions = [box.session() for _ in range(MANY)]
    stalled = [pull(box, None, session) for session in sessions]
    for session in sessions:
        session.stalled = True
    box.put(b"0", index=0)
    box.settle()
    counting = Counting(box, monkeypatch)
    waiting = pull(box)
    box.put(b"1", index=1)
    box.settle()
    assert waiting.bodies == [b"0"]
    assert counting.looks < 10
    assert not box.broker._dispatch.runs.active
    sessions[7].stalled = False
    box.broker.resume(sessions[7])
    box.settle()
    assert stalled[7].bodies == [b"1"]


def test_who_takes_messages_again_is_before_those_who_came_later() -> None:
    box = boxed()
    session = box.session()
    first = pull(box, None, session)
    session.stalled = True
    box.put(b"0")
    box.settle()
    box.ack(0)
    assert first.open
    pulls = [pull(box) for _ in range(2)]
    box.settle()
    session.stalled = False
    box.broker.resume(session)
    box.put(b"1")
    box.settle()
    assert [probe.bodies for probe in (*pulls, first)] == [[b"0"], [], [b"1"]]


def test_a_second_pull_of_a_session_that_was_set_aside_does_not_take_its_place() -> None:
    box = boxed()
    session = box.session()
    one, other = pull(box, 1, session), pull(box, 1)
    box.settle()
    second = pull(box, 1, session)
    box.put(b"0", b"1", b"2", index=1)
    box.settle()
    assert [probe.bodies for probe in (one, other, second)] == [[b"0"], [b"1"], [b"2"]]


def test_a_window_is_shared_by_the_partitions_in_turns() -> None:
    box = boxed(GroupOptions(lease=True, window=1))
    pulls = {index: pull(box, index, credit=9) for index in range(3)}
    box.settle()
    for index in range(3):
        box.put(b"a", b"b", b"c", index=index)
    box.settle()
    for _ in range(8):
        (place,) = [
            (index, offset) for index, b in enumerate(box.group().backlogs) for offset in b.leased
        ]
        box.ack(place[1], index=place[0])
        box.settle()
    assert [len(probe.bodies) for probe in pulls.values()] == [3, 3, 3]


def test_one_that_is_full_keeps_nobody_waiting_and_goes_on_when_it_is_not() -> None:
    box = boxed(GroupOptions(lease=True, window=100))
    full, other = pull(box, 0, credit=9, window=1), pull(box, 0, credit=9, window=2)
    box.put(*[b"%d" % number for number in range(5)])
    box.settle()
    assert (full.bodies, other.bodies) == ([b"0"], [b"1", b"2"])
    box.ack(0)
    box.settle()
    assert (full.bodies, other.bodies) == ([b"0", b"3"], [b"1", b"2"])
    box.ack(1)
    box.settle()
    assert other.bodies == [b"1", b"2", b"4"]


@dataclass
class Wish:
    """A pull, and what it is like."""

    probe: PullProbe
    partition: int | None
    session: Reader
    stalled_once: bool = False
    taken: list[bytes] = field(default_factory=list)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("pull"), st.sampled_from([None, 0, 1, 2]), st.integers(0, 5)),
        st.tuples(st.just("put"), st.integers(0, 2), st.integers(1, 3)),
        st.tuples(st.just("stall"), st.integers(0, 5), st.just(0)),
        st.tuples(st.just("resume"), st.integers(0, 5), st.just(0)),
        st.tuples(st.just("leave"), st.integers(0, 5), st.just(0)),
        st.tuples(st.just("settle"), st.just(0), st.just(0)),
    ),
    max_size=40,
)


@examples(300, derandomize=True)
@given(steps=STEPS)
def test_nobody_is_forgotten_and_who_came_first_is_first(steps: list[tuple[str, int, int]]) -> None:
    box, wishes = boxed(), list[Wish]()
    sessions = [box.session() for _ in range(6)]
    for step, one, other in steps:
        if step == "pull":
            session = sessions[other]
            wishes.append(Wish(pull(box, one, session), one, session, session.stalled))
        elif step == "put":
            box.put(*[b"x"] * other, index=one)
        elif step == "stall":
            sessions[one].stalled = True
            for wish in wishes:
                wish.stalled_once |= wish.session is sessions[one]
        elif step == "resume":
            sessions[one].stalled = False
            box.broker.resume(sessions[one])
        elif step == "leave":
            box.broker.leave(sessions[one])
            sessions[one] = box.session()
        else:
            box.settle()
    box.settle()
    box.check()
    unread = {
        partition.index: partition.visible - box.group().backlogs[partition.index].cursor
        for partition in box.topic().partitions
    }
    for wish in wishes:
        if wish.probe.open and not wish.session.stalled:
            assert not any(n for i, n in unread.items() if wish.partition in (None, i)), "forgotten"
    for kind in (None, 0, 1, 2):
        line = [w for w in wishes if w.partition == kind and not w.stalled_once]
        line = [wish for wish in line if not wish.session.leaving]
        waiting = [wish.probe.open for wish in line]
        assert waiting == sorted(waiting), "a later one was served before an earlier one"
    assert not box.broker._dispatch.runs.active


@dataclass
class Entry:
    key: int
    session: int


def test_the_lines_say_what_is_in_them() -> None:
    aside, entries = ParkedPulls[Entry](), [Entry(number, number % 2) for number in range(6)]
    for entry in entries[:2]:
        aside.line_up(entry, 5)
    for entry in entries[2:4]:
        aside.stall(entry)
    for entry in entries[4:]:
        aside.fill(entry)
    aside.check()
    assert list(aside.lines[5].values()) == entries[:2]
    assert list(aside.pulls()) == entries
    assert aside.get(3) is entries[3]
    assert aside.take_stalled(1) == [entries[3]]
    assert aside.take_stalled(1) == []
    assert aside.take_full() == entries[4:]
    for entry in entries:
        aside.discard(entry)
        aside.check()
    assert len(aside) == 0
