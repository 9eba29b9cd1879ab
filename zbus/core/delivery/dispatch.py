"""Handing messages to waiting pulls.

Active groups (`zbus.core.delivery.run_queue`) are served once per tick, after the tick was written.
A group whose next message is not at hand asks its log for it and is active again when it came: no
request waits for a disk here. Each group has its part of a turn (`zbus.core.delivery.budget`).
"""

from __future__ import annotations

from functools import partial

from zbus.core.commit.tick import Tick
from zbus.core.cursor.backlog import NO_RANK
from zbus.core.delivery import retries
from zbus.core.delivery.budget import TurnBudget
from zbus.core.delivery.durable import deliver_when_durable
from zbus.core.delivery.expiry import Expiry
from zbus.core.delivery.prefetch import Prefetch
from zbus.core.delivery.pulls import WaitingPulls
from zbus.core.delivery.run_queue import RunQueue
from zbus.core.delivery.turn_leases import TurnLeases
from zbus.core.fanout.follow import FanOut
from zbus.core.model.chunk import Chunk
from zbus.core.model.dispositions import Disposition
from zbus.core.model.pull_options import PullOptions
from zbus.core.model.request_clock import RequestClock
from zbus.core.persistence.storage import Storage
from zbus.core.timing.timers import Timers
from zbus.core.topics.calls import Calls
from zbus.core.topics.delivery_batch import DeliveryBatch
from zbus.core.topics.growth import limits
from zbus.core.topics.outcomes import Delivered, Slice
from zbus.core.topics.parked_pulls import Line, ParkedPulls
from zbus.core.topics.topic import Group, Partition, Pull, Session

LIVE_MS = 20
LIVE_BYTES_MAX = 32 << 10
"""This long after a put, an answer with many messages has at most that many bytes: who replays a
log must not make those wait who work at its end."""


