"""Dead messages go back to where they come from, or to another topic.

Each is leased to no client, read, put without the lines that say why it died, and acknowledged
in the same step (`zbus.core.patterns.completions`). Such a lease is no attempt. Those that cannot
go back, because the topic is gone or is not for the caller, are ready again when the others are
done. This many are moved in a turn, and no more: the rest goes on with the next one.

Nor do they go to a compact topic: put last, an old value would be the newest of its key.

Or they go back to the group alone in which they died: it is handed the message again that is in the
log of its topic still, so nothing is put, and no other group notices. That change of the group
decides. Whether it is that message is compared, since a topic may be another by now, and a producer
may have written the lines. And it is not done before the death is closed, durably, and whatever
else became of the message: a start would complete it again, and take the message from the group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from sys import maxsize
from typing import Final

from zbus.core.cursor.ranges import Ranges
from zbus.core.cursor.state import Completion
from zbus.core.delivery.run_queue import RunQueue
from zbus.core.model.chunk import Chunk, make_row
from zbus.core.model.dispositions import Disposition
from zbus.core.model.errors import BrokerError, Outcome, Refusal, group_unknown
from zbus.core.model.message_state import MessageState
from zbus.core.model.ticket import Calling, Parts, Silent, Ticket
from zbus.core.patterns.completions import Completions, Source
from zbus.core.patterns.dead_letters import Origin, origin_of, without_lines
from zbus.core.timing.timers import Timers
from zbus.core.topics.elsewhere import RemoteTopic, place_in
from zbus.core.topics.outcomes import DONE, Moved
from zbus.core.topics.topic import Group, Partition, Topic

PORTION: Final = 200
"""Messages that are moved in a turn."""

LEASE_MS: Final = 60_000
"""What is not done by then is given to others: the broker, or the partition, was begun again."""

PAUSE_MS: Final = 20
"""Between looks at whether other processes have stored what they were sent."""

Target = Callable[[str], "Topic | RemoteTopic | None"]
"""Where a message goes that comes from the topic of this name; None = nowhere, now."""


class Redriver:
    def __init__(self, runs: RunQueue, completions: Completions, timers: Timers) -> None:
        self.runs = runs
        self.completions = completions
        self.timer = timers.timer(_Job.go_on, lambda job: job.group)
        self.ends: dict[tuple[Group, Partition], _Ends] = {}  # in this turn

    def redrive(
        self,
        ticket: Ticket,
        group: Group,
        target: Target,
        count_max: int,
        partition: Partition | None = None,
        ranges: Ranges = (),
        only_group: bool = False,
    ) -> None:
        """Move what is ready in a group: at most that many, or these of one partition. Settles with
        Moved. `only_group`: to the group in which each died, and not to the others."""
        if group.paused:
            text = f"group {group.name} is paused"
            ticket.settle(BrokerError(Refusal.ILLEGAL, text))
            return
        partitions = group.topic.partitions if partition is None else [partition]
        for one in partitions:
            if one.fenced is not None:
                ticket.settle(one.fenced)
                return
        if partition is not None and ranges:
            ready = _named(group, partition, ranges)
        else:
            ready = _ready(group, partitions)
        _Job(self, ticket, group, target, count_max, ready, only_group).go_on()


def _identity(chunk: Chunk, at: int, index: int) -> tuple[bytes, ...]:
    """What a dead message has of the one that died."""
    return (
        chunk.id_of(at, index),
        without_lines(chunk.headers[at]),
        chunk.bodies[at],
        chunk.tag_of(at),
        chunk.key_of(at),
    )


def _is_free(home: _Home) -> bool:
    """The message is there, and the group has nothing to do with it."""
    group, there, was_at = home
    if group.gone or there.removed or there.fenced is not None or was_at < there.first:
        return False
    return group.backlogs[there.index].life(was_at) is MessageState.DONE


class _Ends:
    """What became of messages of a group in a partition, and is not closed durably, by the logs
    that have decided it. There may be thousands, so they are looked through once a turn."""

    def __init__(self, found: dict[Partition, list[Completion]]) -> None:
        self.logs = list(found)
        ranges = [places for open_ in found.values() for one in open_ for places in one.ranges]
        self._single = {start for start, stop in ranges if stop == start + 1}
        self._wide = [range(start, stop) for start, stop in ranges if stop > start + 1]

    def is_open(self, offset: int) -> bool:
        return offset in self._single or any(offset in offsets for offsets in self._wide)


Place = tuple[Partition, int]

_Home = tuple[Group, Partition, int]
"""The group in which a message died, and where the message is."""


def _named(group: Group, partition: Partition, ranges: Ranges) -> Iterator[Place]:
    backlog = group.backlogs[partition.index]
    for offsets in ranges:
        for offset in range(offsets.start, min(offsets.stop, partition.visible)):
            if backlog.life(offset) is MessageState.READY:
                yield partition, offset


def _ready(group: Group, partitions: list[Partition]) -> Iterator[Place]:
    """What was there when it began, in order: what dies meanwhile is not moved again."""
    ends = [(partition, partition.visible) for partition in partitions]
    for partition, end in ends:
        while (offset := group.backlogs[partition.index].next(end)) is not None:
            yield partition, offset


class _Job:
    """One request. It ends when all that it began has."""

    def __init__(
        self,
        redriving: Redriver,
        ticket: Ticket,
        group: Group,
        target: Target,
        count_max: int,
        ready: Iterator[Place],
        only_group: bool,
    ) -> None:
        self._redriving = redriving
        self._ticket = ticket
        self.group = group
        self._target = target
        self._left = count_max
        self._ready = ready
        self._only_group = only_group
        self._moved = 0
        self._stays: list[Place] = []  # these are leased still
        self._stayed = 0
        self._open = 1  # what is being read and put, and the search for more
        self._problem: BrokerError | None = None
        self._looking = self._looked = False
        self._remote = ""  # the topic of another process that something was sent to

    def go_on(self) -> None:
        """Move a portion."""
        self._redriving.ends.clear()
        for _ in range(PORTION):
            if self._remote and self._redriving.completions.elsewhere.busy(self._remote):
                self._later(PAUSE_MS)
                return
            place = None if self._is_over else next(self._ready, None)
            if place is None:
                self.ended()
                return
            self._left -= 1
            self._open += 1
            if not self._look(*place):
                return
        self._later()

    def _later(self, pause_ms: int = 0) -> None:
        """Go on in the next turn, or in one after a pause."""
        self._redriving.timer.set(self, self._redriving.runs.tick.now_ms + pause_ms)

    @property
    def _is_over(self) -> bool:
        return self._left <= 0 or self._problem is not None or self.group.gone

    def _look(self, partition: Partition, offset: int) -> bool:
        """Read a message; False if it comes later. It is not leased before it was looked at: a
        crash would keep that, and not that it is not due."""
        self._looking, self._looked = True, False
        partition.log.get(offset, partial(self._found, partition, offset))
        self._looking = False
        return self._looked

    def _found(
        self, partition: Partition, offset: int, found: tuple[Chunk, int] | BrokerError
    ) -> None:
        home = None
        if self._only_group and not isinstance(found, BrokerError):
            home = self._home(*found)
        if home is None or isinstance(found, BrokerError):
            self._seen(partition, offset, found, None)
            return
        group, there, was_at = home
        letter = _identity(*found, partition.index)

        def compared(original: tuple[Chunk, int] | BrokerError) -> None:
            fits = not isinstance(original, BrokerError) and (
                letter == _identity(*original, there.index) and self._wanted(group, *original)
            )
            self._seen(partition, offset, found, home if fits else None)

        there.log.get(was_at, compared)

    def _wanted(self, group: Group, chunk: Chunk, at: int) -> bool:
        """The group would not pass over the message: it has not expired, and fits the filter."""
        expires_ms = 0 if chunk.expires is None else chunk.expires[at]
        expired = 0 < expires_ms <= self._redriving.runs.tick.now_ms
        return not expired and (group.match is None or group.match(chunk.tag_of(at)))

    def _home(self, chunk: Chunk, at: int) -> _Home | None:
        """Where a message died, if that is here and is still there."""
        origin = Origin.of(chunk.headers[at])
        topic = None if origin is None else self._target(origin.topic)
        if origin is None or not isinstance(topic, Topic):
            return None
        group = topic.groups.get(origin.group.lower())
        if group is None or origin.partition >= len(topic.partitions):
            return None
        return group, topic.partitions[origin.partition], origin.offset

    def _seen(
        self,
        partition: Partition,
        offset: int,
        found: tuple[Chunk, int] | BrokerError,
        home: _Home | None,
    ) -> None:
        self._looked = True
        if not self._looking:
            self._redriving.ends.clear()
        self._judge(partition, offset, found, home)
        if not self._looking:
            self._later()

    def _judge(
        self,
        partition: Partition,
        offset: int,
        found: tuple[Chunk, int] | BrokerError,
        home: _Home | None,
    ) -> None:
        backlog = self.group.backlogs[partition.index]
        if partition.fenced is not None:
            self._problem = self._problem or partition.fenced
        elif isinstance(found, BrokerError):
            self._problem = self._problem or found
        elif not self.group.gone and backlog.life(offset) is MessageState.READY:
            self._move(partition, offset, *found, home)
            return
        self.ended()

    def _move(
        self, partition: Partition, offset: int, chunk: Chunk, at: int, home: _Home | None
    ) -> None:
        if self._unfit(partition, offset, chunk, at):
            self.ended()
            return
        runs = self._redriving.runs
        self.group.backlogs[partition.index].hold(offset, runs.tick.now_ms + LEASE_MS, self)
        runs.tick.change(partition, self.group)
        runs.schedule(self.group, partition.index)
        source = Source(self.group, partition, [range(offset, offset + 1)])
        if self._only_group:
            logs = self._closing(home) if home is not None and _is_free(home) else None
            if home is None or logs is None:
                self._keep(partition, offset)
                return
            logs.setdefault(partition)
            held = Parts(Calling(partial(self._hand_back, home, source)), DONE, len(logs))
            for log in logs:
                runs.tick.confirm(log, held.part())
            return
        topic = self._target(origin_of(chunk.headers[at]))
        options = topic.options if isinstance(topic, Topic) else None
        # Put last, an old value would be the newest of its key.
        if topic is None or (options is not None and (options.calls or options.compact)):
            self._keep(partition, offset)
            return
        headers, key = without_lines(chunk.headers[at]), chunk.key_of(at)
        id = chunk.id_of(at, partition.index)
        copy = Chunk.single(make_row(id, headers, chunk.bodies[at], chunk.tag_of(at), key))
        into = place_in(topic, key)
        if isinstance(into, RemoteTopic):
            self._remote = into.name
        put = self._redriving.completions.put_leased
        put(into, _Put(self, partition, offset), copy, [source])

    def _closing(self, home: _Home) -> dict[Partition, None] | None:
        """The logs in which what became of the message in its group is closed, perhaps not durably;
        None = it is not closed in all of them."""
        group, there, was_at = home
        ends = self._redriving.ends.get((group, there))
        if ends is None:
            every = {there.index: range(maxsize)}
            found = self._redriving.completions.naming(group, every)
            ends = self._redriving.ends[group, there] = _Ends(found)
        return None if ends.is_open(was_at) else dict.fromkeys(ends.logs)

    def _hand_back(self, home: _Home, source: Source, outcome: Outcome) -> None:
        """Have a message delivered once more to the group in which it died, unless that has it at
        the moment, or the log has forgotten the message."""
        partition, offset = source.partition, source.ranges[0].start
        if isinstance(outcome, BrokerError):
            self._problem = self._problem or outcome
        elif self._has(partition, offset) and _is_free(home):
            group, there, was_at = home
            backlog = group.backlogs[there.index]
            backlog.again(was_at)
            backlog.put_back(was_at)  # not in front: many keep their order, and newer ones wait
            self._redriving.runs.moved(group, there)
            ticket = _Put(self, partition, offset)
            self._redriving.completions.change(there, ticket, source)
            return
        self._keep(partition, offset)

    def _unfit(self, partition: Partition, offset: int, chunk: Chunk, at: int) -> bool:
        """It is not ready after all, as a consumer would find: delayed, expired or filtered."""
        group, runs, index = self.group, self._redriving.runs, partition.index
        backlog, now_ms = group.backlogs[index], runs.tick.now_ms
        is_new = offset == backlog.cursor  # no one has looked at its time
        due_ms = chunk.due[at] if chunk.due is not None and is_new else 0
        if due_ms > now_ms:
            backlog.delay(offset, due_ms)
            runs.passed(partition, offset, due_ms)
        elif chunk.expires is not None and 0 < chunk.expires[at] <= now_ms:
            backlog.finish(offset, Disposition.EXPIRED)
        elif group.match is not None and not group.match(chunk.tag_of(at)):
            backlog.finish(offset, Disposition.FILTERED)
        else:
            return False
        runs.tick.change(partition, group)
        runs.schedule(group, index)
        return True

    def _keep(self, partition: Partition, offset: int) -> None:
        """It cannot be moved. It stays leased until all others are done."""
        leased = self.group.backlogs[partition.index].leased
        if self._has(partition, offset):
            leased.settle_later(offset)
            self._stays.append((partition, offset))
        self._stayed += 1
        self.ended()

    def _has(self, partition: Partition, offset: int) -> bool:
        """It is leased by this still: the group was not read again meanwhile."""
        leased = self.group.backlogs[partition.index].leased
        return partition.fenced is None and (leased.unreported or {}).get(offset) is self

    def put(self, partition: Partition, offset: int, outcome: Outcome) -> None:
        """The end of one."""
        if isinstance(outcome, BrokerError):
            if outcome.refusal is not Refusal.TOPIC_UNKNOWN:  # another process has no such topic
                self._problem = self._problem or outcome
            self._keep(partition, offset)
        else:
            self._moved += 1
            self.ended()

    def ended(self) -> None:
        """Something that was open is not."""
        self._open -= 1
        if self._open:
            return
        self._redriving.ends.clear()
        if not self.group.gone:
            self._give_back()
        if self._ticket.open:
            self._ticket.settle(self._outcome())

    def _outcome(self) -> Outcome:
        if not self._moved and self.group.gone:
            return group_unknown(self.group.name)
        if not self._moved and self._problem is not None:
            return self._problem
        return Moved(self._moved, self._stayed)

    def _give_back(self) -> None:
        """What stays is ready again, as it was."""
        runs = self._redriving.runs
        for partition, offset in self._stays:
            backlog = self.group.backlogs[partition.index]
            if self._has(partition, offset):
                backlog.leased.settle_no_more(offset)
                backlog.put_back(offset)
                runs.changed(self.group, partition)


class _Put(Silent):
    __slots__ = ("_job", "_offset", "_partition")

    def __init__(self, job: _Job, partition: Partition, offset: int) -> None:
        super().__init__()
        self._job = job
        self._partition = partition
        self._offset = offset

    def answer(self, outcome: Outcome) -> None:
        self._job.put(self._partition, self._offset, outcome)
