"""A broker that tells what it does, on the way to whoever it does it for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from sys import maxsize
from typing import Any

from tests.records import Record, records_of
from zbus.core.broker import Broker
from zbus.core.model.chunk import Chunk
from zbus.core.model.errors import BrokerError
from zbus.core.model.limits import Limits
from zbus.core.model.pull_options import ONE, PullOptions
from zbus.core.persistence.storage import Storage
from zbus.core.topics.outcomes import Delivered, Outcome, Slice
from zbus.core.topics.topic import Group, Partition, Pull, Session, Topic

Delivery = Callable[[Group, list[Record], Pull | None], None]
"""Called with what a group hands out, at the moment when it does, and the pull that it is for."""

Picked = Callable[[Group, list[Record], Pull], None]
"""Called with what is taken for a pull, which may be told of it later; or never."""


class _Tap(Pull):
    """Tells of what a pull is given, on the way to whoever pulled."""

    __slots__ = ("_delivered", "_undelivered", "inner", "picked")

    def __init__(self, pull: Pull, delivered: Delivery, undelivered: Picked) -> None:
        super().__init__(pull.session, pull.wants)
        self.inner = pull
        self._delivered = delivered
        self._undelivered = undelivered
        self.picked: list[Record] = []  # and not told yet

    def settle(self, outcome: Outcome) -> None:
        super().settle(outcome)
        self.inner.settle(outcome)
        if self.picked:
            self._undelivered(self.group, self.picked, self.inner)

    def answer(self, outcome: Outcome) -> None:
        if isinstance(outcome, Delivered):
            records = records_of(outcome.pieces)
            self.picked = self.picked[len(records) :]
            self._delivered(outcome.group, records, self.inner)
        if self.open:
            self.inner.answer(outcome)

    def tell_credit(self) -> None:
        """A dialect may go by what its pull has left."""
        self.inner.credit = self.credit

    def drop(self) -> None:
        super().drop()
        self.inner.drop()
        if self.picked:
            self._undelivered(self.group, self.picked, self.inner)


class WatchedBroker(Broker):
    """The broker, and whom it tells when messages are handed out."""

    def __init__(
        self,
        delivered: Delivery,
        fenced: Callable[[Topic], None],
        moved: Callable[[Group, list[int]], None],
        left: Callable[[Group, int, list[int]], None],
        gone: Callable[[Session], None],
        picked: Picked,
        undelivered: Picked,
        storage: Storage,
        ids: Iterator[bytes],
        limits: Limits,
    ) -> None:
        super().__init__(storage, ids, limits)
        self._delivered = delivered
        self._told_fenced, self._fence = fenced, self._tick.hooks.fence
        self._tick.hooks.fence = self._fenced
        self._told_moved, self._told_left = moved, left
        self._told_gone, self._picked, self._undelivered = gone, picked, undelivered
        dispatch: Any = self._dispatch
        self._hand_over, dispatch._hand_over = dispatch._hand_over, self._handed_over
        seeking: Any = self.seek.__self__  # type: ignore[attr-defined]
        self._move, seeking.move = seeking.move, self._moved

    def _handed_over(self, group: Group, line: object, pull: _Tap, pieces: list[Slice]) -> None:
        records = records_of(pieces)
        pull.picked += records
        self._picked(group, records, pull.inner)
        self._hand_over(group, line, pull, pieces)
        pull.tell_credit()

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
        super().pull(group, _Tap(pull, self._delivered, self._undelivered), deadline_ms)

    def take(
        self, group: Group, session: Session, wants: PullOptions = ONE
    ) -> tuple[Chunk, int] | None:
        found = super().take(group, session, wants)
        if found is not None:
            chunk, at = found
            attempts = group.backlogs[0].attempts.get(chunk.first + at, 0)
            self._delivered(group, records_of([Slice(0, chunk, at, at + 1, attempts)]), None)
        return found
