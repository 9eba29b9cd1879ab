"""What a run finds of the one before: all that was whole, and never anything else."""

from __future__ import annotations

import shutil
from pathlib import Path
from zlib import crc32

import pytest

from tests.storage.support import Loop, segments
from zbus.core.cursor.state import StateChange, TopicOptions
from zbus.storage.format.batch import HEADER_BYTES, Kind
from zbus.storage.format.checkpoint import encode_change
from zbus.storage.local.files import OsFiles
from zbus.storage.port import JournalDamage, JournalError
from zbus.storage.tools.backup import back_up
from zbus.storage.tools.checkup import check_up
from zbus.testing.engines import Writer, bodies, recovered, split, stored_lanes

LANE = ("orders", 0)
FIRST = "orders/0/00000000000000000000.log"
SECOND = "orders/0/00000000000000000003.log"


def fill(data_dir: Path, *segments_: list[bytes]) -> None:
    """Write segment files as they are."""
    for name, batches in zip((FIRST, SECOND), segments_, strict=False):
        path = data_dir / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"".join(batches))


def a_segment(writer: Writer) -> list[bytes]:
    return [
        writer.checkpoint(),
        writer.data(b"a"),
        writer.state(),
        writer.data(b"b", b"c"),
    ]


def a_large_segment(writer: Writer) -> list[bytes]:
    """Batches of more than 4 KiB: of one message, and of many."""
    return [
        writer.checkpoint(),
        writer.data(b"a" * 9_000),
        writer.data(*[b"message %d" % number for number in range(600)]),
        writer.state(),
        writer.data(b"b" * 5_000, b"c"),
    ]


def open_and_list(data_dir: Path) -> list[bytes] | None:
    loop = Loop()
    journal = loop.local(data_dir)
    try:
        return recovered(journal).get(LANE)
    finally:
        journal.close()
        assert loop.failures == []


def test_cut_at_every_byte_keeps_the_whole_batches(tmp_path: Path) -> None:
    writer = Writer()
    log = a_segment(writer)
    whole = b"".join(log)
    for cut in range(len(whole) + 1):
        data_dir = tmp_path / str(cut)
        fill(data_dir, [whole[:cut]])
        expected: list[bytes] = []
        for batch in log:
            if sum(map(len, expected)) + len(batch) > cut:
                break
            expected.append(batch)
        assert open_and_list(data_dir) == (expected or None)
        if expected:
            assert (data_dir / FIRST).read_bytes() == b"".join(expected)
        assert open_and_list(data_dir) == (expected or None)  # opening twice changes nothing
        shutil.rmtree(data_dir)


@pytest.mark.parametrize("tail", [bytes(8), bytes(5000), b"\xff" * 100, b"zbus" * 50, b"x"])
def test_garbage_behind_the_last_batch_is_cut(tmp_path: Path, tail: bytes) -> None:
    log = a_segment(Writer())
    fill(tmp_path, [*log, tail])
    assert open_and_list(tmp_path) == log
    assert (tmp_path / FIRST).read_bytes() == b"".join(log)


def test_writing_goes_on_where_it_was_cut(tmp_path: Path) -> None:
    writer = Writer()
    log = a_segment(writer)
    fill(tmp_path, [*log, writer.data(b"torn")[:-1]])
    loop = Loop()
    journal = loop.local(tmp_path)
    assert recovered(journal) == {LANE: log}
    writer = Writer(last=int.from_bytes(log[-1][36:40], "little"), end=3)
    writer.append(journal, lambda: writer.data(b"d"))
    loop.commit(journal, LANE)
    assert bodies(loop.read(journal, LANE, 0)) == [b"a", b"b", b"c", b"d"]
    journal.close()
    loop = Loop()
    journal = loop.local(tmp_path)
    # Without a look at the lanes first, too.
    assert bodies(loop.read(journal, LANE, 3)) == [b"d"]
    journal.close()


@pytest.mark.parametrize("index", [0, 1, 2])
def test_a_flipped_bit_in_the_middle_is_refused(tmp_path: Path, index: int) -> None:
    log = a_segment(Writer())
    start = sum(map(len, log[:index]))
    for position in range(start, start + len(log[index])):
        damaged = bytearray(b"".join(log))
        damaged[position] ^= 4
        fill(tmp_path, [bytes(damaged)])
        with pytest.raises(JournalDamage) as caught:
            open_and_list(tmp_path)
        assert f"{tmp_path / FIRST} at byte {start}: " in str(caught.value)
        assert (tmp_path / FIRST).read_bytes() == bytes(damaged)  # nothing is touched


