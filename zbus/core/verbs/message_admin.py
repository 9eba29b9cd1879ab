"""Single messages of groups: deleted, or, while they are delayed, cancelled, fired and rescheduled.

A delayed message is in one of two places. What the group has come to is in its backlog. What it has
not come to is only said to be delayed by the message itself: to know, the log has to be looked at,
and that may take a while. It is then taken ahead of the cursor, with its new time, and the cursor
steps over it. What was taken ahead once is not asked for its own time again, or that would undo
what was done here (`Dispatch` looks at the time of what the cursor gives, and of nothing else).

Each order is about offsets of one partition, in one group or in several, and is one change of each
group. What does not fit is passed over, and if nothing fits that is refused, with the reason of the
first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from zbus.core.cursor.ranges import Ranges, delete_all, distinct, known_of
from zbus.core.dedup.window import id_name
from zbus.core.delivery.run_queue import RunQueue
from zbus.core.model.chunk import Chunk
from zbus.core.model.dispositions import Disposition
from zbus.core.model.errors import BrokerError, Refusal, offset_outside
from zbus.core.model.message_state import MessageState
from zbus.core.model.ticket import Ticket
from zbus.core.topics.outcomes import Changed
from zbus.core.topics.point_reads import Place, PointReads
from zbus.core.topics.topic import Group, Partition, Topic

CHANGES_MAX: Final = 20_000
"""Offsets times groups: one order is done in one go."""


def find_id(topic: Topic, id: bytes, now_ms: int) -> tuple[Partition, int] | BrokerError:
    """Where the message of an id is, or why that is not known."""
    if not topic.options.remembers_ids:
        text = f"{topic.name} does not keep ids (dedupe_ms is off): use the offset"
        return BrokerError(Refusal.ILLEGAL, text)
    place = locate_id(topic, id, now_ms)
    if place is not None:
        return place
    shown = id[:40].decode("utf-8", "replace")
    text = f"no message with the id {shown} was stored in the last {topic.options.dedupe_ms} ms"
    if topic.options.dedupe_live:
        text = f"there is no message with the id {shown}, or it was finished and forgotten"
    return BrokerError(Refusal.OFFSET_UNKNOWN, text)


def locate_id(topic: Topic, id: bytes, now_ms: int) -> tuple[Partition, int] | None:
    """Where the message of an id is, in a topic that remembers ids. Where ids are taken while
    messages live: the one that has it; else the last that had, while its end is known."""
    name, since_ms = id_name(id), now_ms - topic.options.dedupe_ms
    latest, place = 0, None
    for partition in topic.partitions:
        original = partition.originals.find(name)
        if original is not None and original.time_ms > since_ms:
            return partition, original.offset
        if topic.options.dedupe_live and partition.ids is not None:
            standing, offset = partition.ids.look_up(name, now_ms)
            if standing > latest:
                latest, place = standing, (partition, offset)
    return place


def delete(
    runs: RunQueue,
    ticket: Ticket,
    groups: Sequence[Group],
    partition: Partition,
    ranges: Ranges,
    forget: bool = False,
) -> None:
    """Finish messages, wherever they are in their life. Settles with Changed. `forget`: nor is it
    kept what became of them, also of those that are finished already: they count as changed."""
    if (problem := _problem(groups, partition, ranges)) is not None:
        ticket.settle(problem)
        return
    count = 0
    for group in groups:
        backlog = group.backlogs[partition.index]
        held = [o for o in known_of(ranges, backlog.leased) if o in backlog.leased.settling]
        found = 0
        for offsets in _stored(partition, ranges):
            for part in _without(offsets, held):
                found += delete_all(backlog, part, forget)
        if found:
            count += found
            runs.moved(group, partition)
        for offset in known_of(ranges, group.moved or ()):
            if group.moved is not None and offset not in held:
                del group.moved[offset]
    if count:
        runs.tick.confirm(partition, ticket, Changed(count))
    else:
        ticket.settle(_refused(groups, partition, ranges, Refusal.OFFSET_UNKNOWN))


def cancel(
    runs: RunQueue,
    ticket: Ticket,
    groups: Sequence[Group],
    partition: Partition,
    ranges: Ranges,
) -> None:
    """Finish messages that are delayed. Settles with Changed."""
    _Delayed(runs, ticket, groups, partition, ranges, None)


def reschedule(
    runs: RunQueue,
    ticket: Ticket,
    groups: Sequence[Group],
    partition: Partition,
    ranges: Ranges,
    due_ms: int,
) -> None:
    """Give messages that are delayed another time; 0 = now. Settles with Changed."""
    _Delayed(runs, ticket, groups, partition, ranges, due_ms)


def again(runs: RunQueue, ticket: Ticket, group: Group, partition: Partition, offset: int) -> None:
    """Deliver a message once more, before all others, however it ended. Settles with Changed; a
    leased message is refused."""
    backlog, at = group.backlogs[partition.index], [range(offset, offset + 1)]
    if (problem := _problem([group], partition, at)) is not None:
        ticket.settle(problem)
    elif offset in backlog.leased:
        ticket.settle(BrokerError(Refusal.ILLEGAL, f"offset {offset} is leased"))
    elif isinstance(known := runs.reopening(ticket, group, {partition.index: at[0]}), BrokerError):
        ticket.settle(known)
    else:
        backlog.again(offset)
        runs.moved(group, partition)
        runs.tick.confirm(partition, known, Changed(1))


class _Delayed:
    """An order about delayed messages, which may have to look for their times."""

    def __init__(
        self,
        runs: RunQueue,
        ticket: Ticket,
        groups: Sequence[Group],
        partition: Partition,
        ranges: Ranges,
        due_ms: int | None,
    ) -> None:
        """Without a time they are cancelled."""
        self._runs = runs
        self._ticket = ticket
        self._groups = groups
        self._partition = partition
        self._ranges = ranges
        self._due_ms = due_ms
        self._due_of: dict[int, int] = {}  # the own times of what some group has not come to
        if (problem := _problem(groups, partition, ranges)) is not None:
            ticket.settle(problem)
            return
        cursor = min([group.backlogs[partition.index].cursor for group in groups])
        ahead = [range(max(o.start, cursor), o.stop) for o in _stored(partition, ranges)]
        places: list[Place] = [(partition, offset) for offsets in ahead for offset in offsets]
        PointReads(places, self._look, self._looked)

    def _look(self, partition: Partition, chunk: Chunk, at: int) -> bool:
        if chunk.due is not None and (due_ms := chunk.due[at]) > self._runs.tick.now_ms:
            self._due_of[chunk.first + at] = due_ms
        return True

    def _looked(self, problem: BrokerError | None) -> None:
        """All times are known: now it is done, in one go."""
        ticket, partition = self._ticket, self._partition
        if not ticket.open:
            return
        groups = [group for group in self._groups if not group.gone]
        problem = problem or _problem(groups, partition, self._ranges)
        if problem is not None:
            ticket.settle(problem)
            return
        count = sum([self._apply(group) for group in groups])
        if count:
            self._runs.tick.confirm(partition, ticket, Changed(count))
        else:
            ticket.settle(_refused(groups, partition, self._ranges, Refusal.CONFLICT))

    def _apply(self, group: Group) -> int:
        runs, partition = self._runs, self._partition
        backlog, now_ms = group.backlogs[partition.index], runs.tick.now_ms
        found = 0
        for offsets in _stored(partition, self._ranges):
            known = backlog.delayed.within(offsets)
            fit = [o for o in known if backlog.delayed.due_of(o) > now_ms]
            own = self._due_of
            fit += [
                o for o in offsets if o in own and o >= backlog.cursor and o not in backlog.ahead
            ]
            for offset in sorted(fit):
                if offset in own and offset >= backlog.cursor:
                    runs.passed(partition, offset, own[offset])
                if self._due_ms is None:
                    backlog.finish(offset, Disposition.DELETED)
                    if group.moved is not None:
                        group.moved.pop(offset, None)
                else:
                    due_ms = max(self._due_ms, now_ms)
                    backlog.delay(offset, due_ms)
                    if group.moved is not None:
                        group.moved[offset] = due_ms
            found += len(fit)
        if found:
            runs.moved(group, partition)
        return found


def _stored(partition: Partition, ranges: Ranges) -> list[range]:
    """What of the ranges the log has, each offset once."""
    found: list[range] = []
    end = partition.first
    for offsets in sorted(ranges, key=lambda offsets: offsets.start):
        part = range(max(offsets.start, end), min(offsets.stop, partition.visible))
        if part:
            found.append(part)
            end = part.stop
    return found


def _without(offsets: range, others: Sequence[int]) -> list[range]:
    """A range in pieces between those."""
    pieces, start = [], offsets.start
    for offset in sorted([other for other in others if other in offsets]):
        pieces.append(range(start, offset))
        start = offset + 1
    return [piece for piece in (*pieces, range(start, offsets.stop)) if piece]


def _problem(groups: Sequence[Group], partition: Partition, ranges: Ranges) -> BrokerError | None:
    """Why it cannot even be begun."""
    if partition.fenced is not None:
        return partition.fenced
    count = distinct(ranges)
    if count * len(groups) > CHANGES_MAX:
        text = (
            f"{count} offsets in {len(groups)} groups are more than {CHANGES_MAX} at once:"
            " name a group, or fewer offsets"
        )
        return BrokerError(Refusal.TOO_MANY, text)
    if not _stored(partition, ranges):
        return offset_outside(partition.index, partition.first, partition.visible)
    if not groups:
        return BrokerError(Refusal.OFFSET_UNKNOWN, f"{partition.topic.name} has no groups")
    return None


def _refused(
    groups: Sequence[Group], partition: Partition, ranges: Ranges, refusal: Refusal
) -> BrokerError:
    """Nothing fits, and why: of one message, what it is instead."""
    offset = _stored(partition, ranges)[0].start
    if distinct(ranges) > 1:
        text = f"none of these {distinct(ranges)} offsets is delayed"
        if refusal is not Refusal.CONFLICT:
            text = f"none of these {distinct(ranges)} offsets is unfinished"
        return BrokerError(refusal, text)
    lines = [f"{_line_of(group, partition.index, offset)} {group.name}" for group in groups[:3]]
    more = ", …" if len(groups) > 3 else ""
    # The name is what a conflict is about; of other refusals the text says it.
    name = str(offset) if refusal is Refusal.CONFLICT else ""
    return BrokerError(refusal, f"offset {offset} {', '.join(lines)}{more}", name)


def _line_of(group: Group, index: int, offset: int) -> str:
    """What it is; the group's name comes next."""
    backlog = group.backlogs[index]
    life = backlog.life(offset)
    if offset in backlog.leased.settling:
        return "is being settled in"
    if life is MessageState.LEASED:
        return f"was just delivered: it is leased until {backlog.leased.due_of(offset)} in"
    if life is MessageState.DONE:
        return "is finished, so it was delivered or is gone in" if group.lease else "is finished in"
    return "is not delayed (any more): it is ready in"
