"""Putting messages that settle deliveries, both or neither: take, transform, put.

What is put and what it settles lie in different logs, and a crash may keep what was written to one
and lose what was written to the other. So the log that is put to decides. Before the messages, and
in the same write, it says which deliveries they settle (`Settlement`). When that is durable it is
decided and answered; then the deliveries are settled in their own log, and when that is durable,
too, the settlement is forgotten.

A start that finds a settlement settles its deliveries again, which does no harm, if the messages
that it counts by are there. If a crash took them it took the decision: then it does not count, and
that is written before anything else takes their place.

Meanwhile the deliveries are *settling*: leased, and neither given back nor timed out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from zbus.core.cursor.ranges import Ranges, distinct, finish_all, known_of
from zbus.core.cursor.state import Settlement
from zbus.core.delivery.run_queue import RunQueue
from zbus.core.model.chunk import Chunk
from zbus.core.model.dispositions import Disposition
from zbus.core.model.errors import BrokerError, Outcome, Refusal
from zbus.core.model.message_state import MessageState
from zbus.core.model.ticket import Silent, Ticket
from zbus.core.timing.timers import Timers
from zbus.core.topics.pending_acks import PendingAcks
from zbus.core.topics.topic import Group, Partition, Topic
from zbus.core.verbs.puts import COPIED, PLAIN, PutOptions, Puts

AGAIN_MS = 1_000
"""How often it is tried again to settle where that is not possible now: a disk is full, a partition
is read again."""


class Source(NamedTuple):
    """Deliveries of a group in one partition."""

    group: Group
    partition: Partition
    ranges: Ranges
    dead: bool = False  # they are dead-lettered, not done


_Open: TypeAlias = "tuple[Partition, Settlement, Source]"
"""A settlement that is not forgotten yet: of which partition, and what it settles."""


class PutAndAck:
    """`topics` are the broker's, by lower-case name."""

    def __init__(
        self, topics: dict[str, Topic], runs: RunQueue, puts: Puts, timers: Timers
    ) -> None:
        self._topics = topics
        self._runs = runs
        self._tick = runs.tick
        self._puts = puts
        self._timer = timers.timer(self._redo, lambda place: place[0])
        self.found: list[Partition] = []  # were read, at the start or again
        self._open: list[_Open] = []  # when something was read last

    def put(
        self,
        partition: Partition,
        ticket: Ticket,
        chunk: Chunk,
        sources: Sequence[Source],
        options: PutOptions = PLAIN,
    ) -> None:
        """Store messages as `Puts.put_all` does, and settle deliveries of any groups with them:
        settles as that does. NOT_LEASED, and nothing is stored, if one is not leased."""
        problem = self._problem(sources)
        if problem is not None:
            ticket.settle(problem)
        else:
            self.put_leased(partition, ticket, chunk, sources, options)

    def put_leased(
        self,
        partition: Partition,
        ticket: Ticket,
        chunk: Chunk,
        sources: Sequence[Source],
        options: PutOptions = COPIED,
    ) -> None:
        """The same for deliveries that are leased."""
        for source in sources:
            self._hold(source)
        held = _Held(self, ticket, partition, sources)
        end = partition.end
        self._puts.put_all(partition, held, chunk, options)
        if partition.end == end or not held.open:
            return  # it is refused, or was stored before: nothing has to be remembered
        known = partition.settlements = partition.settlements or PendingAcks()
        for one in sources:
            settlement = _settlement(known.next_number, partition.end, one)
            known.add(settlement)
            held.numbers.append(settlement.number)

    def _problem(self, sources: Sequence[Source]) -> BrokerError | None:
        for group, partition, ranges, _ in sources:
            if not group.lease:
                text = f"group {group.name} acknowledges on delivery: there is nothing to settle"
                return BrokerError(Refusal.ILLEGAL, text)
            backlog = group.backlogs[partition.index]
            known = set(known_of(ranges, backlog.leased)) - backlog.leased.settling
            if len(known) < distinct(ranges):
                missing = next(o for offsets in ranges for o in offsets if o not in known)
                text = f"offset {missing} is not leased: nothing is stored"
                return BrokerError(Refusal.NOT_LEASED, text)
        return None

    def release(self, sources: Sequence[Source]) -> None:
        """Nothing was stored: the deliveries are leased as before."""
        for group, partition, ranges, _ in sources:
            for offset in known_of(ranges, group.backlogs[partition.index].leased.settling):
                group.backlogs[partition.index].leased.settle_no_more(offset)

    def settle(
        self, partition: Partition, sources: Sequence[Source], numbers: Sequence[int]
    ) -> None:
        """What was put is durable. Without numbers it was stored before, by an unknown request."""
        for at, source in enumerate(sources):
            number, group = numbers[at] if numbers else 0, source.group
            if source.partition.removed or group.gone:
                self._close(partition, number)
            elif source.partition.fenced is not None:
                self._later(partition, number)
            else:
                # Of what was just read again nothing is held yet: `recover` has not come to it.
                known = number and source.partition not in self.found
                self._finish(partition, number, _still_held(source) if known else source)

    def recover(self) -> None:
        """Settle what partitions say that were read since the last call. What is put yet and not
        decided settles deliveries of such partitions, too: they stay leased, to no client."""
        found, self.found = self.found, []
        for partition in found:
            known = partition.settlements
            for number in list(known.open) if known is not None else ():
                self._redo((partition, number))
        freed = self._let_go(found)
        read, self._open = set(found), []
        for topic in self._topics.values():
            for partition in topic.partitions:
                known = partition.settlements
                for settlement in known.open.values() if known is not None else ():
                    source = self._source(settlement)
                    if source is None:
                        continue
                    self._open.append((partition, settlement, source))
                    undecided = settlement.end > partition.visible
                    if source.partition in read or (undecided and source.partition in freed):
                        self._hold(source)

    def _let_go(self, found: list[Partition]) -> set[Partition]:
        """These were read, and some of what they were to settle is not to be: it is leased as any
        other, unless another settlement holds it. Gives the partitions where it is."""
        freed: set[Partition] = set()
        for partition, settlement, source in self._open:
            known = partition.settlements
            there = None if known is None else known.open.get(settlement.number)
            if partition in found and there != settlement and source.partition.fenced is None:
                self.release([source])
                freed.add(source.partition)
        return freed

    def _hold(self, source: Source) -> None:
        backlog = source.group.backlogs[source.partition.index]
        for offsets in source.ranges:
            for offset in offsets:
                if offset in backlog.leased:
                    backlog.leased.settle_later(offset)
                elif backlog.life(offset) is not MessageState.DONE:  # its lease was lost
                    backlog.hold(offset, self._tick.now_ms + AGAIN_MS)
                    self._tick.change(source.partition, source.group)

    def _redo(self, place: tuple[Partition, int]) -> None:
        """A settlement is open, and it is not known what of it is done."""
        partition, number = place
        known = None if partition.removed else partition.settlements
        settlement = None if known is None else known.open.get(number)
        if settlement is None or settlement.end > partition.visible:
            return  # it is being decided yet, or was refused
        source = self._source(settlement)
        if source is None:
            self._close(partition, number)
        elif source.partition.fenced is not None or partition.fenced is not None:
            self._later(partition, number)
        else:
            self._finish(partition, number, source)

    def _source(self, settlement: Settlement) -> Source | None:
        """What it settles, if that is still there."""
        topic = self._topics.get(settlement.topic.lower())
        group = None if topic is None else topic.groups.get(settlement.group.lower())
        if topic is None or topic.options.created_ms != settlement.topic_ms:
            return None
        if group is None or group.options.created_ms != settlement.group_ms:
            return None
        if settlement.partition >= len(topic.partitions):
            return None
        partition = topic.partitions[settlement.partition]
        first, end = partition.first, partition.end
        ranges = [range(max(a, first), min(b, end)) for a, b in settlement.ranges]
        found = [offsets for offsets in ranges if offsets]
        return Source(group, partition, found, settlement.dead)

    def _finish(self, partition: Partition, number: int, source: Source) -> None:
        group, there, ranges, dead = source
        backlog = group.backlogs[there.index]
        fate = Disposition.DEAD if dead else Disposition.DONE
        if count := sum([finish_all(backlog, offsets, fate) for offsets in ranges]):
            backlog.dead += count if dead else 0
            self._runs.changed(group, there)
        if number:
            self._tick.confirm(there, _Done(self, partition, number))

    def _close(self, partition: Partition, number: int) -> None:
        if partition.settlements is not None and not partition.removed:
            partition.settlements.close(number)
            self._tick.touch(partition)

    def _later(self, partition: Partition, number: int) -> None:
        if number:
            self._timer.set((partition, number), self._tick.now_ms + AGAIN_MS)


