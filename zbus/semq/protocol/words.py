"""What platform and endpoints of SEMQ say to each other (specification, sections 1, 2, 6 and 15).

    node      <type>:<id>               1:10008       0 platform, 1 server, 2 user, 3 virtual server
    address   <node>/<user>             1:10008/alice     a user of a node; of the platform, a topic
    LK0       <node>/<semq>/<db>/<id>   1:10008/1/1/42    the row in the outbox of its sender
    LK1       <semq>/<db>/<id>          1/1/7             the row in the store of the platform
    MID       of a store, all of LK0 but its id, and epoch, stream, seq

Everything here comes from the wire, or is about to be sent: what is wrong raises `Malformed`, with
a text for its sender.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Final, NamedTuple

from zbus.wire.numbers import parse_number, parse_ranges

PLATFORM: Final = "0:1"
"""The node of the platform that is asked. Its users are topics."""

MAILBOX: Final = "semq/"
"""The topic of a node's mailbox is called so on the wire, with the node behind it."""

APP_KEY_BYTES_MAX: Final = 1_024
SEQS_MAX: Final = 10_000
"""Numbers that one message may be about."""

SKIPS_BYTES_MAX: Final = 4_000
"""Of a field with numbers that are skipped: a line has room for it."""

NUMBER_MAX: Final = (1 << 63) - 1

INTERVAL_MS: Final = 15_000
"""How long something is unconfirmed before it is asked for, if nothing else was said."""

BACKOFF_MAX_MS: Final = 600_000
"""Between two questions without an answer."""

HEARTBEAT_MS: Final = 10_000
SILENCE_MS: Final = 30_000
"""A connection without anything for this long is dead."""

_NODE = re.compile(r"[0-3]:[A-Za-z0-9._-]{1,64}\Z")
_USER = re.compile(r"[^/\x00-\x1f\x7f]{1,128}\Z")
_EPOCH = re.compile(r"[0-9a-f]{16}\Z")


class Malformed(ValueError):
    """What a frame says cannot be; the text is for its sender."""


class Stream(IntEnum):
    """Which counter a message is numbered by."""

    NONE = 0  # level 1: it is not numbered
    GAPS = 2  # level 2
    CONTIGUOUS = 3  # level 3: 1, 2, 3 and so on, without gaps


class Level(IntEnum):
    """`savefwd`."""

    DROP = 1  # forwarded, or forgotten
    STORE = 2  # stored if the target is offline
    ARRIVE = 3  # must arrive


class AckFlag(IntEnum):
    """`flag` of the platform's answer to a message."""

    FORWARDED = 1  # Ack-Fwd
    SAVED = 2  # Ack-Save


class Hop(IntEnum):
    """`ack_flag`: who wants to know that a message has come."""

    PLATFORM = 1  # Ack and ReAck
    SOURCE = 2  # Ack2 and ReAck2


class Address(NamedTuple):
    """A node, or a user of it."""

    node: str
    user: str = ""

    def __str__(self) -> str:
        return f"{self.node}/{self.user}" if self.user else self.node


class Store(NamedTuple):
    """One of the stores of a node: what its messages are numbered in."""

    node: str
    semq: int = 1
    db: int = 1

    def __str__(self) -> str:
        return f"{self.node}/{self.semq}/{self.db}"


class PlatformLocator(NamedTuple):
    """LK1: a row of the platform's store. What is beside the node in LK0 is such a one, too."""

    semq: int
    db: int
    record: int

    def __str__(self) -> str:
        return f"{self.semq}/{self.db}/{self.record}"

    def fields(self, prefix: str = "") -> dict[str, str]:
        """As a control message has it."""
        names = (f"{prefix}semq_id", f"{prefix}semq_db_id", f"{prefix}ref_id")
        return dict(zip(names, map(str, self), strict=True))


class Locator(NamedTuple):
    """LK0: a row of an outbox."""

    store: Store
    record: int

    def __str__(self) -> str:
        return f"{self.store}/{self.record}"

    @property
    def place(self) -> PlatformLocator:
        """Without the node."""
        return PlatformLocator(self.store.semq, self.store.db, self.record)


