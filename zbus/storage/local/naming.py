"""Names on disk: any topic, and any number, as a file name that is safe, unique and sortable.

A topic's name may be any text; a directory's may not. Letters, digits, `-`, `_` and `.` stand for
themselves, every other byte of the UTF-8 is `%XX`. A dot in front is written `%2E` (no hidden
names, no `..`), and so is the first letter of a name the journal needs for itself. What would be
too long is cut and gets a digest behind a `~`, a character that occurs nowhere else. So different
topics have different directories; which topic it is, the checkpoint inside says.
"""

from __future__ import annotations

import re
from hashlib import sha256
from pathlib import Path
from typing import Final
from urllib.parse import unquote_to_bytes

NAME_BYTES_MAX: Final = 255  # what common file systems allow
LOCK: Final = "lock"
RESERVE: Final = "reserve"
LANDMARKS: Final = "landmarks"
LANDMARKS_UNFINISHED: Final = ".landmarks.new"  # before they take the name; no topic begins so
LANDMARKS_PRUNED: Final = ".landmarks.pruned"  # the same; both may be written at a time
IDENTITY: Final = "identity"
IDENTITY_UNFINISHED: Final = ".identity.new"
CLOCK: Final = ".clock"  # what the broker's clock counts from; no topic begins so
CLOCK_UNFINISHED: Final = ".clock.new"
HISTORY: Final = (".history.0", ".history.1")  # rates of the last week; no topic begins so
MANIFEST: Final = "manifest.json"  # of a backup; no data directory has it
SHARDS: Final = ".shards"  # how many processes share the topics; no topic begins so
SHARDS_UNFINISHED: Final = ".shards.new"
SHARDS_MOVING: Final = ".shards.moving"  # the same number, while topics move
SEGMENT_SUFFIX: Final = ".log"
UNFINISHED_SUFFIX: Final = ".new"  # a segment's replacement, before it takes the name
TORN_SUFFIX: Final = ".torn"  # a segment, or with `-<position>` the end of one, set aside
MOVED_SUFFIX: Final = ".moved"  # a segment on its way from a wrong name to its own
REMOVED_PREFIX: Final = ".removed-"  # a lane or segment that is forgotten, before its space is free

QUARANTINE: Final = "quarantine"  # what a repair took out of the logs
TAKEN_LATE: Final = (LANDMARKS, IDENTITY, MANIFEST)
"""Names that were a topic's directory in early versions, and are not any more."""
_OWN: Final = (LOCK, RESERVE, QUARANTINE, *TAKEN_LATE)

_KEPT = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_."
_TOPIC_DIRECTORY = re.compile(r"[A-Za-z0-9_%~-][A-Za-z0-9._%~-]*")
_SEGMENT = re.compile(r"[0-9]{20}\.log")
_PARTITION = re.compile(r"0|[1-9][0-9]{0,8}")


def topic_directory(topic: str) -> str:
    """Give the name of a topic's directory."""
    name = topic.encode("utf-8", "surrogatepass")
    whole = topic
    if name.translate(None, _KEPT):
        whole = "".join(chr(byte) if byte in _KEPT else f"%{byte:02X}" for byte in name)
    if whole.startswith(".") or whole in _OWN:
        whole = f"%{ord(whole[0]):02X}{whole[1:]}"
    if 0 < len(whole) <= NAME_BYTES_MAX:
        return whole
    digest = sha256(name).hexdigest()
    return f"{whole[: NAME_BYTES_MAX - 1 - len(digest)]}~{digest}"


def is_topic_directory(name: str) -> bool:
    """Tell whether the journal may have made a directory of that name for a topic."""
    return name not in _OWN and _TOPIC_DIRECTORY.fullmatch(name) is not None


def lane_key(directory: Path) -> str:
    """Give the name by which landmarks know the lane in that directory."""
    return f"{directory.parent.name}/{directory.name}"


def topic_of(directory: str) -> str | None:
    """Give the topic that has a directory of that name; None if the name does not tell."""
    try:
        topic = unquote_to_bytes(directory).decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return None
    return topic if topic_directory(topic) == directory else None


def partition_number(name: str) -> int | None:
    """Give the partition whose directory has that name."""
    return int(name) if _PARTITION.fullmatch(name) else None


def segment_name(base_offset: int) -> str:
    """Give the file name of the segment that begins at `base_offset`."""
    return f"{base_offset:020}{SEGMENT_SUFFIX}"


def segment_base(name: str) -> int | None:
    """Give the offset at which the segment of that file name begins."""
    return int(name[:20]) if _SEGMENT.fullmatch(name) else None
