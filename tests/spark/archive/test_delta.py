"""The archive as a table of Delta Lake: it says how far it is, and takes each offset once."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tests.spark.archive.harness import job, put_numbers, run
from tests.spark.stored import MemoryLog
from zbus.spark.archive.files import OsArchiveFiles
from zbus.spark.archive.job import Report
from zbus.spark.errors import DataLoss, LostRace, SparkProblem, Usage
from zbus.spark.source.columns import NAMES

deltalake = pytest.importorskip("deltalake", reason="delta-rs is not installed")

from zbus.spark.archive.delta import (  # noqa: E402 - it needs that
    PARTITIONED_BY,
    SCHEMA,
    DeltaTarget,
)

FILES = OsArchiveFiles()
ODD = "a=b%2Fc/é x"


@pytest.fixture
def log() -> MemoryLog:
    found = MemoryLog()
    for _ in range(4):
        put_numbers(found, 6)
    put_numbers(found, 5, ODD)
    found.put("orders", [b"x"], 1)
    return found


def archive(root: Path, log: MemoryLog, target: DeltaTarget | None = None, **more: bool) -> Report:
    return run(FILES, log, root=root, target=target or DeltaTarget(str(root)), **more)


def table(root: Path, topic: str = "orders", partition: int = 0) -> pa.Table:
    found = deltalake.DeltaTable(str(root)).to_pyarrow_table()
    assert set(found.column_names) == {*NAMES, "date"}
    of_topic = pc.equal(found["topic"], topic)
    chosen = found.filter(of_topic).filter(pc.field("partition") == partition)
    return chosen.sort_by("offset")


def bodies(root: Path, topic: str = "orders", partition: int = 0) -> list[tuple[int, bytes]]:
    found = table(root, topic, partition)
    return list(zip(found["offset"].to_pylist(), found["body"].to_pylist(), strict=True))


def numbers(count: int) -> list[tuple[int, bytes]]:
    return [(number, b"%d" % number) for number in range(count)]


def test_all_that_there_is_and_then_what_has_come(log: MemoryLog, tmp_path: Path) -> None:
    assert archive(tmp_path, log).messages == 30
    assert archive(tmp_path, log).lanes == []
    put_numbers(log, 6)
    assert archive(tmp_path, log).messages == 6
    assert bodies(tmp_path) == numbers(30)
    assert bodies(tmp_path, partition=1) == [(0, b"x")]
    assert bodies(tmp_path, ODD) == numbers(5)


def test_of_two_archivers_one_loses(log: MemoryLog, tmp_path: Path) -> None:
    class Late(DeltaTarget):
        """Somebody else archives between its plan and its commit."""

        def begin(self, time_ms: int) -> None:
            super().begin(time_ms)
            archive(tmp_path, log)

    with pytest.raises(LostRace, match="another run"):
        archive(tmp_path, log, Late(str(tmp_path)))
    assert bodies(tmp_path) == numbers(24)


def test_a_topic_that_was_made_again(log: MemoryLog, tmp_path: Path) -> None:
    archive(tmp_path, log)
    again = MemoryLog()
    put_numbers(again, 3)
    again.incarnations["orders"] = "2"
    with pytest.raises(DataLoss, match="made again"):
        archive(tmp_path, again)
    assert archive(tmp_path, again, allow_loss=True).lanes[0].recreated
    assert bodies(tmp_path) == sorted(numbers(24) + numbers(3))
    assert archive(tmp_path, again).lanes == []


def test_what_is_gone_is_in_the_history(log: MemoryLog, tmp_path: Path) -> None:
    log.first["orders", 0] = 12
    archive(tmp_path, log)
    history = deltalake.DeltaTable(str(tmp_path)).history()
    gaps = [json.loads(each["zbus.gaps"]) for each in history if "zbus.gaps" in each]
    assert [(gap["start"], gap["end"]) for (gap,) in gaps] == [(0, 12)]


LARGER = SCHEMA.set(SCHEMA.get_field_index("partition"), pa.field("partition", pa.int64()))


@pytest.mark.parametrize(
    ("schema", "by", "said"),
    [
        (pa.schema({"x": pa.int64()}), [], "other columns"),
        (SCHEMA.remove(0), ["date"], "other columns: topic differ"),
        (SCHEMA.append(pa.field("x", pa.int64())), PARTITIONED_BY, "other columns: x differ"),
        (LARGER, PARTITIONED_BY, "other columns: partition differ"),
        (SCHEMA, [], "partitioned by nothing"),
        (SCHEMA, ["date"], "partitioned by date"),
        (SCHEMA, ["date", "topic"], "partitioned by date, topic"),
    ],
)
def test_a_table_of_somebody_else(
    log: MemoryLog, tmp_path: Path, schema: pa.Schema, by: list[str], said: str
) -> None:
    deltalake.DeltaTable.create(str(tmp_path), schema, partition_by=by)
    for what in ("plan", "run"):
        with pytest.raises(Usage, match=said):
            getattr(job(FILES, log, root=tmp_path, target=DeltaTarget(str(tmp_path))), what)()
    assert deltalake.DeltaTable(str(tmp_path)).version() == 0


def test_each_format_refuses_a_directory_of_the_other(log: MemoryLog, tmp_path: Path) -> None:
    parquet, delta = tmp_path / "parquet", tmp_path / "delta"
    run(FILES, log, root=parquet)
    archive(delta, log)
    for pattern in ("orders", "none of them"):
        with pytest.raises(Usage, match="archive of Parquet files"):
            run(FILES, log, root=parquet, target=DeltaTarget(str(parquet)), pattern=pattern)
        with pytest.raises(Usage, match="table of Delta Lake"):
            run(FILES, log, root=delta, pattern=pattern)
    assert not (parquet / "_delta_log").exists()
    assert not (delta / "_zbus").exists()


def test_an_incarnation_that_is_no_number(log: MemoryLog, tmp_path: Path) -> None:
    log.incarnations["orders"] = "one"
    with pytest.raises(SparkProblem, match="no number"):
        archive(tmp_path, log)


def test_statistics_leave_files_out(log: MemoryLog, tmp_path: Path) -> None:
    archive(tmp_path, log)
    found = deltalake.DeltaTable(str(tmp_path))
    dataset = found.to_pyarrow_dataset()
    chosen = list(dataset.get_fragments(filter=pc.field("offset") >= 18))
    assert 0 < len(chosen) < len(found.file_uris())
    filtered = dataset.to_table(filter=pc.field("offset") >= 20)
    assert sorted(filtered["offset"].to_pylist()) == [20, 21, 22, 23]
