"""An archive as a table: the same messages as in the log."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest

from tests.spark.archive.harness import put_numbers, run
from tests.spark.stored import TIME_MS, MemoryLog, moment
from zbus.spark.archive import Archive
from zbus.spark.archive.files import OsArchiveFiles
from zbus.spark.archive.info import info
from zbus.spark.archive.tasks import Threads
from zbus.spark.errors import UnknownTopic, Usage
from zbus.spark.source.arrows import read
from zbus.spark.source.columns import arrow_schema

TOPICS = ("orders", "a/b", "007", "x" * 300)


@pytest.fixture
def log() -> MemoryLog:
    found = MemoryLog()
    for topic in TOPICS:
        for number in range(4):
            put_numbers(
                found,
                6,
                topic,
                time_ms=TIME_MS + 1_000 * number,
                keys=[b"k%d" % number] * 6,
                headers=[b"a: 1\r\n"] * 6,
            )
    found.put("orders", [b"second"], 1)
    return found


@pytest.fixture
def archive(log: MemoryLog, tmp_path: Path) -> Archive:
    run(OsArchiveFiles(), log, root=tmp_path / "a [1]", engine=Threads(2))
    return Archive(tmp_path / "a [1]")


def live(log: MemoryLog, topic: str) -> pa.Table:
    batches = [
        batch for span in log.spans(topic) for batch in read(log, span, span.first, span.end)
    ]
    return pa.Table.from_batches(batches, arrow_schema())


@pytest.mark.parametrize("topic", TOPICS, ids=lambda topic: topic[:10])
def test_it_is_what_the_log_has(archive: Archive, log: MemoryLog, topic: str) -> None:
    assert archive.topics() == sorted(TOPICS)
    files = archive.files(topic)
    found = (
        archive.dataset(files)
        .to_table()
        .sort_by([("partition", "ascending"), ("offset", "ascending")])
    )
    assert found.schema.equals(arrow_schema())
    assert found.equals(live(log, topic))
    assert sum(file.rows for file in files) == found.num_rows


def test_what_a_filter_leaves_out_is_not_opened(archive: Archive) -> None:
    files = archive.files()
    found = archive.dataset(files)
    for wanted in (
        ds.field("topic") == "a/b",
        ds.field("timestamp") < pa.scalar(moment(TIME_MS), pa.timestamp("us", "UTC")),
        (ds.field("topic") == "orders") & (ds.field("offset") >= 12),
    ):
        fragments = list(found.get_fragments(filter=wanted))
        assert len(fragments) < len(files)
        assert found.count_rows(filter=wanted) == found.to_table().filter(wanted).num_rows
    assert found.count_rows(filter=ds.field("topic") == "a/b") == 24
    assert found.count_rows(filter=pc.equal(ds.field("offset"), 3)) == 4


def test_chains_and_numbers(archive: Archive, log: MemoryLog) -> None:
    assert [(commit.partition, commit.end) for commit in archive.chain("orders")] == [
        (0, 24),
        (1, 1),
    ]
    put_numbers(log, 6)
    found = info(archive.chains, ["orders"], log)
    assert [(each["messages"], each["lag"]) for each in found] == [(24, 6), (1, 0)]
    assert found[0]["max_time_ms"] == TIME_MS + 3_000


def test_what_is_not_there(archive: Archive, tmp_path: Path) -> None:
    with pytest.raises(UnknownTopic, match="nothing of the topic other"):
        archive.files("other")
    with pytest.raises(Usage, match="not an archive"):
        Archive(tmp_path / "nothing")
