"""Landmarks: what recovery does with them, whatever a crash, a disk or a person left behind."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from zlib import crc32

import pytest

from tests.storage.support import Loop, SmallDisk, segments
from zbus.core.cursor.state import GroupChange, StateChange, TopicOptions
from zbus.storage.format.batch import SNAPSHOT, Kind
from zbus.storage.format.checkpoint import encode_change
from zbus.storage.local import naming
from zbus.storage.local.engine import LocalJournal
from zbus.storage.local.files import OpenMode, OsFiles
from zbus.storage.local.high_water_marks import HighWaterMark, HighWaterMarks
from zbus.storage.port import JournalDamage, JournalError, JournalFull
from zbus.testing.engines import Writer, bodies, recovered

LANE = ("orders", 0)
KEY = "orders/0"
FIRST = "orders/0/00000000000000000000.log"


def name(base: int) -> str:
    return f"orders/0/{base:020}.log"


def snapshot(writer: Writer, cursor: int = 1) -> bytes:
    change = StateChange(TopicOptions("orders"), (GroupChange("readers", cursor),))
    return writer.seal(Kind.STATE, encode_change(change), SNAPSHOT)


class Log:
    """Segments of a lane, and landmarks that tell of them."""

    def __init__(self) -> None:
        self.writer = Writer()
        self.segments: list[tuple[int, list[bytes]]] = []

    def roll(self) -> Log:
        base = self.writer.end
        self.segments.append((base, [self.writer.checkpoint()]))
        return self

    def add(self, *bodies_: bytes) -> Log:
        for body in bodies_:
            self.segments[-1][1].append(self.writer.data(body))
        return self

    def snapshot(self) -> Log:
        self.segments[-1][1].append(snapshot(self.writer))
        return self

    def mark(self, data_dir: Path, segment: int, durable: int, begin: int = 0) -> None:
        """Claim that the first `durable` batches of a segment are synced; begin at one of them."""
        base, log = self.segments[segment]
        crcs = [int.from_bytes(batch[36:40], "little") for batch in log]
        mark = HighWaterMark(
            KEY,
            base,
            crcs[0],
            sum(map(len, log[:durable])),
            sum(map(len, log[:begin])),
            crcs[begin],
        )
        HighWaterMarks(OsFiles(), data_dir).save([mark])

    def write(self, data_dir: Path) -> None:
        for base, log in self.segments:
            path = data_dir / name(base)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"".join(log))


def opened(data_dir: Path) -> list[bytes] | None:
    loop = Loop()
    journal = loop.local(data_dir)
    try:
        return recovered(journal).get(LANE)
    finally:
        journal.close()
        assert loop.failures == []


def everything(data_dir: Path) -> list[bytes]:
    loop = Loop()
    journal = loop.local(data_dir)
    try:
        return bodies(loop.read(journal, LANE, 0, 1 << 30))
    finally:
        journal.close()


def spoil(data_dir: Path, base: int, position: int) -> None:
    path = data_dir / name(base)
    raw = bytearray(path.read_bytes())
    raw[position] ^= 0xFF
    path.write_bytes(bytes(raw))


def start_of(log: list[bytes], index: int) -> int:
    return sum(map(len, log[:index]))


def test_nothing_before_the_landmark_is_read(tmp_path: Path) -> None:
    log = Log().roll().add(b"a", b"b").snapshot().add(b"c")
    log.write(tmp_path)
    log.mark(tmp_path, 0, durable=5, begin=3)
    for position in (0, start_of(log.segments[0][1], 3) - 1):
        spoil(tmp_path, 0, position)
    assert opened(tmp_path) == log.segments[0][1][3:]


def test_writing_and_reading_go_on_in_a_segment_that_was_not_read_from_its_start(
    tmp_path: Path,
) -> None:
    log = Log().roll().add(*[b"%d" % n for n in range(20)]).snapshot().add(b"20")
    log.write(tmp_path)
    log.mark(tmp_path, 0, durable=22, begin=21)
    loop = Loop()
    journal = loop.local(tmp_path)
    assert len(recovered(journal)[LANE]) == 2
    for number in range(21, 40):
        log.writer.append(journal, partial(log.writer.data, b"%d" % number))
        assert bodies(loop.read(journal, LANE, number)) == [b"%d" % number]
    assert bodies(loop.read(journal, LANE, 0)) == [b"%d" % n for n in range(40)]
    journal.close()


# What a crash may leave of three unsynced appends behind a synced one, and what becomes of it.
# o = as written, z = zeros, t = cut short (only the last). durable counts batches.
HOLES = [
    ("ooo", 2, 5, ""),
    ("ooz", 2, 4, ""),
    ("oot", 2, 4, ""),
    ("ozo", 2, 3, "torn"),
    ("zoo", 2, 2, "torn"),
    ("zzo", 2, 2, "torn"),
    ("zzz", 2, 2, ""),
    ("ozo", 3, 3, "torn"),
    ("ooz", 5, None, "damage"),
    ("ozo", 4, None, "damage"),
    ("zoo", 3, None, "damage"),
    ("zzz", 3, None, "damage"),
    ("oot", 5, None, "damage"),
]


@pytest.mark.parametrize(("left", "durable", "kept", "outcome"), HOLES)
def test_holes(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    left: str,
    durable: int,
    kept: int | None,
    outcome: str,
) -> None:
    log = Log().roll().add(b"a", b"b" * 30, b"c" * 30, b"d" * 30)
    batches = log.segments[0][1]
    for index, how in enumerate(left, 2):
        if how == "z":
            batches[index] = bytes(len(batches[index]))
        elif how == "t":
            batches[index] = batches[index][:-1]
    log.write(tmp_path)
    before = b"".join(batches)
    whole = Log().roll().add(b"a", b"b" * 30, b"c" * 30, b"d" * 30)
    whole.mark(tmp_path, 0, durable)
    path = tmp_path / FIRST
    with caplog.at_level(logging.WARNING, "zbus"):
        if kept is None:
            with pytest.raises(JournalDamage) as caught:
                opened(tmp_path)
            position = start_of(batches, 2 + min(map(left.index, set(left) - {"o"})))
            assert f"{path} at byte {position}: " in str(caught.value)
            assert "zbus verify" in str(caught.value)
            assert path.read_bytes() == before  # nothing is touched
            return
        assert opened(tmp_path) == batches[:kept]
    assert path.read_bytes() == b"".join(batches[:kept])
    position = path.stat().st_size
    aside = [] if outcome == "" else [f"{FIRST}.torn-{position}"]
    assert segments(tmp_path) == [FIRST, *aside]
    if aside:
        assert path.read_bytes() + (tmp_path / aside[0]).read_bytes() == before
    levels = {record.levelname for record in caplog.records}
    assert levels == {"": set(), "torn": {"WARNING"}}[outcome]
    assert opened(tmp_path) == batches[:kept]  # twice changes nothing
    assert segments(tmp_path) == [FIRST, *aside]


def test_a_synced_end_that_is_gone_is_refused(tmp_path: Path) -> None:
    """Served, it would have its offsets given to other messages."""
    log = Log().roll().add(b"a", b"b")
    log.write(tmp_path)
    log.mark(tmp_path, 0, durable=3)
    batches = log.segments[0][1]
    (tmp_path / FIRST).write_bytes(b"".join(batches[:2]))
    for _ in range(2):
        with pytest.raises(JournalDamage, match=r"was synced up to byte \d+, and ends here"):
            opened(tmp_path)


def three_segments() -> Log:
    return Log().roll().add(b"a", b"b").roll().add(b"c", b"d").roll().add(b"e")


# What the first of three segments holds, of which two batches are synced, and what is recovered.
EARLIER = [
    ("whole", 2, "e"),
    ("short", 2, "a"),  # the size of the file was not written: its last batch is missing
    ("zeros", 2, "a"),
    ("torn", 2, "a"),
    ("short", 3, None),
    ("zeros", 3, None),
    ("torn", 3, None),
]


@pytest.mark.parametrize(("left", "durable", "newest"), EARLIER)
def test_a_hole_in_an_earlier_segment(
    tmp_path: Path, left: str, durable: int, newest: str | None
) -> None:
    log = three_segments()
    first = log.segments[0][1]
    log.mark(tmp_path, 0, durable)
    if left == "short":
        first.pop()
    elif left == "zeros":
        first[2] = bytes(len(first[2]))
    elif left == "torn":
        first[2] = first[2][:-8]
    log.write(tmp_path)
    before = {path: (tmp_path / path).read_bytes() for path in segments(tmp_path)}
    if newest is None:
        with pytest.raises(JournalDamage, match=r"0000\.log at byte \d+: .*zbus verify"):
            opened(tmp_path)
        assert {path: (tmp_path / path).read_bytes() for path in segments(tmp_path)} == before
        return
    if newest == "e":
        assert opened(tmp_path) == log.segments[2][1]
        assert everything(tmp_path) == [b"a", b"b", b"c", b"d", b"e"]
        return
    assert opened(tmp_path) == first[:2]
    assert everything(tmp_path) == [b"a"]
    left_over = [FIRST, *([f"{FIRST}.torn-{start_of(first, 2)}"] if left != "short" else [])]
    assert segments(tmp_path) == [*left_over, name(2) + ".torn", name(4) + ".torn"]
    for base in (2, 4):
        assert (tmp_path / (name(base) + ".torn")).read_bytes() == before[name(base)]


def test_a_segment_that_does_not_continue_the_one_before_is_set_aside(tmp_path: Path) -> None:
    """The last batch of the first segment was lost so that it ends cleanly."""
    log = three_segments()
    log.mark(tmp_path, 1, durable=1)
    log.segments[1][1].pop()
    log.write(tmp_path)
    assert opened(tmp_path) == log.segments[1][1]
    assert everything(tmp_path) == [b"a", b"b", b"c"]


def test_a_later_segment_without_checkpoint(tmp_path: Path) -> None:
    log = three_segments()
    log.mark(tmp_path, 0, durable=3)
    log.segments[2][1][:] = [log.segments[2][1][0][:-8]]
    log.write(tmp_path)
    assert opened(tmp_path) == log.segments[1][1]
    assert segments(tmp_path) == [name(0), name(2), name(4) + ".torn"]


def test_set_aside_twice_keeps_both(tmp_path: Path) -> None:
    for _ in range(2):
        log = Log().roll().add(b"a", b"b", b"c")
        log.mark(tmp_path, 0, durable=2)
        log.segments[0][1][2] = bytes(len(log.segments[0][1][2]))
        log.write(tmp_path)
        opened(tmp_path)
    position = start_of(log.segments[0][1], 2)
    aside = f"{FIRST}.torn-{position}"
    assert segments(tmp_path) == [FIRST, aside, aside + "-2"]


# -- the file itself ----------------------------------------------------------------------


def spoilt(change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    def spoil_file(path: Path) -> None:
        path.write_bytes(change(path.read_bytes()))

    return spoil_file


UNUSABLE = {
    "missing": lambda path: path.unlink(),
    "empty": spoilt(lambda raw: b""),
    "cut": spoilt(lambda raw: raw[:-1]),
    "longer": spoilt(lambda raw: raw + b"\n"),
    "flipped": spoilt(lambda raw: raw[:40] + bytes([raw[40] ^ 1]) + raw[41:]),
    "zeros": spoilt(lambda raw: bytes(len(raw))),
    "another version": spoilt(lambda raw: raw.replace(b"landmarks 1", b"landmarks 2")),
    "not its json": spoilt(lambda raw: b"zbus landmarks 1 %08x\n{}" % crc32(b"{}")),
}


@pytest.mark.parametrize("how", UNUSABLE.values(), ids=UNUSABLE.keys())
def test_without_usable_landmarks_the_newest_segment_is_read(
    tmp_path: Path, how: Callable[[Path], None]
) -> None:
    log = Log().roll().add(b"a").snapshot().add(b"b")
    log.write(tmp_path)
    log.mark(tmp_path, 0, durable=4, begin=2)
    how(tmp_path / "landmarks")
    assert opened(tmp_path) == log.segments[0][1][2:]
    assert "orders/0" in (tmp_path / "landmarks").read_text()  # written anew
    how(tmp_path / "landmarks")
    spoil(tmp_path, 0, start_of(log.segments[0][1], 1))  # then any hole is damage
    with pytest.raises(JournalDamage, match="whole batches follow"):
        opened(tmp_path)


def test_landmarks_of_another_directory(tmp_path: Path) -> None:
    here, there = Log().roll().add(b"a", b"b"), Log()
    there.writer.end = 1  # so its checkpoint is another
    there.segments.append((0, [there.writer.checkpoint()]))
    there.add(b"x" * 100).snapshot()
    here.write(tmp_path)
    there.mark(tmp_path, 0, durable=3, begin=2)
    assert opened(tmp_path) == here.segments[0][1]
    assert everything(tmp_path) == [b"a", b"b"]


def test_a_damaged_beginning_is_no_excuse(tmp_path: Path) -> None:
    """If the landmark's batch itself is damaged, its segment is read, and refused."""
    log = Log().roll().add(b"a").snapshot().add(b"b")
    log.write(tmp_path)
    log.mark(tmp_path, 0, durable=4, begin=2)
    position = start_of(log.segments[0][1], 2)
    spoil(tmp_path, 0, position + 50)
    with pytest.raises(JournalDamage, match=f"at byte {position}: checksum is wrong"):
        opened(tmp_path)


