"""Space kept free for acknowledgements: a full disk may refuse a message, never an ack.

A file of some megabytes that holds nothing. When an append without messages meets a full disk,
the file is removed and the append tried again. While the file is missing, messages are refused
even if they would fit: what is free then belongs to acks. It is made again as soon as that works.

Several processes on one disk have a reserve each. What one of them gives away is free for all, so
all refuse messages until it has it again (`SharedReserves`).
"""

from __future__ import annotations

import mmap
from contextlib import suppress
from pathlib import Path
from typing import Final

import attrs

from zbus.storage.local.files import Files
from zbus.storage.port import JournalFull

RESERVE_BYTES: Final = 8 << 20
TRY_EVERY: Final = 8  # refused appends: making the file is a call to a disk that is likely full


_MISSING: Final = b"\1"


@attrs.frozen
class SharedReserves:
    """Which processes lack their reserve: a byte of shared memory for each."""

    memory: mmap.mmap
    own: int = 0  # the number of this process

    @classmethod
    def make(cls, count: int) -> SharedReserves:
        """For so many processes, before they are forked."""
        return cls(mmap.mmap(-1, count))

    def tell(self, ready: bool) -> None:
        """Whether this process has its own."""
        self.memory[self.own] = not ready

    def complete(self) -> bool:
        """None is missing."""
        return self.memory.find(_MISSING, 0) < 0


class Reserve:
    """See above. A size of 0 means none."""

    def __init__(
        self, files: Files, path: Path, size_bytes: int, shared: SharedReserves | None = None
    ) -> None:
        self._files = files
        self._path = path
        self._size_bytes = size_bytes
        self._shared = shared
        self._refused = 0
        self.ready = False
        self._try()

    def require(self) -> None:
        """Raise JournalFull unless there is a reserve, or one can be made now."""
        if not self.ready and self._refused % TRY_EVERY == 0:
            self._try()
        if self.ready and (self._shared is None or self._shared.complete()):
            self._refused = 0
            return
        self._refused += 1
        raise JournalFull("no space left: what is free is kept for acknowledgements")

    def upkeep(self) -> None:
        """Other processes wait for it, and this one may be asked to store nothing."""
        if self._shared is not None and not self.ready:
            self._try()

    def _try(self) -> None:
        self._set(self._make())

    def _set(self, ready: bool) -> None:
        self.ready = ready
        if self._shared is not None:
            self._shared.tell(ready)

    def free(self) -> bool:
        """Give the space away; False if there was none to give."""
        if not self.ready or self._size_bytes == 0:
            return False
        self._set(False)  # before others could take it
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
