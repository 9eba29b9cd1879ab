"""Mailboxes: what is stored for a node is a topic, and how far it has come is a group of it.

    row of the store      a message of the topic `semq.<node>`, with its MID, encoded, as id
    SS_INIT               it is ready
    SS_SENT               it is leased, without end
    SS_ACK                it is acknowledged, and forgotten with its segment
    LK1                   1/1/<offset + 1>

So there is no second store: rows are in the log, states in its journal, and a start finds both.
A row of that MID is there as long as the topic says that the id is taken (`dedupe_live`). What
another dialect puts into the topic is a row as well: a message of the platform, numbered by its
place. An id that another dialect gives is never one of ours, or a client that may put there could
pass for a message that is stored already (`row_id`).
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from hashlib import blake2b
from typing import Final, NamedTuple

import attrs

from zbus.core.api import (
    DELAY_MS_MAX,
    PUT_FORWARDED,
    Broker,
    BrokerError,
    Group,
    GroupOptions,
    GroupWish,
    MessageState,
    Opening,
    Outcome,
    Partition,
    Refusal,
    Silent,
    Ticket,
    Topic,
    TopicOptions,
    id_name,
    topic_unknown,
)
from zbus.semq.protocol.words import PLATFORM, Mid, PlatformLocator, Store, Stream

PREFIX: Final = "semq."
GROUP: Final = "semq"
LEASE_MS: Final = DELAY_MS_MAX
"""For as long as there is: what becomes of a row is said by its node."""

MARK: Final = b"cmd: semq_send\r\n"
"""How the lines of a row begin that came as a message of SEMQ. No other dialect stores a field of
that name, so no client can put a row there that seems to be of another node."""

VOID: Final = "/void"
"""Behind a MID, the id of a void row. Both rows are there for a moment."""

_WINDOW: Final = (1 << 31) - 1
_GROUP: Final = GroupOptions(lease=True, lease_ms=LEASE_MS, window=_WINDOW)
_STORE: Final = Store(PLATFORM)


class Mailbox(NamedTuple):
    """Of a node, as it is in this turn."""

    node: str
    partition: Partition
    group: Group
    identity: str = ""  # of the data directory that the topic is in

    @property
    def topic(self) -> Topic:
        return self.partition.topic

    @property
    def epoch(self) -> str:
        """Of what the platform numbers itself. Another topic has another, and so has the same one
        in a directory that was restored: there the same offsets are those of other messages."""
        made = f"{self.topic.name} {self.topic.options.created_ms} {self.identity}"
        return blake2b(made.encode(), digest_size=8, person=b"semq epoch").hexdigest()

    def row_count(self) -> int:
        """Rows, whatever their state."""
        return self.group.ready_count() + self.group.leased_count() + self.group.delayed_count()

    def own_mid(self, offset: int) -> Mid:
        """Of a row that another dialect has put."""
        return Mid(_STORE, self.epoch, Stream.GAPS, offset + 1)

    def find(self, mid: Mid) -> int | None:
        """The offset of the row of this MID, or of the void one in its place, unless finished."""
        if mid.store.node == PLATFORM:
            own = mid == self.own_mid(mid.seq - 1)
            return mid.seq - 1 if own and self.is_open(mid.seq - 1) else None
        found = self._find_id(row_id(mid))
        return self._find_id(void_id(mid)) if found is None else found

    def id_of(self, mid: Mid) -> str:
        """What a row of this MID is stored under, if there is one."""
        id = void_id(mid)
        return row_id(mid) if self._find_id(id) is None else id

    def _find_id(self, id: str) -> int | None:
        ids = self.partition.ids
        offset = None if ids is None else ids.find(id_name(id.encode()))
        return offset if offset is not None and self.is_open(offset) else None

    def is_open(self, offset: int) -> bool:
        """There is a row at this offset, and it is not finished."""
        partition = self.partition
        inside = partition.first <= offset < partition.end
        return inside and self.group.progress(0).life(offset) is not MessageState.DONE

    def find_all(self, mid: Mid, ranges: Iterable[range]) -> Iterator[tuple[int, int | None]]:
        """Of each of these numbers, which are of the stream of this MID and with its node: its
        offset, likewise."""
        for numbers in ranges:
            for seq in numbers:
                yield seq, self.find(mid._replace(seq=seq))

    def is_durable(self, offset: int) -> bool:
        return offset < self.partition.visible

    def sent(self, but_to: Container[bytes] = ()) -> list[int]:
        """Rows in SS_SENT, in their order; but those that these sessions were sent."""
        leased = self.group.progress(0).leased
        holders, settling = leased.holders, leased.settling
        return sorted([o for o in leased if o not in settling and holders.get(o) not in but_to])

    def sent_ms(self, offset: int) -> int:
        """When one of them was sent."""
        return self.group.progress(0).leased.due_of(offset) - LEASE_MS


def row_id(mid: Mid) -> str:
    """The id of the row of a message: its MID, percent-encoded, which is longer than what zbus
    takes as an id, and cannot come from camellia, that encodes the `%` of what it is given."""
    return encode_id(str(mid))


def void_id(mid: Mid) -> str:
    """Of the row that takes the place of one that is not delivered any more."""
    return encode_id(f"{mid}{VOID}")


def encode_id(text: str) -> str:
    """Percent-encoded: nodes and numbers have nothing else that is."""
    return text.replace(":", "%3A").replace("/", "%2F")


def locator(offset: int) -> PlatformLocator:
    """LK1."""
    return PlatformLocator(1, 1, offset + 1)


def offset_of(lk1: PlatformLocator) -> int | None:
    """The offset that it is about; None = it is none of ours."""
    return lk1.record - 1 if (lk1.semq, lk1.db) == (1, 1) and lk1.record else None


class Mailboxes:
    """All of them. `nodes` have one from the start."""

    def __init__(self, broker: Broker, nodes: tuple[str, ...], identity: str = "") -> None:
        self._broker = broker
        self._nodes = nodes
        self._identity = identity

    def begin(self) -> None:
        """Make those that are to be there from the start; again, if that could not be done."""
        for node in self._nodes:
            if self.find(node) is None:
                self.make(Silent(), node)

    def is_missing(self, node: str) -> bool:
        """It is to have one, which could not be made so far, or was removed."""
        return node in self._nodes and self.find(node) is None

    def find(self, node: str) -> Mailbox | None:
        """The mailbox of a node, if it has one. Names of nodes are exact, those of topics are not:
        who has another's but for the case of its letters has none."""
        topic = self._broker.topics.get(f"{PREFIX}{node}".lower())
        if topic is None or topic.name[len(PREFIX) :] != node:
            return None
        if not _fits(topic):
            if _problem(topic) is not None:
                return None
            self.make(Silent(), node)
        group = topic.groups.get(GROUP)
        if group is None:
            return None
        return Mailbox(node, topic.partitions[0], group, self._identity)

    def make(self, ticket: Ticket, node: str) -> None:
        """See to it that a node has one; settles with Declared when that is durable."""
        name = f"{PREFIX}{node}"
        topic = self._broker.topic(name)
        if topic is not None and topic.name[len(PREFIX) :] != node:
            text = f"{node} differs from the node {topic.name[len(PREFIX) :]} in letters' case only"
            ticket.settle(BrokerError(Refusal.CONFLICT, text))
        elif topic is not None and (problem := _problem(topic)) is not None:
            ticket.settle(problem)
        else:
            self._broker.declare(ticket, name, lambda topic: _wished(name, topic))

    def all(self, after: str = "") -> list[Mailbox]:
        """Of all nodes behind that one, in order."""
        names = [topic.name for topic in self._broker.topics.values()]
        nodes = sorted([name[len(PREFIX) :] for name in names if name.startswith(PREFIX)])
        found = [self.find(node) for node in nodes if node > after and ":" in node]
        return [mailbox for mailbox in found if mailbox is not None]

    def holding(self, mid: Mid) -> list[Mailbox]:
        """Those in which there is, or was a moment ago, a row of this MID."""
        names = [id_name(id.encode()) for id in (row_id(mid), void_id(mid))]
        found = []
        for topic in self._broker.topics.values():
            ids = topic.partitions[0].ids if topic.name.startswith(PREFIX) else None
            if ids is not None and any(ids.find(name) is not None for name in names):
                found.append(self.find(topic.name[len(PREFIX) :]))
        return [mailbox for mailbox in found if mailbox is not None]

    def put(self, mailbox: Mailbox, ticket: Ticket, id: str, lines: bytes, body: bytes) -> None:
        """Store a row, unless there is one of that id: settles with Stored or Duplicate, when that
        is durable. It is checked against no schema: it may be encrypted, or void."""
        self._broker.put(mailbox.partition, ticket, (id.encode(), lines, body), PUT_FORWARDED)

    def acknowledge(self, mailbox: Mailbox, offsets: list[int]) -> None:
        """SS_ACK. If that is lost, the node is asked for them once more."""
        if offsets and mailbox.partition.fenced is None:
            ranges = [range(offset, offset + 1) for offset in offsets]
            self._broker.ack(_Unheard(), mailbox.group, mailbox.partition, ranges)

    def send_again(self, mailbox: Mailbox, offsets: list[int]) -> None:
        """SS_SENT -> SS_INIT, in their order before all others."""
        if offsets and mailbox.partition.fenced is None:
            ranges = [range(offset, offset + 1) for offset in sorted(offsets)]
            self._broker.nack(_Unheard(), mailbox.group, mailbox.partition, ranges)

    def postpone(self, mailbox: Mailbox, offset: int, due_ms: int) -> None:
        """SS_SENT -> SS_INIT, but it is not sent before that time."""
        if mailbox.partition.fenced is None:
            ranges = [range(offset, offset + 1)]
            self._broker.nack(_Unheard(), mailbox.group, mailbox.partition, ranges, due_ms=due_ms)

    def ensure(self, node: str) -> Mailbox | BrokerError:
        """The mailbox of a node, made if there is none. Whether that is durable is not known."""
        asked = Opening()
        if self.find(node) is None:
            self.make(asked, node)
        return asked.problem or self.find(node) or topic_unknown(f"{PREFIX}{node}")


