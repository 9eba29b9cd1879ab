"""Where a group reads from: finding the place, which may take a read, and moving a group there.

A start position is that of a group that is new. A group that exists is moved by `seek` alone, in
all partitions at once (`zbus.core.commit.topic_changes`): it forgets its leases, its attempts and
what it had delayed, and reads on from the new place.
"""

from __future__ import annotations

from collections.abc import Callable
from sys import maxsize
from typing import Final

import attrs

from zbus.core.commit import topic_changes as deciding
from zbus.core.delivery.run_queue import RunQueue
from zbus.core.model.chunk import Chunk
from zbus.core.model.errors import BrokerError, Refusal, group_unknown, offset_unknown
from zbus.core.model.request_clock import RequestClock
from zbus.core.model.ticket import Ticket
from zbus.core.topics.changes import Changes
from zbus.core.topics.outcomes import Declared
from zbus.core.topics.topic import Group, Partition, Topic

Check = Callable[[bytes], str | None]
"""Given a message's id, says why a group is not to begin there; None = it may."""


@attrs.frozen
class Start:
    """Where a group is to read from. Offset goes before `latest`, and that before time."""

    copy: str = ""  # another group's position; only for a group that does not exist yet
    offset: int | tuple[int, ...] | None = None  # 0 = the oldest message; or one of each partition
    check: Check | None = None  # of the message at `offset`
    latest: bool = False  # after everything that is stored
    time_ms: int | None = None
    partition: int | None = None  # the others stay as they are; None = every partition
    moves: bool = False  # a group that exists, too

    @property
    def given(self) -> bool:
        """There is more to be found out than where other groups stand."""
        return self.latest or self.offset is not None or self.time_ms is not None

    def problem(self, partitions: int) -> BrokerError | None:
        """Why there is no such place in a topic of that many partitions, whatever they hold."""
        text = ""
        if isinstance(self.offset, tuple) and len(self.offset) != partitions:
            text = (
                f"{len(self.offset)} offsets were given, but the topic has {partitions} partitions"
            )
        elif isinstance(self.offset, tuple) and self.partition is not None:
            text = "offsets of several partitions cannot be combined with `partition`"
        elif self.partition is not None and self.partition >= partitions:
            text = f"there is no partition {self.partition}"
        return BrokerError(Refusal.ILLEGAL, text) if text else None

    def problem_when_empty(self, partitions: int) -> BrokerError | None:
        """Why there is no such place in a topic that is yet to be made."""
        offsets = self.offset if isinstance(self.offset, tuple) else (self.offset or 0,)
        if any(offsets) or (self.offset is not None and self.check):
            return BrokerError(Refusal.ILLEGAL, offset_unknown(max(offsets)).text)
        return self.problem(partitions)


WITH_OTHERS: Final = Start()
"""Where the most advanced group stands, or at the beginning."""

Found = Callable[[list[int] | BrokerError], None]
"""Gets a cursor for each partition; -1 = it stays where it is."""