class Dispatch:
    def __init__(
        self,
        storage: Storage,
        timers: Timers,
        request_clock: RequestClock,
        waiting_max: int,
        calls: Calls,
    ) -> None:
        self.held = False  # nothing is delivered for now
        self.tick = tick = Tick(storage, timers.faults)
        self.following = FanOut(timers)
        self.runs = RunQueue(tick, self.following, timers, self.wake)
        self._budget = TurnBudget()
        self.pulls = WaitingPulls(self.runs, self._budget, timers, waiting_max)
        self.leases = TurnLeases(self.runs, request_clock)
        self._prefetch = Prefetch(self.runs.activate)
        self.at_hand = self._prefetch.at_hand
        self._rates = timers.timer(self.runs.activate, lambda group: group)  # of slow groups
        self._calls = calls
        self.expiry = Expiry(self.runs, timers)
        tick.hooks.visible, tick.hooks.expiring = self.wake_readers, self.expiry.note

    # -- what makes groups active ---------------------------------------------------------

    def wake_readers(self, partition: Partition) -> None:
        """More of the partition may be delivered."""
        for group in partition.topic.groups.values():
            if (group.waiting or group.aside is not None) and not group.active:
                group.active = True
                self.runs.active.append(group)
        if partition.topic.followed is not None:
            self.following.wake(partition.topic.followed)

    def wake(self, place: tuple[Group, int]) -> None:
        """Leases or delays of a group ended in a partition."""
        runs, budget = self.runs, self._budget
        if budget.woken <= 0:
            runs.wakes.set(place, self.tick.now_ms)
            return
        group, index = place
        backlog = group.backlogs[index]
        partition = group.topic.partitions[index]
        backlog.wake_ms = 0
        expire = partial(retries.expire, runs, group, index)
        if count := backlog.wake(self.tick.now_ms, partition.end, expire):
            self.tick.change(partition, group)
        budget.woken -= 1 + count
        runs.schedule(group, index)
        runs.activate(group)

    def forget(self, group: Group) -> None:
        """The group is gone."""
        self.runs.forget(group)
        self._rates.discard(group)

    # -- serving --------------------------------------------------------------------------

    def serve(self, group: Group) -> None:
        """Deliver now what is durable, and not at the end of the turn: the caller depends on it."""
        cancelled = group in self.pulls.cancelled
        if group.active and group.waiting and not (group.paused or cancelled or self.held):
            self._serve(group)

    def run(self) -> None:
        """Serve every active group."""
        if self.held or not (self.runs.active or self._prefetch.failed):
            return
        runs, pulls = self.runs, self.pulls
        active, runs.active = runs.active, []
        self._budget.begin()
        for group in active:
            group.active = False
            if group in pulls.cancelled or group.paused:
                continue
            if group.waiting or group.aside is not None:
                try:
                    self._serve(group)
                except Exception as error:
                    self.tick.faults.quarantine(group, error)
        if self._budget.next_turn:
            next_turn, self._budget.next_turn = self._budget.next_turn, []
            for group in next_turn:
                runs.activate(group)
        if self._prefetch.failed:
            failed, self._prefetch.failed = self._prefetch.failed, []
            for group, why in failed:
                pulls.cancel(group, why)
        pulls.end_turn()

    def _serve(self, group: Group) -> None:
        self._budget.begin_group()
        grown = group.topic.options.grown
        if grown:
            group.limits = limits(group)
        if group.aside is None or self._serve_aside(group, group.aside):
            self._serve_line(group, group.waiting)
        more = self._budget.end_group(group)
        if more or (grown and group.limits and limits(group) != group.limits):
            self.runs.activate(group)

    def _serve_aside(self, group: Group, aside: ParkedPulls[Pull]) -> bool:
        """Those who were looked at before, where there is something for them; False if the group
        has had its part of this tick."""
        group.put_back(aside.take_full())
        backlogs, partitions = group.backlogs, group.topic.partitions
        for index in list(aside.lines):
            line = group.limits[index] if group.limits else NO_RANK
            if backlogs[index].next(partitions[index].visible, line) is None:
                continue
            if not self._serve_line(group, aside.lines[index]):
                return False
            if index in aside.lines:  # if the window is too narrow for all, they take turns
                aside.lines[index] = aside.lines.pop(index)
        return True

    def _serve_line(self, group: Group, line: Line[Pull]) -> bool:
        """Hand out to those in a line until there is nothing for one who would take anything. False
        if the group has had its part of this tick."""
        choosy = line is group.waiting and len(group.backlogs) > 1  # some want one partition only
        while line:
            pull = next(iter(line.values()))
            wants, session = pull.wants, pull.session
            if wants.many and self._budget.batched <= 0:
                self.runs.activate(group)
                return False
            if group.rate is not None and self._waits_for_rate(group):
                return False
            if session.stalled or session.leaving:
                group.park(pull).stall(pull)
                continue
            if pull.handed is not None and pull.full(group):
                group.park(pull).fill(pull)
                continue
            index = wants.partition if choosy else None
            if index is not None and group.aside is not None and index in group.aside.lines:
                pieces = []  # others were there before
            else:
                pieces = self._take(group, pull)
            if pieces:
                self._hand_over(group, line, pull, pieces)
                if wants.many:
                    count = sum([piece.stop - piece.start for piece in pieces])
                    if not self._budget.take_batch(group, count):
                        return False
            elif index is None:
                return True
            else:
                group.park(pull).line_up(pull, index)
        return True

    def _waits_for_rate(self, group: Group) -> bool:
        """The group has had its messages of this moment; it is served again when there are more."""
        wait_ms = 0 if group.rate is None else group.rate.wait_ms(self.tick.now_ms)
        if wait_ms:
            self._rates.set(group, self.tick.now_ms + wait_ms)
        return wait_ms > 0

    def _hand_over(self, group: Group, line: Line[Pull], pull: Pull, pieces: list[Slice]) -> None:
        if group.lease and not group.recorded:
            retries.hold(group, pull)
        if pull.wants.window and group.lease:
            pull.handed = pull.handed or set()
            for index, chunk, start, stop, _ in pieces:
                pull.handed.update((index, chunk.first + at) for at in range(start, stop))
        skipped = self.tick.take_untold(group) if group.unreported else 0
        delivered = Delivered(group, pieces, skipped)
        pull.credit -= 1
        if pull.credit > 0:
            line.move_to_end(pull.key)
        else:
            self.pulls.finish(pull)
        if self._calls.placed and group.topic.options.calls and not group.lease:
            self._note_calls(group, pull.session, pieces)
        if group.recorded:
            deliver_when_durable(self.pulls, pull, delivered)
        else:
            pull.receive(delivered)

    def _note_calls(self, group: Group, session: Session, pieces: list[Slice]) -> None:
        """A service that answers on this connection has these calls now."""
        if session.multiplexed:
            for index, chunk, start, stop, _ in pieces:
                partition = group.topic.partitions[index]
                for at in range(start, stop):
                    self._calls.take(session, (partition, chunk.first + at))

    # -- taking messages ------------------------------------------------------------------

    def _take(self, group: Group, pull: Pull) -> list[Slice]:
        """The next messages for this pull, as many as it wants and are there without waiting;
        partitions have their turns."""
        wants, count_max = pull.wants, pull.wants.count_max
        if group.lease:
            retries.keep_order(group, pull)
            count_max = min(count_max, group.options.window - group.leased_count())
        count_max = count_max if group.rate is None else min(count_max, group.rate.left())
        bytes_max = wants.bytes_max
        if count_max > 1 and self.tick.now_ms - self.tick.put_ms <= LIVE_MS:
            bytes_max = min(bytes_max, LIVE_BYTES_MAX)
        pieces = DeliveryBatch(count_max, bytes_max)
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
        if group.rate is not None:
            group.rate.take(count_max - pieces.count_left)
        return pieces.found

    def _scan(self, group: Group, index: int, pull: Pull, pieces: DeliveryBatch) -> None:
        """Take what is next in one partition and due, not expired and wanted."""
        backlog, partition = group.backlogs[index], group.topic.partitions[index]
        if group.options.one_batch and backlog.leased and not pull.wants.shares:
            return
        now_ms, lease, match, order = self.tick.now_ms, group.lease, group.match, None
        budget = self._budget
        if group.ordered:
            order, budget.skips = self._prefetch.order(group, index, partition, budget.skips)
            if order is None:
                return
        line = group.limits[index] if group.limits else NO_RANK
        while not pieces.full:
            offset = backlog.next(partition.visible, line)
            if offset is None:
                return
            chunk = self.at_hand(group, index, partition, offset)
            if chunk is None:
                chunk = self._prefetch.fetch(group, index, partition, offset)
            if chunk is None:
                return
            if not backlog.dirty:
                self.tick.change(partition, group)
            at = offset - chunk.first
            if not (lease or match or chunk.timed or backlog.fates) and backlog.in_order:
                stop = pieces.add_run(index, chunk, at, at + min(partition.visible, line) - offset)
                backlog.cursor = chunk.first + stop
                continue
            due_ms = 0 if chunk.due is None else chunk.due[at]
            if due_ms > now_ms and offset == backlog.cursor:  # of others it was looked at before
                backlog.delay(offset, due_ms)
                self.runs.schedule(group, index)
                self.runs.passed(partition, offset, due_ms)
            elif chunk.expires is not None and 0 < chunk.expires[at] <= now_ms:
                backlog.finish(offset, Disposition.EXPIRED)
            elif match is not None and not match(chunk.tag_of(at)):
                backlog.finish(offset, Disposition.FILTERED)
                pull.skipped = True
            elif chunk.attempts is not None and lease and retries.tried(backlog, chunk, at):
                retries.bury(self.runs, group, index, offset)
            elif order is not None and not order.admits(backlog, offset, chunk, at):
                pass  # it waits for others of its key, or is compared with others
            elif lease:
                deadline_ms = self.leases.until(group, index, offset, pull.wants)
                attempts = backlog.lease(offset, deadline_ms)
                backlog.leased.holders[offset] = pull.session.id
                if chunk.attempts is not None and (limit := chunk.attempts[at]):
                    backlog.leased.limits[offset] = limit
                if not 0 < backlog.wake_ms <= deadline_ms:
                    self.runs.schedule(group, index)
                pieces.add(index, chunk, at, attempts)
                continue
            else:
                backlog.finish(offset)
                pieces.add(index, chunk, at, 0)
                continue
            budget.skips -= 1
            if budget.skips <= 0:
                return

    def lease_next(self, group: Group, session: Session, wants: PullOptions, chunk: Chunk) -> bool:
        """Lease what the cursor of a usual group is at, where everything is in order. False if that
        needs a `pull`: the window is full, its key is busy, or messages of the chunk have limits of
        their own."""
        backlog = group.backlogs[0]
        leased, offset = backlog.leased, backlog.cursor
        if len(leased.dues) >= group.options.window or group.aside is not None:
            return False
        if wants.on_loss == retries.FRONT or backlog.returns is not None:
            return False
        if chunk.attempts is not None:
            return False
        if group.ordered:
            order, at = backlog.order, offset - chunk.first
            if order is None or not order.admits_alone(backlog, offset, chunk, at):
                return False
        deadline_ms = self.leases.until(group, 0, offset, wants)
        backlog.lease_next(deadline_ms)
        leased.holders[offset] = session.id
        if not 0 < backlog.wake_ms <= deadline_ms:
            self.runs.schedule(group, 0)
        return True
