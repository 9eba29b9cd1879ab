"""A report's tables as files: Parquet, and CSV for spreadsheets."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from zbus.spark.errors import Usage
from zbus.spark.report.tables import COLUMNS, Backlog, Report, arrow_table


def backlogs_before(folder: Path) -> list[Backlog]:
    """Backlogs of the reports before."""
    path = folder / "backlog.parquet"
    if not path.exists():
        return []
    try:
        table = pq.read_table(path)
        at_ms = table["at"].cast(pa.int64())
        return [
            Backlog(**row) for row in table.drop(["at"]).append_column("at_ms", at_ms).to_pylist()
        ]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Usage(f"{path} is no table of backlogs: {error}") from error


def write_tables(made: Report, folder: Path) -> None:
    """Each whole or not at all. Raises Usage."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in COLUMNS:
            table = arrow_table(name, made.tables()[name])
            draft = folder / f".{name}.new"
            pq.write_table(table, draft)
            draft.replace(folder / f"{name}.parquet")
            pyarrow.csv.write_csv(table, draft)
            draft.replace(folder / f"{name}.csv")
    except OSError as error:
        raise Usage(f"--data {folder} cannot be written: {error}") from error