class Mid(NamedTuple):
    """What a message is known by for ever. Of streams, those to one destination."""

    store: Store
    epoch: str  # 16 hexadecimal digits: which life of the store
    stream: int
    seq: int

    def __str__(self) -> str:
        """As one word: an id that names no other message to the same destination."""
        return f"{self.store}/{self.epoch}/{self.stream}/{self.seq}"

    def of_record(self, record: int) -> str:
        """With the record of LK0: an id that names no other message at all."""
        return f"{self.store}/{record}/{self.epoch}/{self.stream}/{self.seq}"


def read_node(text: str) -> str:
    """A node, or raise."""
    if _NODE.match(text) is None:
        raise Malformed(f"{text[:80]!r} is no node address: expected type:id, for example 1:10008")
    return text


def is_platform(node: str) -> bool:
    """Of type 0: only a platform speaks for it."""
    return node.startswith("0:")


def read_epoch(text: str) -> str:
    """Which life of a store."""
    if _EPOCH.match(text) is None:
        raise Malformed("epoch is 16 hexadecimal digits")
    return text


def read_address(text: str) -> Address:
    """A node, or a user of one."""
    node, slash, user = text.partition("/")
    if slash and _USER.match(user) is None:
        raise Malformed(f"{text[:80]!r} is no address: <type>:<id>/<user>")
    return Address(read_node(node), user)


def read_locator(text: str) -> Locator:
    """LK0."""
    parts = text.split("/")
    if len(parts) != 4:
        raise Malformed(f"{text[:80]!r} is no lk0: <node>/<semq>/<db>/<record>")
    semq, db, record = [read_number("lk0", part) for part in parts[1:]]
    return Locator(Store(read_node(parts[0]), semq, db), record)


def read_platform_locator(text: str) -> PlatformLocator:
    """LK1."""
    parts = text.split("/")
    if len(parts) != 3:
        raise Malformed(f"{text[:80]!r} is no lk1: <semq>/<db>/<record>")
    return PlatformLocator(*[read_number("lk1", part) for part in parts])


def read_number(name: str, text: str, low: int = 0, high: int = NUMBER_MAX) -> int:
    """A number of a field."""
    number = parse_number(text.encode("utf-8", "replace"))
    if number is None or not low <= number <= high:
        raise Malformed(f"{name} must be a number between {low} and {high}, not {text[:40]!r}")
    return number


def read_seqs(text: str) -> list[range]:
    """`5-9,12`: numbers of one stream."""
    ranges = parse_ranges(text.encode("utf-8", "replace"), SEQS_MAX)
    if ranges is None or ranges[0].start < 1:
        raise Malformed(f"seqs are numbers from 1, such as 5-9,12, and at most {SEQS_MAX}")
    return ranges


def show_seqs(ranges: list[range]) -> str:
    """The same, as text."""
    texts = [str(r.start) if len(r) == 1 else f"{r.start}-{r.stop - 1}" for r in ranges]
    return ",".join(texts)


def ranges_of(numbers: Iterable[int]) -> list[range]:
    """Neighbours together, in their order."""
    ranges: list[range] = []
    for number in sorted(set(numbers)):
        if ranges and ranges[-1].stop == number:
            ranges[-1] = range(ranges[-1].start, number + 1)
        else:
            ranges.append(range(number, number + 1))
    return ranges


def number_fields(seqs: Iterable[int]) -> dict[str, str]:
    """One number as `seq`, and several as `seqs`."""
    ranges = ranges_of(seqs)
    if len(ranges) == 1 and len(ranges[0]) == 1:
        return {"seq": str(ranges[0].start)}
    return {"seqs": show_seqs(ranges)}


def back_off_ms(interval_ms: int, rounds: int) -> int:
    """Until the next question, after this many without an answer (specification, section 8)."""
    return min(interval_ms << min(rounds, 20), max(BACKOFF_MAX_MS, interval_ms))


