"""The broker's verbs. Pure: no sockets, files, threads or clocks.

One turn, driven by the server's loop:

    begin(now)   what became due; then the callbacks of storage, and the verbs of all requests
    finish()     one write per touched partition, then messages for waiting pulls

Every verb ends in its ticket, now or later, with an outcome or a BrokerError; none raises for
anything that comes from outside. Names are looked up without regard to case.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from sys import maxsize
from typing import NamedTuple

from zbus.core.commit import topic_changes
from zbus.core.delivery import retries, settle
from zbus.core.delivery.dispatch import Dispatch
from zbus.core.delivery.standby import Standbys
from zbus.core.fanout.follow import ENDED_STOPPING
from zbus.core.fanout.subscribers import Encoder, Subscriber
from zbus.core.log import Log, Memory
from zbus.core.model.chunk import Chunk, Row
from zbus.core.model.containment import Containment
from zbus.core.model.errors import BrokerError, Refusal, group_taken, group_unknown, topic_unknown
from zbus.core.model.limits import DEFAULT_LIMITS, Limits
from zbus.core.model.pull_options import ONE, PullOptions
from zbus.core.model.request_clock import RequestClock
from zbus.core.model.ticket import Parts, Silent, Ticket
from zbus.core.patterns.completions import Completions
from zbus.core.patterns.dead_letters import DeadLetters
from zbus.core.patterns.redrive import Redriver
from zbus.core.patterns.schedules import Schedules
from zbus.core.patterns.transactions import Transactions
from zbus.core.persistence.storage import Storage
from zbus.core.timing.timers import Timers
from zbus.core.topics.calls import Calls
from zbus.core.topics.changes import Changes
from zbus.core.topics.outcomes import DONE, EmptyReason, Routed
from zbus.core.topics.topic import Fetch, Group, Partition, Pull, Session, Topic
from zbus.core.upkeep.compaction import Compaction
from zbus.core.upkeep.fencing import Fencing
from zbus.core.upkeep.invariants import check_topics
from zbus.core.upkeep.retention import Retention
from zbus.core.verbs import message_admin, purge, reads
from zbus.core.verbs.declare import Declarations, claim
from zbus.core.verbs.disconnect import ORPHAN_MS, Departures
from zbus.core.verbs.puts import AGAIN, Puts
from zbus.core.verbs.search import Searcher
from zbus.core.verbs.seek import Seeker, rewind


class MemoryUse(NamedTuple):
    """What the broker holds in memory. Pulls and calls are counted, the rest is in bytes."""

    pulls: int
    calls: int
    recent_bytes: int
    replayed_bytes: int
    topics_bytes: int  # of topics that are in memory alone


class Broker:
    """All that can be asked of a broker: verbs, topics, sessions, and turns.

    A turn begins with `begin`, has any number of verbs, and ends with `finish`. Verbs never wait:
    they settle tickets, now or in a later turn.
    """

    def __init__(
        self, storage: Storage, ids: Iterator[bytes], limits: Limits = DEFAULT_LIMITS
    ) -> None:
        self.limits = limits
        self.topics: dict[str, Topic] = {}  # by lower-case name
        self.sessions: dict[bytes, Session] = {}
        self.now_ms = 0
        self.stopping = False
        self.request_clock = RequestClock(lambda: self.now_ms)
        self.faults = Containment()  # what mistakes of the program cost
        self.timers = timers = Timers(self.faults)
        self.changes = Changes(self.faults)  # of topics, groups and readers
        self._storage = storage
        self._fetch: Fetch = lambda *wanted: storage.fetch(*wanted)
        self._removed = 0  # partitions, ever: they and their topics know each other
        # Temporary groups found at recovery.
        self._orphans = timers.timer(self._abandon, lambda group: group)
        self._calls = Calls(limits.calls_max, timers)
        self._memory = Memory(limits.cache_bytes_max, limits.history_bytes_max)
        self._dispatch = dispatch = Dispatch(
            storage, timers, self.request_clock, limits.waiting_max, self._calls
        )
        self._runs = runs = dispatch.runs
        self._tick = runs.tick
        self._retention = Retention(storage, runs, timers)
        self._compaction = Compaction(runs, self._retention, timers, ids.__next__)
        self._puts = puts = Puts(runs, timers, limits)
        self._completions = Completions(self.topics, runs, puts, timers)
        self.elsewhere = self._completions.elsewhere
        self._standbys = Standbys(dispatch.pulls, timers, limits.waiting_max, self.register)
        DeadLetters(self.topics, runs, self._completions, timers)
        self._bind(storage, ids)
        self._fencing = Fencing(
            self, dispatch.pulls, dispatch.wake, storage, self._retention, self.changes, timers
        )
        self.transactions = Transactions(
            self.topics,
            storage,
            runs,
            self._completions,
            timers,
            self.declare,
            self.remove_topic,
            limits.txn_ttl_ms,
        )
        self.schedules = Schedules(self, runs, puts, self._completions)

    def _bind(self, storage: Storage, ids: Iterator[bytes]) -> None:
        """Verbs that are those of a part: to call them costs no step more."""
        runs, tick, puts = self._runs, self._tick, self._puts
        self.new_id: Callable[[], bytes] = ids.__next__
        # Putting.
        self.put, self.put_along, self.put_all = puts.put, puts.put_along, puts.put_all
        self.put_and_ack, self.complete = self._completions.put, self._completions.recover
        self.put_refusal, self.too_large = puts.refusal, puts.too_large
        self.misfit = puts.misfit
        # Settling deliveries, of many as one change.
        self.ack = partial(settle.ack, runs)
        self.nack = partial(settle.nack, runs)
        self.extend = partial(settle.extend, runs)
        self.lose, self.undo = partial(settle.lose, runs), partial(settle.undo, runs)
        self.confirm, self.commit = tick.confirm, tick.commit
        self.serve, self.activate = self._dispatch.serve, runs.activate
        # Single messages.
        self.delete = partial(message_admin.delete, runs)
        self.cancel = partial(message_admin.cancel, runs)
        self.reschedule = partial(message_admin.reschedule, runs)
        self.again = partial(message_admin.again, runs)
        # Emptying.
        self.drop_waiting = partial(purge.drop_waiting, tick)
        self.purge_group = partial(purge.purge_group, tick)
        self.purge_topic = partial(purge.purge_topic, tick, self._retention, storage)
        # Looking at what is stored, which changes nothing.
        self.peek = reads.peek
        self.browse, self.read = partial(reads.browse, storage), partial(reads.read, storage)
        self.search = Searcher(self.timers).search
        self.get = self._compaction.get
        # Topics, groups and sessions.
        self.dead_letter_problem = partial(retries.dead_letter_problem, self.topics)
        self._departures = departures = Departures(
            self.sessions,
            self._calls,
            self.changes,
            self._dispatch.pulls,
            self._standbys,
            self.remove_group,
        )
        self.leave_group = departures.leave_group
        seeker = Seeker(self.request_clock, runs, self.changes)
        self.seek, self.rewind = seeker.seek, partial(rewind, runs)
        self.declare = Declarations(
            self.topics,
            self.limits,
            puts,
            runs,
            self.changes,
            seeker,
            self.elsewhere,
            self.new_id,
            self.adopt,
            self._standbys.admit,
        ).declare
        self.redrive = Redriver(runs, self._completions, self.timers).redrive
        self.expel = runs.following.expel

    # -- the turn -------------------------------------------------------------------------

    def begin(self, now_ms: int) -> None:
        """Start a turn. Time never goes back here, whatever the clock does."""
        if now_ms > self.now_ms:
            self.now_ms = self._tick.now_ms = self._runs.following.now_ms = now_ms
        if self._dispatch.leases.offsets:
            self._dispatch.leases.offsets = {}  # the caller does not report when replies are sent
        heap = self.timers.heap
        if heap and heap[0][0] <= self.now_ms:
            self._tick.forgotten = 0
            self._retention.begin()
            self.timers.run(self.now_ms)

    def finish(self) -> None:
        """End a turn: write, ask for the sync, serve the pulls that can be served."""
        if self.faults.doubt is not None:
            raise self.faults.doubt
        tick, following = self._tick, self._runs.following
        due_ms = tick.due_ms()
        if due_ms is not None and due_ms <= self.now_ms:
            tick.commit()
        if tick.not_created:
            self.faults.guard(self._fencing.undo)
        self._dispatch.run()
        if tick.awaited:  # deliveries, see `zbus.core.delivery.durable`
            tick.commit()
        if following.awake or following.queue or following.failed:
            following.run()
        if self._memory.gone:
            self.faults.guard(self._memory.sweep)
        if self.changes.due_ms is not None:
            self.changes.notify(self.now_ms)
        if self._fencing.to_drop:
            self._fencing.drop_doomed()

    def hold_deliveries(self, held: bool) -> None:
        """Deliver nothing to consumers for now, or go on: another broker may still do so."""
        self._dispatch.held = held

    def sent(self) -> None:
        """The replies of a turn are on their way. Leases begin now, or some would be too short."""
        if self._dispatch.leases.offsets:
            self._dispatch.leases.sent()

    def next_due(self) -> int | None:
        """When the next turn is needed if nothing comes from outside; None = never."""
        if (self._runs.active and not self._dispatch.held) or self._runs.following.busy:
            return self.now_ms
        due_ms = self.timers.next_due()
        for other_ms in (self._tick.due_ms(), self.changes.due_ms):
            if other_ms is not None and (due_ms is None or other_ms < due_ms):
                due_ms = other_ms
        return due_ms

    def adopt(self, topic: Topic, first: int = 0) -> None:
        """A topic is new here, or its partitions from `first` on are."""
        self._keep(topic)
        for partition in topic.partitions[first:]:
            partition.log = Log(partition, self._memory)

    def _keep(self, topic: Topic) -> None:
        topic.fetch = self._fetch
        self.topics[topic.name.lower()] = topic

    def _abandon(self, group: Group) -> None:
        """A temporary group had no reader for its whole grace time."""
        if not group.readers:
            self.remove_group(Silent(), group)

    def restore(self, topics: Iterable[Topic], wait: Callable[[], bool] = lambda: False) -> None:
        """Take over topics that recovery rebuilt: all of them, in the turn that begins. `wait` lets
        the engine answer; False: it will not.

        A power cut may remove messages of durability `os` and keep the completion that acknowledges
        them. New messages reuse their offsets, and the next start would acknowledge those. So such
        completions are closed, on stable storage, before the broker serves."""
        for topic in topics:
            self._restore(topic)
        self.complete()  # before a lease that is over makes it dead
        partitions = [one for topic in self.topics.values() for one in topic.partitions]
        closed = [one for one in partitions if one.completions and one.completions.closed]
        if closed:
            self._tick.commit()
            done: list[object] = []
            self._storage.commit(closed, True, done.append)
            while not done and wait():
                pass

    def _restore(self, topic: Topic) -> None:
        self._keep(topic)
        topic.born = True
        self._retention.restore(topic)
        self.transactions.found(topic)
        self.schedules.found(topic)
        if not all(map(self._storage.holds, topic.partitions)):  # a crash came as it was made
            self._tick.making.begin(topic)
        for partition in topic.partitions:
            self.begin_partition(partition)
        for group in topic.groups.values():
            if group.origin is not None:
                topic_changes.notify(self._tick, group)
            self._take_back(group)
            if group.temporary:
                # Its readers did not outlive the broker; they may be on their way back.
                self._orphans.set(group, self.now_ms + ORPHAN_MS)

    def begin_partition(self, partition: Partition) -> None:
        """It was read from storage, at the start or again."""
        partition.log = Log(partition, self._memory)
        partition.recovered = partition.end
        self._completions.found.append(partition)
        self._puts.recognition.remind(partition)
        self._dispatch.expiry.arm(partition)
        if partition.topic.options.compact:
            self._compaction.note(partition)
        for one in (partition, partition.topic.partitions[0]):
            if one.topic_changed or not self._storage.holds(one):
                self._tick.touch(one)

    def stop(self) -> None:
        """Take no more work: waiting pulls and calls end now."""
        self.stopping = True
        for partition in self._tick.behind:
            self._tick.touch(partition)  # there may be room by now
        for topic in self.topics.values():
            for group in topic.groups.values():
                for pull in list(group.pulls()):
                    self._dispatch.pulls.end(pull, EmptyReason.STOPPING)
                self._standbys.end_all(group, EmptyReason.STOPPING)
            self._runs.following.end(topic, ENDED_STOPPING)
            self._compaction.end(topic, ENDED_STOPPING)
        self._calls.stop()
        self.changes.notify_at_once(self.now_ms)

    # -- sessions -------------------------------------------------------------------------

    def join(self, session: Session) -> None:
        """A peer connected."""
        session.faults = self.faults
        self.sessions[session.id] = session

    def resume(self, session: Session) -> None:
        """The peer takes what it is sent again."""
        session.stalled = False
        for group in session.groups or ():
            self._dispatch.pulls.resume(group, session)
        if session.follower is not None:
            self._runs.following.resume(session)

    def leave(self, session: Session, most: int = maxsize) -> bool:
        """A peer is gone: its pulls, calls and registrations end, at most `most` of them now.
        Returns whether that is all; until then, call again. It gets no message from the first call
        on. Its leases run out by time."""
        return self._departures.leave(session, most)

    # -- topics and groups ----------------------------------------------------------------

    def topic(self, name: str) -> Topic | None:
        return self.topics.get(name.lower())

    def remove_topic(self, ticket: Ticket, topic: Topic) -> None:
        """Delete a topic, its groups, its messages and its schedules."""
        stays = topic.born or topic in self._tick.making.topics  # else it could not be made
        if stays and (schedules := self.schedules.of(topic)) is not None:
            parts = Parts(ticket, DONE, 2)
            ticket = parts.part()
            self.remove_topic(parts.part(), schedules)
        del self.topics[topic.name.lower()]
        self._removed += len(topic.partitions)
        self.changes.note_gone(self.now_ms, topic.options.created_ms)
        gone = topic_unknown(topic.name)
        for group in topic.groups.values():
            self.dissolve(group, gone)
        self._runs.following.end(topic, gone)
        self._tick.forget(topic)
        self._puts.recognition.drop(topic)
        self._dispatch.expiry.drop(topic)
        self._retention.forget(topic)
        self._compaction.end(topic, gone)
        self._completions.forget(topic)
        self._fencing.forget(topic)
        self._storage.remove(topic, lambda: ticket.settle(DONE))

    def remove_group(self, ticket: Ticket, group: Group) -> None:
        """Delete a group; the messages stay."""
        topic = group.topic
        del topic.groups[group.name.lower()]
        self.changes.note_gone(self.now_ms, group.options.created_ms)
        self.dissolve(group, group_unknown(group.name))
        topic_changes.depart(topic, group)
        decides = topic.partitions[0]  # the others have nothing to say
        if group in decides.changed:
            decides.changed.remove(group)
        decides.options_changed.pop(group, None)
        decides.removed_groups.append(group.name)
        self._tick.confirm(decides, ticket)

    def dissolve(self, group: Group, gone: BrokerError) -> None:
        """A group is no more: the requests that wait there end with the reason."""
        self._dispatch.pulls.cancel(group, gone)
        self._standbys.end_all(group, gone)
        self._dispatch.forget(group)
        self._orphans.discard(group)
        for session in group.readers:
            if session.groups is not None:
                session.groups.pop(group, None)
            if session.held:
                session.held.pop(group, None)

    def take_up(self, group: Group) -> None:
        """The group was read again, and its options with it: some may have been lost."""
        if group.options.unclaimed and group.readers:
            claim(self._tick, group)
        self._take_back(group)
        self._standbys.admit(group)

    def _take_back(self, group: Group) -> None:
        """It was read from storage, and its leases with it."""
        retries.lose(group, self.now_ms)
        for index in range(len(group.backlogs)):
            self._runs.schedule(group, index)

    # -- messages -------------------------------------------------------------------------

    def call(
        self,
        partition: Partition,
        ticket: Ticket,
        row: Row,
        session: Session,
        deadline_ms: int,
    ) -> None:
        """Put a request (a message with an id) that a service answers with `route`: settles with
        Routed, UNANSWERED at the deadline, or SERVICE_GONE. When its session leaves, no service
        gets it any more."""
        withdraw = partial(settle.withdraw, self._runs, partition)
        call = self._calls.expect(session.id, row[0], ticket, deadline_ms, withdraw)
        if isinstance(call, BrokerError):
            ticket.settle(call)
        else:
            self.put(partition, call, row, AGAIN)
            self._calls.place(call, partition)

    def route(self, ticket: Ticket, target: bytes, routed: Routed) -> None:
        """Send a message straight to a session, as the answer to its call of that id if any."""
        if not self._calls.settle(target, routed.id, routed):
            session = self.sessions.get(target)
            if session is None or not session.push(routed):
                name = target.decode("utf-8", "replace")
                text = f"session {name} is not connected, or cannot receive"
                ticket.settle(BrokerError(Refusal.SESSION_UNKNOWN, text))
                return
        ticket.settle(DONE)

    def pull(self, group: Group, pull: Pull, deadline_ms: int | None) -> None:
        """Ask for messages: settles with Delivered, or with Empty at the deadline (None = waits).

        The session counts as a reader of the group from here on.
        """
        session = pull.session
        if session not in group.readers and (taken := self.register(session, group)) is not None:
            if pull.wants.standby and not self.stopping:
                self._standbys.wait(group, pull, deadline_ms)
            else:
                pull.settle(taken)
            return
        if self.stopping:
            pull.settle(BrokerError(Refusal.STOPPING, "the broker is stopping"))
            return
        self._dispatch.pulls.add(group, pull, deadline_ms)

    def take(
        self, group: Group, session: Session, wants: PullOptions = ONE
    ) -> tuple[Chunk, int] | None:
        """The next message of a group, at once: its chunk and row. What is durable may be handed
        out at any time. None if that needs a `pull`: nothing is at hand, others wait, or the group
        does more than read one log in order."""
        if group.waiting or group.unreported or session not in group.readers or not group.fast_path:
            return None
        backlog, partition = group.backlogs[0], group.topic.partitions[0]
        cursor = backlog.cursor
        if cursor >= partition.visible or self.stopping:
            return None
        ready = backlog.ready
        if ready.places or ready.overdue.ranks or backlog.ahead:  # not `in_order`, without a call
            return None
        chunk = group.chunks[0]
        at = cursor - chunk.first
        if not 0 <= at < len(chunk.bodies):
            found = self._dispatch.at_hand(group, 0, partition, cursor)
            if found is None:
                return None
            chunk, at = found, cursor - found.first
        if not chunk.plain and chunk.timed:
            return None
        match = group.match
        if match is not None and not match(chunk.tag_of(at)):
            return None
        if not group.lease:
            backlog.cursor = cursor + 1
        elif not self._dispatch.lease_next(group, session, wants, chunk):
            return None
        if not backlog.dirty:
            self._tick.change(partition, group)
        return chunk, at

    def register(self, session: Session, group: Group) -> BrokerError | None:
        """The session reads this group from now on; an error if another has it for itself."""
        if session.closed:  # nothing would ever remove it again
            return BrokerError(Refusal.STOPPING, "the connection is closed")
        if group.exclusive and group.readers and session not in group.readers:
            return group_taken(group.name)
        if session not in group.readers:
            self.changes.note(self.now_ms)
            if group.options.unclaimed:
                claim(self._tick, group)
        group.readers[session] = None
        group.had_reader = True
        if session.groups is None:
            session.groups = {}
        session.groups[group] = None
        return None

    def follow(
        self,
        follower: Subscriber,
        form: Encoder,
        partitions: list[Partition],
        filter: str = "",
        position: list[int] | None = None,
        since_ms: int | None = None,
    ) -> None:
        """Tell a session all messages of partitions of a topic (`zbus.core.fanout.follow`), until
        it leaves or there is a reason to end it."""
        if self.stopping:
            follower.settle(ENDED_STOPPING)
        else:
            self._runs.following.follow(follower, form, partitions, filter, position, since_ms)

    def take_gap(self, group: Group, partition: Partition) -> tuple[int, int] | None:
        """Messages that the log dropped before the group had finished them, if it was not told of
        them yet: the offset where it was, and the one where it goes on."""
        backlog = group.backlogs[partition.index]
        if not backlog.unreported:
            return None
        before = backlog.reached() - backlog.unreported
        backlog.unreported = 0
        self._tick.change(partition, group)
        return max(0, before), backlog.floor()

    # -- what the process around the broker asks and decides --------------------------------

    def refusing(self) -> BrokerError | None:
        """Why puts into topics on disk are refused, if they are: all of them, or those for which
        the disk itself has no room."""
        return self._puts.refusing or self._tick.full

    def refuse_puts(
        self, error: BrokerError | None, in_memory: BrokerError | None = None, room: bool = False
    ) -> None:
        """As `Puts.refuse`. `room`: a disk that had none has more now."""
        self._puts.refuse(error, in_memory)
        if room:
            self._tick.full = None

    def memory_use(self) -> MemoryUse:
        memory = self._memory
        return MemoryUse(
            self._dispatch.pulls.count,
            len(self._calls),
            memory.recent_bytes,
            memory.replayed_bytes,
            self._storage.memory_bytes,
        )

    def free_memory(self) -> None:
        """Drop cached messages; they are read from storage when they are needed."""
        self._memory.give_way()

    def free_scattered(self, freed_bytes: int) -> None:
        """Others have freed so much. Cached messages that lie in between keep it from going back to
        the system: drop them if they take less."""
        self._memory.give_all(freed_bytes)

    def has_unwritten(self) -> bool:
        """Changes wait to be written or synced."""
        return bool(self._tick.touched or self._tick.making.topics or self._tick.open_commits)

    def partitions_removed(self) -> int:
        """Since the start: a topic and its partitions refer to each other, so they are garbage."""
        return self._removed

    def drop_sessions_by(self, drop: Callable[[Session], object]) -> None:
        """How a session that a bug has broken is dropped: by closing its connection."""
        self._fencing.drop = drop

    def check(self) -> None:
        """Assert the invariants of everything."""
        self._standbys.check()
        check_topics(self.topics.values(), self._dispatch.pulls)
