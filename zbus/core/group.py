"""An independent reader of a topic: options, a backlog per partition, and the pulls that wait."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from zbus.core.backlog import Backlog
from zbus.core.chunk import Chunk
from zbus.core.filters import compile_filter
from zbus.core.outcomes import EmptyReason
from zbus.core.session import Session
from zbus.core.state import GroupOptions, Origin
from zbus.core.ticket import Ticket

if TYPE_CHECKING:
    from zbus.core.topic import Topic


ENDLESS = 1 << 62
"""Credit that nobody uses up."""


class Wants:
    """What all pulls of one kind ask for; made once, by whoever makes them."""

    __slots__ = (
        "bytes_max",
        "count_max",
        "credit",
        "many",
        "partition",
        "replaces",
        "window",
    )

    def __init__(
        self,
        count_max: int = 1,
        partition: int | None = None,
        credit: int = 1,
        replaces: bool = False,
        bytes_max: int = 128 << 10,
        window: int = 0,
    ) -> None:
        self.count_max = count_max  # messages in one answer; waits for the first only
        # Of bodies and headers in one answer; the first message always fits. A long answer is a
        # long turn, which all others wait for.
        self.bytes_max = bytes_max
        self.partition = partition  # None = all in turn
        self.credit = credit  # answers that may be sent before another pull is needed
        self.replaces = replaces  # takes the place of the session's waiting pull in this group
        self.window = window  # messages that it may have leased at once; 0 = as the group may
        self.many = count_max > 1 or credit > 1


ONE = Wants()


class Pull(Ticket):
    """A request for messages that may have to wait; ends with Delivered or Empty. `session` is who
    asks."""

    __slots__ = (
        "credit",
        "deadline_ms",
        "group",
        "handed",
        "key",
        "postponed",
        "session",
        "skipped",
        "wants",
    )

    handed: set[tuple[int, int]] | None
    group: Group  # where it waits
    deadline_ms: int  # of one that does not wait for ever

    def __init__(self, session: Session, wants: Wants = ONE) -> None:
        self.open = True
        self.session = session
        self.wants = wants
        self.credit = wants.credit  # answers that are left
        self.handed = None  # with a window: partition and offset of those it may have leased
        # Its key among those that wait. A session's second one in a group is its own key.
        self.key: Session | Pull = session
        self.postponed = False  # its end was put off once, because a search was under way
        self.skipped = False  # the filter dropped something while this one waited

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
    """See the module. `waiting` is first come, first served."""

    __slots__ = (
        "active",
        "backlogs",
        "chunks",
        "exclusive",
        "had_reader",
        "incarnation",
        "lease",
        "match",
        "name",
        "options",
        "origin",
        "paused",
        "readers",
        "temporary",
        "topic",
        "turn",
        "untold",
        "updated_ms",
        "usual",
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
        # See `zbus.core.deciding`. A topic with one partition needs neither.
        self.incarnation = 0
        self.origin: Origin | None = None
        self.waiting: OrderedDict[Session | Pull, Pull] = OrderedDict()
        self.readers: dict[Session, None] = {}  # registered from their first pull to their leaving
        self.had_reader = False
        self.chunks = [NO_CHUNK] * len(topic.partitions)  # where each partition was read last
        self.turn = 0  # the partition to look at first
        self.active = False  # the broker's mark: will be served in this tick
        self.untold = False  # some backlog has skipped messages that the group is to be told of
        self.updated_ms = options.created_ms
        self.configure(options)

    def configure(self, options: GroupOptions) -> None:
        """Take over options; what they leave open, the topic decides."""
        self.options = options
        self.match = compile_filter(options.filter)
        inherited = self.topic.options
        self.lease = _either(options.lease, inherited.lease)
        self.exclusive = _either(options.exclusive, inherited.exclusive)
        self.temporary = _either(options.temporary, inherited.temporary)
        self.paused = _either(options.paused, inherited.paused)
        # It does nothing but read one log.
        usual = len(self.backlogs) == 1 and self.match is None and not self.lease
        self.usual = usual and not self.paused

    # Counted over all partitions.

    def leased_count(self) -> int:
        return sum(len(backlog.leased) for backlog in self.backlogs)

    def delayed_count(self) -> int:
        return sum(len(backlog.delayed) for backlog in self.backlogs)

    def ready_count(self) -> int:
        """Messages still to be handed out, whatever the filter will say."""
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
        if pull.skipped:
            return EmptyReason.FILTERED
        if self.leased_count():
            return EmptyReason.LEASED
        return EmptyReason.DRAINED

    def position(self) -> list[int]:
        return [backlog.cursor for backlog in self.backlogs]


def _either(own: bool | None, inherited: bool) -> bool:
    return inherited if own is None else own
