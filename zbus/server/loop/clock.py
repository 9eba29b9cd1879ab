"""The broker's only clock: epoch milliseconds that count elapsed time, whatever the wall does.

It is set once, at the start, by the system's clock (or the latest time in the log, if that is
later). From there on it counts the time that passes, a suspended machine's included. A change
of the system's clock, by an hour or by a month, has no effect: no lease ends early, no message
expires or comes before its time. Times that come from outside are translated by `ahead_ms`.

A restart changes nothing either, as long as the machine runs: what the clock counts from is kept
beside the logs, and the system counts on while there is no broker. If the system's clock says about
the same, it is believed, so that small corrections add up to nothing.

    zbus clock 1 <boot id> <epoch milliseconds at which the system began to count> <crc32, 8 digits>

The system's count of elapsed time begins anew with the machine, and the id tells one start of the
machine from another: a note of another one is no use, and neither is one that cannot be read. Then
the clock begins as it does in a new directory. So the file is never synced: what a killed process
wrote is there, and a power cut makes it useless anyhow.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final
from zlib import crc32

from zbus.storage.local import naming
from zbus.storage.local.files import Files, opened
from zbus.storage.port import JournalFull


def _elapsed_ns() -> int:
    """Time since some moment, suspension included where the system counts that."""
    return time.clock_gettime_ns(_ELAPSED)


JUMP_MS: Final = 2_000
"""By that much the system's clock may have been corrected, or lie behind the log, unremarked."""

_ELAPSED = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Clock:
    """See above. `wall_ns` and `elapsed_ns` are the system's, unless a test has others."""

    def __init__(
        self,
        not_before_ms: int = 0,
        wall_ns: Callable[[], int] = time.time_ns,
        elapsed_ns: Callable[[], int] = _elapsed_ns,
        zero_ms: int | None = None,
    ) -> None:
        """`not_before_ms` is the latest time in the log, `zero_ms` what the run before counted
        from, if the machine was not started again since."""
        self._wall_ns = wall_ns
        self._elapsed_ns = elapsed_ns
        elapsed, wall = elapsed_ns(), wall_ns()
        start_ms, self.warning = _begin_ms(
            wall // 1_000_000, elapsed // 1_000_000, not_before_ms, zero_ms
        )
        self._zero_ns = (wall if start_ms is None else start_ms * 1_000_000) - elapsed

    @property
    def zero_ms(self) -> int:
        """The time at which the system began to count, rounded up: a time made of it is not
        before one that this clock has told."""
        return -(-self._zero_ns // 1_000_000)

    def now_ms(self) -> int:
        return (self._zero_ns + self._elapsed_ns()) // 1_000_000

    def received_ms(self) -> int:
        """The same, rounded up: what is counted from it never ends early."""
        return -(-(self._zero_ns + self._elapsed_ns()) // 1_000_000)

    def ahead_ms(self) -> int:
        """How far this clock is ahead of the system's, rounded up: so what is due at a time of day
        never is before it. Negative = behind."""
        return -((self._wall_ns() - self._zero_ns - self._elapsed_ns()) // 1_000_000)

    def drift_ms(self) -> int:
        """The same, to the nearest millisecond: a time that this clock has told is found again."""
        return (self._zero_ns + self._elapsed_ns() - self._wall_ns() + 500_000) // 1_000_000


def _begin_ms(
    wall_ms: int, elapsed_ms: int, log_ms: int, zero_ms: int | None
) -> tuple[int | None, str]:
    """The time to begin with, None = the system's; and what people should know of it."""
    if zero_ms is not None:
        counted_ms = zero_ms + elapsed_ms
        jump_ms = wall_ms - counted_ms
        if abs(jump_ms) > JUMP_MS:
            where = "ahead of" if jump_ms > 0 else "behind"
            text = (
                f"the system's clock is {_seconds(jump_ms)} {where} the time that has passed "
                "since an earlier start; the broker goes by the time that has passed"
            )
            return max(counted_ms, log_ms), text
    if log_ms > wall_ms:
        behind_ms = log_ms - wall_ms
        text = (
            f"the system's clock is {_seconds(behind_ms)} behind the latest time in the log; "
            "the broker goes on from there"
        )
        return log_ms, text if behind_ms > JUMP_MS else ""
    return None, ""


def _seconds(ms: int) -> str:
    return f"{abs(ms) // 1000} s"


BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")

_NOTE: Final = re.compile(r"zbus clock 1 ([0-9a-f-]{36}) (-?[0-9]{1,15}) ([0-9a-f]{8})\n")
_BYTES_MAX: Final = 200


def boot_id() -> str:
    """Which start of the machine this is; empty if the system does not tell."""
    try:
        return BOOT_ID.read_text("ascii").strip()
    except (OSError, ValueError):
        return ""


def read_note(files: Files, data_dir: Path, boot: str) -> int | None:
    """What an earlier broker's clock counted from; None if that is not known of this boot."""
    try:
        with opened(files, data_dir / naming.CLOCK, "read") as file:
            text = files.read(file, _BYTES_MAX, 0).decode("ascii", "replace")
    except (OSError, JournalFull):
        return None
    found = _NOTE.fullmatch(text)
    if found is None or found[1] != boot or text != _note(boot, int(found[2])):
        return None
    return int(found[2])


def write_note(files: Files, data_dir: Path, boot: str, zero_ms: int) -> None:
    """Keep it, if that is possible: nothing depends on it."""
    new = data_dir / naming.CLOCK_UNFINISHED
    with suppress(OSError, JournalFull):
        with suppress(FileNotFoundError):  # a crash left it
            files.remove(new)
        with opened(files, new, "create") as file:
            files.write(file, _note(boot, zero_ms).encode(), 0)
        files.rename(new, data_dir / naming.CLOCK)


def _note(boot: str, zero_ms: int) -> str:
    text = f"zbus clock 1 {boot} {zero_ms}"
    return f"{text} {crc32(text.encode()):08x}\n"
