"""Ids that are taken while their messages are not finished, against all messages there are."""

from __future__ import annotations

import itertools
from array import array
from functools import partial
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.support import Box, CrashJournal, Probe, again, cool, ranges, refusal
from tests.limits import examples
from zbus.core.cursor.state import GroupOptions, TopicOptions
from zbus.core.dedup import active_ids
from zbus.core.dedup.active_ids import ActiveIds
from zbus.core.dedup.entries import IdColumns
from zbus.core.dedup.window import id_name
from zbus.core.model.chunk import Chunk
from zbus.core.model.errors import BrokerError, Refusal
from zbus.core.model.message import Message
from zbus.core.model.message_state import MessageState
from zbus.core.topics.outcomes import Duplicate, Stored
from zbus.core.topics.topic import Partition
from zbus.core.verbs import message_admin as single

LEASE_MS = 10_000
KEPT_MS = 60_000
LEASING = GroupOptions(lease=True, window=100, lease_ms=LEASE_MS)


def new_box(segment_bytes_max: int = 64 << 20, groups: str = "g", **options: Any) -> Box:
    box = Box(CrashJournal(), segment_bytes_max=segment_bytes_max)
    topic = attrs.evolve(TopicOptions("T", dedupe_live=True), **options)
    for group in groups or ("",):
        box.declare(topic, group, LEASING)
    box.settle()
    return box


def put(box: Box, *ids: bytes, route: bytes = b"", expires_ms: int = 0, once: bytes = b"") -> Probe:
    probe = Probe()
    messages = [Message(id, key=route, body=id, expires_ms=expires_ms, once=once) for id in ids]
    partition = box.topic().partition_for(route)
    box.broker.put_all(partition, probe, Chunk.of(messages))
    return probe


def stored(box: Box, *ids: bytes, **more: bytes) -> tuple[int, int]:
    """Where, and how many of them were there."""
    probe = put(box, *ids, **more)  # type: ignore[arg-type]
    box.settle()
    (answer,) = probe.answers
    assert isinstance(answer, Stored | Duplicate), answer
    return probe.offset, answer.count if isinstance(answer, Duplicate) else 0


def find(box: Box, id: bytes) -> int | None:
    found = single.find_id(box.topic(), id, box.now_ms)
    return None if isinstance(found, BrokerError) else found[1]


def finish(box: Box, how: str) -> None:
    """The first message of g."""
    group, partition = box.group(), box.partition()
    if how == "acknowledged":
        assert len(box.take()) == 1
        box.ack(0)
    elif how == "dead":
        assert len(box.take()) == 1
        group.configure(attrs.evolve(group.options, attempts_max=1))
        box.settle(LEASE_MS)
    elif how == "deleted":
        single.delete(box.broker._dispatch.runs, Probe(), [group], partition, ranges([0]))
    elif how == "emptied":
        box.broker.purge_group(Probe(), group)
    elif how == "all emptied":
        box.broker.purge_topic(Probe(), box.topic())
    else:
        assert how == "passed over"
        group.configure(attrs.evolve(group.options, filter="none.such"))
        assert box.take() == []
    box.settle()


HOW = ["acknowledged", "dead", "deleted", "emptied", "all emptied", "passed over"]


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("restart", [False, True])
def test_free_as_soon_as_it_is_finished(how: str, restart: bool) -> None:
    box = new_box()
    assert stored(box, b"a") == (0, 0)
    assert stored(box, b"a") == (0, 1)
    if restart:
        box = again(box)
        assert stored(box, b"a") == (0, 1)
    finish(box, how)
    if restart:
        box = again(box)
    assert find(box, b"a") is None
    assert stored(box, b"a") == (1, 0)
    assert stored(box, b"a") == (1, 1)
    assert find(box, b"a") == 1


def test_leased_and_delayed_messages_are_not_finished() -> None:
    box = new_box()
    stored(box, b"a", b"b")
    assert box.take() == [b"a", b"b"]
    box.nack(1, due_ms=box.now_ms + 50)
    box.settle()
    assert stored(box, b"b", b"a") == (1, 2)
    assert box.group().delayed_count() == 1