class Seeker:
    def __init__(self, request_clock: RequestClock, runs: RunQueue, changes: Changes) -> None:
        self._outside = request_clock
        self._runs = runs
        self._changes = changes

    def find(self, topic: Topic, start: Start, done: Found) -> None:
        """Look for a position that is `given`."""
        _Places(self._outside, topic, start, done)

    def seek(self, ticket: Ticket, group: Group, start: Start) -> None:
        """Move a group, in all partitions or in none; settles with Declared."""
        topic = group.topic

        def apply(places: list[int] | BrokerError) -> None:
            # It may have gone while its place was looked for.
            if topic.partitions[0].removed or group.gone:
                ticket.settle(group_unknown(group.name))
            elif isinstance(places, BrokerError):
                ticket.settle(places)
            elif (why := fenced(topic)) is not None:
                ticket.settle(why)
            elif isinstance(known := self.reopening(ticket, group, places), BrokerError):
                ticket.settle(known)
            else:
                now_ms = self._runs.tick.now_ms
                self.move(group, places)
                group.updated_ms = now_ms
                self._changes.note(now_ms)
                self._runs.tick.confirm_all(topic, known, Declared(topic, group))

        self.find(topic, start, apply)

    def reopening(self, ticket: Ticket, group: Group, places: list[int]) -> Ticket | BrokerError:
        """To be asked before a move: how to confirm it."""
        moved = {index: range(maxsize) for index, place in enumerate(places) if place >= 0}
        return self._runs.reopening(ticket, group, moved)

    def move(self, group: Group, places: list[int]) -> None:
        """Put a group that exists somewhere else."""
        deciding.renew(self._runs.tick, group, places)
        self.arrive(group, places)

    def arrive(self, group: Group, places: list[int]) -> None:
        """The group was put there: serve those who wait."""
        runs = self._runs
        for partition, place in zip(group.topic.partitions, places, strict=True):
            if place >= 0:
                # While the place was looked for the log may have forgotten it.
                if group.backlogs[partition.index].fall_off(partition.first):
                    group.unreported = True
                runs.tick.change(partition, group)
            runs.schedule(group, partition.index)
        runs.activate(group)


def rewind(runs: RunQueue, group: Group, position: list[int]) -> None:
    """Hand out again what comes from `position` on, where the group is beyond it."""
    group.crossed = 0
    for partition, place in zip(group.topic.partitions, position, strict=True):
        backlog = group.backlogs[partition.index]
        place = max(place, partition.first)
        if place < backlog.cursor:
            backlog.rewind(place)
            runs.tick.change(partition, group)
            runs.schedule(group, partition.index)


def fenced(topic: Topic) -> BrokerError | None:
    """All partitions are changed or none: so all must be there."""
    return next((one.fenced for one in topic.partitions if one.fenced is not None), None)


class _Places:
    """Looks for a position in each partition."""

    def __init__(
        self, request_clock: RequestClock, topic: Topic, start: Start, done: Found
    ) -> None:
        self._done = done
        self._topic = topic
        self._start = start
        self._places = [-1] * len(topic.partitions)
        self._drift_ms = request_clock.drift_ms()
        chosen = topic.partitions.copy()  # what waits for the last place may make them more
        problem = start.problem(len(chosen)) or fenced(topic)
        self._left = len(chosen) if start.partition is None else 1
        if problem is not None:
            done(problem)
            return
        for partition in chosen if start.partition is None else [chosen[start.partition]]:
            self._find(partition)

    def _find(self, partition: Partition) -> None:
        index, start = partition.index, self._start
        oldest = max(partition.first, partition.purged_to)
        offset = start.offset[index] if isinstance(start.offset, tuple) else start.offset
        if offset is None and start.latest:
            self._found(index, partition.end)
        elif offset is None:
            assert start.time_ms is not None
            time_ms = max(0, start.time_ms + self._drift_ms)
            partition.log.find_time(time_ms, lambda place: self._found(index, place))
        elif start.check is None and offset in (0, oldest, partition.visible):
            self._found(index, max(offset, oldest))
        else:
            self._look(partition, offset)

    def _look(self, partition: Partition, offset: int) -> None:
        index, check = partition.index, self._start.check

        def got(found: tuple[Chunk, int] | BrokerError) -> None:
            if isinstance(found, BrokerError):
                wrong = found.refusal is Refusal.OFFSET_UNKNOWN  # else the log is
                refused = BrokerError(Refusal.ILLEGAL, found.text) if wrong else found
                self._found(index, refused)
                return
            text = check and check(found[0].id_of(found[1], index))
            self._found(index, BrokerError(Refusal.ILLEGAL, text) if text else offset)

        partition.log.get(offset, got)

    def _found(self, index: int, place: int | BrokerError) -> None:
        if self._left <= 0:
            return  # refused already
        if isinstance(place, BrokerError):
            self._left = 0
            self._done(place)
            return
        self._places[index] = place
        self._left -= 1
        if not self._left:  # meanwhile there may be more partitions
            more = len(self._topic.partitions) - len(self._places)
            self._done(self._places + [-1] * more)
