"""Handing messages to waiting pulls.

A group is *active* when something happened that may give it work: a new pull, new messages, a
lease that ended, a portion read back from storage. Active groups are served once per tick, after
the tick was written. A group whose next message is not at hand asks its log for it and is active
again when it came: no request waits for a disk here.
"""

from __future__ import annotations

from functools import partial

from zbus.core.commit.recognition import forget
from zbus.core.commit.tick import Tick
from zbus.core.delivery import expiry as expiring
from zbus.core.delivery import retries
from zbus.core.delivery.cancel_pulls import PullCancellation
from zbus.core.delivery.durable import deliver_when_durable
from zbus.core.delivery.group_rate import GroupRate
from zbus.core.delivery.prefetch import Prefetch
from zbus.core.fanout.follow import FanOut
from zbus.core.model.chunk import Chunk
from zbus.core.model.dispositions import Disposition
from zbus.core.model.errors import BrokerError, too_many_wait
from zbus.core.model.pull_options import PullOptions
from zbus.core.model.request_clock import RequestClock
from zbus.core.persistence.storage import Storage
from zbus.core.timing.timers import Timers
from zbus.core.topics.calls import Calls
from zbus.core.topics.delivery_batch import DeliveryBatch
from zbus.core.topics.outcomes import Delivered, Empty, EmptyReason, Slice
from zbus.core.topics.parked_pulls import Line, ParkedPulls
from zbus.core.topics.topic import Group, Partition, Pull, Session

SKIPS_PER_TICK_MAX = 2_000
"""Messages that one group may pass over in one tick (not wanted, not due, expired), so that others
get their turn."""

ALL_SKIPS_PER_TICK_MAX = 20_000
"""The same for all groups together. A group that comes later in the tick passes over one, and is
among the first in the next tick."""

BATCHED_PER_TICK_MAX = 5_000
"""Messages delivered in batches in one tick. The batch that passes it is finished; who wants more
waits for the next tick, behind those that got none in this."""

LIVE_MS = 20
LIVE_BYTES_MAX = 32 << 10
"""This long after a put, an answer with many messages has at most that many bytes: who replays a
log must not make those wait who work at its end."""

WOKEN_PER_TURN_MAX = 5_000
"""Messages made ready in one turn because they became due, about, of all groups together."""