def _still_held(source: Source) -> Source:
    """Without those that are not settling any more: the group was moved meanwhile, and is to read
    them again."""
    settling = source.group.backlogs[source.partition.index].leased.settling
    found = [range(offset, offset + 1) for offset in known_of(source.ranges, settling)]
    return source._replace(ranges=found)


def _settlement(number: int, end: int, source: Source) -> Settlement:
    group, topic = source.group, source.group.topic
    return Settlement(
        number,
        end,
        topic.name,
        topic.options.created_ms,
        group.name,
        group.options.created_ms,
        source.partition.index,
        tuple([(offsets.start, offsets.stop) for offsets in source.ranges]),
        source.dead,
    )


class _Held(Ticket):
    """The put of such messages: it decides."""

    __slots__ = ("_partition", "_settling", "_sources", "_ticket", "numbers")

    def __init__(
        self, settling: PutAndAck, ticket: Ticket, partition: Partition, sources: Sequence[Source]
    ) -> None:
        super().__init__()
        self._settling = settling
        self._ticket = ticket
        self._partition = partition
        self._sources = sources
        self.numbers: list[int] = []  # of the settlements, one of each source

    def answer(self, outcome: Outcome) -> None:
        if isinstance(outcome, BrokerError):
            self._settling.release(self._sources)
        else:
            self._settling.settle(self._partition, self._sources, self.numbers)
        ticket = self._ticket
        ticket.offset = self.offset
        if ticket.open:
            ticket.settle(outcome)


class _Done(Silent):
    """The deliveries are settled, durably; or that has to be tried again."""

    __slots__ = ("_number", "_partition", "_settling")

    def __init__(self, settling: PutAndAck, partition: Partition, number: int) -> None:
        super().__init__()
        self._settling = settling
        self._partition = partition
        self._number = number

    def answer(self, outcome: Outcome) -> None:
        if isinstance(outcome, BrokerError):
            self._settling._later(self._partition, self._number)
        else:
            self._settling._close(self._partition, self._number)
