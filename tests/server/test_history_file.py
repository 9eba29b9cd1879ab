"""The two files of the history: damage, power cuts, a full disk. None of it is in the way."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random

import pytest

from zbus.server.watch.history_file import HistoryFile
from zbus.storage.local import naming
from zbus.storage.local.files import OsFiles
from zbus.testing.disk import Disk

FILES = OsFiles()


def loaded(files: OsFiles | Disk, folder: Path) -> bytes | None:
    found: list[bytes] = []
    HistoryFile(files, folder).load(found.append)
    assert len(found) <= 1
    return found[0] if found else None


def written(folder: Path, *states: bytes) -> list[Path]:
    """Save these one after another; the files, the newest last."""
    file = HistoryFile(FILES, folder)
    file.load(lambda data: None)
    for state in states:
        file.close(partial(bytes, state))
    paths = [folder / name for name in naming.HISTORY]
    return sorted((path for path in paths if path.exists()), key=lambda path: path.read_bytes())


def test_the_newest_is_loaded(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert loaded(FILES, tmp_path) is None
    for state in (b"one", b"two, which is longer", b"3", b"", b"five"):
        assert written(tmp_path, state)
        assert loaded(FILES, tmp_path) == state
    assert len(list(tmp_path.iterdir())) == 2
    assert caplog.records == []


def test_a_thread_writes_it(tmp_path: Path) -> None:
    file = HistoryFile(FILES, tmp_path)
    file.save(partial(bytes, b"early"))
    file.close(partial(bytes, b"late"))
    assert loaded(FILES, tmp_path) == b"late"
    assert written(tmp_path)[0].read_bytes().endswith(b"early")


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda raw: b"",
    "cut": lambda raw: raw[:-1],
    "half a head": lambda raw: raw[:20],
    "a bit": lambda raw: raw[:-1] + bytes([raw[-1] ^ 1]),
    "the number": lambda raw: raw[:28] + b"f" + raw[29:],
    "the size": lambda raw: raw[:31] + b"f" + raw[32:],
    "zeros": lambda raw: bytes(len(raw)),
    "another version": lambda raw: raw.replace(b"history 1", b"history 2"),
    "text": lambda raw: b"hello" * 100,
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damage(tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str) -> None:
    older, newer = written(tmp_path, b"older" * 50, b"newer" * 50)
    newer.write_bytes(DAMAGE[name](newer.read_bytes()))
    assert loaded(FILES, tmp_path) == b"older" * 50
    assert caplog.records == [], "as after a crash while it was written"
    older.write_bytes(DAMAGE[name](older.read_bytes()))
    assert loaded(FILES, tmp_path) is None
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    written(tmp_path, b"anew")
    assert loaded(FILES, tmp_path) == b"anew"


def test_a_directory_in_its_place(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for name in naming.HISTORY:
        (tmp_path / name).mkdir()
    assert loaded(FILES, tmp_path) is None
    file = HistoryFile(FILES, tmp_path)
    for _ in range(3):
        file.close(partial(bytes, b"x"))
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * 2


def test_what_the_taker_cannot_use(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    written(tmp_path, b"older", b"newer")
    tried: list[bytes] = []

    def take(data: bytes) -> None:
        tried.append(data)
        raise ValueError("of another form")

    HistoryFile(FILES, tmp_path).load(take)
    assert tried == [b"newer", b"older"]
    assert "of another form" in str(caplog.records[0].__dict__["why"])


def test_a_full_disk(caplog: pytest.LogCaptureFixture) -> None:
    disk, folder = Disk(capacity_bytes=5_000), Path("/data")
    disk.make_directory(folder)
    file = HistoryFile(disk, folder)
    file.close(partial(bytes, b"a" * 1_000))
    for _ in range(3):
        file.close(partial(bytes, b"b" * 9_000))
    assert len(caplog.records) == 1
    assert loaded(disk, folder) == b"a" * 1_000
    file.close(partial(bytes, b"c" * 1_000))
    assert loaded(disk, folder) == b"c" * 1_000


@pytest.mark.parametrize("seed", range(60))
def test_after_a_power_cut_it_is_one_that_was_saved(seed: int) -> None:
    """Or none; and it goes on from there."""
    random = Random(seed)
    disk, folder = Disk(), Path("/data")
    disk.make_directory(folder)
    states: list[bytes] = []
    for _ in range(4):
        file = HistoryFile(disk, folder)
        file.load(lambda data: None)
        for _ in range(random.randrange(4)):
            states.append(random.randbytes(random.randrange(9_000)))
            file.close(partial(bytes, states[-1]))
            if random.random() < 0.3:
                for path in disk.list(folder):
                    opened = disk.open(folder / path, "read")
                    disk.sync(opened)
                    disk.close(opened)
                disk.sync_directory(folder)
        disk = disk.crash(random)
        if "data" in [path.strip("/") for path in disk.list(Path("/"))]:
            assert loaded(disk, folder) in [None, *states]
        else:
            disk.make_directory(folder)
