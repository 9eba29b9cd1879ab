"""`zbus verify`, `zbus backup`, `zbus restore`: words, documents and exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.storage.damage import write_logs
from zbus.cli import main


def run(*args: str | Path) -> Result:
    return CliRunner().invoke(main, list(map(str, args)))


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    write_logs(tmp_path / "data", messages=24)
    return tmp_path / "data"


def spoil(data_dir: Path) -> Path:
    [path] = [path for path in data_dir.glob("orders/*/*.log") if b"zbus 0 " in path.read_bytes()]
    data = bytearray(path.read_bytes())
    data[data.index(b"zbus 0 ")] ^= 1
    path.write_bytes(data)
    return path


def test_in_order(data_dir: Path) -> None:
    result = run("verify", "--data-dir", data_dir)
    assert result.exit_code == 0
    *_, counted, verdict = result.stdout.splitlines()
    assert verdict == "all in order"
    assert counted.startswith("3 partitions, ")
    assert counted.endswith(" s")  # a speed is told only where there was something to measure


def test_damage_then_repair_then_in_order(data_dir: Path) -> None:
    path = spoil(data_dir)
    found = run("verify", "--data-dir", data_dir)
    assert found.exit_code == 1
    assert f"damage: {path} at byte" in found.stdout
    assert "; message 0 is lost" in found.stdout
    assert found.stdout.splitlines()[-1] == "damaged"
    repaired = run("verify", "--data-dir", data_dir, "--repair")
    assert repaired.exit_code == 4
    assert f"the removed parts are in {data_dir / 'quarantine' / '1'}" in repaired.stdout
    assert repaired.stdout.splitlines()[-1] == "repaired"
    again = run("verify", "--data-dir", data_dir, "--repair")
    assert again.exit_code == 0
    assert "does not belong to" not in again.stdout
    assert "1 message lost to earlier damage" in again.stdout


def test_one_document(data_dir: Path) -> None:
    path = spoil(data_dir)
    found = run("verify", "--data-dir", data_dir, "--json")
    assert found.exit_code == 1
    document = json.loads(found.stdout)
    assert (document["format"], document["damaged"], document["repaired"]) == (1, True, False)
    [hole] = [hole for lane in document["partitions"] for hole in lane["damage"]]
    assert (hole["file"], hole["first_offset"], hole["end_offset"]) == (str(path), 0, 1)
    assert len(document["left"]) == 1
    document = json.loads(run("verify", "--data-dir", data_dir, "--json", "--repair").stdout)
    assert (document["damaged"], document["repaired"], document["left"]) == (True, True, [])
    assert document["quarantine"] == str(data_dir / "quarantine/1")


def test_what_cannot_be_repaired(tmp_path: Path) -> None:
    path = tmp_path / "data" / f"cut~{'0' * 64}" / "0" / f"{5:020}.log"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"nothing of a log")
    result = run("verify", "--data-dir", tmp_path / "data", "--repair")
    assert result.exit_code == 1
    assert "no file tells which topic this is" in result.stdout
    assert result.stdout.splitlines()[-1] == "not all could be repaired"


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        (("verify", "--data-dir", "nowhere"), 3, "cannot open nowhere"),
        (("verify", "--data-dir", "empty"), 3, "empty is not a data directory"),
        (("verify", "--unknown"), 64, "No such option"),
        (("backup", "--data-dir", "data"), 64, "Missing argument"),
        (("backup", "--data-dir", "empty", "b"), 3, "empty is not a data directory"),
        (("backup", "--data-dir", "nowhere", "b"), 3, "cannot open nowhere"),
        (("backup", "--data-dir", "data", "file/inner"), 3, "zbus: file/inner: Not a directory"),
        (("backup", "--data-dir", "backup", "b"), 3, "backup is a backup; restore it first"),
        (("verify", "--data-dir", "backup"), 3, "zbus: backup is a backup; restore it first"),
        (("verify", "--backup", "data"), 3, "zbus: data is not a backup"),
        (("verify", "--backup", "nowhere"), 3, "nowhere is not a backup"),
        (("verify", "--backup", "backup", "--repair"), 64, "--repair works on logs"),
        (("backup", "--data-dir", "data", "file"), 64, "file"),
        (("backup", "--data-dir", "data", "data/inner"), 3, "within each other"),
        (("restore", "--data-dir", "new", "nowhere"), 3, "nowhere is not a backup"),
        (("restore", "--data-dir", "data", "backup"), 3, "data is not empty"),
    ],
)
def test_refusals(
    data_dir: Path,
    monkeypatch: pytest.MonkeyPatch,
    args: tuple[str, ...],
    code: int,
    says: str,
) -> None:
    monkeypatch.chdir(data_dir.parent)
    Path("empty").mkdir()
    Path("file").write_text("x")
    assert run("backup", "--data-dir", "data", "backup").exit_code == 0
    result = run(*args)
    assert result.exit_code == code, result.output
    assert says in result.stderr
    assert result.stderr.splitlines()[-1].startswith("zbus: ")
    assert "Errno" not in result.stderr
    assert "Traceback" not in result.output
    assert not Path("new").exists()


def test_backup_and_restore(data_dir: Path, tmp_path: Path) -> None:
    first = run("backup", "--data-dir", data_dir, tmp_path / "b")
    assert first.exit_code == 0
    assert first.stdout.startswith("3 partitions: ")
    assert ", 0 kept, 0 removed, in " in first.stdout
    restored = run("restore", "--data-dir", tmp_path / "new", tmp_path / "b")
    assert restored.exit_code == 0
    assert "segments restored" in restored.stdout
    assert run("verify", "--data-dir", tmp_path / "new").exit_code == 0


def test_damage_in_a_log_or_a_backup_is_exit_code_1(data_dir: Path, tmp_path: Path) -> None:
    run("backup", "--data-dir", data_dir, tmp_path / "b")
    path = spoil(data_dir)
    result = run("backup", "--data-dir", data_dir, tmp_path / "other")
    assert result.exit_code == 1
    assert path.name in result.stderr
    kept = sorted((tmp_path / "b").glob("*/*/*.log-*"))[0]
    kept.write_bytes(kept.read_bytes()[:-8])
    result = run("restore", "--data-dir", tmp_path / "new", tmp_path / "b")
    assert result.exit_code == 1
    assert str(kept) in result.stderr
    assert not (tmp_path / "new").exists()


def test_a_backup_makes_the_folders_above_it(data_dir: Path, tmp_path: Path) -> None:
    target = tmp_path / "no/such/place"
    assert run("backup", "--data-dir", data_dir, target).exit_code == 0
    assert run("restore", "--data-dir", tmp_path / "some/new/data", target).exit_code == 0


def test_a_backup_of_other_logs_takes_a_word_more(data_dir: Path, tmp_path: Path) -> None:
    write_logs(tmp_path / "other", messages=2)
    assert run("backup", "--data-dir", data_dir, tmp_path / "b").exit_code == 0
    refused = run("backup", "--data-dir", tmp_path / "other", tmp_path / "b")
    assert refused.exit_code == 3
    assert "is a backup of another data directory" in refused.stderr
    taken = run("backup", "--data-dir", tmp_path / "other", tmp_path / "b", "--replace")
    assert taken.exit_code == 0


def test_a_backup_verified(data_dir: Path, tmp_path: Path) -> None:
    target = tmp_path / "b"
    run("backup", "--data-dir", data_dir, target)
    good = run("verify", "--backup", target)
    assert good.exit_code == 0
    assert good.stdout.splitlines()[-1] == "all in order"
    path = sorted(target.glob("*/*/*.log-*"))[0]
    path.write_bytes(path.read_bytes()[:-8])
    bad = run("verify", "--backup", target)
    assert bad.exit_code == 1
    assert bad.stdout.startswith(f"damage: {path} has ")
    assert bad.stdout.splitlines()[-1] == "damaged"
    document = json.loads((result := run("verify", "--backup", target, "--json")).stdout)
    assert result.exit_code == 1
    assert (document["format"], document["backup"], document["damaged"]) == (1, str(target), True)
    assert len(document["left"]) == 1
    (target / "manifest.json").write_text("{}")
    assert run("verify", "--backup", target).exit_code == 1