def test_the_segment_of_the_landmark_was_trimmed(tmp_path: Path) -> None:
    log = three_segments()
    log.write(tmp_path)
    log.mark(tmp_path, 0, durable=3)
    (tmp_path / name(0)).unlink()
    assert opened(tmp_path) == log.segments[2][1]
    (tmp_path / name(2)).unlink()
    assert opened(tmp_path) == log.segments[2][1]


def test_a_lane_the_landmarks_do_not_know_is_read_from_its_beginning(tmp_path: Path) -> None:
    log = three_segments()
    HighWaterMarks(OsFiles(), tmp_path).save([])
    log.segments[0][1][2] = bytes(len(log.segments[0][1][2]))
    log.write(tmp_path)
    assert opened(tmp_path) == log.segments[0][1][:2]


def test_a_topic_of_that_name_makes_way(tmp_path: Path) -> None:
    writer = Writer(("landmarks", 0))
    path = tmp_path / "landmarks" / "0" / "00000000000000000000.log"
    path.parent.mkdir(parents=True)
    path.write_bytes(writer.checkpoint() + writer.data(b"a"))
    journal = Loop().local(tmp_path)
    assert list(recovered(journal)) == [("landmarks", 0)]
    journal.close()
    assert (tmp_path / "landmarks").is_file()


