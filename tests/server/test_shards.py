"""A directory says how many workers it is for."""

from __future__ import annotations

from pathlib import Path

import pytest

from zbus.server.exits import CannotStart
from zbus.server.process.shards import MARK, check_shards, shards_in


def test_a_new_directory_is_marked(tmp_path: Path) -> None:
    assert shards_in(tmp_path) is None
    check_shards(tmp_path, 4)
    assert shards_in(tmp_path) == 4
    check_shards(tmp_path, 4)
    with pytest.raises(CannotStart, match=r"made for 4 workers, not 2: start with --workers 4, or"):
        check_shards(tmp_path, 2)


def test_one_process_made_it(tmp_path: Path) -> None:
    (tmp_path / "MyTopic").mkdir()
    with pytest.raises(CannotStart, match=r"made by one process: start without --workers, or"):
        check_shards(tmp_path, 2)
    assert shards_in(tmp_path) is None


@pytest.mark.parametrize("data", [b"", b"x", b"-1", b"0", b"257", b"1" * 5_000, b"2\n2"])
def test_a_bad_mark(tmp_path: Path, data: bytes) -> None:
    (tmp_path / MARK).write_bytes(data)
    with pytest.raises(CannotStart, match="does not say how many"):
        shards_in(tmp_path)