class Dispatch:
    def __init__(
        self,
        storage: Storage,
        timers: Timers,
        request_clock: RequestClock,
        waiting_max: int,
        calls: Calls,
    ) -> None:
        self.calls = calls
        self._outside = request_clock
        self.held = False  # nothing is delivered for now
        self.tick = Tick(storage, self.wake_readers, timers.faults)
        self.tick.dedup_timer = timers.timer(partial(forget, self.tick), lambda place: place)
        self.tick.expiry_timer = timers.timer(partial(expiring.sweep, self), lambda place: place)
        self.tick.expiring = partial(expiring.note, self.tick)
        self._blame = timers.faults.quarantine
        self.following = FanOut(timers)
        self.active: list[Group] = []
        self.waiting, self._waiting_max = 0, waiting_max  # pulls, of all groups
        self._surplus: list[Pull] = []  # this tick's pulls that came when that many waited
        self._fresh: list[Pull] = []  # this tick's pulls with a deadline
        self._pulls = timers.timer(self._time_is_up, lambda pull: pull.session)
        self._wakes = timers.timer(self.wake, lambda place: place[0])
        self._pace = GroupRate(timers, self.activate)
        self.dead: retries.Dead = retries.give_up  # of groups with a dead-letter topic
        self._skips_left = self._all_skips_left = 0  # of the group that is being served, and of all
        self._starved: set[Group] = set()  # were given less than their part of this tick
        # Offsets leased in this turn, by group and partition.
        self.leased: dict[tuple[Group, int], list[int]] = {}
        self._leased_ms = 0  # from when on
        self._woken_left, self._batched_left = WOKEN_PER_TURN_MAX, 0
        self._sated: list[Group] = []  # had their part of this tick, and want more
        self.endings = PullCancellation(self)
        self.reach = Prefetch(self.activate)
        self.at_hand = self.reach.at_hand

    # -- what makes groups active ---------------------------------------------------------

    def activate(self, group: Group) -> None:
        if not group.active:
            group.active = True
            self.active.append(group)

    def wake_readers(self, partition: Partition) -> None:
        """More of the partition may be delivered."""
        for group in partition.topic.groups.values():
            if (group.waiting or group.aside is not None) and not group.active:
                group.active = True
                self.active.append(group)
        if partition.topic.followed is not None:
            self.following.wake(partition.topic.followed)

    def pull(self, group: Group, pull: Pull, deadline_ms: int | None) -> None:
        """Queue up; the pull is served or ended later, in this tick at the earliest."""
        pull.group = group
        waiting = group.waiting
        if waiting or group.aside is not None:
            session = pull.session
            older = group.pull_of(session)
            if older is not None:
                if pull.wants.replaces and older.wants.replaces:
                    self.end(older, EmptyReason.REPLACED)
                else:
                    pull.key = pull
                    session.pulls = session.pulls or {}
                    session.pulls.setdefault(group, {})[pull] = None
        waiting[pull.key] = pull
        self.waiting += 1
        if self.waiting > self._waiting_max:
            self._surplus.append(pull)
        if deadline_ms is not None:
            pull.deadline_ms = deadline_ms
            self._fresh.append(pull)
        if not group.active:
            group.active = True
            self.active.append(group)

    def resume(self, group: Group, session: Session) -> None:
        """A session takes messages again."""
        if group.aside is not None and session in group.aside.stalled:
            group.put_back(group.aside.take_stalled(session))
            self.activate(group)

    def schedule(self, group: Group, index: int) -> None:
        """See to it that the backlog is woken when its next lease or delay ends."""
        backlog = group.backlogs[index]
        wake_ms = backlog.next_wake()
        if wake_ms and (not backlog.wake_ms or wake_ms < backlog.wake_ms):
            backlog.wake_ms = wake_ms
            self._wakes.set((group, index), wake_ms)

    def wake(self, place: tuple[Group, int]) -> None:
        """Leases or delays of a group ended in a partition."""
        if self._woken_left <= 0:
            self._wakes.set(place, self.tick.now_ms)
            return
        group, index = place
        backlog = group.backlogs[index]
        partition = group.topic.partitions[index]
        backlog.wake_ms = 0
        expire = partial(retries.expire, self, group, index)
        if count := backlog.wake(self.tick.now_ms, partition.end, expire):
            self.tick.change(partition, group)
        self._woken_left -= 1 + count
        self.schedule(group, index)
        self.activate(group)

    def lengthen_leases(self) -> None:
        """The leases of this turn begin now, which is later than was reckoned."""
        leased, self.leased = self.leased, {}
        ms = self._outside.received_ms() - self._leased_ms
        if ms > 0:
            self.tick.lengthen(leased, ms)

    def end_waiting(self, group: Group, reason: EmptyReason | BrokerError) -> None:
        """All pulls of a group end with nothing, very many of them in the turns that follow."""
        self.endings.begin(group, reason)

    def forget(self, group: Group) -> None:
        """The group is gone."""
        for index in range(len(group.backlogs)):
            self._wakes.discard((group, index))
        self._pace.forget(group)

    # -- serving --------------------------------------------------------------------------

    def serve(self, group: Group) -> None:
        """Deliver now what is durable, and not at the end of the turn: the caller depends on it."""
        ending = group in self.endings.groups
        if group.active and group.waiting and not (group.paused or ending or self.held):
            self._serve(group)

    def run(self) -> None:
        """Serve every active group."""
        if self.held:
            return
        active, self.active = self.active, []
        self._woken_left = WOKEN_PER_TURN_MAX
        self._batched_left = BATCHED_PER_TICK_MAX
        self._all_skips_left = ALL_SKIPS_PER_TICK_MAX
        if self._starved:
            self._starved.clear()
        ending = self.endings.groups
        for group in active:
            group.active = False
            if group in ending or group.paused:
                continue
            if group.waiting or group.aside is not None:
                try:
                    self._serve(group)
                except Exception as error:
                    self._blame(group, error)
        if ending:
            self.endings.run()
        if self._sated:
            over_budget, self._sated = self._sated, []
            for group in over_budget:
                self.activate(group)
        if self.reach.failed:
            failed, self.reach.failed = self.reach.failed, []
            for group, why in failed:
                self.end_waiting(group, why)
        if self._fresh:
            fresh, self._fresh = self._fresh, []
            for pull in fresh:
                if pull.open and pull.credit:
                    if pull.deadline_ms <= self.tick.now_ms:
                        try:
                            self._expire_pull(pull)
                        except Exception as error:
                            self._blame(pull.session, error)
                    else:
                        self._pulls.set(pull, pull.deadline_ms)
        if self._surplus:
            self._refuse_surplus()

    def _serve(self, group: Group) -> None:
        skips_max = min(SKIPS_PER_TICK_MAX, max(self._all_skips_left, 1))
        self._skips_left = skips_max
        if group.aside is None or self._serve_aside(group, group.aside):
            self._serve_line(group, group.waiting)
        self._all_skips_left -= skips_max - self._skips_left
        if self._skips_left <= 0:
            if skips_max < SKIPS_PER_TICK_MAX:
                self._starved.add(group)
                self.activate(group)
            else:
                self._sated.append(group)

    def _serve_aside(self, group: Group, aside: ParkedPulls[Pull]) -> bool:
        """Those who were looked at before, where there is something for them; False if the group
        has had its part of this tick."""
        group.put_back(aside.take_full())
        backlogs, partitions = group.backlogs, group.topic.partitions
        for index in list(aside.lines):
            if backlogs[index].next(partitions[index].visible) is None:
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
            if wants.many and self._batched_left <= 0:
                self.activate(group)
                return False
            if group.rate is not None and self._pace.waits(group, self.tick.now_ms):
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
                    self._batched_left -= sum([piece.stop - piece.start for piece in pieces])
                    if self._batched_left <= 0:
                        self._sated.append(group)
                        return False
            elif index is None:
                return True
            else:
                group.park(pull).line_up(pull, index)
        return True

    def _hand_over(self, group: Group, line: Line[Pull], pull: Pull, pieces: list[Slice]) -> None:
        if group.lease and not group.recorded:
            retries.hold(group, pull)
        if pull.wants.window and group.lease:
            pull.handed = pull.handed or set()
            for index, chunk, start, stop, _ in pieces:
                pull.handed.update((index, chunk.first + at) for at in range(start, stop))
        delivered = Delivered(
            group, pieces, self.tick.take_untold(group) if group.unreported else 0
        )
        pull.credit -= 1
        if pull.credit > 0:
            line.move_to_end(pull.key)
        else:
            group.forget_pull(pull)
            self.waiting -= 1
            self._pulls.discard(pull)
            if pull.key is pull:
                self._forget(pull)
        if self.calls.placed and group.topic.options.calls and not group.lease:
            self._note_calls(group, pull.session, pieces)
        if group.recorded:
            deliver_when_durable(self, pull, delivered)
        else:
            pull.receive(delivered)

    def _note_calls(self, group: Group, session: Session, pieces: list[Slice]) -> None:
        """A service that answers on this connection has these calls now."""
        if session.multiplexed:
            for index, chunk, start, stop, _ in pieces:
                partition = group.topic.partitions[index]
                for at in range(start, stop):
                    self.calls.take(session, (partition, chunk.first + at))

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
        taken = group.options.one_batch and backlog.leased and not pull.wants.shares
        if taken:
            return
        now_ms, lease, match, keyed = self.tick.now_ms, group.lease, group.match, None
        if group.ordered:
            keyed, self._skips_left = self.reach.keys(group, index, partition, self._skips_left)
            if keyed is None:
                return
        while not pieces.full:
            offset = backlog.next(partition.visible)
            if offset is None:
                return
            chunk = self.at_hand(group, index, partition, offset)
            if chunk is None:
                chunk = self.reach.fetch(group, index, partition, offset)
            if chunk is None:
                return
            if not backlog.dirty:
                self.tick.change(partition, group)
            at = offset - chunk.first
            if not (lease or match or chunk.timed or backlog.fates) and backlog.in_order:
                stop = pieces.add_run(index, chunk, at, at + partition.visible - offset)
                backlog.cursor = chunk.first + stop
                continue
            due_ms = 0 if chunk.due is None else chunk.due[at]
            if due_ms > now_ms and offset == backlog.cursor:  # of others it was looked at before
                backlog.delay(offset, due_ms)
                self.schedule(group, index)
                self.following.delay(partition.topic.followed, index, offset, due_ms)
            elif chunk.expires is not None and 0 < chunk.expires[at] <= now_ms:
                backlog.finish(offset, Disposition.EXPIRED)
            elif match is not None and not match(chunk.tag_of(at)):
                backlog.finish(offset, Disposition.FILTERED)
                pull.skipped = True
            elif chunk.attempts is not None and lease and retries.tried(backlog, chunk, at):
                retries.bury(self, group, index, offset)
            elif keyed is not None and not keyed.admits(backlog, offset, chunk.key_of(at)):
                pass  # it waits for others of its key
            elif lease:
                deadline_ms = self._lease_until(group, index, pull.wants)
                self.leased[group, index].append(offset)
                attempts = backlog.lease(offset, deadline_ms)
                backlog.leased.holders[offset] = pull.session.id
                if chunk.attempts is not None and (limit := chunk.attempts[at]):
                    backlog.leased.limits[offset] = limit
                if not 0 < backlog.wake_ms <= deadline_ms:
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

    def _lease_until(self, group: Group, index: int, wants: PullOptions) -> int:
        """When a lease ends that begins now."""
        if not self.leased:
            self._leased_ms = self._outside.received_ms()
        if (group, index) not in self.leased:
            self.leased[group, index] = []
        return self._leased_ms + (wants.lease_ms or group.options.lease_ms)

    def lease_next(self, group: Group, session: Session, wants: PullOptions, chunk: Chunk) -> bool:
        """Lease what the cursor of a usual group is at, where everything is in order. False if that
        needs a `pull`: the window is full, its key is busy, or messages of the chunk have limits of
        their own."""
        backlog = group.backlogs[0]
        leased = backlog.leased
        if len(leased.dues) >= group.options.window or group.aside is not None:
            return False
        if wants.on_loss == retries.FRONT or backlog.returns is not None:
            return False
        if chunk.attempts is not None:
            return False
        if group.ordered:
            keyed, offset = backlog.keyed, backlog.cursor
            key = chunk.key_of(offset - chunk.first)
            if keyed is None or not keyed.admits_alone(backlog, offset, key):
                return False
        deadline_ms = self._lease_until(group, 0, wants)
        offset = backlog.lease_next(deadline_ms)
        self.leased[group, 0].append(offset)
        leased.holders[offset] = session.id
        if not 0 < backlog.wake_ms <= deadline_ms:
            self.schedule(group, 0)
        return True

    def _forget(self, pull: Pull) -> None:
        """A pull that its session knows of waits no more."""
        pull.key = pull.session  # or it would hold on to itself
        pulls = pull.session.pulls
        if pulls is not None and (beside := pulls.get(pull.group)) is not None:
            beside.pop(pull, None)
            if not beside:
                del pulls[pull.group]

    # -- ends without a message -----------------------------------------------------------

    def _refuse_surplus(self) -> None:
        """There was nothing for them at once, and more wait than may."""
        over_limit, self._surplus = self._surplus, []
        for pull in over_limit:
            if pull.open and pull.credit and self.waiting > self._waiting_max:
                self.end(pull, too_many_wait(self._waiting_max))

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
        if group.forget_pull(pull):
            self.waiting -= 1
        self._pulls.discard(pull)
        if pull.key is pull:
            self._forget(pull)
        if not pull.open:
            return
        if pull.session.closed:
            pull.drop()
        else:
            pull.settle(reason if isinstance(reason, BrokerError) else Empty(group, reason))
