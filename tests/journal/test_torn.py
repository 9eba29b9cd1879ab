"""Damage of the last batches and what a crash leaves of them: told apart, and no offset twice."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.journal.damage import AtOnce, fail, intact
from tests.journal.support import Loop
from zbus.journal.batch import HEADER_BYTES, check
from zbus.journal.local.engine import LocalJournal
from zbus.journal.local.files import OsFiles
from zbus.journal.local.landmarks import Landmark, Landmarks
from zbus.journal.port import JournalDamage
from zbus.journal.tools.checkup import check_up
from zbus.journal.torn import SECTOR_BYTES, claim_of, crash_may_leave, records_of
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

    def marks(self, durable: int | None, end: bool = True) -> list[Landmark] | None:
        """What the landmarks say if so many batches were synced when they were written."""
        if durable is None:
            return None
        crc = check(self.log[0]).crc
        last = check(self.log[durable - 1]).end_offset if end else 0
        return [Landmark("orders/0", 0, crc, self.starts[durable], 0, crc, last)]


def put(data_dir: Path, raw: bytes, marks: list[Landmark] | None) -> Path:
    shutil.rmtree(data_dir, ignore_errors=True)
    path = data_dir / NAME
    path.parent.mkdir(parents=True)
    path.write_bytes(raw)
    if marks is not None:
        Landmarks(FILES, data_dir).save(marks)
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
    for position in range(start, len(raw)):
        damaged = bytearray(raw)
        damaged[position] ^= 1 << position % 8
        yield position, bytes(damaged)


# A clean stop; a kill within a second of the last writes; landmarks of an early version (they name
# no end); none. In all of them every message was acknowledged.
MARKS = {
    "after a stop": (4, True),
    "after a kill": (3, True),
    "after a kill, long ago": (1, True),
    "of an early version": (4, False),
    "none": (None, True),
}


@pytest.mark.parametrize(("durable", "end"), MARKS.values(), ids=MARKS.keys())
def test_a_flipped_byte_in_the_last_batches_is_refused_and_repaired(
    tmp_path: Path, durable: int | None, end: bool
) -> None:
    written = Written()
    marks = written.marks(durable, end)
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


def long_log() -> tuple[bytes, int, int]:
    """A log, and where a batch of four sectors and more in it begins and ends."""
    writer = Writer()
    before = writer.checkpoint() + writer.data(b"a" * 100)
    batch = writer.data(b"b" * 2000, b"c" * 300)
    return before + batch, len(before), len(before) + len(batch)


def test_a_lost_sector_is_a_crash_and_a_flipped_byte_is_not(tmp_path: Path) -> None:
    raw, start, stop = long_log()
    crc = check(raw).crc
    marks = [Landmark("orders/0", 0, crc, start, 0, crc, 1)]
    for sector in range(start // SECTOR_BYTES, stop // SECTOR_BYTES + 1):
        first = max(sector * SECTOR_BYTES, start)
        last = min(sector * SECTOR_BYTES + SECTOR_BYTES, stop)
        put(tmp_path, raw[:first] + bytes(last - first) + raw[last:], marks)
        assert not check_up(FILES, tmp_path).damaged
        assert len(opened(tmp_path)) == 2
        put(tmp_path, raw[:first] + bytes(last - first - 1) + raw[last - 1 :], marks)
        if first == start or (last == stop and not any(raw[stop - 1 :])):
            continue  # nothing is left of the header; or it ends with zeros, so that is the same
        with pytest.raises(JournalDamage, match="no crash leaves that"):
            opened(tmp_path)
        assert check_up(FILES, tmp_path).damaged


def spoilt(place: int, *values: int) -> Callable[[bytes], bytes]:
    return lambda raw: raw[:place] + bytes(values) + raw[place + len(values) :]


# What is left of a batch at byte 0 of three records, and whether a crash may have left it.
LEFT: list[tuple[str, Callable[[bytes], bytes], bool]] = [
    ("half", lambda raw: raw[: len(raw) // 2], True),
    ("a byte less", lambda raw: raw[:-1], True),
    ("not even a header", lambda raw: raw[: HEADER_BYTES - 1], True),
    ("zeros", lambda raw: bytes(len(raw)), True),
    ("something else", lambda raw: b"\xff" * len(raw), True),
    ("another magic", spoilt(0, 0), False),
    ("another count", spoilt(8, 2), False),
    ("a longer one", spoilt(33, 0x7F), False),
    ("a shorter one", spoilt(32, 8), False),
    ("another checksum", spoilt(36, 1, 2, 3, 4), False),
    ("more behind it", lambda raw: spoilt(8, 2)(raw) + b"zbus" * 20, False),
]


@pytest.mark.parametrize(("change", "crash"), [row[1:] for row in LEFT], ids=[r[0] for r in LEFT])
def test_what_a_crash_may_leave(change: Callable[[bytes], bytes], crash: bool) -> None:
    raw = change(Writer(last=77, end=5).data(b"b", b"c", b"d"))
    claim = claim_of(raw, 77, 5)
    assert crash_may_leave(raw, 0, len(raw), claim, False) is crash


def test_a_damaged_count_is_mended() -> None:
    raw = Writer(last=77, end=5).data(b"b", b"c", b"d")
    for place in range(8, 12):
        for value in range(256):
            other = spoilt(place, value)(raw)
            claim = claim_of(other, 77, 5)
            assert claim is not None
            assert records_of(other, claim) == 3
