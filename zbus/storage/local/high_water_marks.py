"""What is known to be on disk, and where recovery may begin: a small file beside the logs.

A log alone cannot tell an unfinished write from damage when several writes were under way: a power
cut may keep the later one and lose the earlier. So once a second it is written down how much of
each lane is synced. Bad bytes below that are damage; at or past it a crash may have left them.

The same entry names the last checkpoint or snapshot in those synced bytes. Recovery begins there
and reads nothing before it, however large the segment is.

    zbus landmarks 1 <crc32 of what follows, 8 hex digits>
    [["<topic's directory>/<partition>",base,first crc,durable,begin,begin crc,end],
    ...]

It is not inside the logs because bodies are hostile: a mark in a log could be forged. The file is
written whole, synced, and renamed over the one before. It only ever claims what is true; it may be
old, or missing, at the price of reading more.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Final
from zlib import crc32

import msgspec

from zbus.storage.local import naming
from zbus.storage.local.files import Files, opened, write_whole
from zbus.storage.port import JournalFull

_HEAD: Final = b"zbus landmarks 1 %08x\n"
_HEAD_BYTES: Final = len(_HEAD % 0)

_Natural = Annotated[int, msgspec.Meta(ge=0)]

log = logging.getLogger("zbus")


class HighWaterMark(msgspec.Struct, array_like=True, frozen=True):
    """One lane's entry; it speaks of the segment that was the newest then."""

    lane: str  # directories of topic and partition, with a slash between
    base: _Natural
    first_crc: _Natural  # of the segment's first batch: tells it from another of the same name
    durable: _Natural  # bytes of it that are synced
    begin: _Natural  # byte of the last checkpoint or snapshot in it
    begin_crc: _Natural  # of that batch
    end: _Natural = 0  # the offset after what is synced: if that is lost, a repair begins there


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(list[HighWaterMark]).decode


class HighWaterMarks:
    """The claims, and which lanes the file on disk may tell of although they are gone."""

    def __init__(self, files: Files, data_dir: Path) -> None:
        self._files = files
        self._data_dir = data_dir
        self._path = data_dir / naming.LANDMARKS
        self._claims: dict[str, HighWaterMark] = {}
        self._saving: list[HighWaterMark] = []  # now, or nothing is
        # Lanes that were removed since `claims`. Their sync may find no file, so nothing of them
        # may be claimed: a power cut may bring the lane back, without its last writes. The worker
        # reads this set when all is synced, and a lane is in it before its files are renamed.
        self._removed: set[str] = set()
        # What was saved last: all true, unless a lane is gone.
        self._known: list[HighWaterMark] = []
        self._ghosts: dict[str, int] = {}  # with a number: a lane may be forgotten again
        self._forgotten = 0
        self._skipped = False  # set by `save`: the disk was full
        self.stale = False  # the file says less than it could, or speaks of lanes that are gone

    def load(self) -> dict[str, HighWaterMark] | None:
        """Give what the file says; None if there is none that can be trusted."""
        try:
            raw = self._read()
        except FileNotFoundError:
            return None
        text = raw[_HEAD_BYTES:]
        try:
            if raw[:_HEAD_BYTES] != _HEAD % crc32(text):
                raise ValueError("its checksum or version is wrong")
            marks = _decode(text)
        except (ValueError, msgspec.MsgspecError) as error:
            log.warning(
                "sync marks unreadable; recovery reads whole segments",
                extra={"file": self._path, "why": error},
            )
            return None
        self._known = marks
        return {mark.lane: mark for mark in marks}

    def _read(self) -> bytes:
        with opened(self._files, self._path, "read") as file:
            return self._files.read(file, self._files.size(file), 0)

    def claim(self, mark: HighWaterMark) -> None:
        """To be saved when what it claims is durable."""
        self._claims[mark.lane] = mark

    def forget(self, lane: str) -> None:
        """The lane is gone, or is not what the file on disk says."""
        self._claims.pop(lane, None)
        self._forgotten += 1
        self._ghosts[lane] = self._forgotten
        self._removed.add(lane)
        self.stale = True

    def haunts(self, lane: str) -> bool:
        """Whether the file on disk may speak of a former lane of that name."""
        return lane in self._ghosts

    def claims(self) -> list[HighWaterMark]:
        """What is to be saved now; `saved` has to follow."""
        self.stale = False
        self._saving = list(self._claims.values())
        self._removed.clear()
        return self._saving

    def saved(self, ghosts: Mapping[str, int]) -> None:
        """`save` has returned; the file is free of these ghosts, of which `ghosts` told before."""
        saved, self._saving = self._saving, []
        if self._skipped:
            self._skipped, self.stale = False, True
            return
        self._known = saved
        for lane, number in ghosts.items():
            if self._ghosts.get(lane) == number:
                del self._ghosts[lane]

    def ghosts(self) -> dict[str, int]:
        return dict(self._ghosts)

    def lay_ghosts(self) -> bool:
        """Take all ghosts out of the file, here and now, with three syncs. It says less than it
        could then, until it is saved. False: they are being saved, or the disk is full."""
        ghosts = self._ghosts
        if any(mark.lane in ghosts for mark in self._saving):
            return False
        try:
            left = [mark for mark in self._known if mark.lane not in ghosts]
            self._write(left, naming.LANDMARKS_PRUNED)
        except JournalFull:
            return False
        self._known, self._ghosts, self.stale = left, {}, True
        return True

    def save(self, marks: Iterable[HighWaterMark]) -> None:
        """Write the file anew. On the syncing thread; a full disk only puts it off."""
        left = [mark for mark in marks if mark.lane not in self._removed]
        try:
            self._write(left, naming.LANDMARKS_UNFINISHED)
        except JournalFull:
            self._skipped = True

    def _write(self, marks: Iterable[HighWaterMark], unfinished: str) -> None:
        text = b"[%b]\n" % b",\n".join([_encode(mark) for mark in marks])
        made = self._data_dir / unfinished
        write_whole(self._files, self._path, made, _HEAD % crc32(text) + text)
