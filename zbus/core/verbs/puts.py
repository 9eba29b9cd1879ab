"""The verbs that put: one message or many, each time or once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zbus.core.commit.idempotent_put import put_once, put_with_key, remember_along
from zbus.core.cursor.state import TopicOptions
from zbus.core.model.chunk import Chunk, Row
from zbus.core.model.errors import BrokerError, Refusal
from zbus.core.model.limits import Limits
from zbus.core.model.ticket import Ticket

if TYPE_CHECKING:
    from zbus.core.commit.tick import Tick
    from zbus.core.topics.topic import Partition


class Puts:
    """A put that is refused ends with the reason, and stores nothing."""

    def __init__(self, tick: Tick, limits: Limits) -> None:
        self.tick = tick
        self.limits = limits
        self._message_bytes_max = limits.message_bytes_max
        # Why nothing is put now, and why not even in a topic in memory (then both are set).
        self.refusing: BrokerError | None = None
        self.refusing_in_memory: BrokerError | None = None

    def put(self, partition: Partition, ticket: Ticket, row: Row) -> None:
        """Store one message, with an idempotency key only if it is not stored yet; settles with
        Stored or Duplicate. It does what `put_all` and `put_once` do, without a chunk of its own;
        ids are not looked at."""
        if self.refusing is not None and (refused := self.refusal(partition.topic.options)):
            if not row[7]:
                ticket.settle(refused)
                return
            chunk = Chunk()
            chunk.add(*row)
            self.put_once(partition, chunk, ticket)
        elif len(row[2]) > self._message_bytes_max:
            ticket.settle(self.too_large())
        elif row[7]:
            put_with_key(self.tick, partition, ticket, row)
        else:
            self.tick.put(partition, ticket, row)

    def put_along(self, partition: Partition, ticket: Ticket, row: Row) -> bool:
        """Put one more message under the ticket of the one before, so that they end together.
        False if that cannot be: something came in between, or it is stored or refused."""
        if partition.last is not ticket or len(row[2]) > self._message_bytes_max:
            return False
        if row[7] and not remember_along(self.tick, partition, row):
            return False
        staged = partition.staged
        assert staged is not None
        staged.add(*row)
        partition.end += 1
        return True

    def put_plain_along(
        self, partition: Partition, ticket: Ticket, id: bytes, headers: bytes, body: bytes
    ) -> bool:
        """The same for a message that has nothing else, as nearly all puts are."""
        if partition.last is not ticket or len(body) > self._message_bytes_max:
            return False
        staged = partition.staged
        assert staged is not None
        if staged.plain:  # as `add` does, without a call
            staged.ids.append(id)
            staged.headers.append(headers)
            staged.bodies.append(body)
        else:
            staged.add(id, headers, body)
        partition.end += 1
        return True

    def put_all(self, partition: Partition, chunk: Chunk, ticket: Ticket) -> None:
        """Store messages, all or none, at consecutive offsets; settles with Stored. The chunk is
        given away: its offset and time are the broker's to say."""
        problem = self.refusal(partition.topic.options) or self._batch_problem(chunk)
        if problem is not None:
            ticket.settle(problem)
        else:
            self.tick.put_all(partition, chunk, ticket)

    def put_once(
        self,
        partition: Partition,
        chunk: Chunk,
        ticket: Ticket,
        expected_offset: int | None = None,
    ) -> None:
        """The same with those of them that are not stored yet; settles with Stored or Duplicate.
        With `expected_offset`: only if the next offset is that, else CONFLICT. If one has an
        idempotency key, all have the same."""
        problem = self._batch_problem(chunk)
        if problem is not None:
            ticket.settle(problem)
        else:
            refused = self.refusal(partition.topic.options)
            put_once(self.tick, partition, chunk, ticket, expected_offset, refused)

    def put_front(
        self,
        partition: Partition,
        chunk: Chunk,
        ticket: Ticket,
        expected_offset: int | None = None,
    ) -> None:
        """What `put_once` does, and in each group that is there the new messages are before all
        that is ready, in their order. What is due later has its turn when it is due."""
        first, now_ms = partition.end, self.tick.now_ms
        self.put_once(partition, chunk, ticket, expected_offset)
        staged = partition.staged
        if partition.end == first or staged is None:
            return  # nothing of it is new, or it was refused
        new = list(range(first, partition.end))
        if (due := staged.due) is not None:
            new = [offset for offset in new if due[offset - staged.first] <= now_ms]
        for group in partition.topic.groups.values():
            backlog = group.backlogs[partition.index]
            for offset in reversed(new):
                backlog.put_front(offset)
            self.tick.change(partition, group)

    def _batch_problem(self, chunk: Chunk) -> BrokerError | None:
        limits, bodies = self.limits, chunk.bodies
        if not 0 < len(bodies) <= limits.batch_messages_max:
            text = f"a batch has 1 to {limits.batch_messages_max} messages"
            return BrokerError(Refusal.ILLEGAL, text)
        if max(map(len, bodies)) > limits.message_bytes_max:
            return self.too_large()
        return None

    def refusal(self, options: TopicOptions) -> BrokerError | None:
        """Why a message for such a topic, or a new one, is refused now: the monitor of disk
        and memory decides. A disk without room is no reason for a topic in memory."""
        return self.refusing_in_memory if options.durability == "memory" else self.refusing

    def too_large(self) -> BrokerError:
        """The refusal of a body over the limit."""
        text = f"a message body has at most {self.limits.message_bytes_max} bytes"
        return BrokerError(Refusal.TOO_LARGE, text)
