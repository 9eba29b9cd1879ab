"""What the broker's clock counts from, kept beside the logs while the machine runs.

    zbus clock 1 <boot id> <epoch milliseconds at which the system began to count> <crc32, 8 digits>

The system's count of elapsed time begins anew with the machine, and the id tells one start of the
machine from another: a note of another one is no use, and neither is one that cannot be read. Then
the clock begins as it does in a new directory. So the file is never synced: what a killed process
wrote is there, and a power cut makes it useless anyhow.
"""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from typing import Final
from zlib import crc32

from zbus.storage.local import naming
from zbus.storage.local.files import Files, opened
from zbus.storage.port import JournalFull

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
