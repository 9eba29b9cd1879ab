"""Peeking, browsing and reading what is stored, without a group's state changing.

Tests: `tests/conformance/test_read.py`.
"""

from __future__ import annotations

from zbus.core.log import Found, Size
from zbus.core.model.chunk import Chunk
from zbus.core.model.errors import BrokerError, offset_outside
from zbus.core.model.ticket import Ticket
from zbus.core.persistence.storage import Storage
from zbus.core.topics.outcomes import Peeked, Raw, Slice
from zbus.core.topics.topic import Group, Partition

BROWSE_BYTES = 1 << 20
"""What is read from storage for a browse."""


def peek(ticket: Ticket, partition: Partition, offset: int, group: Group | None = None) -> None:
    """The message at an offset; settles with Peeked."""

    def done(found: tuple[Chunk, int] | BrokerError) -> None:
        if isinstance(found, BrokerError):
            ticket.settle(found)
        else:
            chunk, at = found
            pieces = [Slice(partition.index, chunk, at, at + 1)]
            ticket.settle(Peeked(partition.topic, pieces, group))

    partition.log.get(offset, done)


def browse(
    storage: Storage, ticket: Ticket, partition: Partition, offset: int, count_max: int
) -> None:
    """Stored messages from an offset on; settles with Peeked."""
    if not _readable(ticket, partition, offset):
        return

    def done(found: Found) -> None:
        if isinstance(found, BrokerError):
            ticket.settle(found)
            return
        if not _readable(ticket, partition, offset):
            return  # forgotten meanwhile
        pieces = []
        if found is not None and found.first < partition.visible:
            # From `offset` on: that is how it was asked for.
            stop = min(len(found), count_max, partition.visible - found.first)
            pieces = [Slice(partition.index, found, 0, stop)]
        ticket.settle(Peeked(partition.topic, pieces))

    if offset == partition.visible:
        done(None)
    else:
        storage.fetch(partition, offset, Size(BROWSE_BYTES, count_max), done)


def read(
    storage: Storage, ticket: Ticket, partition: Partition, offset: int, bytes_max: int
) -> None:
    """Stored batches as they are, from the one that holds `offset` on; settles with Raw."""
    if not _readable(ticket, partition, offset):
        return
    end = partition.visible

    def done(batches: bytes | BrokerError) -> None:
        if isinstance(batches, BrokerError):
            ticket.settle(batches)
        elif _readable(ticket, partition, offset):  # not forgotten meanwhile
            ticket.settle(Raw(partition, batches, end))

    if offset == end:
        done(b"")
    else:
        storage.fetch_raw(partition, offset, bytes_max, done)


def _readable(ticket: Ticket, partition: Partition, offset: int) -> bool:
    first, end = partition.first, partition.visible
    if first <= offset <= end and partition.fenced is None:
        return True
    ticket.settle(partition.fenced or offset_outside(partition.index, first, end))
    return False