# -- a run that writes them ---------------------------------------------------------------


class World:
    """A journal whose sync happens when told."""

    def __init__(
        self, data_dir: Path, open_segments_max: int = 1000, files: OsFiles | None = None
    ) -> None:
        self.jobs: dict[str, list[Callable[[], None]]] = {}
        self.failures: list[str] = []
        self.files = OsFiles() if files is None else files
        self.journal = LocalJournal(
            data_dir,
            lambda call: call(),
            self.failures.append,
            self.files,
            reserve_bytes=0,
            open_segments_max=open_segments_max,
            worker=lambda worker: Later(self.jobs.setdefault(worker, [])),
        )
        self.data_dir = data_dir

    def sync(self) -> None:
        jobs = self.jobs["zbus-sync"]
        while jobs:
            jobs.pop(0)()

    def marks(self) -> dict[str, HighWaterMark]:
        return HighWaterMarks(OsFiles(), self.data_dir).load() or {}


class Later:
    def __init__(self, jobs: list[Callable[[], None]]) -> None:
        self.submit = jobs.append
        self._jobs = jobs

    def stop(self) -> None:
        while self._jobs:
            self._jobs.pop(0)()


def test_claims_are_true_when_they_are_made(tmp_path: Path) -> None:
    world, writer = World(tmp_path), Writer()
    log = tmp_path / "orders" / "0" / naming.segment_name(0)
    writer.append(world.journal, writer.checkpoint)
    size = log.stat().st_size
    assert world.marks() == {}
    world.journal.upkeep(1_000)
    writer.append(world.journal, lambda: writer.data(b"a"))
    after = log.stat().st_size
    assert world.marks() == {}  # not before the sync
    world.sync()
    assert world.marks()[KEY].durable == size  # what came after is not claimed
    world.journal.upkeep(2_000)
    world.sync()
    assert world.marks()[KEY].durable == after
    written = (tmp_path / "landmarks").stat().st_ino
    for now_ms in range(3_000, 9_000, 1_000):
        world.journal.upkeep(now_ms)
        assert world.jobs["zbus-sync"] == []  # nothing new
    assert (tmp_path / "landmarks").stat().st_ino == written
    writer.append(world.journal, lambda: writer.data(b"b"))
    mark = log.stat().st_size
    writer.append(world.journal, lambda: snapshot(writer))
    size = log.stat().st_size
    world.journal.close()
    assert (world.marks()[KEY].durable, world.marks()[KEY].begin) == (size, mark)


