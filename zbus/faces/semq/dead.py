"""Messages that are not delivered any more, because their time is over or somebody gave them up.

They are put by in the topic `semq.dead`, where the operator finds them and from where he may
consume them like any others, and when that is durable their row is finished. A message of stream 3
must not leave a gap, or what is ordered behind it waits for ever: so in the same write its row
gives way to one with its number and nothing else, a void message.
"""

from __future__ import annotations

from typing import Final

from zbus.core import single
from zbus.core.broker import Broker
from zbus.core.chunk import Chunk
from zbus.core.declare import GroupWish
from zbus.core.errors import BrokerError, Outcome
from zbus.core.outcomes import Changed
from zbus.core.state import GroupOptions, TopicOptions
from zbus.core.ticket import Silent, Ticket
from zbus.core.topic import Topic
from zbus.faces.semq.frames import lines_of
from zbus.faces.semq.mailboxes import GROUP, MARK, PREFIX, Asked, Mailbox, Mailboxes
from zbus.faces.semq.rows import Row, number_of, read_row

TOPIC: Final = f"{PREFIX}dead"

_GROUP: Final = GroupOptions(lease=True, lease_ms=60_000)
_VOID: Final = b"\r\nvoid: 1\r\n"
_OF_BODIES: Final = ("expires", "encrypt", "session_key", "content-type")
"""What a void message does not have."""

EXPIRED: Final = "expired"
GIVEN_UP: Final = "given up"

_TOPIC: Final = TopicOptions(TOPIC, dedupe_live=True, retention_done=True)


class DeadRows:
    """See the module."""

    def __init__(self, broker: Broker, mailboxes: Mailboxes) -> None:
        self._broker = broker
        self._mailboxes = mailboxes
        self._open: set[tuple[str, int]] = set()  # rows under way: of which topic, at which offset
        self.count = 0  # that were put by, since the start

    def is_late(self, lines: bytes) -> bool:
        """A row with these lines is not delivered any more."""
        if not lines.startswith(MARK) or b"\r\nexpires: " not in lines or _VOID in lines:
            return False
        return 0 < number_of(lines, b"expires") <= self._broker.now_ms

    def topic(self) -> Topic | None:
        return self._broker.topic(TOPIC)

    def waiting(self) -> int:
        """Messages that were put by and that nobody has consumed."""
        topic = self.topic()
        group = None if topic is None else topic.group(GROUP)
        return 0 if group is None else group.ready_count() + group.leased_count()

    def bury(
        self,
        mailbox: Mailbox,
        chunk: Chunk,
        at: int,
        reason: str = EXPIRED,
        told: Ticket | None = None,
    ) -> None:
        """Put a row by. If that cannot be done now it stays where it is, and is found late again.
        `told` settles with Changed when it is done."""
        row, lines = read_row(mailbox, chunk, at), chunk.headers[at]
        key = mailbox.topic.name, row.offset
        told = told or Silent()
        if key in self._open:
            told.settle(Changed(0))
            return
        self._open.add(key)
        said = lines.removeprefix(MARK) + b"dead_reason: %b\r\n" % reason.encode()
        copy = Chunk()
        copy.add(f"{mailbox.node}/{row.mid}".encode(), said, chunk.bodies[at])
        copied = _Copied(self, mailbox.node, row, key, told)
        topic = self._made()
        if isinstance(topic, BrokerError):
            copied.settle(topic)
        else:
            self._broker.put_once(topic.partitions[0], copy, copied)

    def copied(self, node: str, row: Row, key: tuple[str, int], told: Ticket) -> None:
        """It is put by, durably: now its row goes."""
        self._open.discard(key)
        mailbox = self._mailboxes.find(node)
        if mailbox is None or mailbox.find(row.mid) != row.offset:
            told.settle(Changed(0))  # it was confirmed meanwhile
            return
        broker, partition = self._broker, mailbox.partition
        refused = partition.fenced or broker.puts.refusal(mailbox.topic.options)
        if refused is not None:
            told.settle(refused)
            return
        self.count += 1
        offsets = [range(row.offset, row.offset + 1)]
        single.delete(broker.dispatch, told, [mailbox.group], partition, offsets)
        if row.contiguous:
            fields = {name: row.fields[name] for name in row.fields if name not in _OF_BODIES}
            lines = MARK + lines_of({**fields, "void": "1"})
            self._mailboxes.put(mailbox, Silent(), str(row.mid), lines, b"")

    def failed(self, key: tuple[str, int], told: Ticket, problem: BrokerError) -> None:
        self._open.discard(key)
        told.settle(problem)

    def _made(self) -> Topic | BrokerError:
        """The topic they are put into."""
        topic = self.topic()
        if topic is not None and topic.group(GROUP) is not None:
            return topic
        asked = Asked()
        options = _TOPIC if topic is None else topic.options
        self._broker.declare(asked, TOPIC, lambda now: (options, GroupWish(GROUP, _GROUP)))
        topic = self.topic()
        if asked.problem is not None:
            return asked.problem
        assert topic is not None
        return topic


class _Copied(Ticket):
    """The copy of a row."""

    __slots__ = ("_dead", "_key", "_node", "_row", "_told")

    def __init__(
        self, dead: DeadRows, node: str, row: Row, key: tuple[str, int], told: Ticket
    ) -> None:
        super().__init__()
        self._dead = dead
        self._node = node
        self._row = row
        self._key = key
        self._told = told

    def answer(self, outcome: Outcome) -> None:
        if isinstance(outcome, BrokerError):
            self._dead.failed(self._key, self._told, outcome)
        else:
            self._dead.copied(self._node, self._row, self._key, self._told)
