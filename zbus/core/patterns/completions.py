"""Decide in one log, complete in others, also after a crash.

A put may decide what becomes of deliveries: a result is stored and its sources are done (take,
transform, put), a message is dead-lettered here and finished there, a dead message goes back, a
staged one comes to its topic, a schedule occurs and waits for its next time. Both happen or
neither, though they lie in different logs, of which a crash may keep one and lose the other. So the
log that is put to decides. What is to be completed, a `Completion`, has these states:

    prepared   the deliveries are *settling*: leased, and neither given back nor timed out
    decided    it is durable, written before the messages and in the same write: answered
    refused    the put was: the deliveries are leased as before
    waiting    the other partition is read again, or its disk is full: tried again each second
    closed     what it says of the deliveries is durable in their own log: it is forgotten

A start that finds one completes it again, which does no harm, if the messages that it counts by are
there. If a crash took them it took the decision: then it does not count, and that is written before
anything else takes their place.

A change of the log may decide in place of messages: a group is handed a message again, and the dead
letter of that message is finished. It is one record with its completion, so both are there or
neither. It is true in memory at once, so there is no way back: if the disk has no room for it, the
deliveries are settling until it has.

A group may be handed a message again that a completion has finished: by an operator, or as it is
put back (`reopening`). A start that found the completion would take the message from the group. So
that is answered when the completion is closed durably, and that is done when the group's own log
has it durably that the message is ready: after a crash in between, it was not answered.

If another process of the server has the log that would decide (`zbus.core.topics.elsewhere`), the
deliveries decide instead, as nothing is written in two processes at once. They are settling until
the put is answered, and done after that. What is repeated after a crash in between is put under the
same key, so it is stored once: a key names the deliveries, and what is put for them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from itertools import chain
from typing import NamedTuple, TypeAlias
from urllib.parse import quote

import attrs

from zbus.core.cursor.backlog import Backlog
from zbus.core.cursor.ranges import Ranges, distinct, finish_all, known_of
from zbus.core.cursor.state import Completion
from zbus.core.dedup.window import OWN_KEY, fingerprint
from zbus.core.delivery.run_queue import RunQueue
from zbus.core.model.chunk import Chunk, Row
from zbus.core.model.dispositions import Disposition
from zbus.core.model.errors import BrokerError, Outcome, Refusal, fenced, topic_unknown
from zbus.core.model.message_state import MessageState
from zbus.core.model.ticket import Calling, Parts, Silent, Ticket
from zbus.core.timing.timers import Timers
from zbus.core.topics.elsewhere import Elsewhere, RemoteTopic
from zbus.core.topics.open_completions import Deliveries, OpenCompletions
from zbus.core.topics.outcomes import DONE
from zbus.core.topics.topic import Group, Partition, Topic
from zbus.core.verbs.puts import COPIED, PLAIN, PutOptions, Puts

AGAIN_MS = 1_000
"""How often it is tried again to complete what is not possible now: a disk is full, a partition is
read again."""

_SHOWN_MAX = 100
"""Of a group's name in a key, which has all of it in its digest, too."""


class Source(NamedTuple):
    """Deliveries of a group in one partition, and what becomes of them: they are done, or
    dead-lettered, or given back until a time. Those that are given back again and again count as
    attempts how often they were: what has more than `attempts` was given back already."""

    group: Group
    partition: Partition
    ranges: Ranges
    dead: bool = False
    due_ms: int = 0
    attempts: int = 0

    @property
    def backlog(self) -> Backlog:
        return self.group.backlogs[self.partition.index]

    def open(self) -> list[int]:
        """Those of which it is not yet true."""
        backlog = self.backlog
        dues, life, attempts = backlog.leased.dues, backlog.life, backlog.attempts
        found = [
            offset
            for offsets in self.ranges
            for offset in offsets
            if offset in dues or life(offset) is not MessageState.DONE
        ]
        if self.due_ms:
            return [offset for offset in found if attempts.get(offset, 0) <= self.attempts]
        return found


_Place: TypeAlias = "tuple[Partition, Completion]"
"""A completion, and the partition that has decided it."""

_Open: TypeAlias = "tuple[Partition, Completion, Source]"
"""A completion that is not closed: of which partition, and what it completes."""


