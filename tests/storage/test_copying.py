"""Logs copied from a directory to a stream and back: byte by byte, whatever interrupts it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from tests.limits import checked
from tests.storage.damage import Disk, Dying, Killed
from tests.storage.jetstream.cluster import Faults, SimulatedCluster
from tests.storage.test_repair_property import content, pending
from zbus.storage.copying.directories import COPYING_SUFFIX, DirectorySource, DirectoryTarget
from zbus.storage.copying.lanes import Copied, Source, Target, compare, copy_lanes
from zbus.storage.copying.streams import StreamSource, StreamTarget
from zbus.storage.format.batch import Batch
from zbus.storage.jetstream.ownership import Claim, Claimed, Owner
from zbus.storage.jetstream.subjects import Subjects
from zbus.storage.local.files import OsFiles
from zbus.storage.port import JournalDamage, JournalError, JournalFull
from zbus.storage.tools.checkup import check_up
from zbus.testing.engines import Writer, split

FILES = OsFiles()
SUBJECTS = Subjects("test")


class Interrupted(Exception):
    """The process was killed."""


class Cluster(SimulatedCluster):
    """With the two ends of a copy."""

    def run(self) -> None:
        assert self.step(), "there is nothing to wait for"

    def claim(self, copying: str) -> StreamTarget:
        stream = self.connect()
        answers: list[Claimed | Owner | JournalError | None] = []
        Claim(stream, SUBJECTS, "", "", lambda owner: True, answers.append, copying).start()
        while not answers:
            self.run()
        if isinstance(answers[0], JournalError):
            raise answers[0]
        assert isinstance(answers[0], Claimed)
        return StreamTarget(stream, SUBJECTS, answers[0], self.run)

    def source(self) -> StreamSource:
        return StreamSource(self.connect(), SUBJECTS, self.run)


def cluster_of(seed: int) -> Cluster:
    return Cluster(Random(seed), Faults() if seed else Faults.none())


def copy(
    source: Source, target: Target, progress: Callable[[int], None] = lambda _: None
) -> Copied:
    return copy_lanes(source, source.lanes(), target, progress)


def in_logs(data_dir: Path) -> dict[str, bytes]:
    return {name: data for name, data in content(data_dir).items() if name.endswith(".log")}


def use(disk: Disk, chance: Random, requests: int) -> None:
    """What clients do, and what removes and replaces segments."""
    for number in range(requests):
        topic = f"t{chance.randrange(3)}"
        kind, body = chance.randrange(24), b""
        if kind < 12:
            target, body = f"{topic}?cmd=produce", b"%d " % number * chance.randrange(1, 60)
        elif kind < 18:
            target = f"{topic}/g?cmd=consume&timeout=1"
        elif kind < 20:
            target = f"{topic}/g?cmd=declare"
        elif kind == 20:
            target = f"{topic}?cmd=empty"
        elif kind == 21:
            target = f"{topic}?cmd=remove"
        else:
            retained = chance.randrange(1, 20_000)
            target = f"{topic}?cmd=declare&partitions=2&retention_bytes={retained}"
        head = f"GET /{target} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n"
        disk.client.exchange(head.encode() + body)
        disk.world.advance(chance.choice((2, 2, 2, 2, 100_000)))


def dies_at(count: int) -> Callable[[int], None]:
    left = [count]

    def progress(size: int) -> None:
        left[0] -= size
        if left[0] < 0:
            raise Interrupted

    return progress


@pytest.mark.parametrize("seed", [*range(8), *checked(range(8, 600))])
def test_there_and_back_with_interruptions(seed: int, tmp_path: Path) -> None:
    chance, cluster = Random(seed), cluster_of(seed)
    data_dir, back = tmp_path / "data", tmp_path / "back"
    for round_number in range(3):
        disk = Disk(data_dir)
        use(disk, chance, chance.randrange(120))
        if chance.random() < 0.3:  # a broker still writes
            source = DirectorySource(FILES, data_dir)
            assert not source.lock()
            target = cluster.claim("d")
            copy(source, target)
            use(disk, chance, chance.randrange(10))
        disk.close()
        source = DirectorySource(FILES, data_dir)
        assert source.lock()
        try:
            copy(source, cluster.claim("d"), dies_at(chance.randrange(30_000)))
        except Interrupted:
            pass
        if round_number == 2:
            target = cluster.claim("d")
            ends = source.lanes()
            copy(source, target)
            compare(source, ends, target, lambda _: None)
            target.finish(is_complete=True)
        source.close()
    stream = cluster.source()
    ends = stream.lanes()
    for _ in range(3):
        disk_of_the_copy = Dying(1 << 30)
        directory = DirectoryTarget(disk_of_the_copy, back)
        disk_of_the_copy.left = chance.randrange(1, 60)
        try:
            copy_lanes(stream, ends, directory, lambda _: None)
        except Killed:
            pass
        disk_of_the_copy.left = 1 << 30
        directory.close()
    directory = DirectoryTarget(FILES, back)
    copy_lanes(stream, ends, directory, lambda _: None)
    compare(stream, ends, directory, lambda _: None)
    directory.finish()
    assert in_logs(back) == in_logs(data_dir)
    assert not back.with_name(back.name + COPYING_SUFFIX).exists()
    assert pending(back) == pending(data_dir)


def filled(
    data_dir: Path, messages: int = 40, body: bytes = b"x", segment_bytes: int = 4096
) -> DirectorySource:
    disk = Disk(data_dir, segment_bytes)
    disk.get("/t?cmd=declare")
    for number in range(messages):
        disk.get("/t?cmd=produce", f"id: {number}", body=body * 200)
    disk.close()
    source = DirectorySource(FILES, data_dir)
    assert source.lock()
    return source


def test_what_is_not_complete_is_not_served(tmp_path: Path) -> None:
    source, cluster = filled(tmp_path / "data"), cluster_of(0)
    with pytest.raises(Interrupted):
        copy(source, cluster.claim("d"), dies_at(1_000))
    with pytest.raises(
        JournalError, match="holds an unfinished copy of d: run the same `zbus copy"
    ):
        cluster.claim("")
    with pytest.raises(JournalError, match="holds an unfinished copy of d"):
        cluster.claim("another")
    target = cluster.claim("d")
    target.finish(is_complete=False)  # of a broker that was running
    with pytest.raises(JournalError, match="holds an unfinished copy of d"):
        cluster.claim("")
    target = cluster.claim("d")
    copy(source, target)
    target.finish(is_complete=True)
    cluster.claim("")
    with pytest.raises(JournalError, match="holds messages already; a copy needs a new one"):
        cluster.claim("d")


def test_what_is_there_already_is_not_copied_again(tmp_path: Path) -> None:
    source, cluster = filled(tmp_path / "data"), cluster_of(0)
    assert copy(source, cluster.claim("d")).messages == 40
    before = len(cluster.log)
    assert copy(source, cluster.claim("d")) == Copied(partitions=1)
    assert len(cluster.log) == before + 1  # the claim


def test_only_what_is_new_is_copied(tmp_path: Path) -> None:
    source, cluster = filled(tmp_path / "data"), cluster_of(0)
    copy(source, cluster.claim("d"))
    source.close()
    disk = Disk(tmp_path / "data")
    disk.get("/t?cmd=produce", body=b"new")
    disk.close()
    assert source.lock()
    copied = copy(source, cluster.claim("d"))
    assert (copied.messages, copied.removed, copied.bytes < 2_000) == (1, 0, True)


def test_another_history_is_copied_from_its_beginning(tmp_path: Path) -> None:
    cluster = cluster_of(0)
    source = filled(tmp_path / "data", 10)
    copy(source, cluster.claim("d"))
    source.close()
    other = filled(tmp_path / "other", 60, b"y")
    target = cluster.claim("d")
    ends = other.lanes()
    assert copy_lanes(other, ends, target, lambda _: None) == Copied(1, 60, _size(other), 1)
    compare(other, ends, target, lambda _: None)


def _size(source: Source) -> int:
    return sum(len(batch.raw) for lane in source.lanes() for batch in source.batches(lane, 0))


def test_a_copy_that_differs_is_found(tmp_path: Path) -> None:
    source, other = filled(tmp_path / "data"), filled(tmp_path / "other", 41)
    with pytest.raises(JournalDamage, match="partition 0 of t"):
        compare(source, source.lanes(), other, lambda _: None)
    Disk(tmp_path / "none").close()
    empty = DirectorySource(FILES, tmp_path / "none")
    with pytest.raises(JournalDamage, match="the copy has no partition 0 of t"):
        compare(source, source.lanes(), empty, lambda _: None)
    with pytest.raises(JournalDamage, match="which the source does not have"):
        compare(empty, empty.lanes(), source, lambda _: None)


def test_damage_in_the_source_ends_the_copy(tmp_path: Path) -> None:
    filled(tmp_path / "data").close()
    path = min((tmp_path / "data/t/0").glob("*.log"))
    spoiled = bytearray(path.read_bytes())
    spoiled[len(spoiled) // 2] ^= 1
    path.write_bytes(spoiled)
    source = DirectorySource(FILES, tmp_path / "data")
    source.lock()
    with pytest.raises(JournalDamage, match="checksum is wrong"):
        copy(source, cluster_of(0).claim("d"))


def test_a_source_that_is_trimmed_meanwhile_is_not_copied_with_a_hole(tmp_path: Path) -> None:
    source, cluster = filled(tmp_path / "data", 100, b"x" * 500), cluster_of(0)
    target = cluster.claim("d")
    copy(source, target)
    stream = cluster.source()
    (lane,) = stream.lanes()
    batches = stream.batches(lane, 0)
    for _ in range(3):
        next(batches)
    newest = max(one.sequence for one in cluster.log if one.subject.endswith(".c"))
    done: list[bool] = []
    cluster.connect().purge(SUBJECTS.lane(lane, "*"), newest, done.append)
    while not done:
        cluster.run()
    with pytest.raises(JournalError, match="partition 0 of t changed while it was copied: run the"):
        list(batches)
    assert len([batch for batch in stream.batches(lane, 0) if batch.header.records]) < 100


def test_a_message_that_a_stream_lacks_is_noticed() -> None:
    cluster = cluster_of(0)
    target, writer = cluster.claim("d"), Writer(("t", 0))
    target.append(("t", 0), split(writer.checkpoint()))
    for _ in range(9):
        target.append(("t", 0), split(writer.data(b"x")))
    target.flush()
    (lane,) = (stream := cluster.source()).lanes()
    data = [one.sequence for one in cluster.log if one.subject.endswith(".d")]
    cluster.purged.add(data[4])
    read: list[Batch] = []
    with pytest.raises(JournalError, match="changed while it was copied"):
        read.extend(stream.batches(lane, 0))
    assert sum(batch.header.records for batch in read) == 4


def test_a_directory_that_is_trimmed_meanwhile_is_to_be_copied_again(tmp_path: Path) -> None:
    disk = Disk(tmp_path / "data")
    disk.get("/t?cmd=declare")
    for _ in range(60):
        disk.get("/t?cmd=produce", body=b"x" * 200)
    source = DirectorySource(FILES, tmp_path / "data")
    assert not source.lock()
    (lane,) = source.lanes()
    for name in sorted((tmp_path / "data/t/0").glob("*.log")):
        with suppress(JournalError):
            list(source.batches(lane, 0))
        name.unlink()
    with pytest.raises(JournalError, match="changed while it was copied: run the command again"):
        list(source.batches(lane, 0))
    disk.close()


def test_thousands_of_segments_some_of_which_were_replaced(tmp_path: Path) -> None:
    """The engine names neighbours as one segment then."""
    cluster = cluster_of(0)
    target = cluster.claim("d")
    writer = Writer(("t", 0))
    for number in range(1_010):
        for _ in range(1 + (number % 100 == 3)):
            target.append(("t", 0), split(writer.checkpoint()))
        target.append(("t", 0), split(writer.data(b"x")))
    target.flush()
    target.finish(is_complete=True)
    source, made = cluster.source(), DirectoryTarget(FILES, tmp_path / "made")
    ends = source.lanes()
    copy_lanes(source, ends, made, lambda _: None)
    compare(source, ends, made, lambda _: None)
    made.finish()
    assert len(in_logs(tmp_path / "made")) == 1_010
    assert not check_up(FILES, tmp_path / "made").damaged


def test_a_stream_that_is_full_at_the_end_is_not_complete(tmp_path: Path) -> None:
    source, cluster = filled(tmp_path / "data"), cluster_of(0)
    target = cluster.claim("d")
    copy(source, target)
    cluster.bytes_max = 1
    with pytest.raises(JournalFull):
        target.finish(is_complete=True)
    cluster.bytes_max = 0
    with pytest.raises(JournalError, match="holds an unfinished copy of d"):
        cluster.claim("")


def test_who_owns_a_stream_is_known_as_far_as_it_goes() -> None:
    cluster = cluster_of(0)
    target = cluster.claim("d")
    began = cluster.source().standing()
    assert (began.is_still, began.last) == (False, 1)
    target.finish(is_complete=True)
    left = cluster.source().standing()
    assert (left.is_still, left.last) == (True, 2)
    cluster.claim("")
    assert cluster.source().standing() != left


def test_damage_in_the_copy_says_what_to_do(tmp_path: Path) -> None:
    source, cluster = filled(tmp_path / "data"), cluster_of(0)
    copy(source, cluster.claim("d"))
    stream, made = cluster.source(), DirectoryTarget(FILES, tmp_path / "made")
    ends = stream.lanes()
    copy_lanes(stream, ends, made, lambda _: None)
    made.flush()
    path = min((tmp_path / "made.copying/t/0").glob("*.log"))
    spoiled = bytearray(path.read_bytes())
    spoiled[len(spoiled) // 2] ^= 1
    path.write_bytes(spoiled)
    with pytest.raises(JournalDamage, match=r"made\.copying, and run the command again"):
        compare(stream, ends, made, lambda _: None)


def test_a_full_stream_says_so(tmp_path: Path) -> None:
    source, cluster = filled(tmp_path / "data", 400), cluster_of(0)
    cluster.bytes_max = 50_000
    target = cluster.claim("d")
    with pytest.raises(JournalFull, match="zbus-test-0 is full"):
        copy(source, target)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda path: None, "No such file"),
        (lambda path: path.mkdir(), "is not a data directory of zbus"),
        (lambda path: path.write_text(""), "Not a directory"),
    ],
)
def test_what_is_no_data_directory(
    make: Callable[[Path], object], text: str, tmp_path: Path
) -> None:
    make(tmp_path / "data")
    with pytest.raises(JournalError, match=text):
        DirectorySource(FILES, tmp_path / "data").lock()


def test_a_directory_that_holds_something_is_not_overwritten(tmp_path: Path) -> None:
    filled(tmp_path / "data").close()
    with pytest.raises(JournalError, match="is not empty; a copy makes a new directory"):
        DirectoryTarget(FILES, tmp_path / "data")
    first = DirectoryTarget(FILES, tmp_path / "new")
    with pytest.raises(JournalError, match="in use by another process"):
        DirectoryTarget(FILES, tmp_path / "new")
    first.close()
