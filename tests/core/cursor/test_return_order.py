"""What comes back to the front of a backlog comes back in its order, whenever and however."""

from __future__ import annotations

from random import Random

import pytest

from tests.limits import checked
from zbus.core.cursor.backlog import Backlog
from zbus.core.cursor.journal import apply, changes, snapshot
from zbus.core.model.message_state import MessageState

STEPS = 120


class Line:
    """The queue, obviously right: a list of offsets, of which some are handed out. Those keep their
    places. What is put in front goes before the first that is ready, behind all before that."""

    def __init__(self) -> None:
        self.all: list[int] = []
        self.out: set[int] = set()

    def ready(self) -> list[int]:
        return [offset for offset in self.all if offset not in self.out]

    def put_front(self, offset: int) -> None:
        ready = self.ready()
        self.all.insert(self.all.index(ready[0]) if ready else len(self.all), offset)

    def give_back(self, offset: int) -> None:
        """In front, on demand: where it was, unless something that is ready stands before that."""
        first = self.ready()[:1]
        if first and self.all.index(first[0]) < self.all.index(offset):
            self.all.remove(offset)
            self.out.remove(offset)
            self.put_front(offset)
        else:
            self.out.remove(offset)

    def finish(self, offset: int) -> None:
        self.all.remove(offset)
        self.out.discard(offset)


class Pair:
    """A backlog and its model; `after` is what a journal knows of the backlog."""

    def __init__(self) -> None:
        self.backlog, self.line = Backlog(), Line()
        self.backlog.keep_order()
        self.after = Backlog()
        self.end = 0

    def push(self, left: bool) -> None:
        offset, self.end = self.end, self.end + 1
        if left:
            self.backlog.put_front(offset)
            self.line.put_front(offset)
        else:
            self.line.all.append(offset)

    def pull(self) -> None:
        found = self.backlog.next(self.end)
        assert found == next(iter(self.line.ready()), None)
        if found is not None:
            self.backlog.lease(found, 1_000)
            self.line.out.add(found)

    def lose(self, offset: int) -> None:
        self.backlog.put_lost(offset)
        self.line.out.remove(offset)

    def cancel(self, offset: int) -> None:
        self.backlog.put_front(offset)
        self.line.give_back(offset)

    def cancel_right(self, offset: int) -> None:
        self.backlog.put_end(offset, self.end)
        self.line.finish(offset)
        self.line.all.append(offset)

    def undo(self, offset: int) -> None:
        """It could not be handed out."""
        self.backlog.undo_lease(offset)
        self.line.out.remove(offset)

    def finish(self, offset: int) -> None:
        self.backlog.finish(offset)
        self.line.finish(offset)

    def restart(self, random: Random) -> None:
        """All that is handed out comes back, in an order that is chance."""
        self.write()
        whole = random.random() < 0.5
        self.backlog = self.after
        if whole:
            self.backlog = Backlog()
            apply(self.backlog, snapshot(self.after, "g"))
        self.after = Backlog()
        self.backlog.keep_order()
        out = sorted(self.line.out)
        random.shuffle(out)
        for offset in out:
            self.lose(offset)
        self.backlog.record_all()

    def write(self) -> None:
        apply(self.after, changes(self.backlog, "g"))

    def check(self) -> None:
        self.backlog.check()
        assert {
            o for o in range(self.end) if self.backlog.life(o) is MessageState.LEASED
        } == self.line.out

    def drained(self) -> list[int]:
        order = []
        while (offset := self.backlog.next(self.end)) is not None:
            order.append(offset)
            self.backlog.finish(offset)
        return order


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("seed", [*range(20), *checked(range(20, 60))])
def test_against_a_list(seed: int, restarts: bool) -> None:
    random, pair = Random(seed), Pair()
    weights = [random.randrange(1, 9) for _ in range(8)]
    for _ in range(STEPS):
        (step,) = random.choices(range(8), weights)
        if step == 0:
            pair.push(left=False)
        elif step == 1:
            pair.push(left=True)
        elif step == 2:
            pair.pull()
        elif pair.line.out:
            offset = random.choice(sorted(pair.line.out))
            if step in (3, 4):
                pair.lose(offset)
            else:
                (pair.cancel, pair.undo, pair.finish)[step - 5](offset)
        if random.random() < 0.3:
            pair.write()
        if restarts and random.random() < 0.02:
            pair.restart(random)
        pair.check()
    for offset in sorted(pair.line.out, key=lambda _: random.random()):
        pair.lose(offset)
    assert pair.drained() == pair.line.all


@pytest.mark.parametrize("held", [0, 3])
def test_where_no_label_is_left_all_get_new_ones(held: int) -> None:
    """Each is put in front of one that came back, and comes back itself."""
    random, pair = Random(held), Pair()
    for number in range(60):
        pair.push(left=True)
        pair.pull()
        if number > held:
            pair.lose(number - held)
        pair.write()
        pair.check()
    pair.restart(random)
    assert pair.drained() == pair.line.all


def test_what_was_given_back_at_the_end_stays_there() -> None:
    pair = Pair()
    for _ in range(3):
        pair.push(left=False)
    pair.pull()
    pair.pull()
    pair.cancel_right(0)
    pair.lose(1)
    assert pair.drained() == [1, 2, 0]


def test_an_old_journal_does_not_know_the_order() -> None:
    """Then what was handed out first is the first."""
    backlog = Backlog()
    for offset in range(4):
        backlog.lease(offset, 1_000)
    change = changes(backlog, "g")
    assert list(change.entries.ranks) == [0] * 4
    after = Backlog()
    apply(after, change)
    after.keep_order()
    for offset in (2, 0, 3, 1):
        after.put_lost(offset)
    assert [after.next(4)] == [0]
    pair = Pair()
    pair.backlog, pair.end = after, 4
    assert pair.drained() == [0, 1, 2, 3]
