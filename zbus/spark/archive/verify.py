"""Whether an archive is what was written: its chain, its files, and the log if it is at hand."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final
from zlib import crc32

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from zbus.spark.archive import layout as names
from zbus.spark.archive.chain import Chains
from zbus.spark.archive.files import ArchiveFiles, In, OsArchiveFiles, source
from zbus.spark.archive.records import FileRecord, Gap, Lane
from zbus.spark.archive.tasks import Engine
from zbus.spark.archive.writer import COLUMNS, body_crc, file_schema
from zbus.spark.errors import DataLoss, SparkProblem, UnknownTopic, Unverified
from zbus.spark.logs import Log, Span
from zbus.spark.source.arrows import ROWS_MAX, read
from zbus.spark.source.columns import arrow_schema

PIECE_BYTES: Final = 1 << 20

_UNREADABLE: Final = (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError, UnicodeDecodeError)


@attrs.frozen
class Look:
    """What a task looks at."""

    topic: str
    partition: int
    file: FileRecord


@attrs.define
class Checkup:
    """What was looked at, and what is wrong: a sentence each."""

    lanes: int = 0
    files: int = 0
    messages: int = 0
    bytes: int = 0
    compared: int = 0  # messages, with the log
    gone: int = 0  # messages that the log does not have any more
    wrong: list[str] = attrs.Factory(list)


def verify(
    chains: Chains,
    engine: Engine,
    topics: list[str],
    *,
    quick: bool = False,
    log: Log | None = None,
    files: ArchiveFiles | None = None,
) -> Checkup:
    """`quick`: no message is read. `log`: what it still has is compared, message by message."""
    found = Checkup()
    looks: list[Look] = []
    for topic, partition in _lanes(chains, found):
        if topics and topic not in topics:
            continue
        found.lanes += 1
        try:
            lane = chains.lane(topic, partition)
            found.wrong += _snapshots(chains, topic, partition)
        except Unverified as error:
            found.wrong.append(str(error))
            continue
        found.wrong += _whole(lane)
        looks += [Look(topic, partition, file) for file in lane.files]
        if log is not None:
            _compare(chains, lane, log, found)
    found.files = len(looks)
    found.bytes = sum(look.file.bytes for look in looks)
    found.messages = sum(look.file.rows for look in looks)
    check = partial(check_file, root=str(chains.root), quick=quick, files=files)
    for wrong in engine.each(check, looks):
        found.wrong += wrong
    return found


def _lanes(chains: Chains, found: Checkup) -> Iterator[tuple[str, int]]:
    try:
        yield from chains.lanes()
    except Unverified as error:
        found.wrong.append(str(error))


def _snapshots(chains: Chains, topic: str, partition: int) -> list[str]:
    """Of those that are there, each follows on the one before it."""
    wrong = []
    numbers = chains.numbers(names.SNAPSHOTS, topic, partition)
    last = None
    for number in numbers:
        snapshot = chains.snapshot(topic, partition, number)
        if last is not None and last.number == number - 1 and snapshot.previous != last.checksum:
            wrong.append(
                f"{snapshot.lane.place}: snapshot {number} does not follow on {last.number}"
            )
        last = snapshot
    return wrong


def _whole(lane: Lane) -> list[str]:
    """Each offset of each incarnation is in one file or one gap."""
    wrong = []
    for number, era in enumerate(lane.eras):
        behind = lane.eras[number + 1].position if number + 1 < len(lane.eras) else lane.position
        at = 0
        ranges: list[FileRecord | Gap] = [*lane.files, *lane.gaps]
        ranges = [each for each in ranges if each.incarnation == era.incarnation]
        for each in sorted(ranges, key=lambda each: each.start):
            if each.start != at:
                wrong.append(f"{lane.place}: offset {each.start} is there where {at} is next")
            at = each.end
        if at != behind - era.position:
            wrong.append(
                f"{lane.place}: incarnation {era.incarnation} ends at offset {at}, and its chain"
                f" at {behind - era.position}"
            )
    return wrong


# -- a file ---------------------------------------------------------------------------------------


def check_file(
    look: Look, root: str, quick: bool = False, files: ArchiveFiles | None = None
) -> list[str]:
    """What is wrong with a file, if anything is."""
    path = Path(root) / look.file.path
    try:
        with source(files or OsArchiveFiles(), path) as opened:
            if opened.size() != look.file.bytes:
                return [f"{path} has {opened.size()} bytes, not {look.file.bytes}"]
            if not quick and _crc(opened) != look.file.file_crc:
                return [f"{path} is not what was written: its checksum is wrong"]
            parquet = pq.ParquetFile(opened, page_checksum_verification=True)
            wrong = _footer(look, parquet)
            if not wrong and not quick:
                wrong = _messages(look.file, parquet)
    except FileNotFoundError:
        return [f"{path} is missing"]
    except _UNREADABLE as error:
        return [f"{path} cannot be read: {str(error).splitlines()[0]}"]
    return [f"{path} {wrong}"] if wrong else []


def _crc(opened: In) -> int:
    """Of all of it: a Bloom filter or an index that is damaged hides messages from who reads."""
    crc = 0
    while piece := opened.read(PIECE_BYTES):
        crc = crc32(piece, crc)
    opened.seek(0)
    return crc


def _footer(look: Look, parquet: pq.ParquetFile) -> str:
    """What is wrong with what it says of itself; empty: nothing."""
    file = look.file
    if not any(parquet.schema_arrow.equals(file_schema(json)) for json in (False, True)):
        return "has other columns"
    if parquet.metadata.num_rows != file.rows:
        return f"has {parquet.metadata.num_rows} messages, not {file.rows}"
    expected = {
        "topic": look.topic.encode("utf-8", "surrogatepass"),
        "partition": b"%d" % look.partition,
        "incarnation": file.incarnation.encode(),
        "start": b"%d" % file.start,
        "end": b"%d" % file.end,
        "crc": b"%d" % file.crc,
    }
    parquet_metadata = parquet.metadata.metadata or {}
    for name, value in expected.items():
        found = parquet_metadata.get(f"zbus.{name}".encode(), b"")
        if found != value:
            return f"says that its {name} is {found!r}, and its commit that it is {value!r}"
    return ""


def _messages(file: FileRecord, parquet: pq.ParquetFile) -> str:
    at, crc = file.start, 0
    least, most = [], []
    for batch in parquet.iter_batches(ROWS_MAX):
        offsets = batch.column("offset").to_numpy()
        if not np.array_equal(offsets, np.arange(at, at + len(offsets))):
            return f"has other offsets than {at} to {at + len(offsets)}"
        at += len(offsets)
        crc = body_crc(batch.column("body"), crc)
        times = pc.min_max(batch.column("timestamp").cast(pa.int64())).as_py()
        least.append(times["min"] // 1_000)
        most.append(times["max"] // 1_000)
    if crc != file.crc:
        return "is not what was written: the checksum of its bodies is wrong"
    if (min(least), max(most)) != (file.min_time_ms, file.max_time_ms):
        return f"has messages of {min(least)} to {max(most)} ms, not as its commit says"
    dates = {str(np.datetime64(time_ms, "ms").astype("datetime64[D]")) for time_ms in least + most}
    return "" if dates == {file.date} else f"has messages of {', '.join(sorted(dates))}"


# -- the log --------------------------------------------------------------------------------------


def _compare(chains: Chains, lane: Lane, log: Log, found: Checkup) -> None:
    span = _span(log, lane)
    for file in lane.files:
        try:
            span = _compare_file(chains, lane, file, log, span, found)
        except DataLoss as error:
            found.wrong.append(f"{lane.place}: the log has lost what is archived: {error}")
        except _UNREADABLE:
            pass  # that is told anyway
        except SparkProblem as error:
            found.wrong.append(f"{lane.place}: {error}")


def _span(log: Log, lane: Lane) -> Span | None:
    """What there is by now."""
    try:
        spans = log.spans(lane.topic)
    except UnknownTopic:
        return None
    return next((each for each in spans if each.partition == lane.partition), None)


def _first(span: Span | None, file: FileRecord) -> int:
    """The offset from which on the log has what is in a file; its end: nothing."""
    if span is None or span.incarnation != file.incarnation:
        return file.end
    return min(file.end, span.first)


def _compare_file(
    chains: Chains, lane: Lane, file: FileRecord, log: Log, span: Span | None, found: Checkup
) -> Span | None:
    """Gives the span as it is by then: retention goes on meanwhile, and what it has removed is
    gone, and not lost. Raises DataLoss, SparkProblem."""
    if _first(span, file) == file.end:
        found.gone += file.rows
        return span
    with source(chains.files, chains.root / file.path) as opened:
        parquet = pq.ParquetFile(opened)
        start = file.start
        for number in range(parquet.num_row_groups):
            table = parquet.read_row_group(number).cast(arrow_schema(COLUMNS))
            stop = start + table.num_rows
            live = None
            while (first := max(start, _first(span, file))) < stop and live is None:
                assert span is not None
                try:
                    batches = list(read(log, span, first, stop, COLUMNS))
                    live = pa.Table.from_batches(batches, arrow_schema(COLUMNS))
                except DataLoss:
                    before, span = span, _span(log, lane)
                    if span is not None and span[:4] == before[:4]:
                        raise
            found.gone += min(stop, first) - start
            if live is not None:
                found.compared += live.num_rows
                if not table.slice(first - start).equals(live):
                    found.wrong.append(
                        f"{chains.root / file.path}: of the offsets {first} to {stop} the log has"
                        " other messages"
                    )
            start = stop
    return span