def test_every_group_has_to_be_done_with_it() -> None:
    box = new_box(groups="gh")
    stored(box, b"a")
    finish(box, "acknowledged")
    assert stored(box, b"a") == (0, 1)
    box.broker.remove_group(Probe(), box.group("h"))
    box.settle()
    assert stored(box, b"a") == (1, 0)


def test_without_groups_it_is_taken_as_long_as_it_is_stored() -> None:
    box = new_box(groups="")
    for _ in range(2):
        assert stored(box, b"a")[0] == box.partition().first
        assert stored(box, b"a") == (box.partition().first, 1)
        box = again(box)
        box.broker.purge_topic(Probe(), box.topic())
        box.settle()


def test_messages_of_one_turn_know_each_other() -> None:
    box = new_box()
    probes = [put(box, b"a"), put(box, b"b", b"a", b"b", b""), put(box, b"b")]
    box.settle()
    assert [type(probe.answers[0]) for probe in probes] == [Stored, Duplicate, Duplicate]
    assert [probe.offset for probe in probes] == [0, 1, 1]
    assert box.take() == [b"a", b"b", b""]


def test_an_id_is_found_in_any_partition() -> None:
    box = new_box(partitions=3)
    names = [b"%d" % number for number in range(9)]
    for name in names:
        stored(box, name, route=name)
    assert {len(one.ids or ()) for one in box.topic().partitions} != {0, 9}
    for name in names:
        assert stored(box, name, route=name + b"x")[1] == 1


def test_a_key_goes_before_the_id() -> None:
    box = new_box()
    assert stored(box, b"a", once=b"k") == (0, 0)
    assert stored(box, b"a", once=b"k") == (0, 1)
    assert stored(box, b"a") == (1, 0), "its id was not looked at"
    box = again(box)
    assert stored(box, b"a") == (1, 1)


def test_both_ways_to_look_at_ids() -> None:
    box = new_box(dedupe_ms=1_000)
    stored(box, b"a")
    finish(box, "acknowledged")
    assert stored(box, b"a") == (0, 1), "not that long ago"
    box.settle(1_000)
    assert stored(box, b"a") == (1, 0)
    box.settle(1_000)
    assert stored(box, b"a") == (1, 1), "not finished"


def test_what_found_no_room_has_no_id() -> None:
    box = new_box()
    journal = box.journal
    assert isinstance(journal, CrashJournal)
    stored(box, b"a")
    journal.full = True
    probe = put(box, b"b")
    box.settle()
    assert refusal(probe).refusal is Refusal.FULL
    assert find(box, b"b") is None
    journal.full = False
    assert stored(box, b"b") == (1, 0)
    assert stored(again(box), b"b") == (1, 1)


def test_it_is_switched_off_and_on() -> None:
    box = new_box()
    stored(box, b"a")
    for live in (False, True):
        box.declare(attrs.evolve(box.topic().options, dedupe_live=live), "g", LEASING)
        box.settle(1)
    for _ in range(2):
        assert find(box, b"a") is None, "what was stored before is not known"
        box = again(box)
    assert stored(box, b"a") == (1, 0)
    assert stored(again(box), b"a") == (1, 1)


def test_found_while_it_is_known_what_became_of_it() -> None:
    box = new_box(settled_ms=KEPT_MS)
    stored(box, b"a")
    finish(box, "acknowledged")
    for _ in range(2):
        assert find(box, b"a") == 0
        box = again(box)
    assert stored(box, b"a") == (1, 0), "and yet it is free"
    assert find(box, b"a") == 1
    single.delete(box.broker._dispatch.runs, Probe(), [box.group()], box.partition(), ranges([1]))
    box.settle(KEPT_MS - 1)
    assert find(box, b"a") == 1
    box.settle(1)
    assert find(box, b"a") is None
    assert find(again(box), b"a") is None


