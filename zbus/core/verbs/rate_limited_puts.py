"""Puts of a broker with topics that have a rate limit.

A class of its own, so that a broker without such a limit does not even look whether there is one.

Tests: `tests/core/model/test_rate_limit.py`.
"""

from __future__ import annotations

from zbus.core.commit.tick import Tick
from zbus.core.model.chunk import Chunk, Row, make_row
from zbus.core.model.errors import BrokerError, Refusal
from zbus.core.model.limits import Limits
from zbus.core.model.rate_limit import RateLimit, so_many
from zbus.core.model.ticket import Ticket
from zbus.core.topics.topic import Partition, Topic
from zbus.core.verbs.puts import Puts


def make_puts(tick: Tick, limits: Limits) -> Puts:
    """The verbs that put, as these limits want them."""
    limited = limits.topic_messages_per_s or limits.topic_bytes_per_s
    return RateLimitedPuts(tick, limits) if limited else Puts(tick, limits)


class RateLimitedPuts(Puts):
    """Bytes are those of bodies. What was stored before counts, too."""

    def put(self, partition: Partition, ticket: Ticket, row: Row) -> None:
        # What was stored before is answered in any case, and `put_once` asks for the rest.
        refused = row[7] and self.refusal(partition.topic.options)
        if refused or self._admit(partition.topic, ticket, 1, len(row[2])):
            super().put(partition, ticket, row)

    def put_along(self, partition: Partition, ticket: Ticket, row: Row) -> bool:
        quota = self._quota(partition.topic)
        if quota.wait_s(self.tick.now_ms):
            return False
        put = super().put_along(partition, ticket, row)
        if put:
            quota.take(1, len(row[2]))
        return put

    def put_plain_along(
        self, partition: Partition, ticket: Ticket, id: bytes, headers: bytes, body: bytes
    ) -> bool:
        return self.put_along(partition, ticket, make_row(id, headers, body))

    def put_all(self, partition: Partition, chunk: Chunk, ticket: Ticket) -> None:
        if self._admit_chunk(partition.topic, ticket, chunk):
            super().put_all(partition, chunk, ticket)

    def put_once(
        self,
        partition: Partition,
        chunk: Chunk,
        ticket: Ticket,
        expected_offset: int | None = None,
    ) -> None:
        if self._admit_chunk(partition.topic, ticket, chunk):
            super().put_once(partition, chunk, ticket, expected_offset)

    def _quota(self, topic: Topic) -> RateLimit:
        quota = topic.quota
        if quota is None:
            limits = self.limits
            quota = RateLimit(limits.topic_messages_per_s, limits.topic_bytes_per_s)
            topic.quota = quota
        return quota

    def _admit_chunk(self, topic: Topic, ticket: Ticket, chunk: Chunk) -> bool:
        return self._admit(topic, ticket, len(chunk.bodies), sum(map(len, chunk.bodies)))

    def _admit(self, topic: Topic, ticket: Ticket, count: int, size: int) -> bool:
        """Whether the topic takes more now; else the ticket gets the refusal. A batch passes as a
        whole, also if it is more than is left."""
        quota = self._quota(topic)
        if wait_s := quota.wait_s(self.tick.now_ms):
            ticket.settle(self._throttled(topic, wait_s))
            return False
        quota.take(count, size)
        return True

    def _throttled(self, topic: Topic, wait_s: int) -> BrokerError:
        limits = self.limits
        most = so_many((limits.topic_messages_per_s, "message"), (limits.topic_bytes_per_s, "byte"))
        text = f"{topic.name} accepts {most} a second: retry in {wait_s} s"
        return BrokerError(Refusal.THROTTLED, text, topic.name, wait_s)
