"""What is due later is known to its groups from the moment it is put."""

from __future__ import annotations

import random

import pytest

from tests.core.support import Box, CrashJournal, Probe, again, same_state
from zbus.core.cursor.state import GroupOptions
from zbus.core.model.chunk import Chunk
from zbus.core.model.message import Message
from zbus.core.verbs import puts
from zbus.storage.memory import MemoryJournal

LEASED = GroupOptions(lease=True, window=1_000_000)


def box_with(*groups: str, options: GroupOptions = LEASED) -> Box:
    box = Box(CrashJournal())
    for name in groups:
        box.declare("T", name, options)
    box.settle()
    return box


def put(box: Box, *delays_ms: int) -> Probe:
    """Each message says how late it is due."""
    now_ms = box.now_ms
    messages = [Message(b"", body=b"%d" % ms, due_ms=now_ms + ms if ms else 0) for ms in delays_ms]
    probe = Probe()
    box.broker.put_all(box.partition(), probe, Chunk.of(messages), puts.WHEN_DUE)
    return probe


@pytest.mark.parametrize("lease", [False, True])
def test_in_the_order_of_their_times(lease: bool) -> None:
    options = GroupOptions(lease=lease, window=100)
    box = box_with("g", "other", options=options)
    put(box, 300, 0, 100)
    put(box, 200)
    box.settle(150)
    put(box, 0)
    box.settle(200)
    for name in ("g", "other"):
        assert box.take(name) == [b"0", b"100", b"0", b"200", b"300"]


def test_counted_as_what_they_are() -> None:
    box = box_with("g")
    put(box, 100, 0, 200)
    assert box.group().counts() == (1, 0, 2, 0)
    box.settle(100)
    assert box.group().counts() == (2, 0, 1, 0)


def test_due_before_it_is_written() -> None:
    journal = CrashJournal()
    box = Box(journal)
    box.declare("T", "g", LEASED)
    box.settle()
    put(box, 5)
    box.turn()
    box.turn(10)
    pull = box.pull(wait=True)
    box.turn()
    assert pull.open, "nobody is given what a crash may take back"
    box.settle()
    assert pull.bodies == [b"5"]


@pytest.mark.parametrize("kept", [False, True])
def test_a_crash_takes_both_or_neither(kept: bool) -> None:
    box = box_with("g")
    put(box, 100, 0)
    box.settle()
    put(box, 50)
    box.turn()
    journal = box.journal
    assert isinstance(journal, CrashJournal)
    box = Box(journal.crash(lambda lane, unsynced: unsynced * kept), now_ms=box.now_ms)
    assert box.group().counts() == (1, 0, 1 + kept, 0)
    box.settle(100)
    assert box.take() == [b"0", *[b"50"] * kept, b"100"]


def test_a_group_that_comes_later() -> None:
    box = box_with("g")
    put(box, 100, 0)
    box.settle()
    assert box.take() == [b"0"]
    box.declare("T", "new", LEASED)
    box.settle(100)
    assert box.take("new") == [b"100"]


def test_a_few_that_are_stuck_do_not_hold_thousands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(puts, "AHEAD_MAX", 10)
    box = box_with("g")
    put(box, *[0] * 30)
    box.put(b"own", due_ms=box.now_ms + 900)
    box.settle()
    for number in range(200):
        put(box, 1_000 + number)
    box.settle()
    backlog = box.group().backlogs[0]
    assert len(backlog.ahead) <= 10 + 31
    assert backlog.cursor == 231
    same_state(box, again(box))
    assert box.take() == [b"0"] * 30
    assert box.take() == [], "nothing is early"
    box.settle(900)
    assert box.take() == [b"own"]
    box.settle(1_000)
    assert box.take() == [b"%d" % (1_000 + number) for number in range(200)]


@pytest.mark.parametrize("seed", range(20))
def test_against_a_model(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is put and taken in between: by due time, then as it came; never early."""
    monkeypatch.setattr(puts, "AHEAD_MAX", 3)
    dice = random.Random(seed)
    box = Box(MemoryJournal())
    box.declare("T", "g", LEASED)
    box.settle()
    waiting: list[tuple[int, int, bytes]] = []
    count = 0
    for _ in range(150):
        match dice.randrange(3):
            case 0:
                delays = [dice.choice([0, 0, 1, 5, 30, 200]) for _ in range(dice.randint(1, 4))]
                put(box, *delays)
                for ms in delays:
                    waiting.append((box.now_ms + ms, count, b"%d" % ms))
                    count += 1
                box.settle()
            case 1:
                box.settle(dice.randrange(40))
            case 2:
                due = sorted(one for one in waiting if one[0] <= box.now_ms)
                found = box.take(count=dice.randint(1, 5))
                assert found == [body for _, _, body in due[: len(found)]]
                assert found or not due
                for one in due[: len(found)]:
                    waiting.remove(one)
    box.check()
