"""Damage of the last batches, below what was synced and past it; no offset is given twice."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.limits import share
from tests.storage.damage import AtOnce, fail, intact
from tests.storage.support import Loop
from zbus.storage.format.batch import check
from zbus.storage.local.engine import LocalJournal
from zbus.storage.local.files import OsFiles
from zbus.storage.local.high_water_marks import HighWaterMark, HighWaterMarks
from zbus.storage.port import JournalDamage
from zbus.storage.tools.checkup import check_up
from zbus.testing.engines import Writer, bodies, recovered


class Fast(OsFiles):
    """No power is cut here, so nothing needs to be synced."""

    def sync(self, file: int) -> None:
        pass

    def sync_all(self, file: int) -> bool:
        return True

    def sync_directory(self, path: Path) -> None:
        pass


FILES = Fast()
LANE = ("orders", 0)
NAME = "orders/0/00000000000000000000.log"


class Written:
    """A log of which everybody was told everything: three messages in the last DATA batch."""

    def __init__(self) -> None:
        writer = Writer()
        self.log = [writer.checkpoint(), writer.data(b"a"), writer.state()]
        self.log += [writer.data(b"b", b"c", b"d")]
        self.end = writer.end
        self.starts = [sum(map(len, self.log[:index])) for index in range(len(self.log) + 1)]
        self.raw = b"".join(self.log)

    def marks(self, durable: int | None) -> list[HighWaterMark] | None:
        """What the landmarks say if so many batches were synced when they were written."""
        if durable is None:
            return None
        crc = check(self.log[0]).crc
        last = check(self.log[durable - 1]).end_offset
        return [HighWaterMark("orders/0", 0, crc, self.starts[durable], 0, crc, last)]


def put(data_dir: Path, raw: bytes, marks: list[HighWaterMark] | None) -> Path:
    shutil.rmtree(data_dir, ignore_errors=True)
    path = data_dir / NAME
    path.parent.mkdir(parents=True)
    path.write_bytes(raw)
    if marks is not None:
        HighWaterMarks(FILES, data_dir).save(marks)
    return path


def ignore(call: Callable[[], None]) -> None:
    pass


def opened(data_dir: Path) -> list[bytes]:
    journal = LocalJournal(data_dir, ignore, fail, FILES, reserve_bytes=0, worker=AtOnce)
    try:
        return recovered(journal)[LANE]
    finally:
        journal.close()


def flips(raw: bytes, start: int) -> Iterator[tuple[int, bytes]]:
    for position in share(range(start, len(raw)), start):
        damaged = bytearray(raw)
        damaged[position] ^= 1 << position % 8
        yield position, bytes(damaged)


def test_a_flipped_byte_below_the_mark_is_refused_and_repaired(tmp_path: Path) -> None:
    written = Written()
    marks = written.marks(4)
    data_dir = tmp_path / "data"
    for position, damaged in flips(written.raw, written.starts[1]):
        path = put(data_dir, damaged, marks)
        bad = max(start for start in written.starts if start <= position)
        with pytest.raises(JournalDamage) as caught:
            opened(data_dir)
        assert f"{path} at byte {bad}: " in str(caught.value), position
        assert "zbus verify --repair" in str(caught.value)
        assert path.read_bytes() == damaged, "something was touched"
        assert check_up(FILES, data_dir).damaged, position
        assert check_up(FILES, data_dir, repair=True).repaired
        last = check(opened(data_dir)[-1])
        assert last.end_offset == written.end, position  # the next message has the next offset
        served = {key[2]: message.body for key, message in intact(data_dir).items()}
        for offset, body in enumerate((b"a", b"b", b"c", b"d")):
            assert served[offset] in (body, b""), position
        assert list(served) == [0, 1, 2, 3]


@pytest.mark.parametrize("marks", [3, None])
def test_a_flipped_byte_past_the_mark_counts_as_a_torn_write(
    tmp_path: Path, marks: int | None
) -> None:
    written = Written()
    for _, damaged in flips(written.raw, written.starts[3]):
        put(tmp_path / "data", damaged, written.marks(marks))
        assert not check_up(FILES, tmp_path / "data").damaged
        assert opened(tmp_path / "data") == written.log[:3]


def test_what_is_gone_below_the_mark_is_filled_by_the_repair(tmp_path: Path) -> None:
    written = Written()
    for kept in range(written.starts[1], len(written.raw), 5):
        for filled in (0, len(written.raw) - kept):  # a shorter file, and zeros
            left = written.raw[:kept] + bytes(filled)
            if left == written.raw:
                continue
            put(tmp_path / "data", left, written.marks(4))
            with pytest.raises(JournalDamage, match="`zbus verify` tells more"):
                opened(tmp_path / "data")
            assert check_up(FILES, tmp_path / "data", repair=True).repaired
            assert check(opened(tmp_path / "data")[-1]).end_offset == written.end, kept


def test_a_repaired_end_goes_on_and_says_what_was_lost(tmp_path: Path) -> None:
    written = Written()
    damaged = bytearray(written.raw)
    damaged[-20] ^= 1
    put(tmp_path, bytes(damaged), written.marks(4))
    assert check_up(FILES, tmp_path, repair=True).repaired
    again = check_up(FILES, tmp_path)
    assert not again.damaged
    assert [segment.lost_before for lane in again.lanes for segment in lane.segments] == [3]
    loop = Loop()
    journal = loop.local(tmp_path)
    last = check(recovered(journal)[LANE][-1])
    writer = Writer(last=last.crc, end=last.end_offset)
    writer.append(journal, lambda: writer.data(b"e"))
    assert bodies(loop.read(journal, LANE, 0)) == [b"a", b"", b"", b"", b"e"]
    journal.close()
    assert check(opened(tmp_path)[-1]).end_offset == 5
    assert not check_up(FILES, tmp_path).damaged


@pytest.mark.parametrize("marks", [1, 2, None])
def test_a_write_that_was_cut_short_is_still_cut_off(tmp_path: Path, marks: int | None) -> None:
    """A kill leaves the beginning of what was written at once: here, of two batches."""
    written = Written()
    for kept in range(written.starts[2], len(written.raw)):
        put(tmp_path / "data", written.raw[:kept], written.marks(marks))
        whole = sum(start <= kept for start in written.starts) - 1
        assert not check_up(FILES, tmp_path / "data").damaged
        assert opened(tmp_path / "data") == written.log[:whole]