@pytest.mark.parametrize("saving", [False, True])
def test_a_lane_that_took_the_name_of_another(tmp_path: Path, saving: bool) -> None:
    """The landmarks on disk speak of the former one no more, or while they are being written,
    perhaps: then they do until they are written again."""
    world, writer = World(tmp_path), Writer()
    writer.append(world.journal, writer.checkpoint)
    writer.append(world.journal, lambda: writer.data(b"a" * 100))
    world.journal.upkeep(1_000)
    world.sync()
    if saving:
        writer.append(world.journal, lambda: writer.data(b"a"))
        world.journal.upkeep(1_500)
    world.journal.remove([LANE], lambda: None)
    again = Writer()
    again.append(world.journal, lambda: again.state(7, Kind.CHECKPOINT))
    again.append(world.journal, lambda: again.data(b"b"))
    if saving:
        assert world.marks()[KEY].durable > (tmp_path / FIRST).stat().st_size
    else:
        assert world.marks() == {}
    crashed = tmp_path.with_name(f"{tmp_path.name}-crashed")
    shutil.copytree(tmp_path, crashed)
    found = opened(crashed)
    assert found is not None
    assert len(found) == 2
    world.sync()
    world.journal.upkeep(2_000)
    world.sync()
    assert world.marks()[KEY].durable == (tmp_path / FIRST).stat().st_size
    world.journal.remove([LANE], lambda: None)
    world.journal.upkeep(3_000)
    world.sync()
    assert world.marks() == {}
    world.journal.close()


