"""Handing messages to waiting pulls.

A group is *active* when something happened that may give it work: a new pull, new messages, a
lease that ended, a portion read back from storage. Active groups are served once per tick, after
the tick was written. A group whose next message is not at hand asks the recorder for it and is
active again when it came: nobody waits for a disk here.
"""

from __future__ import annotations

from zbus.core.deadlines import Deadlines
from zbus.core.errors import BrokerError, damaged
from zbus.core.follow import Following
from zbus.core.group import Group, Pull
from zbus.core.history import PORTION_BACK, History
from zbus.core.outcomes import Delivered, Empty, EmptyReason, Record
from zbus.core.recorder import Found, Recorder
from zbus.core.tick import Tick
from zbus.core.topic import Cache, Partition

SKIPS_PER_TICK_MAX = 2_000
"""Messages that one group may pass over in one tick (not wanted, not due, expired), so that others
get their turn."""

ALL_SKIPS_PER_TICK_MAX = 20_000
"""The same for all groups together. A group that comes later in the tick passes over one, and is
among the first in the next tick."""

BATCHED_PER_TICK_MAX = 5_000
"""Messages handed out in batches in one tick. The batch that passes it is finished; who wants more
waits for the next tick, behind those that got none in this."""

WOKEN_PER_TURN_MAX = 5_000
"""Messages made ready in one turn because they became due, about, of all groups together."""

_NOWHERE = (-1, -1)


