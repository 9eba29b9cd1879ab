"""Messages that are staged first, and stored together on commit: a batch is committed as a whole,
once, and by no other client.

    txn.<app>.rows    what is staged: messages like any others, that no consumer reads
    txn.<app>         decisions: the last one is not finished, all before it are

Staging is a put into the first topic. A commit is one message in the second, the *decision*, which
names the batch and the offsets that belong to it, and finishes the decision before it in the same
write. When that is durable it is decided, whatever ends in between: then the messages are put
where they belong, some at a time, each portion finished in the first topic by the same step
(`zbus.core.patterns.completions`), and what was staged before and not named is dropped. So nothing
has to be remembered elsewhere: a start finds the decision, and which of its messages are not moved
yet.

Batches have growing numbers. One that is not above the last decision's was committed before: it is
answered when that is done, and changes nothing. What is not committed is invisible; a large batch
becomes visible portion by portion, in its order. An abandoned batch is dropped in time
(`zbus.core.patterns.transaction_expiry`).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import Any, Final

from zbus.core.cursor.state import GroupOptions, TopicOptions
from zbus.core.delivery.run_queue import RunQueue
from zbus.core.log import Size
from zbus.core.model.chunk import Chunk
from zbus.core.model.errors import BrokerError, Outcome, Refusal, topic_unknown
from zbus.core.model.limits import DELAY_MS_MAX
from zbus.core.model.message_state import MessageState
from zbus.core.model.ticket import Opening, Silent, Ticket
from zbus.core.patterns.completions import Completions, Source
from zbus.core.patterns.transaction_expiry import Lapsing
from zbus.core.patterns.transaction_log import (
    GROUP,
    Decision,
    Producer,
    Stage,
    Status,
    Task,
    copy_of,
)
from zbus.core.persistence.storage import Storage
from zbus.core.timing.timers import Timers
from zbus.core.topics.elsewhere import RemoteTopic, place_in
from zbus.core.topics.outcomes import Changed, Committed
from zbus.core.topics.topic import Partition, Topic
from zbus.core.verbs import message_admin as single
from zbus.core.verbs.declare import GroupWish

PREFIX: Final = "txn."
ROWS: Final = ".rows"

AGAIN_MS: Final = 1_000
"""When it is tried again what is not possible now: a topic is gone, a disk is full."""

_PORTION: Final = Size(bytes_max=1 << 20, count_max=1_000)
_LOOKED_MAX: Final = 20_000
"""Offsets that are passed over in a turn."""

_OPEN: Final = (MessageState.READY, MessageState.LEASED, MessageState.DELAYED)
_OPTIONS: Final = GroupOptions(lease=True, lease_ms=DELAY_MS_MAX, window=(1 << 31) - 1)


class Transactions:
    """`topics` are the broker's, by lower-case name."""

    def __init__(
        self,
        topics: dict[str, Topic],
        storage: Storage,
        runs: RunQueue,
        completions: Completions,
        timers: Timers,
        declare: Callable[..., None],
        remove: Callable[[Ticket, Topic], None],
        ttl_ms: int,
    ) -> None:
        self._topics = topics
        self._storage = storage
        self._runs = runs
        self._completions = completions
        self._declare = declare
        self._remove = remove
        self._apps: dict[str, Producer] = {}
        self._timer = timers.timer(self._go_on, lambda name: topics.get(f"{PREFIX}{name}"))
        self._lapsing = Lapsing(storage, runs, timers, ttl_ms, self._look)

    # -- verbs ----------------------------------------------------------------------------------

    def begin(self, name: str) -> BrokerError | None:
        """See to it that an application can stage, from now on; why it cannot.

        What is staged is durable when the topics that it is in are, so no request waits for these.
        """
        for topic in (f"{PREFIX}{name}", f"{PREFIX}{name}{ROWS}"):
            if not self._fits(topic):
                made = Opening()
                self._make(made, topic)
                if made.problem is not None:
                    return made.problem
        self._lapsing.use(name)
        return None

    def commit(self, ticket: Ticket, name: str, batch: int, stages: Sequence[Stage]) -> None:
        """Store what is staged where it belongs, all of it and once; settles with Committed."""
        app = self._find(name)
        if isinstance(app, BrokerError):
            ticket.settle(app)
        else:
            self._lapsing.use(name)
            decision = Decision(batch, tuple(stages))
            self._submit(app, partial(self._commit, app, ticket, decision))

    def abort(self, ticket: Ticket, name: str, batch: int, ranges: Sequence[range]) -> None:
        """Drop what is staged of a batch that is not committed; settles with Changed."""
        app = self._find(name)
        if isinstance(app, BrokerError):
            ticket.settle(app)
        else:
            self._lapsing.use(name)
            self._submit(app, partial(self._abort, app, ticket, batch, ranges))

    def status(self, name: str) -> Status | BrokerError:
        app = self._find(name)
        if isinstance(app, BrokerError):
            return app
        partition = app.rows.partitions[0]
        left = app.group.backlogs[0].ready_count(partition.visible) + app.group.leased_count()
        if not app.loaded:
            self._submit(app, lambda: self._load(app))
        decided = app.decided
        return Status(None if decided is None else decided.batch, app.applied, left)

    def found(self, topic: Topic) -> None:
        """A start has found this topic: what is decided there is done."""
        name = topic.name[len(PREFIX) :]
        if topic.name.startswith(PREFIX) and not name.endswith(ROWS):
            self._timer.set(name, self._runs.tick.now_ms)
            self._lapsing.found(name)

    def _look(self, name: str) -> None:
        app = self._find(name)
        if isinstance(app, Producer):
            self._submit(app, lambda: self._lapsing.lapse(app, self._drop, self._forget))

    def _forget(self, app: Producer) -> None:
        """It was idle for its whole time to live."""
        del self._apps[app.name]
        for topic in (app.rows, app.decisions):
            self._remove(Silent(), topic)

    # -- applications ---------------------------------------------------------------------------

    def _fits(self, name: str) -> bool:
        topic = self._topics.get(name.lower())
        return topic is not None and GROUP in topic.groups

    def _make(self, ticket: Ticket, name: str) -> None:
        def wished(topic: Topic | None) -> tuple[TopicOptions, GroupWish]:
            options = TopicOptions(name, retention_done=True) if topic is None else topic.options
            return options, GroupWish(GROUP, _OPTIONS)

        self._declare(ticket, name, wished)

    def _find(self, name: str) -> Producer | BrokerError:
        """An application that has staged something."""
        rows = self._topics.get(f"{PREFIX}{name}{ROWS}".lower())
        decisions = self._topics.get(f"{PREFIX}{name}".lower())
        if (
            rows is None
            or decisions is None
            or not {GROUP} <= rows.groups.keys() & decisions.groups
        ):
            return topic_unknown(f"{PREFIX}{name}{ROWS}")
        key = name.lower()
        app = self._apps.get(key)
        if app is None or (app.rows, app.decisions) != (rows, decisions):
            app = self._apps[key] = Producer(key, rows, decisions)
        return app

    def _submit(self, app: Producer, task: Callable[[], Task]) -> None:
        if not app.loaded and app.task is None and not app.queue:
            app.queue.append(lambda: self._load(app))
        app.queue.append(task)
        if app.task is None:
            self._timer.set(app.name, self._runs.tick.now_ms)

    def _go_on(self, name: str) -> None:
        """Take the next step of an application."""
        app = self._find(name)
        if isinstance(app, BrokerError):
            return
        if app.task is None:
            if not app.loaded and not app.queue:
                app.queue.append(lambda: self._load(app))
            if not app.queue:
                return
            app.task = app.queue.popleft()()
        sent, app.sent = app.sent, None
        try:
            wanted = app.task.send(sent)
        except StopIteration:
            app.task = None
            if app.queue:
                self._timer.set(app.name, self._runs.tick.now_ms)
            return
        except BaseException:
            app.task = None
            raise
        if isinstance(wanted, int):
            self._timer.set(app.name, wanted)
        else:
            wanted(partial(self._called, app))

    def _called(self, app: Producer, value: object) -> None:
        if self._apps.get(app.name) is app:
            app.sent = value
            self._timer.set(app.name, self._runs.tick.now_ms)

    # -- tasks ----------------------------------------------------------------------------------

    def _load(self, app: Producer) -> Task:
        """Read the last decision, and do what is not done of it."""
        partition = app.decisions.partitions[0]
        backlog = app.decisions.groups[GROUP].backlogs[0]
        while not app.loaded:
            if partition.fenced is not None:
                yield self._later()
                continue
            offsets = [*backlog.leased]
            ready = backlog.next(partition.visible)
            offsets += [] if ready is None else [ready]
            if offsets:
                found = yield partial(partition.log.get, max(offsets))
                if isinstance(found, BrokerError):
                    yield self._later()
                    continue
                chunk, at = found
                app.decided = Decision.read(chunk.bodies[at])
                app.offset = max(offsets)
                app.applied = False
            app.loaded = True
        yield from self._apply(app, None)

    def _commit(self, app: Producer, ticket: Ticket, decision: Decision) -> Task:
        if app.decided is not None and decision.batch <= app.decided.batch:
            yield from self._apply(app, ticket)
            if ticket.open:
                ticket.settle(Committed(0, duplicate=True))
            return
        yield from self._apply(app, ticket)
        if not ticket.open:
            return
        problem = yield from self._problem(app, decision)
        if problem is None:
            problem = yield from self._decide(app, decision)
        if problem is not None:
            ticket.settle(problem)
            return
        moved = yield from self._apply(app, ticket)
        if ticket.open:
            ticket.settle(Committed(moved))

    def _problem(
        self, app: Producer, decision: Decision
    ) -> Generator[Any, Any, BrokerError | None]:
        """Why this cannot be decided."""
        partition, backlog = app.rows.partitions[0], app.group.backlogs[0]
        for topic in {stage.topic: None for stage in decision.stages}:
            target = self._target(topic)
            if isinstance(target, RemoteTopic):
                outcome = yield partial(self._completions.elsewhere.check, topic, "")
                if isinstance(outcome, BrokerError):
                    return outcome
            if target is None:
                return topic_unknown(topic)
        for first, end, _ in decision.stages:
            if not partition.first <= first < end <= partition.visible:
                return _not_staged(first, end)
            for start in range(first, end, _LOOKED_MAX):
                stop = min(start + _LOOKED_MAX, end)
                if any(backlog.life(offset) not in _OPEN for offset in range(start, stop)):
                    return _not_staged(start, stop)
                if end - first > _LOOKED_MAX:
                    yield self._runs.tick.now_ms
        return None

    def _decide(self, app: Producer, decision: Decision) -> Generator[Any, Any, BrokerError | None]:
        partition = app.decisions.partitions[0]
        chunk = Chunk.single((b"", b"", decision.body()))
        sources = []
        if app.offset >= 0:
            former = [range(app.offset, app.offset + 1)]
            sources = [Source(app.decisions.groups[GROUP], partition, former)]
        outcome, offset = yield partial(self._put_leased, partition, chunk, sources)
        if isinstance(outcome, BrokerError):
            if outcome.refusal is Refusal.FENCED:
                app.loaded = False  # it may be there: it is looked for again
                app.queue.appendleft(lambda: self._load(app))
            return outcome
        app.decided, app.offset, app.applied = decision, offset, False
        return None

    def _apply(self, app: Producer, ticket: Ticket | None) -> Generator[Any, Any, int]:
        """Move what is not moved yet. Who waits is told when that is not possible, and it is tried
        on all the same. Gives how many were moved."""
        moved = 0
        decided = app.decided
        while decided is not None and not app.applied:
            app.problem = None
            for stage in decided.stages:
                moved += yield from self._move(app, stage)
                if app.stuck():
                    break
            if not app.stuck():
                yield from self._drop_others(app, decided)
                app.applied = True
                break
            if ticket is not None and ticket.open:
                ticket.settle(app.problem or _busy())
            yield self._later()
        return moved

    def _move(self, app: Producer, stage: Stage) -> Generator[Any, Any, int]:
        """Of one stage what is not moved, unless there is a problem."""
        partition, backlog = app.rows.partitions[0], app.group.backlogs[0]
        at, moved = max(stage.first, partition.first), 0
        while at < stage.end:
            looked = 0
            while at < stage.end and looked < _LOOKED_MAX and backlog.life(at) not in _OPEN:
                at += 1
                looked += 1
            if looked == _LOOKED_MAX:
                yield self._runs.tick.now_ms
                continue
            if at == stage.end:
                break
            if partition.fenced is not None or at in backlog.leased.settling:
                app.problem = partition.fenced or _busy()
                return moved
            found = yield partial(self._storage.fetch, partition, at, _PORTION)
            if found is None or isinstance(found, BrokerError):
                app.problem = found or _not_staged(at, stage.end)
                return moved
            count = yield from self._put(app, stage, at, found)
            if app.stuck():
                return moved
            at += count
            moved += count
        return moved

    def _put(self, app: Producer, stage: Stage, at: int, found: Chunk) -> Generator[Any, Any, int]:
        """A portion that begins at this offset: its messages are put, and finished, or neither."""
        backlog = app.group.backlogs[0]
        target = self._target(stage.topic)
        if target is None:
            app.problem = topic_unknown(stage.topic)
            return 0
        settling, end = backlog.leased.settling, at
        while end < min(stage.end, found.end):
            if backlog.life(end) not in _OPEN or end in settling:
                break
            end += 1
        by_partition: dict[Partition | RemoteTopic, list[int]] = {}
        for row in range(at - found.first, end - found.first):
            into = place_in(target, found.key_of(row))
            by_partition.setdefault(into, []).append(row)
        for into, rows in by_partition.items():
            if isinstance(into, Partition) and into.fenced is not None:
                app.problem = into.fenced
                return 0
            chunk = copy_of(found, rows)
            offsets = [range(found.first + row, found.first + row + 1) for row in rows]
            if len(by_partition) == 1:
                offsets = [range(at, end)]
            source = Source(app.group, app.rows.partitions[0], offsets)
            outcome, _ = yield partial(self._put_leased, into, chunk, [source])
            if isinstance(outcome, BrokerError):
                app.problem = outcome
                return 0
        return end - at

    def _target(self, name: str) -> Topic | RemoteTopic | None:
        """The topic, if it takes messages."""
        target = self._topics.get(name.lower())
        if target is None:
            return self._completions.elsewhere.find(name)
        return None if target.options.calls else target

    def _put_leased(
        self,
        into: Partition | RemoteTopic,
        chunk: Chunk,
        sources: Sequence[Source],
        done: Callable[[object], None],
    ) -> None:
        self._completions.put_leased(into, _Called(done), chunk, sources)

    def _drop_others(self, app: Producer, decided: Decision) -> Task:
        """What was staged before and is not of this batch: attempts that were given up."""
        partition = app.rows.partitions[0]
        kept = sorted((stage.first, stage.end) for stage in decided.stages)
        at = partition.first
        for first, end in kept:
            if at < first:
                yield from self._drop(app, range(at, first))
            at = max(at, end)

    def _drop(self, app: Producer, offsets: range) -> Task:
        partition, group = app.rows.partitions[0], app.group
        if partition.fenced is None:
            ranges = [offsets]
            yield lambda done: single.delete(self._runs, _Called(done), [group], partition, ranges)

    def _abort(self, app: Producer, ticket: Ticket, batch: int, ranges: Sequence[range]) -> Task:
        if app.decided is not None and batch <= app.decided.batch:
            text = f"batch {batch} is committed"
            ticket.settle(BrokerError(Refusal.CONFLICT, text))
            return
        count = 0
        partition = app.rows.partitions[0]
        for offsets in ranges:
            before = app.group.backlogs[0].ready_count(partition.visible)
            start, stop = max(offsets.start, partition.first), min(offsets.stop, partition.visible)
            if start < stop:
                yield from self._drop(app, range(start, stop))
            count += before - app.group.backlogs[0].ready_count(partition.visible)
        ticket.settle(Changed(count))

    def _later(self) -> int:
        return self._runs.tick.now_ms + AGAIN_MS


class _Called(Silent):
    """Tells its outcome, and the offset of a put."""

    __slots__ = ("_done",)

    def __init__(self, done: Callable[[object], None]) -> None:
        super().__init__()
        self._done = done

    def answer(self, outcome: Outcome) -> None:
        self._done((outcome, self.offset))


def _not_staged(first: int, end: int) -> BrokerError:
    one = f"offset {first} is not staged, or no longer"
    many = f"some of the offsets {first} to {end - 1} are not staged, or no longer"
    return BrokerError(Refusal.CONFLICT, one if end - first == 1 else many)


def _busy() -> BrokerError:
    return BrokerError(Refusal.FENCED, "recovery after a crash is not finished; retry in 1 s")
