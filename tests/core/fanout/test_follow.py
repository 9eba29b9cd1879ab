"""Followers: everybody is told everything that is durable, in order, and reading is shared."""

from __future__ import annotations

from typing import Any

import pytest

from tests.core.followers import Lines, Listener, follow
from tests.core.support import Box, CrashJournal, Probe, cool
from zbus.core.cursor.state import GroupOptions, TopicOptions
from zbus.core.fanout import follow as following
from zbus.core.model.chunk import Chunk, make_row
from zbus.core.model.errors import Refusal
from zbus.core.model.limits import Limits
from zbus.core.model.message import Message
from zbus.storage.memory import MemoryJournal


@pytest.fixture
def box() -> Box:
    box = Box(MemoryJournal())
    box.declare(TopicOptions("T", durability="os"), "T")
    box.settle()
    return box


@pytest.fixture
def form() -> Lines:
    return Lines()


def put(box: Box, *bodies: bytes, **more: int) -> None:
    for body in bodies:
        box.put(body, **more)  # type: ignore[arg-type]
    box.settle()


def test_a_follower_is_told_what_comes(box: Box, form: Lines) -> None:
    listener = follow(box, form)
    box.settle()
    assert listener.begun
    assert listener.heard == b""
    put(box, b"a", b"b")
    put(box, b"c")
    assert listener.lines == [b"0:0 a 1", b"0:1 b 2", b"0:2 c 3"]


def test_it_begins_where_a_group_stands(box: Box, form: Lines) -> None:
    put(box, b"a", b"b", b"c")
    assert box.take("T", 1) == [b"a"]
    listener = follow(box, form, box.group("T").position())
    box.settle()
    assert listener.bodies == [b"b", b"c"]
    assert box.take("T") == [b"b", b"c"], "it took nothing from the group"


def test_without_a_place_it_begins_at_the_end(box: Box, form: Lines) -> None:
    put(box, b"a")
    listener = follow(box, form)
    put(box, b"b")
    assert listener.bodies == [b"b"]


@pytest.mark.parametrize(("place", "told"), [(0, b"abc"), (1, b"bc"), (3, b""), (99, b"")])
def test_it_begins_at_a_place(box: Box, form: Lines, place: int, told: bytes) -> None:
    put(box, b"a", b"b", b"c")
    listener = follow(box, form, [place])
    box.settle()
    assert b"".join(listener.bodies) == told
    put(box, b"d")
    assert b"".join(listener.bodies) == told + b"d"


def test_it_begins_at_a_time(box: Box, form: Lines) -> None:
    for number in range(5):
        box.broker.put(box.partition(), Probe(), make_row(b"", b"", b"%d" % number))
        box.settle(10)
    listener = follow(box, form, since_ms=box.now_ms - 25)
    box.settle()
    assert listener.bodies == [b"3", b"4"]


def test_what_is_not_durable_is_not_told(form: Lines) -> None:
    journal = CrashJournal()
    box = Box(journal)
    box.declare("T", "T")
    box.settle()
    listener = follow(box, form)
    box.put(b"a")
    for _ in range(3):
        box.turn()
    assert listener.heard == b""
    journal.release()
    box.turn()
    assert listener.bodies == [b"a"]


def test_all_of_a_cohort_share_the_encoding(box: Box, form: Lines) -> None:
    listeners = [follow(box, form) for _ in range(50)]
    box.settle()
    put(box, b"a", b"b")
    put(box, b"c")
    assert form.encoded == 3
    assert {listener.heard for listener in listeners} == {listeners[0].heard}
    late = follow(box, form, [0])
    box.settle()
    assert form.encoded == 6
    put(box, b"d")
    assert form.encoded == 7, "it has caught up, and is one of them"
    assert late.heard == listeners[0].heard


def test_filters_are_audiences_of_their_own(box: Box, form: Lines) -> None:
    every, some, none = (follow(box, form, filter=text) for text in ("", "a.*", "x"))
    for tag in (b"a.b", b"", b"b", b"a.c"):
        box.broker.put(box.partition(), Probe(), make_row(b"", b"", tag or b"-", tag))
    box.settle()
    assert every.bodies == [b"a.b", b"-", b"b", b"a.c"]
    assert some.bodies == [b"a.b", b"a.c"]
    assert none.bodies == []
    assert some.place == [4]