def test_of_two_that_are_finished_the_last_is_found() -> None:
    box = new_box(settled_ms=KEPT_MS, partitions=3)
    routes = [b"x", b"y"]
    places = [box.topic().partition_for(route).index for route in routes]
    assert len(set(places)) == 2
    for route, index in zip(routes, places, strict=True):
        assert stored(box, b"a", route=route) == (0, 0)
        where = box.topic().partitions[index]
        single.delete(box.broker._dispatch.runs, Probe(), [box.group()], where, ranges([0]))
        box.settle(10)
    for _ in range(2):
        found = single.find_id(box.topic(), b"a", box.now_ms)
        assert not isinstance(found, BrokerError)
        assert found[0].index == places[1]
        box = again(box)


# -- how much is kept ----------------------------------------------------------------------


def ids_of(partition: Partition) -> ActiveIds:
    assert partition.ids is not None
    return partition.ids


def test_the_finished_go_little_by_little() -> None:
    box = new_box()
    most = 0
    serial = itertools.count()
    for _ in range(300):
        stored(box, *[b"%d" % next(serial) for _ in range(10)])
        for offset, _ in enumerate(box.take(), box.group().backlogs[0].floor()):
            box.ack(offset)
        box.settle()
        most = max(most, len(ids_of(box.partition())))
    assert most <= 30, "twice what lives, and what comes"
    assert len(ids_of(again(box).partition())) == 0


def test_no_id_is_forgotten_for_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(active_ids, "LIVE_IDS_MAX", 5)
    box = new_box()
    assert stored(box, *[b"%d" % number for number in range(5)]) == (0, 0)
    for probe in (put(box, b"5"), put(box, b"0", b"5")):
        box.settle()
        assert refusal(probe).refusal is Refusal.TOO_MANY
        assert "holds 5 unfinished messages with ids in partition 0" in refusal(probe).text
    assert stored(box, b"4") == (4, 1), "it is known"
    assert stored(box, b"") == (5, 0), "and one without an id is stored"
    single.delete(box.broker._dispatch.runs, Probe(), [box.group()], box.partition(), ranges([3]))
    box.settle()
    assert stored(box, b"5") == (6, 0)
    assert box.take() == [b"0", b"1", b"2", b"4", b"", b"5"]


def test_columns_are_cut_where_the_log_ends() -> None:
    names = [id_name(b"%d" % number) for number in range(3)]
    columns = IdColumns(b"".join(names), array("Q", [7, 2, 9]))
    assert columns.truncated(10) is columns
    assert list(columns.truncated(9).rows()) == [(names[0], 7), (names[1], 2)]
    assert not columns.truncated(2)


# -- all of it -----------------------------------------------------------------------------


@attrs.define
class Model:
    """All messages with an id that were ever stored: id, partition and offset."""

    box: Box
    stored: list[tuple[bytes, int, int]] = attrs.Factory(list)

    def lives(self, index: int, offset: int) -> bool:
        groups = self.box.topic().groups.values()
        if offset < self.box.partition(index=index).first:
            return False
        lives = [group.backlogs[index].life(offset) is not MessageState.DONE for group in groups]
        return any(lives) if lives else True

    def live(self, id: bytes) -> list[tuple[int, int]]:
        return [
            (at, offset) for one, at, offset in self.stored if one == id and self.lives(at, offset)
        ]

    def put(self, ids: list[bytes], route: bytes) -> None:
        partition = self.box.topic().partition_for(route)
        fresh = [id for at, id in enumerate(ids) if not self.live(id) and id not in ids[:at]]
        end, probe = partition.end, put(self.box, *ids, route=route)
        self.box.settle()
        (answer,) = probe.answers
        if len(fresh) == len(ids):
            assert isinstance(answer, Stored)
        else:
            assert isinstance(answer, Duplicate)
            assert answer.count == len(ids) - len(fresh)
        if not fresh:
            assert (answer.partition.index, probe.offset) in self.live(ids[0])
        assert partition.end == end + len(fresh)
        self.stored += [(id, partition.index, end + at) for at, id in enumerate(fresh)]

    def restart(self, box: Box) -> None:
        """What a crash took is not stored."""
        self.box = box
        ends = [partition.end for partition in box.topic().partitions]
        self.stored = [one for one in self.stored if one[2] < ends[one[1]]]
        known = {(at, offset) for _, at, offset in self.stored}
        for one in box.topic().partitions:  # what it kept although nobody was told
            for offset in range(one.end):
                if (one.index, offset) not in known:
                    self.stored.append((_id(box, one, offset), one.index, offset))

    def check(self) -> None:
        topic = self.box.topic()
        for id in IDS:
            live = self.live(id)
            assert len(live) <= 1
            found = single.find_id(topic, id, self.box.now_ms)
            place = None if isinstance(found, BrokerError) else (found[0].index, found[1])
            if live:
                assert place == live[0]
            elif not topic.options.settled_ms:
                assert place is None
            elif place is not None:
                assert (id, *place) in self.stored
                fates = [g.backlogs[place[0]].fates for g in topic.groups.values()]
                kept = (self.box.now_ms, KEPT_MS)
                assert any(one is not None and one.find(place[1], *kept) for one in fates)


