"""A directory says how many workers it is for, and topics move when that changes."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import Any

import pytest

from zbus.protocol.places import shard_of
from zbus.server.exits import CannotStart
from zbus.server.process.shards import check_shards, take_shards
from zbus.storage.local import naming
from zbus.storage.local.files import OsFiles
from zbus.storage.local.shards import shards_in
from zbus.storage.port import JournalError
from zbus.storage.tools.sharding import shard

TOPICS = ["orders", "cron.orders", "a{eu}", "b{eu}", "ÄÖ", "txn.x", "txn.x.rows", "shard-9", "Big"]
FILES = OsFiles()


def single(path: Path) -> Path:
    """A directory of one process, with what such a one has."""
    for topic in TOPICS:
        (path / naming.topic_directory(topic) / "0").mkdir(parents=True)
    for name in (
        naming.LANDMARKS,
        naming.IDENTITY,
        naming.CLOCK,
        naming.RESERVE,
        *naming.HISTORY,
    ):
        (path / name).write_bytes(b"x")
    return path


def places(path: Path) -> dict[str, str]:
    """Topics, and the directories that they are in."""
    found: dict[str, str] = {}
    for each in [*path.glob("*/0"), *path.glob("shard=*/*/0")]:
        directory = each.parent
        topic = naming.topic_of(directory.name)
        assert topic is not None
        assert topic not in found, "it is in one place"
        found[topic] = directory.parent.name if directory.parent != path else ""
    return found


def expected(shards: int) -> dict[str, str]:
    if shards == 1:
        return dict.fromkeys(TOPICS, "")
    return {topic: f"shard={shard_of(topic, shards)}" for topic in TOPICS}


def test_a_new_directory_is_marked(tmp_path: Path) -> None:
    assert shards_in(FILES, tmp_path) is None
    check_shards(tmp_path, 1)
    check_shards(tmp_path, 4)
    assert shards_in(FILES, tmp_path) is None
    take_shards(tmp_path, 4)
    assert shards_in(FILES, tmp_path) == 4
    take_shards(tmp_path, 4)
    for other in (1, 2):
        with pytest.raises(CannotStart, match=rf"made for 4 workers, not {other}: start with"):
            check_shards(tmp_path, other)


def test_one_process_made_it(tmp_path: Path) -> None:
    with pytest.raises(CannotStart, match=r"made by one process: start without --workers, or"):
        take_shards(single(tmp_path), 2)
    assert shards_in(FILES, tmp_path) is None


@pytest.mark.parametrize("data", [b"", b"x", b"-1", b"0", b"257", b"1" * 5_000, b"2\n2", b"\xb2"])
def test_a_bad_mark(tmp_path: Path, data: bytes) -> None:
    (tmp_path / naming.SHARDS).write_bytes(data)
    with pytest.raises(CannotStart, match="does not say how many"):
        check_shards(tmp_path, 2)


def test_topics_move(tmp_path: Path) -> None:
    single(tmp_path)
    for shards in (3, 3, 8, 2, 1, 5):
        before = places(tmp_path)
        done = shard(FILES, tmp_path, shards, shard_of)
        wanted = expected(shards)
        assert places(tmp_path) == wanted
        assert done.topics == len(TOPICS)
        assert done.moved == sum(before[topic] != wanted[topic] for topic in TOPICS)
        check_shards(tmp_path, shards)
        kept = {each.name for each in tmp_path.glob("shard=*")}
        assert kept == {f"shard={number}" for number in range(shards) if shards > 1}


class Failing(OsFiles):
    """Stops at its n-th change of the disk."""

    def __init__(self, stop: int) -> None:
        super().__init__()
        self._left = stop

    def _change(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise OSError("it ends here")

    def rename(self, *args: Any) -> None:
        self._change()
        super().rename(*args)

    def remove(self, *args: Any) -> None:
        self._change()
        super().remove(*args)

    def make_directory(self, *args: Any) -> bool:
        self._change()
        return super().make_directory(*args)


@pytest.mark.parametrize(("first", "then"), [(1, 3), (3, 2), (3, 1)])
def test_it_ends_anywhere_and_is_begun_again(tmp_path: Path, first: int, then: int) -> None:
    for stop in count():
        path = tmp_path / str(stop)
        path.mkdir()
        single(path)
        shard(FILES, path, first, shard_of)
        try:
            shard(Failing(stop), path, then, shard_of)
        except (OSError, JournalError):
            for workers in {first, then} if (path / naming.SHARDS_MOVING).exists() else ():
                with pytest.raises(CannotStart, match=f"on their way to {then} shards: run"):
                    check_shards(path, workers)
        else:
            break
        shard(FILES, path, then, shard_of)
        assert places(path) == expected(then)
        check_shards(path, then)
    assert stop > 10


def test_what_cannot_be(tmp_path: Path) -> None:
    for path in (tmp_path / "nothing", tmp_path):
        with pytest.raises(JournalError, match="is empty, or no directory"):
            shard(FILES, path, 2, shard_of)
    long = tmp_path / naming.topic_directory("x" * 300)
    long.mkdir()
    with pytest.raises(JournalError, match="does not say which topic"):
        shard(FILES, tmp_path, 2, shard_of)