@pytest.mark.parametrize("index", [1, 2])
def test_a_flipped_bit_in_a_large_batch_is_refused(tmp_path: Path, index: int) -> None:
    log = a_large_segment(Writer())
    assert len(log[index]) > 4_096
    start = sum(map(len, log[:index]))
    stop = start + len(log[index])
    for position in (*range(start, start + 48), *range(start + 48, stop, 307), stop - 1):
        damaged = bytearray(b"".join(log))
        damaged[position] ^= 4
        fill(tmp_path, [bytes(damaged)])
        with pytest.raises(JournalDamage) as caught:
            open_and_list(tmp_path)
        assert f"{tmp_path / FIRST} at byte {start}: " in str(caught.value)


def test_a_large_batch_that_was_cut_short_or_torn_is_cut_off(tmp_path: Path) -> None:
    log = a_large_segment(Writer())
    assert len(log[-1]) > 4_096
    whole, last = b"".join(log), sum(map(len, log[:-1]))
    for position in (*range(last, last + 48), *range(last + 48, len(whole), 613), len(whole) - 1):
        sector = position // 512 * 512  # a disk writes a sector or does not
        for torn in (whole[:position], whole[:sector].ljust(len(whole), b"\0")):
            if last < sector or torn == whole[:position]:
                fill(tmp_path, [torn])
                assert open_and_list(tmp_path) == log[:-1]


def test_a_break_of_the_chain_is_refused(tmp_path: Path) -> None:
    log = a_segment(Writer())
    fill(tmp_path, [log[0], log[1], log[3]])
    with pytest.raises(JournalDamage, match=r"log at byte \d+: does not follow"):
        open_and_list(tmp_path)


def two_segments(writer: Writer) -> tuple[list[bytes], list[bytes]]:
    return a_segment(writer), [writer.checkpoint(), writer.data(b"d")]


def test_a_roll_cut_at_every_byte(tmp_path: Path) -> None:
    first, second = two_segments(Writer())
    for cut in range(len(second[0])):
        data_dir = tmp_path / str(cut)
        fill(data_dir, first, [second[0][:cut]])
        assert open_and_list(data_dir) == first
        left = [FIRST, SECOND + ".torn"] if cut else [FIRST]
        assert segments(data_dir) == left
        loop = Loop()
        journal = loop.local(data_dir)
        assert bodies(loop.read(journal, LANE, 0)) == [b"a", b"b", b"c"]
        journal.append(LANE, int.from_bytes(first[-1][36:40], "little"), split(b"".join(second)))
        assert bodies(loop.read(journal, LANE, 0)) == [b"a", b"b", b"c", b"d"]
        journal.close()
        assert open_and_list(data_dir) == second
        shutil.rmtree(data_dir)


def test_both_the_roll_and_the_segment_before_are_torn(tmp_path: Path) -> None:
    first, second = two_segments(Writer())
    fill(tmp_path, [*first[:3], first[3][:-1]], [second[0][:50]])
    assert open_and_list(tmp_path) == first[:3]


def test_a_damaged_checkpoint_with_nothing_to_go_back_to_is_refused(tmp_path: Path) -> None:
    first, second = two_segments(Writer())
    fill(tmp_path, first, [second[0][:-1]])
    (tmp_path / FIRST).unlink()
    with pytest.raises(JournalDamage, match="no older segment"):
        open_and_list(tmp_path)


def test_a_crash_before_the_first_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "orders" / "0").mkdir(parents=True)
    (tmp_path / "empty topic").mkdir()  # not a name the journal makes
    (tmp_path / "bare").mkdir()
    (tmp_path / "lost+found").mkdir()
    fill(tmp_path / "x", [])
    assert open_and_list(tmp_path) is None
    assert not (tmp_path / "orders").exists()
    assert not (tmp_path / "bare").exists()
    assert (tmp_path / "lost+found").exists()
    assert (tmp_path / "empty topic").exists()


def test_an_empty_first_segment_is_a_crash_too(tmp_path: Path) -> None:
    fill(tmp_path, [])
    assert open_and_list(tmp_path) is None
    assert not (tmp_path / "orders").exists()
    loop = Loop()
    journal = loop.local(tmp_path)
    writer = Writer()
    writer.append(journal, writer.checkpoint)
    journal.close()


def test_leftovers_are_removed(tmp_path: Path) -> None:
    log = a_segment(Writer())
    fill(tmp_path, log)
    (tmp_path / (SECOND + ".new")).write_bytes(b"half a segment")
    removed = tmp_path / ".removed--1"  # a topic
    (removed / "7").mkdir(parents=True)
    (removed / "7" / "00000000000000000000.log").write_bytes(b"x")
    (tmp_path / "orders" / "notes.txt").write_text("somebody's")
    assert open_and_list(tmp_path) == log
    assert sorted(path.name for path in (tmp_path / "orders").iterdir()) == ["0", "notes.txt"]
    assert segments(tmp_path) == [FIRST]
    assert not removed.exists()