class _Unheard(Silent):
    """No request waits for it, and a refusal changes nothing."""

    __slots__ = ()

    def answer(self, outcome: Outcome) -> None:
        pass


def _problem(topic: Topic) -> BrokerError | None:
    """Why a topic of that name cannot be a mailbox."""
    if len(topic.partitions) > 1 or topic.options.calls:
        why = "it has several partitions, or is a topic of services"
        text = f"{topic.name} cannot be a mailbox: {why}"
        return BrokerError(Refusal.CONFLICT, text)
    return None


def _fits(topic: Topic) -> bool:
    options, group = topic.options, topic.groups.get(GROUP)
    if group is None or not group.lease or group.options.lease_ms != LEASE_MS:
        return False
    return options.dedupe_live and len(topic.partitions) == 1 and not options.calls


def _wished(name: str, topic: Topic | None) -> tuple[TopicOptions, GroupWish]:
    options = TopicOptions(name) if topic is None else topic.options
    group = None if topic is None else topic.groups.get(GROUP)
    own = _GROUP
    if group is not None:
        own = attrs.evolve(
            group.options, lease=True, lease_ms=LEASE_MS, window=_WINDOW, unclaimed=False
        )
    options = attrs.evolve(
        options, competing=False, dedupe_live=True, retention_done=True, temporary=False
    )
    return options, GroupWish(GROUP, own)
