"""How the C library's allocator keeps memory that was freed.

By itself glibc gives a buffer of 128 KiB or more back to the system at once, and the end of the
heap likewise. A broker asks for as much again a moment later, and the system has to clear each page
anew: for batches of 100 KiB that was a third of the whole work.
"""

from __future__ import annotations

import ctypes
from typing import Final

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # malloc.h

MAPPED_BYTES_MIN: Final = 4 << 20
"""Buffers of that much are mapped by themselves, and given back at once."""

KEPT_BYTES_MAX: Final = 32 << 20
"""This much may lie unused at the end of the heap."""


def keep_freed_memory() -> bool:
    """Have the allocator keep what is freed, within these bounds. False if it is not glibc's: then
    nothing is changed."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(
        mallopt(_M_MMAP_THRESHOLD, MAPPED_BYTES_MIN) and mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES_MAX)
    )
