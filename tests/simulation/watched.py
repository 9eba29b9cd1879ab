"""A broker that tells what it does, on the way to whoever it does it for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from sys import maxsize
from typing import Any

from zbus.core.broker import Broker
from zbus.core.chunk import Chunk
from zbus.core.errors import BrokerError
from zbus.core.limits import Limits
from zbus.core.outcomes import Delivered, Outcome, Piece
from zbus.core.recorder import Recorder
from zbus.core.topic import Group, Partition, Pull, Session, Topic
from zbus.testing.records import Record, records_of

Delivery = Callable[[Group, list[Record], Pull | None], None]
"""Called with what a group hands out, at the moment when it does, and the pull that it is for."""


class _Tap(Pull):
    """Tells of what a pull is given, on the way to whoever pulled."""

    __slots__ = ("_delivered", "_pull")

    def __init__(self, pull: Pull, delivered: Delivery) -> None:
        super().__init__(pull.session, pull.wants)
        self._pull = pull
        self._delivered = delivered

    def settle(self, outcome: Outcome) -> None:
        super().settle(outcome)
        self._pull.settle(outcome)

    def answer(self, outcome: Outcome) -> None:
        if isinstance(outcome, Delivered):
            self._delivered(outcome.group, records_of(outcome.pieces), self._pull)
        if self.open:
            self._pull.answer(outcome)

    def drop(self) -> None:
        super().drop()
        self._pull.drop()


class WatchedBroker(Broker):
    """The broker, and whom it tells when messages are handed out."""

    def __init__(
        self,
        delivered: Delivery,
        fenced: Callable[[Topic], None],
        moved: Callable[[Group, list[int]], None],
        left: Callable[[Group, int, list[int]], None],
        gone: Callable[[Session], None],
        recorder: Recorder,
        ids: Iterator[bytes],
        limits: Limits,
    ) -> None:
        super().__init__(recorder, ids, limits)
        self._delivered = delivered
        self._told_fenced, self._fence = fenced, self.tick.fence
        self.tick.fence = self._fenced
        self._told_moved, self._told_left = moved, left
        self._told_gone = gone
        seeking: Any = self.seek.__self__  # type: ignore[attr-defined]
        self._move, seeking.move = seeking.move, self._moved

    def _moved(self, group: Group, places: list[int]) -> None:
        self._told_moved(group, places)
        self._move(group, places)

    def leave(self, session: Session, most: int = maxsize) -> bool:
        for group in session.held or ():
            for index, backlog in enumerate(group.backlogs):
                self._told_left(group, index, backlog.leased.held_by(session.id))
        self._told_gone(session)
        return super().leave(session, most)

    def _fenced(self, partition: Partition, why: BrokerError) -> None:
        self._told_fenced(partition.topic)
        self._fence(partition, why)

    def pull(self, group: Group, pull: Pull, deadline_ms: int | None) -> None:
        pull.group = group
        super().pull(group, _Tap(pull, self._delivered), deadline_ms)

    def take(self, group: Group, session: Session) -> tuple[Chunk, int] | None:
        found = super().take(group, session)
        if found is not None:
            chunk, at = found
            self._delivered(group, records_of([Piece(0, chunk, at, at + 1)]), None)
        return found