def read_intervals(text: str) -> list[range]:
    """The same without a limit of their numbers, which stand for themselves."""
    found = []
    for piece in text.split(",") if text else ():
        first, dash, last = piece.partition("-")
        begin = read_number("a number", first, 1)
        found.append(range(begin, (read_number("a number", last, begin) if dash else begin) + 1))
    return found


class Fields:
    """The fields of a frame, by lower-case name. A field that is empty is not there."""

    __slots__ = ("_fields",)

    def __init__(self, fields: Mapping[str, str]) -> None:
        self._fields = fields

    def text(self, name: str, default: str = "") -> str:
        return self._fields.get(name) or default

    def required(self, name: str) -> str:
        text = self._fields.get(name)
        if not text:
            raise Malformed(f"{name} is missing")
        return text

    def number(self, name: str, default: int, low: int = 0, high: int = NUMBER_MAX) -> int:
        text = self._fields.get(name)
        return read_number(name, text, low, high) if text else default

    def flag(self, name: str, default: bool = False) -> bool:
        return self.number(name, int(default), 0, 1) == 1

    def epoch(self) -> str:
        return read_epoch(self.required("epoch"))

    def mid(self, store: Store, usual: Stream = Stream.CONTIGUOUS) -> Mid:
        """`epoch`, `stream` and `seq`."""
        stream = self.number("stream", usual, Stream.GAPS, Stream.CONTIGUOUS)
        seq = read_number("seq", self.required("seq"), 1)
        return Mid(store, self.epoch(), stream, seq)


class Envelope(NamedTuple):
    """What is said of a message beside its body: the fields of `semq_send` and `semq_deliver`."""

    source: Address
    destination: Address
    level: Level
    lk0: Locator | None
    mid: Mid | None  # of levels 2 and 3, and whatever wants an Ack2
    lk1: PlatformLocator | None
    ack2: bool
    ordered: bool
    reliable: bool
    void: bool  # has no body: only its number counts
    attempt: int
    expires_ms: int  # since the epoch; 0: never
    app_key: str
    skips: list[range]  # numbers of its stream for which no message comes

    @property
    def numbered(self) -> Mid:
        """The MID of a message that must have one."""
        assert self.mid is not None
        return self.mid


def read_envelope(given: Mapping[str, str]) -> Envelope:
    """What a frame says of its message. Raises Malformed."""
    fields = Fields(given)
    level = Level(fields.number("savefwd", Level.STORE, Level.DROP, Level.ARRIVE))
    ack2 = fields.flag("ack2")
    source = read_address(fields.required("src"))
    destination = read_address(fields.required("dst"))
    lk0 = mid = None
    if level > Level.DROP or ack2 or fields.text("lk0"):
        lk0 = read_locator(fields.required("lk0"))
        if lk0.store.node != source.node:
            raise Malformed(f"lk0 {lk0} is none of {source.node}'s")
        mid = fields.mid(lk0.store, Stream.CONTIGUOUS if level == Level.ARRIVE else Stream.GAPS)
        if (level == Level.ARRIVE) != (mid.stream == Stream.CONTIGUOUS):
            raise Malformed("stream 3 is that of level 3, and stream 2 of the others")
    lk1 = fields.text("lk1")
    app_key = fields.text("app_key")
    if len(app_key.encode("utf-8", "replace")) > APP_KEY_BYTES_MAX:
        raise Malformed(f"app_key has at most {APP_KEY_BYTES_MAX} bytes")
    skips = fields.text("skips")
    if len(skips) > SKIPS_BYTES_MAX:
        raise Malformed(f"skips has at most {SKIPS_BYTES_MAX} bytes")
    reliable = fields.flag("reliable", True)
    if not reliable and (level > Level.DROP or ack2):
        raise Malformed("reliable 0 is for savefwd 1 without ack2 alone")
    return Envelope(
        source,
        destination,
        level,
        lk0,
        mid,
        read_platform_locator(lk1) if lk1 else None,
        ack2,
        fields.flag("ordered"),
        reliable,
        fields.flag("void"),
        fields.number("attempt", 1, 1),
        fields.number("expires", 0),
        app_key,
        read_intervals(skips),
    )
