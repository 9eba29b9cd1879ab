"""Deliveries that are sent once their record is durable.

A group with a limit of attempts, and any other that wants it, must not forget one: a message that
kills its consumer, and the broker with it, would be tried more often than the limit. So a client
receives such a message only when the group's record of that lease is as durable as the topic wants
it, which is what an ack waits for, too. A crash before that takes a delivery that no client has
seen. In memory nothing survives, and nothing waits.

If it cannot be written, or the client has left meanwhile, the messages go back, and one that no
client has seen was no attempt. The same goes for what has expired meanwhile, which is finished.
What the group has taken back by then, because it was moved or read again, is not told. A lease does
not end before it is told, and begins then. Only a crash between the record and the reply counts an
attempt that no client saw. The parts of a stream are sent in their order, also if they are of
partitions that are written at different times.
"""

from __future__ import annotations

from zbus.core.delivery.pulls import WaitingPulls
from zbus.core.delivery.retries import hold
from zbus.core.model.dispositions import Disposition
from zbus.core.model.errors import BrokerError, Outcome, group_unknown, topic_unknown
from zbus.core.model.ticket import Parts, Ticket
from zbus.core.topics.outcomes import DONE, Delivered, EmptyReason, Slice
from zbus.core.topics.topic import Pull


def deliver_when_durable(pulls: WaitingPulls, pull: Pull, delivered: Delivered) -> None:
    """Tell the pull of messages that it was just given, when that is written. Without credit that
    ends it, and it waits in no line any more."""
    # What the pieces are of may be emptied at the end of this turn.
    delivered.pieces = [
        Slice(index, chunk.part(start, stop), 0, stop - start, attempts)
        for index, chunk, start, stop, attempts in delivered.pieces
    ]
    ticket = Recorded(pulls, pull, delivered)
    for index, chunk, _, _, _ in delivered.pieces:
        leased = delivered.group.backlogs[index].leased
        leased.keep(range(chunk.first, chunk.end), ticket)
    indexes = {piece.partition for piece in delivered.pieces}
    parts = Parts(ticket, DONE, len(indexes)) if len(indexes) > 1 else None
    for index in indexes:
        part = ticket if parts is None else parts.part()
        pulls.runs.tick.confirm(delivered.group.topic.partitions[index], part)


class Recorded(Ticket):
    """A delivery that leaves when its attempt is durable."""

    __slots__ = (
        "_before",
        "_delivered",
        "_last",
        "_lease_ms",
        "_next",
        "_pull",
        "_pulls",
        "_runs",
        "_since_ms",
        "_written",
    )

    def __init__(self, pulls: WaitingPulls, pull: Pull, delivered: Delivered) -> None:
        super().__init__()
        self._pulls = pulls
        self._runs = pulls.runs
        self._pull = pull
        self._delivered = delivered
        self._last = pull.credit <= 0
        self._since_ms = pulls.runs.tick.now_ms
        self._lease_ms = pull.wants.lease_ms or delivered.group.options.lease_ms
        self._written: Outcome | None = None
        self._next: Recorded | None = None  # of the same pull
        self._before = getattr(pull, "unwritten", None)
        if isinstance(self._before, Recorded):
            self._before._next = self
        pull.unwritten = self

    def answer(self, outcome: Outcome) -> None:
        self._written = outcome
        if self._before is not None:
            return  # it is sent after that
        one: Recorded | None = self
        while one is not None and one._written is not None:
            following = one._next
            if following is not None:
                following._before = None
            elif self._pull.unwritten is one:
                self._pull.unwritten = None
            one._end(one._written)
            one = following

    def failed(self, error: Exception) -> None:
        self._pull.failed(error)

    def _end(self, outcome: Outcome) -> None:
        runs, pull, group = self._runs, self._pull, self._delivered.group
        gone = not pull.open or pull.session.leaving or pull.session.closed
        if gone or isinstance(outcome, BrokerError):
            self._undo(self._held())
            if pull.open:
                self._pulls.end(
                    pull, outcome if isinstance(outcome, BrokerError) else EmptyReason.LEFT
                )
            return
        held, now_ms = self._fresh(), runs.tick.now_ms
        if not held:
            pull.credit += 1
            return self._wait_on()
        late = now_ms > self._since_ms
        for index, offset in held:
            backlog = group.backlogs[index]
            if backlog.leased.unreported:
                backlog.leased.unreported.pop(offset, None)
            if late:  # the holder of the lease has it from here on
                backlog.extend(offset, now_ms + self._lease_ms)
                runs.tick.change(group.topic.partitions[index], group)
                runs.schedule(group, index)
        hold(group, pull)
        if not self._last:
            pull.answer(self._delivered)
        else:
            pull.receive(self._delivered)
            self._wait_on()

    def _wait_on(self) -> None:
        """It was the last. If of it, or of one before, nothing was left, the pull waits on."""
        pull, group = self._pull, self._delivered.group
        if not (self._last and pull.open):
            return
        if group.topic.partitions[0].removed:
            self._pulls.end(pull, topic_unknown(group.topic.name))
        elif group.gone:
            self._pulls.end(pull, group_unknown(group.name))
        else:
            deadline_ms = getattr(pull, "deadline_ms", None)
            self._pulls.add(group, pull, deadline_ms)

    def _fresh(self) -> list[tuple[int, int]]:
        """Partition and offset of what may still be sent. The others leave the delivery."""
        group, now_ms = self._delivered.group, self._runs.tick.now_ms
        pieces, found = self._delivered.pieces, self._held()
        count = sum([piece.stop - piece.start for piece in pieces])
        expired = [
            (index, chunk.first + at)
            for index, chunk, start, stop, _ in pieces
            if chunk.expires is not None
            for at in range(start, stop)
            if 0 < chunk.expires[at] <= now_ms
        ]
        if len(found) == count and not expired:
            return found  # nearly always
        held = dict.fromkeys(found)
        if stale := [place for place in expired if place in held]:
            self._undo(stale)
            for index, offset in stale:
                group.backlogs[index].finish(offset, Disposition.EXPIRED)
                del held[index, offset]
        if len(held) < count:
            self._delivered.pieces = [
                Slice(index, chunk, at, at + 1, attempts)
                for index, chunk, start, stop, attempts in pieces
                for at in range(start, stop)
                if (index, chunk.first + at) in held
            ]
        return list(held)

    def _held(self) -> list[tuple[int, int]]:
        """Partition and offset of each of the messages, as far as they are leased by this still."""
        group = self._delivered.group
        if group.gone:
            return []
        found: list[tuple[int, int]] = []
        for index, chunk, start, stop, _ in self._delivered.pieces:
            backlog, partition = group.backlogs[index], group.topic.partitions[index]
            if partition.removed or partition.fenced is not None:
                continue  # it is read again, as it is stored
            unreported = backlog.leased.unreported or {}
            found += [
                (index, offset)
                for offset in range(chunk.first + start, chunk.first + stop)
                if unreported.get(offset) is self and offset not in backlog.leased.settling
            ]
        return found

    def _undo(self, places: list[tuple[int, int]]) -> None:
        """No client has seen them: they go back to where they were."""
        group, tick = self._delivered.group, self._runs.tick
        for index, offset in places:
            group.backlogs[index].undo_lease(offset)
            tick.change(group.topic.partitions[index], group)
        if places:
            self._runs.activate(group)