class Dispatch:
    """See the module."""

    def __init__(self, recorder: Recorder, cache: Cache, history: History) -> None:
        self._recorder = recorder
        self._history = history
        self.tick = Tick(recorder, cache, self.wake_readers)
        self.following = Following(recorder, history)
        self.active: list[Group] = []
        self._fresh: list[tuple[Pull, int]] = []  # this tick's pulls with a deadline
        self._pulls: Deadlines[Pull] = Deadlines()
        self._wakes: Deadlines[tuple[Group, int]] = Deadlines()
        self._skips_left = 0  # of the group that is being served
        self._all_skips_left = 0
        self._starved: set[Group] = set()  # were given less than their part of this tick
        self._batched_left = 0
        self._sated: list[Group] = []  # had their part of this tick, and want more
        self._failed: list[tuple[Group, BrokerError]] = []  # whose next message cannot be read

    # -- what makes groups active ---------------------------------------------------------

    def activate(self, group: Group) -> None:
        if not group.active:
            group.active = True
            self.active.append(group)

    def wake_readers(self, partition: Partition) -> None:
        """More of the partition may be handed out."""
        for group in partition.topic.groups.values():
            if group.waiting and not group.active:
                group.active = True
                self.active.append(group)
        if partition.topic.followed is not None:
            self.following.wake(partition.topic.followed)

    def pull(self, group: Group, pull: Pull, deadline_ms: int | None) -> None:
        """Queue up; the pull is served or ended later, in this tick at the earliest."""
        pull.group = group
        session = pull.session
        older = group.waiting.get(session)
        if older is not None:
            if pull.replaces and older.replaces:
                self.end(older, EmptyReason.REPLACED)
            else:
                pull.key = pull
                session.pulls = session.pulls or {}
                session.pulls[pull] = None
        group.waiting[pull.key] = pull
        if deadline_ms is not None:
            self._fresh.append((pull, deadline_ms))
        self.activate(group)

    def schedule(self, group: Group, index: int) -> None:
        """See to it that the backlog is woken when its next lease or delay ends."""
        backlog = group.backlogs[index]
        wake_ms = backlog.next_wake()
        if wake_ms and (not backlog.wake_ms or wake_ms < backlog.wake_ms):
            backlog.wake_ms = wake_ms
            self._wakes.set((group, index), wake_ms)

    def expire(self, now_ms: int) -> None:
        """Everything that became due: leases, delays, pulls that waited long enough."""
        woken = 0
        while woken < WOKEN_PER_TURN_MAX and (found := self._wakes.pop_first(now_ms)) is not None:
            group, index = found
            backlog = group.backlogs[index]
            partition = group.topic.partitions[index]
            backlog.wake_ms = 0
            if count := backlog.wake(now_ms, partition.end):
                self.tick.change(partition, group)
            woken += 1 + count
            self.schedule(group, index)
            self.activate(group)
        for pull in self._pulls.pop_due(now_ms):
            self._expire_pull(pull, now_ms)

    def next_due(self) -> int | None:
        """When `expire` has something to do."""
        pulls, wakes = self._pulls.next_due(), self._wakes.next_due()
        return min(pulls, wakes) if pulls and wakes else pulls or wakes

    def end_waiting(self, group: Group, reason: EmptyReason | BrokerError) -> None:
        """All pulls of a group end with nothing."""
        for pull in list(group.waiting.values()):
            self.end(pull, reason)

    def forget(self, group: Group) -> None:
        """The group is gone."""
        for index in range(len(group.backlogs)):
            self._wakes.discard((group, index))

    # -- serving --------------------------------------------------------------------------

    def run(self) -> None:
        """Serve every active group."""
        active, self.active = self.active, []
        self._batched_left = BATCHED_PER_TICK_MAX
        self._all_skips_left = ALL_SKIPS_PER_TICK_MAX
        self._starved.clear()
        for group in active:
            group.active = False
            if group.waiting and not group.paused:
                self._serve(group)
        if self._sated:
            sated, self._sated = self._sated, []
            for group in sated:
                self.activate(group)
        if self._failed:
            failed, self._failed = self._failed, []
            for group, error in failed:
                self.end_waiting(group, error)
        if self._fresh:
            fresh, self._fresh = self._fresh, []
            for pull, deadline_ms in fresh:
                if pull.ticket.open:
                    if deadline_ms <= self.tick.now_ms:
                        self._expire_pull(pull, deadline_ms)
                    else:
                        self._pulls.set(pull, deadline_ms)

    def _serve_in_order(self, group: Group) -> None:
        """The usual case of `_serve` and nothing else: a log read in order, one message a pull.

        Stops at the first thing that is not usual; `_serve` goes on from there.
        """
        backlog = group.backlogs[0]
        partition = group.topic.partitions[0]
        waiting, pulls = group.waiting, self._pulls
        while waiting and backlog.in_order and backlog.cursor < partition.visible:
            offset = backlog.cursor
            message = partition.cache.get(offset)
            if message is None or message.due_ms or message.expires_ms:
                return
            key, pull = waiting.popitem(last=False)
            if pull.credit > 1 or pull.count_max > 1 or pull.session.stalled:
                waiting[key] = pull
                waiting.move_to_end(key, last=False)
                return
            if not backlog.dirty:
                self.tick.change(partition, group)
            backlog.cursor = offset + 1
            if pulls:
                pulls.discard(pull)
            if key is pull:
                self._forget(pull)
            pull.ticket.settle(Delivered(group, [Record(0, offset, message, 0)]))

    def _serve(self, group: Group) -> None:
        usual = len(group.backlogs) == 1 and not group.lease and group.match is None
        if usual and not group.untold:
            self._serve_in_order(group)
        waiting, pulls = group.waiting, self._pulls
        set_aside: list[Pull] = []  # want one partition only, or cannot take a message now
        skips_max = min(SKIPS_PER_TICK_MAX, max(self._all_skips_left, 1))
        self._skips_left = skips_max
        while waiting:
            pull = next(iter(waiting.values()))
            many = pull.count_max > 1 or pull.credit > 1
            if many and self._batched_left <= 0:
                self.activate(group)
                break
            stalled = pull.session.stalled or (pull.window > 0 and pull.full(group))
            record = None if stalled else self._next(group, pull)
            if record is None:
                if pull.partition is None and not stalled:
                    break
                set_aside.append(pull)
                del waiting[pull.key]
                continue
            records = [record] if pull.count_max == 1 else self._collect(group, pull, record)
            if pull.window and group.lease:
                pull.handed.update((record.partition, record.offset) for record in records)
            delivered = Delivered(group, records, self._tell(group) if group.untold else 0)
            if pull.credit > 1:
                pull.credit -= 1
                waiting.move_to_end(pull.key)
                pull.ticket.answer(delivered)
            else:
                del waiting[pull.key]
                if pulls:
                    pulls.discard(pull)
                if pull.key is pull:
                    self._forget(pull)
                pull.ticket.settle(delivered)
            if many:
                self._batched_left -= len(records)
                if self._batched_left <= 0:
                    self._sated.append(group)
                    break
        for pull in reversed(set_aside):
            waiting[pull.key] = pull
            waiting.move_to_end(pull.key, last=False)
        self._all_skips_left -= skips_max - self._skips_left
        if self._skips_left <= 0:
            if skips_max < SKIPS_PER_TICK_MAX:
                self._starved.add(group)
                self.activate(group)
            else:
                self._sated.append(group)
        if group.reading:
            self._read_on(group)

    def _tell(self, group: Group) -> int:
        """How many messages the group has lost that no delivery has told of yet."""
        group.untold = False
        count = 0
        for backlog, partition in zip(group.backlogs, group.topic.partitions, strict=True):
            if backlog.untold:
                count += backlog.untold
                backlog.untold = 0
                self.tick.change(partition, group)
        return count

    def _collect(self, group: Group, pull: Pull, first: Record) -> list[Record]:
        """`first`, and up to `count_max` messages with it, without waiting."""
        records = [first]
        size = len(first.message.body) + len(first.message.headers)
        while len(records) < pull.count_max and size < pull.bytes_max:
            record = self._next(group, pull)
            if record is None:
                break
            records.append(record)
            size += len(record.message.body) + len(record.message.headers)
        return records

    def _next(self, group: Group, pull: Pull) -> Record | None:
        """The next message for this pull, taken; partitions have their turns."""
        if group.lease and group.window_full():
            return None
        count = len(group.backlogs)
        if count == 1:
            return self._scan(group, 0, pull)
        if pull.partition is not None:
            return self._scan(group, pull.partition, pull)
        for step in range(count):
            index = (group.turn + step) % count
            record = self._scan(group, index, pull)
            if record is not None:
                group.turn = index + 1
                return record
        return None

    def _scan(self, group: Group, index: int, pull: Pull) -> Record | None:
        """Take the next message of one partition that is due, not expired and wanted."""
        backlog = group.backlogs[index]
        partition = group.topic.partitions[index]
        now_ms = self.tick.now_ms
        lease = group.lease
        while (offset := backlog.next(partition.visible)) is not None:
            message = partition.cache.get(offset)
            if message is None:
                self._fetch(partition, offset, group)
                # If storage answered at once it is here now, and perhaps not any more when the
                # other groups have read back what they want.
                message = partition.cache.get(offset)
                if message is None:
                    return None
            if not backlog.dirty:
                self.tick.change(partition, group)
            if message.due_ms > now_ms:
                backlog.delay(offset, message.due_ms)
                self.schedule(group, index)
                if (watch := partition.topic.followed) is not None:
                    self.following.delay(watch, index, offset, message)
            elif message.expires_ms and message.expires_ms <= now_ms:
                backlog.finish(offset)
            elif group.match is not None and not group.match(message.tag):
                backlog.finish(offset)
                pull.skipped = True
            elif not lease:
                backlog.finish(offset)
                return Record(index, offset, message, 0)
            else:
                attempts = backlog.lease(offset, now_ms + group.options.lease_ms)
                self.schedule(group, index)
                return Record(index, offset, message, attempts)
            self._skips_left -= 1
            if self._skips_left <= 0:
                return None
        return None

    def _fetch(self, partition: Partition, offset: int, group: Group) -> None:
        partition.wanted_by[group] = offset
        if not partition.fetching:
            self._read(partition, offset)

    def _read_on(self, group: Group) -> None:
        """A group that has come to the newest portion will want the next: ask for it now. So at
        most one portion is ahead of a group, and one is on its way to a partition."""
        for index, (first, end) in list(group.reading.items()):
            partition = group.topic.partitions[index]
            cursor = group.backlogs[index].cursor
            if cursor < first or partition.fetching:
                continue
            if end not in partition.cache and cursor <= end < partition.visible:
                if not self._history.crowded:
                    self._read(partition, end)
                continue
            # It may be here already, for another group.
            del group.reading[index]
            for portion in partition.read_back:
                if cursor <= end and portion.first <= end < portion.end:
                    group.reading[index] = (portion.first, portion.end)

    def _read(self, partition: Partition, offset: int) -> None:
        partition.fetching = True
        index = partition.index
        groups = partition.topic.groups

        def done(found: Found) -> None:
            partition.fetching = False
            wanted_by, partition.wanted_by = partition.wanted_by, {}
            asked = [g for g in groups.values() if g.reading.get(index, _NOWHERE)[1] == offset]
            for group in asked:
                del group.reading[index]
            if isinstance(found, BrokerError):
                # Not now: a pull that is being served may have got some messages already.
                self._failed.extend((waiter, found) for waiter in wanted_by)
                return
            if found:
                first, end = found[0][0], found[-1][0] + 1
                self._history.admit(partition, first, [message for _, message in found])
                for group in groups.values():
                    if group in asked or first <= group.backlogs[index].cursor < end:
                        group.reading[index] = (first, end)
            missing = offset >= partition.first and not (found and found[0][0] <= offset)
            for waiter, wanted in wanted_by.items():
                if missing and wanted == offset:
                    # To look for it again, and again, would help nobody.
                    self._failed.append((waiter, damaged(partition.index, offset)))
                else:
                    self.activate(waiter)

        portion = self._history.portion(partition)
        cursors = [group.backlogs[index].cursor for group in partition.wanted_by]
        if offset < min(cursors, default=0):
            portion = PORTION_BACK
        self._recorder.fetch(partition, offset, portion, done)

    def _forget(self, pull: Pull) -> None:
        """A pull that its session knows of waits no more."""
        if pull.session.pulls is not None:
            pull.session.pulls.pop(pull, None)

    # -- ends without a message -----------------------------------------------------------

    def _expire_pull(self, pull: Pull, now_ms: int) -> None:
        group = pull.group
        assert group is not None
        searching = any(group in p.wanted_by for p in group.topic.partitions)
        # It had no turn, or not all of it.
        crowded = group in self._starved or (pull.count_max > 1 and self._batched_left <= 0)
        if searching or (group.active and (crowded or not pull.postponed)):
            # It may have a message yet: the search goes on in the next tick.
            pull.postponed = True
            self._pulls.set(pull, now_ms + 1)
            return
        self.end(pull, group.empty_reason(pull))

    def end(self, pull: Pull, reason: EmptyReason | BrokerError) -> None:
        """The pull ends with nothing."""
        group = pull.group
        assert group is not None
        if group.waiting.get(pull.key) is pull:
            del group.waiting[pull.key]
        self._pulls.discard(pull)
        if pull.key is pull:
            self._forget(pull)
        if pull.ticket.open:
            outcome = reason if isinstance(reason, BrokerError) else Empty(group, reason)
            pull.ticket.settle(outcome)