class Completions:
    """Those of all partitions. `topics` are the broker's, by lower-case name."""

    def __init__(
        self, topics: dict[str, Topic], runs: RunQueue, puts: Puts, timers: Timers
    ) -> None:
        self._topics = topics
        self.elsewhere = Elsewhere()
        self._runs = runs
        self._tick = runs.tick
        self._puts = puts
        self._timer = timers.timer(self._redo, lambda place: place[0])
        self.changes = timers.timer(_Change.ask, lambda change: change.partition)
        runs.reopening = self.reopening
        self.found: list[Partition] = []  # were read, at the start or again
        self._open: list[_Open] = []  # when something was read last
        self._deciding: dict[Partition, None] = {}  # these may have some that are not closed

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
        partition: Partition | RemoteTopic,
        ticket: Ticket,
        chunk: Chunk,
        sources: Sequence[Source],
        options: PutOptions = COPIED,
    ) -> None:
        """The same for deliveries that are leased. What is put elsewhere has one source, of as many
        deliveries as there are messages: settles with Done when they are settled, durably."""
        for source in sources:
            self._hold(source)
        if isinstance(partition, RemoteTopic):
            (source,) = sources
            assert self.elsewhere.port is not None
            rows, sent = _keyed(chunk, source), _Sent(self, ticket, source)
            self.elsewhere.port.put(source.partition, partition.name, rows, sent)
            return
        held = _Held(self, ticket, partition, sources, partition.completions)
        end = partition.end
        self._puts.put_all(partition, held, chunk, options)
        if partition.end == end or not held.open:
            return  # it is refused, or was stored before: nothing has to be remembered
        known = self._known(partition)
        for one in sources:
            completion = _completion(known.next_number, partition.end, one)
            known.add(completion)
            held.completions.append(completion)

    def change(self, partition: Partition, ticket: Ticket, source: Source) -> None:
        """Settle deliveries that are leased with a change of another partition, which the caller
        has made in this turn. Settles with Done when the change is durable; with why not if it is
        not, and then the deliveries are leased as before."""
        self._hold(source)
        known = self._known(partition)
        completion = _completion(known.next_number, 0, source)
        known.add(completion)
        _Change(self, partition, ticket, source, completion).ask()

    def _known(self, partition: Partition) -> OpenCompletions:
        self._deciding[partition] = None
        partition.completions = partition.completions or OpenCompletions()
        return partition.completions

    def forget(self, topic: Topic) -> None:
        """The topic is gone."""
        for partition in topic.partitions:
            self._deciding.pop(partition, None)

    def reopening(
        self, ticket: Ticket, group: Group, offsets: Mapping[int, range]
    ) -> Ticket | BrokerError:
        """A group is handed these again, by partition, with a change that the caller makes now and
        confirms with the ticket given: that settles this one when no completion undoes it."""
        found = self.naming(group, offsets)
        for partition, completions in found.items():
            if partition.fenced is not None:
                return partition.fenced
            for source in map(self._source, completions):
                inside = offsets[source.partition.index] if source is not None else ()
                if source is not None and any(o not in inside for o in source.open()):
                    text = f"of group {group.name} more is being settled with it: retry"
                    return BrokerError(Refusal.CONFLICT, text)
        for partition, completions in found.items():
            for completion in completions:
                self._timer.discard((partition, completion))
        return _Reopened(self, ticket, found) if found else ticket

    def naming(
        self, group: Group, offsets: Mapping[int, range]
    ) -> dict[Partition, list[Completion]]:
        """Completions of these that are open; none, where they are closed and it is not durable."""
        found = dict[Partition, list[Completion]]()
        topic, topic_ms = group.topic.name, group.topic.options.created_ms
        name, group_ms = group.name, group.options.created_ms
        names = {Deliveries(topic, topic_ms, name, group_ms, index) for index in offsets}
        for partition in list(self._deciding):
            known = partition.completions
            if known is None or not (known.open or known.closing):
                del self._deciding[partition]
                continue
            open_ = [
                one
                for one in known.open.values()
                if one.group == name
                and one.partition in offsets
                and Deliveries.of(one) in names
                and _overlap(one, offsets[one.partition])
            ]
            if open_ or not known.closing.isdisjoint(names):
                found[partition] = open_
        return found

    def _problem(self, sources: Sequence[Source]) -> BrokerError | None:
        for source in sources:
            group, ranges, leased = source.group, source.ranges, source.backlog.leased
            if not group.lease:
                text = f"group {group.name} acknowledges on delivery: there is nothing to settle"
                return BrokerError(Refusal.ILLEGAL, text)
            known = set(known_of(ranges, leased)) - leased.settling
            if len(known) < distinct(ranges):
                missing = next(o for offsets in ranges for o in offsets if o not in known)
                text = f"offset {missing} is not leased: nothing is stored"
                return BrokerError(Refusal.NOT_LEASED, text)
        return None

    def release(self, sources: Sequence[Source]) -> None:
        """Nothing was stored: the deliveries are leased as before."""
        for source in sources:
            leased = source.backlog.leased
            for offset in known_of(source.ranges, leased.settling):
                leased.settle_no_more(offset)

    def settle(
        self, partition: Partition, sources: Sequence[Source], completions: Sequence[Completion]
    ) -> None:
        """What was put is durable. Without completions it was stored before, by an unknown
        request."""
        for at, source in enumerate(sources):
            completion = completions[at] if completions else None
            if source.partition.removed or source.group.gone:
                self._close(partition, completion)
            elif source.partition.fenced is not None:
                self._later(partition, completion)
            else:
                held = source if completion is None else _still_held(source)
                self._finish(partition, completion, held)

    def settle_sent(self, ticket: Ticket, source: Source) -> None:
        """What was put elsewhere is stored there."""
        partition = source.partition
        if partition.fenced is not None:  # it is put again, under the same key
            ticket.settle(partition.fenced)
        elif partition.removed or source.group.gone:
            ticket.settle(DONE)
        else:
            self._finish(partition, None, _still_held(source))
            self._tick.confirm(partition, ticket)

    def recover(self) -> None:
        """Settle what partitions say that were read since the last call. What is put yet and not
        decided settles deliveries of such partitions, too: they stay leased, to no client."""
        found, self.found = self.found, []
        for partition in found:
            known = partition.completions
            if known is not None:
                self._deciding[partition] = None
            for completion in list(known.open.values()) if known is not None else ():
                self._redo((partition, self._without_lost(partition, completion)))
        freed = self._let_go(found)
        read, self._open = set(found), []
        for topic in self._topics.values():
            for partition in topic.partitions:
                known = partition.completions
                for completion in known.open.values() if known is not None else ():
                    source = self._source(completion)
                    if source is None:
                        continue
                    self._open.append((partition, completion, source))
                    undecided = completion.end > partition.visible
                    if source.partition in read or (undecided and source.partition in freed):
                        self._hold(source)

    def _without_lost(self, partition: Partition, completion: Completion) -> Completion:
        """The completion without messages that a crash removed: see `Broker.restore`."""
        source = self._source(completion)
        if source is None or all(stop <= source.partition.end for _, stop in completion.ranges):
            return completion
        known = self._known(partition)
        known.close(completion)
        ranges = tuple([(offsets.start, offsets.stop) for offsets in source.ranges])
        rest = attrs.evolve(completion, number=known.next_number, ranges=ranges)
        if ranges:
            known.add(rest)
        self._tick.touch(partition)
        return rest

    def _let_go(self, found: list[Partition]) -> set[Partition]:
        """These were read, and some of what they were to settle is not to be: it is leased as any
        other, unless another completion holds it. Gives the partitions where it is."""
        freed: set[Partition] = set()
        for partition, completion, source in self._open:
            known = partition.completions
            there = None if known is None else known.open.get(completion.number)
            if partition in found and there != completion and source.partition.fenced is None:
                self.release([source])
                freed.add(source.partition)
        return freed

    def _hold(self, source: Source) -> None:
        backlog = source.backlog
        for offset in source.open():
            if offset in backlog.leased:
                backlog.leased.settle_later(offset)
            else:  # its lease was lost
                backlog.hold(offset, self._tick.now_ms + AGAIN_MS)
                self._tick.change(source.partition, source.group)

    def _redo(self, place: _Place) -> None:
        """It is not known what of a completion is done. The topic that has decided it may be gone
        by now."""
        partition, completion = place
        known = partition.completions
        is_open = known is not None and known.open.get(completion.number) == completion
        if not is_open or completion.end > partition.visible:
            return  # it is closed, or is being decided yet, or was refused
        source = self._source(completion)
        if source is None:
            self._close(partition, completion)
        elif source.partition.fenced is not None or partition.fenced is not None:
            self._later(partition, completion)
        else:
            self._finish(partition, completion, source)

    def _source(self, completion: Completion) -> Source | None:
        """What it settles, if that is still there."""
        topic = self._topics.get(completion.topic.lower())
        group = None if topic is None else topic.groups.get(completion.group.lower())
        if topic is None or topic.options.created_ms != completion.topic_ms:
            return None
        if group is None or group.options.created_ms != completion.group_ms:
            return None
        if completion.partition >= len(topic.partitions):
            return None
        partition = topic.partitions[completion.partition]
        first, end = partition.first, partition.end
        ranges = [range(max(a, first), min(b, end)) for a, b in completion.ranges]
        found = [offsets for offsets in ranges if offsets]
        return Source(
            group, partition, found, completion.dead, completion.due_ms, completion.attempts
        )

    def _finish(self, partition: Partition, completion: Completion | None, source: Source) -> None:
        group, there, ranges, dead, due_ms, attempts = source
        backlog = source.backlog
        if due_ms:
            given_back = source.open()
            for offset in given_back:
                backlog.attempts[offset] = attempts + 1
                backlog.delay(offset, due_ms)
                if group.moved is not None:
                    group.moved.pop(offset, None)
            self._runs.schedule_at(group, there.index, due_ms)
            count = len(given_back)
        else:
            fate = Disposition.DEAD if dead else Disposition.DONE
            count = sum([finish_all(backlog, offsets, fate) for offsets in ranges])
            backlog.dead += count if dead else 0
        if count:
            self._runs.changed(group, there)
        if completion is not None:
            self._tick.confirm(there, _Done(self, partition, completion))

    def _close(self, partition: Partition, completion: Completion | None) -> None:
        known = partition.completions
        if completion is not None and known is not None and not partition.removed:
            known.close(completion)
            self._tick.touch(partition)

    def _later(self, partition: Partition, completion: Completion | None) -> None:
        if completion is not None:
            self._timer.set((partition, completion), self._tick.now_ms + AGAIN_MS)


