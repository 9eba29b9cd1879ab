"""The broker's clock over restarts: what it begins with, whatever was done to the system's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from zbus.server.loop.clock import JUMP_MS, Clock, boot_id, read_note, write_note
from zbus.storage.local.files import OsFiles

FILES = OsFiles()
BOOT = "5f0c2a5e-3d0c-4a43-9ad3-2a4f4c1f5d10"
WALL_MS = 1_800_000_000_000
HOUR_MS = 3_600_000
BROKEN_MS = 60_000  # there was no broker for so long

# name, what was done to the system's clock meanwhile, and what the broker's clock is then behind
# (or, below 0, ahead) of the system's; whether people are told.
STEPS = [
    ("nothing", 0, 0, ""),
    ("corrected forward", JUMP_MS, 0, ""),
    ("corrected back", -JUMP_MS, 0, ""),
    ("forward", HOUR_MS, HOUR_MS, "3600 s ahead of the time that has passed"),
    ("back", -HOUR_MS, -HOUR_MS, "3600 s behind the time that has passed"),
    ("a month forward", 720 * HOUR_MS, 720 * HOUR_MS, "2592000 s ahead"),
]


def clock_of(wall_ms: int, elapsed_ms: int, log_ms: int, note: int | None) -> Clock:
    return Clock(log_ms, lambda: wall_ms * 1_000_000, lambda: elapsed_ms * 1_000_000, note)


@pytest.mark.parametrize(
    ("step_ms", "behind_ms", "said"), [row[1:] for row in STEPS], ids=[row[0] for row in STEPS]
)
def test_time_that_passed_counts_over_a_restart(
    tmp_path: Path, step_ms: int, behind_ms: int, said: str
) -> None:
    first = clock_of(WALL_MS, 5_000, 0, None)
    write_note(FILES, tmp_path, BOOT, first.zero_ms)
    log_ms = first.now_ms()
    wall_ms, elapsed_ms = WALL_MS + BROKEN_MS + step_ms, 5_000 + BROKEN_MS
    for _ in range(3):  # with the third start it is as with the second
        clock = clock_of(wall_ms, elapsed_ms, log_ms, read_note(FILES, tmp_path, BOOT))
        assert clock.now_ms() == wall_ms - behind_ms
        assert said in clock.warning if said else not clock.warning
        write_note(FILES, tmp_path, BOOT, clock.zero_ms)


def flip(text: bytes) -> bytes:
    return text.replace(b" 17", b" 16", 1)


def as_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


# What may have become of the note; in all of them the clock begins as the system's.
NOTES: dict[str, Callable[[Path], object]] = {
    "none": lambda path: path.unlink(),
    "empty": lambda path: path.write_bytes(b""),
    "torn": lambda path: path.write_bytes(path.read_bytes()[:-3]),
    "zeros": lambda path: path.write_bytes(bytes(80)),
    "flipped": lambda path: path.write_bytes(flip(path.read_bytes())),
    "longer": lambda path: path.write_bytes(path.read_bytes() * 9),
    "another boot": lambda path: write_note(FILES, path.parent, BOOT[:-1] + "1", 7),
    "a directory": as_directory,
}


@pytest.mark.parametrize("how", NOTES.values(), ids=NOTES.keys())
@pytest.mark.parametrize(
    ("log_ms", "said"),
    [
        (WALL_MS - HOUR_MS, ""),
        (WALL_MS + JUMP_MS, ""),
        (WALL_MS + HOUR_MS, "3600 s behind the latest time in the log"),
    ],
)
def test_without_a_note_the_system_and_the_log_decide(
    tmp_path: Path, how: Callable[[Path], object], log_ms: int, said: str
) -> None:
    write_note(FILES, tmp_path, BOOT, WALL_MS - 7 * HOUR_MS)
    how(tmp_path / ".clock")
    note = read_note(FILES, tmp_path, BOOT)
    assert note is None
    clock = clock_of(WALL_MS, 5_000, log_ms, note)
    assert clock.now_ms() == max(WALL_MS, log_ms)
    assert said in clock.warning if said else not clock.warning


def test_the_log_is_never_ahead_of_the_clock() -> None:
    """Nor if somebody put an old note there."""
    clock = clock_of(WALL_MS, 5_000, WALL_MS + 9, WALL_MS - HOUR_MS)
    assert clock.now_ms() == WALL_MS + 9


def test_a_note_that_cannot_be_written_stops_nobody(tmp_path: Path) -> None:
    write_note(FILES, tmp_path / "missing", BOOT, 1)
    (tmp_path / ".clock").mkdir()
    write_note(FILES, tmp_path, BOOT, 1)
    assert read_note(FILES, tmp_path, BOOT) is None


def test_this_system_tells_its_boot(tmp_path: Path) -> None:
    boot = boot_id()
    write_note(FILES, tmp_path, boot, 17)
    assert read_note(FILES, tmp_path, boot) == (17 if boot else None)
