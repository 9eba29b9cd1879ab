"""What of a log is at hand: what was just put, and what was read back. Portions ahead, limits, and
that no message is skipped or doubled."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.support import Box, CrashJournal, Probe, PullProbe, SlowJournal, cool, refusal
from tests.limits import examples
from tests.records import records_of
from zbus.core.cursor.state import GroupOptions, TopicOptions
from zbus.core.log import GROWS_TO, Found, Size
from zbus.core.model.chunk import Chunk
from zbus.core.model.errors import BrokerError, Refusal
from zbus.core.model.limits import Limits
from zbus.core.topics.outcomes import Peeked
from zbus.core.verbs.seek import Start


def cold_box(count: int, history_bytes_max: int = 1 << 20) -> tuple[Box, SlowJournal]:
    """A topic with `count` messages, one a batch, none of them at hand, read in twos."""
    journal = SlowJournal()
    box = Box(journal, limits=Limits(cache_bytes_max=0, history_bytes_max=history_bytes_max))
    box.declare(TopicOptions("T", durability="os"), "g", GroupOptions())
    for number in range(count):
        box.put(b"%03d" % number)
        box.settle()
    cool(box)
    return box, journal


def turn(box: Box, journal: SlowJournal) -> None:
    journal.answer()
    box.turn()


def read_all(box: Box, journal: SlowJournal, group: str = "g") -> list[bytes]:
    """One message a pull, until there is none for twenty turns."""
    bodies: list[bytes] = []
    probe = box.pull(group, wait=True)
    idle = 0
    while idle < 20:
        turn(box, journal)
        idle += 1
        if not probe.open:
            bodies += probe.bodies
            probe = box.pull(group, wait=True)
            idle = 0
    return bodies


def numbers(count: int) -> list[bytes]:
    return [b"%03d" % number for number in range(count)]


def test_a_log_read_back_comes_whole_and_in_order() -> None:
    box, journal = cold_box(60)
    assert read_all(box, journal) == numbers(60)
    assert journal.asked == sorted(set(journal.asked)), "each portion is read once"


def test_the_next_portion_is_asked_for_while_the_last_is_read_and_no_more() -> None:
    box, journal = cold_box(40)
    probes = [box.pull(wait=True)]
    box.turn()
    assert journal.asked == [0], "wanted"
    turn(box, journal)
    assert probes[0].bodies == [b"000"]
    (chunk,) = box.partition().log.chunks
    end = chunk.end
    assert end > 1
    assert journal.asked == [0, end], "and the next, as somebody reads from this one"
    for _ in range(10):
        turn(box, journal)
    assert len(journal.asked) == 2, "but not one more before somebody has come to that"
    while box.group().backlogs[0].cursor < end:
        assert len(journal.asked) == 2
        probes.append(box.pull(wait=True))
        box.turn()
        assert not probes[-1].open, "what was asked for ahead is here when it is wanted"
    probes.append(box.pull(wait=True))
    box.turn()
    assert not probes[-1].open
    assert len(journal.asked) == 3
    assert len(journal.waiting) == 1, "one at a time"


def test_portions_go_when_their_readers_have_passed() -> None:
    box, journal = cold_box(100)
    probe = box.pull(wait=True)
    most = 0
    for _ in range(600):
        turn(box, journal)
        most = max(most, len(box.partition().log.chunks))
        if not probe.open:
            probe = box.pull(wait=True)
    assert box.group().backlogs[0].cursor == 100
    assert most <= 3, "the one read from, the next, and one that was just passed"
    assert sum(map(len, box.partition().log.chunks)) < 10


def test_groups_that_read_the_same_share_it() -> None:
    box, journal = cold_box(60)
    groups = ["g", "h", "i"]
    for name in groups[1:]:
        box.declare(box.topic().options, name, GroupOptions())
        box.group(name).backlogs[0].seek(0)
    box.settle()
    probes = {name: box.pull(name, wait=True) for name in groups}
    bodies: dict[str, list[bytes]] = {name: [] for name in groups}
    for count in range(900):
        turn(box, journal)
        for place, name in enumerate(groups):
            if not probes[name].open and count % (place + 1) == 0:  # each at its own pace
                bodies[name] += probes[name].bodies
                probes[name] = box.pull(name, wait=True)
    assert bodies == dict.fromkeys(groups, numbers(60))
    assert journal.asked == sorted(set(journal.asked)), "each portion is read once for all"
    box.broker.check()


def test_the_limit_holds_and_nothing_is_lost_by_it() -> None:
    box, journal = cold_box(60, history_bytes_max=500)
    box.declare(box.topic().options, "slow", GroupOptions())
    box.group("slow").backlogs[0].seek(0)
    slow = box.pull("slow", wait=True)
    turn(box, journal)
    turn(box, journal)
    assert slow.bodies == [b"000"]
    assert read_all(box, journal) == numbers(60)
    assert box.broker._memory.replayed_bytes < 1_000
    assert read_all(box, journal, "slow") == numbers(60)[1:]


def test_what_is_recent_is_not_displaced_by_history() -> None:
    box, journal = cold_box(60)
    memory, log = box.broker._memory, box.partition().log
    memory.recent_max = 1 << 20
    memory.replayed_max = 500
    box.put(b"060")
    box.settle()
    recent = log.find(60)
    assert recent is not None
    used = memory.recent_bytes
    assert read_all(box, journal) == numbers(61)
    assert log.find(60) is recent
    assert memory.recent_bytes == used
    assert max(journal.asked) < 60


def test_what_is_put_does_not_displace_what_is_read_back() -> None:
    box, journal = cold_box(60)
    box.broker._memory.recent_max = 500
    first = box.pull(wait=True)
    box.turn()
    turn(box, journal)
    turn(box, journal)
    assert first.bodies == [b"000"]
    at_hand = [chunk.first for chunk in box.partition().log.chunks]
    for number in range(60, 90):
        box.put(b"%03d" % number)
        box.settle()
    replayed = [chunk.first for chunk in box.partition().log.chunks if not chunk.recent]
    assert replayed == at_hand
    assert read_all(box, journal) == numbers(90)[1:]


def test_small_puts_share_a_chunk_and_the_oldest_chunk_goes_first() -> None:
    box = Box(CrashJournal(), limits=Limits(cache_bytes_max=3 * GROWS_TO.count_max * 300))
    box.declare("T", "g")
    log, lengths = box.partition().log, []
    for number in range(4 * GROWS_TO.count_max):
        box.put(b"%d" % number)
        box.settle()
        lengths.append([len(chunk) for chunk in log.chunks])
    whole = GROWS_TO.count_max
    assert lengths[whole - 1 : whole + 1] == [[whole], [whole, 1]]
    assert log.chunks[-1].end == 4 * whole
    assert log.find(0) is not None
    large = GROWS_TO.bytes_max
    for size in (large // 2, large // 2, large, 1):
        box.put(bytes(size))
        box.settle()
    assert [len(chunk) for chunk in log.chunks[-3:]] == [1, 1, 1], "long bodies have one each"
    assert log.find(0) is None
    assert log.chunks[-1].end == 4 * whole + 4
    box.put(bytes(1 << 20))
    box.settle()
    assert [len(chunk) for chunk in log.chunks] == [1], "whatever its size, the last one stays"


def test_what_is_not_durable_is_not_handed_out_though_it_is_in_a_chunk_that_is() -> None:
    journal = CrashJournal()
    box = Box(journal)
    box.declare("T", "g")
    box.put(b"0")
    box.settle()
    box.put(b"1")
    box.turn()
    (chunk,) = box.partition().log.chunks
    assert chunk.bodies == [b"0", b"1"]
    pull, browsed, peeked = box.pull(count=10, wait=True), Probe(), Probe()
    session = box.session()
    box.broker.browse(browsed, box.partition(), 0, 10)
    box.broker.peek(peeked, box.partition(), 1)
    box.turn()
    assert pull.bodies == [b"0"]
    (answer,) = browsed.answers
    assert isinstance(answer, Peeked)
    assert [record.message.body for record in records_of(answer.pieces)] == [b"0"]
    assert isinstance(peeked.answers[0], BrokerError)
    assert box.broker.register(session, box.group()) is None
    assert box.broker.take(box.group(), session) is None
    journal.release()
    assert box.broker.take(box.group(), session) == (chunk, 1)


def test_a_quarter_of_all_gives_way() -> None:
    box = Box(CrashJournal())
    box.declare("T", "g")
    for _ in range(100):
        box.put(bytes(70_000))
        box.settle()
    memory = box.broker._memory
    for _ in range(3):
        before = memory.bytes_used
        memory.give_way()
        assert before // 2 < memory.bytes_used <= before * 3 // 4
    assert sum(len(box.take()) for _ in range(50)) == 100
    for _ in range(30):
        memory.give_way()
        box.check()
    assert [(c.recent, c.end) for c in box.partition().log.chunks][-1] == (True, 100)
    assert len(box.partition().log.chunks) <= 2, "the last of each kind stays"


def test_all_gives_way_if_it_is_less_than_others_freed() -> None:
    box = Box(CrashJournal())
    box.declare("T", "g")
    for _ in range(10):
        box.put(bytes(70_000))
        box.settle()
    held = box.broker._memory.bytes_used
    box.broker.free_scattered(held)
    assert box.broker._memory.bytes_used == held
    box.broker.free_scattered(held + 1)
    box.settle()
    assert [chunk.end for chunk in box.partition().log.chunks] == [10], "the last one stays"
    assert sum(len(box.take()) for _ in range(10)) == 10


def test_damage_ahead_is_told_when_it_is_wanted() -> None:
    box, journal = cold_box(40)
    first = box.pull(wait=True)
    box.turn()
    turn(box, journal)
    assert first.bodies == [b"000"]
    journal.broken = True
    turn(box, journal)
    assert len(journal.asked) == 2
    (chunk,) = box.partition().log.chunks
    end, taken = chunk.end, 1
    box.declare(box.topic().options, "h", start=Start(offset=0))
    for number in range(end):
        other = box.pull("h", wait=True)
        turn(box, journal)
        assert other.bodies == [b"%03d" % number]
    assert len(journal.asked) == 2, "nobody asks for it again and again"
    while True:
        probe = box.pull(wait=True)
        for _ in range(3):
            turn(box, journal)
        if not probe.bodies:
            break
        taken += 1
    assert not probe.open
    assert taken == end
    journal.broken = False
    assert read_all(box, journal) == numbers(40)[taken:], "and it goes on when it can"


def declare_at_1(box: Box, journal: SlowJournal) -> None:
    """A group that begins at the second message; nothing is at hand."""
    box.declare(box.topic().options, "h", start=Start(offset=1))
    for _ in range(3):
        turn(box, journal)
    cool(box)
    journal.asked.clear()


def test_damage_is_told_to_those_whose_message_it_is() -> None:
    """Who waited for the same read, but for another message, looks again."""
    box, journal = cold_box(4)
    declare_at_1(box, journal)
    first, second = box.pull(wait=True), box.pull("h", wait=True)
    box.turn()
    assert journal.asked == [0]
    journal.broken = True
    journal.answer()
    journal.broken = False
    for _ in range(3):
        turn(box, journal)
    assert refusal(first).refusal is Refusal.DAMAGED
    assert second.bodies == [b"001"]


def test_what_is_read_twice_is_at_hand_once() -> None:
    box, journal = cold_box(20)
    declare_at_1(box, journal)
    second = box.pull("h", wait=True)
    box.turn()
    first = box.pull(wait=True)
    box.turn()
    assert journal.asked == [1, 0]
    journal.answer(backwards=True)
    box.turn()
    assert (first.bodies, second.bodies) == ([b"000"], [b"001"])
    first_chunk, rest = box.partition().log.chunks
    assert (first_chunk.first, first_chunk.end, len(rest.bodies)) == (0, rest.first, 1)


@pytest.mark.parametrize("lease", [False, True])
@examples(60)
@given(data=st.data())
def test_any_pace_any_number_of_groups(lease: bool, data: st.DataObject) -> None:
    """Every group gets every message once, in order, while others put, read and are slow."""
    limit = data.draw(st.sampled_from([0, 400, 1_500, 1 << 20]))
    box, journal = cold_box(30, history_bytes_max=limit)
    names = ["g", "h", "i"][: data.draw(st.integers(1, 3))]
    options = GroupOptions(lease=lease, lease_ms=1 << 40, window=1_000)
    for name in names:
        box.declare(box.topic().options, name, options)
        box.group(name).backlogs[0].seek(data.draw(st.integers(0, 30)))
    starts = {name: box.group(name).backlogs[0].cursor for name in names}
    probes: dict[str, list[PullProbe]] = {name: [] for name in names}
    end = 30
    steps = st.lists(st.sampled_from([*names, "answer", "backwards", "turn", "put"]), max_size=60)
    for step in data.draw(steps):
        if step in ("answer", "backwards"):
            journal.answer(step == "backwards")
            box.check()
        elif step == "turn":
            box.turn()
        elif step == "put":
            box.put(b"%03d" % end)
            end += 1
        elif all(not probe.open for probe in probes[step]):
            probes[step].append(box.pull(step, data.draw(st.integers(1, 7)), wait=True))
    for _ in range(300):
        journal.release()
        turn(box, journal)
        for name in names:
            if all(not probe.open for probe in probes[name]):
                probes[name].append(box.pull(name, 5, wait=True))
    for name in names:
        bodies = [body for probe in probes[name] for body in probe.bodies]
        assert bodies == numbers(end)[starts[name] :]
    box.check()


def test_a_long_batch_is_read_back_in_parts() -> None:
    """However many messages were put at once, a turn makes a thousand of them at most."""
    box, journal = cold_box(1)
    box.put(*[b"%d" % number for number in range(2_500)])
    box.settle()
    box.put(b"last")
    box.settle()
    cool(box)
    bodies: list[bytes] = []
    while len(bodies) < 2_502:
        probe = box.pull(count=700, wait=True)
        while probe.open:
            turn(box, journal)
        assert all(len(chunk) <= 1_000 for chunk in box.partition().log.chunks)
        bodies += probe.bodies
    assert bodies == [b"000", *[b"%d" % number for number in range(2_500)], b"last"]
    assert journal.asked == [0, 1, 1_001, 2_001, 2_501] or journal.asked == [0, 1, 1_001, 2_001]


def test_a_look_at_one_message_makes_only_that() -> None:
    box, journal = cold_box(1)
    box.put(*[b"%d" % number for number in range(100)])
    box.settle()
    cool(box)
    found: list[Found] = []
    box.broker._storage.fetch(box.partition(), 50, Size(1, 1), found.append)
    journal.answer()
    (chunk,) = found
    assert isinstance(chunk, Chunk)
    assert (chunk.first, chunk.bodies) == (50, [b"49"])
    peeked = Probe()
    box.broker.peek(peeked, box.partition(), 50)
    journal.answer()
    (answer,) = peeked.answers
    assert isinstance(answer, Peeked)
    assert [record.message.body for record in records_of(answer.pieces)] == [b"49"]
    assert box.broker._memory.bytes_used == 0, "and it is not kept"


def test_readers_far_apart_do_not_take_it_from_each_other() -> None:
    """More of them than large portions have room for: each has less at hand, and keeps it."""
    limit = 750_000  # seven of the largest portions
    journal = SlowJournal()
    box = Box(journal, limits=Limits(cache_bytes_max=0, history_bytes_max=limit))
    box.declare("T")
    names = [f"g{number}" for number in range(24)]
    for _ in names:
        box.put(*[b"x"] * 1_000)
        box.settle()
    cool(box)
    for number, name in enumerate(names):
        box.declare("T", name, start=Start(offset=number * 1_000 + 1))
    box.settle()
    while journal.waiting:
        turn(box, journal)
    asked = []
    for _ in range(6):
        before = len(journal.asked)
        for name in names:
            probe = box.pull(name, wait=True)
            while probe.open:
                turn(box, journal)
        asked.append(len(journal.asked) - before)
    assert asked[0] >= len(names)
    assert asked[3:] == [0, 0, 0]
    assert box.broker._memory.replayed_bytes <= limit


@examples(60)
@given(data=st.data())
def test_a_place_by_time(data: st.DataObject) -> None:
    """The first message put at or after a time, some of the log at hand and some not."""
    box, journal = cold_box(0)
    box.broker._memory.recent_max = 1 << 20
    times = []
    for ms, count in data.draw(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)))):
        box.settle(ms)
        if count:
            box.put(*[b"x"] * count)
            times += [box.now_ms] * count
            box.settle()
        if data.draw(st.integers(0, 9)) == 0:
            cool(box)
    first = data.draw(st.integers(0, len(times)))
    box.partition().first = first
    start_ms = times[0] if times else box.now_ms
    for time_ms in range(start_ms - 1, box.now_ms + 2):
        found: list[int | BrokerError] = []
        box.partition().log.find_time(time_ms, found.append)
        while not found:
            journal.answer()
        later = (at for at, put_ms in enumerate(times) if put_ms >= time_ms and at >= first)
        assert found == [next(later, len(times))]


def test_a_place_that_is_not_there() -> None:
    box, journal = cold_box(10)
    partition = box.partition()
    partition.first = 4
    found: list[tuple[Chunk, int] | BrokerError] = []
    for offset in (3, 10):
        partition.log.get(offset, found.append)
    errors = [one for one in found if isinstance(one, BrokerError)]
    assert [error.refusal for error in errors] == [Refusal.OFFSET_UNKNOWN] * 2
    assert journal.waiting == []
    partition.log.get(5, found.append)
    partition.first = 6
    journal.broken = True
    journal.answer()
    assert isinstance(found[2], BrokerError)
    assert found[2].refusal is Refusal.DAMAGED