def test_a_segment_begins_with_a_checkpoint(tmp_path: Path) -> None:
    writer = Writer()
    fill(tmp_path, [writer.data(b"a")])
    with pytest.raises(JournalDamage, match="begins with a checkpoint"):
        open_and_list(tmp_path)


@pytest.mark.parametrize(
    ("change", "text"),
    [(StateChange(), "names no topic"), (StateChange(TopicOptions("bills")), "holds the topic")],
)
def test_the_topic_is_that_of_the_checkpoint(
    tmp_path: Path, change: StateChange, text: str
) -> None:
    fill(tmp_path, [Writer().seal(Kind.CHECKPOINT, encode_change(change))])
    with pytest.raises(JournalDamage, match=text):
        open_and_list(tmp_path)


def test_a_checkpoint_nobody_can_read_is_refused(tmp_path: Path) -> None:
    fill(tmp_path, [Writer().seal(Kind.CHECKPOINT, b"\xff" * 8)])
    with pytest.raises(JournalDamage, match="at byte 0: state: JSON is longer"):
        open_and_list(tmp_path)


def test_older_segments_are_read_when_asked_for(tmp_path: Path) -> None:
    first, second = two_segments(Writer())
    damaged = bytearray(b"".join(first))
    start = sum(map(len, first[:3]))
    damaged[start + HEADER_BYTES] ^= 1
    fill(tmp_path, [bytes(damaged)], second)
    loop = Loop()
    journal = loop.local(tmp_path)
    assert recovered(journal) == {LANE: second}
    assert bodies(loop.read(journal, LANE, 3)) == [b"d"]
    assert bodies(loop.read(journal, LANE, 0, 1)) == [b"a"]
    with pytest.raises(JournalDamage, match=f"{FIRST} at byte {start}: checksum is wrong"):
        loop.read(journal, LANE, 1)
    journal.close()


@pytest.mark.parametrize(("batches", "before"), [(1, []), (3, [b"a"])])
def test_a_hole_between_segments_is_not_jumped_over(
    tmp_path: Path, batches: int, before: list[bytes]
) -> None:
    first, second = two_segments(Writer())
    fill(tmp_path, first[:batches], second)
    loop = Loop()
    journal = loop.local(tmp_path)
    if before:
        assert bodies(loop.read(journal, LANE, 0)) == before
    with pytest.raises(JournalDamage, match="holds offsets from 3"):
        loop.read(journal, LANE, len(before))
    (tmp_path / FIRST).unlink()
    journal.close()
    journal = loop.local(tmp_path)
    assert stored_lanes(journal)[0].first_offset == 3
    journal.close()


def test_a_missing_segment_is_damage(tmp_path: Path) -> None:
    fill(tmp_path, *two_segments(Writer()))
    loop = Loop()
    journal = loop.local(tmp_path)
    recovered(journal)
    (tmp_path / FIRST).unlink()
    with pytest.raises(JournalDamage, match="is missing"):
        loop.read(journal, LANE, 0)
    journal.close()


def of_version(number: int, batch: bytes) -> bytes:
    """The same batch, as a later version might have sealed it."""
    head = batch[:4] + bytes((number,)) + batch[5:36]
    crc = crc32(head + batch[HEADER_BYTES:])
    return head + crc.to_bytes(4, "little") + batch[HEADER_BYTES:]


@pytest.mark.parametrize("number", range(5))
@pytest.mark.parametrize("landmarks", [True, False])
def test_what_a_newer_program_wrote_is_no_unfinished_write(
    tmp_path: Path, number: int, landmarks: bool
) -> None:
    data_dir, target = tmp_path / "data", tmp_path / "backup"
    writer = Writer()
    log = [*a_segment(writer), writer.data(b"d" * 1_200_000)]
    fill(data_dir, log)
    if landmarks:
        open_and_list(data_dir)
    log[number] = of_version(4, log[number])
    fill(data_dir, log)
    before = {path: path.read_bytes() for path in data_dir.glob("*/*/*")}
    newer = rf"at byte {sum(map(len, log[:number]))}: a newer zbus wrote this \(version 4\)"
    with pytest.raises(JournalError, match=newer):
        open_and_list(data_dir)
    with pytest.raises(JournalError, match=newer):
        check_up(OsFiles(), data_dir, repair=True)
    with pytest.raises(JournalError):
        back_up(OsFiles(), data_dir, target, 0)
    assert {path: path.read_bytes() for path in data_dir.glob("*/*/*")} == before
