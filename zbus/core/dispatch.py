"""Handing messages to waiting pulls.

A group is *active* when something happened that may give it work: a new pull, new messages, a
lease that ended, a portion read back from storage. Active groups are served once per tick, after
the tick was written. A group whose next message is not at hand asks its log for it and is active
again when it came: nobody waits for a disk here.
"""

from __future__ import annotations

from bisect import bisect_left
from functools import partial
from itertools import accumulate
from operator import add

from zbus.core.chunk import Chunk
from zbus.core.errors import BrokerError
from zbus.core.follow import Following
from zbus.core.outcomes import Delivered, Empty, EmptyReason, Piece
from zbus.core.outside import Outside
from zbus.core.recorder import Recorder
from zbus.core.tick import Tick
from zbus.core.timers import Timers
from zbus.core.topic import Group, Partition, Pull

SKIPS_PER_TICK_MAX = 2_000
"""Messages that one group may pass over in one tick (not wanted, not due, expired), so that others
get their turn."""

ALL_SKIPS_PER_TICK_MAX = 20_000
"""The same for all groups together. A group that comes later in the tick passes over one, and is
among the first in the next tick."""

BATCHED_PER_TICK_MAX = 5_000
"""Messages handed out in batches in one tick. The batch that passes it is finished; who wants more
waits for the next tick, behind those that got none in this."""

LIVE_MS = 20
LIVE_BYTES_MAX = 32 << 10
"""So long after a put, an answer with many messages has at most so many bytes: who replays a log
must not make those wait who work at its end."""

WOKEN_PER_TURN_MAX = 5_000
"""Messages made ready in one turn because they became due, about, of all groups together."""