def _overlap(completion: Completion, offsets: range) -> bool:
    return any(a < offsets.stop and offsets.start < b for a, b in completion.ranges)


def _still_held(source: Source) -> Source:
    """Without those that are not settling any more: the group was moved meanwhile, and is to read
    them again."""
    settling = source.backlog.leased.settling
    found = [range(offset, offset + 1) for offset in known_of(source.ranges, settling)]
    return source._replace(ranges=found)


def _keyed(chunk: Chunk, source: Source) -> list[Row]:
    """The messages that are put for these deliveries, with keys that name both."""
    group, partition = source.group, source.partition
    topic, name = group.topic, quote(group.name, safe="")[:_SHOWN_MAX].encode()
    place = topic.name, topic.options.created_ms, group.name, group.options.created_ms
    rows: list[Row] = []
    for at, offset in enumerate(chain.from_iterable(source.ranges)):
        one = chunk.message(at)
        what = repr((place, group.incarnation, fingerprint(chunk, at, at + 1)))
        incarnation = blake2b(what.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
        once = b"%b%b:%d:%d:%b" % (OWN_KEY, incarnation.encode(), partition.index, offset, name)
        labels = one.tag, one.key, one.due_ms, one.expires_ms, once, one.attempts_max
        rows.append((one.id, one.headers, one.body, *labels))
    return rows


def _completion(number: int, end: int, source: Source) -> Completion:
    group, topic = source.group, source.group.topic
    return Completion(
        number,
        end,
        topic.name,
        topic.options.created_ms,
        group.name,
        group.options.created_ms,
        source.partition.index,
        tuple([(offsets.start, offsets.stop) for offsets in source.ranges]),
        source.dead,
        source.due_ms,
        source.attempts,
    )


class _Held(Ticket):
    """The put of such messages: it decides."""

    __slots__ = ("_all", "_count", "_known", "_partition", "_sources", "_ticket", "completions")

    def __init__(
        self,
        all_: Completions,
        ticket: Ticket,
        partition: Partition,
        sources: Sequence[Source],
        known: OpenCompletions | None,
    ) -> None:
        super().__init__()
        self._known = known
        self._count = 0 if known is None else known.count  # what is closed is written with it
        self._all = all_
        self._ticket = ticket
        self._partition = partition
        self._sources = sources
        self.completions: list[Completion] = []  # one of each source

    def answer(self, outcome: Outcome) -> None:
        if isinstance(outcome, BrokerError):
            self._all.release(self._sources)
        else:
            if self._known is not None and self.completions:  # it was not there before
                self._known.durable(self._count)
            self._all.settle(self._partition, self._sources, self.completions)
        ticket = self._ticket
        ticket.offset = self.offset
        if ticket.open:
            ticket.settle(outcome)


class _Change:
    """A change that decides, until it is durable."""

    __slots__ = ("_all", "_completion", "_source", "_ticket", "partition")

    def __init__(
        self,
        all_: Completions,
        partition: Partition,
        ticket: Ticket,
        source: Source,
        completion: Completion,
    ) -> None:
        self._all = all_
        self.partition = partition
        self._ticket = ticket
        self._source = source
        self._completion = completion

    def ask(self) -> None:
        if self.partition.removed:
            self._answer(topic_unknown(self.partition.topic.name))
        else:
            self._all._tick.confirm(self.partition, Calling(self._answer))

    def _answer(self, outcome: Outcome) -> None:
        all_, partition = self._all, self.partition
        if isinstance(outcome, BrokerError) and outcome.refusal is Refusal.FULL:
            all_.changes.set(self, all_._tick.now_ms + AGAIN_MS)
            return
        if isinstance(outcome, BrokerError):
            all_.release([self._source])
        else:
            all_.settle(partition, [self._source], [self._completion])
        self._ticket.settle(outcome)


class _Sent(Silent):
    """The put of such messages elsewhere."""

    __slots__ = ("_all", "_source", "_ticket")

    def __init__(self, all_: Completions, ticket: Ticket, source: Source) -> None:
        super().__init__()
        self._all = all_
        self._ticket = ticket
        self._source = source

    def answer(self, outcome: Outcome) -> None:
        if isinstance(outcome, BrokerError):
            self._all.release([self._source])
            self._ticket.settle(outcome)
        else:
            self._all.settle_sent(self._ticket, self._source)


class _Reopened(Silent):
    """Messages were given back to a group that completions had finished."""

    __slots__ = ("_all", "_found", "_ticket")

    def __init__(
        self, all_: Completions, ticket: Ticket, found: dict[Partition, list[Completion]]
    ) -> None:
        super().__init__()
        self._all = all_
        self._ticket = ticket
        self._found = [(one, one.epoch, completions) for one, completions in found.items()]

    def answer(self, outcome: Outcome) -> None:
        all_, ticket = self._all, self._ticket
        if isinstance(outcome, BrokerError):
            for partition, _, completions in self._found:
                for completion in completions:
                    all_._later(partition, completion)
            if ticket.open:
                ticket.settle(outcome)
            return
        parts = Parts(ticket, outcome, len(self._found))
        for partition, epoch, completions in self._found:
            if partition.removed:
                parts.ended(outcome)
            elif partition.epoch != epoch:  # what it says is completed once more
                parts.ended(partition.fenced or fenced(*partition.lane, "it was read again"))
            else:
                for completion in completions:
                    all_._close(partition, completion)
                all_._tick.confirm(partition, parts.part())


class _Done(Silent):
    """The deliveries are settled, durably; or that has to be tried again."""

    __slots__ = ("_all", "_completion", "_partition")

    def __init__(self, all_: Completions, partition: Partition, completion: Completion) -> None:
        super().__init__()
        self._all = all_
        self._partition = partition
        self._completion = completion

    def answer(self, outcome: Outcome) -> None:
        if isinstance(outcome, BrokerError):
            self._all._later(self._partition, self._completion)
        else:
            self._all._close(self._partition, self._completion)
