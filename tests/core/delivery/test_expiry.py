"""Messages whose time is over leave their groups though nobody pulls."""

from __future__ import annotations

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.support import Box, CrashJournal, Probe, again, cool, refusal
from tests.limits import examples
from zbus.core.cursor.state import GroupOptions, TopicOptions
from zbus.core.delivery import expiry as expiring
from zbus.core.delivery.expiry import LEASED_MS, MOMENT_MS
from zbus.core.model.chunk import Chunk
from zbus.core.model.dispositions import Disposition, Ending
from zbus.core.model.message_state import MessageState

KEPT_MS = 1 << 40
LEASE_MS = 10_000
LEASING = GroupOptions(lease=True, window=100, lease_ms=LEASE_MS)
TOPIC = TopicOptions("T", settled_ms=KEPT_MS)


def new_box(group: GroupOptions = LEASING, segment_bytes_max: int = 64 << 20) -> Box:
    box = Box(CrashJournal(), segment_bytes_max=segment_bytes_max)
    box.declare(TOPIC, "g", group)
    box.settle()
    return box


def put(box: Box, *ttls_ms: int, delay_ms: int = 0) -> Probe:
    """Messages that live so long; 0 = for ever."""
    chunk, probe = Chunk(), Probe()
    for ttl_ms in ttls_ms:
        expires_ms = box.now_ms + ttl_ms if ttl_ms else 0
        due_ms = box.now_ms + delay_ms if delay_ms else 0
        chunk.add(b"", b"", b"%d" % ttl_ms, due_ms=due_ms, expires_ms=expires_ms)
    box.broker.put_all(box.partition(), probe, chunk)
    box.settle()
    return probe


def counts(box: Box, group: str = "g") -> tuple[int, int, int]:
    """Ready, leased and delayed."""
    return box.group(group).counts()[:3]


def ending(box: Box, offset: int, group: str = "g") -> Ending | None:
    fates = box.group(group).backlogs[0].fates
    assert fates is not None
    return fates.find(offset, box.now_ms, KEPT_MS)


@pytest.mark.parametrize("where", ["at hand", "in storage", "after a restart"])
def test_they_leave_in_the_order_of_their_times(where: str) -> None:
    box = new_box()
    put(box, 5_000, 1_000, 0, 3_000)
    if where == "in storage":
        cool(box)
    elif where == "after a restart":
        box = again(box)
    for ready in (3, 2, 1):
        box.settle(1_000 + MOMENT_MS if ready == 3 else 2_000)
        assert counts(box) == (ready, 0, 0)
    assert [ending(box, n) is None for n in range(4)] == [False, False, True, False]
    assert ending(box, 1) == Ending(Disposition.EXPIRED, box.now_ms - 4_000, 0)
    assert box.take() == [b"0"]


def test_a_moment_after_their_time() -> None:
    box = new_box()
    put(box, 1_000)
    box.settle(1_000 + MOMENT_MS - 1)
    assert counts(box) == (1, 0, 0)
    box.settle(1)
    assert counts(box) == (0, 0, 0)


def test_what_lives_for_a_moment_only() -> None:
    box = new_box()
    put(box, 1)
    assert counts(box) == (1, 0, 0)
    box.settle(1 + MOMENT_MS)
    assert counts(box) == (0, 0, 0)


def test_what_is_not_durable_yet_waits() -> None:
    box = new_box()
    chunk, probe = Chunk(), Probe()
    chunk.add(b"", b"", b"x", expires_ms=box.now_ms + 1)
    box.broker.put_all(box.partition(), probe, chunk)
    for _ in range(5):
        box.turn(MOMENT_MS)  # and nothing is synced
    assert (counts(box), probe.open) == ((1, 0, 0), True)
    box.settle()
    box.settle(2 * MOMENT_MS)
    assert (counts(box), probe.fine) == ((0, 0, 0), True)


def test_what_is_delayed_for_longer() -> None:
    box = new_box()
    put(box, 1_000, delay_ms=5_000)
    put(box, 2_000, delay_ms=5_000)
    assert box.take() == []
    assert counts(box) == (0, 0, 2), "the group has come past them"
    box.settle(1_000 + MOMENT_MS)
    assert counts(box) == (0, 0, 1)
    box.settle(5_000)
    assert (counts(box), box.take()) == ((0, 0, 0), [])


def test_a_lease_is_not_ended() -> None:
    box = new_box()
    put(box, 1_000, 1_000)
    assert len(box.take()) == 2
    box.settle(2_000)
    assert counts(box) == (0, 2, 0)
    box.ack(0)
    box.settle(LEASE_MS)
    box.settle(LEASED_MS + MOMENT_MS)
    assert counts(box) == (0, 0, 0)
    assert [one and (one.fate, one.attempts) for one in (ending(box, 0), ending(box, 1))] == [
        (Disposition.DONE, 1),
        (Disposition.EXPIRED, 1),
    ]


