"""Where a request is done, if a server has several workers: each dialect says it of its heads.

A topic is in one worker. What names none is done by the worker that was asked, unless all of them
have a part in the answer, or it is about something that one of them made, as its name says.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import Final, TypeAlias

import attrs

from zbus.edge.connection import Connection
from zbus.wire.responses import Response


@attrs.frozen
class AtTopic:
    """Where this topic is."""

    topic: str
    # The client may hold something afterwards, or be registered.
    binds: bool = attrs.field(default=True, eq=False)


MAKER_DIGITS: Final = 4
"""Ids of sessions begin with the number of the worker that made them, in hexadecimal."""


@attrs.frozen
class AtMaker:
    """Where the session, or whatever has this id, was made."""

    id: bytes

    @property
    def worker(self) -> int | None:
        """Its number, if the id says one."""
        digits = self.id[:MAKER_DIGITS]
        is_number = len(digits) == MAKER_DIGITS and not digits.translate(None, b"0123456789abcdef")
        return int(digits, 16) if is_number else None


@attrs.frozen
class Everywhere:
    """At all workers; `merge` makes header lines and the body of one answer of theirs, each a 200,
    in the order of their numbers."""

    merge: Callable[[Sequence[Response]], tuple[bytes, bytes]]
    follows: bool = False  # there are more answers, with each change
    part: str = ""  # of a stream of events: what each is about, and not merged
    partial: bool = False  # a worker that does not answer is left out


@attrs.frozen
class Named:
    """Where a name is registered. Each worker is asked in turn, and does the request if it knows
    the name; else its answer is `unknown`, and it has done nothing."""

    name: str  # under which it is remembered who knows it; "" = it is not
    is_here: Callable[[Connection], bool]  # looking for it is work of the peer that asks
    unknown: bytes  # the body of an answer
    topic: str = ""  # where it is done if none knows the name; "" = wherever it was asked


@attrs.frozen
class InBody:
    """Only the body says it."""

    find: Callable[[bytes], Place]


@attrs.frozen
class Apart:
    """Where this topic is, unless that of the other one is elsewhere: they have to be together."""

    topic: str
    other: str
    braces: str = ""  # the text in braces that would put both there; "" = any

    @property
    def advice(self) -> str:
        """Names that would be together."""
        if self.braces:
            return f"{self.other}{{{self.braces}}}"
        return f"{self.topic}{{a}} and {self.other}{{a}}"


class Replies(Enum):
    """How it is known which request a reply is for."""

    IN_ORDER = auto()
    BY_ID = auto()  # of requests that have one; others are answered in order
    LOOSE = auto()  # by id, and a request may have none, or many
    ALONE = auto()  # a stream, on a connection where nothing else is open


@attrs.frozen
class ByOwnId:
    """By id, which the target of the head says unless the request has another one; each request
    has one reply."""

    id: bytes


HowKnown: TypeAlias = "Replies | ByOwnId"

Place: TypeAlias = "AtTopic | AtMaker | Everywhere | Named | InBody | Apart | None"
"""None: wherever it was asked."""