class Dispatch:
    """See the module."""

    def __init__(self, recorder: Recorder, timers: Timers, outside: Outside) -> None:
        self._outside = outside
        self.tick = Tick(recorder, self.wake_readers, timers.faults)
        self._blame = timers.faults.blame
        self.following = Following(timers)
        self.active: list[Group] = []
        self._fresh: list[Pull] = []  # this tick's pulls with a deadline
        self._pulls = timers.timer(self._time_is_up, lambda pull: pull.session)
        self._wakes = timers.timer(self._wake, lambda place: place[0])
        self._skips_left = 0  # of the group that is being served
        self._all_skips_left = 0
        self._starved: set[Group] = set()  # were given less than their part of this tick
        self.leased: list[tuple[Group, int, int]] = []  # in this turn: partition and offset
        self._leased_ms = 0  # from when on
        self._woken_left = WOKEN_PER_TURN_MAX
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
        waiting = group.waiting
        if waiting:
            session = pull.session
            older = waiting.get(session)
            if older is not None:
                if pull.wants.replaces and older.wants.replaces:
                    self.end(older, EmptyReason.REPLACED)
                else:
                    pull.key = pull
                    session.pulls = session.pulls or {}
                    session.pulls.setdefault(group, {})[pull] = None
        waiting[pull.key] = pull
        if deadline_ms is not None:
            pull.deadline_ms = deadline_ms
            self._fresh.append(pull)
        if not group.active:
            group.active = True
            self.active.append(group)

    def schedule(self, group: Group, index: int) -> None:
        """See to it that the backlog is woken when its next lease or delay ends."""
        backlog = group.backlogs[index]
        wake_ms = backlog.next_wake()
        if wake_ms and (not backlog.wake_ms or wake_ms < backlog.wake_ms):
            backlog.wake_ms = wake_ms
            self._wakes.set((group, index), wake_ms)

    def _wake(self, place: tuple[Group, int]) -> None:
        """Leases or delays of a group ended in a partition."""
        if self._woken_left <= 0:
            self._wakes.set(place, self.tick.now_ms)
            return
        group, index = place
        backlog = group.backlogs[index]
        partition = group.topic.partitions[index]
        backlog.wake_ms = 0
        if count := backlog.wake(self.tick.now_ms, partition.end):
            self.tick.change(partition, group)
        self._woken_left -= 1 + count
        self.schedule(group, index)
        self.activate(group)

    def lengthen_leases(self) -> None:
        """The leases of this turn begin now, which is later than was reckoned."""
        leased, self.leased = self.leased, []
        ms = self._outside.asked_ms() - self._leased_ms
        for group, index, offset in leased if ms > 0 else ():
            backlog = group.backlogs[index]
            try:
                if offset in backlog.leased:
                    backlog.extend(offset, backlog.leased.due_of(offset) + ms)
                    self.tick.change(group.topic.partitions[index], group)
            except Exception as error:
                self._blame(group, error)

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
        self._woken_left = WOKEN_PER_TURN_MAX
        self._batched_left = BATCHED_PER_TICK_MAX
        self._all_skips_left = ALL_SKIPS_PER_TICK_MAX
        if self._starved:
            self._starved.clear()
        for group in active:
            group.active = False
            if group.waiting and not group.paused:
                try:
                    self._serve(group)
                except Exception as error:
                    self._blame(group, error)
        if self._sated:
            sated, self._sated = self._sated, []
            for group in sated:
                self.activate(group)
        if self._failed:
            failed, self._failed = self._failed, []
            for group, why in failed:
                self.end_waiting(group, why)
        if self._fresh:
            fresh, self._fresh = self._fresh, []
            for pull in fresh:
                if pull.open:
                    if pull.deadline_ms <= self.tick.now_ms:
                        try:
                            self._expire_pull(pull)
                        except Exception as error:
                            self._blame(pull.session, error)
                    else:
                        self._pulls.set(pull, pull.deadline_ms)

    def _serve(self, group: Group) -> None:
        waiting = group.waiting
        set_aside: list[Pull] = []  # want one partition only, or cannot take a message now
        skips_max = min(SKIPS_PER_TICK_MAX, max(self._all_skips_left, 1))
        self._skips_left = skips_max
        try:
            self._serve_waiting(group, set_aside)
        finally:
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

    def _serve_waiting(self, group: Group, set_aside: list[Pull]) -> None:
        waiting = group.waiting
        while waiting:
            pull = next(iter(waiting.values()))
            many = pull.wants.many
            if many and self._batched_left <= 0:
                self.activate(group)
                break
            session = pull.session
            stalled = session.stalled or session.leaving
            stalled = stalled or (pull.handed is not None and pull.full(group))
            pieces = [] if stalled else self._take(group, pull)
            if not pieces:
                if pull.wants.partition is None and not stalled:
                    break
                set_aside.append(pull)
                del waiting[pull.key]
                continue
            self._hand_over(group, pull, pieces)
            if many:
                self._batched_left -= sum([piece.stop - piece.start for piece in pieces])
                if self._batched_left <= 0:
                    self._sated.append(group)
                    break

    def _hand_over(self, group: Group, pull: Pull, pieces: list[Piece]) -> None:
        waiting = group.waiting
        if pull.wants.window and group.lease:
            pull.handed = pull.handed or set()
            for index, chunk, start, stop, _ in pieces:
                pull.handed.update((index, chunk.first + at) for at in range(start, stop))
        delivered = Delivered(group, pieces, self._tell(group) if group.untold else 0)
        if pull.credit > 1:
            pull.credit -= 1
            waiting.move_to_end(pull.key)
            try:
                pull.answer(delivered)
            except Exception as error:
                pull.failed(error)
            return
        del waiting[pull.key]
        self._pulls.discard(pull)
        if pull.key is pull:
            self._forget(pull)
        pull.settle(delivered)

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

    # -- taking messages ------------------------------------------------------------------

    def _take(self, group: Group, pull: Pull) -> list[Piece]:
        """The next messages for this pull, as many as it wants and are there without waiting;
        partitions have their turns."""
        wants, count_max = pull.wants, pull.wants.count_max
        if group.lease:
            count_max = min(count_max, group.options.window - group.leased_count())
        bytes_max = wants.bytes_max
        if count_max > 1 and self.tick.now_ms - self.tick.put_ms <= LIVE_MS:
            bytes_max = min(bytes_max, LIVE_BYTES_MAX)
        pieces = _Pieces(count_max, bytes_max)
        count = len(group.backlogs)
        if wants.partition is not None:
            self._scan(group, wants.partition, pull, pieces)
        elif count == 1:
            self._scan(group, 0, pull, pieces)
        else:
            for step in range(count):
                index = (group.turn + step) % count
                self._scan(group, index, pull, pieces)
                if pieces.full:
                    group.turn = index + 1
                    break
        return pieces.found

    def _scan(self, group: Group, index: int, pull: Pull, pieces: _Pieces) -> None:
        """Take what is next in one partition and due, not expired and wanted."""
        backlog = group.backlogs[index]
        partition = group.topic.partitions[index]
        if partition.fenced is not None:
            return
        now_ms, lease, match = self.tick.now_ms, group.lease, group.match
        while not pieces.full:
            offset = backlog.next(partition.visible)
            if offset is None:
                return
            chunk = self.at_hand(group, index, partition, offset)
            if chunk is None:
                chunk = self._fetch(group, index, partition, offset)
                if chunk is None:
                    return
            if not backlog.dirty:
                self.tick.change(partition, group)
            at = offset - chunk.first
            if not (lease or match or chunk.timed) and backlog.in_order:
                stop = pieces.add_run(index, chunk, at, at + partition.visible - offset)
                backlog.cursor = chunk.first + stop
                continue
            due_ms = 0 if chunk.due is None else chunk.due[at]
            expires_ms = 0 if chunk.expires is None else chunk.expires[at]
            if due_ms > now_ms:
                backlog.delay(offset, due_ms)
                self.schedule(group, index)
                if (watch := partition.topic.followed) is not None:
                    self.following.delay(watch, index, offset, due_ms)
            elif expires_ms and expires_ms <= now_ms:
                backlog.finish(offset)
            elif match is not None and not match(chunk.tag_of(at)):
                backlog.finish(offset)
                pull.skipped = True
            elif lease:
                if not self.leased:
                    self._leased_ms = self._outside.asked_ms()
                self.leased.append((group, index, offset))
                attempts = backlog.lease(offset, self._leased_ms + group.options.lease_ms)
                self.schedule(group, index)
                pieces.add(index, chunk, at, attempts)
                continue
            else:
                backlog.finish(offset)
                pieces.add(index, chunk, at, 0)
                continue
            self._skips_left -= 1
            if self._skips_left <= 0:
                return

    def at_hand(self, group: Group, index: int, partition: Partition, offset: int) -> Chunk | None:
        """The chunk that holds an offset. A group mostly goes on where it was."""
        chunk = group.chunks[index]
        if 0 <= offset - chunk.first < len(chunk.bodies):
            return chunk
        log = partition.log
        found = log.find(offset)
        if found is not None:
            group.chunks[index] = found
            if not found.recent:
                log.read_on(found)
        return found

    def _fetch(self, group: Group, index: int, partition: Partition, offset: int) -> Chunk | None:
        alone = offset < group.backlogs[index].cursor
        partition.log.fetch(offset, group, partial(self._fetched, group, index), alone)
        # If storage answered at once it is here now.
        return self.at_hand(group, index, partition, offset)

    def _fetched(self, group: Group, index: int, found: Chunk | BrokerError | None) -> None:
        if isinstance(found, BrokerError):
            # Not now: a pull that is being served may have got some messages already.
            self._failed.append((group, found))
            return
        self.activate(group)
        if found is not None:
            group.chunks[index] = found
            if not found.recent:
                group.topic.partitions[index].log.read_on(found)

    def _forget(self, pull: Pull) -> None:
        """A pull that its session knows of waits no more."""
        pull.key = pull.session  # or it would hold on to itself
        pulls = pull.session.pulls
        if pulls is not None and (beside := pulls.get(pull.group)) is not None:
            beside.pop(pull, None)
            if not beside:
                del pulls[pull.group]

    # -- ends without a message -----------------------------------------------------------

    def _time_is_up(self, pull: Pull) -> None:
        """A pull has waited as long as it would."""
        if pull.group.active:
            self._fresh.append(pull)  # it has its turn in this tick, and then ends
        else:
            self._expire_pull(pull)

    def _expire_pull(self, pull: Pull) -> None:
        group = pull.group
        searching = any(p.log.awaits(group) for p in group.topic.partitions)
        # It had no turn, or not all of it.
        crowded = group in self._starved or (pull.wants.count_max > 1 and self._batched_left <= 0)
        if searching or (group.active and (crowded or not pull.postponed)):
            # It may have a message yet: the search goes on in the next tick.
            pull.postponed = True
            self._pulls.set(pull, self.tick.now_ms + 1)
            return
        self.end(pull, group.empty_reason(pull))

    def end(self, pull: Pull, reason: EmptyReason | BrokerError) -> None:
        """The pull ends with nothing."""
        group = pull.group
        if group.waiting.get(pull.key) is pull:
            del group.waiting[pull.key]
        self._pulls.discard(pull)
        if pull.key is pull:
            self._forget(pull)
        if not pull.open:
            return
        if pull.session.closed:
            pull.drop()
        else:
            pull.settle(reason if isinstance(reason, BrokerError) else Empty(group, reason))


