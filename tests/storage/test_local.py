"""The local engine and its directory: lock, names, rolls, trims, full and broken disks."""

from __future__ import annotations

import errno
import gc
import os
from contextlib import suppress
from functools import partial
from pathlib import Path

import attrs
import pytest

from tests.storage.support import BrokenDisk, Loop, SmallDisk, segments
from zbus.storage.local.directory import take_directory
from zbus.storage.local.engine import LocalJournal
from zbus.storage.local.files import OpenMode, OsFiles
from zbus.storage.local.reader import OPEN_FILES_MAX
from zbus.storage.local.reserve import TRY_EVERY, SharedReserves
from zbus.storage.local.segment import INDEX_BYTES, WINDOW_BYTES
from zbus.storage.port import JournalError, JournalFull
from zbus.testing.engines import Writer, bodies, recovered, split, stored_lanes

LANE = ("orders", 0)


@pytest.fixture
def loop() -> Loop:
    return Loop()


def test_one_journal_for_a_directory(tmp_path: Path, loop: Loop) -> None:
    data_dir = tmp_path / "a" / "b"
    journal = loop.local(data_dir)
    with pytest.raises(JournalError) as caught:
        loop.local(data_dir)
    assert str(caught.value) == f"{data_dir} is in use by another process (pid {os.getpid()})"
    journal.close()
    loop.local(data_dir).close()


@pytest.mark.parametrize(
    ("owner", "waits"),
    [
        ("pid 1", False),
        ("pid 4194305", True),  # no process of Linux has it
        ("pid 99999999999999999999", False),
        ("pid unknown", False),
        ("", False),
    ],
)
def test_a_lock_is_waited_for_if_its_owner_was_killed(
    tmp_path: Path, owner: str, waits: bool
) -> None:
    """Then its workers hold it, until they have seen that."""
    files = OsFiles()
    held = take_directory(files, tmp_path)
    files.truncate(held, 0)
    files.write(held, owner.encode(), 0)
    looks = 0

    def read(file: int, count: int, position: int) -> bytes:
        nonlocal looks
        looks += 1
        if looks == 2:
            files.close(held)
        return OsFiles.read(files, file, count, position)

    files.read = read  # type: ignore[method-assign]
    if waits:
        files.close(take_directory(files, tmp_path))
    else:
        with pytest.raises(JournalError, match="in use by another process"):
            take_directory(files, tmp_path)
        files.close(held)
    assert looks == (2 if waits else 1)


def test_a_file_in_the_way(tmp_path: Path, loop: Loop) -> None:
    in_the_way = tmp_path / "data"
    in_the_way.write_text("not a directory")
    for path in (in_the_way, in_the_way / "below"):
        with pytest.raises(JournalError, match=f"{path} cannot hold data"):
            loop.local(path)


def test_a_directory_that_cannot_be_written(tmp_path: Path, loop: Loop) -> None:
    (tmp_path / "lock").mkdir()
    with pytest.raises(JournalError, match=f"{tmp_path} cannot hold data: .*lock"):
        loop.local(tmp_path)


class ReadOnly(OsFiles):
    """Segments that another account has restored."""

    def open(self, path: Path, mode: OpenMode) -> int:
        if mode == "write" and path.suffix == ".log":
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return super().open(path, mode)


@pytest.mark.parametrize("topics", [["T"], ["A", "B", "C"]])
def test_a_segment_that_cannot_be_written(tmp_path: Path, loop: Loop, topics: list[str]) -> None:
    """It is found at the start, and not by the first message."""
    journal = loop.local(tmp_path)
    for topic in topics:
        writer = Writer((topic, 0))
        writer.append(journal, writer.checkpoint)
        writer.append(journal, partial(writer.data, b"a"))
    journal.close()
    for _ in range(2):
        refused = loop.local(tmp_path, ReadOnly())
        text = rf"^{tmp_path} cannot hold data: .*{topics[0]}/0/0+\.log cannot be written \(Perm"
        with pytest.raises(JournalError, match=text):
            stored_lanes(refused)
        refused.close()
    again = loop.local(tmp_path)
    assert len(stored_lanes(again)) == len(topics)
    again.close()


