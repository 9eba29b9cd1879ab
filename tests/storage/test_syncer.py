"""Group commit: what a reply waits for, seen through an engine whose disk can be held still."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.storage.support import BrokenDisk, Loop
from zbus.storage.local.engine import LocalJournal
from zbus.storage.local.files import OsFiles
from zbus.storage.local.syncer import FILES_MAX, LITTLE_BYTES, QUICK_S, SLOW_PAUSE, Syncer
from zbus.storage.port import JournalError, Verdicts
from zbus.testing.engines import WAIT_SECONDS, Writer, bodies


class HeldDisk(OsFiles):
    """Each sync of the syncing thread says that it began, then waits to be let go."""

    def __init__(self) -> None:
        super().__init__()
        self.began = threading.Semaphore(0)
        self.go = threading.Semaphore(0)
        self.synced: list[int] = []

    def sync(self, file: int) -> None:
        if threading.current_thread() is threading.main_thread():
            super().sync(file)
            return
        self.began.release()
        assert self.go.acquire(timeout=WAIT_SECONDS)
        self.synced.append(file)
        super().sync(file)

    def let_all_go(self) -> None:
        self.go.release(1000)


def told(done: list[int], number: int, verdicts: Verdicts) -> None:
    assert not verdicts
    done.append(number)


def test_nothing_is_done_while_the_sync_runs(tmp_path: Path) -> None:
    loop, disk, writer = Loop(), HeldDisk(), Writer()
    journal = loop.local(tmp_path, disk)
    writer.append(journal, writer.checkpoint)
    done: list[str] = []
    journal.commit([writer.lane], True, lambda _: done.append("first"))
    assert disk.began.acquire(timeout=WAIT_SECONDS)
    journal.commit([], True, lambda _: done.append("os"))  # another level need not wait
    assert done == ["os"]
    assert loop.posted.empty()
    disk.go.release()
    loop.run_until(lambda: "first" in done)
    disk.let_all_go()
    journal.close()


def test_one_sync_covers_what_came_during_the_last_one(tmp_path: Path) -> None:
    loop, disk, writer = Loop(), HeldDisk(), Writer()
    journal = loop.local(tmp_path, disk)
    writer.append(journal, writer.checkpoint)
    done: list[int] = []
    journal.commit([writer.lane], True, lambda _: done.append(0))
    assert disk.began.acquire(timeout=WAIT_SECONDS)
    for number in range(1, 50):
        writer.append(journal, lambda: writer.data(b"x"))
        journal.commit([writer.lane], True, partial(told, done, number))
    disk.go.release()
    loop.run_until(lambda: done)
    assert done == [0]
    loop.run_one()  # the next turn begins: nothing else has begun the next sync
    assert disk.began.acquire(timeout=WAIT_SECONDS)
    disk.go.release()
    loop.run_until(lambda: len(done) == 50)
    assert done == list(range(50))
    assert len(disk.synced) == 2
    disk.let_all_go()
    journal.close()


def test_a_sync_covers_what_is_written_in_the_turn_in_which_the_last_one_ended(
    tmp_path: Path,
) -> None:
    loop, disk, writer = Loop(), HeldDisk(), Writer()
    journal = loop.local(tmp_path, disk)
    writer.append(journal, writer.checkpoint)
    done: list[int] = []
    for number in range(3):
        if number == 2:
            disk.go.release()
            loop.run_until(lambda: done)
        writer.append(journal, lambda: writer.data(b"x"))
        journal.commit([writer.lane], True, partial(told, done, number))
    disk.let_all_go()
    loop.run_until(lambda: len(done) == 3)
    assert done == [0, 1, 2]
    assert len(disk.synced) == 2
    journal.close()


def test_a_commit_of_nothing_new_waits_for_what_is_under_way(tmp_path: Path) -> None:
    loop, disk, writer = Loop(), HeldDisk(), Writer()
    journal = loop.local(tmp_path, disk)
    writer.append(journal, writer.checkpoint)
    done: list[int] = []
    journal.commit([writer.lane], True, lambda _: done.append(0))
    assert disk.began.acquire(timeout=WAIT_SECONDS)
    journal.commit([writer.lane], True, lambda _: done.append(1))
    assert done == []
    disk.go.release()
    loop.run_until(lambda: done)
    assert done == [0, 1]
    journal.commit([writer.lane], True, lambda _: done.append(2))
    assert done == [0, 1, 2]
    disk.let_all_go()
    journal.close()


def test_who_waits_for_the_sync_of_a_topic_that_goes_waits_until_it_cannot_come_back(
    tmp_path: Path,
) -> None:
    """The sync that runs finds the new directory no more. A power cut that gives the topic its name
    back may leave it without what is in there."""
    loop, disk, writer = Loop(), HeldDisk(), Writer()
    journal = loop.local(tmp_path, disk)
    writer.append(journal, writer.checkpoint)
    done: list[str] = []
    journal.commit([writer.lane], True, lambda _: done.append("stored"))
    assert disk.began.acquire(timeout=WAIT_SECONDS)
    journal.remove([writer.lane], lambda: done.append("gone"))
    disk.go.release()
    loop.run_one()  # that sync is over, and the next one on its way
    assert done == []
    disk.let_all_go()
    loop.run_until(lambda: "gone" in done)
    assert done == ["stored", "gone"]
    journal.close()


@pytest.mark.parametrize("broken", ["sync", "sync_directory"])
def test_a_failed_sync_is_final(tmp_path: Path, broken: str) -> None:
    loop, disk, writer = Loop(), BrokenDisk(), Writer()
    journal = loop.local(tmp_path, disk)
    writer.append(journal, writer.checkpoint)
    disk.broken = {broken}
    done: list[int] = []
    journal.commit([writer.lane], True, lambda _: done.append(0))
    journal.commit([writer.lane], True, lambda _: done.append(1))
    loop.run_until(lambda: loop.failures)
    disk.broken = set()  # that the disk claims to be well again changes nothing
    journal.commit([writer.lane], True, lambda _: done.append(2))
    journal.commit([], True, lambda _: done.append(3))
    journal.trim(writer.lane, 99)
    with pytest.raises(JournalError, match="failed"):
        writer.append(journal, lambda: writer.data(b"x"))
    journal.close()
    assert loop.posted.empty()
    assert done == []
    assert loop.failures == ["sync failed: [Errno 5] input/output error"]


def test_closing_finishes_what_waits(tmp_path: Path) -> None:
    loop, disk, writer = Loop(), HeldDisk(), Writer()
    journal = loop.local(tmp_path, disk)
    writer.append(journal, writer.checkpoint)
    done: list[int] = []
    journal.commit([writer.lane], True, lambda _: done.append(0))
    assert disk.began.acquire(timeout=WAIT_SECONDS)
    writer.append(journal, lambda: writer.data(b"x"))
    journal.commit([writer.lane], True, lambda _: done.append(1))
    disk.let_all_go()
    journal.close()
    assert done == [0, 1]
    while not loop.posted.empty():  # the first sync's report, after all was done
        loop.run_one()
    assert done == [0, 1]
    journal.close()


def test_a_sync_that_fails_while_closing(tmp_path: Path) -> None:
    loop, disk, writer = Loop(), BrokenDisk(), Writer()
    journal = loop.local(tmp_path, disk)
    writer.append(journal, writer.checkpoint)
    disk.broken = {"sync"}
    journal.close()
    assert len(loop.failures) == 1


def test_what_waits_for_a_new_segment_waits_for_the_old_one_too(tmp_path: Path) -> None:
    """Else a crash could take from the middle of the log what was acknowledged."""
    loop, writer = Loop(), Writer()
    disk = HeldDisk()
    disk.go.release()
    journal = loop.local(tmp_path, disk)
    writer.append(journal, writer.checkpoint)
    loop.commit(journal, writer.lane)
    done: list[bool] = []
    writer.append(journal, lambda: writer.data(b"x"))
    writer.append(journal, writer.checkpoint)  # rolls, without a sync on this thread
    journal.commit([writer.lane], True, lambda _: done.append(True))
    disk.go.release()
    loop.run_one()  # the old segment is synced
    assert (len(disk.synced), done) == (2, [])
    disk.go.release()
    loop.run_until(lambda: done)
    assert len(set(disk.synced)) == 2
    disk.let_all_go()
    journal.close()


class Held:
    """A worker that runs a job when told."""

    def __init__(self) -> None:
        self.jobs: list[Callable[[], None]] = []

    def submit(self, job: Callable[[], None]) -> None:
        self.jobs.append(job)

    def stop(self) -> None:
        while self.jobs:
            self.jobs.pop(0)()


class CountingDisk(OsFiles):
    """Counts how things were synced; cannot sync it all at once unless `at_once`."""

    def __init__(self, at_once: bool) -> None:
        super().__init__()
        self.at_once = at_once
        self.calls: list[str] = []
        self.closed: list[int] = []

    def sync(self, file: int) -> None:
        self.calls.append("file")

    def sync_all(self, file: int) -> bool:
        self.calls.append("all")
        return self.at_once

    def sync_directory(self, path: Path) -> None:
        self.calls.append("directory")
        if not path.exists():
            raise FileNotFoundError(path)

    def close(self, file: int) -> None:
        self.closed.append(file)


def run_round(disk: CountingDisk, files: range, directories: list[Path]) -> list[str]:
    worker, failures, done = Held(), list[str](), list[bool]()
    syncer = Syncer(disk, worker, lambda call: call(), failures.append)
    syncer.collecting.files.update(files)
    syncer.collecting.directories.update(directories)
    syncer.wait(syncer.start(), lambda: done.append(True))
    assert done == []
    worker.stop()
    assert (done, failures) == ([True], [])
    return disk.calls


def test_few_files_one_by_one_many_at_once(tmp_path: Path) -> None:
    few, many = range(FILES_MAX - 1), range(FILES_MAX + 1)
    gone = tmp_path / "gone"
    assert run_round(CountingDisk(True), few, [tmp_path]) == ["file"] * 7 + ["directory"]
    assert run_round(CountingDisk(True), many, [tmp_path]) == ["all"]
    assert run_round(CountingDisk(False), many, []) == ["all"] + ["file"] * 9
    assert run_round(CountingDisk(True), range(1), [gone]) == ["file", "directory"]


def test_files_are_not_closed_under_a_sync() -> None:
    disk, worker = CountingDisk(True), Held()
    syncer = Syncer(disk, worker, lambda call: call(), pytest.fail)
    syncer.retire(1)
    assert disk.closed == [1]
    for file in (2, 3):
        syncer.collecting.files.add(file)
        syncer.start()
    syncer.retire(2)
    syncer.retire(3)
    assert disk.closed == [1]
    worker.jobs.pop(0)()
    assert disk.closed == [1, 2]
    worker.jobs.pop(0)()
    assert disk.closed == [1, 2, 3]


class TimedDisk(CountingDisk):
    """Each sync takes so long by a clock of its own."""

    def __init__(self) -> None:
        super().__init__(True)
        self.now_s = self.sync_s = 0.0
        self.broken = False

    def sync(self, file: int) -> None:
        super().sync(file)
        self.now_s += self.sync_s
        if self.broken:
            raise OSError(5, "input/output error")


class Quiet:
    """A syncer whose caller has little to do, and what becomes of its rounds."""

    def __init__(self) -> None:
        self.disk, self.worker, self.posted = TimedDisk(), Held(), list[Callable[[], None]]()
        self.failures, self.done, self.took_s = list[str](), list[int](), list[float]()
        self.may_sync = True
        self.syncer = Syncer(
            self.disk,
            self.worker,
            self.posted.append,
            self.failures.append,
            observe=self.took_s.append,
            may_sync=lambda: self.may_sync,
            clock_s=lambda: self.disk.now_s,
        )

    def commit(self, number: int) -> bool:
        """A commit of one file; whether it was over at once."""
        self.syncer.collecting.files.add(1)
        self.syncer.wait(self.syncer.start(), partial(self.done.append, number))
        return number in self.done

    def finish(self) -> None:
        """The worker ends what it has, and the broker hears of it."""
        while self.worker.jobs or self.posted:
            self.worker.stop()
            for call in self.posted:
                call()
            self.posted.clear()


def test_a_lonely_caller_syncs_by_itself() -> None:
    quiet = Quiet()
    quiet.disk.sync_s = QUICK_S / 2
    assert [quiet.commit(number) for number in range(3)] == [True] * 3
    assert (quiet.worker.jobs, quiet.posted) == ([], [])
    assert quiet.took_s == pytest.approx([QUICK_S / 2] * 3)
    quiet.may_sync = False
    assert not quiet.commit(3)
    quiet.finish()
    assert quiet.done == [0, 1, 2, 3]


def test_a_slow_sync_is_the_workers_for_a_while() -> None:
    quiet = Quiet()
    quiet.disk.sync_s = 0.05
    assert quiet.commit(0)  # that it is slow is known afterwards
    quiet.disk.sync_s = 0
    for number in (1, 2):
        assert not quiet.commit(number)
        quiet.finish()
    quiet.disk.now_s += 0.05 * SLOW_PAUSE - QUICK_S
    assert not quiet.commit(3)
    quiet.disk.sync_s = 0.05  # and the worker has seen a slow one meanwhile
    quiet.finish()
    quiet.disk.now_s += 0.05 * (SLOW_PAUSE - 1)
    assert not quiet.commit(4)
    quiet.finish()
    quiet.disk.now_s += 0.05 * SLOW_PAUSE + QUICK_S
    assert quiet.commit(5)
    assert quiet.done == list(range(6))


def test_what_others_wait_for_is_the_workers(tmp_path: Path) -> None:
    """A caller is called inside of its own call, or by what was posted: never while another one
    begins a round."""
    quiet = Quiet()
    quiet.may_sync = False
    assert not quiet.commit(0)  # runs
    quiet.may_sync = True
    assert not quiet.commit(1)  # waits for the next round
    assert quiet.disk.calls == []
    quiet.worker.stop()
    quiet.posted.pop(0)()
    assert quiet.done == [0]
    quiet.syncer.start()  # a lane begins a segment
    assert (quiet.done, len(quiet.worker.jobs)) == ([0], 1)
    quiet.finish()
    assert quiet.done == [0, 1]
    more = (
        lambda: quiet.syncer.collecting.directories.add(tmp_path),
        lambda: quiet.syncer.collecting.files.add(2),
        lambda: quiet.syncer.collecting.also.append(lambda: None),
    )
    for number, add in enumerate(more, 2):
        add()
        assert not quiet.commit(number)
        quiet.finish()


@pytest.mark.parametrize(("size", "here"), [(1_000, True), (LITTLE_BYTES, False)])
def test_much_is_the_workers(tmp_path: Path, size: int, here: bool) -> None:
    """Whether it is of one message, or gathered in a segment that is full now."""
    disk, worker, writer = CountingDisk(True), Held(), Writer()
    journal = LocalJournal(
        tmp_path,
        lambda call: call(),
        pytest.fail,
        disk,
        reserve_bytes=0,
        worker=lambda name: worker,
        may_sync=lambda: True,
    )
    writer.append(journal, writer.checkpoint)
    journal.commit([writer.lane], True, lambda _: None)
    for _ in range(3):
        worker.stop()
        disk.calls.clear()
        writer.append(journal, lambda: writer.data(b"x" * size))
        journal.commit([writer.lane], True, lambda _: None)
        assert (disk.calls, len(worker.jobs)) == ((["file"], 0) if here else ([], 1))
    worker.stop()
    disk.calls.clear()
    writer.append(journal, lambda: writer.data(b"x" * size))
    writer.append(journal, writer.checkpoint)  # rolls
    assert (disk.calls, len(worker.jobs)) == ((["file"], 0) if here else ([], 1))
    journal.close()


def test_a_lonely_sync_that_fails_is_final() -> None:
    quiet = Quiet()
    quiet.disk.broken = True
    assert not quiet.commit(0)
    quiet.disk.broken = False
    assert not quiet.commit(1)
    quiet.finish()
    assert quiet.done == []
    assert quiet.failures == ["sync failed: [Errno 5] input/output error"]


def test_the_real_syncfs_works(tmp_path: Path) -> None:
    files = OsFiles()
    file = files.open(tmp_path / "x", "create")
    files.write(file, b"x", 0)
    assert files.sync_all(file) in (True, False)  # False where the kernel is too old to report
    files.close(file)
    if files._syncfs is not None:
        with pytest.raises(OSError, match="Bad file descriptor"):
            files.sync_all(file)


def test_an_engine_without_threads(tmp_path: Path) -> None:
    """What a simulation does: jobs run when it says so, and nothing else moves meanwhile."""
    workers: dict[str, Held] = {}
    posted: list[Callable[[], None]] = []
    before = threading.active_count()
    journal = LocalJournal(
        tmp_path,
        posted.append,
        pytest.fail,
        reserve_bytes=0,
        worker=lambda name: workers.setdefault(name, Held()),
    )
    writer = Writer()
    writer.append(journal, writer.checkpoint)
    writer.append(journal, lambda: writer.data(b"a"))
    events: list[object] = []
    journal.commit([writer.lane], True, lambda _: events.append("durable"))
    journal.read(writer.lane, 0, 1, events.append)
    assert (events, posted) == ([], [])
    for name in ("zbus-read", "zbus-sync"):
        workers[name].stop()
    for call in posted:
        call()
    assert isinstance(events[0], bytes)
    assert bodies(events[0]) == [b"a"]
    assert events[1:] == ["durable"]
    journal.close()
    assert threading.active_count() == before
