"""One turn of the broker: what it gathers is written, synced and answered together.

Puts are staged and changes noted while requests are applied; `commit` makes them one write per
touched partition and asks for one sync. What waits for durability is answered when storage calls
back, which for the levels `memory` and `os` is at once and for `disk` in a later tick.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from zbus.core.commit.making import Making, Written
from zbus.core.model.chunk import Chunk, Row
from zbus.core.model.containment import Containment
from zbus.core.model.errors import INTERNAL, BrokerError, Outcome, Refusal, fenced, topic_unknown
from zbus.core.model.ticket import Parts, Ticket
from zbus.core.persistence.storage import Failed, Storage
from zbus.core.topics.delta import take_changes
from zbus.core.topics.outcomes import DONE, Stored
from zbus.core.topics.topic import Group, Partition, Topic

FULL = BrokerError(Refusal.FULL, "no space left to store messages")

FULL_STATE = BrokerError(Refusal.FULL, "the disk is full, no room even for acknowledgements: retry")

RETRY_MS = 1_000
"""How often changes that found no room are tried again."""

STATE_EVERY_MS = 5
"""Changes that no request waits for (a cursor that moved) are written at most that often by
themselves, and with anything else at once. A crash redelivers what was delivered since."""


EXPIRIES_PER_TURN_MAX = 4
"""Partitions in which one turn forgets originals or finishes what has expired: each may have
thousands."""


class Hooks:
    """What other parts do when something happens here. Each sets its own as it is made."""

    visible: Callable[[Partition], None]  # dispatch: more of it may be delivered
    expiring: Callable[[Partition, Chunk], None]  # expiry: messages are written that expire
    make_room: Callable[[Chunk], bool]  # retention: memory is full
    keep_ring: Callable[[Partition], None]  # retention: a partition in memory was written
    check_later: Callable[[Partition], None]  # retention: some of it may have become expendable
    fence: Callable[[Partition, BrokerError], None]  # fencing: it cannot be served
    durable: Callable[[Partition], None]  # compaction: more of a compact topic is written


class Tick:
    """`now_ms` is the only time the broker knows."""

    def __init__(self, storage: Storage, faults: Containment | None = None) -> None:
        self.faults = faults or Containment()
        self.hooks = Hooks()
        self.now_ms = 0
        self.put_ms = 0  # when something was put last
        self.forgotten = 0  # partitions, in this turn: see `EXPIRIES_PER_TURN_MAX`
        self._storage = storage
        self.touched: list[Partition] = []
        self.making = Making()
        # Their beginning was not written, and why: mostly there was no room.
        self.not_created: dict[Topic, BrokerError] = {}
        self.behind: dict[Partition, None] = {}  # their changes found no room
        self.full: BrokerError | None = None  # the last write of a message to a disk found none
        self.open_commits = 0  # syncs asked for and not answered yet
        self.awaited = False  # a request waits for what is to be written
        self._written_ms = 0
        self._retried_ms = 0

    def due_ms(self) -> int | None:
        """When there is something to write; None = there is nothing."""
        if self.making.topics:
            return self.now_ms
        if not self.touched:
            return self._retried_ms + RETRY_MS if self.behind else None
        return self.now_ms if self.awaited else self._written_ms + STATE_EVERY_MS

    def make(self, topic: Topic) -> None:
        """The topic is new: its partitions are to be written."""
        self.making.begin(topic)
        for partition in topic.partitions:
            self.touch(partition)

    def stage(self, partition: Partition, ticket: Ticket, new: Chunk | Row) -> None:
        """Put one message, or those of a chunk, which is given away: all or none. The ticket
        settles when they are durable. It counts what is there: if adding it fails, nothing is."""
        staged, count = partition.staged, 1
        if isinstance(new, tuple):
            if staged is None:
                self._begin(partition, Chunk.single(new))
            else:
                staged.add(*new)
        else:
            count = len(new.bodies)
            if staged is None:
                self._begin(partition, new)
            else:
                new.time_ms = staged.time_ms
                staged.extend(new)
        partition.puts.append(ticket)
        partition.last = ticket
        ticket.offset = partition.end
        partition.end += count

    def _begin(self, partition: Partition, chunk: Chunk) -> None:
        """The first messages of this turn."""
        self.awaited = True
        self.put_ms = self.now_ms
        self.touch(partition)
        chunk.first, chunk.time_ms = partition.end, self.now_ms
        partition.staged = chunk

    def join(self, partition: Partition, offset: int, ticket: Ticket) -> None:
        """Settle the ticket as a put that went to this offset: with Stored when it is durable."""
        if offset < partition.visible:
            ticket.settle(Stored(partition))
        elif partition.staged is None or offset < partition.staged.first:
            self.confirm(partition, ticket, Stored(partition))
        else:
            partition.puts.append(ticket)
            partition.last = ticket

    def change(self, partition: Partition, group: Group) -> None:
        """Note that the group's backlog in this partition is not what it was."""
        backlog = group.backlogs[partition.index]
        if not backlog.dirty:
            backlog.dirty = True
            partition.changed.append(group)
            self.touch(partition)

    def touch(self, partition: Partition) -> None:
        if not partition.touched:
            partition.touched = True
            self.touched.append(partition)

    def take_untold(self, group: Group) -> int:
        """How many messages the group has lost that no delivery has reported yet."""
        group.unreported = False
        count = 0
        for backlog, partition in zip(group.backlogs, group.topic.partitions, strict=True):
            if backlog.unreported:
                count += backlog.unreported
                backlog.unreported = 0
                self.change(partition, group)
        return count

    def confirm(self, partition: Partition, ticket: Ticket, outcome: Outcome = DONE) -> None:
        """Settle the ticket when what this tick changed in the partition is durable."""
        self.awaited = True
        self.touch(partition)
        partition.confirms.append((ticket, outcome))

    def confirm_all(self, topic: Topic, ticket: Ticket, outcome: Outcome = DONE) -> None:
        """The same for what this tick changed in every partition of a topic."""
        parts = Parts(ticket, outcome, len(topic.partitions))
        for partition in topic.partitions:
            self.confirm(partition, parts.part())

    def forget(self, topic: Topic) -> None:
        """The topic is gone: what was staged for it is refused."""
        gone = topic_unknown(topic.name)
        unmade, held = self.making.forget(topic)
        for _, _, puts, confirms, _ in held:
            for ticket in [*puts, *(ticket for ticket, _ in confirms)]:
                ticket.settle(gone)
        for partition in topic.partitions:
            self.behind.pop(partition, None)
            if partition.touched:
                if partition not in unmade:
                    self.touched.remove(partition)
                partition.touched = False
                partition.staged = partition.last = None
            puts, partition.puts = partition.puts, []
            confirms, partition.confirms = partition.confirms, []
            for ticket in [*puts, *(ticket for ticket, _ in confirms)]:
                ticket.settle(gone)

    def commit(self, whole: Topic | None = None) -> None:
        """Write what the tick gathered; answer it now or when it is synced. All logs of the `whole`
        topic are made now, if some are not yet."""
        if self.behind and self.now_ms >= self._retried_ms + RETRY_MS:
            self._retried_ms = self.now_ms
            for partition in self.behind:
                self.touch(partition)
        touched, self.touched = self.touched, []
        making = self.making
        if making.topics:
            touched = making.in_turn(touched, whole, self._storage.holds)
        self.awaited = False
        self._written_ms = self.now_ms
        at_once: list[Written] = []
        after_sync: list[Written] = []
        for partition in touched:
            partition.touched = False
            if partition.fenced is not None:
                self.refuse(partition, partition.fenced)
                continue
            puts, confirms = partition.puts, partition.confirms
            try:
                written = self._write(partition)
            except Exception as error:
                self._failed(partition, error, [*puts, *(ticket for ticket, _ in confirms)])
                continue
            synced = partition.topic.options.durability == "disk"
            # A moved cursor that no request waits for rides along with the next sync.
            if synced and (written[2] or written[3] or partition.visible < partition.end):
                after_sync.append(written)
            else:
                at_once.append(written)
        if making.topics:
            written_now = at_once, after_sync
            at_once, after_sync = making.hold_back(written_now, self.not_created, self.touched)
        if self.not_created:
            at_once = self._refuse_unborn(at_once)
            after_sync = self._refuse_unborn(after_sync)
        if after_sync:
            self._ask(after_sync, True)
        if at_once:
            if self._storage.synchronous:
                self._durable(at_once)
            else:
                self._ask(at_once, False)

    def _write(self, partition: Partition) -> Written:
        topic = partition.topic
        chunk, partition.staged, partition.last = partition.staged, None, None
        confirms, partition.confirms = partition.confirms, []
        if chunk is not None:
            if partition.ids is not None:
                partition.ids.note(chunk)  # before it is written: that may write a snapshot, too
            if chunk.expires is not None and not topic.options.calls:
                self.hooks.expiring(partition, chunk)  # a call that is over is withdrawn anyway
        change = take_changes(partition, self.now_ms)
        stored = self._storage.write(partition, chunk, change, self.now_ms)
        if chunk is not None and topic.options.durability == "memory":
            while not stored and self.hooks.make_room(chunk):
                chunk.stored_bytes = 0
                stored = self._storage.write(partition, chunk, change, self.now_ms)
            self.hooks.keep_ring(partition)
        puts, partition.puts = partition.puts, []
        if stored:
            if self.behind:
                self.behind.pop(partition, None)
            if topic.decided < topic.number:
                self._decide(partition, confirms)
            if chunk is not None:
                if self.full is not None and topic.options.durability != "memory":
                    self.full = None
                partition.log.append(chunk)
                # Messages without a key fill one partition a turn: one write, not many.
                topic.turn += 1
        else:
            first = partition.end if chunk is None else chunk.first
            self._unstage(partition, first)
            if topic.options.durability != "memory":
                self.full = FULL
            if chunk is not None and partition.ids is not None:
                partition.ids.take_back(chunk)
            for ticket in puts:
                ticket.settle(FULL)
            puts = []
            change = None if change is None else change.truncated(first)
            if not self._storage.write(partition, None, change, self.now_ms):
                if self._storage.holds(partition) or topic.born:
                    confirms = self._refuse_change(partition, confirms)
                else:
                    self.not_created[topic] = FULL
            else:
                self.behind.pop(partition, None)
                self._decide(partition, confirms)
        if topic.retains:
            self.hooks.check_later(partition)
        return partition, partition.end, puts, confirms, partition.epoch

    def _failed(self, partition: Partition, error: Exception, tickets: list[Ticket]) -> None:
        """Writing the partition raised this. How much of it is written is not known, so it is read
        again; a topic that does not exist yet is never made."""
        why = fenced(*partition.lane, INTERNAL)
        partition.staged = partition.last = None
        partition.puts, partition.confirms = [], []
        if partition.topic.born or self._storage.holds(partition):
            self.faults.quarantine(partition, error)
        else:
            self.faults.quarantine(None, error)
            self.not_created[partition.topic] = why
        for ticket in tickets:
            if ticket.open:
                ticket.settle(why)

    def _decide(self, partition: Partition, confirms: list[tuple[Ticket, Outcome]]) -> None:
        """What partition 0 has just written is decided when that is durable."""
        if not partition.index and partition.topic.undecided:  # the callers have looked, to be fast
            confirms.append((Decided(partition.topic), DONE))

    def refuse(self, partition: Partition, why: BrokerError) -> None:
        """Nothing of what this tick gathered for the partition is written."""
        self.behind.pop(partition, None)
        puts, confirms = partition.puts, partition.confirms
        completions = partition.completions
        if completions is not None:
            completions.truncate(partition.written)
        partition.reset(partition.first, partition.written)
        partition.visible = partition.first
        partition.completions = completions  # what they settle is held until it was read again
        for ticket in [*puts, *(ticket for ticket, _ in confirms)]:
            ticket.settle(why)

    def _refuse_change(
        self, partition: Partition, confirms: list[tuple[Ticket, Outcome]]
    ) -> list[tuple[Ticket, Outcome]]:
        """Not even a change found room. It stays true here and is written when there is some; who
        waits for that gets an error to retry."""
        if not self.behind:
            self._retried_ms = self.now_ms
        self.behind[partition] = None
        for ticket, _ in confirms:
            ticket.settle(FULL_STATE)
        return []

    def _refuse_unborn(self, written: list[Written]) -> list[Written]:
        """A topic comes to life with all its partitions or not at all."""
        alive = []
        for one in written:
            partition, _, puts, confirms, _ = one
            why = self.not_created.get(partition.topic)
            if why is not None:
                for ticket in [*puts, *(ticket for ticket, _ in confirms)]:
                    ticket.settle(why)
            else:
                alive.append(one)
        return alive

    def _unstage(self, partition: Partition, first: int) -> None:
        """Messages that found no room were never there."""
        partition.end = first
        partition.originals.truncate(first)
        if partition.expiries is not None:
            partition.expiries.truncate(first)
        if partition.completions is not None:
            partition.completions.truncate(first)
        partition.purged_to = min(partition.purged_to, first)
        for number, place in partition.purges.items():
            partition.purges[number] = min(place, first)
        for other in partition.topic.departing:
            other.backlogs[partition.index].truncate(first)
        for group in partition.topic.groups.values():
            group.backlogs[partition.index].truncate(first)

    def _ask(self, written: list[Written], synced: bool) -> None:
        """Go on with these when they are durable."""
        self.open_commits += 1
        partitions = [one[0] for one in written]
        for partition in list(partitions):
            if partition.index and partition.topic.undecided:
                zero = partition.topic.partitions[0]  # a change may build on what it decides
                partitions += [] if zero in partitions else [zero]
        self._storage.commit(partitions, synced, partial(self._answered, written))

    def _answered(self, written: list[Written], failed: Failed) -> None:
        self.open_commits -= 1
        if failed:
            written = self._refuse_failed(written, failed)
        self._durable(written)

    def _refuse_failed(self, written: list[Written], failed: Failed) -> list[Written]:
        """Answer what was written to partitions that failed, and what builds on a decision of a
        partition 0 that did; give the rest."""
        rest: list[Written] = []
        for partition, end, puts, confirms, epoch in written:
            why = failed.get(partition)
            undecided = failed.get(partition.topic.partitions[0])
            if why is None and undecided is None:
                rest.append((partition, end, puts, confirms, epoch))
                continue
            if why is not None and epoch == partition.epoch and not partition.removed:
                self.hooks.fence(partition, why)  # else it was, and may have been reopened since
            refused = [ticket for ticket, _ in confirms]
            if why is None and partition.topic.born:
                rest.append((partition, end, puts, [], epoch))
            else:
                refused += puts
            why = why or undecided
            assert why is not None
            for ticket in refused:
                ticket.settle(why)
        return rest

    def _durable(self, written: list[Written]) -> None:
        for partition, end, puts, confirms, epoch in written:
            try:
                if end > partition.visible and epoch == partition.epoch:
                    partition.visible = end
                    self.hooks.visible(partition)
                if confirms:
                    partition.topic.born = True
                if partition.topic.options.compact or partition.newest is not None:
                    self.hooks.durable(partition)
            except Exception as error:
                self.faults.quarantine(partition, error)
            if puts:
                stored = Stored(partition)
                for ticket in puts:
                    try:
                        ticket.settle(stored)
                    except Exception as error:  # a ticket without a session
                        self.faults.quarantine(partition, error)
            for ticket, outcome in confirms:
                try:
                    ticket.settle(outcome)
                except Exception as error:
                    self.faults.quarantine(partition, error)


class Decided(Ticket):
    """Partition 0 was written: when that is durable, what had departed by then is gone for good."""

    __slots__ = ("_departed", "_number", "_topic")

    def __init__(self, topic: Topic) -> None:
        super().__init__()
        self._topic = topic
        self._number = topic.number
        self._departed = list(topic.departing)

    def answer(self, outcome: Outcome) -> None:
        if not isinstance(outcome, BrokerError):
            topic, departed = self._topic, self._departed
            topic.decided = max(topic.decided, self._number)
            topic.departing = [other for other in topic.departing if other not in departed]
