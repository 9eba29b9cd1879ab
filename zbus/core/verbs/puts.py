"""Putting: one message or many, with all that a put may ask for. One way, and its steps in order:

    quick      one message that asks for nothing, while nothing is refused: straight to the log
    check      how many messages, how large they are, how many a second the topic takes
    recognise  what was stored before (`zbus.core.commit.recognition`)
    fit        what is new: whether the bodies fit the schema of the topic
    refuse     what is new: the disk is full, the log ends elsewhere, too many ids are in use
    record     the messages in the chunk of this turn, and their keys and ids
    place      in front of what is ready, or beside the log until it is due
    answer     when all of it is durable, what is new and what was there before

A put that is refused ends with the reason, and stores nothing.

Mostly a group learns when a message is due as its cursor comes to it. Then messages that no client
has asked for yet are delivered in the order of the log, also if they are due in another, and count
as ready before they are. What is put with `PutPlace.DUE` waits beside the log from the beginning,
in every group that is there: it is delivered in the order in which it becomes due, and counts as
what it is. It costs each of the groups what a delayed message costs (`zbus.core.timing.delays`).
Message and place are one write.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Final, NamedTuple

from zbus.core.commit.recognition import Recognised, Recognition
from zbus.core.cursor.state import TopicOptions
from zbus.core.delivery.run_queue import RunQueue
from zbus.core.model.chunk import Chunk, Row
from zbus.core.model.errors import BrokerError, Refusal, conflict
from zbus.core.model.limits import Limits
from zbus.core.model.rate_limit import RateLimit, so_many
from zbus.core.model.ticket import Parts, Ticket
from zbus.core.timing.timers import Timers
from zbus.core.topics.outcomes import Duplicate
from zbus.core.topics.topic import Group, Partition, Topic

AHEAD_MAX: Final = 1_000
"""Messages that wait beyond what is ready and that no client asks for. With more, the cursor goes
past some of what is ready, which then costs as much; so a few that are stuck do not hold
millions."""

_ONCE: Final = 7
"""Where in a row its idempotency key is."""


class PutPlace(enum.Enum):
    """Where in a group that is there what is new stands."""

    END = "end"  # as the log has it
    FRONT = "front"  # before all that is ready, in its order; what is not due yet has its turn then
    DUE = "due"  # as the log has it, and what is not due yet waits beside it


class PutOptions(NamedTuple):
    """What a put may ask for."""

    place: PutPlace = PutPlace.END
    expected_offset: int | None = None  # only if the log ends there, else CONFLICT
    # False: what was stored before is stored once more. A copy has the id of its original.
    recognised: bool = True
    # False: nothing that a client puts. What the broker copies is never lost for its body.
    checked: bool = True


PLAIN: Final = PutOptions()
FRONT: Final = PutOptions(PutPlace.FRONT)
WHEN_DUE: Final = PutOptions(PutPlace.DUE)
AGAIN: Final = PutOptions(recognised=False)
COPIED: Final = PutOptions(recognised=False, checked=False)
FORWARDED: Final = PutOptions(checked=False)


class Puts:
    """The verbs that put; settle with Stored, or Duplicate if something of it was there before."""

    def __init__(self, runs: RunQueue, timers: Timers, limits: Limits) -> None:
        self._runs = runs
        self._tick = runs.tick
        self.recognition = Recognition(runs.tick, timers)
        self._limits = limits
        self._message_bytes_max = limits.message_bytes_max
        self._limited = bool(limits.topic_messages_per_s or limits.topic_bytes_per_s)
        self._along_bytes_max = -1 if self._limited else limits.message_bytes_max
        # Why nothing is put now, and why not even in a topic in memory (then both are set).
        self.refusing: BrokerError | None = None
        self.refusing_in_memory: BrokerError | None = None

    # -- one message ----------------------------------------------------------------------

    def put(
        self, partition: Partition, ticket: Ticket, row: Row, options: PutOptions = PLAIN
    ) -> None:
        """Store one message."""
        if (
            options is not PLAIN
            or (len(row) > _ONCE and row[_ONCE])
            or (partition.topic.has_put_hooks and (row[0] or partition.topic.judges_puts))
            or self._limited
            or self.refusing is not None
            or len(row[2]) > self._message_bytes_max
        ):
            self.put_all(partition, ticket, Chunk.single(row), options)
        else:
            self._tick.stage(partition, ticket, row)

    def put_along(self, partition: Partition, ticket: Ticket, row: Row) -> bool:
        """Put one more message under the ticket of the one before, so that they end together.
        False if that cannot be: something came in between, or it must be checked on its own."""
        if partition.last is not ticket or len(row[2]) > self._along_bytes_max:
            return False
        staged = partition.staged
        assert staged is not None
        if len(row) > _ONCE:
            if row[_ONCE] and not self.recognition.record_along(partition, row):
                return False
            staged.add(*row)
        elif staged.plain:  # as `add` does, without a call
            id, headers, body = row
            staged.ids.append(id)
            staged.headers.append(headers)
            staged.bodies.append(body)
        else:
            staged.add(*row)
        partition.end += 1
        return True

    # -- many, and all that may be asked for ----------------------------------------------

    def put_all(
        self, partition: Partition, ticket: Ticket, chunk: Chunk, options: PutOptions = PLAIN
    ) -> None:
        """Store messages, all or none, at consecutive offsets. The chunk is given away: its offset
        and time are the broker's to say. If one has an idempotency key, all have the same."""
        problem = self._batch_problem(partition.topic, chunk)
        if problem is not None:
            ticket.settle(problem)
            return
        found = self.recognition.recognise(partition, chunk) if options.recognised else None
        if found is not None and found.problem is not None:
            ticket.settle(found.problem)
            return
        new = chunk if found is None else found.new
        if new.bodies and options.checked:  # a repetition is none of the schema's business
            problem = self.misfit(partition.topic, chunk.bodies, chunk.keys, chunk.due)
            if problem is None and partition.topic.options.compact:
                problem = _compact_problem(partition, chunk, options)
            if problem is not None:
                ticket.settle(problem)
                return
        if new.bodies and self._refuse(partition, ticket, found, options):
            return
        part = ticket
        if found is not None and len(new.bodies) < len(chunk.bodies):
            part = self._join(partition, ticket, len(chunk.bodies), found)
        if not new.bodies:
            return
        first, due = partition.end, new.due
        self._tick.stage(partition, part, new)
        if partition.topic.judges_puts:
            partition.last = None  # the next one is checked, too: nothing goes along
        if found is not None:  # not before it is there: what is recognised is acknowledged
            self.recognition.record(partition, found, first)
        if options.place is PutPlace.FRONT:
            self._put_in_front(partition, first, due)
        elif options.place is PutPlace.DUE and due is not None:
            self._delay(partition, first, due)

    # -- check and refuse -----------------------------------------------------------------

    def refuse(self, error: BrokerError | None, in_memory: BrokerError | None) -> None:
        """Refuse what is put from now on, in topics on disk and in those in memory; None = accept
        it again. Consumes, acknowledgements and everything else go on."""
        self.refusing, self.refusing_in_memory = error, in_memory

    def refusal(self, options: TopicOptions) -> BrokerError | None:
        """Why a message for such a topic, or a new one, is refused now: the monitor of disk
        and memory decides. A disk without room is no reason for a topic in memory."""
        return self.refusing_in_memory if options.durability == "memory" else self.refusing

    def too_large(self) -> BrokerError:
        """The refusal of a body over the limit."""
        text = f"a message body has at most {self._message_bytes_max} bytes"
        return BrokerError(Refusal.TOO_LARGE, text)

    def misfit(
        self,
        topic: Topic,
        bodies: Sequence[bytes],
        keys: Sequence[bytes] | None,
        due: Sequence[int] | None = None,
    ) -> BrokerError | None:
        """Why a client may not put these into a topic: one does not fit its schema, or has no key
        in a compact topic, or is delayed there."""
        if topic.options.compact and not (keys and all(keys)):
            text = f"{topic.name} is compact, which keeps the newest message of each key: give key"
            return BrokerError(Refusal.ILLEGAL, text)
        if topic.options.compact and due is not None:
            text = (
                f"{topic.name} is compact and takes no delayed messages:"
                " the newest of a key is the one put last"
            )
            return BrokerError(Refusal.ILLEGAL, text)
        if topic.check is None:
            return None
        if topic.options.compact:
            bodies = [body for body in bodies if body]  # without a body it is a tombstone
        return topic.check.problem_of(bodies)

    def _batch_problem(self, topic: Topic, chunk: Chunk) -> BrokerError | None:
        bodies, count_max = chunk.bodies, self._limits.batch_messages_max
        if not 0 < len(bodies) <= count_max:
            return BrokerError(Refusal.ILLEGAL, f"a batch has 1 to {count_max} messages")
        if max(map(len, bodies)) > self._message_bytes_max:
            return self.too_large()
        if not self._limited:
            return None
        # A batch passes as a whole, also if it is more than is left. Bytes are those of bodies.
        quota = self._quota(topic)
        if wait_s := quota.wait_s(self._tick.now_ms):
            return self._throttled(topic, wait_s)
        quota.take(len(bodies), sum(map(len, bodies)))
        return None

    def _quota(self, topic: Topic) -> RateLimit:
        if topic.quota is None:
            limits = self._limits
            topic.quota = RateLimit(limits.topic_messages_per_s, limits.topic_bytes_per_s)
        return topic.quota

    def _throttled(self, topic: Topic, wait_s: int) -> BrokerError:
        limits = self._limits
        most = so_many((limits.topic_messages_per_s, "message"), (limits.topic_bytes_per_s, "byte"))
        text = f"{topic.name} accepts {most} a second: retry in {wait_s} s"
        return BrokerError(Refusal.THROTTLED, text, topic.name, wait_s)

    def _refuse(
        self, partition: Partition, ticket: Ticket, found: Recognised | None, options: PutOptions
    ) -> bool:
        """Whether what is new is refused now; then the ticket ends."""
        problem = self.refusal(partition.topic.options)
        if problem is None and options.expected_offset not in (None, partition.end):
            problem = conflict(partition.index, partition.end)
            if partition.end > partition.visible:
                # A crash may take that end back, and what is before it may find no room yet: then
                # this is refused like that.
                parts = Parts(ticket, problem, 1)
                self._tick.join(partition, partition.end - 1, parts.part())
                return True
        if problem is None and found is not None:
            problem = found.too_many_ids(partition, self._tick.now_ms)
        if problem is not None:
            ticket.settle(problem)
        return problem is not None

    # -- answer and place -----------------------------------------------------------------

    def _join(self, partition: Partition, ticket: Ticket, count: int, found: Recognised) -> Ticket:
        """Wait for what was there before; gives the ticket of what is new. The two have one fate:
        what is refused of the originals refuses this."""
        last: dict[Partition, int] = {}
        for home, original in found.known:
            last[home] = max(last.get(home, 0), original.offset + original.records - 1)
        new = len(found.new.bodies)
        home, ticket.offset = partition, partition.end
        if not new:
            home, ticket.offset = found.known[0][0], found.known[0][1].offset
        parts = Parts(ticket, Duplicate(home, count - new), len(last) + bool(new))
        for home, offset in last.items():
            self._tick.join(home, offset, parts.part())
        return parts.part()

    def _put_in_front(self, partition: Partition, first: int, due: list[int] | None) -> None:
        now_ms, new = self._tick.now_ms, range(first, partition.end)
        ready = [o for o in new if due is None or due[o - first] <= now_ms]
        for group in partition.topic.groups.values():
            backlog = group.backlogs[partition.index]
            for offset in reversed(ready):
                backlog.put_front(offset)
            self._tick.change(partition, group)

    def _delay(self, partition: Partition, first: int, due: list[int]) -> None:
        runs, tick, index = self._runs, self._tick, partition.index
        later = {o: due_ms for o, due_ms in enumerate(due, first) if due_ms > tick.now_ms}
        for group in partition.topic.groups.values() if later else ():
            backlog = group.backlogs[index]
            for offset, due_ms in later.items():
                backlog.delay(offset, due_ms)
            if len(backlog.ahead) > AHEAD_MAX:
                _catch_up(group, partition, tick.now_ms, 2 * len(later))
            tick.change(partition, group)
            runs.schedule(group, index)
        for offset, due_ms in later.items():
            runs.passed(partition, offset, due_ms)


def _compact_problem(partition: Partition, chunk: Chunk, options: PutOptions) -> BrokerError | None:
    """Why the newest message of a key would not be the last one put, or not be found."""
    topic, text = partition.topic, ""
    if options.place is PutPlace.FRONT:
        text = "is compact and takes no messages in front: those of a key are delivered in order"
    elif len(topic.partitions) > 1 and any(
        topic.partition_for(key) is not partition for key in chunk.keys or ()
    ):
        text = "is compact and has each key in the partition of the key: give no other partition"
    return BrokerError(Refusal.ILLEGAL, f"{topic.name} {text}") if text else None


def _catch_up(group: Group, partition: Partition, now_ms: int, count_max: int) -> None:
    """Move the cursor past messages that are ready. They keep their places."""
    backlog = group.backlogs[partition.index]
    for _ in range(count_max):
        offset = backlog.reached()
        chunk = partition.log.find(offset)
        if chunk is None or offset >= partition.visible:
            return
        due_ms = 0 if chunk.due is None else chunk.due[offset - chunk.first]
        if due_ms > now_ms:
            backlog.delay(offset, due_ms)
        else:
            backlog.put_back(offset)
