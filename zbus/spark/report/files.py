"""A report's tables as files: Parquet, and CSV for spreadsheets."""

from __future__ import annotations

from pathlib import Path

from zbus.spark.errors import Usage
from zbus.spark.report.tables import COLUMNS, Backlog, Report, arrow_table


def backlogs_before(folder: Path) -> list[Backlog]:
    """Backlogs of the reports before."""
    import pyarrow.parquet as pq

    path = folder / "backlog.parquet"
    if not path.exists():
        return []
    try:
        rows = pq.read_table(path).to_pylist()
        return [
            Backlog(
                row["topic"],
                row["group"],
                round(row["at"].timestamp() * 1_000),
                *(row[name] for name in ("messages", "leased", "delayed", "dead", "consumers")),
                *(row.get(name) for name in ("bytes", "oldest_age_s")),  # newer than some files
            )
            for row in rows
        ]
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise Usage(f"{path} is no table of backlogs: {error}") from error


def write_tables(made: Report, folder: Path) -> None:
    import pyarrow.csv
    import pyarrow.parquet as pq

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