def test_several_partitions(form: Lines) -> None:
    box = Box(MemoryJournal())
    box.declare(TopicOptions("T", durability="os", partitions=3), "T")
    box.settle()
    every, one = follow(box, form), follow(box, form, only=1)
    for index in (0, 1, 1, 2):
        put(box, b"%d" % index, index=index)
    assert every.lines == [b"0:0 0 1,0,0", b"1:0 1 1,1,0", b"1:1 1 1,2,0", b"2:0 2 1,2,1"]
    assert one.lines == [b"1:0 1 1", b"1:1 1 2"]
    again = follow(box, form, [1, 1, 0])
    box.settle()
    assert again.lines == every.lines[2:]


class TestStalled:
    def test_it_goes_on_from_where_it_was(self, box: Box, form: Lines) -> None:
        brisk, slow = follow(box, form), follow(box, form, room=5)
        put(box, b"a", b"b", b"c")
        assert slow.bodies == [b"a", b"b", b"c"]  # one portion
        put(box, b"d", b"e")
        assert slow.bodies == [b"a", b"b", b"c"]
        slow.room = 1_000
        box.broker.resume(slow.session)
        box.settle()
        assert slow.heard == brisk.heard
        before = form.encoded
        put(box, b"f")
        assert form.encoded == before + 1
        assert slow.heard == brisk.heard

    def test_one_that_takes_nothing_costs_nothing(self, box: Box, form: Lines) -> None:
        brisk = follow(box, form)
        stalled = [follow(box, form, room=0) for _ in range(20)]
        put(box, b"a")
        before = form.encoded
        for number in range(50):
            put(box, b"%d" % number)
        assert form.encoded == before + 50
        assert len(brisk.bodies) == 51
        for listener in stalled:
            assert listener.bodies == [b"a"]
            box.broker.leave(listener.session)
            assert listener.left
        box.broker.check()

    def test_one_that_is_stalled_from_the_beginning(self, box: Box, form: Lines) -> None:
        put(box, b"a")
        listener = Listener(box.session())
        listener.session.stalled = True
        box.broker.follow(listener, form, box.topic().partitions, position=[0])
        box.settle()
        assert listener.begun
        assert listener.heard == b""
        box.broker.resume(listener.session)
        box.settle()
        assert listener.bodies == [b"a"]


class TestEnds:
    def test_the_topic_is_removed(self, box: Box, form: Lines) -> None:
        live, behind, stalled = follow(box, form), follow(box, form, [0]), follow(box, form, room=0)
        put(box, b"a")
        box.broker.remove_topic(Probe(), box.topic())
        box.settle()
        for listener in (live, behind, stalled):
            assert listener.ended is not None
            assert listener.ended.refusal is Refusal.TOPIC_UNKNOWN
            assert listener.session.follower is None

    def test_the_broker_stops(self, box: Box, form: Lines) -> None:
        listener = follow(box, form)
        box.broker.stop()
        assert listener.ended is not None
        assert listener.ended.refusal is Refusal.STOPPING
        late = follow(box, form)
        assert late.ended is not None
        assert not late.begun

    def test_its_session_leaves(self, box: Box, form: Lines) -> None:
        listeners = [follow(box, form) for _ in range(3)]
        put(box, b"a")
        for listener in listeners:
            box.broker.leave(listener.session)
        assert box.topic().followed is None, "nothing is kept"
        put(box, b"b")
        assert all(listener.bodies == [b"a"] for listener in listeners)

    def test_it_leaves_while_its_beginning_is_looked_for(self, form: Lines) -> None:
        journal = SlowJournal()
        box = Box(journal, limits=Limits(cache_bytes_max=0))
        box.declare(TopicOptions("T", durability="os"), "T")
        for number in range(4):
            put(box, b"%d" % number)
        cool(box)
        listener = follow(box, form, since_ms=box.now_ms)
        box.turn()
        assert journal.held
        box.broker.leave(listener.session)
        journal.answer()
        box.settle()
        assert not listener.begun
        assert listener.left
        removed = follow(box, form, since_ms=box.now_ms)
        box.turn()
        box.broker.remove_topic(Probe(), box.topic())
        while journal.held:
            journal.answer()
        assert removed.ended is not None

    def test_a_topic_of_services_is_not_followed(self, box: Box, form: Lines) -> None:
        box.declare(TopicOptions("R", durability="memory", calls=True), "R")
        box.settle()
        listener = follow(box, form, topic="R")
        assert listener.ended is following.SERVICES
        assert not listener.begun


class SlowJournal(MemoryJournal):
    """Reads answer when they are told to."""

    def __init__(self) -> None:
        super().__init__()
        self.held: list[Any] = []

    def read(self, *wanted: Any) -> None:
        self.held.append(wanted)

    def answer(self) -> None:
        held, self.held = self.held, []
        for wanted in held:
            super().read(*wanted)


