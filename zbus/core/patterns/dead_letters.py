"""Messages that are dead-lettered go to the dead-letter topic of their group, each of them once.

A message that is dead for its group stays leased, to no client, until it is stored there: with what
it was put with, and with lines that say where it comes from and why it is dead. To store it and to
finish it is one step, also across a crash (`zbus.core.patterns.completions`). Where that is not
possible now (the topic is gone, the disk is full, a partition is read again) it is tried again each
second, and nothing is lost meanwhile. Another process of the server may have the topic.

*Redriving* is the way back: messages of a dead-letter topic are put where they come from, without
those lines, and acknowledged there.
"""

from __future__ import annotations

import re
from functools import partial
from typing import Final, NamedTuple
from urllib.parse import quote, unquote

from zbus.core.cursor.leases import OpenLeases
from zbus.core.delivery.run_queue import RunQueue
from zbus.core.model.chunk import Chunk, make_row
from zbus.core.model.errors import BrokerError, Outcome, Refusal
from zbus.core.model.ticket import Silent
from zbus.core.patterns.completions import Completions, Source
from zbus.core.timing.timers import Timers
from zbus.core.topics.elsewhere import RemoteTopic, place_in
from zbus.core.topics.topic import Group, Topic

AGAIN_MS: Final = 1_000
"""How often it is tried to store a message that could not be stored."""

TOPIC: Final = b"dead_topic: "
_LINES: Final = tuple(
    b"dead_%b: " % name
    for name in (b"topic", b"group", b"partition", b"offset", b"attempts", b"reason")
)
"""How the lines begin that say of what a message died; other such names are a producer's."""

_PRINTABLE: Final = "".join(map(chr, range(0x21, 0x7F))).replace("%", "")
_ENCODED_MAX: Final = 300
_DIGITS_MAX: Final = 19
_TO_ENCODE: Final = re.compile("%(?=[0-9A-Fa-f]{2})")


class Dying(NamedTuple):
    """A message that is dead and not stored as that."""

    group: Group
    partition: int
    offset: int
    reason: str
    leased: OpenLeases

    @property
    def stale(self) -> bool:
        """Its partition was read again, or its group was moved, so the leases are others now. A
        completion may hold it that was found there: one whose put was not known to be stored."""
        return self.group.backlogs[self.partition].leased is not self.leased


class DeadLetters:
    """`topics` are the broker's, by lower-case name."""

    def __init__(
        self,
        topics: dict[str, Topic],
        runs: RunQueue,
        completions: Completions,
        timers: Timers,
    ) -> None:
        self._topics = topics
        self._tick = runs.tick
        self._completions = completions
        self._again = timers.timer(self._store, lambda dying: dying.group)
        # By group, partition and offset. A message may die twice, if its partition was read again
        # before it was stored: the last time counts.
        self._open: dict[tuple[Group, int, int], Dying] = {}
        runs.dead = self._begin

    def _begin(self, group: Group, partition: int, offset: int, reason: str) -> None:
        leased = group.backlogs[partition].leased
        dying = Dying(group, partition, offset, reason, leased)
        known = self._open.get(dying[:3])
        if known is not None:
            self._again.discard(known)
        self._open[dying[:3]] = dying
        self._store(dying)

    def end(self, dying: Dying) -> None:
        """It is stored, or need not be."""
        if self._open.get(dying[:3]) is dying:
            del self._open[dying[:3]]

    def _store(self, dying: Dying) -> None:
        group, index, offset, _, leased = dying
        partition = group.topic.partitions[index]
        gone = partition.removed or group.gone or dying.stale
        if gone or offset not in leased.settling:
            self.end(dying)  # it was acknowledged meanwhile
            return
        target = self._target(group)
        waits = isinstance(target, RemoteTopic) and self._completions.elsewhere.busy(target.name)
        if partition.fenced is None and target is not None and not waits:
            partition.log.get(offset, partial(self._found, dying))
        else:
            self.later(dying)

    def note(self, group: Group, outcome: Outcome) -> None:
        """What a put into its dead-letter topic came to."""
        self._completions.elsewhere.note(group.options.dead_letter, outcome)

    def later(self, dying: Dying) -> None:
        """It cannot be stored now."""
        if self._open.get(dying[:3]) is not dying:
            return
        if dying.stale or dying.offset not in dying.leased:
            self.end(dying)
        else:
            dying.leased.settle_later(dying.offset)
            self._again.set(dying, self._tick.now_ms + AGAIN_MS)

    def _target(self, group: Group) -> Topic | RemoteTopic | None:
        """The dead-letter topic, if there is one that takes messages."""
        topic = self._topics.get(group.options.dead_letter.lower())
        if topic is None:
            return self._completions.elsewhere.find(group.options.dead_letter)
        return None if topic.options.calls else topic

    def _found(self, dying: Dying, found: tuple[Chunk, int] | BrokerError) -> None:
        group, index, offset, _, leased = dying
        backlog, target = group.backlogs[index], self._target(group)
        if self._open.get(dying[:3]) is not dying:
            return
        if dying.stale or offset not in leased.settling:
            self.end(dying)
            return
        if isinstance(found, BrokerError) and found.refusal is Refusal.OFFSET_UNKNOWN:
            self.end(dying)
            backlog.give_up(offset)  # the log has forgotten it
            self._tick.change(group.topic.partitions[index], group)
            return
        if isinstance(found, BrokerError) or target is None:
            self.later(dying)
            return
        chunk = _with_lines(dying, *found, backlog.attempts.get(offset, 1))
        partition = place_in(target, chunk.key_of(0))
        source = Source(group, group.topic.partitions[index], [range(offset, offset + 1)], True)
        self._completions.put_leased(partition, _Stored(self, dying), chunk, [source])


