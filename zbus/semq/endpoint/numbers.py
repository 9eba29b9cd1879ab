"""Numbers of a stream in one field: as many as a line has room for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeVar

from zbus.semq.endpoint.options import SEQS_MAX

_TEXT_MAX: Final = 4_000
"""Bytes: a platform takes lines of 8 KiB."""

Item = TypeVar("Item")


def in_parts(items: Iterable[Item], seq_of: Callable[[Item], int]) -> Iterator[list[Item]]:
    """Things with numbers, as many at once as one field may name, however they are scattered."""
    part: list[Item] = []
    size = 0
    for item in items:
        length = len(str(seq_of(item))) + 1
        if part and (len(part) == SEQS_MAX or size + length > _TEXT_MAX):
            yield part
            part, size = [], 0
        part.append(item)
        size += length
    if part:
        yield part