def test_a_name_that_is_taken_away_again_while_the_landmarks_are_written(tmp_path: Path) -> None:
    marks = HighWaterMarks(OsFiles(), tmp_path)
    marks.forget(KEY)
    marks.save(marks.claims())
    ghosts = marks.ghosts()
    marks.forget(KEY)
    marks.saved(ghosts)
    assert marks.haunts(KEY)
    marks.save(marks.claims())
    marks.saved(marks.ghosts())
    assert not marks.haunts(KEY)


class Syncs(OsFiles):
    """Counts the syncs, and is full as told."""

    def __init__(self) -> None:
        super().__init__()
        self.syncs = 0
        self.directories: set[Path] = set()  # synced
        self.full = False

    def open(self, path: Path, mode: OpenMode) -> int:
        if self.full and path.name == naming.LANDMARKS_PRUNED:
            raise JournalFull("no space left")
        return super().open(path, mode)

    def sync(self, file: int) -> None:
        self.syncs += 1
        super().sync(file)

    def sync_directory(self, path: Path) -> None:
        self.syncs += 1
        self.directories.add(path)
        super().sync_directory(path)


@pytest.mark.parametrize("full", [False, True])
def test_many_lanes_that_take_names_of_others_are_made_with_few_syncs(
    tmp_path: Path, full: bool
) -> None:
    """While the removal of those is not durable, which would do it without any."""
    files = Syncs()
    world = World(tmp_path, files=files)
    lanes = [("orders", number) for number in range(64)]
    for _ in range(2):
        files.syncs, files.full = 0, full
        for lane in lanes:
            writer = Writer(lane)
            writer.append(world.journal, writer.checkpoint)
        made = files.syncs
        files.full = False
        world.journal.upkeep(1_000)
        world.sync()
        world.journal.remove(lanes, lambda: None)
    assert made > 3 if full else made <= 3
    assert set(world.marks()) <= {naming.lane_key(Path(*map(str, lane))) for lane in lanes}
    world.journal.close()


def test_the_names_of_a_lane_that_took_the_name_of_another_are_synced(tmp_path: Path) -> None:
    """Else a power cut leaves the marks of the former lane, and no file."""
    files = Syncs()
    world = World(tmp_path, files=files)
    for full in (False, True):
        files.full = full
        files.directories.clear()
        writer = Writer()
        writer.append(world.journal, writer.checkpoint)
        made = set(files.directories)
        files.full = False
        world.journal.upkeep(1_000)
        world.sync()
        world.journal.remove([LANE], lambda: None)
    assert made >= {tmp_path, tmp_path / "orders", tmp_path / "orders" / "0"}
    world.journal.close()


def test_a_hole_in_a_lane_that_took_the_name_of_another(tmp_path: Path) -> None:
    """How much was synced of the former one says nothing of this one."""
    former, log = Log().roll().add(b"a" * 9_000), Log()
    log.segments.append((0, [log.writer.state(7, Kind.CHECKPOINT)]))
    batches = log.add(b"b", b"c", b"d").segments[0][1]
    log.write(tmp_path)
    former.mark(tmp_path, 0, durable=2)
    path = tmp_path / name(0)
    raw, start, stop = path.read_bytes(), start_of(batches, 2), start_of(batches, 3)
    path.write_bytes(raw[:start] + bytes(stop - start) + raw[stop:])
    assert opened(tmp_path) == batches[:2]


