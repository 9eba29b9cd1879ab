"""Python's collector comes rarely, and not again over much that was in use."""

from __future__ import annotations

import gc
from pathlib import Path
from weakref import ref

import pytest

from tests.server.test_nothing_left_of_a_connection import Turns, ask
from zbus.server.process.memory import (
    BLOCK_BYTES,
    EVERY_S,
    FREED_MIN,
    FREED_SHARE,
    PRESSED_EVERY_S,
    REMOVED_MAX,
    SHARE,
    SLOW_S,
    TIDY_SHARE,
    GcControl,
)


class Time:
    """Goes on where it is told, and in collections."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.pause_s = 0.001  # of a collection
        self.asked = 0

    def __call__(self) -> float:
        return self.now_s


class Calls:
    """What the collector of Python was asked for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.time = Time()
        self.made: list[str] = []
        monkeypatch.setattr(gc, "collect", self.collect)
        monkeypatch.setattr(gc, "freeze", lambda: self.made.append("freeze"))
        monkeypatch.setattr(gc, "unfreeze", lambda: self.made.append("unfreeze"))

    def collect(self) -> int:
        self.time.now_s += self.time.pause_s
        self.made.append("collect")
        return 0

    def since(self) -> list[str]:
        made, self.made = self.made, []
        return made


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    return Calls(monkeypatch)


def test_full_collections_come_now_and_then(calls: Calls) -> None:
    collector = GcControl(calls.time, calls.time)
    for _ in range(int(EVERY_S) - 1):
        calls.time.now_s += 1
        collector.look()
    assert calls.since() == []
    calls.time.now_s += 1
    collector.look()
    assert calls.since() == ["collect"]
    collector.look()
    assert calls.since() == []


def test_slow_ones_come_more_rarely_and_do_not_look_at_the_same_again(calls: Calls) -> None:
    collector = GcControl(calls.time, calls.time)
    calls.time.now_s += EVERY_S
    calls.time.pause_s = 2 * EVERY_S / SHARE
    assert calls.time.pause_s > SLOW_S
    collector.look()
    assert calls.since() == ["collect", "freeze"]
    calls.time.now_s += 2 * EVERY_S - 1
    collector.look()
    assert calls.since() == []
    calls.time.now_s += 2
    collector.look()
    assert calls.since() == ["collect", "freeze"]


def test_while_memory_is_short_it_collects_and_then_everything(calls: Calls) -> None:
    collector = GcControl(calls.time, calls.time)
    collector.press()
    assert calls.since() == ["collect"]
    collector.press()
    assert calls.since() == [], "not each second"
    calls.time.now_s += PRESSED_EVERY_S
    collector.press()
    assert calls.since() == ["unfreeze", "collect", "freeze"]
    calls.time.now_s += PRESSED_EVERY_S
    collector.press()
    assert calls.since() == ["collect"]


def test_it_tidies_at_once_and_then_no_more_often_than_that_costs_little(calls: Calls) -> None:
    collector = GcControl(calls.time, calls.time)
    calls.time.pause_s = 0.05
    assert collector.tidy()
    assert not collector.tidy()
    calls.time.now_s += 0.05 * TIDY_SHARE
    assert collector.tidy()
    assert calls.since() == ["collect"] * 2


def test_it_tidies_for_removals_as_soon_as_it_may(calls: Calls) -> None:
    collector = GcControl(calls.time, calls.time)
    calls.time.pause_s = 0.05
    collector.tidy()
    collector.removed(REMOVED_MAX)
    assert calls.since() == ["collect"]
    calls.time.now_s += 0.05 * TIDY_SHARE
    collector.removed(REMOVED_MAX)
    assert calls.since() == ["collect"]
    calls.time.now_s += 0.05 * TIDY_SHARE
    collector.removed(REMOVED_MAX)
    assert calls.since() == []


