"""What a broker promised so far, in lists and dicts: obviously right, and judge of what it does.

Messages are known by a serial number at the beginning of their body, so that one that comes twice,
too early, changed, or back from the dead is recognised whoever gets it. The broker is watched where
it hands a message out (`Book.delivered`) and where a client reads a reply.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from zbus.core.broker import Broker
from zbus.core.life import Life
from zbus.core.message import Message
from zbus.core.topic import Group, Topic
from zbus.testing.records import Record


class Violation(AssertionError):
    """The broker did not do what it promises."""


@dataclass(slots=True, eq=False)
class Sent:
    """A message that somebody sent, whatever became of it."""

    serial: int
    body: bytes
    tag: bytes
    key: bytes
    note: bytes
    due_ms: int  # not before; 0 = at once
    ttl_ms: int  # 0 = for ever
    place: tuple[int, int] | None = None  # partition and offset, when known
    expired_ms: int = 0  # from then on it must not be handed out; 0 = not known
    stored: bool = False  # the broker said so
    refused: bool = False  # the broker said so
    lost: bool = False  # a crash took it, as it may at the topic's level
    excused: bool = False  # perhaps purged: it need not be there any more
    dead: bool = False  # purged for certain: it must not come any more


@dataclass(slots=True, eq=False)
class GroupBook:
    """What one group has been promised and given."""

    name: str
    leased: bool
    filter: bytes
    lease_ms: int
    window: int
    attempts_max: int = 0
    pauses_ms: tuple[int, int] = (0, 0)  # between attempts: the first, and the longest
    front: bool = False  # what a lost connection had comes at once
    keyed: bool = False  # with order per key
    declared: bool = False  # the broker said so
    given: set[int] = field(default_factory=set)  # serials, ever
    ordered: set[int] = field(default_factory=set)  # given, for the sake of order
    # Offset of first deliveries, by partition and, with order per key, the key.
    highest: dict[tuple[int, bytes], int] = field(default_factory=dict)
    run: set[int] = field(default_factory=set)  # given in this run of the broker
    leases: dict[int, int] = field(default_factory=dict)  # serial -> deadline
    attempts: dict[int, int] = field(default_factory=dict)  # serial -> so many, as far as known
    pausing: dict[int, int] = field(default_factory=dict)  # serial -> not again before
    tired: set[int] = field(default_factory=set)  # given for the last time, perhaps
    acking: set[int] = field(default_factory=set)  # an ack was sent, perhaps; or a delete
    moved: set[int] = field(default_factory=set)  # to another due time, perhaps
    acked: set[int] = field(default_factory=set)  # and confirmed

    def wants(self, sent: Sent) -> bool:
        """Whether the message has to come, sooner or later."""
        return (
            sent.stored
            and not (sent.lost or sent.excused or sent.ttl_ms)
            and passes(self.filter, sent.tag)
        )

    def forget(self) -> None:
        """The group is not there any more, or begins anew."""
        self.declared = False
        self.given.clear()
        self.acking.clear()
        self.ordered.clear()
        self.highest.clear()
        self.regress()

    def regress(self) -> None:
        """It may have fallen back to an earlier state."""
        self.acked.clear()
        self.forget_leases()
        self.run.clear()

    def forget_leases(self) -> None:
        """The latest may never have been."""
        self.leases.clear()
        self.attempts.clear()
        self.pausing.clear()


@dataclass(slots=True, eq=False)
class TopicBook:
    """One topic."""

    name: str
    durability: str
    partitions: int
    volatile: bool  # is removed and emptied now and then: little can be said of it
    groups: list[GroupBook]
    sent: dict[int, Sent] = field(default_factory=dict)
    places: dict[tuple[int, int], int] = field(default_factory=dict)  # -> serial

    @property
    def declared(self) -> bool:
        return any(group.declared for group in self.groups)

    def lose(self, sent: Sent) -> None:
        sent.lost = True
        if sent.place is not None:
            self.places.pop(sent.place, None)


def passes(pattern: bytes, tag: bytes) -> bool:
    """The filters that are used here, spelled out."""
    if not pattern:
        return True
    words = tag.split(b".")
    if pattern == b"#":
        return tag != b""
    if pattern == b"a.*":
        return len(words) == 2 and words[0] == b"a"
    if pattern == b"a.#;b":
        return tag == b"b" or words[0] == b"a"
    raise NotImplementedError(pattern)


class Book:
    """All that was promised. A broken promise is kept in `problem`, the first one only: it may be
    found in the middle of something."""

    def __init__(self, topics: list[TopicBook]) -> None:
        self.topics = {topic.name: topic for topic in topics}
        self.problem = ""
        self.now_ms = 0

    def check(self, right: bool, text: str) -> None:
        if not right and not self.problem:
            self.problem = text

    def raise_problem(self) -> None:
        if self.problem:
            raise Violation(self.problem)

    # -- what the broker says -----------------------------------------------------------------

    def stored(
        self, topic: TopicBook, sent: Sent, partition: int, offset: int, time_ms: int
    ) -> None:
        """A produce was answered with 200."""
        self._place(topic, sent, partition, offset)
        sent.stored = True
        if sent.ttl_ms:
            sent.expired_ms = time_ms + sent.ttl_ms

    def _place(self, topic: TopicBook, sent: Sent, partition: int, offset: int) -> None:
        if topic.volatile:  # after a removal offsets begin again
            return
        place = (partition, offset)
        name = f"message {sent.serial} of {topic.name}"
        self.check(sent.place in (None, place), f"{name} is at {place}, and was at {sent.place}")
        other = topic.places.get(place, sent.serial)
        self.check(other == sent.serial, f"{name} is at {place}, and so is message {other}")
        sent.place = place
        topic.places[place] = sent.serial

    def delivered(self, group: Group, records: list[Record]) -> None:
        """The broker hands out messages."""
        topic = self.topics.get(group.topic.name)
        if topic is None:
            return
        book = next(one for one in topic.groups if one.name == group.name)
        batch: set[int] = set()
        for record in records:
            sent = self._known(topic, record.message)
            if sent is not None:
                self._place(topic, sent, record.partition, record.offset)
                if book.keyed and sent.key and not topic.volatile:
                    self._judge_key(topic, book, sent, batch)
                batch.add(sent.serial)
                self._judge(topic, book, sent, record)

    def _known(self, topic: TopicBook, message: Message) -> Sent | None:
        serial = int(message.body.split(b":", 1)[0] or b"-1")
        sent = topic.sent.get(serial)
        if sent is None:
            self.check(False, f"nobody sent {message.body[:20]!r} to {topic.name}")
            return None
        name = f"message {serial} of {topic.name}"
        self.check(message.body == sent.body, f"the body of {name} is not what was sent")
        self.check(message.tag == sent.tag, f"the tag of {name} is {message.tag!r}")
        self.check(message.key == sent.key, f"the key of {name} is {message.key!r}")
        self.check(
            not sent.note or b"x-note: %b\r\n" % sent.note in message.headers,
            f"the headers of {name} are {message.headers!r}",
        )
        self.check(not sent.refused, f"{name} was refused and is there")
        self.check(not sent.lost, f"{name} was lost and is there again")
        self.check(not sent.dead, f"{name} was purged and is there again")
        return sent

    def _judge(self, topic: TopicBook, group: GroupBook, sent: Sent, record: Record) -> None:
        """One message goes to one group."""
        serial, now_ms = sent.serial, self.now_ms
        group.given.add(serial)
        name = f"message {serial} of {topic.name}/{group.name}"
        early_ms = 0 if serial in group.moved else sent.due_ms - now_ms
        self.check(early_ms <= 0, f"{name} comes {early_ms} ms early")
        expired = sent.expired_ms and now_ms >= sent.expired_ms
        self.check(not expired, f"{name} comes {now_ms - sent.expired_ms} ms after it expired")
        self.check(passes(group.filter, sent.tag), f"{name} does not pass the filter")
        if topic.volatile:
            return
        self.check(serial not in group.acked, f"{name} was acknowledged and comes again")
        if group.leased:
            left_ms = 0 if group.front else group.leases.get(serial, 0) - now_ms
            self.check(left_ms <= 0, f"{name} is leased to somebody else for {left_ms} ms")
            self._judge_attempt(group, serial, record.attempts, name)
            group.leases[serial] = now_ms + group.lease_ms
            held = sum(
                deadline > now_ms and other not in group.acking
                for other, deadline in group.leases.items()
            )
            narrow = held <= group.window or group.front  # who is gone holds nothing
            self.check(narrow, f"{topic.name}/{group.name} leases out {held}")
        else:
            self.check(serial not in group.run, f"{name} comes twice")
        if serial not in group.ordered and not sent.due_ms:
            line = (record.partition, sent.key if group.keyed else b"")
            highest = group.highest.get(line, -1)
            self.check(record.offset > highest, f"{name} comes behind offset {highest}")
            group.highest[line] = record.offset
        group.ordered.add(serial)
        group.run.add(serial)

    def _judge_attempt(self, group: GroupBook, serial: int, attempts: int, name: str) -> None:
        known, now_ms = group.attempts.get(serial), self.now_ms
        forgotten = known is not None and attempts != known + 1
        self.check(not forgotten, f"{name} comes as attempt {attempts} after attempt {known}")
        if group.attempts_max:
            self.check(attempts <= group.attempts_max, f"{name} comes as attempt {attempts}")
            if attempts == group.attempts_max:
                group.tired.add(serial)
        early_ms = group.pausing.get(serial, 0) - now_ms
        self.check(early_ms <= 0, f"{name} comes {early_ms} ms before its pause is over")
        group.attempts[serial] = attempts
        first_ms, longest_ms = group.pauses_ms
        if first_ms and not group.front:
            pause_ms = min(longest_ms, first_ms * 2 ** (attempts - 1))
            group.pausing[serial] = now_ms + group.lease_ms + pause_ms

    def _judge_key(self, topic: TopicBook, group: GroupBook, sent: Sent, batch: set[int]) -> None:
        """Nobody holds another message of its key but in the same batch."""
        assert sent.place is not None
        partition = sent.place[0]
        name = f"message {sent.serial} of {topic.name}/{group.name}"
        for serial in group.given - batch - group.acking - {sent.serial}:
            other = topic.sent[serial]
            if other.key != sent.key or other.place is None or other.place[0] != partition:
                continue
            left_ms = group.leases.get(serial, 0) - self.now_ms
            text = f"{name} comes while message {serial} of its key is leased for {left_ms} ms"
            self.check(left_ms <= 0, text)

    def acked(self, group: GroupBook, serial: int) -> None:
        """The broker confirmed an ack."""
        group.acked.add(serial)
        group.leases.pop(serial, None)

    # -- what becomes of the broker -----------------------------------------------------------

    def ended(self, broker_was: str, unwritten: bool) -> None:
        """The broker ended: it was `stopped`, `killed`, or its power was `cut`. If the disk failed
        or was full, the latest leases may be `unwritten`."""
        for topic in self.topics.values():
            gone = topic.durability == "memory"
            for sent in topic.sent.values() if gone else ():
                topic.lose(sent)
            for group in topic.groups:
                group.run.clear()
                if broker_was != "stopped" or unwritten:
                    group.forget_leases()
                if gone:
                    group.forget()
                elif topic.durability == "os" and broker_was == "cut":
                    group.regress()

    def fenced(self, name: str) -> None:
        """A partition of the topic is read again: who had a message may not have it any more."""
        for group in self.topics[name].groups if name in self.topics else ():
            group.run.clear()
            group.forget_leases()

    def recovered(self, broker: Broker, broker_was: str) -> None:
        """The broker is there again: is everything?"""
        for book in self.topics.values():
            topic = broker.topic(book.name)
            if book.durability == "memory":
                self.check(topic is None, f"{book.name} lived in memory and is there again")
            elif book.durability == "os" and broker_was == "cut":
                self._reconcile(book, topic)
            elif not book.volatile:
                self.check_state(book, topic)

    def _reconcile(self, book: TopicBook, topic: Topic | None) -> None:
        """After a power cut, `os` may have lost the end of each log, and of one that was begun
        just before, the beginning."""
        for sent in book.sent.values():
            if topic is None:
                book.lose(sent)
            elif sent.place is not None:
                partition, offset = sent.place
                log = topic.partitions[partition]
                if not log.first <= offset < log.end:
                    book.lose(sent)
        for group in book.groups:
            if topic is None or topic.group(group.name.lower()) is None:
                group.forget()
            lost = {serial for serial, sent in book.sent.items() if sent.lost}
            group.given -= lost
            group.ordered -= lost
            for line, highest in group.highest.items():
                end = topic.partitions[line[0]].end if topic is not None else 0
                group.highest[line] = min(highest, end - 1)

    def check_state(self, book: TopicBook, topic: Topic | None) -> None:
        """Compare what the broker remembers of a topic with what it has promised."""
        if topic is None:
            self.check(not book.declared, f"topic {book.name} is gone")
            return
        held = [sent for sent in book.sent.values() if sent.place and not sent.lost]
        for sent in held:
            assert sent.place is not None
            partition, offset = sent.place
            there = offset < topic.partitions[partition].end
            self.check(there, f"message {sent.serial} of {book.name} at {sent.place} is lost")
        for group in book.groups:
            if group.declared and not book.volatile:
                self._check_group(book, group, topic.group(group.name.lower()), held)

    def _check_group(
        self, topic: TopicBook, book: GroupBook, group: Group | None, held: list[Sent]
    ) -> None:
        if group is None:
            self.check(False, f"group {topic.name}/{book.name} is gone")
            return
        for sent in held:
            assert sent.place is not None
            partition, offset = sent.place
            done = group.backlogs[partition].life(offset) is Life.DONE
            name = f"message {sent.serial} of {topic.name}/{book.name}"
            if sent.serial in book.acked:
                self.check(done, f"the ack of {name} is forgotten")
            elif book.wants(sent):
                excused = book.acking | (book.tired if book.leased else book.given)
                owed = sent.serial not in excused
                self.check(not (done and owed), f"{name} is skipped")
