"""A copy that is whole whenever it is taken, and a restore that is all or nothing."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.storage.damage import Disk, Dying, Killed, intact, started, write_logs
from tests.storage.support import Loop, SmallDisk
from tests.storage.test_repair_property import content, pending
from zbus.core.persistence.replay import recover
from zbus.storage.local.directory import read_identity
from zbus.storage.local.files import OpenMode, OsFiles
from zbus.storage.port import JournalError
from zbus.storage.tools.backup import Report, back_up, restore
from zbus.storage.tools.checkup import check_up
from zbus.storage.tools.manifest import MANIFEST, check_backup

FILES = OsFiles()
NOW_MS = 1_800_000_000_000


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    data_dir = tmp_path_factory.mktemp("logs") / "data"
    write_logs(data_dir, messages=24)
    return data_dir


def copy(data_dir: Path, target: Path) -> Report:
    return back_up(FILES, data_dir, target, NOW_MS)


def test_what_is_restored_is_what_was_there(logs: Path, tmp_path: Path) -> None:
    first = copy(logs, tmp_path / "backup")
    assert (first.partitions, first.kept, first.removed) == (3, 0, 0)
    restore(FILES, tmp_path / "backup", tmp_path / "new")
    restored = {name: data for name, data in content(tmp_path / "new").items() if "/" in name}
    assert restored == {name: data for name, data in content(logs).items() if "/" in name}
    assert not check_up(FILES, tmp_path / "new").damaged
    assert pending(tmp_path / "new") == pending(logs)


def test_only_what_is_new_is_copied(logs: Path, tmp_path: Path) -> None:
    first = copy(logs, tmp_path / "backup")
    again = copy(logs, tmp_path / "backup")
    assert again.kept == first.copied - first.partitions
    assert again.copied == first.partitions  # the newest of each partition
    assert again.bytes < first.bytes


def test_three_backups_of_a_broker_at_work(tmp_path: Path) -> None:
    data_dir, backup = tmp_path / "data", tmp_path / "backup"
    disk = Disk(data_dir)
    disk.get("/T?cmd=declare")
    disk.get("/T/g?cmd=declare&group_mask=64")
    acked: list[int] = []
    for round_number in range(3):
        for number in range(30):
            status, _, _ = disk.get(
                "/T?cmd=produce", f"id: {round_number}-{number}", body=b"x" * 99
            )
            assert status == 200
            if number % 3 == 0:
                _, headers, _ = disk.get("/T/g?cmd=consume&timeout=1")
                assert disk.get(f"/T/g?cmd=ack&offset={headers['offset']}")[0] == 200
                acked.append(int(headers["offset"]))
        report = copy(data_dir, backup)
        assert round_number == 0 or report.kept > 0
        new = tmp_path / f"new-{round_number}"
        restore(FILES, backup, new)
        assert not check_up(FILES, new).damaged
        ids = [message.id for message in intact(new).values()]
        assert ids == [b"%d-%d" % (a, b) for a in range(round_number + 1) for b in range(30)]
        waiting = pending(new)["T", "g", 0]
        assert waiting == set(range(len(ids))) - set(acked)
    disk.close()


def test_segments_that_go_away_meanwhile(tmp_path: Path) -> None:
    data_dir, backup = tmp_path / "data", tmp_path / "backup"
    disk = Disk(data_dir)
    disk.get("/T?cmd=declare")
    disk.get("/other?cmd=declare")

    def put(count: int) -> None:
        for number in range(count):
            disk.get("/T?cmd=produce", f"id: {number}", body=b"x" * 300)

    put(60)

    class Meddling(OsFiles):
        """Lets the broker do something just before the third segment is read."""

        def __init__(self, act: Callable[[], None]) -> None:
            super().__init__()
            self.act = act
            self.opened = 0

        def open(self, path: Path, mode: OpenMode) -> int:
            if mode == "read" and path.suffix == ".log" and path.parent.parent.name == "T":
                self.opened += 1
                if self.opened == 4:
                    self.act()
            return super().open(path, mode)

    def purge() -> None:
        disk.get("/T?cmd=empty")
        put(3)

    def remove() -> None:
        disk.get("/T?cmd=remove")

    def begin_again() -> None:
        remove()
        disk.get("/T?cmd=declare")
        put(2)

    for act, messages in ((lambda: put(40), None), (purge, 3), (begin_again, 2), (remove, 0)):
        if act in (begin_again, remove):
            put(60)
        back_up(Meddling(act), data_dir, backup, NOW_MS)
        new = tmp_path / f"new-{messages}"
        restore(FILES, backup, new)
        assert not check_up(FILES, new).damaged
        stored = [place for place in intact(new) if place[0] == "T"]
        if messages is not None:
            assert len(stored) == messages
        assert messages == 0 or "T" in {topic.name for topic in started(new)}
    disk.close()


def test_an_interrupted_backup_leaves_the_one_before(logs: Path, tmp_path: Path) -> None:
    data_dir, backup = tmp_path / "data", tmp_path / "backup"
    shutil.copytree(logs, data_dir)
    copy(data_dir, backup)
    before = pending(data_dir), intact(data_dir)
    disk = Disk(data_dir)
    for number in range(25):
        disk.get("/events?cmd=produce", f"id: more-{number}", body=b"x" * 300)
    disk.close()
    after = pending(data_dir), intact(data_dir)
    seen = set()
    for last in range(1, 1000, 2):
        target, new = tmp_path / "target", tmp_path / "new"
        shutil.copytree(backup, target)
        try:
            back_up(Dying(last), data_dir, target, NOW_MS)
            done = True
        except Killed:
            done = False
        restore(FILES, target, new)
        found = pending(new), intact(new)
        assert found in (before, after)
        seen.add(found == after)
        copy(data_dir, target)  # the next one clears up
        names = [path.name for path in target.rglob("*.new")]
        assert names == []
        shutil.rmtree(new)
        shutil.rmtree(target)
        if done:
            break
    assert done
    assert seen == {True, False}


def test_a_restore_that_is_killed_leaves_nothing_under_the_name(logs: Path, tmp_path: Path) -> None:
    backup, new = tmp_path / "backup", tmp_path / "new"
    copy(logs, backup)
    for last in range(1, 1000):
        try:
            restore(Dying(last), backup, new)
            break
        except Killed:
            if new.exists():  # it got the name in the last call
                assert not check_up(FILES, new).damaged
                shutil.rmtree(new)
        restore(FILES, backup, new)
        shutil.rmtree(new)
    assert intact(new) == intact(logs)


def flip_a_bit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def a_segment(backup: Path) -> Path:
    return sorted(backup.glob("*/*/*.log-*"))[1]


@pytest.mark.parametrize(
    ("ruin", "says"),
    [
        (lambda backup: flip_a_bit(a_segment(backup)), "checksum is wrong"),
        (lambda backup: a_segment(backup).write_bytes(b""), "checksum is wrong"),
        (lambda backup: a_segment(backup).unlink(), "is missing in the backup"),
        (lambda backup: flip_a_bit(backup / MANIFEST), MANIFEST),
        (lambda backup: (backup / MANIFEST).write_bytes(b"{}"), MANIFEST),
        (lambda backup: (backup / MANIFEST).write_bytes(b"\xff"), MANIFEST),
        (lambda backup: (backup / MANIFEST).unlink(), "is not a backup"),
    ],
)
def test_a_damaged_backup_is_not_restored(
    logs: Path, tmp_path: Path, ruin: Callable[[Path], object], says: str
) -> None:
    copy(logs, tmp_path / "backup")
    ruin(tmp_path / "backup")
    with pytest.raises(JournalError, match=says):
        restore(FILES, tmp_path / "backup", tmp_path / "new")
    assert [path.name for path in tmp_path.iterdir()] == ["backup"]


def test_a_kept_segment_that_is_damaged_by_size_is_copied_again(logs: Path, tmp_path: Path) -> None:
    copy(logs, tmp_path / "backup")
    sorted((tmp_path / "backup").glob("*/*/*.log-*"))[0].unlink()
    copy(logs, tmp_path / "backup")
    restore(FILES, tmp_path / "backup", tmp_path / "new")
    assert intact(tmp_path / "new") == intact(logs)


def test_damage_is_not_backed_up(logs: Path, tmp_path: Path) -> None:
    data_dir, backup = tmp_path / "data", tmp_path / "backup"
    shutil.copytree(logs, data_dir)
    copy(data_dir, backup)
    path = sorted(data_dir.glob("*/*/*.log"))[-1]
    disk = Disk(data_dir)
    disk.get("/orders?cmd=produce", "key: k1", body=b"x" * 9000)
    disk.get("/orders?cmd=produce", "key: k2", body=b"x" * 9000)
    disk.close()
    path = max((data_dir / "orders/1").glob("*.log"), key=lambda path: path.stat().st_size)
    flip_a_bit(path)
    with pytest.raises(JournalError, match=path.name):
        copy(data_dir, backup)
    restore(FILES, backup, tmp_path / "new")
    assert intact(tmp_path / "new") == intact(logs)


def test_refusals(logs: Path, tmp_path: Path) -> None:
    target = tmp_path / "full"
    target.mkdir()
    (target / "letter").write_text("dear")
    for data_dir, directory, says in (
        (tmp_path / "nowhere", tmp_path / "b", "cannot open"),
        (target, tmp_path / "b", "not a data directory"),
        (logs, target, "something else"),
        (logs, logs / "backup", "within each other"),
        (logs, logs.parent, "within each other"),
    ):
        with pytest.raises(JournalError, match=says):
            copy(data_dir, directory)
    copy(logs, tmp_path / "b")
    with pytest.raises(JournalError, match="not empty"):
        restore(FILES, tmp_path / "b", target)
    assert [path.name for path in target.iterdir()] == ["letter"]
    (tmp_path / "empty").mkdir()
    restore(FILES, tmp_path / "b", tmp_path / "empty")
    assert intact(tmp_path / "empty") == intact(logs)


def test_a_backup_of_another_directory_is_not_touched(logs: Path, tmp_path: Path) -> None:
    backup, other = tmp_path / "backup", tmp_path / "other"
    copy(logs, backup)
    write_logs(other, messages=3)
    before = content(backup)
    with pytest.raises(JournalError, match="a backup of another data directory"):
        copy(other, backup)
    (other / "identity").unlink()  # as an early version left it
    with pytest.raises(JournalError, match="a backup of another data directory"):
        copy(other, backup)
    assert content(backup) == before
    back_up(FILES, other, backup, NOW_MS, replace=True)
    restore(FILES, backup, tmp_path / "new")
    assert intact(tmp_path / "new") == intact(other)


def test_an_empty_directory_does_not_replace_a_backup(logs: Path, tmp_path: Path) -> None:
    backup, data_dir = tmp_path / "backup", tmp_path / "data"
    shutil.copytree(logs, data_dir)
    copy(data_dir, backup)
    before = content(backup)
    for topic in ("orders", "events"):
        shutil.rmtree(data_dir / topic)
    with pytest.raises(JournalError, match=f"{data_dir} holds nothing"):
        copy(data_dir, backup)
    assert content(backup) == before
    back_up(FILES, data_dir, backup, NOW_MS, replace=True)
    assert content(backup).keys() == {"lock", MANIFEST}
    copy(data_dir, backup)  # nothing and nothing


def test_identities(logs: Path, tmp_path: Path) -> None:
    identity = read_identity(FILES, logs)
    assert len(identity) == 32
    data_dir = tmp_path / "data"
    shutil.copytree(logs, data_dir)
    started(data_dir)
    assert read_identity(FILES, data_dir) == identity
    for ruin in (
        lambda: (data_dir / "identity").write_text("?" * 32),
        (data_dir / "identity").unlink,
    ):
        ruin()
        assert read_identity(FILES, data_dir) == ""
        started(data_dir)
        made = read_identity(FILES, data_dir)
        assert len(made) == 32
        assert made != identity
    copy(logs, tmp_path / "backup")
    restore(FILES, tmp_path / "backup", tmp_path / "new")
    restored = read_identity(FILES, tmp_path / "new")
    assert len(restored) == 32
    assert restored != identity  # what comes now is another history
    with pytest.raises(JournalError, match="another data directory"):
        copy(tmp_path / "new", tmp_path / "backup")


def test_a_backup_of_a_directory_without_identity_is_gone_on_with(
    logs: Path, tmp_path: Path
) -> None:
    data_dir, backup = tmp_path / "data", tmp_path / "backup"
    shutil.copytree(logs, data_dir)
    (data_dir / "identity").unlink()
    copy(data_dir, backup)
    started(data_dir)
    assert copy(data_dir, backup).kept > 0


@pytest.mark.parametrize("name", ["identity", "landmarks", "manifest.json", "manifest.json.new"])
def test_topics_with_names_of_the_journal(tmp_path: Path, name: str) -> None:
    data_dir = tmp_path / "data"
    disk = Disk(data_dir)
    disk.get(f"/{name}?cmd=declare")
    disk.get(f"/{name}?cmd=produce", body=b"x")
    disk.close()
    made = next(path for path in data_dir.iterdir() if path.is_dir())
    if made.name != name:
        (data_dir / name).unlink(missing_ok=True)
        made.rename(data_dir / name)  # where early versions had it
        with pytest.raises(JournalError, match="start the broker once"):
            copy(data_dir, tmp_path / "backup")
    assert [topic.name for topic in started(data_dir)] == [name]
    for _ in range(2):
        copy(data_dir, tmp_path / "backup")
    restore(FILES, tmp_path / "backup", tmp_path / "new")
    assert [topic.name for topic in started(tmp_path / "new")] == [name]
    assert len(intact(tmp_path / "new")) == 1


def test_a_backup_is_no_data_directory(logs: Path, tmp_path: Path) -> None:
    backup = tmp_path / "backup"
    copy(logs, backup)
    before = content(backup)
    for use in (
        lambda: started(backup),
        lambda: check_up(FILES, backup),
        lambda: copy(backup, tmp_path / "b"),
    ):
        with pytest.raises(JournalError, match="is a backup; restore it first"):
            use()
    assert content(backup) == before


@pytest.mark.parametrize(
    ("ruin", "says"),
    [
        (lambda path: flip_a_bit(path), "checksum is wrong"),
        (lambda path: path.write_bytes(path.read_bytes()[:-8]), "bytes, not"),
        (lambda path: path.unlink(), "is missing"),
    ],
)
def test_every_file_of_a_backup_is_checked(
    logs: Path, tmp_path: Path, ruin: Callable[[Path], object], says: str
) -> None:
    backup = tmp_path / "backup"
    report = copy(logs, backup)
    read: list[int] = []
    assert check_backup(FILES, backup, read.append).damaged == []
    assert sum(read) == report.bytes
    for path in sorted(backup.glob("*/*/*.log-*")):
        kept = path.read_bytes()
        ruin(path)
        [words] = check_backup(FILES, backup).damaged
        assert str(path) in words
        assert says in words
        path.write_bytes(kept)


def test_a_backup_under_way_is_not_checked(logs: Path, tmp_path: Path) -> None:
    copy(logs, tmp_path / "backup")
    lock = FILES.open(tmp_path / "backup" / "lock", "lock")
    with pytest.raises(JournalError, match="is under way"):
        check_backup(FILES, tmp_path / "backup")
    FILES.close(lock)


def test_a_full_disk_is_named(logs: Path, tmp_path: Path) -> None:
    with pytest.raises(JournalError, match=f"the backup to {tmp_path / 'b'} stopped: no space"):
        back_up(SmallDisk(1000), logs, tmp_path / "b", NOW_MS)
    copy(logs, tmp_path / "backup")
    with pytest.raises(JournalError, match=f"the restore to {tmp_path / 'new'} stopped: no space"):
        restore(SmallDisk(1000), tmp_path / "backup", tmp_path / "new")


def test_a_full_disk_puts_the_identity_off(logs: Path, tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    shutil.copytree(logs, data_dir)
    (data_dir / "identity").unlink()
    before = content(data_dir)
    loop = Loop()
    for space in (0, 20):
        journal = loop.local(data_dir, SmallDisk(space))
        recover(journal)
        journal.close()
        assert content(data_dir).keys() == before.keys()
    started(data_dir)
    assert read_identity(FILES, data_dir)