class _Stored(Silent):
    """The end of storing one."""

    __slots__ = ("_dead_letters", "_dying")

    def __init__(self, dead_letters: DeadLetters, dying: Dying) -> None:
        super().__init__()
        self._dead_letters = dead_letters
        self._dying = dying

    def answer(self, outcome: Outcome) -> None:
        self._dead_letters.note(self._dying.group, outcome)
        if isinstance(outcome, BrokerError):
            self._dead_letters.later(self._dying)
        else:
            self._dead_letters.end(self._dying)


def _with_lines(dying: Dying, chunk: Chunk, at: int, attempts: int) -> Chunk:
    """The message as it is stored in a dead-letter topic."""
    group, index, offset, reason, _ = dying
    lines = origin_lines(group, index, offset)
    lines += b"dead_attempts: %d\r\ndead_reason: %b\r\n" % (attempts, reason.encode())
    lines = without_lines(chunk.headers[at]) + lines
    id, tag, key = chunk.id_of(at, index), chunk.tag_of(at), chunk.key_of(at)
    return Chunk.single(make_row(id, lines, chunk.bodies[at], tag, key))


def origin_lines(group: Group, index: int, offset: int) -> bytes:
    """The lines that say which message it was."""
    topic, name = (_encoded(text).encode() for text in (group.topic.name, group.name))
    lines = b"%b%b\r\ndead_group: %b\r\ndead_partition: %d\r\ndead_offset: %d\r\n"
    return lines % (TOPIC, topic, name, index, offset)


def _encoded(name: str) -> str:
    """In ASCII; a name that would be three times as long stays as it is, since the head of a
    delivery has two of them. `unquote` gives it back in any case."""
    encoded = quote(name, safe=_PRINTABLE)
    return encoded if len(encoded) <= _ENCODED_MAX else _TO_ENCODE.sub("%25", name)


def without_lines(headers: bytes) -> bytes:
    """Header lines but for those that say of what a message died."""
    if b"dead_" not in headers:
        return headers
    lines = headers.split(b"\r\n")
    return b"\r\n".join([line for line in lines if not line.startswith(_LINES)])


class Origin(NamedTuple):
    """Which message a dead one was, as its lines say."""

    topic: str
    group: str
    partition: int
    offset: int

    @classmethod
    def of(cls, headers: bytes) -> Origin | None:
        """None if a line is missing, or is none of the broker's."""
        found = dict([line.partition(b": ")[::2] for line in headers.split(b"\r\n")])
        topic, group = [
            unquote(found.get(name, b"").decode()) for name in (b"dead_topic", b"dead_group")
        ]
        numbers = [found.get(name, b"") for name in (b"dead_partition", b"dead_offset")]
        if not all(text.isdigit() and len(text) < _DIGITS_MAX for text in numbers):
            return None
        return cls(topic, group, *map(int, numbers))


def origin_of(headers: bytes) -> str:
    """The topic that a dead message comes from; "" = it does not say."""
    for line in headers.split(b"\r\n"):
        if line.startswith(TOPIC):
            return unquote(line[len(TOPIC) :].decode())
    return ""