def test_it_tidies_when_much_was_freed(calls: Calls) -> None:
    blocks = 0
    collector = GcControl(calls.time, calls.time, lambda: blocks)
    most = 10 * FREED_MIN
    for blocks, made in (
        (most, []),
        (int(most * (1 - FREED_SHARE)) + 1, []),
        (int(most * (1 - FREED_SHARE)), ["collect"]),
        (int(most * (1 - FREED_SHARE)), []),
        (FREED_MIN + 1, ["collect"]),
        (2, []),
    ):
        calls.time.now_s += 1
        collector.look()
        assert calls.since() == made, blocks


def test_it_says_what_a_crowd_left_when_all_of_it_has_gone(calls: Calls) -> None:
    blocks = 0
    collector = GcControl(calls.time, calls.time, lambda: blocks)
    most = 10 * FREED_MIN
    for blocks, left in (
        (most, 0),
        (most // 2, 0),
        (most // 4, 0),
        (most // 5, 0),
        (most // 5 - FREED_MIN // 10, 0),
        (most // 5, 0),
        (most // 5, most * 3 // 4),
        (most // 5, 0),
    ):
        calls.time.now_s += 1
        assert collector.look() == left * BLOCK_BYTES, blocks


def test_it_tidies_at_once_when_half_of_what_it_found_was_freed(calls: Calls) -> None:
    """That a crowd made it slow a moment ago is no reason to wait when the crowd has gone."""
    blocks = 10 * FREED_MIN
    collector = GcControl(calls.time, calls.time, lambda: blocks)
    calls.time.pause_s = 1.0
    collector.look()
    collector.tidy()
    for blocks, made in (
        (6 * FREED_MIN, ["collect"]),
        (5 * FREED_MIN, ["collect"] * 2),
        (3 * FREED_MIN, ["collect"] * 2),
        (2 * FREED_MIN, ["collect"] * 3),
    ):
        calls.time.now_s += 1
        collector.look()
        assert calls.made == made, blocks


def test_it_tidies_after_many_removals(calls: Calls) -> None:
    collector = GcControl(calls.time, calls.time)
    for count in (1, REMOVED_MAX - 1, REMOVED_MAX, REMOVED_MAX + 1, 2 * REMOVED_MAX):
        collector.removed(count)
        calls.time.now_s += 1
    assert calls.since() == ["collect"] * 2


def test_partitions_that_were_set_aside_and_removed_are_looked_at(calls: Calls) -> None:
    collector = GcControl(calls.time, calls.time)
    calls.time.pause_s = 2 * SLOW_S
    for count, made in (
        (0, ["collect", "freeze"]),
        (REMOVED_MAX - 1, ["collect", "freeze"]),
        (REMOVED_MAX, ["unfreeze", "collect", "freeze"]),
        (2 * REMOVED_MAX - 1, ["collect", "freeze"]),
        (3 * REMOVED_MAX, ["unfreeze", "collect", "freeze"]),
    ):
        collector.removed(count)
        calls.since()
        calls.time.now_s += EVERY_S
        collector.look()
        assert calls.since() == made


class Witness:
    """Is there as long as the topic that has it."""

    def __call__(self, *args: object) -> None:
        pass


def test_a_topic_that_was_set_aside_leaves_memory_when_it_is_removed(tmp_path: Path) -> None:
    """Full collections of a broker that has much are slow, and set aside all that they find."""
    now_s = 0.0
    collector = GcControl(lambda: now_s, iter(range(1_000)).__next__)
    turns = Turns(tmp_path)
    declare = ask("/Gone?cmd=declare&durability=memory&partitions=64")
    left = []
    for _ in range(REMOVED_MAX // 64):
        turns.connect(declare).close()
        turns.gone()
        topic = turns.server.broker.topics["gone"]
        now_s += 1_000_000
        collector.look()
        turns.connect(ask("/Gone?cmd=remove")).close()
        turns.gone()
        witness = Witness()
        left.append(ref(witness))
        topic.fetch = witness
        del topic, witness
        collector.removed(turns.server.broker.partitions_removed())
    now_s += 1_000_000
    collector.look()
    assert [witness() for witness in left] == [None] * len(left)
    turns.server.close()
    gc.freeze()  # the collector has thawed what other tests are made of