class _Pieces:
    """What one pull has got so far, and how much more it may get."""

    __slots__ = ("bytes_left", "count_left", "found")

    def __init__(self, count_max: int, bytes_max: int) -> None:
        self.found: list[Piece] = []
        self.count_left = count_max
        self.bytes_left = bytes_max

    @property
    def full(self) -> bool:
        return self.count_left <= 0 or self.bytes_left <= 0

    def add(self, index: int, chunk: Chunk, at: int, attempts: int) -> None:
        """One message; it may continue the last piece."""
        self.count_left -= 1
        self.bytes_left -= len(chunk.bodies[at]) + len(chunk.headers[at])
        if self.found:
            last = self.found[-1]
            if last.chunk is chunk and last.stop == at and last.attempts == attempts:
                self.found[-1] = Piece(index, chunk, last.start, at + 1, attempts)
                return
        self.found.append(Piece(index, chunk, at, at + 1, attempts))

    def add_run(self, index: int, chunk: Chunk, start: int, stop: int) -> int:
        """Rows of a chunk up to `stop` at most, as many as fit; give the row after them."""
        stop = min(stop, start + self.count_left, len(chunk.bodies))
        rows = slice(start, stop)
        sizes = map(add, map(len, chunk.bodies[rows]), map(len, chunk.headers[rows]))
        totals = list(accumulate(sizes))
        count = min(bisect_left(totals, self.bytes_left) + 1, stop - start)
        size = totals[count - 1]
        self.count_left -= count
        self.bytes_left -= size
        self.found.append(Piece(index, chunk, start, start + count))
        return start + count
