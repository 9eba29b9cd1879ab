"""The history of the broker's rates, kept over restarts in two files of the data directory.

    zbus history 1 <number, 16 hex digits> <bytes that follow, 8> <crc32 of number and bytes, 8>
    ...

They are written in turn, every few minutes and at the end, by a thread of its own, and never
synced: so a power cut may spoil the one that is being written, and the other is some minutes older.
Nothing depends on them. What cannot be read is left out, a disk that is full is tried again, and
the broker starts and serves in any case.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Final
from zlib import crc32

from zbus.storage.local import naming
from zbus.storage.local.files import Files, opened
from zbus.storage.port import JournalFull

BYTES_MAX: Final = 32 << 20
JOIN_S: Final = 2.0

_HEAD: Final = b"zbus history 1 %016x %08x %08x\n"
_HEAD_BYTES: Final = len(_HEAD % (0, 0, 0))
_READ: Final = re.compile(rb"zbus history 1 ([0-9a-f]{16}) ([0-9a-f]{8}) ([0-9a-f]{8})\n")

log = logging.getLogger("zbus")


class HistoryFile:
    """The two files; one call at a time."""

    def __init__(self, files: Files, data_dir: Path) -> None:
        self._files = files
        self._paths = [data_dir / name for name in naming.HISTORY]
        self._number = 0  # of the newest that was found or written
        self._thread: Thread | None = None
        self._failed = False

    def load(self, take: Callable[[bytes], None]) -> None:
        """Give the newest that is whole to `take`, which raises ValueError if it cannot use it."""
        found: list[tuple[int, bytes]] = []
        problem: Exception | None = None
        for path in self._paths:
            try:
                found.append(self._read(path))
            except FileNotFoundError:
                pass
            except (OSError, ValueError, JournalFull) as error:
                problem = error
        for number, data in sorted(found, reverse=True):
            self._number = max(self._number, number)
            try:
                take(data)
                return
            except ValueError as error:
                problem = error
        if problem is not None:
            fields = {"file": self._paths[0], "why": problem}
            log.warning("history of rates unreadable; it begins anew", extra=fields)

    def _read(self, path: Path) -> tuple[int, bytes]:
        with opened(self._files, path, "read") as file:
            head = _READ.fullmatch(self._files.read(file, _HEAD_BYTES, 0))
            if head is None:
                raise ValueError("it does not begin as a history does")
            number, size, checksum = [int(digits, 16) for digits in head.groups()]
            data = self._files.read(file, min(size, BYTES_MAX), _HEAD_BYTES)
        if checksum != _checksum(number, data) or size != len(data):
            raise ValueError("its checksum is wrong")
        return number, data

    def save(self, make: Callable[[], bytes]) -> None:
        """Begin to write what this gives, unless the last one is not written yet."""
        if self._thread is None or not self._thread.is_alive():
            self._thread = Thread(target=self._write, args=(make,), name="zbus-history")
            self._thread.daemon = True  # a disk that does not answer does not keep the process
            self._thread.start()

    def close(self, make: Callable[[], bytes]) -> None:
        """Write it now, if the disk answers."""
        if self._thread is not None:
            self._thread.join(JOIN_S)
        if self._thread is None or not self._thread.is_alive():
            self._write(make)

    def _write(self, make: Callable[[], bytes]) -> None:
        data = make()
        number = self._number + 1
        path = self._paths[number % 2]
        head = _HEAD % (number, len(data), _checksum(number, data))
        try:
            try:
                file = self._files.open(path, "write")
            except FileNotFoundError:
                file = self._files.open(path, "create")
            try:
                self._files.write(file, head + data, 0)
            finally:
                self._files.close(file)
        except (OSError, JournalFull) as error:
            if not self._failed:
                fields = {"file": path, "why": error}
                log.warning("history of rates not written; tried again later", extra=fields)
            self._failed = True
            return
        self._number, self._failed = number, False


def _checksum(number: int, data: bytes) -> int:
    return crc32(data, crc32(b"%016x" % number))
