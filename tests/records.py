"""What was delivered, one message at a time, for a test to judge."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from zbus.core.api import Message, Slice


class Record(NamedTuple):
    """One delivered message."""

    partition: int
    offset: int
    message: Message
    attempts: int  # times delivered to this group, this one included; 0 = not counted


def records_of(pieces: Iterable[Slice]) -> list[Record]:
    """The messages of a delivery, each with the id that its consumer sees."""
    records = []
    for index, chunk, start, stop, attempts in pieces:
        for at in range(start, stop):
            message = chunk.message(at)
            message.id = chunk.id_of(at, index)
            records.append(Record(index, chunk.first + at, message, attempts))
    return records
