"""Where things are in an archive, and how a topic is called there.

    topic=<topic>/date=2026-11-23/<topic>-<incarnation>-p<partition>-<start>-<end>-<attempt>.parquet
    _tmp/<run>/<attempt>.parquet                        unfinished; an orphan if it stays
    _zbus/archive.json                                  that this is an archive
    _zbus/commits/<topic>/<partition>/<position>.json   the chain of commits
    _zbus/snapshots/<topic>/<partition>/<number>.json   what the chain has come to

A topic's name is any text, sent by anybody. Letters, digits, `-` and what is no first `_` or `.`
stand for themselves; every other byte of the UTF-8 is `%XX`, which those who read `topic=...` take
back. What would be too long is cut and gets a digest behind a `~`, which occurs nowhere else.

The numbers of a data file's name are decimal and have 20 digits; `incarnation` is the beginning of
its SHA-256, since it is unknown what is in one. An attempt is written once: it has a time and
chance in its name, so what a run that was killed has left is never in the way of the next one.
"""

from __future__ import annotations

import os
import re
from hashlib import sha256
from pathlib import PurePosixPath
from typing import Final, NamedTuple
from urllib.parse import unquote_to_bytes

from zbus.spark.errors import Usage
from zbus.spark.logs import Span

TOPIC_BYTES_MAX: Final = 160
"""Of a topic's name as it is written: a file's name has 87 bytes more, and 255 may be."""

OWN: Final = "_zbus"
IDENTITY: Final = f"{OWN}/archive.json"
COMMITS: Final = f"{OWN}/commits"
SNAPSHOTS: Final = f"{OWN}/snapshots"
UNFINISHED: Final = "_tmp"
DELTA: Final = "_delta_log"
"""What a table of Delta Lake has instead."""

FLAT: Final = "data"
SUFFIX: Final = ".parquet"
RECORD_SUFFIX: Final = ".json"

_KEPT = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.")
_DATA = re.compile(r".+-([0-9a-f]{16})\.parquet", re.DOTALL)
_ATTEMPT = re.compile(r"([0-9a-f]{16})(?:\.json|\.parquet)?")
_RECORD = re.compile(r"([0-9]{20})\.json")
_TOPIC = "topic="
_DATE = "date="


def topic_name(topic: str) -> str:
    """The name of a topic's directories."""
    name = topic.encode("utf-8", "surrogatepass")
    whole = "".join(chr(byte) if byte in _KEPT else f"%{byte:02X}" for byte in name)
    if whole[:1] in (".", "_"):
        whole = f"%{ord(whole[0]):02X}{whole[1:]}"
    if not whole:
        raise Usage("a topic without a name cannot be archived")
    if len(whole) <= TOPIC_BYTES_MAX:
        return whole
    digest = sha256(name).hexdigest()
    return f"{whole[: TOPIC_BYTES_MAX - 1 - len(digest)]}~{digest}"


def topic_of(name: str) -> str | None:
    """The topic that has directories of that name. None: the name does not tell."""
    topic = unquote_to_bytes(name).decode("utf-8", "replace")
    return topic if name and topic_name(topic) == name else None


class Attempt(NamedTuple):
    """What tells files of two runs, or of two tries, apart."""

    text: str

    @classmethod
    def begun(cls, time_ms: int) -> Attempt:
        return cls(f"{time_ms & 0xFFF_FFFF_FFFF:011x}{os.urandom(3).hex()[:5]}")

    @property
    def time_ms(self) -> int:
        return int(self.text[:11], 16)


def attempt_of(name: str) -> Attempt | None:
    """Of a data file, of what is unfinished, or of its directory. None: not of this program."""
    found = _DATA.fullmatch(name) or _ATTEMPT.fullmatch(name)
    return Attempt(found[1]) if found is not None else None


def record_of(attempt: Attempt) -> str:
    """What a record is called before it takes its name."""
    return f"{attempt.text}{RECORD_SUFFIX}"


def data_path(
    span: Span, date: str, start: int, end: int, attempt: Attempt, *, flat: bool = False
) -> str:
    """Where a file with these messages is, below the root; `flat`: without names in it."""
    incarnation = sha256(span.incarnation.encode()).hexdigest()[:8]
    what = f"{incarnation}-p{span.partition}-{start:020}-{end:020}-{attempt.text}{SUFFIX}"
    if flat:
        topic = sha256(span.topic.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        return f"{FLAT}/{topic}/{date}/{what}"
    name = topic_name(span.topic)
    return f"{_TOPIC}{name}/{_DATE}{date}/{name}-{what}"


def is_topic_directory(name: str) -> bool:
    return name.startswith(_TOPIC)


def is_date_directory(name: str) -> bool:
    return name.startswith(_DATE)


def record_name(number: int) -> str:
    """Of a commit at that position, or of a snapshot with that number."""
    return f"{number:020}{RECORD_SUFFIX}"


def record_number(name: str) -> int | None:
    """None: it is no record."""
    found = _RECORD.fullmatch(name)
    return int(found[1]) if found else None


def lane_directory(kind: str, topic: str, partition: int) -> str:
    """Of a partition's commits or snapshots, below the root."""
    return f"{kind}/{topic_name(topic)}/{partition}"


def check_path(path: str) -> str:
    """The path of a data file as a record says it. Raises Usage if it is not below the root."""
    parts = PurePosixPath(path).parts
    if not parts or ".." in parts or parts[0].startswith("/"):
        raise Usage(f"{path!r} is not the path of a file in an archive")
    return path
