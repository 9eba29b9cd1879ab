"""A data directory of several processes is verified, repaired, backed up, restored and copied as
that of one process is; one that has not the shape that it was made with is refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.storage.damage import Disk, Dying, Killed, intact
from tests.storage.test_copying import cluster_of, copy
from zbus.cli import main
from zbus.protocol.places import shard_of
from zbus.server.exits import CannotStart
from zbus.server.process.shards import check_shards
from zbus.storage.copying.directories import DirectorySource, DirectoryTarget
from zbus.storage.local import naming
from zbus.storage.local.directory import read_identity, take_directory
from zbus.storage.local.files import OpenMode, OsFiles
from zbus.storage.local.shards import find_shards, identity_of, mark
from zbus.storage.port import JournalError
from zbus.storage.tools.backup import back_up, restore
from zbus.storage.tools.sharding import shard

FILES = OsFiles()
SHARDS = 3
NAMES = [f"t{number}" for number in range(99)]
TOPICS = [
    name for at in range(SHARDS) for name in [n for n in NAMES if shard_of(n, SHARDS) == at][:2]
]
"""Two of each shard."""
NOW_MS = 1_800_000_000_000


def made(path: Path, shards: int = SHARDS) -> Path:
    """A directory with topics in all shards, which servers have used."""
    disk = Disk(path)
    for topic in TOPICS:
        disk.get(f"/{topic}?cmd=declare&partitions=2")
        for number in range(9):
            disk.get(f"/{topic}?cmd=produce&key=k{number}", body=b"%d " % number * 40)
    disk.close()
    shard(FILES, path, shards, shard_of)
    for each in find_shards(FILES, path):
        Disk(each).close()
    return path


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(tmp_path_factory.mktemp("logs") / "data")


@pytest.fixture
def data(logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it, called `data` here."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(logs, "data")
    return Path("data")


def stored(data_dir: Path) -> dict[str, object]:
    """Messages of each shard, by its name."""
    return {each.name: intact(each) for each in sorted(data_dir.glob("shard=*"))}


def zbus(*args: str | Path) -> Result:
    return CliRunner().invoke(main, list(map(str, args)))


def spoil(data_dir: Path, topic: str) -> Path:
    path = min(data_dir.glob(f"shard=*/{topic}/*/*.log"))
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(raw)
    return path


# -- verify and repair -------------------------------------------------------------------------


def test_all_shards_are_verified(data: Path) -> None:
    found = zbus("verify", "--data-dir", data)
    assert found.exit_code == 0, found.output
    counted, verdict = found.stdout.splitlines()
    assert verdict == "all in order"
    assert counted.startswith("3 shards, 12 partitions, ")
    assert " 54 messages, " in counted


def test_each_line_says_which_shard(data: Path) -> None:
    """Damage in two of them is repaired, and the third stays as it is."""
    before = stored(data)
    names = {shard_of(topic, SHARDS): topic for topic in TOPICS}
    paths = [spoil(data, names[0]), spoil(data, names[2])]
    (data / "letter").write_text("dear")
    kept = (data / "shard=1" / naming.LANDMARKS).read_bytes()
    found = zbus("verify", "--data-dir", data)
    assert found.exit_code == 1
    lines = found.stdout.splitlines()
    assert [line.partition(" at byte")[0] for line in lines[:2]] == [f"damage: {p}" for p in paths]
    assert lines[2] == "data/letter: does not belong to any log"
    repaired = zbus("verify", "--data-dir", data, "--repair")
    assert repaired.exit_code == 4, repaired.output
    assert "the removed parts are in data/quarantine/1" in repaired.stdout
    assert {each.name for each in Path("data/quarantine/1").iterdir()} == {"shard=0", "shard=2"}
    assert (data / "shard=1" / naming.LANDMARKS).read_bytes() == kept
    assert stored(data)["shard=1"] == before["shard=1"]
    assert zbus("verify", "--data-dir", data).exit_code == 0
    for each in find_shards(FILES, data):
        Disk(each).close()


def test_the_document_has_all_shards(data: Path) -> None:
    document = json.loads(zbus("verify", "--data-dir", data, "--json").stdout)
    assert (document["shards"], document["damaged"], len(document["partitions"])) == (3, False, 12)
    found = {each["directory"].split("/")[1] for each in document["partitions"]}
    assert found == {"shard=0", "shard=1", "shard=2"}


def test_a_shard_alone_is_a_data_directory(data: Path) -> None:
    assert zbus("verify", "--data-dir", data / "shard=1").exit_code == 0


# -- backup and restore ------------------------------------------------------------------------


def test_what_is_restored_is_what_was_there(data: Path) -> None:
    first = zbus("backup", "--data-dir", data, "backup")
    assert first.exit_code == 0, first.output
    assert first.stdout.startswith("12 partitions in 3 shards: ")
    assert ", 0 kept, 0 removed, " in first.stdout
    checked = zbus("verify", "--backup", "backup", "--json")
    assert checked.exit_code == 0
    assert '"shards": 3' in checked.stdout
    back = zbus("restore", "--data-dir", "new", "backup")
    assert back.stdout.startswith("12 partitions in 3 shards: ")
    assert stored(Path("new")) == stored(data)
    assert zbus("verify", "--data-dir", "new").exit_code == 0
    check_shards(Path("new"), SHARDS)
    with pytest.raises(CannotStart, match="new was made for 3 workers, not 2: start with"):
        check_shards(Path("new"), 2)
    assert identity_of(FILES, Path("new")) != identity_of(FILES, data)
    for each in find_shards(FILES, Path("new")):
        Disk(each).close()
    assert zbus("shard", "new", "--shards", "1").exit_code == 0
    assert zbus("verify", "--data-dir", "new").stdout.splitlines()[-1] == "all in order"


def test_only_what_is_new_is_copied(data: Path) -> None:
    for each in find_shards(FILES, data):
        disk = Disk(each, segment_bytes=1)
        for topic in TOPICS:
            if (each / topic).exists():
                for _ in range(3):
                    disk.get(f"/{topic}?cmd=produce", body=b"x" * 5_000)
        disk.close()
    first = back_up(FILES, data, Path("backup"), NOW_MS)
    again = back_up(FILES, data, Path("backup"), NOW_MS)
    assert again.kept == first.copied - first.partitions
    restore(FILES, Path("backup"), Path("new"))
    assert stored(Path("new")) == stored(data)


def test_a_restore_that_is_killed_leaves_nothing_under_the_name(data: Path) -> None:
    back_up(FILES, data, Path("backup"), NOW_MS)
    new = Path("new")
    for last in range(1, 1000):
        try:
            restore(Dying(last), Path("backup"), new)
            break
        except Killed:
            if new.exists():  # it got the name in the last call
                assert stored(new) == stored(data)
                shutil.rmtree(new)
    assert last > 50
    assert stored(new) == stored(data)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"shards":3', b'"shards":4'),
        (b'"shards":3', b'"shards":2'),
        (b'"shards":3', b'"shards":1'),
        (b'"shards":3', b'"shards":257'),
        (b'"shard":2', b'"shard":1'),
        (b'"shard":2', b'"shard":9'),
        (b'"format":2', b'"format":1'),
    ],
)
def test_a_manifest_of_another_shape(data: Path, old: bytes, new: bytes) -> None:
    back_up(FILES, data, Path("backup"), NOW_MS)
    manifest = Path("backup/manifest.json")
    manifest.write_bytes(manifest.read_bytes().replace(old, new, 1))
    for args in (("restore", "--data-dir", "new", "backup"), ("verify", "--backup", "backup")):
        found = zbus(*args)
        assert found.exit_code == 1, found.output
        assert "backup/manifest.json" in found.stderr
    assert not Path("new").exists()


def test_a_backup_of_another_shape_takes_a_word_more(data: Path) -> None:
    back_up(FILES, data, Path("backup"), NOW_MS)
    shard(FILES, data, 2, shard_of)
    for each in find_shards(FILES, data):
        Disk(each).close()
    refused = zbus("backup", "--data-dir", data, "backup")
    assert refused.exit_code == 3
    assert "backup is a backup of another data directory than data" in refused.stderr
    assert zbus("backup", "--data-dir", data, "backup", "--replace").exit_code == 0
    restore(FILES, Path("backup"), Path("new"))
    assert stored(Path("new")) == stored(data)
    check_shards(Path("new"), 2)


def test_topics_that_move_meanwhile_are_not_missing(data: Path) -> None:
    class Moving(OsFiles):
        """Topics move when the third file is made."""

        made = 0

        def open(self, path: Path, mode: OpenMode) -> int:
            if mode == "create":
                self.made += 1
                if self.made == 3:
                    shard(FILES, data, 2, shard_of)
            return super().open(path, mode)

    with pytest.raises(JournalError, match=r"the topics of data moved meanwhile: run the command"):
        back_up(Moving(), data, Path("backup"), NOW_MS)
    assert not Path("backup/manifest.json").exists()


# -- copy --------------------------------------------------------------------------------------


def test_all_shards_are_copied_to_a_stream(data: Path) -> None:
    cluster = cluster_of(0)
    source = DirectorySource(FILES, data)
    assert source.lock()
    stream = cluster.claim(source.identity())
    assert copy(source, stream).partitions == 12
    stream.finish(is_complete=True)
    target = DirectoryTarget(FILES, Path("one").resolve())
    copy(cluster.source(), target)
    target.finish()
    source.close()
    shard(FILES, Path("one"), SHARDS, shard_of)
    assert stored(Path("one")) == stored(data)


def test_a_copy_sees_that_a_server_runs(data: Path) -> None:
    for each in (data, data / "shard=1"):
        lock = take_directory(FILES, each)
        source = DirectorySource(FILES, data)
        assert not source.lock()
        assert len(source.lanes()) == 12
        FILES.close(lock)
        assert source.lock(), "nothing is left locked"
        source.close()


# -- what is refused ---------------------------------------------------------------------------


def lose_the_mark(data: Path) -> None:
    (data / naming.SHARDS).unlink()


def put_a_topic(data: Path) -> None:
    (data / "orders/0").mkdir(parents=True)


def put_a_shard(data: Path) -> None:
    (data / "shard=7/orders").mkdir(parents=True)


def move(data: Path) -> None:
    mark(FILES, data, 2, naming.SHARDS_MOVING)


BAD: list[tuple[Callable[[Path], object], str]] = [
    (lambda data: shutil.rmtree(data / "shard=1"), "3 workers, and data/shard=1 is missing"),
    (lose_the_mark, "data was made for one process, and data/shard=0 has topics: `zbus shard data"),
    (put_a_shard, "data was made for 3 workers, and data/shard=7 has topics: `zbus shard data"),
    (put_a_topic, "data was made for 3 workers, and data has topics: `zbus shard data --shards 3`"),
    (lambda data: (data / naming.SHARDS).write_text("many"), "data/.shards does not say how many"),
    (move, "topics of data are on their way to 2 shards: run `zbus shard data --shards 2` again"),
]


@pytest.mark.parametrize(("ruin", "text"), BAD)
@pytest.mark.parametrize("command", ["verify", "backup"])
def test_another_shape(data: Path, ruin: Callable[[Path], object], text: str, command: str) -> None:
    ruin(data)
    found = zbus(command, "--data-dir", data, *(["new"] if command == "backup" else []))
    assert found.exit_code == 3, found.output
    assert found.stderr.startswith("zbus: ")
    assert text in found.stderr
    assert not Path("new").exists()
    with pytest.raises(JournalError):
        DirectorySource(FILES, data).lock()
    for workers in (1, SHARDS):
        with pytest.raises(CannotStart):
            check_shards(data, workers)


@pytest.mark.parametrize("place", [".", "shard=1"])
def test_in_use(data: Path, place: str) -> None:
    lock = take_directory(FILES, data / place)
    found = zbus("verify", "--data-dir", data)
    assert found.exit_code == 3
    assert f"zbus: {data / place} is in use by another process (pid " in found.stderr
    assert zbus("backup", "--data-dir", data, "backup").exit_code == 0, "a server may be running"
    FILES.close(lock)
    assert zbus("verify", "--data-dir", data).exit_code == 0, "nothing is left locked"


@pytest.mark.parametrize(
    ("args", "code", "text"),
    [
        (("backup", "--data-dir", "one", "data"), 3, "data is a data directory"),
        (("backup", "--data-dir", "one", "data/shard=1"), 3, "data/shard=1 is a data directory"),
        (("backup", "--data-dir", "data", "data/shard=1"), 3, "within each other"),
        (("backup", "--data-dir", "data/shard=1", "backup"), 3, "of another data directory"),
        (("backup", "--data-dir", "one", "backup"), 3, "of another data directory"),
        (("restore", "--data-dir", "data", "backup"), 3, "data is not empty"),
        (("restore", "--data-dir", "data/shard=1", "backup"), 3, "data/shard=1 is not empty"),
        (("verify", "--data-dir", "backup"), 3, "backup is a backup; restore it first"),
        (("verify", "--backup", "data"), 3, "data is not a backup"),
        (("shard", "backup", "--shards", "2"), 3, "backup is a backup; restore it first"),
    ],
)
def test_refusals(data: Path, args: tuple[str, ...], code: int, text: str) -> None:
    made(Path("one"), 1)
    assert zbus("backup", "--data-dir", data, "backup").exit_code == 0
    before = stored(data)
    found = zbus(*args)
    assert (found.exit_code, "Traceback" in found.output) == (code, False), found.output
    assert text in found.stderr
    assert stored(data) == before


@pytest.mark.parametrize("shards", [1, 2, SHARDS])
def test_topics_do_not_move_while_a_shard_is_missing(data: Path, shards: int) -> None:
    """Afterwards nothing would say that it ever was there."""
    shutil.move(data / "shard=1", "elsewhere")
    found = zbus("shard", data, "--shards", str(shards))
    assert found.exit_code == 3, found.output
    assert "data was made for 3 workers, and data/shard=1 is missing" in found.stderr
    shutil.move("elsewhere", data / "shard=1")
    assert zbus("verify", "--data-dir", data).exit_code == 0


def test_topics_in_a_wrong_shard_are_put_right(data: Path) -> None:
    topic = TOPICS[0]
    right = data / f"shard={shard_of(topic, SHARDS)}" / topic
    right.rename(data / topic)
    assert zbus("shard", data, "--shards", "3").stdout == "6 topics in 3 shards, 1 moved\n"
    assert right.is_dir()
    assert zbus("shard", data, "--shards", "3").stdout == "6 topics in 3 shards, 0 moved\n"
    assert read_identity(FILES, data) == ""
    assert zbus("verify", "--data-dir", data).exit_code == 0
