"""A topic that forgets, on real files."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from tests.core.support import Probe, PullProbe, Reader, refusal, wishing
from tests.storage.support import Loop
from zbus.core.cursor.state import GroupOptions, TopicOptions
from zbus.core.model.chunk import make_row
from zbus.core.model.errors import Refusal
from zbus.core.model.limits import Limits
from zbus.core.persistence.replay import recover
from zbus.core.persistence.retention import CHECK_MS
from zbus.core.topics.outcomes import Delivered, Raw
from zbus.core.topics.topic import Partition
from zbus.core.verbs.declare import GroupWish
from zbus.server.assembly import make_broker, restore
from zbus.storage.format.batch import read_header
from zbus.storage.local.engine import LocalJournal
from zbus.storage.local.files import OpenMode, OsFiles
from zbus.storage.local.worker import Job, ThreadWorker, Worker

EPOCH_MS = 1_800_000_000_000
BODY = bytes(10_000)  # two of them fill a segment


class Counting(OsFiles):
    """Knows which segments were opened that were there before."""

    def __init__(self) -> None:
        super().__init__()
        self.read_paths: list[str] = []

    def open(self, path: Path, mode: OpenMode) -> int:
        if mode != "create" and path.suffix == ".log":
            self.read_paths.append(path.name.lstrip("0"))
        return super().open(path, mode)


class Late:
    """A worker that works when it is told to."""

    def __init__(self) -> None:
        self.jobs: list[Job] = []

    def submit(self, job: Job) -> None:
        self.jobs.append(job)

    def run(self) -> None:
        while self.jobs:
            self.jobs.pop(0)()

    stop = run


class Desk:
    """One broker on a directory."""

    def __init__(
        self, data_dir: Path, now_ms: int = EPOCH_MS, reader: Worker | None = None
    ) -> None:
        self.data_dir = data_dir
        self.loop = Loop()
        self.files = Counting()

        def worker(name: str) -> Worker:
            return reader if reader and name == "zbus-read" else ThreadWorker(name)

        fail = self.loop.failures.append
        self.journal = LocalJournal(
            data_dir, self.loop.post, fail, self.files, reserve_bytes=0, worker=worker
        )
        ids = (b"%d" % number for number in itertools.count())
        limits = Limits(cache_bytes_max=1)
        self.broker = make_broker(self.journal, ids, limits, segment_bytes=19_000)
        topics, time_ms = recover(self.journal)
        restore(self.broker, topics, max(now_ms, time_ms))

    @property
    def partition(self) -> Partition:
        return self.broker.topics["t"].partitions[0]

    @property
    def names(self) -> list[int]:
        """Of the segments that are there."""
        return sorted(int(path.stem) for path in self.data_dir.glob("T/0/*.log"))

    def turn(self, ms: int = 0) -> None:
        self.broker.finish()
        self.broker.begin(self.broker.now_ms + ms)

    def wait(self, *probes: Probe | PullProbe) -> None:
        self.turn()
        while any(probe.open for probe in probes):
            self.loop.run_one()
            self.turn()

    def declare(self, options: TopicOptions) -> None:
        probe = Probe()
        wish = GroupWish("g", GroupOptions())
        self.broker.declare(probe, options.name, wishing(options, wish))
        self.wait(probe)
        assert probe.fine

    def put(self, count: int) -> None:
        for _ in range(count):
            probe = Probe()
            self.broker.put(self.partition, probe, make_row(b"id", b"", BODY))
            self.wait(probe)
            assert probe.fine

    def look(self, first: int) -> None:
        """Let retention look, until the partition begins there and the files say so."""
        self.turn(CHECK_MS)
        self.turn()
        while self.partition.first < first or self.names[0] < first:
            self.loop.run_one()
            self.turn()
        assert self.partition.first == first

    def pull(self) -> tuple[int, int]:
        """The offset of the next message, and how many were skipped before it."""
        probe = PullProbe(Reader(b"s", ""))
        self.broker.pull(self.broker.topics["t"].groups["g"], probe, None)
        self.wait(probe)
        answer = probe.answers[0]
        assert isinstance(answer, Delivered)
        return probe.records[0].offset, answer.skipped

    def close(self) -> None:
        self.broker._tick.commit()
        self.journal.close()


def options(count: int = 0, durability: str = "disk") -> TopicOptions:
    return TopicOptions("T", durability=durability, retention_count=count, created_ms=EPOCH_MS)


@pytest.mark.parametrize("durability", ["os", "disk"])
def test_files_go_and_who_read_there_is_told(tmp_path: Path, durability: str) -> None:
    desk = Desk(tmp_path)
    desk.declare(options(durability=durability))
    desk.put(7)
    assert desk.names == [0, 2, 4, 6]
    assert desk.pull() == (0, 0)  # half of a segment that goes
    desk.declare(options(2, durability))
    desk.look(4)
    assert desk.names == [4, 6]
    assert desk.pull() == (4, 3)
    read = Probe()
    desk.broker.read(read, desk.partition, 1, 1 << 20)
    assert refusal(read).text == "partition 0 has offsets 4 to 7"
    desk.close()
    after = Desk(tmp_path)
    assert (after.partition.first, after.partition.end) == (4, 7)
    assert after.pull() == (5, 0)
    after.close()


def test_a_read_on_its_way_when_its_file_goes(tmp_path: Path) -> None:
    late = Late()
    desk = Desk(tmp_path, reader=late)
    desk.declare(options())
    desk.put(7)
    desk.declare(options(2))
    read, browse, whole = Probe(), Probe(), Probe()
    desk.broker.read(read, desk.partition, 1, 1 << 20)
    desk.broker.browse(browse, desk.partition, 3, 10)
    desk.broker.read(whole, desk.partition, 4, 1 << 20)
    desk.look(4)
    late.run()
    desk.wait(read, browse, whole)
    assert refusal(read).refusal is refusal(browse).refusal is Refusal.OFFSET_UNKNOWN
    (raw,) = whole.answers
    assert isinstance(raw, Raw)
    assert read_header(raw.batches).base_offset == 4
    desk.close()


def test_what_a_former_run_wrote_is_forgotten_too_and_not_read_before(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.declare(options())
    desk.put(21)
    desk.close()
    after = Desk(tmp_path, desk.broker.now_ms)
    newest = {"20.log"}
    assert set(after.files.read_paths) == newest, "a start reads newest segments only"
    after.declare(options(4))
    after.look(16)
    assert set(after.files.read_paths) == newest | {f"{base or ''}.log" for base in range(0, 16, 2)}
    after.files.read_paths.clear()
    after.declare(TopicOptions("T", retention_ms=5_000, created_ms=EPOCH_MS))
    after.turn(CHECK_MS)
    assert set(after.files.read_paths) <= {"18.log", "20.log"}, "and no message"
    after.close()


@pytest.mark.parametrize(
    ("limits", "first"),
    [(TopicOptions("T", retention_ms=1_000), 2), (TopicOptions("T", retention_bytes=30_000), 4)],
)
def test_a_segment_of_unknown_age(tmp_path: Path, limits: TopicOptions, first: int) -> None:
    """Its age is unknown, so what is before it stays; its bytes are known all the same."""
    desk = Desk(tmp_path)
    desk.declare(options())
    desk.put(7)
    desk.close()
    path = tmp_path / "T/0/00000000000000000004.log"
    path.write_bytes(b"?" * 40 + path.read_bytes()[40:])
    after = Desk(tmp_path, desk.broker.now_ms + 60_000)
    after.declare(limits)
    after.look(first)
    assert after.loop.failures == []
    after.close()