IDS = [b"a", b"b", b"c", b"d"]
STEPS = st.one_of(
    st.tuples(st.just("put"), st.lists(st.sampled_from(IDS), min_size=1, max_size=3)),
    st.tuples(st.just("put"), st.lists(st.sampled_from(IDS), min_size=1, max_size=3)),
    st.tuples(st.just("take"), st.sampled_from("gh")),
    st.tuples(st.sampled_from(["ack", "delete"]), st.integers(0, 12)),
    st.tuples(st.just("wait"), st.sampled_from([1, LEASE_MS, KEPT_MS])),
    st.tuples(st.sampled_from(["restart", "cool", "empty", "full"]), st.just(0)),
    st.tuples(st.just("crash"), st.integers(0, 3)),
)


@examples(120)
@given(
    partitions=st.sampled_from([1, 3]),
    kept_ms=st.sampled_from([0, KEPT_MS]),
    segment_bytes_max=st.sampled_from([500, 64 << 20]),
    routes=st.lists(st.sampled_from([b"x", b"y"]), min_size=30, max_size=30),
    steps=st.lists(STEPS, max_size=30),
)
def test_model(
    partitions: int,
    kept_ms: int,
    segment_bytes_max: int,
    routes: list[bytes],
    steps: list[tuple[str, object]],
) -> None:
    box = new_box(segment_bytes_max, "gh", partitions=partitions, settled_ms=kept_ms)
    model = Model(box)
    for route, (verb, value) in zip(routes, steps, strict=False):
        box = model.box
        index = box.topic().partition_for(route).index
        journal = box.journal
        assert isinstance(journal, CrashJournal)
        if verb == "put":
            assert isinstance(value, list)
            model.put(value, route)
        elif verb == "take":
            box.take(str(value))
        elif verb == "wait":
            assert isinstance(value, int)
            box.settle(value)
        elif verb in ("ack", "delete"):
            assert isinstance(value, int)
            groups = list(box.topic().groups.values())
            if verb == "delete":
                where = box.partition(index=index)
                single.delete(box.broker._dispatch.runs, Probe(), groups, where, ranges([value]))
            else:
                box.ack(value, "gh"[value % 2], index=index)
        elif verb == "restart":
            model.restart(again(box))
        elif verb == "crash":
            assert isinstance(value, int)
            put(box, b"a", b"d", route=route)
            box.broker.finish()
            made = journal.crash(partial(_kept, value))
            model.restart(Box(made, now_ms=box.now_ms, segment_bytes_max=segment_bytes_max))
        elif verb == "cool":
            cool(box)
        elif verb == "full":
            journal.full = True
            put(box, *IDS, route=route)
            box.settle()
            journal.full = False
        else:
            box.broker.purge_topic(Probe(), box.topic())
        model.box.settle()
        model.check()


def _kept(most: int, lane: object, unsynced: int) -> int:
    return min(most, unsynced)


def _id(box: Box, partition: Partition, offset: int) -> bytes:
    found: list[bytes] = []
    partition.log.get(
        offset,
        lambda got: found.append(b"" if isinstance(got, BrokerError) else got[0].ids[got[1]]),
    )
    box.settle()
    return found[0]
