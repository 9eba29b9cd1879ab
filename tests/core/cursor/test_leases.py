"""Who holds a lease, and what is being settled: both are gone with the lease, however it ends."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from zbus.core.cursor.backlog import Backlog
from zbus.core.cursor.journal import changes
from zbus.core.cursor.leases import SETTLE_MS


def leased() -> Backlog:
    """Offset 3 is leased until 100, held by `a`, and settling."""
    backlog = Backlog(3)
    backlog.lease(3, 100)
    backlog.leased.holders[3] = b"a"
    backlog.leased.settle_later(3)
    backlog.check()
    return backlog


ENDS: dict[str, Callable[[Backlog], object]] = {
    "finish": lambda backlog: backlog.finish(3),
    "give up": lambda backlog: backlog.give_up(3),
    "front": lambda backlog: backlog.put_front(3),
    "end": lambda backlog: backlog.put_end(3, 9),
    "back": lambda backlog: backlog.put_back(3),
    "delay": lambda backlog: backlog.delay(3, 500),
    "seek": lambda backlog: backlog.seek(0),
    "rewind": lambda backlog: backlog.rewind(3),
    "truncate": lambda backlog: backlog.truncate(3),
    "fall off": lambda backlog: backlog.fall_off(5),
}


@pytest.mark.parametrize("way", ENDS)
def test_nothing_is_left_of_a_lease(way: str) -> None:
    backlog = leased()
    ENDS[way](backlog)
    backlog.check()
    assert (3 in backlog.leased, backlog.leased.settling, backlog.leased.holders) == (
        False,
        set(),
        {},
    )
    other = leased()
    assert other.leased.settling == {3}, "others have sets of their own"


def test_what_is_settling_ends_in_no_way_by_itself() -> None:
    backlog = leased()
    told = changes(backlog, "g")
    assert not backlog.extend(3, 5_000)
    for now_ms in (100, 100 + SETTLE_MS - 1, 100 + SETTLE_MS, 90_000):
        assert backlog.wake(now_ms, 9) == 0
        assert backlog.next_wake() > now_ms
        backlog.check()
    assert len(told.entries) == 1
    assert not changes(backlog, "g").entries, "nothing is written while it waits"
    backlog.leased.settle_no_more(3)
    assert backlog.wake(90_000 + SETTLE_MS, 9) == 1
    assert backlog.next(9) == 3


def test_an_end_is_told_of_each_once() -> None:
    backlog = Backlog()
    for offset, deadline_ms in ((0, 30), (1, 10), (2, 20), (3, 40)):
        backlog.lease(offset, deadline_ms)
    backlog.leased.settle_later(2)
    ended: list[int] = []

    def later(offsets: list[int]) -> None:
        for offset in offsets:
            ended.append(offset)
            backlog.delay(offset, 99)

    backlog.wake(30, 9, later)
    assert ended == [1, 0]
    assert backlog.wake(30, 9, ended.extend) == 0


def test_what_somebody_holds_is_in_the_order_of_handing_out() -> None:
    backlog = Backlog()
    for offset, holder in enumerate((b"a", b"b", b"a", b"a", b"a")):
        backlog.lease(offset, 100 - offset)
        backlog.leased.holders[offset] = holder
    backlog.finish(2)
    backlog.put_front(0)
    backlog.lease(0, 50)
    backlog.leased.holders[0] = b"a"
    backlog.leased.settle_later(4)
    assert backlog.leased.held_by(b"a") == [3, 0]
    assert backlog.leased.held_by(b"b") == [1]
    assert backlog.leased.held_by(b"c") == []