def test_each_group_for_itself() -> None:
    box = new_box()
    box.declare(TOPIC, "h", GroupOptions())
    box.settle()
    put(box, 1_000, 0)
    assert box.take("h", 1) == [b"1000"]
    box.settle(1_000 + MOMENT_MS)
    assert (counts(box), counts(box, "h")) == ((1, 0, 0), (1, 0, 0))
    assert [one and one.fate for one in (ending(box, 0), ending(box, 0, "h"))] == [
        Disposition.EXPIRED,
        Disposition.DONE,
    ]


def test_a_key_is_free_when_its_first_message_has_left() -> None:
    box = new_box(attrs.evolve(LEASING, order="key"))
    for body, ttl_ms in ((b"a", 0), (b"b", 1_000), (b"c", 0)):
        chunk = Chunk()
        expires_ms = box.now_ms + ttl_ms if ttl_ms else 0
        chunk.add(b"", b"", body, key=b"k", expires_ms=expires_ms)
        box.broker.put_all(box.partition(), Probe(), chunk)
    box.settle()
    assert box.take(count=1) == [b"a"]
    box.settle(1_000 + MOMENT_MS)
    assert ending(box, 1) is not None
    box.ack(0)
    assert box.take(count=1) == [b"c"]


def test_what_found_no_room_does_not_expire() -> None:
    box = new_box()
    assert isinstance(box.journal, CrashJournal)
    box.journal.full = True
    refusal(put(box, 1_000))
    box.journal.full = False
    put(box, 0)
    box.settle(5_000)
    assert counts(box) == (1, 0, 0)


def test_many_take_many_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expiring, "SWEPT_AT_ONCE_MAX", 10)
    box = new_box()
    put(box, *[1_000] * 35)
    found = []
    box.turn(1_000 + MOMENT_MS)
    while counts(box)[0]:
        found.append(counts(box)[0])
        box.turn()
    assert found == [25, 15, 5]


def test_a_topic_that_is_gone() -> None:
    box = new_box()
    put(box, 1_000)
    box.broker.remove_topic(Probe(), box.topic())
    box.settle(5_000)
    assert not box.broker.topics


def test_what_is_finished_is_let_go_of() -> None:
    box = new_box(GroupOptions(), segment_bytes_max=2_000)
    for _ in range(200):
        put(box, 60_000, 60_000)
        box.take()
    known = box.partition().expiries
    assert known is not None
    assert len(known) < 150


LATE_MS = LEASED_MS + 2 * MOMENT_MS  # of what was leased when its time was over
STEPS = st.one_of(
    st.tuples(st.just("put"), st.lists(st.sampled_from([0, 1_000, 2_000]), min_size=1, max_size=3)),
    st.tuples(st.just("wait"), st.sampled_from([500, 1_000, LEASE_MS])),
    st.tuples(st.sampled_from(["take", "ack", "nack"]), st.integers(0, 9)),
    st.tuples(st.sampled_from(["restart", "crash", "cool", "empty"]), st.just(0)),
)


@examples(80)
@given(st.sampled_from([400, 64 << 20]), st.lists(STEPS, max_size=25))
def test_model(segment_bytes_max: int, steps: list[tuple[str, object]]) -> None:
    """Soon after its time a message is finished, unless it is leased; and not before."""
    box = new_box(segment_bytes_max=segment_bytes_max)
    expires: dict[int, int] = {}
    for verb, value in steps:
        if verb == "put":
            assert isinstance(value, list)
            first = box.partition().end
            times = [box.now_ms + ttl_ms if ttl_ms else 0 for ttl_ms in value]
            expires.update(enumerate(times, first))
            put(box, *value)
        elif verb == "restart":
            box = again(box, segment_bytes_max)
        elif verb == "crash":
            assert isinstance(box.journal, CrashJournal)
            made = box.journal.crash(lambda lane, unsynced: 0)
            box = Box(made, now_ms=box.now_ms, segment_bytes_max=segment_bytes_max)
        elif verb == "cool":
            cool(box)
        elif verb == "empty":
            box.broker.purge_topic(Probe(), box.topic())
        else:
            assert isinstance(value, int)
            if verb == "take":
                box.take(count=value + 1)
            elif verb == "ack":
                box.ack(value)
            elif verb == "nack":
                box.nack(value)
            else:
                for _ in range(0, value, 500):
                    box.settle(500)
        box.settle()
        box.settle(MOMENT_MS)
        late = [offset for offset in expires if ready_too_long(box, offset, expires[offset])]
        for _ in range(0, LATE_MS if late else 0, MOMENT_MS):
            box.settle(MOMENT_MS)  # its lease may just have ended
        assert not [o for o in late if ready_too_long(box, o, expires[o])]
        for offset in range(box.partition().first, box.partition().end):
            end = ending(box, offset)
            if end is not None and end.fate is Disposition.EXPIRED:
                assert 0 < expires[offset] <= box.now_ms


def ready_too_long(box: Box, offset: int, expires_ms: int) -> bool:
    stored = box.partition().first <= offset < box.partition().end
    over = stored and 0 < expires_ms <= box.now_ms - MOMENT_MS
    return over and box.group().backlogs[0].life(offset) not in (
        MessageState.DONE,
        MessageState.LEASED,
    )
