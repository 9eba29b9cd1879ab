"""What a broker promised so far, in lists and dicts: obviously right, and judge of what it does.

Messages are known by a serial number at the beginning of their body, so that one that comes twice,
too early, changed, or back from the dead is recognised whoever gets it. The broker is watched where
it hands a message out (`Book.delivered`) and where a client reads a reply.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial

from tests.records import Record
from tests.simulation.groups import GroupBook, Sent, passes
from zbus.core.broker import Broker
from zbus.core.commit.tick import RETRY_MS, STATE_EVERY_MS
from zbus.core.model.message_state import MessageState
from zbus.core.topics.topic import Group, Topic


class Violation(AssertionError):
    """The broker did not do what it promises."""


Origin = tuple[str, str, int, int]
"""Of a dead letter: topic, group, partition and offset."""


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
    durable: dict[int, int] = field(default_factory=dict)  # partition -> number of a delivery
    asked_partitions: int = 0  # a declare that is not answered may give the topic that many

    def __post_init__(self) -> None:
        self.asked_partitions = self.partitions

    @property
    def declared(self) -> bool:
        return any(group.declared for group in self.groups)

    def group(self, name: str) -> GroupBook:
        return next(one for one in self.groups if one.name == name)

    def serial_at(self, place: tuple[int, int], body: bytes) -> int:
        """Of what was read there."""
        return self.places.get(place, int(body.split(b":", 1)[0]))

    def lose(self, sent: Sent) -> None:
        sent.lost = True
        if sent.place is not None:
            self.places.pop(sent.place, None)


def origin_of(headers: bytes) -> Origin | None:
    """What a dead letter says of it; None = it is no dead letter."""
    lines = dict(line.split(b": ", 1) for line in headers.split(b"\r\n") if b": " in line)
    if b"dead_topic" not in lines:
        return None
    topic, group = lines[b"dead_topic"].decode(), lines[b"dead_group"].decode()
    return topic, group, int(lines[b"dead_partition"]), int(lines[b"dead_offset"])


class Book:
    """All that was promised. A broken promise is kept in `problem`, the first one only: it may be
    found in the middle of something."""

    def __init__(self, topics: list[TopicBook]) -> None:
        self.topics = {topic.name: topic for topic in topics}
        self.problem = ""
        self.now_ms = 0
        self.deliveries = 0  # so many were there
        self.written = 0  # so many were written, for certain
        self._turn = (0, 0)  # when the last one ended that is not written, and so many before
        self._room_ms = 0  # from then on what finds room is written
        self.letters: dict[Origin, list[tuple[int, int]]] = {}  # where each dead message is
        self.copies = 0
        self.redriving = False  # somebody has asked for it

    def check(self, right: bool, text: str) -> None:
        if not right and not self.problem:
            self.problem = text

    def raise_problem(self) -> None:
        if self.problem:
            raise Violation(self.problem)

    def turned(self, full: bool) -> None:
        """A turn ended. Leases are written by the first one that is late enough. What perhaps found
        no room, because the disk was `full`, is tried again a second later."""
        if full:
            self._room_ms = self.now_ms + RETRY_MS
        time_ms, deliveries = self._turn
        if self.now_ms >= max(time_ms + STATE_EVERY_MS, self._room_ms):
            self.written = max(self.written, deliveries)
            self._turn = (self.now_ms, self.deliveries)

    # -- what the broker says -----------------------------------------------------------------

    def stored(
        self, topic: TopicBook, sent: Sent, partition: int, offset: int, time_ms: int
    ) -> None:
        """A produce was answered with 200."""
        self._place(topic, sent, partition, offset)
        sent.stored = True
        if sent.confirms is not None:
            sent.confirms()
        self.durable(topic, partition, sent.delivered_before)
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

    def durable(self, topic: TopicBook, partition: int, number: int) -> None:
        """What was asked when there had been so many deliveries is confirmed: they are known."""
        topic.durable[partition] = max(topic.durable.get(partition, 0), number)

    def picked(self, group: Group, records: list[Record]) -> None:
        """Messages are taken for somebody, in their order; he may be told later, or never."""
        topic = self.topics.get(group.topic.name)
        if topic is None or topic.volatile:
            return
        book = topic.group(group.name)
        for record in records:
            sent = self.known(topic, record)
            if sent is not None:
                self._judge_order(topic, book, sent, record)
                if book.retries.attempts_max:
                    book.untold.add(sent.serial)

    def _judge_order(self, topic: TopicBook, group: GroupBook, sent: Sent, record: Record) -> None:
        """What nobody had comes in the order of the log."""
        serial, by_key = sent.serial, group.retries.by_key
        if serial not in group.ordered and not sent.due_ms:
            line = (record.partition, sent.key if by_key else b"")
            highest = group.highest.get(line, -1)
            loose = group.redriven or (by_key and not sent.key)
            # Others pass by what is acknowledged, and a crash may forget an ack.
            loose |= serial in group.acking
            name = f"message {serial} of {topic.name}/{group.name}"
            self.check(loose or record.offset > highest, f"{name} comes behind offset {highest}")
            group.highest[line] = max(highest, record.offset)
        group.ordered.add(serial)

    def delivered(self, group: Group, records: list[Record]) -> None:
        """The broker hands out messages."""
        topic = self.topics.get(group.topic.name)
        if topic is None:
            return
        book = topic.group(group.name)
        found = [(self.known(topic, one), one) for one in records]
        batch = {sent.serial for sent, _ in found if sent is not None}
        for sent, record in found:
            if sent is not None:
                self._judge(topic, book, sent, record, batch)

    def known(self, topic: TopicBook, record: Record) -> Sent | None:
        """The message that is there."""
        message, place = record.message, (record.partition, record.offset)
        serial = int(message.body.split(b":", 1)[0] or b"-1")
        sent = topic.sent.get(topic.places.get(place, serial))
        if sent is None or (sent.place not in (None, place) and not topic.volatile):
            sent = self._copy(topic, serial, record)
        if sent is None:
            self.check(False, f"nobody sent {message.body[:20]!r} to {topic.name}")
            return None
        self._place(topic, sent, *place)
        name = f"message {sent.serial} of {topic.name}"
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
        if sent.confirms is not None:
            confirms, sent.confirms = sent.confirms, None
            confirms()
        return sent

    def _copy(self, topic: TopicBook, serial: int, record: Record) -> Sent | None:
        """A message that the broker put there: a dead letter, or one that was redriven."""
        origin = origin_of(record.message.headers)
        source = topic if origin is None else self.topics.get(origin[0])
        sent = None if source is None else source.sent.get(serial)
        if sent is None or topic.volatile:
            return None
        place = (record.partition, record.offset)
        if origin is None:
            self.check(self.redriving, f"message {serial} of {topic.name} is there twice: {place}")
        else:
            self._bury(serial, origin, place)
        self.copies += 1
        copy = Sent(-self.copies, sent.body, sent.tag, sent.key, sent.note, 0, 0, stored=True)
        topic.sent[copy.serial] = copy
        for group in topic.groups:
            if group.moves:  # perhaps when it was there already
                group.passed.add(copy.serial)
        return copy

    def _bury(self, serial: int, origin: Origin, place: tuple[int, int]) -> None:
        """A dead letter is there: where it comes from, it does not come again."""
        topic, name, partition, offset = origin
        source = self.topics[topic]
        group, known = source.group(name), (partition, offset) in source.places
        if not (known or self.redriving):  # else it may be of a copy that came back
            if source.durability == "disk":  # else another may be there after a crash
                self._place(source, source.sent[serial], partition, offset)
            known = True
        dead = source.places.get((partition, offset), serial)
        letters = self.letters.setdefault(origin, [])
        letters.append(place)
        text = f"message {dead} of {topic}/{name} is a dead letter"
        self.check(len(letters) <= 1 + group.moves, f"{text} at {letters}")
        count, most = group.attempts_most(dead), group.retries.attempts_max
        self.check(group.moves > 0 or count >= most > 0, f"{text} after {count} deliveries")
        if known and not group.moves:
            group.acked.add(dead)
            group.buried.add(dead)

    def _judge(
        self, topic: TopicBook, group: GroupBook, sent: Sent, record: Record, batch: set[int]
    ) -> None:
        """One message goes to one group."""
        serial, now_ms = sent.serial, self.now_ms
        group.given.add(serial)
        group.seen.add(serial)
        name = f"message {serial} of {topic.name}/{group.name}"
        early_ms = group.times.get(serial, sent.due_ms) - now_ms
        self.check(early_ms <= 0, f"{name} comes {early_ms} ms early")
        expired = sent.expired_ms and now_ms >= sent.expired_ms
        self.check(not expired, f"{name} comes {now_ms - sent.expired_ms} ms after it expired")
        self.check(passes(group.filter, sent.tag), f"{name} does not pass the filter")
        if topic.volatile:
            return
        self.check(not group.paused, f"{name} comes, and the group is paused")
        self.check(serial not in group.acked, f"{name} was acknowledged and comes again")
        past = record.offset < group.sought.get(record.partition, 0)
        self.check(not past, f"{name} comes, and the group was moved beyond it")
        if group.leased:
            by_key = group.retries.by_key and bool(sent.key)
            if by_key:
                group.check_key(self.check, name, sent, topic.sent, (now_ms, batch))
            self.deliveries += 1
            now = (now_ms, self.deliveries)
            group.hand_out(self.check, name, serial, record.attempts, now)
            held = sum(1 for _ in group.open_leases(now_ms))
            self.check(held <= group.window, f"{topic.name}/{group.name} leases out {held}")
        else:
            self.check(serial not in group.run, f"{name} comes twice")
        group.run.add(serial)

    def acked(self, group: GroupBook, serial: int) -> None:
        """The broker confirmed an ack."""
        group.acked.add(serial)
        group.leases.pop(serial, None)

    def moved(self, group: Group, places: list[int]) -> None:
        """A group was put somewhere else, in the partitions where that is not -1."""
        topic = self.topics[group.topic.name]
        book = topic.group(group.name)
        for index, place in enumerate(places):
            if place >= 0:
                visible = group.topic.partitions[index].visible
                book.move(topic.places, index, min(place, visible))
                if place > visible:  # beyond what is on its way to be stored, and may be refused
                    book.passed |= {sent.serial for sent in topic.sent.values() if not sent.place}

    def left(self, group: Group, partition: int, offsets: Iterable[int]) -> None:
        """Whoever held these is gone."""
        topic = self.topics.get(group.topic.name)
        for offset in offsets if topic is not None else ():
            serial = topic.places.get((partition, offset)) if topic is not None else None
            if serial is not None and topic is not None:
                topic.group(group.name).lose(serial)

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
                group.switching = 0
                if group.moving:
                    group.doubt(topic.sent)
                    group.moving = False
                if not gone:
                    group.interrupt()
                    group.untold.clear()
                if gone:
                    group.forget()
                elif topic.durability == "os" and broker_was == "cut":
                    group.regress()
                elif broker_was == "cut" or unwritten:
                    group.forget_deliveries(partial(self._durable, topic))
                elif broker_was == "killed":
                    group.forget_deliveries(lambda serial: self.written)
                group.lose_all(self.now_ms)
        self.written = self.deliveries

    def _durable(self, topic: TopicBook, serial: int) -> int:
        place = topic.sent[serial].place
        return topic.durable.get(place[0], 0) if place is not None else 0

    def fenced(self, name: str) -> None:
        """A partition of the topic is read again: who had a message may not have it any more."""
        topic = self.topics.get(name)
        for group in topic.groups if topic is not None else ():
            group.run.clear()
            group.interrupt()
            group.forget_deliveries(lambda serial: 0, topic is None or topic.durability == "memory")
            if group.moving and topic is not None:
                group.doubt(topic.sent)

    def recovered(self, broker: Broker, broker_was: str) -> None:
        """The broker is there again: is everything?"""
        for book in self.topics.values():
            topic = broker.topic(book.name)
            if book.durability == "memory":
                self.check(topic is None, f"{book.name} lived in memory and is there again")
            elif book.durability == "os" and broker_was == "cut":
                self._reconcile(book, topic)
            elif not book.volatile:
                self.check_state(book, topic, at_start=True)

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

    def check_state(self, book: TopicBook, topic: Topic | None, at_start: bool = False) -> None:
        """Compare what the broker remembers of a topic with what it has promised. What another log
        has settled is finished by the first turn after a start."""
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
                self._check_group(book, group, topic.group(group.name.lower()), held, at_start)

    def _check_group(
        self,
        topic: TopicBook,
        book: GroupBook,
        group: Group | None,
        held: list[Sent],
        at_start: bool,
    ) -> None:
        if group is None:
            self.check(False, f"group {topic.name}/{book.name} is gone")
            return
        for sent in held:
            assert sent.place is not None
            partition, offset = sent.place
            done = group.backlogs[partition].life(offset) is MessageState.DONE
            name = f"message {sent.serial} of {topic.name}/{book.name}"
            if sent.serial in book.acked:
                settled = sent.serial in book.results or sent.serial in book.buried
                right = done or (at_start and settled)
                self.check(right, f"the ack of {name} is forgotten")
            elif book.wants(sent):
                serial = sent.serial
                owed = not book.may_be_done(serial)
                owed = owed and (book.leased or serial not in book.given)
                self.check(not (done and owed), f"{name} is skipped")
