"""Reading a lane in portions."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.storage.damage import Disk
from tests.storage.support import Loop
from zbus.storage.format.batch import iterate
from zbus.storage.local.engine import LocalJournal
from zbus.storage.local.files import OsFiles
from zbus.storage.local.reader import FAR_BYTES
from zbus.storage.local.segment import INDEX_BYTES
from zbus.storage.port import JournalDamage
from zbus.testing.engines import Writer, bodies

LANE = ("orders", 0)


class WatchedFiles(OsFiles):
    """Remembers where it was read, by file."""

    def __init__(self) -> None:
        super().__init__()
        self.positions: dict[int, list[int]] = {}
        self.counts: list[int] = []

    def read(self, file: int, count: int, position: int) -> bytes:
        self.positions.setdefault(file, []).append(position)
        self.counts.append(count)
        return super().read(file, count, position)


def written(journal: LocalJournal, count: int) -> Writer:
    """Messages of 100 bytes, each in a batch of its own between states, in three segments."""
    writer = Writer(LANE)
    for number in range(count):
        if number % (count // 3) == 0:
            writer.append(journal, writer.checkpoint)
        body = b"%0100d" % number
        writer.append(journal, lambda body=body: writer.data(body) + writer.state())  # type: ignore[misc]
    return writer


def in_portions(
    loop: Loop, journal: LocalJournal, start: int, end: int, bytes_max: int
) -> list[bytes]:
    """The batches of `start` to `end`, one portion after the other."""
    found: list[bytes] = []
    while start < end:
        portion = loop.read(journal, LANE, start, bytes_max)
        found += [batch.raw for batch in iterate(portion)]
        start = next(reversed(list(iterate(portion)))).header.end_offset
    return found


def test_a_reader_in_order_goes_on_where_it_was(tmp_path: Path) -> None:
    loop, files = Loop(), WatchedFiles()
    journal = loop.local(tmp_path, files)
    written(journal, 900)
    files.positions.clear()
    found = in_portions(loop, journal, 0, 900, 2_000)
    assert bodies(b"".join(found)) == [b"%0100d" % number for number in range(900)]
    journal.close()
    assert len(files.positions) == 3
    for positions in files.positions.values():
        assert positions == sorted(positions), "nothing is looked at twice to find the place"


def test_readers_that_cross_see_the_same(tmp_path: Path) -> None:
    loop = Loop()
    journal = loop.local(tmp_path)
    writer = written(journal, 300)
    whole = in_portions(loop, journal, 0, 300, 1 << 20)
    for bytes_max in (1, 500, 3_000):
        for start in (0, 99, 100, 101, 298):
            first = loop.read(journal, LANE, start, bytes_max)
            other = loop.read(journal, LANE, (start + 57) % 300, 700)
            assert first.startswith(whole[start])
            assert other.startswith(whole[(start + 57) % 300])
            behind = next(reversed(list(iterate(first)))).header.end_offset
            if behind < 300:
                assert loop.read(journal, LANE, behind, 1) == whole[behind]
    # What was the end goes on.
    assert loop.read(journal, LANE, 299, 1) == whole[299]
    writer.append(journal, lambda: writer.data(b"one more"))
    assert bodies(loop.read(journal, LANE, 300, 1)) == [b"one more"]
    writer.append(journal, writer.checkpoint)
    writer.append(journal, lambda: writer.data(b"in the next"))
    assert bodies(loop.read(journal, LANE, 301, 1)) == [b"in the next"]
    journal.close()


def test_a_read_does_not_go_through_all_that_was_acknowledged_since(tmp_path: Path) -> None:
    """It takes as long whether ten acknowledgements follow the messages or ten thousand."""
    loop, files = Loop(), WatchedFiles()
    journal = loop.local(tmp_path, files)
    writer = Writer(LANE)
    writer.append(journal, writer.checkpoint)
    for number in range(3):
        writer.append(journal, lambda number=number: writer.data(b"%d" % number))  # type: ignore[misc]
        for _ in range(200):
            writer.append(journal, lambda: b"".join(writer.state() for _ in range(50)))
    assert sum(path.stat().st_size for path in tmp_path.glob("orders/0/*.log")) > 1 << 20
    for number in (1, 2, 0):
        files.counts.clear()
        assert bodies(loop.read(journal, LANE, number, 10_000)) == [b"%d" % number]
        assert sum(files.counts) <= FAR_BYTES + 10_000 + INDEX_BYTES
    assert bodies(b"".join(in_portions(loop, journal, 0, 3, 1 << 20))) == [b"0", b"1", b"2"]
    journal.close()


def damaged(data_dir: Path, message: int) -> Path:
    """Flip a bit of one message; give its segment."""
    for path in sorted(data_dir.glob("orders/0/*.log")):
        raw = bytearray(path.read_bytes())
        at = raw.find(b"%0100d" % message)
        if at >= 0:
            raw[at] ^= 1
            path.write_bytes(raw)
            return path
    raise AssertionError(message)


@pytest.mark.parametrize("message", [1, 7, 20, 29])
def test_what_is_before_damage_is_read(
    tmp_path: Path, message: int, caplog: pytest.LogCaptureFixture
) -> None:
    loop = Loop()
    journal = loop.local(tmp_path)
    written(journal, 30)
    path = damaged(tmp_path, message)
    for _ in range(2):
        assert bodies(loop.read(journal, LANE, 0)) == [b"%0100d" % n for n in range(message)]
        with pytest.raises(JournalDamage, match=f"{path} at byte"):
            loop.read(journal, LANE, message)
    journal.close()
    [told] = [record for record in caplog.records if record.levelname == "CRITICAL"]
    assert "`zbus verify`" in told.getMessage()
    assert vars(told)["where"].startswith(f"{path} at byte ")


def test_a_segment_that_is_gone_ends_what_is_before_it(tmp_path: Path) -> None:
    loop = Loop()
    journal = loop.local(tmp_path)
    written(journal, 30)
    (tmp_path / f"orders/0/{10:020}.log").unlink()
    assert len(bodies(loop.read(journal, LANE, 0))) == 10
    with pytest.raises(JournalDamage, match="is missing"):
        loop.read(journal, LANE, 10)
    journal.close()


def test_a_broker_reads_up_to_damage(tmp_path: Path) -> None:
    disk = Disk(tmp_path, segment_bytes=1 << 20)
    disk.get("/T?cmd=declare")
    for number in range(10):
        disk.get("/T?cmd=produce", f"id: {number}", body=b"message %d" % number)
    disk.close()
    disk = Disk(tmp_path, segment_bytes=1 << 20)  # which has no message at hand
    [path] = tmp_path.glob("T/0/*.log")
    raw = bytearray(path.read_bytes())
    raw[raw.index(b"message 6")] ^= 1
    path.write_bytes(raw)
    status, _, body = disk.get("/T?cmd=read&offset=2")
    assert (status, bodies(body)) == (200, [b"message %d" % n for n in range(2, 6)])
    status, _, body = disk.get("/T?cmd=read&offset=6")
    assert (status, str(path).encode() in body) == (500, True)
    got = [disk.get("/T?cmd=consume&timeout=1") for _ in range(7)]
    assert [body for _, _, body in got[:6]] == [b"message %d" % n for n in range(6)]
    assert got[6][0] == 500
    status, _, body = disk.get("/T/late?cmd=declare&group_start_offset=6")
    assert (status, str(path).encode() in body) == (500, True)
    assert disk.get("/T/late?cmd=declare&group_start_offset=99")[0] == 400
    disk.close()
