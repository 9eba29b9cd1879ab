"""Whatever a disk does to a log: it is found, and a repair keeps all that could be read."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from tests.limits import checked
from tests.storage.damage import VERSION_1, intact, places, started, write_logs
from zbus.core.cursor.backlog import Backlog
from zbus.storage.local.files import OsFiles
from zbus.storage.tools.checkup import as_json, check_up
from zbus.storage.tools.placeholders import LOST_LINE

FILES = OsFiles()


@pytest.fixture(scope="module", params=["one version", "two versions"])
def logs(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    data_dir = tmp_path_factory.mktemp("logs") / "data"
    if request.param == "two versions":
        shutil.copytree(VERSION_1 / "log", data_dir)
    write_logs(data_dir)
    return data_dir


def content(data_dir: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(data_dir)): path.read_bytes()
        for path in sorted(data_dir.rglob("*"))
        if path.is_file()
    }


def flip(chance: random.Random, path: Path) -> None:
    data = bytearray(path.read_bytes())
    for _ in range(chance.choice((1, 1, 1, 3, 20))):
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    path.write_bytes(data)


def zeros(chance: random.Random, path: Path) -> None:
    data = bytearray(path.read_bytes())
    start = chance.randrange(len(data))
    size = chance.choice((8, 100, 512, 2000, 10_000))
    data[start : start + size] = bytes(len(data[start : start + size]))
    path.write_bytes(data)


def cut(chance: random.Random, path: Path) -> None:
    data = path.read_bytes()
    start = chance.randrange(len(data))
    path.write_bytes(data[:start] + data[start + chance.choice((1, 8, 500, 3000, 100_000)) :])


def insert(chance: random.Random, path: Path) -> None:
    data = path.read_bytes()
    at, start = chance.randrange(len(data)), chance.randrange(len(data))
    more = chance.choice((b"x", bytes(100), data[start : start + chance.randrange(3000)]))
    path.write_bytes(data[:at] + more + data[at:])


def overwrite(chance: random.Random, path: Path) -> None:
    data = bytearray(path.read_bytes())
    other = chance.choice(sorted(path.parent.glob("*.log"))).read_bytes()
    start, size = chance.randrange(len(data)), chance.randrange(4000)
    piece = other[start : start + size][: len(data) - start]
    data[start : start + len(piece)] = piece
    path.write_bytes(data)


def remove(chance: random.Random, path: Path) -> None:
    path.unlink()


def duplicate(chance: random.Random, path: Path) -> None:
    topics = path.parent.parent.parent
    others = {*topics.glob("*/*/*.log")} - {*path.parent.parent.glob("*/*.log")}
    other = chance.choice(sorted({*path.parent.glob("*.log"), *others}))
    if other != path:
        path.write_bytes(other.read_bytes())


def swap(chance: random.Random, path: Path) -> None:
    other = chance.choice(sorted(path.parent.glob("*.log")))
    mine, its = path.read_bytes(), other.read_bytes()
    path.write_bytes(its)
    other.write_bytes(mine)


RUINS = (flip, flip, zeros, cut, insert, overwrite, remove, duplicate, swap)


def to_do(backlog: Backlog, end: int) -> set[int]:
    """The offsets below `end` that a group has not finished."""
    exceptions = {*backlog.leased, *backlog.delayed, *backlog.places}
    return exceptions | {at for at in range(backlog.cursor, end) if at not in backlog.ahead}


def pending(data_dir: Path) -> dict[tuple[str, str, int], set[int]]:
    return {
        (topic.name, group.name, index): to_do(group.backlogs[index], partition.end)
        for topic in started(data_dir)
        for index, partition in enumerate(topic.partitions)
        for group in topic.groups.values()
    }


def still_there(logs: Path, data_dir: Path, misplaced: set[str]) -> set[tuple[str, str, int]]:
    """The offsets whose batches are whole where they belong, or in a segment that can go there."""
    found = set()
    for path, start, stop, _, first, end in places(logs):
        raw = path.read_bytes()[start:stop]
        own = data_dir / path.relative_to(logs)
        files = [own] if own.exists() else []
        if str(own) in misplaced or not own.exists():
            files += [file for file in own.parent.glob("*.log") if str(file) in misplaced]
        if any(raw in file.read_bytes() for file in files):
            found |= {(path.parts[-3], path.parts[-2], at) for at in range(first, end)}
    return found


def ruin(logs: Path, data_dir: Path, seed: int) -> None:
    shutil.copytree(logs, data_dir)
    chance = random.Random(seed)
    for _ in range(chance.choice((1, 1, 2, 4))):
        path = chance.choice(sorted(data_dir.glob("*/*/*.log")))
        if path.stat().st_size:
            chance.choice(RUINS)(chance, path)


def in_quarantine(data_dir: Path, piece: bytes) -> bool:
    kept = [path for path in (data_dir / "quarantine").rglob("*") if path.is_file()]
    return any(piece in path.read_bytes() for path in kept)


@pytest.mark.parametrize(
    "seed", [*range(8), 253, 658, *checked(range(8, 60))]
)  # 253: a piece is there twice; 658 ruins how a synced segment begins
def test_repair_keeps_what_can_be_read(logs: Path, tmp_path: Path, seed: int) -> None:
    data_dir = tmp_path / "data"
    ruin(logs, data_dir, seed)
    before = content(data_dir)
    found = check_up(FILES, data_dir)
    misplaced = {str(path) for lane in found.lanes for path in lane.misplaced}
    good = still_there(logs, data_dir, misplaced)
    assert content(data_dir) == before  # looking changes nothing
    repaired = check_up(FILES, data_dir, repair=True)
    assert repaired.left == []
    if found.damaged:
        assert repaired.repaired
        for lane in as_json(found)["partitions"]:
            for hole in lane["damage"]:
                name = str(Path(hole["file"]).relative_to(data_dir))
                piece = before[name][hole["start"] : hole["stop"]]
                assert not piece or in_quarantine(data_dir, piece)
    else:
        assert content(data_dir) == before
    again = check_up(FILES, data_dir)
    assert not again.damaged, again.left

    afterwards = pending(data_dir)  # the broker starts
    original, served = intact(logs), intact(data_dir)
    for place, message in served.items():
        if message.headers == LOST_LINE:
            assert place not in good
        else:
            assert message == original[place]
    lanes = {(topic, partition) for topic, partition, _ in served}
    lost = {place for place in good if place not in served and place[:2] in lanes}
    assert not lost
    for (topic, group, index), wanted in pending(logs).items():
        kept = afterwards.get((topic, group, index))
        if kept is not None:
            assert wanted & {at for t, p, at in served if (t, p) == (topic, str(index))} <= kept