@pytest.mark.parametrize("topic", ["../up", "lock", "reserve", ".", "ü" * 100, "a\0b", ""])
def test_any_topic_name_survives(tmp_path: Path, loop: Loop, topic: str) -> None:
    data_dir = tmp_path / "data"
    journal = loop.local(data_dir, reserve_bytes=4096)
    writer = Writer((topic, 7))
    writer.append(journal, writer.checkpoint)
    writer.append(journal, lambda: writer.data(b"a"))
    journal.close()
    journal = loop.local(data_dir)
    assert list(recovered(journal)) == [(topic, 7)]
    assert bodies(loop.read(journal, (topic, 7), 0)) == [b"a"]
    journal.close()
    assert os.listdir(tmp_path) == ["data"]


def test_a_checkpoint_of_another_topic_is_refused(tmp_path: Path, loop: Loop) -> None:
    journal = loop.local(tmp_path)
    with pytest.raises(JournalError, match="names the topic 'bills'"):
        journal.append(LANE, 0, split(Writer(("bills", 0)).checkpoint()))
    journal.close()


def test_no_segment_takes_the_place_of_messages(tmp_path: Path, loop: Loop) -> None:
    journal, writer = loop.local(tmp_path), Writer()
    writer.append(journal, writer.checkpoint)
    writer.append(journal, lambda: writer.data(b"a", b"b"))
    for base in (0, 2):
        writer.end = base
        if base == 0:
            with pytest.raises(JournalError, match="no segment can begin there"):
                writer.append(journal, writer.checkpoint)
        else:
            writer.append(journal, writer.checkpoint)
    assert bodies(loop.read(journal, writer.lane, 0)) == [b"a", b"b"]
    journal.close()


def test_files_of_a_lane_and_their_end(tmp_path: Path, loop: Loop) -> None:
    journal = loop.local(tmp_path)
    writer = Writer()
    for _ in range(3):
        writer.append(journal, writer.checkpoint)
        writer.append(journal, lambda: writer.data(b"a", b"b"))
    writer.append(journal, writer.checkpoint)
    writer.append(journal, writer.checkpoint)  # takes the place of the one before
    names = [f"orders/0/{base:020}.log" for base in (0, 2, 4, 6)]
    assert segments(tmp_path) == names
    journal.trim(LANE, 5)
    loop.run_until(lambda: segments(tmp_path) == names[2:])
    journal.remove([LANE], lambda: None)
    assert segments(tmp_path) == []  # the name goes at once, the space when there is time
    loop.run_until(lambda: sorted(os.listdir(tmp_path)) == ["identity", "landmarks", "lock"])
    journal.close()
    assert loop.failures == []


