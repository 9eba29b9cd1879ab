"""One file of batches: where it begins, where in it an offset is, and how to walk it.

The index is sparse and made on the way: a pass over a DATA batch notes it, and at most one in
64 KiB is kept. In a segment that was begun in this run that is the writer; in all others it is the
reader's thread, so a log of any size costs nothing at start and a sequential reader never searches.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from zbus.storage.format.batch import HEADER_BYTES, BatchHeader, inspect_header, is_intact, newer
from zbus.storage.local import naming
from zbus.storage.local.files import Files, opened
from zbus.storage.port import JournalDamage, JournalError

INDEX_BYTES: Final = 64 << 10  # at most one entry per that many bytes of file
WINDOW_BYTES: Final = 1 << 20  # read at once when walking


class BadBatch(JournalDamage):
    """There is no whole batch where one should be."""

    def __init__(self, path: Path, position: int, reason: str) -> None:
        super().__init__(f"{path} at byte {position}: {reason}")
        self.position = position
        self.reason = reason


class NewerBatch(JournalError):
    """There is a whole batch of a version that is not known."""


class Segment:
    """See above. Only `note` changes the index, and only one thread at a time calls it."""

    __slots__ = ("_directory", "_offsets", "_positions", "base", "noted", "removed", "size")

    def __init__(self, base: int, directory: Path, noted: bool) -> None:
        self.base = base  # the offset it begins at
        self._directory = directory
        self.noted = noted  # by the writer, from its first batch on: no reader needs to
        self.removed = False
        self.size = 0  # bytes; known for segments that were written or verified here
        self._offsets = array("Q")
        self._positions = array("Q")

    @property
    def path(self) -> Path:
        return self._directory / naming.segment_name(self.base)

    @property
    def has_data(self) -> bool:
        """Whether it holds a DATA batch; only as far as it was noted."""
        return len(self._offsets) > 0

    def note(self, offset: int, position: int) -> None:
        """Remember that the DATA batch beginning with `offset` is at byte `position`."""
        if not self._positions or position - self._positions[-1] >= INDEX_BYTES:
            # In this order, so that a reader in another thread finds a position for each offset.
            self._positions.append(position)
            self._offsets.append(offset)

    def locate(self, offset: int) -> int:
        """Give a position of a batch from which on `offset` will be found."""
        index = bisect_right(self._offsets, offset) - 1
        return self._positions[index] if index >= 0 else 0


def walk(
    files: Files,
    file: int,
    path: Path,
    position: int,
    limit: int,
    window_bytes: int = WINDOW_BYTES,
) -> Iterator[tuple[int, BatchHeader, bytes]]:
    """Give position, header and bytes of each batch up to `limit`, all verified but the chain.

    Raises BadBatch where there is none, and NewerBatch where there is one that only a newer program
    can read: that must not count as an unfinished write.
    """
    for at, header, view in walk_views(files, file, path, position, limit, window_bytes):
        yield at, header, bytes(view)


def walk_views(
    files: Files,
    file: int,
    path: Path,
    position: int,
    limit: int,
    window_bytes: int = WINDOW_BYTES,
) -> Iterator[tuple[int, BatchHeader, memoryview]]:
    """The same without a copy: each view keeps what was read at once in memory."""
    start, window = position, b""
    while position < limit:
        at = position - start
        if len(window) - at < HEADER_BYTES:
            start, at = position, 0
            window = files.read(file, min(window_bytes, limit - position), position)
        header = inspect_header(window, at)
        if isinstance(header, str):
            _refuse_newer(files, file, path, position, limit)
            raise BadBatch(path, position, header)
        length = header.length
        if position + length > limit:
            raise BadBatch(path, position, "batch is cut short")
        if at + length > len(window):
            start, at = position, 0
            count = max(length, min(window_bytes, limit - position))
            window = files.read(file, count, position)
        if at + length > len(window) or not is_intact(window, at, header):
            raise BadBatch(path, position, "checksum is wrong")
        yield position, header, memoryview(window)[at : at + length]
        position += length


def walk_file(
    files: Files, path: Path, position: int = 0, limit: int | None = None
) -> Iterator[tuple[int, BatchHeader, bytes]]:
    """Open a file, walk it, up to its end if there is no `limit`, and close it again."""
    with opened(files, path, "read") as file:
        yield from walk(files, file, path, position, files.size(file) if limit is None else limit)


def _refuse_newer(files: Files, file: int, path: Path, position: int, limit: int) -> None:
    header = newer(files.read(file, HEADER_BYTES, position))
    if header is None or position + header.length > limit:
        return
    if is_intact(files.read(file, header.length, position), 0, header):
        raise NewerBatch(
            f"{path} at byte {position}: a newer zbus wrote this (version {header.version})"
        )