class TestHistory:
    def test_what_is_not_in_memory_is_read_back(self, form: Lines) -> None:
        journal = SlowJournal()
        box = Box(journal, limits=Limits(cache_bytes_max=0, history_bytes_max=4_000))
        box.declare(TopicOptions("T", durability="os"), "T")
        bodies = [b"%d" % number for number in range(200)]
        for start in range(0, 200, 10):
            box.put(*bodies[start : start + 10])
            box.settle()
        cool(box)
        listeners = [follow(box, form, [place]) for place in (0, 0, 50, 120)]
        live = follow(box, form, [200])
        for _ in range(2_000):
            box.turn()
            journal.answer()
            if all(len(one.bodies) >= 80 for one in listeners) and not journal.held:
                break
        put(box, b"end")
        journal.answer()
        box.settle()
        for listener, place in zip(listeners, (0, 0, 50, 120), strict=True):
            assert listener.bodies == [*bodies[place:], b"end"]
        assert live.bodies == [b"end"]

    def test_what_was_forgotten_is_told_of(self, box: Box, form: Lines) -> None:
        live, stalled = follow(box, form), follow(box, form, room=0)
        put(box, b"a")
        put(box, b"b", b"c")
        box.broker.purge_topic(Probe(), box.topic())
        box.settle()
        put(box, b"d")
        assert live.bodies == [b"a", b"b", b"c", b"d"]
        stalled.room = 1_000
        box.broker.resume(stalled.session)
        box.settle()
        assert stalled.lines == [b"0:0 a 1", b"gap 2 3", b"0:3 d 4"]
        old = follow(box, form, [1])
        box.settle()
        assert old.lines == [b"gap 2 3", b"0:3 d 4"]

    def test_a_message_that_cannot_be_read_ends_it(self, form: Lines) -> None:
        journal = SlowJournal()
        box = Box(journal, limits=Limits(cache_bytes_max=0))
        box.declare(TopicOptions("T", durability="os"), "T")
        put(box, b"a")
        put(box, b"b")
        cool(box)
        listener, live = follow(box, form, [0]), follow(box, form, [2])
        box.turn()
        (*_, done) = journal.held.pop()
        done(b"")
        box.settle()
        assert listener.ended is not None
        assert listener.ended.refusal is Refusal.DAMAGED
        assert live.open


