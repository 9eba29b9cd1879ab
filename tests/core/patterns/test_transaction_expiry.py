"""Staged messages that nobody commits, and applications that nobody uses, are forgotten in time."""

from __future__ import annotations

import pytest

from tests.core.patterns.test_transactions import (
    APP,
    READING,
    ROWS,
    abort,
    commit,
    committed,
    everything,
    prepared,
    stage,
)
from tests.core.support import Box, CrashJournal, again, refusal
from zbus.core.cursor.state import TopicOptions
from zbus.core.model.errors import Refusal
from zbus.core.model.limits import Limits
from zbus.core.patterns.transaction_expiry import LOOKS

TTL_MS = Limits().txn_ttl_ms
LOOK_MS = TTL_MS // LOOKS + 1


def live(box: Box, ms: int) -> None:
    """So much time goes by."""
    end_ms = box.now_ms + ms
    while box.now_ms < end_ms:
        box.settle(min(LOOK_MS, end_ms - box.now_ms))


def topics(box: Box) -> set[str]:
    return {name for name in box.broker.topics if name.startswith("txn.")}


BOTH = {f"txn.{APP}", ROWS}


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("staged", [False, True])
def test_who_does_not_come_back_is_forgotten(staged: bool, restarts: bool) -> None:
    box = prepared()
    box.settle(TTL_MS // 2)
    if staged:
        stage(box, b"lost")
    else:
        commit(box, 5, stage(box, b"a"))
        box.settle()
    for _ in range(4):
        live(box, TTL_MS // 4 - 1_000)
        box = again(box) if restarts else box
        box.settle()
        assert topics(box) == BOTH
    live(box, LOOK_MS + 5_000)
    assert topics(box) == set()
    assert everything(box) == ([] if staged else [b"a"])
    box = again(box)
    live(box, TTL_MS)
    assert box.broker.transactions.begin(APP) is None
    box.settle()
    commit(box, 0, stage(box, b"anew"))
    box.settle()
    assert everything(box)[-1:] == [b"anew"]


@pytest.mark.parametrize("by", ["stage", "commit", "abort"])
def test_who_is_at_work_is_not(by: str) -> None:
    box = prepared()
    first = stage(box, b"x")
    for batch in range(6):
        live(box, TTL_MS // 2)
        if by == "stage":
            assert box.broker.transactions.begin(APP) is None
        elif by == "commit":
            probe = commit(box, batch, *([] if batch else [first]))
            box.settle()
            assert committed(probe) == (0 if batch else 1, False)
        else:
            abort(box, batch, range(first.first, first.end))
        box.settle()
    assert topics(box) == BOTH


def test_what_was_staged_long_ago_is_dropped() -> None:
    box = prepared()
    old = stage(box, b"old")
    live(box, TTL_MS // 2)
    new = stage(box, b"new")
    assert box.broker.transactions.begin(APP) is None
    live(box, TTL_MS // 2 + LOOK_MS)
    late = commit(box, 0, old, new)
    box.settle()
    assert refusal(late).refusal is Refusal.CONFLICT
    probe = commit(box, 0, new)
    box.settle()
    assert committed(probe) == (1, False)
    assert everything(box) == [b"new"]


@pytest.mark.parametrize("restarts", [False, True])
def test_what_is_decided_is_done_however_late(restarts: bool) -> None:
    box = prepared()
    probe = commit(box, 0, stage(box, b"a", topic="Other"), stage(box, b"b"))
    while not box.topic(f"txn.{APP}").partitions[0].visible:
        box.turn()
        assert isinstance(box.journal, CrashJournal)
        box.journal.release()
    box.broker.remove_topic(probe, box.topic("Out"))
    live(box, TTL_MS)
    box = again(box) if restarts else box
    live(box, 2 * TTL_MS)
    assert topics(box) == BOTH
    box.declare(TopicOptions("Out"), "r", READING)
    live(box, 2_000)
    assert (everything(box, "Other"), everything(box)) == ([b"a"], [b"b"])


def test_none_is_forgotten_where_nobody_wants_that() -> None:
    box = Box(CrashJournal(), limits=Limits(txn_ttl_ms=0))
    assert box.broker.transactions.begin(APP) is None
    box.settle()
    stage(box, b"a")
    live(box, 3 * TTL_MS)
    assert topics(box) == BOTH
