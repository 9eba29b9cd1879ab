"""The archive as a table of Delta Lake, through delta-rs (`pip install 'zbus-broker[delta]'`).

The table says itself how far it is: each commit has a transaction of the partition, whose version
is the next offset, and one more that says of which incarnation. The start of a commit is read from
the snapshot that the commit is made on, so of two archivers the table refuses one.

Columns are those of a message, and `date`; the table is partitioned by `topic` and `date`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import msgspec
import pyarrow as pa

from zbus import __version__
from zbus.spark.archive.files import ArchiveFiles, OsArchiveFiles, names_in
from zbus.spark.archive.layout import OWN, topic_name
from zbus.spark.archive.plan import Resume
from zbus.spark.archive.records import FileRecord
from zbus.spark.archive.sink import Piece, require_files
from zbus.spark.errors import LostRace, SparkProblem, Unverified, Usage
from zbus.spark.logs import Span
from zbus.spark.source.columns import arrow_schema

if TYPE_CHECKING:
    from deltalake import DeltaTable

PARTITIONED_BY: Final = ["topic", "date"]
SCHEMA: Final = arrow_schema().append(pa.field("date", pa.date32()))


class DeltaTarget:
    """Raises Usage if delta-rs is missing."""

    flat = True

    def __init__(self, root: str, files: ArchiveFiles | None = None) -> None:
        try:
            import deltalake  # noqa: F401
        except ImportError as error:
            raise Usage(
                "--format delta needs delta-rs: pip install 'zbus-broker[delta]'"
            ) from error
        self._root = root
        self._files = files or OsArchiveFiles()
        self._known: dict[tuple[str, int], Resume | None] = {}

    def begin(self, time_ms: int) -> None:
        from deltalake import DeltaTable

        if DeltaTable.is_deltatable(self._root):
            self._table()
            return
        self._refuse_parquet()
        Path(self._root).mkdir(parents=True, exist_ok=True)
        DeltaTable.create(
            self._root, SCHEMA, mode="ignore", partition_by=PARTITIONED_BY, name="zbus archive"
        )

    def resume(self, topic: str, partition: int) -> Resume | None:
        from deltalake import DeltaTable

        if not DeltaTable.is_deltatable(self._root):
            self._refuse_parquet()
            return None
        return _resume(self._table(), topic, partition)

    def commit(self, piece: Piece) -> None:
        from deltalake import CommitProperties, Transaction
        from deltalake.exceptions import CommitFailedError, DeltaError

        span = piece.span
        table = self._table()
        known = _resume(table, span.topic, span.partition)
        same = known is not None and known.incarnation == span.incarnation
        lost = LostRace(
            f"{span.topic}, partition {span.partition}: another run has archived from offset"
            f" {piece.start} on; one archiver at a time is enough"
        )
        if piece.start != (known.end if known is not None and same else 0):
            raise lost
        require_files(self._files, Path(self._root), piece.files)
        transactions = [
            Transaction(_offsets_of(span), piece.end),
            Transaction(_incarnation_of(span.topic, span.partition), _number(span.incarnation)),
        ]
        try:
            table.create_write_transaction(
                [_action(span, file) for file in piece.files],
                mode="append",
                schema=SCHEMA,
                partition_by=PARTITIONED_BY,
                commit_properties=CommitProperties(
                    custom_metadata=_metadata(piece, None if same else known),
                    app_transactions=transactions,
                ),
            )
        except CommitFailedError as error:
            if "oncurrent" in str(error):
                raise lost from error
            raise SparkProblem(f"{self._root}: {error}") from error
        except DeltaError as error:
            raise SparkProblem(f"{self._root}: {error}") from error

    def _refuse_parquet(self) -> None:
        if names_in(self._files, Path(self._root, OWN)):
            raise Usage(f"{self._root} is an archive of Parquet files: name another directory")

    def _table(self) -> DeltaTable:
        """Raises Usage if it is one of another client."""
        from deltalake import DeltaTable, Schema
        from deltalake.exceptions import DeltaError

        self._refuse_parquet()
        try:
            table = DeltaTable(self._root)
        except DeltaError as error:
            raise Unverified(f"{self._root} cannot be read as a Delta table: {error}") from error
        wanted = Schema.from_arrow(SCHEMA)
        types = {field.name: field.type for field in wanted.fields}
        found = {field.name: field.type for field in table.schema().fields}
        if found != types:
            wrong = sorted(name for name in found | types if found.get(name) != types.get(name))
            raise Usage(f"{self._root} is a table with other columns: {', '.join(wrong)} differ")
        if (by := table.metadata().partition_columns) != PARTITIONED_BY:
            cut = ", ".join(by) or "nothing"
            raise Usage(f"{self._root} is a table that is partitioned by {cut}, not as an archive")
        return table


def _resume(table: DeltaTable, topic: str, partition: int) -> Resume | None:
    """0 is a version as well."""
    incarnation = table.transaction_version(_incarnation_of(topic, partition))
    if incarnation is None:
        return None
    span = Span(topic, partition, str(incarnation), 0, 0, 0)
    end = table.transaction_version(_offsets_of(span))
    if end is None:
        raise Unverified(f"{topic}, partition {partition}: the table does not say its offset")
    return Resume(str(incarnation), end)


def _offsets_of(span: Span) -> str:
    """The name of the transaction."""
    return f"{_incarnation_of(span.topic, span.partition)}:{span.incarnation}"


def _incarnation_of(topic: str, partition: int) -> str:
    return f"zbus-archive:{topic_name(topic)}:{partition}"  # no `:` is in the name


def _number(incarnation: str) -> int:
    if not incarnation.isdecimal() or str(int(incarnation)) != incarnation:
        raise SparkProblem(f"the incarnation {incarnation!r} is no number: Delta wants one")
    return int(incarnation)


def _action(span: Span, file: FileRecord) -> Any:  # noqa: ANN401 - it has no types
    from deltalake.transaction import AddAction

    values: Mapping[str, str] = {"topic": span.topic, "date": file.date}
    statistics = {
        "numRecords": file.rows,
        "minValues": {
            "offset": file.start,
            "partition": span.partition,
            "timestamp": _moment(file.min_time_ms),
        },
        "maxValues": {
            "offset": file.end - 1,
            "partition": span.partition,
            "timestamp": _moment(file.max_time_ms),
        },
        "nullCount": {"offset": 0, "partition": 0, "timestamp": 0},
    }
    return AddAction(
        quote(file.path), file.bytes, values, file.max_time_ms, True, json.dumps(statistics)
    )


def _moment(time_ms: int) -> str:
    text = datetime.fromtimestamp(time_ms / 1_000, UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


def _metadata(piece: Piece, other: Resume | None) -> dict[str, str]:
    """What the table's history says of a commit."""
    span = piece.span
    props = {
        "zbus.topic": span.topic,
        "zbus.partition": str(span.partition),
        "zbus.incarnation": span.incarnation,
        "zbus.start": str(piece.start),
        "zbus.end": str(piece.end),
        "zbus.version": __version__,
    }
    if piece.gaps:
        props["zbus.gaps"] = msgspec.json.encode(piece.gaps).decode()
    if other is not None:
        props["zbus.recreated"] = f"incarnation {other.incarnation} ended at offset {other.end}"
    return props
