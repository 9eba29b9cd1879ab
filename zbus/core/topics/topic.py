"""What the broker holds: topics with their partitions, the groups that read them, and the sessions
whose pulls wait there. They name each other, so they stand together. Other modules decide
what happens to them.

Tests: `tests/core/test_broker.py`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any, TypeAlias
from zlib import crc32

from zbus.core.cursor.backlog import Backlog
from zbus.core.cursor.state import GroupOptions, Origin, TopicOptions
from zbus.core.dedup.active_ids import TAKEN, ActiveIds
from zbus.core.dedup.window import DedupWindow
from zbus.core.log import Found, Log, Size
from zbus.core.model.chunk import Chunk
from zbus.core.model.containment import Containment
from zbus.core.model.errors import BrokerError, Outcome
from zbus.core.model.filters import compile_filter
from zbus.core.model.lateness import Lateness
from zbus.core.model.message_state import MessageState
from zbus.core.model.pull_options import ONE, EmptyReason, PullOptions
from zbus.core.model.rate_limit import RateLimit, TokenBucket
from zbus.core.model.schema import Check, check_of
from zbus.core.model.subscriber import Subscribers
from zbus.core.model.ticket import Ticket
from zbus.core.model.webhook import PushState
from zbus.core.timing.delays import Delays
from zbus.core.topics.calls import Call, Routed
from zbus.core.topics.newest import NewestOffsets
from zbus.core.topics.open_completions import OpenCompletions
from zbus.core.topics.parked_pulls import Line, ParkedPulls
from zbus.core.topics.stored import StoredLog
from zbus.core.topics.views import Progress


class Session:
    """A peer: what it reads, and how to push to it what it did not ask for. It lives as long as its
    connection. An idle one holds next to nothing: there are thousands."""

    __slots__ = (
        "address",
        "closed",
        "faults",
        "follower",
        "groups",
        "held",
        "id",
        "leaving",
        "left",
        "multiplexed",
        "pulls",
        "stalled",
        "taken",
    )

    def __init__(self, id: bytes, address: str) -> None:
        self.id = id
        self.address = address  # ip:port of the peer, for people
        self.groups: dict[Group, None] | None = None  # where it is registered as a reader
        # Those that wait behind another of the same group.
        self.pulls: dict[Group, dict[Pull, None]] | None = None
        self.held: dict[Group, None] | None = None  # that want its leases back when it goes
        self.taken: dict[Call, None] | None = None  # calls that it is to answer
        self.multiplexed = False  # speaks the protocol whose replies are known by id
        self.follower: Ticket | None = (
            None  # it gets all messages of a topic (`zbus.core.fanout.subscribers`)
        )
        self.left: tuple[Callable[[Any], None], ...] = ()  # called with the session when it leaves
        self.stalled = False  # does not take what it was sent: it is given no more messages
        self.leaving = False  # it is gone, or on its way: it is given no more messages either
        self.closed = False  # nothing reaches it any more, not even an answer
        self.faults: Containment | None = None  # of the broker that it has joined

    @property
    def holds(self) -> bool:
        """It is registered, holds or follows something, or may be sent what it did not ask for."""
        read = self.groups or self.pulls or self.held or self.taken
        return bool(read or self.follower is not None or self.multiplexed)

    def push(self, routed: Routed) -> bool:
        """Send a routed message to the peer; False if that cannot be done."""
        raise NotImplementedError

    def when_left(self, call: Callable[[Any], None]) -> None:
        """Call this when the session leaves; twice is once. A session that sends no more leaves
        before it is closed: what is registered after that is called when it is closed."""
        if call not in self.left:
            self.left += (call,)

    def quarantine(self, error: Exception) -> None:
        """A mistake of the program came to light while this session was answered."""
        if self.faults is None:
            raise error
        self.faults.quarantine(self, error)


class Pull(Ticket):
    """A request for messages that may have to wait; ends with Delivered or Empty."""

    __slots__ = (
        "credit",
        "deadline_ms",
        "group",
        "handed",
        "key",
        "postponed",
        "session",
        "skipped",
        "unwritten",
        "wants",
    )

    handed: set[tuple[int, int]] | None
    group: Group  # where it waits
    deadline_ms: int  # of one that does not wait for ever
    unwritten: (
        object  # the last of what it is told later, if there was any (`zbus.core.delivery.durable`)
    )

    def __init__(self, session: Session, wants: PullOptions = ONE) -> None:
        self.open = True
        self.session = session
        self.wants = wants
        self.credit = wants.credit  # answers that are left
        self.handed = None  # with a window: partition and offset of those it may have leased
        # Its key among those that wait. A session's second one in a group is its own key.
        self.key: Session | Pull = session
        self.postponed = False  # its end was put off once, because a search was under way
        self.skipped = False  # the filter dropped something while this one waited

    def receive(self, delivered: Outcome) -> None:
        """It was given messages. Its credit says whether there may be more."""
        if self.credit <= 0:
            return self.settle(delivered)
        try:
            self.answer(delivered)
        except Exception as error:
            self.failed(error)

    def failed(self, error: Exception) -> None:
        self.session.quarantine(error)

    def full(self, group: Group) -> bool:
        """It holds as many messages as it may."""
        handed, window = self.handed, self.wants.window
        if handed is None or len(handed) < window:
            return False
        backlogs = group.backlogs
        self.handed = {(i, offset) for i, offset in handed if offset in backlogs[i].leased}
        return len(self.handed) >= window


NO_CHUNK = Chunk()
"""Of a group that has read nothing of a partition."""


class Group:
    """An independent reader of a topic: options, a backlog per partition, and the pulls that wait,
    first come, first served."""

    __slots__ = (
        "active",
        "aside",
        "backlogs",
        "chunks",
        "crossed",
        "exclusive",
        "fast_path",
        "had_reader",
        "incarnation",
        "lease",
        "limits",
        "match",
        "moved",
        "name",
        "options",
        "ordered",
        "origin",
        "paused",
        "pushed",
        "rate",
        "readers",
        "recorded",
        "temporary",
        "topic",
        "turn",
        "unreported",
        "updated_ms",
        "waiting",
    )

    def __init__(
        self,
        topic: Topic,
        name: str,
        options: GroupOptions,
        backlogs: list[Backlog] | None = None,
    ) -> None:
        """`backlogs` are those of a former run, one of each partition."""
        self.topic = topic
        self.name = name
        self.backlogs = [Backlog() for _ in topic.partitions] if backlogs is None else backlogs
        # See `zbus.core.commit.topic_changes`. A topic with one partition needs neither.
        self.incarnation = 0
        self.origin: Origin | None = None
        self.waiting: Line[Pull] = OrderedDict()
        self.aside: ParkedPulls[Pull] | None = (
            None  # those that need not be looked at now; never empty
        )
        self.readers: dict[Session, None] = {}  # registered from their first pull to their leaving
        self.had_reader = False
        self.chunks = [NO_CHUNK] * len(topic.partitions)  # where each partition was read last
        self.turn = 0  # the partition to look at first
        self.active = False  # the broker's mark: will be served in this tick
        self.unreported = False  # some backlog has lost messages that the next delivery reports
        self.updated_ms = options.created_ms
        self.rate: TokenBucket | None = None  # what is left of its messages a second
        self.pushed: PushState | None = None  # of a webhook, since the start
        self.moved: dict[int, int] | None = None  # gets the times of delayed messages
        # Of a topic that has grown (`zbus.core.topics.growth`), when it was served last.
        self.limits: list[int] = []
        self.configure(options)

    def configure(self, options: GroupOptions) -> None:
        """Take over options; what they leave open, the topic decides."""
        self.options = options
        self.crossed = 0  # lines of the topic that it need not look at any more
        self.match = compile_filter(options.filter)
        inherited = self.topic.options
        self.lease = _either(options.lease, inherited.lease)
        self.exclusive = _either(options.exclusive, inherited.exclusive)
        self.temporary = _either(options.temporary, inherited.temporary)
        self.paused = _either(options.paused, inherited.paused)
        if options.rate_per_s != (self.rate.per_s if self.rate else 0):
            self.rate = TokenBucket(options.rate_per_s) if options.rate_per_s else None
        kept = inherited.settled_ms > 0
        self.ordered = bool(options.order) and self.lease  # see `zbus.core.cursor.key_order`
        counts = self.lease and (options.attempts_kept or options.attempts_max > 0)
        # See `zbus.core.delivery.durable`.
        self.recorded = counts and inherited.durability != "memory"
        for backlog in self.backlogs:
            backlog.keep_fates(kept)
            backlog.order_by(options.order if self.ordered else "")
        # It does nothing but read one log, and deliver one message at a time, perhaps leased.
        special = self.paused or self.rate is not None or len(self.backlogs) > 1
        leases = self.recorded or options.one_batch or options.on_loss != "keep"
        self.fast_path = not (special or (leases if self.lease else kept))

    @property
    def gone(self) -> bool:
        """It was removed; there may be another of its name."""
        return self.topic.groups.get(self.name.lower()) is not self

    # Pulls that wait here.

    def pull_of(self, session: Session) -> Pull | None:
        """The session's first one."""
        found: Pull | None = self.waiting.get(session)
        return self.aside.get(session) if found is None and self.aside is not None else found

    def pulls(self) -> Iterator[Pull]:
        """All of them."""
        return chain(self.waiting.values(), self.aside.pulls() if self.aside is not None else ())

    def forget_pull(self, pull: Pull) -> bool:
        """It does not wait any more; whether it did."""
        if self.waiting.get(pull.key) is pull:
            del self.waiting[pull.key]
            return True
        if self.aside is None or not self.aside.discard(pull):
            return False
        self.aside = self.aside or None
        return True

    def park(self, pull: Pull) -> ParkedPulls[Pull]:
        """Take it out of its line, to be put into another one of these."""
        self.forget_pull(pull)
        if self.aside is None:
            self.aside = ParkedPulls()
        return self.aside

    def put_back(self, pulls: list[Pull]) -> None:
        """They were set aside, and are to be looked at, before those that were not yet."""
        for pull in reversed(pulls):
            self.waiting[pull.key] = pull
            self.waiting.move_to_end(pull.key, last=False)
        self.aside = self.aside or None

    # Counted over all partitions.

    def progress(self, index: int) -> Progress:
        """How far it is in that partition; for those who only look."""
        return self.backlogs[index]

    def take_lateness(self) -> list[Lateness]:
        """How late messages were, by partition, since this was asked for last."""
        found = [backlog.tally for backlog in self.backlogs]
        for backlog, tally in zip(self.backlogs, found, strict=True):
            backlog.tally = Lateness(late=tally.late)
        return found

    def dead_count(self) -> int:
        """Messages that were given up, ever."""
        return sum([backlog.dead for backlog in self.backlogs])

    def leased_count(self) -> int:
        if len(self.backlogs) == 1:  # it is asked for with every lease
            return len(self.backlogs[0].leased.dues)
        return sum([len(backlog.leased.dues) for backlog in self.backlogs])

    def delayed_count(self) -> int:
        return sum(len(backlog.delayed) for backlog in self.backlogs)

    def ready_count(self) -> int:
        """Messages still to be delivered, whatever the filter will say."""
        pairs = zip(self.backlogs, self.topic.partitions, strict=True)
        return sum(backlog.ready_count(partition.end) for backlog, partition in pairs)

    def counts(self) -> tuple[int, int, int, int]:
        """Ready, leased, delayed and skipped, in one go."""
        ready = leased = delayed = skipped = 0
        for backlog, partition in zip(self.backlogs, self.topic.partitions, strict=True):
            ready += backlog.ready_count(partition.end)
            leased += len(backlog.leased)
            delayed += len(backlog.delayed)
            skipped += backlog.skipped
        return ready, leased, delayed, skipped

    def skipped_count(self) -> int:
        """Messages that the log forgot before this group had finished them, ever."""
        return sum(backlog.skipped for backlog in self.backlogs)

    def window_full(self) -> bool:
        return self.lease and self.leased_count() >= self.options.window

    def empty_reason(self, pull: Pull) -> EmptyReason:
        """Why there is nothing for this pull now."""
        if self.paused:
            return EmptyReason.PAUSED
        if self.window_full():
            return EmptyReason.LEASED
        if self.delayed_count():
            return EmptyReason.DELAYED
        if self.rate is not None and self.rate.left() <= 0:
            return EmptyReason.THROTTLED
        if pull.skipped:
            return EmptyReason.FILTERED
        if self.leased_count():
            return EmptyReason.LEASED
        return EmptyReason.DRAINED

    def position(self) -> list[int]:
        return [backlog.cursor for backlog in self.backlogs]


