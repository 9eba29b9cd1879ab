"""Space kept free for acknowledgements: a full disk may refuse a message, never an ack.

A file of some megabytes that holds nothing. When an append without messages meets a full disk,
the file is removed and the append tried again. While the file is missing, messages are refused
even if they would fit: what is free then belongs to acks. It is made again as soon as that works.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Final

from zbus.storage.local.files import Files
from zbus.storage.port import JournalFull

RESERVE_BYTES: Final = 8 << 20
TRY_EVERY: Final = 8  # refused appends: making the file is a call to a disk that is likely full


class Reserve:
    """See above. A size of 0 means none."""

    def __init__(self, files: Files, path: Path, size_bytes: int) -> None:
        self._files = files
        self._path = path
        self._size_bytes = size_bytes
        self._refused = 0
        self.ready = self._make()

    def require(self) -> None:
        """Raise JournalFull unless there is a reserve, or one can be made now."""
        if self.ready:
            return
        if self._refused % TRY_EVERY == 0:
            self.ready = self._make()
        if self.ready:
            self._refused = 0
            return
        self._refused += 1
        raise JournalFull("no space left: what is free is kept for acknowledgements")

    def free(self) -> bool:
        """Give the space away; False if there was none to give."""
        if not self.ready or self._size_bytes == 0:
            return False
        self.ready = False
        self._refused = 0
        with suppress(FileNotFoundError):  # an operator freed it by hand
            self._files.remove(self._path)
        return True

    def _make(self) -> bool:
        if self._size_bytes == 0:
            return True
        try:
            file = self._open()
        except JournalFull:
            return False
        try:
            self._files.allocate(file, self._size_bytes)
        except JournalFull:
            self._files.remove(self._path)  # gives back what it got of it
            return False
        except OSError:  # not every file system can; then there is no reserve, and no refusal
            self._files.remove(self._path)
            self._size_bytes = 0
        finally:
            self._files.close(file)
        return True

    def _open(self) -> int:
        try:
            return self._files.open(self._path, "create")
        except FileExistsError:
            return self._files.open(self._path, "write")
