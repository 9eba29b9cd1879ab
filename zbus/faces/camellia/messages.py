"""The verbs about messages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple

from zbus.core import single
from zbus.core.chunk import Chunk
from zbus.core.errors import BrokerError, Refusal
from zbus.core.life import Life
from zbus.core.limits import DELAY_MS_MAX
from zbus.core.outcomes import DONE, Duplicate, Outcome, Stored
from zbus.core.topic import Group, Partition, Topic
from zbus.core.wants import Wants
from zbus.faces.camellia.context import Context, Request
from zbus.faces.camellia.message import (
    NEVER_MS,
    DelayMsg,
    Status,
    delay_lines,
    id_of,
    place_id,
    place_of,
    places_of,
    show,
    shown,
    status_of,
    stored_id,
)
from zbus.faces.camellia.params import INT_MAX, LONG_MAX, Params
from zbus.faces.camellia.pulls import EMPTY, PullReply
from zbus.faces.camellia.replies import BAD, MISSING, Reply
from zbus.faces.peer import Peer
from zbus.faces.rights import admit_reader

MSG_ID_BYTES_MAX: Final = 255

_LOOK_BYTES: Final = 64 << 10
"""Held by a message that may have to be read from storage, until it was."""

_NO_MESSAGE: Final = "there is no such message"


class Seen(NamedTuple):
    """A message that was looked at."""

    partition: Partition
    chunk: Chunk
    at: int
    status: Status
    retry: int

    def shown(self, group: Group | None) -> DelayMsg:
        partition = self.partition
        row = partition.index, self.chunk, self.at
        return show(group, partition.topic, *row, self.status, self.retry)


def _names(request: Request, params: Params, peer: Peer, *more: bytes) -> list[str] | None:
    """The topic, and what else must be given and not be empty, as text; None if there is nothing
    to be done, which was said."""
    request.face.health.use(request.face.broker.now_ms)
    empty = None
    names = []
    for name in (b"topic", *more):
        value = params.required(name)
        if not value and empty is None:
            empty = name.decode()
        names.append(shown(value))
    if empty is not None:
        request.reply(peer, "").tell_code(BAD, f"{empty} is empty")
        return None
    return names if request.may(peer, names[0]) else None


# -- sending -----------------------------------------------------------------------------------


class SendReply(Reply):
    """Of a message that was sent: as it is stored, or its original."""

    __slots__ = ("chunk", "face", "id", "produced_ms")

    face: Context
    chunk: Chunk  # what was put, alone
    produced_ms: int

    def answer(self, outcome: Outcome) -> None:
        if isinstance(outcome, Stored):
            self._tell(outcome.partition, self.chunk, 0)
        elif isinstance(outcome, Duplicate):
            partition = outcome.partition
            partition.log.get(self.offset, self.guard(partial(self._original, partition)))
        else:
            super().answer(outcome)