class ForgetfulDisk(OsFiles):
    """Remembers in which order things were synced and renamed."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []

    def sync(self, file: int) -> None:
        self.calls.append("sync")
        super().sync(file)

    def rename(self, path: Path, target: Path) -> None:
        self.calls.append(f"away with {path.name}")
        super().rename(path, target)


def test_what_is_found_in_a_lane_that_is_opened_again_is_durable(
    tmp_path: Path, loop: Loop
) -> None:
    """It was appended and not committed, and is handed out from now on."""
    disk = ForgetfulDisk()
    journal, writer = loop.local(tmp_path, disk), Writer()
    writer.append(journal, writer.checkpoint)
    loop.commit(journal, LANE)
    writer.append(journal, lambda: writer.data(b"a"))
    disk.calls.clear()
    assert bodies(loop.recovered(journal, [LANE])[LANE][1]) == [b"a"]
    assert disk.calls == ["sync"]
    loop.recovered(journal, [LANE])
    assert disk.calls == ["sync"], "it is"
    journal.close()


def test_segments_go_only_when_the_newest_is_durable(tmp_path: Path, loop: Loop) -> None:
    disk = ForgetfulDisk()
    journal = loop.local(tmp_path, disk)
    writer = Writer()
    writer.append(journal, writer.checkpoint)
    writer.append(journal, lambda: writer.data(b"a"))
    writer.append(journal, writer.checkpoint)
    disk.calls.clear()
    journal.trim(LANE, 1)
    assert stored_lanes(journal)[0].first_offset == 1  # at once, for those who read
    loop.run_until(lambda: disk.calls[-1:] == ["away with 00000000000000000000.log"])
    assert "sync" in disk.calls
    journal.close()


def test_long_logs_of_long_batches(tmp_path: Path, loop: Loop) -> None:
    """Indexes, windows and open files all have their limits; reads go across them."""
    journal = loop.local(tmp_path)
    writer = Writer()
    count = 0
    for size in [10, INDEX_BYTES, 3 * WINDOW_BYTES, 7, WINDOW_BYTES // 2] * 4:
        if count % 3 == 0:
            writer.append(journal, writer.checkpoint)
        writer.append(journal, partial(writer.data, bytes(size), b"small"))
        count += 1
    for _ in range(2):  # with the writer's index, then with one that reading makes
        for offset in [*range(2 * count), *reversed(range(2 * count))]:
            found = bodies(loop.read(journal, LANE, offset, 1))
            assert len(found) == 2
            assert found[1] == b"small"
        everything = bodies(loop.read(journal, LANE, 0, 1 << 30))
        assert len(everything) == 2 * count
        journal.close()
        journal = loop.local(tmp_path)
    journal.close()


def test_more_segments_than_open_files(tmp_path: Path, loop: Loop) -> None:
    journal = loop.local(tmp_path)
    writer = Writer()
    count = OPEN_FILES_MAX + 5
    for number in range(count):
        writer.append(journal, writer.checkpoint)
        writer.append(journal, partial(writer.data, b"%d" % number))
    files_before = len(os.listdir("/proc/self/fd"))
    assert len(bodies(loop.read(journal, LANE, 0))) == count
    assert len(os.listdir("/proc/self/fd")) <= files_before + OPEN_FILES_MAX
    journal.remove([LANE], lambda: None)
    journal.close()
    assert len(os.listdir("/proc/self/fd")) <= files_before


def test_a_read_sees_the_lane_as_it_was(tmp_path: Path, loop: Loop) -> None:
    journal = loop.local(tmp_path)
    writer = Writer()
    writer.append(journal, writer.checkpoint)
    writer.append(journal, lambda: writer.data(b"a"))
    answers: list[bytes | JournalError] = []
    for _ in range(200):
        end = writer.end
        journal.read(LANE, 0, 1 << 30, answers.append)
        writer.append(journal, lambda: writer.data(b"b"))
        if end % 50 == 0:
            writer.append(journal, writer.checkpoint)
    loop.run_until(lambda: len(answers) == 200)
    found = [bodies(answer) for answer in answers if isinstance(answer, bytes)]
    assert [len(each) for each in found] == list(range(1, 201))
    journal.close()


def disk_of(space: int, tmp_path: Path, loop: Loop, reserve: int) -> tuple[SmallDisk, LocalJournal]:
    disk = SmallDisk(space)
    return disk, loop.local(tmp_path, disk, reserve_bytes=reserve)


def on_disk(tmp_path: Path) -> dict[str, bytes]:
    return {name: (tmp_path / name).read_bytes() for name in segments(tmp_path)}


def test_a_full_disk_refuses_messages_and_takes_acknowledgements(
    tmp_path: Path, loop: Loop
) -> None:
    disk, journal = disk_of(20_000, tmp_path, loop, 4096)
    writer = Writer()
    writer.append(journal, writer.checkpoint)
    writer.append(journal, lambda: writer.data(b"a" * 100))
    disk.space = 150
    before = on_disk(tmp_path)
    with pytest.raises(JournalFull):
        writer.append(journal, lambda: writer.data(b"b" * 1000))
    with pytest.raises(JournalFull):
        writer.append(journal, lambda: writer.checkpoint() + writer.data(b"b" * 1000))
    assert on_disk(tmp_path) == before
    for _ in range(10):  # 1.0 kB: more than there is without the reserve
        writer.append(journal, writer.state)
    assert not (tmp_path / "reserve").exists()
    for _ in range(TRY_EVERY - 1):  # what is free belongs to acknowledgements now
        with pytest.raises(JournalFull, match="kept for acknowledgements"):
            writer.append(journal, lambda: writer.data(b""))
    writer.append(journal, writer.checkpoint)
    loop.commit(journal, LANE)
    disk.space = 10_000
    refused = 0
    while True:  # it comes back by itself
        try:
            writer.append(journal, lambda: writer.data(b"c"))
            break
        except JournalFull:
            refused += 1
    assert refused < TRY_EVERY
    assert (tmp_path / "reserve").stat().st_size == 4096
    assert bodies(loop.read(journal, LANE, 0)) == [b"a" * 100, b"c"]
    kept = recovered(journal)
    journal.close()
    assert recovered(loop.local(tmp_path)) == kept
    assert loop.failures == []


def test_processes_on_one_disk_keep_what_one_of_them_freed_for_acknowledgements(
    tmp_path: Path, loop: Loop
) -> None:
    disk, shared = SmallDisk(20_000), SharedReserves.make(2)
    one = loop.local(tmp_path / "0", disk, 4096, shared)
    other = loop.local(tmp_path / "1", disk, 4096, attrs.evolve(shared, own=1))
    writer, writer_of_other = Writer(), Writer()
    for at, journal in ((writer, one), (writer_of_other, other)):
        at.append(journal, at.checkpoint)
        at.append(journal, partial(at.data, b"a" * 100))
    disk.space = 0
    writer_of_other.append(other, writer_of_other.state)
    assert disk.space > 3_000
    with pytest.raises(JournalFull, match="kept for acknowledgements"):
        writer.append(one, lambda: writer.data(b"b" * 1_000))
    writer.append(one, writer.state)  # it is no message
    one.upkeep(1)
    other.upkeep(1)
    with pytest.raises(JournalFull, match="kept for acknowledgements"):
        writer.append(one, lambda: writer.data(b"b"))
    disk.space = 10_000
    other.upkeep(2)  # nobody puts a message there
    writer.append(one, lambda: writer.data(b"c"))
    for journal in (one, other):
        journal.close()
    disk.space = 100
    (tmp_path / "1" / "reserve").unlink()
    other = loop.local(tmp_path / "1", disk, 8192, attrs.evolve(shared, own=1))
    assert not shared.complete(), "it began on a full disk"
    other.close()
    assert loop.failures == []


def test_without_any_space_even_state_is_refused(tmp_path: Path, loop: Loop) -> None:
    disk, journal = disk_of(1000, tmp_path, loop, 0)
    writer = Writer()
    writer.append(journal, writer.checkpoint)
    disk.space = 10
    before = on_disk(tmp_path)
    with pytest.raises(JournalFull):
        writer.append(journal, writer.state)
    with pytest.raises(JournalFull):
        writer.append(journal, writer.checkpoint)  # in the place of the only segment
    with pytest.raises(JournalFull):
        journal.append(("other", 0), 0, split(Writer(("other", 0)).checkpoint()))
    assert on_disk(tmp_path) == before
    disk.space = 1000
    writer.append(journal, writer.state)
    other = Writer(("other", 0))
    other.append(journal, other.checkpoint)
    journal.close()
    assert loop.failures == []


def test_a_start_on_a_full_disk(tmp_path: Path, loop: Loop) -> None:
    disk, journal = disk_of(5000, tmp_path, loop, 4096)
    writer = Writer()
    writer.append(journal, writer.checkpoint)
    journal.close()
    (tmp_path / "reserve").unlink()
    disk.space = 100
    journal = loop.local(tmp_path, disk, reserve_bytes=4096)
    assert list(recovered(journal)) == [LANE]
    with pytest.raises(JournalFull):
        writer.append(journal, lambda: writer.data(b"a"))
    assert not (tmp_path / "reserve").exists()
    writer.append(journal, writer.state)
    journal.close()


def test_the_reserve_is_real_and_stays(tmp_path: Path, loop: Loop) -> None:
    for _ in range(2):
        journal = loop.local(tmp_path, reserve_bytes=1 << 20)
        journal.close()
        assert (tmp_path / "reserve").stat().st_blocks * 512 >= 1 << 20


@pytest.mark.parametrize("step", ["write", "roll", "sync after roll", "replace", "remove lane"])
def test_a_broken_disk_is_fatal(tmp_path: Path, loop: Loop, step: str) -> None:
    disk, writer = BrokenDisk(), Writer()
    journal = loop.local(tmp_path, disk)
    writer.append(journal, writer.checkpoint)
    if step != "replace":
        writer.append(journal, lambda: writer.data(b"a"))
    loop.commit(journal, LANE)
    disk.broken = {
        "write": {"write"},
        "roll": {"write"},
        "sync after roll": {"sync"},
        "replace": {"sync"},
        "remove lane": {"remove"},
    }[step]
    if step == "remove lane":
        journal.remove([LANE], lambda: None)
        loop.run_until(lambda: loop.failures)
    elif step == "sync after roll":
        writer.append(journal, writer.checkpoint)
        journal.commit([LANE], True, lambda _: pytest.fail("acknowledged"))
        loop.run_until(lambda: loop.failures)
    else:
        make = writer.checkpoint if step != "write" else (lambda: writer.data(b"b"))
        with pytest.raises(JournalError, match="input/output error"):
            writer.append(journal, make)
    assert len(loop.failures) == 1
    assert "input/output error" in loop.failures[0]
    with pytest.raises(JournalError):
        writer.append(journal, writer.state)
    journal.commit([LANE], True, lambda _: pytest.fail("acknowledged"))
    journal.close()
    assert len(loop.failures) == 1


def test_a_trim_that_is_overtaken_by_a_new_lane_of_the_same_name(
    tmp_path: Path, loop: Loop
) -> None:
    """The removal of old segments waits for a sync; meanwhile their names belong to another."""
    journal = loop.local(tmp_path)
    old = Writer()
    old.append(journal, old.checkpoint)
    old.append(journal, lambda: old.data(b"0"))
    old.append(journal, old.checkpoint)
    journal.trim(LANE, 1)
    journal.remove([LANE], lambda: None)
    new = Writer()
    new.append(journal, new.checkpoint)
    new.append(journal, lambda: new.data(b"new"))
    loop.commit(journal, LANE)
    assert segments(tmp_path) == ["orders/0/00000000000000000000.log"]
    assert bodies(loop.read(journal, LANE, 0)) == [b"new"]
    assert loop.failures == []
    journal.close()


class FewDescriptors(OsFiles):
    """There are none left for anything that opens."""

    few = False

    def open(self, path: Path, mode: OpenMode) -> int:
        if self.few:
            raise JournalFull("too many open files")
        return super().open(path, mode)

    def sync_directory(self, path: Path) -> None:
        if self.few:
            raise JournalFull("too many open files")
        super().sync_directory(path)


@pytest.mark.parametrize("step", ["ack", "roll", "remove", "measure", "upkeep"])
def test_without_descriptors_nothing_ends(tmp_path: Path, loop: Loop, step: str) -> None:
    """What needs one only for a moment finds another way, or another time."""
    disk, writer = FewDescriptors(), Writer()
    journal = loop.local(tmp_path, disk)
    writer.append(journal, writer.checkpoint)
    writer.append(journal, lambda: writer.data(b"a"))
    loop.commit(journal, LANE)
    (stored,) = stored_lanes(journal)
    if step == "roll":
        writer.append(journal, writer.checkpoint)
    writer.append(journal, writer.state)
    if step == "ack":
        journal.upkeep(0)
        journal.upkeep(60_000)  # closes what is idle
    disk.few = True
    if step == "remove":
        journal.remove([LANE], lambda: None)
    elif step == "measure":
        time_ms = stored.segments[0].begun_ms
        assert time_ms > 1 << 60, "not known, so it is kept"
    elif step == "upkeep":
        journal.upkeep(1_000)
    loop.commit(journal, LANE)
    disk.few = False
    journal.close()
    assert loop.failures == []


def test_what_is_not_there_leaves_nothing_for_the_collector(tmp_path: Path) -> None:
    """The frames of whoever asked would stay, with all that they hold."""
    files, gone = OsFiles(), tmp_path / "gone" / "gone"
    gc.collect()
    for ask in (
        lambda: files.open(gone, "read"),
        lambda: files.rename(gone, tmp_path / "new"),
        lambda: files.sync_directory(gone),
        lambda: files.make_directory(gone),
        lambda: files.remove(gone),
    ):
        with suppress(FileNotFoundError):
            ask()
    assert gc.collect() == 0
