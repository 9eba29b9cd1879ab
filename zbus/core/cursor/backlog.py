"""What a group still has to do in one partition: a cursor and its exceptions.

Offsets below the cursor are finished, offsets from it on are still to come, except for

* `ready`: put back, each with a rank. An entry is next when its rank is at or below the cursor;
  the smallest rank goes first. Put back in front: a rank below everything. Put back at the end:
  the log's end at that moment, so that it follows everything that was there then. Back because its
  lease ended: its own offset, so that old messages come before newer ones.
* `delayed`: wait for a time, then become ready as if put back at the end. When thousands are due
  they stay where they are, which is compact, until it is the turn of their rank: `overdue`.
* `leased`: delivered, not settled; each has a deadline (`zbus.core.cursor.leases`).
* `ahead`: at or past the cursor, yet already taken. The cursor steps over them.
  Those of a double-ended queue come back in order: `zbus.core.cursor.return_order`.
* parked: ready, each with a rank, and yet not next, because its key is busy
  (`zbus.core.cursor.key_order`) or its priority is low (`zbus.core.cursor.priority_order`).

An exception at or past the cursor is always in `ahead` too. A log read in order has no exceptions
at all, so its acknowledgements cost nothing to remember. No time is read here and no message is
seen: the caller passes both.

`zbus.core.cursor.journal` stores its changes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from zbus.core.cursor.due_queue import LOOK_MS, Place
from zbus.core.cursor.key_order import PARKED_MAX, KeyLocks
from zbus.core.cursor.leases import OpenLeases
from zbus.core.cursor.priority_order import PriorityOrder
from zbus.core.cursor.ready_queue import ReadyQueue
from zbus.core.cursor.return_order import ReturnOrder
from zbus.core.model.dispositions import Disposition, Dispositions
from zbus.core.model.lateness import Lateness
from zbus.core.model.message_state import MessageState, moves
from zbus.core.timing.delays import Delays

NO_RANK: Final = 1 << 63
"""Beyond all ranks."""

NEAR: Final = 1_000
"""Offsets that are looked at before all exceptions are."""

ENDED_MAX: Final = 5_000
"""Leases that end in one go. The others end in the turns that follow, which come at once."""

BACK_MAX: Final = 1_000
"""Neighbours that are looked for, which is as many as are read at once."""


class Backlog:
    __slots__ = (
        "_lowest",
        "ahead",
        "attempts",
        "cursor",
        "dead",
        "delayed",
        "dirty",
        "fates",
        "leased",
        "order",
        "ready",
        "reset",
        "returns",
        "skipped",
        "tally",
        "touched",
        "unreported",
        "wake_ms",
    )

    def __init__(self, cursor: int = 0) -> None:
        self.cursor = cursor
        self.ready = ReadyQueue()
        self.delayed = Delays()
        self.leased = OpenLeases()
        self.returns: ReturnOrder | None = None  # of a group whose lost leases go to the front
        self.ahead: set[int] = set()
        self.attempts: dict[int, int] = {}  # offset -> times delivered; exceptions only
        # What is to be stored of it: these offsets, the last changed last, or all there is.
        self.touched: dict[int, None] = {}
        self.reset = False
        self._lowest = -1  # nothing unfinished was below it when it was looked for; -1 = not known
        self.skipped = 0  # messages that the log forgot before they were finished
        self.unreported = 0  # those of them that no delivery reported yet
        self.fates: Dispositions | None = None  # what became of messages, if that is kept
        self.dead = 0  # messages that were given up, ever
        self.tally = Lateness()
        self.order: KeyLocks | PriorityOrder | None = None  # of a group that has one
        self.dirty = False  # the owner's mark: already in this tick's list of changed backlogs
        self.wake_ms = 0  # the owner's mark: when it will call `wake`; 0 = never

    @property
    def places(self) -> dict[int, Place]:
        """What was put back: offset -> its place among all that was."""
        return self.ready.places

    @property
    def in_order(self) -> bool:
        """Nothing goes before the cursor and nothing at it is taken."""
        return not self.ready.places and not self.ahead and not self.ready.overdue

    # -- looking --------------------------------------------------------------------------

    def next(self, end: int, limit: int = NO_RANK) -> int | None:
        """The offset to deliver next; `end` is the first that may not be. The cursor does not pass
        `limit`, and what was put back may be what it waits for."""
        if self.ahead:
            self._step_over()
        reached, there = self.cursor, end
        waits = reached >= limit
        if self.order is not None:
            self.order.settle(self)
            waits = waits or self.ready.parked_count >= PARKED_MAX
        if waits:  # the cursor does; what is put back may be what it waits for
            reached, end = NO_RANK, reached
        if self.ready.overdue:
            self._catch_up(reached)
        offset = self.ready.next(reached, there)
        if offset is not None:
            return offset
        if self.cursor < end:
            return self.cursor
        return None if self.order is None else self.order.next(self)

    def reached(self) -> int:
        """The first offset of which only the log knows something."""
        self._step_over()
        return self.cursor

    def back_from(self, offset: int) -> int:
        """How many neighbours, from this one on, were put back: the first of a batch that comes
        again is wanted with the others. 0 if the cursor comes to it."""
        if offset >= self.cursor:
            return 0
        count = 1
        while count < BACK_MAX and offset + count in self.ready.places:
            count += 1
        return count

    def life(self, offset: int) -> MessageState:
        """Where an offset is. DEAD and DELETED are not told from DONE: nothing is kept of them."""
        if offset in self.leased.dues:
            return MessageState.LEASED
        if offset in self.delayed:
            overdue = self.ready.overdue
            is_due = overdue and self.delayed.due_of(offset) <= overdue.until_ms
            return MessageState.READY if is_due else MessageState.DELAYED
        if offset in self.ready.places:
            return MessageState.READY
        if offset < self.cursor or offset in self.ahead:
            return MessageState.DONE
        return MessageState.READY

    def ready_count(self, end: int) -> int:
        """How many may be delivered now or when the cursor gets there. What is overdue counts as
        delayed until its turn has come."""
        return max(0, end - self.cursor) - len(self.ahead) + len(self.ready.places)

    def floor(self) -> int:
        """Everything below it is finished. Looks at what is ready and leased, but not again before
        the lowest exception is finished, and then first at what comes next: mostly messages are
        finished in their order, and there may be a million leases."""
        places, dues, lowest = self.ready.places, self.leased.dues, self._lowest
        if not (lowest in places or lowest in dues or lowest in self.delayed):
            delayed = self.delayed.lowest()
            stop = self.cursor if delayed is None else min(self.cursor, delayed)
            near = range(lowest, min(stop, lowest + NEAR)) if lowest >= 0 else ()
            found = next((offset for offset in near if offset in dues or offset in places), None)
            if found is None:
                found = min([min(offsets, default=stop) for offsets in (places, dues)])
            # New exceptions come from the cursor on, so there will be none below this one.
            self._lowest = lowest = min(stop, found)
        return min(self.cursor, lowest)

    def next_wake(self) -> int:
        """When the next lease ends or delay is over; 0 = never."""
        leased_ms = self.leased.next_due() or 0
        delayed_ms = (self.delayed.next_due() or 0) if self.delayed else 0
        if self.ready.overdue and delayed_ms:
            delayed_ms = max(delayed_ms, self.ready.overdue.until_ms + LOOK_MS)
        return min(leased_ms, delayed_ms) if leased_ms and delayed_ms else leased_ms or delayed_ms

    # -- steps of a life ------------------------------------------------------------------

    @moves("finish", "delete", "give up")
    def finish(self, offset: int, fate: Disposition = Disposition.DONE) -> bool:
        """READY, LEASED or DELAYED -> DONE. False if it was finished already."""
        if offset in self.leased.dues:
            if self.fates is not None:
                self._note_end(offset, fate)
            self._take(offset)
            self.attempts.pop(offset, None)
            return True
        if self.fates is not None and self.life(offset) is not MessageState.DONE:
            self._note_end(offset, fate)
        if offset == self.cursor and not self.ahead and not self.ready.places:
            self.cursor = offset + 1
            return True
        if self.life(offset) is MessageState.DONE:
            return False
        self._take(offset)
        self.attempts.pop(offset, None)
        return True

    @moves("lease")
    def lease(self, offset: int, deadline_ms: int) -> int:
        """READY -> LEASED. Returns how many times it has been delivered, this one included."""
        place = self.ready.places.get(offset) if self.ready.places else None
        label = self._label_of(offset)
        self._take(offset)
        if self.returns is not None:
            self._label(self.returns, offset, label, place)
        self.touched[offset] = None
        attempts = self.attempts[offset] = self.attempts.get(offset, 0) + 1
        self.leased.set(offset, deadline_ms)
        if place is not None and place[0] != offset:
            self.leased.places[offset] = place
        return attempts

    @moves("lease")
    def lease_next(self, deadline_ms: int) -> int:
        """READY -> LEASED, of what the cursor is at, where everything is in order and nothing comes
        back to the front in its order. Returns the offset; it is delivered for the first time."""
        offset = self.cursor
        self.cursor = offset + 1
        self.touched[offset] = None
        self.attempts[offset] = 1
        self.leased.set(offset, deadline_ms)
        return offset

    @moves("expire")
    def undo_lease(self, offset: int) -> None:
        """LEASED -> READY, where it was: no client has seen it, and that was no attempt."""
        place = self.leased.places.get(offset)
        label = self._label_of(offset)
        self._take(offset)
        if label:
            self._come_back(offset, label)
        elif place is None:
            self._put(offset, offset)
        else:
            self.ready.insert_at(offset, place)
            self._touch(offset)
        self.uncount(offset)

    def uncount(self, offset: int) -> None:
        """The last lease was no attempt."""
        self.attempts[offset] -= 1
        if not self.attempts[offset]:
            del self.attempts[offset]

    @moves("lease")
    def hold(self, offset: int, deadline_ms: int, holder: object = None) -> None:
        """READY -> LEASED, to be settled: no client has it, so it is no attempt."""
        self._take(offset)
        self.touched[offset] = None
        self.leased.set(offset, deadline_ms)
        self.leased.settle_later(offset)
        if holder is not None:
            self.leased.keep([offset], holder)

    def extend(self, offset: int, deadline_ms: int) -> bool:
        """Move the deadline of a lease; False if there is none."""
        if offset not in self.leased.dues or offset in self.leased.settling:
            return False
        self.leased.set(offset, deadline_ms)
        self._touch(offset)
        return True

    def lengthen(self, offsets: list[int], ms: int) -> bool:
        """These leases end that much later, as far as there are such; whether there is any."""
        touched, found = self.touched, self.leased.lengthen(offsets, ms)
        touched.update(dict.fromkeys(found))
        return bool(found)

    @moves("delay", "give back later", "back off")
    def delay(self, offset: int, due_ms: int) -> None:
        """READY or LEASED -> DELAYED."""
        self._take(offset)
        self.touched[offset] = None  # the cursor's own, too
        self.delayed.set(offset, due_ms)

    @moves("give back in front", "due")
    def put_front(self, offset: int) -> None:
        """READY, LEASED or DELAYED -> READY, before everything else."""
        self._put_in_front(offset)

    def _put_in_front(self, offset: int, lost: bool = False) -> None:
        label = self._label_of(offset)
        self._take(offset)
        if label and (lost or self.returns is None or self.returns.is_first(label)):
            self._come_back(offset, label)
        else:
            self._put(offset, self.ready.front())

    @moves("give back in front", "expire")
    def put_lost(self, offset: int) -> None:
        """LEASED -> READY, before everything else, but behind what stood before it."""
        self._put_in_front(offset, lost=True)

    def keep_order(self) -> None:
        """What is delivered may have to come back to the front, in its order."""
        if self.returns is None:
            self.returns = ReturnOrder()
        for offset in self.leased:
            if not self.returns.label_of(offset):
                self.returns.hand_out(offset, None, self.ready.places)

    @moves("again")
    def again(self, offset: int) -> None:
        """READY, DELAYED or DONE -> READY, before everything else. It counts as undelivered."""
        self.attempts.pop(offset, None)
        self._step_over()  # it may be the next one, and finished
        self._put_in_front(offset)
        self._lowest = -1  # it may be below all exceptions so far

    @moves("give back at the end", "due")
    def put_end(self, offset: int, end: int) -> None:
        """READY, LEASED or DELAYED -> READY, after all that the log holds below `end`."""
        self._take(offset)
        self._put(offset, end)

    @moves("expire")
    def put_back(self, offset: int) -> None:
        """LEASED -> READY, at its own place."""
        self._take(offset)
        self._put(offset, offset)

    @moves("give up")
    def give_up(self, offset: int) -> None:
        """READY or LEASED -> DEAD."""
        if self.finish(offset, Disposition.DEAD):
            self.dead += 1

    def park(self, offset: int) -> None:
        """READY, and stays so, but is not next before `unpark`."""
        if offset in self.ready.places:
            self.ready.park(offset)
        else:
            self._take(offset)
            self.ready.insert_parked(offset)
            self._touch(offset)

    def order_by(self, name: str) -> None:
        """Nothing is parked by another order than this one, "" for none."""
        if self.order is not None and self.order.name != name:
            self.order = None
            self.ready.unpark_all()

    def wake(self, now_ms: int, end: int, expire: Callable[[list[int]], None] | None = None) -> int:
        """Messages whose lease ended go back to their places, or where `expire` puts them; what is
        due, to the end. How many were made ready: of what is due, no more than a lot; the others
        when they are needed."""
        ended = self.leased.ended(now_ms, ENDED_MAX)
        if ended and expire is not None:
            expire(ended)
        else:
            for offset in ended:
                self.put_back(offset)
        due_ms = self.delayed.next_due()
        if due_ms is None or due_ms > now_ms:
            return len(ended)
        many = self.ready.became_due(now_ms, end)  # then some were made ready before them
        return len(ended) + (0 if many else self._make_ready())

    def drop_waiting(self, end: int) -> int:
        """READY or DELAYED -> DONE, all below `end`; how many. What is leased stays so."""
        count = self.ready_count(end) + len(self.delayed)
        self.ready.clear()
        self.touched.clear()
        if self.returns is not None:
            self.returns.forget_ready()
        self.delayed.clear()
        self.ahead.clear()
        self.attempts = {o: count for o, count in self.attempts.items() if o in self.leased}
        self.cursor = max(self.cursor, end)
        self._lowest = -1
        self.reset = True
        self._touch_order()
        return count

    def seek(self, cursor: int) -> None:
        """Forget all exceptions and read from `cursor` on."""
        self._clear()
        self.reset = True
        self.cursor = cursor

    def rewind(self, cursor: int) -> None:
        """Read again from `cursor` on; what waits below it stays where it is."""
        self._cut(cursor)
        self.reset = True
        self.cursor = cursor

    def record_all(self) -> None:
        self.reset = True  # `changes` gives next

    def take_over(self, cursor: int, reset: bool) -> None:
        """What is stored of it says so, and its exceptions come next: all of them if `reset`."""
        if reset:
            self._clear()
        self.cursor = cursor
        self._lowest = -1
        if self.ahead:
            self.ahead = {offset for offset in self.ahead if offset >= cursor}

    def truncate(self, end: int) -> None:
        """Offsets from `end` on turned out never to have been written."""
        self.cursor = min(self.cursor, end)
        self._cut(end)
        self.ready.end_at(end)

    def keep_fates(self, kept: bool) -> None:
        """Remember what becomes of messages, from now on, or forget it."""
        if kept != (self.fates is not None):
            self.fates = Dispositions() if kept else None

    def fall_off(self, first: int, counted: bool = True) -> int:
        """Offsets below `first` are no more; how many were not finished, `counted` as lost."""
        if self.floor() >= first:
            return 0
        below = [o for part in (self.ready.places, self.leased) for o in part if o < first]
        lost = sum([self.forget(offset) for offset in below]) + self.delayed.fall_off(first)
        self.attempts = {o: count for o, count in self.attempts.items() if o >= first}
        self.touched = {offset: None for offset in self.touched if offset >= first}
        if self.cursor < first:
            # Of those past the cursor, `ahead` had what was taken: it is counted or was finished.
            left = {offset for offset in self.ahead if offset >= first}
            lost += first - self.cursor - (len(self.ahead) - len(left))
            self.ahead = left
            self.cursor = first
        if counted:
            self.skipped, self.unreported = self.skipped + lost, self.unreported + lost
        self._touch_order()
        return lost

    def copy_from(self, other: Backlog) -> None:
        """Start where another group stands, with everything that it has not finished."""
        self.seek(other.cursor)
        self.delayed.merge(other.delayed)
        self.ahead |= other.ahead
        for offset in other.ready.all_in_order():
            self.ready.insert(offset, other.ready.places[offset][0])
        for offset in other.leased:  # what the other has delivered, this one has not
            self.ready.insert(offset, offset)

    def copy_delayed(self, other: Backlog) -> None:
        """Wait for the messages that another group has not been given because they are not due."""
        self.delayed.merge(other.delayed, without=other.attempts)
        self.delayed.truncate(self.cursor)
        self.reset = True

    # -- parts ----------------------------------------------------------------------------

    def _note_end(self, offset: int, fate: Disposition) -> None:
        """A message is finished, where it is kept how they end."""
        assert self.fates is not None
        self.fates.note(offset, fate, self.attempts.get(offset, 0))
        if fate is Disposition.DEAD or fate is Disposition.EXPIRED:
            self.tally.ended += 1

    def forget(self, offset: int) -> bool:
        """Take an offset out of every exception but `ahead`; True if it was in one."""
        if self.returns is not None:
            self.returns.forget(offset)
        return (
            self.ready.leave(offset) or self.leased.discard(offset) or self.delayed.discard(offset)
        )

    def _touch_order(self) -> None:
        if self.order is not None:
            self.order.touch_all()

    def _clear(self) -> None:
        self.ready.clear()
        for part in (self.attempts, self.touched, self.delayed, self.ahead):
            part.clear()
        self.returns = None
        self.leased = OpenLeases()  # a holder of the former one sees by this that its lease is over
        if self.fates is not None:
            self.fates = Dispositions()  # what is read again is another story
        self._lowest = -1
        self._touch_order()

    def _take(self, offset: int) -> None:
        """Out of wherever it is; the cursor will not give it any more."""
        if offset in self.leased.dues and self.returns is None:
            self.leased.discard(offset)
            self._touch(offset)
        elif self.forget(offset):
            self._touch(offset)
        elif offset == self.cursor:
            self.cursor += 1
        elif offset > self.cursor:
            self.ahead.add(offset)
            self.touched[offset] = None

    def _label_of(self, offset: int) -> int:
        return 0 if self.returns is None else self.returns.label_of(offset)

    def _label(self, returns: ReturnOrder, offset: int, label: int, place: Place | None) -> None:
        """It is delivered, and was at that place."""
        if label:
            returns.set(offset, label)
        else:
            returns.hand_out(offset, place, self.ready.places)
        if returns.renumbered:
            returns.renumbered = False
            for other in returns.offsets():
                self._touch(other)

    def _come_back(self, offset: int, label: int) -> None:
        """Ready again, in its order among all that came back."""
        returns = self.returns
        assert returns is not None
        returns.set(offset, label)
        before = returns.behind(label)
        if before is None:
            # Others may come back between it and what is the first now.
            self._put(offset, self.ready.front() - returns.room(label))
        else:
            self._put_behind(offset, *before)
        returns.come_back(offset)

    def _put_behind(self, offset: int, before: int, distance: int) -> None:
        place = self.ready.places[before]
        at = self.ready.in_line.bisect_right(place)
        end = min(self.ready.in_line.peekitem(at)[0][0], 0) if at < len(self.ready.in_line) else 0
        if end > place[0]:
            self._put(offset, min(place[0] + distance, end - 1))
            return
        # There is no room between the two: all that is before it is put in front once more.
        ahead = list(self.ready.in_line.values()[:at])
        self._put(offset, self.ready.front())
        for other in reversed(ahead):
            self.ready.leave(other)
            self._put(other, self.ready.front())

    def _put(self, offset: int, rank: int) -> None:
        self.ready.insert(offset, rank)
        self._touch(offset)

    def _catch_up(self, reached: int) -> None:
        """Make ready what is overdue and comes next."""
        while self.ready.overdue_is_next(reached):
            self._make_ready()

    def _make_ready(self) -> int:
        """The first lot of what is overdue; how many."""
        found = self.ready.overdue.take(self.delayed, self.tally)
        for offset, place in found:
            self.ready.insert_at(offset, place)
            self._touch(offset)
        return len(found)

    def _touch(self, offset: int) -> None:
        """`changes` tells in this order, so that equal ranks and times keep theirs."""
        self.touched.pop(offset, None)
        self.touched[offset] = None
        if self.order is not None:
            self.order.touch(offset)

    def _step_over(self) -> None:
        while self.cursor in self.ahead:
            self.ahead.remove(self.cursor)
            self.cursor += 1

    def _cut(self, end: int) -> None:
        """Forget all exceptions from `end` on."""
        for offset in [o for part in (self.ready.places, self.leased) for o in part if o >= end]:
            self.forget(offset)
        self.delayed.truncate(end)
        self.ahead = {offset for offset in self.ahead if offset < end}
        self.attempts = {o: count for o, count in self.attempts.items() if o < end}
        self.touched = {offset: None for offset in self.touched if offset < end}
        self._touch_order()

    def check(self) -> None:
        """Assert the invariants of this structure."""
        if self.order is None:
            assert not self.ready.parked()
        else:
            self.order.settle(self)
            self.order.check(self, self.ready.parked(), self.leased.settling)
        kinds = (set(self.ready.places), set(self.leased), set(self.delayed))
        exceptions: set[int] = set().union(*kinds)
        assert sum(map(len, kinds)) == len(exceptions), "an offset is in two exceptions"
        assert all(offset < self.cursor or offset in self.ahead for offset in exceptions)
        assert all(offset >= self.cursor for offset in self.ahead)
        assert set(self.attempts) <= exceptions, "attempts of something finished"
        assert self.floor() == min((self.cursor, *exceptions))
        assert self.unreported <= self.skipped
        self.leased.check()
        self.delayed.check()
        self.ready.check()
        if self.returns is not None:
            self.returns.check(self.leased, self.ready.places)