def _either(own: bool | None, inherited: bool) -> bool:
    return inherited if own is None else own


class Departed:
    """A group as it was before a decision that may still be lost."""

    __slots__ = ("backlogs", "incarnation", "name")

    def __init__(self, group: Group) -> None:
        self.name = group.name
        self.incarnation = group.incarnation
        self.backlogs = list(group.backlogs)


class Partition:
    """One append-only log. first <= visible <= end; offsets below `visible` are durable at the
    topic's level and may be delivered; those from `staged_from` on wait for this tick's write."""

    __slots__ = (
        "changed",
        "completions",
        "confirms",
        "end",
        "epoch",
        "expiries",
        "fenced",
        "first",
        "ids",
        "index",
        "lane",
        "last",
        "log",
        "newest",
        "options_changed",
        "originals",
        "purged_to",
        "purges",
        "puts",
        "recovered",
        "removed",
        "removed_groups",
        "staged",
        "stored",
        "topic",
        "topic_changed",
        "touched",
        "visible",
    )

    def __init__(self, topic: Topic, index: int, first: int = 0, end: int = 0) -> None:
        self.topic = topic
        self.index = index
        self.lane = (topic.name, index)
        self.log: Log  # set by the owner of the memory for it
        self.touched = False  # it is to be written in this tick
        self.removed = False  # its topic is gone, and its lane may be another's by now
        self.fenced: BrokerError | None = (
            None  # nothing of it is served, see `zbus.core.upkeep.fencing`
        )
        self.epoch = 0  # how often it was fenced
        self.ids: ActiveIds | None = None  # that are in use, in a topic that looks at that
        self.reset(first, end)

    def reset(self, first: int = 0, end: int = 0) -> None:
        """Forget all but this; the rest has to be stored again."""
        self.first = first
        self.end = end
        self.visible = end
        self.recovered = 0  # what is below it was there when the broker read the log
        self.originals = DedupWindow()  # what must not be stored again
        self.keep_ids(None if self.ids is None else ActiveIds())
        self.expiries: Delays | None = None  # when messages expire, if some do
        self.completions: OpenCompletions | None = None  # of deliveries, by what was put here
        # This tick.
        self.staged: Chunk | None = None
        self.last: Ticket | None = None  # of what is staged: more may be put along with it
        self.puts: list[Ticket] = []  # settled with Stored
        self.confirms: list[tuple[Ticket, Outcome]] = []  # changes that a request waits for
        self.changed: list[Group] = []  # groups whose backlog here changed
        self.topic_changed = False
        self.options_changed: dict[Group, None] = {}
        self.removed_groups: list[str] = []
        self.purged_to = 0  # what is below it is to be dropped when that is durable
        # Of a topic with several: the last decided emptying and those on their way, by number, and
        # where this partition begins by it.
        self.purges: dict[int, int] = {}
        self.stored = StoredLog()
        self.newest: NewestOffsets | None = None  # of each key, in a compact topic

    @property
    def written(self) -> int:
        """The offset after the last message that is not only staged."""
        return self.end if self.staged is None else self.staged.first

    @property
    def bytes_put(self) -> int:
        """Of messages as they are stored, since the broker read or made its log."""
        return self.stored.message_bytes

    def fetch(self, offset: int, portion: Size, done: Callable[[Found], None]) -> None:
        """Read what is stored from an offset on; it may come late."""
        self.topic.fetch(self, offset, portion, done)

    def keep_ids(self, ids: ActiveIds | None) -> None:
        """These are in use; None: the topic does not look at ids."""
        self.ids = ids
        if ids is not None:
            ids.standing = self.standing

    def _claimed(self) -> list[Backlog]:
        """Of the groups that a client has named or read."""
        groups = self.topic.groups.values()
        return [group.backlogs[self.index] for group in groups if not group.options.unclaimed]

    def finished(self) -> int | None:
        """All claimed groups are done with what is before it; None = no group."""
        return min([backlog.floor() for backlog in self._claimed()], default=None)

    def standing(self, offset: int, now_ms: int) -> int:
        """See `Standing`. Where there are no groups, what is stored is not finished."""
        if offset < self.first:
            return 0
        backlogs = self._claimed()
        if not backlogs:
            return TAKEN
        ended_ms, kept_ms = 0, self.topic.options.settled_ms
        for backlog in backlogs:
            if backlog.life(offset) is not MessageState.DONE:
                return TAKEN
            if backlog.fates is not None:
                ending = backlog.fates.find(offset, now_ms, kept_ms)
                ended_ms = ended_ms if ending is None else max(ended_ms, ending.time_ms)
        return ended_ms

    def readers_at(self) -> list[int]:
        """The cursors of all groups that a consumer reads from, and the places of subscribers."""
        index = self.index
        places = [g.backlogs[index].cursor for g in self.topic.groups.values() if g.readers]
        followed = self.topic.followed
        return places if followed is None else places + followed.places(index)


