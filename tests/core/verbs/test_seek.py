"""Groups that are moved about, against the obvious model: sets of offsets for each partition.

A seek is whole or it never was, also when the power goes before it is on the disk; what is refused
changes nothing; and nobody but the group that was moved notices.
"""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.core.support import Box, CrashJournal, Probe, again, cool, refusal, wishing
from tests.limits import examples
from zbus.core.cursor.state import GroupOptions, TopicOptions
from zbus.core.model.errors import Refusal
from zbus.core.model.message_state import MessageState
from zbus.core.verbs.declare import GroupWish
from zbus.core.verbs.seek import Start

LEASES = GroupOptions(lease=True, lease_ms=10**9, window=50)
GROUPS = {"leases": LEASES, "plain": GroupOptions()}
OFFSETS = st.integers(0, 12)

Lives = list[dict[str, set[int]]]
"""Of each partition what is done, and what is leased."""


class SeekMachine(RuleBasedStateMachine):
    """All is durable between the rules."""

    count = 1

    def __init__(self) -> None:
        super().__init__()
        self.box = Box(CrashJournal())
        self.times: list[list[int]] = [[] for _ in range(self.count)]  # of each message
        self.lives: dict[str, Lives] = {
            name: [{"done": set(), "leased": set()} for _ in range(self.count)] for name in GROUPS
        }

    @property
    def options(self) -> TopicOptions:
        return TopicOptions("T", partitions=self.count)

    @initialize()
    def begin(self) -> None:
        for name, options in GROUPS.items():
            self.box.declare(self.options, name, options)
        self.box.settle()

    @rule(index=st.integers(0, 2), count=st.integers(1, 3), ms=st.sampled_from([0, 1, 50]))
    def put(self, index: int, count: int, ms: int) -> None:
        self.box.settle(ms)
        index %= self.count
        self.times[index] += [self.box.now_ms] * count
        self.box.put(*[b"x"] * count, index=index)
        self.box.settle()

    @rule(name=st.sampled_from(sorted(GROUPS)), count=st.integers(1, 4))
    def pull(self, name: str, count: int) -> None:
        probe = self.box.pull(name, count)
        self.box.settle()
        for record in probe.records:
            live = self.lives[name][record.partition]
            assert record.offset not in live["done"] | live["leased"]
            live["leased" if name == "leases" else "done"].add(record.offset)

    @rule(index=st.integers(0, 2), offset=OFFSETS)
    def ack(self, index: int, offset: int) -> None:
        index %= self.count
        live = self.lives["leases"][index]
        if offset in live["leased"]:
            self.box.ack(offset, "leases", index=index)
            self.box.settle()
            live["leased"].remove(offset)
            live["done"].add(offset)

    @rule(
        name=st.sampled_from(sorted(GROUPS)),
        offset=OFFSETS | st.lists(OFFSETS, min_size=1, max_size=3).map(tuple) | st.none(),
        latest=st.booleans(),
        ago_ms=st.sampled_from([-5, 0, 1, 50, 10_000]),
        partition=st.none() | st.integers(0, 3),
        how=st.sampled_from(["seek", "seek", "seek", "power", "declare", "move"]),
        data=st.data(),
    )
    def seek(
        self,
        name: str,
        offset: Any,
        latest: bool,
        ago_ms: int,
        partition: int | None,
        how: str,
        data: st.DataObject,
    ) -> None:
        time_ms = self.box.now_ms - ago_ms
        start = Start(offset=offset, latest=latest, time_ms=time_ms, partition=partition)
        wanted = self.places(start)
        before = self.lives[name]
        if data.draw(st.booleans()):
            cool(self.box)
        if how in ("declare", "move"):
            self.declare(name, start, how == "move", wanted)
            return
        journal = self.box.journal
        assert isinstance(journal, CrashJournal)
        self.box.broker._tick.commit()
        safe = {lane: len(log) for lane, log in journal.written.items()}
        probe = Probe()
        self.box.broker.seek(probe, self.box.group(name), start)
        if how == "power":

            def kept(lane: tuple[str, int], unsynced: int) -> int:
                """What was there before the seek stays, or there would be more than one model."""
                since = len(journal.written[lane]) - safe[lane]
                return unsynced - since + data.draw(st.integers(0, since))

            self.box.turn()
            self.box = Box(journal.crash(kept), now_ms=self.box.now_ms)
            after = self.moved(before, wanted)
            assert self.seen(name) in (before, after)
            self.lives[name] = self.seen(name)
            self.box.settle()
            return
        self.box.settle()
        if wanted is None:
            assert refusal(probe).refusal is Refusal.ILLEGAL
        else:
            assert probe.fine
            self.lives[name] = self.moved(before, wanted)

    def declare(self, name: str, start: Start, moves: bool, wanted: list[int] | None) -> None:
        """Moves a group that exists only if it is told to."""
        start = attrs.evolve(start, moves=moves)
        probe = Probe()
        wish = GroupWish(name, GROUPS[name], start)
        self.box.broker.declare(probe, "T", wishing(self.box.topic().options, wish))
        self.box.settle()
        assert probe.fine or (moves and wanted is None)
        if moves:
            self.lives[name] = self.moved(self.lives[name], wanted)

    def places(self, start: Start) -> list[int] | None:
        """Where it is in each partition, None = as it was; None for all = refused."""
        ends = [len(times) for times in self.times]
        if start.partition is not None and start.partition >= self.count:
            return None
        offsets = start.offset
        if isinstance(offsets, tuple) and (
            len(offsets) != self.count or start.partition is not None
        ):
            return None
        found = []
        for index, end in enumerate(ends):
            if start.partition not in (None, index):
                found.append(-1)
                continue
            offset = offsets[index] if isinstance(offsets, tuple) else offsets
            if offset is not None:
                if offset > end:
                    return None
                found.append(offset)
            elif start.latest:
                found.append(end)
            else:
                assert start.time_ms is not None
                found.append(sum(time_ms < start.time_ms for time_ms in self.times[index]))
        return found

    def moved(self, lives: Lives, places: list[int] | None) -> Lives:
        if places is None:
            return lives
        return [
            live if place < 0 else {"done": set(range(place)), "leased": set()}
            for live, place in zip(lives, places, strict=True)
        ]

    @rule()
    def restart(self) -> None:
        self.box = again(self.box)
        self.box.settle()

    def seen(self, name: str) -> Lives:
        group = self.box.group(name)
        lives: Lives = []
        for backlog, times in zip(group.backlogs, self.times, strict=True):
            by = {life: set[int]() for life in MessageState}
            for offset in range(len(times)):
                by[backlog.life(offset)].add(offset)
            lives.append({"done": by[MessageState.DONE], "leased": by[MessageState.LEASED]})
        return lives

    @invariant()
    def same(self) -> None:
        for name in self.box.topic().groups if self.box.broker.topic("T") else ():
            assert self.seen(name) == self.lives[name]
        self.box.check()


class ThreePartitions(SeekMachine):
    count = 3


@pytest.mark.parametrize("partitions", [1, 3])
def test_it_is_answered_when_it_is_durable(partitions: int) -> None:
    box = Box(CrashJournal())
    box.declare(TopicOptions("T", partitions=partitions), "g")
    box.put(b"x")
    box.settle()
    assert box.take() == [b"x"]
    probe = Probe()
    box.broker.seek(probe, box.group(), Start(offset=0))
    box.turn()
    assert probe.open
    assert isinstance(box.journal, CrashJournal)
    box.journal.release()
    assert probe.fine
    assert Box(box.journal.crash(lambda lane, unsynced: 0)).take() == [b"x"]


LIMITS = examples(60, stateful_step_count=25)
TestOnePartition = SeekMachine.TestCase
TestOnePartition.settings = LIMITS
TestThreePartitions = ThreePartitions.TestCase
TestThreePartitions.settings = LIMITS
