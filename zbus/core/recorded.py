"""Deliveries that are told when they are written down.

A group with a limit of attempts must not forget one: a message that kills its consumer, and the
broker with it, would be tried more often than the limit. Another may count them for its consumers.
So whoever is given such a message is told when the group's record of that lease is as durable as
the topic wants it, which is what an ack waits for, too. A crash before that takes a delivery that
nobody has seen. In memory nothing survives, and nobody waits.

If it cannot be written, or whoever asked has left meanwhile, the messages go back, and what nobody
has seen was no attempt. Only a crash between the record and the reply counts one too many.
"""

from __future__ import annotations

from typing import Protocol

from zbus.core.errors import BrokerError, Outcome
from zbus.core.outcomes import Delivered, EmptyReason, Piece
from zbus.core.retries import FRONT, hold
from zbus.core.tick import Tick
from zbus.core.ticket import Parts, Ticket
from zbus.core.topic import Group, Pull


class Dispatching(Protocol):
    """What is needed of `Dispatch`."""

    tick: Tick

    def activate(self, group: Group) -> None: ...

    def end(self, pull: Pull, reason: EmptyReason | BrokerError) -> None: ...


def is_recorded(group: Group) -> bool:
    """Whether deliveries of the group wait for their record. It has acknowledgements."""
    options = group.options
    counts = options.counted or options.attempts_max > 0
    return counts and group.topic.options.durability != "memory"


def tell_recorded(dispatch: Dispatching, pull: Pull, delivered: Delivered, *, last: bool) -> None:
    """Tell the pull of messages that it was just given, when that is written. `last`: that ends it,
    and it waits in no line any more."""
    group = delivered.group
    # What the pieces are of may be emptied at the end of this turn.
    delivered.pieces = [
        Piece(
            piece.partition,
            piece.chunk.part(piece.start, piece.stop),
            0,
            piece.stop - piece.start,
            piece.attempts,
        )
        for piece in delivered.pieces
    ]
    ticket: Ticket = Recorded(dispatch, pull, delivered, last)
    indexes = list({piece.partition for piece in delivered.pieces})
    parts = Parts(ticket, delivered, len(indexes)) if len(indexes) > 1 else None
    for index in indexes:
        part = ticket if parts is None else parts.part()
        dispatch.tick.confirm(group.topic.partitions[index], part, delivered)


class Recorded(Ticket):
    """See the module."""

    __slots__ = ("_delivered", "_dispatch", "_last", "_pull", "_since_ms")

    def __init__(self, dispatch: Dispatching, pull: Pull, delivered: Delivered, last: bool) -> None:
        super().__init__()
        self._dispatch = dispatch
        self._pull = pull
        self._delivered = delivered
        self._last = last
        self._since_ms = dispatch.tick.now_ms

    def answer(self, outcome: Outcome) -> None:
        dispatch, pull = self._dispatch, self._pull
        if isinstance(outcome, BrokerError):
            self._undo()
            if pull.open:
                dispatch.end(pull, outcome)
        elif not pull.open or pull.session.leaving or pull.session.closed:
            self._undo()
            if pull.open:
                dispatch.end(pull, EmptyReason.LEFT)
        else:
            if late_ms := dispatch.tick.now_ms - self._since_ms:
                # Whoever has the lease has it from here on.
                leased = [(self._delivered.group, *place) for place in self._places()]
                dispatch.tick.lengthen(leased, late_ms)
            group = self._delivered.group
            if (pull.wants.on_loss or group.options.on_loss) == FRONT:
                hold(group, pull.session)
            if self._last:
                pull.settle(outcome)
            else:
                pull.answer(outcome)

    def failed(self, error: Exception) -> None:
        self._pull.failed(error)

    def _places(self) -> list[tuple[int, int]]:
        """Partition and offset of each of the messages."""
        return [
            (piece.partition, piece.chunk.first + at)
            for piece in self._delivered.pieces
            for at in range(piece.start, piece.stop)
        ]

    def _undo(self) -> None:
        """Nobody has seen them: they go back to where they were."""
        group, tick = self._delivered.group, self._dispatch.tick
        if group.topic.groups.get(group.name.lower()) is not group:
            return
        for index, offset in self._places():
            backlog, partition = group.backlogs[index], group.topic.partitions[index]
            if partition.removed or partition.fenced is not None:
                continue  # it is read again, as it is stored
            if backlog.leased.holders.get(offset) == self._pull.session.id:
                backlog.put_back(offset)
            elif offset in backlog.leased or offset not in backlog.attempts:
                continue
            # Else it went back with all that its holder had.
            backlog.attempts[offset] -= 1
            if not backlog.attempts[offset]:
                del backlog.attempts[offset]
            tick.change(partition, group)
        self._dispatch.activate(group)
