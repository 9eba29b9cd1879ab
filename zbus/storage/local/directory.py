"""The data directory itself: made, locked, and distinguished from one of an older program."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from zbus.storage.local import naming
from zbus.storage.local.files import Files, make_directories, opened, reason
from zbus.storage.local.identity import refuse_backup
from zbus.storage.port import JournalError, JournalFull


def take_directory(files: Files, data_dir: Path) -> int:
    """Make the directory if it is missing, and lock it; give the lock."""
    lock = data_dir / naming.LOCK
    try:
        refuse_backup(files, data_dir)
        make_directories(files, data_dir)
        file = files.open(lock, "lock")
        files.truncate(file, 0)
    except BlockingIOError as error:
        owner = owner_of(files, lock)
        raise JournalError(f"{data_dir} is in use by another process ({owner})") from error
    except NotADirectoryError as error:
        raise JournalError(f"{data_dir} cannot hold data: it is not a directory") from error
    except OSError as error:
        raise JournalError(f"{data_dir} cannot hold data: {reason(error, data_dir)}") from error
    except JournalFull as error:
        raise JournalError(f"{data_dir} cannot hold data: {error}") from error
    with suppress(JournalFull):  # a full disk is no reason not to start: it may get emptied
        files.write(file, b"pid %-10d\n" % os.getpid(), 0)
    return file


def make_way(files: Files, data_dir: Path) -> None:
    """Some topics have other directories since their names are files'."""
    for name in naming.TAKEN_LATE:
        with suppress(FileNotFoundError, NotADirectoryError):
            files.list(data_dir / name)
            files.rename(data_dir / name, data_dir / naming.topic_directory(name))
            files.sync_directory(data_dir)


def owner_of(files: Files, lock: Path) -> str:
    """Give what the holder of a lock wrote into it."""
    with opened(files, lock, "read") as file:
        return files.read(file, 40, 0).decode("ascii", "replace").strip() or "pid unknown"


def remove_tree(files: Files, path: Path) -> None:
    """Remove a file, or a directory and all that is in it."""
    with suppress(NotADirectoryError):
        for name in files.list(path):
            remove_tree(files, path / name)
    files.remove(path)
