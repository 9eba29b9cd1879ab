"""What a hostile connection does, as a value: bytes to send, how it reads, when it goes.

An attack is written so that it costs its own process little: its bytes are made once, in large
blocks, and what comes back is counted and dropped.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from functools import cache

from tests.process.pipe import Pipe, ask


class Reads(Enum):
    """How a connection takes what it is sent."""

    ALL = "all of it"
    SLOWLY = "a byte each second"
    NOTHING = "nothing"


class Leaves(Enum):
    """When a connection goes by itself; another comes in its place, as when the broker closes."""

    NEVER = "never"
    ANSWERED = "with the first byte of a reply"
    SENT = "when all is sent, and `rest_s` is over"


Script = Callable[[int], Iterable[bytes]]
"""What the connection of this number sends, block by block."""


@dataclass(frozen=True)
class Attack:
    """See the module."""

    does: str  # in words
    script: Script
    reads: Reads = Reads.ALL
    leaves: Leaves = Leaves.NEVER
    pause_s: float = 0.0  # between two blocks
    rest_s: float = 0.0  # between the last block and leaving
    returns_s: float = 0.1  # after the broker closed
    secure: bool = False  # speaks to the https listener
    prepare: Callable[[Pipe], None] | None = None  # makes the topics that it needs
    restore: Callable[[Pipe, int], None] | None = None  # after so many connections


def endless(make: Callable[[], bytes], opening: bytes = b"") -> Script:
    """The same block again and again, after an opening. It is made once, when it is needed."""
    block = cache(make)
    return lambda number: itertools.chain((opening,), itertools.repeat(block()))


def once(make: Callable[[], bytes]) -> Script:
    """One block, and then silence."""
    block = cache(make)
    return lambda number: (block(),)


def byte_by_byte(opening: bytes, byte: bytes) -> Script:
    """An opening, and then this byte for ever: with a pause between them."""
    return lambda number: itertools.chain((opening,), itertools.repeat(byte))


def declares(*targets: str) -> Callable[[Pipe], None]:
    """Makes these topics: names, or with parameters of the declare behind a `?`."""

    def prepare(pipe: Pipe) -> None:
        for target in targets:
            path, _, query = target.partition("?")
            said = pipe.get(f"/{path}?cmd=declare&{query or 'durability=os'}")
            assert said.status == 200, said

    return prepare


def many(count: int, *requests: bytes) -> bytes:
    return b"".join(requests) * count


def request(target: str, lines: bytes = b"", body: bytes = b"") -> bytes:
    return ask(target, body, lines)