class TestDue:
    def test_never_early_hardly_late_and_once(self, box: Box, form: Lines) -> None:
        live = follow(box, form)
        box.put(b"late", due_ms=box.now_ms + 100)
        put(box, b"now")
        assert live.bodies == [b"now"]
        behind = follow(box, form, [0])
        stalled = follow(box, form, [0], room=0)
        box.settle(99)
        assert live.bodies == behind.bodies == stalled.bodies == [b"now"]
        assert box.broker.next_due() == box.now_ms + 1
        box.settle(1)
        assert live.bodies == behind.bodies == [b"now", b"late"]
        assert stalled.bodies == [b"now"]
        stalled.room = 1_000
        box.broker.resume(stalled.session)
        box.settle()
        assert stalled.bodies == [b"now", b"late"]
        fresh = follow(box, form, [0])
        box.settle()
        assert fresh.bodies == [b"late", b"now"]
        assert live.place == [2], "its place is not what came late"

    def test_in_the_order_of_being_due(self, box: Box, form: Lines) -> None:
        live = follow(box, form)
        for ms in (30, 10, 20):
            box.put(b"%d" % ms, due_ms=box.now_ms + ms)
        box.settle()
        box.settle(50)
        assert live.bodies == [b"10", b"20", b"30"]

    def test_it_is_known_of_when_nobody_followed(self, box: Box, form: Lines) -> None:
        """A group has passed it: so has who begins behind it."""
        box.put(b"late", due_ms=box.now_ms + 100)
        put(box, b"now")
        assert box.take("T") == [b"now"]
        live = follow(box, form)
        box.settle(100)
        assert live.bodies == [b"late"]

    def test_it_is_remembered_while_nobody_follows(self, box: Box, form: Lines) -> None:
        first = follow(box, form)
        box.put(b"late", due_ms=box.now_ms + 100)
        put(box, b"now")
        box.broker.leave(first.session)
        again = follow(box, form, first.place)
        box.settle(100)
        assert again.bodies == [b"late"]
        box.broker.leave(again.session)
        assert box.topic().followed is None

    def test_what_a_group_passes_meanwhile_is_known_of(self, box: Box, form: Lines) -> None:
        """While something is remembered for those who followed, and nobody does."""
        first = follow(box, form)
        box.put(b"early", due_ms=box.now_ms + 100)
        put(box, b"now")
        box.broker.leave(first.session)
        box.put(b"late", due_ms=box.now_ms + 200)
        put(box, b"then")
        assert box.take("T") == [b"now", b"then"]
        again = follow(box, form)
        box.settle(200)
        assert again.bodies == [b"early", b"late"]

    def test_what_expired_is_not_told(self, box: Box, form: Lines) -> None:
        live = follow(box, form)
        now = box.now_ms
        for body, due_ms, expires_ms in ((b"a", 0, now), (b"b", now + 10, now + 5), (b"c", 0, 0)):
            message = Message(b"", body=body, due_ms=due_ms, expires_ms=expires_ms)
            box.broker.put_all(box.partition(), Probe(), Chunk.of([message]))
        box.settle()
        box.settle(20)
        assert live.bodies == [b"c"]

    def test_many_at_once(self, box: Box, form: Lines) -> None:
        live = follow(box, form)
        bodies = [b"%d" % number for number in range(2_500)]
        box.put(*bodies, due_ms=box.now_ms + 10)
        box.settle()
        box.settle(10)
        assert live.bodies == bodies

    def test_one_that_takes_nothing_is_given_up(
        self, box: Box, form: Lines, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(following, "LATE_MAX", 5)
        live, stalled = follow(box, form), follow(box, form, room=0)
        box.put(*[b"x"] * 10, due_ms=box.now_ms + 10)
        put(box, b"now")
        box.settle(10)
        assert len(live.bodies) == 11
        assert stalled.ended is following.ENDED_LATE

    @pytest.mark.parametrize("others", [0, 1])
    def test_the_last_of_its_audience_is_given_up(
        self, box: Box, form: Lines, monkeypatch: pytest.MonkeyPatch, others: int
    ) -> None:
        monkeypatch.setattr(following, "LATE_MAX", 5)
        stalled = follow(box, form, room=0)
        lives = [follow(box, Lines()) for _ in range(others)]
        box.put(*[b"x"] * 10, due_ms=box.now_ms + 10)
        put(box, b"now")
        box.settle(10)
        assert stalled.ended is following.ENDED_LATE
        assert all(len(live.bodies) == 11 for live in lives)


class TestWork:
    def test_a_turn_tells_a_portion(self, box: Box, form: Lines) -> None:
        put(box, *[b"x" * 1_000] * 300)
        listeners = [follow(box, form, [0]) for _ in range(3)]
        box.turn()
        for listener in listeners:
            assert 0 < len(listener.heard) <= following.PORTION_BYTES + 2_000
        box.settle()
        assert all(len(listener.bodies) == 300 for listener in listeners)

    def test_those_that_had_no_turn_are_first_in_the_next(self, box: Box, form: Lines) -> None:
        put(box, *[b"x"] * 900)
        listeners = [follow(box, form, [0]) for _ in range(20)]
        box.turn()
        assert 0 < sum(bool(listener.heard) for listener in listeners) < 10
        for _ in range(6):
            box.turn()
        assert all(listener.heard for listener in listeners)

    def test_who_begins_ahead_of_a_busy_cohort_waits_for_it(self, box: Box, form: Lines) -> None:
        """Else every follower that comes while there is much to tell would read alone for ever."""
        live = follow(box, form)
        box.settle()
        for _ in range(5):
            box.put(*[b"x"] * 2_000)
        box.turn()
        fresh = follow(box, form, [10_000])
        box.settle()
        before = form.encoded
        put(box, b"y")
        assert form.encoded == before + 1
        assert len(live.bodies) == 10_001
        assert fresh.bodies == [b"y"]

    def test_the_first_to_the_end_leads_the_others(self, box: Box, form: Lines) -> None:
        put(box, *[b"x"] * 3_000)
        live = follow(box, form, [3_000])
        others = [follow(box, form, [place]) for place in (0, 1_000, 2_999)]
        box.turn()
        box.broker.leave(live.session)
        box.settle()
        put(box, b"y")
        assert [len(other.bodies) for other in others] == [3_001, 2_001, 2]


def test_a_topic_in_memory(form: Lines) -> None:
    box = Box(MemoryJournal())
    box.declare(TopicOptions("T", durability="memory"), "T", GroupOptions())
    box.settle()
    live = follow(box, form)
    put(box, b"a", b"b")
    assert live.bodies == [b"a", b"b"]
