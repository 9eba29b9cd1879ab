"""What the clients of a kill campaign were told, and whether the broker keeps to it.

Every message is made from its serial number alone, so a body that comes back is checked byte by
byte without having been kept. The ledger of a partition is what `read` shows of it: read once after
every restart from where the last reading ended, and again from the beginning at the end. What was
acknowledged or delivered has to be in it, at its offset.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Iterator
from typing import Final, NamedTuple
from zlib import crc32

from tests.process.pipe import Pipe, header, number
from zbus.core.model.message import Message
from zbus.storage.format.batch import Kind, check, decode_chunk
from zbus.storage.port import JournalDamage

BLOCK: Final = 64  # serials that one producer takes at once
SLACK_MS: Final = 2  # of leases: they begin when they are told, not when that is read

NOT_SEEN, DELIVERED, ACK_SENT, ACK_CONFIRMED = range(4)


class Violation(AssertionError):
    """A promise was broken."""


class Sent(NamedTuple):
    """What a message says about itself."""

    serial: int  # counts over all producers, and only up
    producer: int
    delay_ms: int
    sent_us: int = 0  # when it was made, on the monotonic clock that all processes share


_FILL = b"".join(b"%d:" % n for n in range(200))
_ODD = bytes(range(256)).replace(b"\n", b"")  # not UTF-8, so it travels as base64


def make_body(sent: Sent) -> bytes:
    """A body of 20 to 320 bytes that can be made again from what it begins with."""
    fill = _ODD if sent.serial % 8 == 3 else _FILL
    return b"%d %d %d %d|%b" % (*sent, fill[: sent.serial * 37 % 300])


def parse_body(body: bytes) -> Sent:
    """What the body says; a body that was changed anywhere is a violation."""
    try:
        sent = Sent(*map(int, body.partition(b"|")[0].split()))
    except (ValueError, TypeError):
        sent = None
    if sent is None or make_body(sent) != body:
        raise Violation(f"a body is not what was sent: {body!r}")
    return sent


def tag_of(serial: int) -> bytes:
    """Every third message passes the filter `a.*`."""
    return b"a.x" if serial % 3 == 0 else b"b.x"


def key_of(producer: int, serial: int) -> bytes:
    """Each producer has four keys of its own; a block of serials has one."""
    return b"k%d-%d" % (producer, serial // BLOCK % 4)


class Partition:
    """The log of one partition. `told` is filled by many threads."""

    def __init__(self, topic: str, number: int, partitions: int) -> None:
        self.topic = topic
        self.number = number
        self.partitions = partitions  # of the topic
        self.serials = array("q")  # by offset, as `read` showed them
        self.delays_ms = array("H")
        self.last_of: dict[int, int] = {}  # producer -> its newest serial in this log
        self.told: dict[int, int] = {}  # offset -> serial: acknowledged or delivered since then

    def __repr__(self) -> str:
        return f"{self.topic}/{self.number}"

    def tell(self, offset: int, serial: int) -> None:
        """A reply said that this message is at this offset."""
        if self.told.setdefault(offset, serial) != serial:
            raise Violation(f"{self} offset {offset} is {self.told[offset]} and {serial}")

    def check_log(self, pipe: Pipe, from_start: bool = False) -> None:
        """Read what is new (or everything) and compare it with what was told."""
        known = len(self.serials)
        at = start = 0 if from_start else known
        for at, sent, key in self._read(pipe, start):
            if at < known:
                if self.serials[at] != sent.serial:
                    raise Violation(f"{self} offset {at} changed to {sent}")
            else:
                self._add(at, sent, key)
        if from_start and known and at < known - 1:
            raise Violation(f"{self} ends at {at}, but went to {known - 1}")
        for offset, serial in self.told.items():
            if offset >= len(self.serials):
                raise Violation(f"{self} lost serial {serial} at {offset} of {len(self.serials)}")
            if self.serials[offset] != serial:
                found = self.serials[offset]
                raise Violation(f"{self} offset {offset} is {found}, told was {serial}")
        self.told.clear()

    def _add(self, offset: int, sent: Sent, key: bytes) -> None:
        if offset != len(self.serials):
            raise Violation(f"{self} goes on at {offset}, not at {len(self.serials)}")
        last = self.last_of.get(sent.producer, -1)
        if sent.serial <= last:
            raise Violation(f"{self} offset {offset}: serial {sent.serial} after {last}")
        if key:
            wrong = key != key_of(sent.producer, sent.serial)
            if wrong or crc32(key) % self.partitions != self.number:
                raise Violation(f"{self} offset {offset}: key {key!r} of {sent}")
        self.last_of[sent.producer] = sent.serial
        self.serials.append(sent.serial)
        self.delays_ms.append(sent.delay_ms)

    def _read(self, pipe: Pipe, start: int) -> Iterator[tuple[int, Sent, bytes]]:
        for offset, message in read_log(pipe, self.topic, self.number, start):
            yield offset, parse_body(message.body), message.key


def read_log(pipe: Pipe, topic: str, partition: int, offset: int) -> Iterator[tuple[int, Message]]:
    """All messages from there on, each with its offset, out of the batches as they are stored."""
    where = f"{topic}/{partition}"
    while True:
        status, head, body = pipe.get(
            f"/_log/{topic}?partition={partition}&offset={offset}&bytes=4194304"
        )
        if status != 200:
            raise Violation(f"{where} cannot be read from {offset}: {status} {body!r}")
        if not body:
            if number(head, b"end") != offset:
                raise Violation(f"{where} shows nothing at {offset} of {header(head, b'end')!r}")
            return
        position = 0
        while position < len(body):
            try:
                found = check(body, position)
            except JournalDamage as damage:
                raise Violation(f"{where} was read damaged: {damage}") from damage
            batch = body[position : position + found.length]
            position += found.length
            if found.kind is not Kind.DATA:
                continue
            for at, message in enumerate(decode_chunk(batch).messages(), found.base_offset):
                if at >= offset:
                    yield at, message
            offset = found.end_offset


class Reading:
    """What one group was handed in one partition, and has acknowledged."""

    def __init__(self) -> None:
        self.states = bytearray()  # by offset
        self.next_in_order = 0  # within a life of the broker
        self.this_life: dict[int, float] = {}  # offset -> when the consume that got it was sent

    def state(self, offset: int) -> int:
        return self.states[offset] if offset < len(self.states) else NOT_SEEN

    def set(self, offset: int, state: int) -> None:
        if offset >= len(self.states):
            self.states.extend(bytes(offset + 1 - len(self.states) + 1024))
        self.states[offset] = state


class GroupLedger:
    """One group with its one consumer. `lease_ms` 0: it acknowledges on delivery."""

    def __init__(self, log: list[Partition], name: str, lease_ms: int, filter: str) -> None:
        self.topic = log[0].topic
        self.log = log
        self.name = name
        self.lease_ms = lease_ms
        self.filter = filter
        self.readings = [Reading() for _ in log]
        self.waits = False  # for a consume's answer
        self.may_miss = 0  # what a kill may have swallowed on its way
        self.delivered = 0
        self.redelivered = 0
        self.missed = 0

    def wants(self, serial: int) -> bool:
        return not self.filter or tag_of(serial).startswith(b"a.")

    def new_life(self) -> None:
        for reading in self.readings:
            reading.next_in_order = 0
            reading.this_life.clear()

    def deliver(
        self, partition: int, offset: int, body: bytes, stored_ms: int, retry: bool, asked_s: float
    ) -> None:
        """Check one delivery."""
        sent = parse_body(body)
        reading = self.readings[partition]
        where = f"{self.topic}/{partition}/{self.name} offset {offset}"
        self.log[partition].tell(offset, sent.serial)
        early_us = sent.sent_us + sent.delay_ms * 1000 - time.monotonic_ns() // 1000
        if sent.delay_ms and early_us > 0:
            raise Violation(f"{where} came {early_us} us early: {sent}, stored {stored_ms}")
        if not self.wants(sent.serial):
            raise Violation(f"{where} does not pass the filter")
        state = reading.state(offset)
        if state == ACK_CONFIRMED:
            raise Violation(f"{where} came again after its ack was confirmed")
        before = reading.this_life.get(offset)
        if before is not None:
            if not self.lease_ms:
                raise Violation(f"{where} came twice in one life, without leases")
            if not retry:
                raise Violation(f"{where} came twice in one life, and does not say so")
            if (time.monotonic() - before) * 1000 + SLACK_MS < self.lease_ms:
                raise Violation(f"{where} came twice within one lease")
        elif not retry and not sent.delay_ms:
            if offset < reading.next_in_order:
                raise Violation(f"{where} came behind {reading.next_in_order - 1}")
            reading.next_in_order = offset + 1
        reading.this_life[offset] = asked_s
        self.delivered += 1
        self.redelivered += state != NOT_SEEN
        if state == NOT_SEEN:
            reading.set(offset, DELIVERED)

    def check_end(self) -> None:
        """Everything was drained: compare with what the log holds."""
        for partition, reading in zip(self.log, self.readings, strict=True):
            for offset, serial in enumerate(partition.serials):
                state = reading.state(offset)
                if not self.wants(serial):
                    continue
                where = f"{partition}/{self.name} offset {offset} (serial {serial})"
                if self.lease_ms:
                    if state < ACK_SENT:
                        raise Violation(f"{where} was never acknowledged, and is done: {state}")
                elif state == NOT_SEEN:
                    self.missed += 1
        if self.missed > self.may_miss:
            raise Violation(f"{self.topic}/{self.name} missed {self.missed} > {self.may_miss}")
