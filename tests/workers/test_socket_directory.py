"""Directories of sockets that killed servers have left behind go; all others stay."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from zbus.workers.socket_directory import PREFIX, make_directory


def left(path: Path) -> None:
    path.mkdir(mode=0o700)
    (path / "asked-0").touch()


def of_another_program(path: Path) -> None:
    path.with_name("other-1").mkdir(mode=0o700)


def readable_by_others(path: Path) -> None:
    path.mkdir()
    path.chmod(0o755)


def a_file(path: Path) -> None:
    path.touch(mode=0o700)


def a_link(path: Path) -> None:
    left(path.with_name("elsewhere"))
    path.symlink_to(path.with_name("elsewhere"))


@pytest.mark.parametrize(
    ("make", "stays"),
    [
        (left, False),
        (of_another_program, True),
        (readable_by_others, True),
        (a_file, True),
        (a_link, True),
    ],
)
def test_what_goes(tmp_path: Path, make: Callable[[Path], None], stays: bool) -> None:
    make(tmp_path / f"{PREFIX}x")
    before = {path for path in tmp_path.rglob("*")}
    made = make_directory(tmp_path)
    assert made.stat().st_mode & 0o777 == 0o700
    assert (before <= {*tmp_path.rglob("*")}) is stays


def test_those_of_servers_that_run_stay(tmp_path: Path) -> None:
    first = make_directory(tmp_path)
    second = make_directory(tmp_path)
    assert first.exists()
    assert second.exists()
    file = os.open(second, os.O_RDONLY)
    with pytest.raises(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(file)


def test_servers_that_start_at_once_leave_each_other_theirs(tmp_path: Path) -> None:
    """One may look for what was left while another one has just made its own."""
    with ThreadPoolExecutor(8) as starting:
        made = list(starting.map(make_directory, [tmp_path] * 200))
    assert all(path.exists() for path in made)
    assert len(set(made)) == 200
