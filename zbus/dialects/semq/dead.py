"""Messages that are not delivered any more: they expired, were given up by a client, or are larger
than their node takes.

They are put by in the topic `semq.dead`, where the operator finds them and from where he may
consume them like any others. A message of stream 3 must not leave a gap, or what is ordered behind
it waits for ever: so a row with its number and nothing else is stored then, a void message. When
all that is durable their own row is finished. Whatever fails, the row is found late again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from zbus.core.api import (
    PUT_FORWARDED,
    Broker,
    BrokerError,
    Changed,
    Chunk,
    GroupOptions,
    GroupWish,
    Opening,
    Outcome,
    Silent,
    Ticket,
    Topic,
    TopicOptions,
)
from zbus.dialects.semq.frames import lines_of
from zbus.dialects.semq.mailboxes import (
    GROUP,
    MARK,
    PREFIX,
    Mailbox,
    Mailboxes,
    encode_id,
    void_id,
)
from zbus.dialects.semq.rows import Row, number_of, read_row

TOPIC: Final = f"{PREFIX}dead"

_GROUP: Final = GroupOptions(lease=True, lease_ms=60_000)
_VOID: Final = b"\r\nvoid: 1\r\n"
_OF_BODIES: Final = ("expires", "encrypt", "session_key", "content-type")
"""What a void message does not have."""

EXPIRED: Final = "expired"
GIVEN_UP: Final = "given up"
TOO_LARGE: Final = "too large"

_TOPIC: Final = TopicOptions(TOPIC, dedupe_live=True, retention_done=True)


class DeadRows:
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
        """Dead letters that were not consumed yet."""
        topic = self.topic()
        group = None if topic is None else topic.group(GROUP)
        return 0 if group is None else group.ready_count() + group.leased_count()

    def bury(
        self,
        mailbox: Mailbox,
        chunk: Chunk,
        at: int,
        reason: str = EXPIRED,
        waiting_ticket: Ticket | None = None,
    ) -> None:
        """Put a row by. If that cannot be done now it stays where it is, and is found late again.
        `waiting_ticket` settles with Changed when it is done."""
        row, lines = read_row(mailbox, chunk, at), chunk.headers[at]
        key = mailbox.topic.name, row.offset
        waiting_ticket = waiting_ticket or Silent()
        if key in self._open:
            waiting_ticket.settle(Changed(0))
            return
        self._open.add(key)
        copied_lines = lines.removeprefix(MARK) + b"dead_reason: %b\r\n" % reason.encode()
        id = encode_id(f"{mailbox.node}/{row.mid}")  # no other dialect can make it
        row_copy = id.encode(), copied_lines, chunk.bodies[at]
        copied = _Step(self, _Buried(mailbox, row, key, waiting_ticket), self.copied)
        topic = self._made()
        if isinstance(topic, BrokerError):
            copied.settle(topic)
        else:
            self._broker.put(topic.partitions[0], copied, row_copy, PUT_FORWARDED)

    def copied(self, buried: _Buried) -> None:
        """It is put by, durably: now to its number."""
        row, mailbox = buried.row, self._left(buried)
        if mailbox is None:
            return
        if not row.contiguous:
            self.replaced(buried)
            return
        fields = {name: row.fields[name] for name in row.fields if name not in _OF_BODIES}
        lines = MARK + lines_of({**fields, "void": "1"})
        refused = mailbox.partition.fenced or self._broker.put_refusal(mailbox.topic.options)
        ticket = _Step(self, buried, self.replaced)
        if refused is None:
            self._mailboxes.put(mailbox, ticket, void_id(row.mid), lines, b"")
        else:
            ticket.settle(refused)

    def replaced(self, buried: _Buried) -> None:
        """It is stored elsewhere now: its row goes."""
        mailbox = self._left(buried)
        if mailbox is None:
            return
        self._open.discard(buried.key)
        self.count += 1
        offsets = [range(buried.row.offset, buried.row.offset + 1)]
        groups = [mailbox.group]
        self._broker.delete(buried.waiting_ticket, groups, mailbox.partition, offsets)

    def _left(self, buried: _Buried) -> Mailbox | None:
        """The mailbox, if the row is in it still: it may have been confirmed meanwhile."""
        mailbox, row = self._mailboxes.find(buried.mailbox.node), buried.row
        same = mailbox is not None and mailbox.partition is buried.mailbox.partition
        if mailbox is None or not same or not mailbox.is_open(row.offset):
            self._open.discard(buried.key)
            buried.waiting_ticket.settle(Changed(0))
            return None
        return mailbox

    def failed(self, buried: _Buried, problem: BrokerError) -> None:
        self._open.discard(buried.key)
        buried.waiting_ticket.settle(problem)

    def _made(self) -> Topic | BrokerError:
        """The topic they are put into."""
        topic = self.topic()
        if topic is not None and topic.group(GROUP) is not None:
            return topic
        asked = Opening()
        options = _TOPIC if topic is None else topic.options
        self._broker.declare(asked, TOPIC, lambda now: (options, GroupWish(GROUP, _GROUP)))
        topic = self.topic()
        if asked.problem is not None:
            return asked.problem
        assert topic is not None
        return topic


class _Buried(NamedTuple):
    """A row under way."""

    mailbox: Mailbox
    row: Row
    key: tuple[str, int]
    waiting_ticket: Ticket


class _Step(Ticket):
    """Something is stored, and what comes after that."""

    __slots__ = ("_buried", "_dead", "_next")

    def __init__(self, dead: DeadRows, buried: _Buried, next: Callable[[_Buried], None]) -> None:
        super().__init__()
        self._dead = dead
        self._buried = buried
        self._next = next

    def answer(self, outcome: Outcome) -> None:
        if isinstance(outcome, BrokerError):
            self._dead.failed(self._buried, outcome)
        else:
            self._next(self._buried)
