"""Two disk-full cycles (`make disk-full` runs a hundred)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.process.disk_full import MIB, WATERMARK, FullCycles
from tests.process.small_disk import SmallDisk, small_disk
from zbus.config import OPTIONS


@pytest.mark.parametrize("keep_free_bytes", [0, 4 * MIB] if WATERMARK in OPTIONS else [0])
def test_full_and_free_again(tmp_path: Path, keep_free_bytes: int) -> None:
    with small_disk(tmp_path) as disk:
        figures = FullCycles(disk, 1, keep_free_bytes).run(2)
    print(figures)
    assert figures["refused"] >= 4
    assert figures["killed"] == 1


def test_the_same_without_a_mount(tmp_path: Path) -> None:
    disk = SmallDisk(tmp_path, ("tests.process.small_disk", str(tmp_path)))
    figures = FullCycles(disk, 1).run(2)
    assert figures["refused"] >= 4