def test_a_lane_that_took_a_name_and_rolls_waits_for_its_former_segment(tmp_path: Path) -> None:
    """The new segment is synced at once, but what is before it is not durable by that."""
    files = Syncs()
    world, writer = World(tmp_path, files=files), Writer()
    writer.append(world.journal, writer.checkpoint)
    world.journal.upkeep(1_000)
    world.sync()
    writer.append(world.journal, lambda: writer.data(b"a"))
    world.journal.upkeep(1_500)  # the landmarks may speak of the former lane until that is done
    world.journal.remove([LANE], lambda: None)
    again = Writer()
    again.append(world.journal, lambda: again.state(7, Kind.CHECKPOINT))
    again.append(world.journal, lambda: again.data(b"a"))
    syncs = files.syncs
    again.append(world.journal, lambda: again.state(8, Kind.CHECKPOINT))
    assert files.syncs > syncs
    done: list[bool] = []
    world.journal.commit([LANE], True, lambda _: done.append(True))
    assert not done
    world.sync()
    assert done
    world.journal.close()


def test_few_open_files_serve_many_lanes(tmp_path: Path) -> None:
    world = World(tmp_path, open_segments_max=8)
    writers = [Writer((f"t{number}", 0)) for number in range(50)]
    before = len(list(Path("/proc/self/fd").iterdir()))

    def open_files() -> int:
        return len(list(Path("/proc/self/fd").iterdir())) - before

    for writer in writers:
        writer.append(world.journal, writer.checkpoint)
    assert open_files() <= 8
    done: list[bool] = []
    for turn in range(3):
        for writer in writers:
            writer.append(world.journal, partial(writer.data, b"x"))
        world.journal.commit([writer.lane for writer in writers], True, lambda _: done.append(True))
        assert len(done) == turn
        assert open_files() <= 16  # eight that a sync works on, eight that are written
        world.sync()
        assert len(done) == turn + 1
        assert open_files() <= 8
    world.journal.upkeep(1_000)
    world.sync()
    world.journal.upkeep(40_000)
    assert open_files() == 0
    world.journal.close()
    journal = Loop().local(tmp_path)
    assert all(len(batches) == 4 for batches in recovered(journal).values())
    assert open_files() <= 1
    journal.close()


def test_a_failed_write_of_landmarks_is_a_failed_sync(tmp_path: Path) -> None:
    class Broken(OsFiles):
        def rename(self, path: Path, target: Path) -> None:
            raise OSError(5, "Input/output error")

    loop, writer = Loop(), Writer()
    first = loop.local(tmp_path)
    recovered(first)
    first.close()
    journal = loop.local(tmp_path, Broken())
    writer.append(journal, writer.checkpoint)
    journal.upkeep(1_000)
    loop.run_until(lambda: loop.failures)
    assert "Input/output error" in loop.failures[0]
    journal.commit([LANE], True, lambda _: pytest.fail("acknowledged"))
    with pytest.raises(JournalError):
        writer.append(journal, lambda: writer.data(b"a"))
    journal.close()
    assert opened(tmp_path) is not None


def test_a_full_disk_puts_landmarks_off(tmp_path: Path) -> None:
    disk, loop, writer = SmallDisk(1000), Loop(), Writer()
    journal = loop.local(tmp_path, disk)
    writer.append(journal, writer.checkpoint)
    loop.commit(journal, LANE)
    disk.space, space = 20, disk.space
    before = (tmp_path / "landmarks").read_bytes()
    journal.upkeep(1_000)
    loop.run_one()
    assert (tmp_path / "landmarks").read_bytes() == before
    assert disk.space == 20
    disk.space = space
    journal.upkeep(2_000)
    loop.run_one()
    assert KEY in (tmp_path / "landmarks").read_text()
    journal.close()
    assert loop.failures == []
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["identity", "landmarks", "lock", "orders"]


