"""What is left of disk and memory, as the operating system tells. Tests have their own."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Protocol

_PROC = Path("/proc")
_CGROUPS = Path("/sys/fs/cgroup")


class Space(NamedTuple):
    """Of a file system, in bytes."""

    free: int  # to users other than root
    total: int


class SystemStats(Protocol):
    """Each answer is None where the system does not tell."""

    def disk(self, path: Path) -> Space | None: ...

    def memory_used(self) -> int | None:
        """Resident bytes of this process."""

    def memory_total(self) -> int | None:
        """Bytes that this process could have: of its cgroup, or of the machine."""

    def memory_free(self) -> int | None:
        """Bytes of the heap that are free, whether or not the system has them back."""

    def trim_memory(self) -> None:
        """Give memory that is free in this process back to the system."""


class _Heap(ctypes.Structure):
    """`struct mallinfo2` of malloc.h."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            "arena",
            "ordblks",
            "smblks",
            "hblks",
            "hblkhd",
            "usmblks",
            "fsmblks",
            "uordblks",
            "fordblks",
            "keepcost",
        )
    )

    fordblks: int


class OsStats:
    """The real ones; `proc` and `cgroups` are where Linux shows its figures."""

    def __init__(self, proc: Path = _PROC, cgroups: Path = _CGROUPS) -> None:
        self._proc = proc
        self._cgroups = cgroups
        self._page_bytes = os.sysconf("SC_PAGE_SIZE")
        self._trim: Callable[[int], object] | None = None
        self._heap: Callable[[], _Heap] | None = None
        with suppress(AttributeError, OSError):  # they are glibc's alone
            library = ctypes.CDLL(None)
            self._trim = library.malloc_trim
            self._heap = library.mallinfo2
            library.mallinfo2.restype = _Heap

    def disk(self, path: Path) -> Space | None:
        try:
            found = os.statvfs(path)
        except OSError:
            return None
        return Space(found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize)

    def memory_used(self) -> int | None:
        words = _text(self._proc / "self/statm").split()
        return int(words[1]) * self._page_bytes if len(words) > 1 else None

    def memory_total(self) -> int | None:
        limits = [limit for path in self._limit_files() if (limit := _limit(path)) is not None]
        pages = os.sysconf("SC_PHYS_PAGES")
        if pages > 0:
            limits.append(pages * self._page_bytes)
        return min(limits, default=None)

    def _limit_files(self) -> list[Path]:
        """Where this process's cgroup and those above it say how much they may have."""
        files: list[Path] = []
        for line in _text(self._proc / "self/cgroup").splitlines():
            _, controllers, path = [*line.split(":", 2), "", ""][:3]
            if not controllers:
                root, name = self._cgroups, "memory.max"
            elif "memory" in controllers.split(","):
                root, name = self._cgroups / "memory", "memory.limit_in_bytes"
            else:
                continue
            # In a container the path may be the host's, while its own limit is at the root.
            group = Path(path.lstrip("/"))
            files.extend(root / part / name for part in (group, *group.parents))
        return files

    def memory_free(self) -> int | None:
        return None if self._heap is None else self._heap().fordblks

    def trim_memory(self) -> None:
        if self._trim is not None:
            self._trim(0)


def _limit(path: Path) -> int | None:
    text = _text(path).strip()
    return int(text) if text.isdecimal() else None  # `max` is no limit


def _text(path: Path) -> str:
    with suppress(OSError, UnicodeDecodeError):
        return path.read_text(encoding="ascii")
    return ""