Fetch: TypeAlias = "Callable[[Partition, int, Size, Callable[[Found], None]], None]"


class Topic:
    """A name, options, partitions, groups. Group names are compared without regard to case."""

    __slots__ = (
        "born",
        "check",
        "competing",
        "decided",
        "departing",
        "emptied",
        "emptying",
        "fetch",
        "followed",
        "groups",
        "has_put_hooks",
        "incarnation",
        "judges_puts",
        "minimal_headers",
        "name",
        "number",
        "options",
        "partitions",
        "quota",
        "retains",
        "turn",
        "updated_ms",
    )

    def __init__(self, options: TopicOptions) -> None:
        self.name = options.name
        self.partitions = [Partition(self, index) for index in range(options.partitions)]
        self.configure(options)
        self.groups: dict[str, Group] = {}  # by lower-case name
        self.fetch: Fetch  # by the part that has storage, `Storage.fetch`
        self.followed: Subscribers | None = None
        self.turn = 0  # the partition that takes messages without a key in this tick
        self.quota: RateLimit | None = None  # what it takes a second (`zbus.core.verbs.puts`)
        self.updated_ms = options.created_ms
        # Of a topic with several partitions, see `zbus.core.commit.topic_changes`.
        self.incarnation = ""
        self.number = 0  # the last one given to a decision
        self.decided = 0  # the last one of which that is durable
        self.departing: list[Departed] = []
        self.emptied: tuple[int, ...] = ()  # the last decision to empty it: number, then offsets
        self.emptying = 0  # such decisions that are not durable yet
        self.born = False  # a client was told of it, or it was recovered: it must not go again

    def configure(self, options: TopicOptions) -> None:
        """Take over options."""
        self.options = options
        for partition in self.partitions:
            partition.last = None
            if options.dedupe_live is not (partition.ids is not None):
                partition.keep_ids(ActiveIds() if options.dedupe_live else None)
        self.check: Check | None = check_of(options.schema)  # of what clients put
        self.judges_puts = self.check is not None or options.compact  # not all are stored
        # A put is not just stored.
        self.has_put_hooks = options.calls or options.remembers_ids or self.judges_puts
        # A service may need to know who asks.
        self.minimal_headers = options.minimal_headers and not options.calls
        self.retains = options.retains
        self.competing = options.competing

    @property
    def undecided(self) -> bool:
        """Partition 0 has not said yet, durably, all that was decided."""
        return self.decided < self.number

    def group(self, name: str) -> Group | None:
        """The group of that name; a competing topic has one queue, whatever name is asked for."""
        if self.competing:
            return next(iter(self.groups.values()), None)
        return self.groups.get(name.lower())

    def partition_for(self, key: bytes) -> Partition:
        """Same key, same partition; no key, whichever has its turn."""
        if len(self.partitions) == 1:
            return self.partitions[0]
        if key:
            return self.partitions[crc32(key) % len(self.partitions)]
        partition = self.partitions[self.turn % len(self.partitions)]
        return partition if partition.fenced is None else self._serving(partition)

    def _serving(self, partition: Partition) -> Partition:
        """Another that is not fenced, if there is one."""
        return next((one for one in self.partitions if one.fenced is None), partition)

    def depth(self) -> int:
        """Messages ever put."""
        return sum([partition.end for partition in self.partitions])

    def readers(self) -> int:
        return sum(len(group.readers) for group in self.groups.values())