def test_what_nobody_waits_for_is_synced_within_a_second(tmp_path: Path) -> None:
    world, writer = World(tmp_path), Writer()
    writer.append(world.journal, writer.checkpoint)
    writer.append(world.journal, lambda: writer.data(b"a"))
    world.journal.commit([], True, lambda _: None)
    assert world.jobs["zbus-sync"] == []
    world.journal.upkeep(1_000)
    assert len(world.jobs["zbus-sync"]) == 1
    world.journal.upkeep(2_000)  # one at a time
    assert len(world.jobs["zbus-sync"]) == 1
    world.sync()
    world.journal.close()


# -- what only a run and a crash show ------------------------------------------------------


def test_a_segment_in_the_place_of_another_continues_the_log(tmp_path: Path) -> None:
    """Its checkpoint chains to the one that it replaced, which nobody finds any more."""
    world, writer = World(tmp_path), Writer()
    writer.append(world.journal, writer.checkpoint)
    writer.append(world.journal, lambda: writer.data(b"a"))
    world.journal.upkeep(1_000)
    world.sync()
    for _ in range(2):
        writer.append(world.journal, writer.checkpoint)
    writer.append(world.journal, lambda: writer.data(b"b"))
    crashed = tmp_path.with_name(f"{tmp_path.name}-crashed")
    shutil.copytree(tmp_path, crashed)
    assert everything(crashed) == [b"a", b"b"]
    assert segments(crashed) == segments(tmp_path)
    world.journal.close()


def test_segments_are_removed_durably_one_after_another(tmp_path: Path) -> None:
    """Else a crash may keep an older one and lose a newer: a gap, like a lost write."""
    world, writer = World(tmp_path), Writer()
    for body in (b"a", b"b", b"c"):
        writer.append(world.journal, writer.checkpoint)
        writer.append(world.journal, partial(writer.data, body))
    world.journal.trim(LANE, 2)
    left = [segments(tmp_path)]
    jobs = world.jobs["zbus-sync"]
    while jobs:
        jobs.pop(0)()
        if segments(tmp_path) != left[-1]:
            left.append(segments(tmp_path))
    assert left == [[name(0), name(1), name(2)], [name(1), name(2)], [name(2)]]
    world.journal.close()


def test_a_trim_of_a_lane_that_is_gone_spares_its_successor(tmp_path: Path) -> None:
    world, writer = World(tmp_path), Writer()
    for body in (b"a", b"b"):
        writer.append(world.journal, writer.checkpoint)
        writer.append(world.journal, partial(writer.data, body))
    world.journal.trim(LANE, 1)
    world.journal.remove([LANE], lambda: None)
    again = Writer()
    again.append(world.journal, again.checkpoint)
    world.sync()
    assert segments(tmp_path) == [FIRST]
    world.journal.close()


class CountingDisk(OsFiles):
    """Remembers what was synced, by path."""

    def __init__(self) -> None:
        super().__init__()
        self.synced: list[str] = []

    def sync_all(self, file: int) -> bool:
        return False

    def sync(self, file: int) -> None:
        self.synced.append(Path(f"/proc/self/fd/{file}").readlink().name)
        super().sync(file)


def test_what_a_killed_run_left_unsynced_is_synced_in_every_segment(tmp_path: Path) -> None:
    log = three_segments()
    log.write(tmp_path)
    log.mark(tmp_path, 0, durable=2)
    disk, loop = CountingDisk(), Loop()
    journal = loop.local(tmp_path, disk)
    assert recovered(journal) == {LANE: log.segments[2][1]}
    disk.synced.clear()
    loop.commit(journal, LANE)
    assert disk.synced == [Path(name(base)).name for base in (0, 2, 4)]
    journal.close()


def test_a_lane_that_is_removed_during_the_sync_is_not_claimed(tmp_path: Path) -> None:
    """Its file may be gone before it is synced; a power cut may bring it back without its end."""
    marks = HighWaterMarks(OsFiles(), tmp_path)
    for lane in ("a/0", "a/1", "b/0"):
        marks.claim(HighWaterMark(lane, 0, 1, 2_496, 0, 1, 9))
    saving = marks.claims()
    marks.forget("a/1")  # on the broker's thread, while the worker syncs
    marks.save(saving)
    assert set(HighWaterMarks(OsFiles(), tmp_path).load() or {}) == {"a/0", "b/0"}
    marks.saved({})
    marks.claim(HighWaterMark("a/1", 0, 2, 100, 0, 2, 1))  # another lane of that name
    marks.save(marks.claims())
    assert set(HighWaterMarks(OsFiles(), tmp_path).load() or {}) == {"a/0", "a/1", "b/0"}
