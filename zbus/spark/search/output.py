"""Results for people and for programs: a table, JSON lines, CSV, Parquet.

Messages come from anybody: what would steer a terminal is shown as an escape in the table. A body
that is no text is Base64 in JSON and CSV, under another name.
"""

from __future__ import annotations

import base64
import codecs
import csv
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import IO, Any, Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from zbus.spark.errors import SparkProblem, Usage
from zbus.spark.search.results import Body, result_names, result_schema

_SHOWN_MAX: Final = 60
"""Characters of a body, or of headers, in the table."""

Rows = Iterable[pa.RecordBatch]


class Format(StrEnum):
    """How results are written."""

    TABLE = "table"
    JSONL = "jsonl"
    PARQUET = "parquet"
    CSV = "csv"


def write(found: Rows, form: Format, path: str | None, body: Body) -> None:
    """To a file, which is there when all of it is, or to standard output. Raises Usage if that
    cannot be."""
    if form is Format.PARQUET:
        if path is None:
            raise Usage("--format parquet needs --out FILE")
        with _replaced(path) as part:
            _write_parquet(found, part, body)
        return
    writer = _WRITERS[form]
    if path is None:
        writer(found, sys.stdout, body)
        sys.stdout.flush()
        return
    with _replaced(path) as part, open(part, "w", encoding="utf-8", newline="") as file:
        writer(found, file, body)


@contextmanager
def _replaced(path: str) -> Iterator[str]:
    part = f"{path}.part"
    try:
        yield part
        os.replace(part, path)
    except OSError as error:
        raise SparkProblem(f"{path} cannot be written: {error}") from error
    finally:
        Path(part).unlink(missing_ok=True)


def _write_parquet(found: Rows, path: str, body: Body) -> None:
    with pq.ParquetWriter(path, result_schema(body), compression="zstd") as writer:
        for batch in found:
            writer.write_batch(batch)


# -- for programs ---------------------------------------------------------------------------------


def _write_json(found: Rows, file: IO[str], body: Body) -> None:
    for row in rows(found):
        file.write(msgspec.json.encode(document(row, body)).decode())
        file.write("\n")


def document(row: dict[str, Any], body: Body) -> dict[str, Any]:
    """A result as `zbus tail --json` has a message; empty labels are left out."""
    found: dict[str, Any] = {name: row[name] for name in ("id", "topic", "partition", "offset")}
    found["timestamp"] = round(row["timestamp"].timestamp() * 1_000)
    found.update({name: row[name] for name in ("tag", "key") if row[name] is not None})
    found["headers"] = dict(row["headers"] or ())
    found["size"] = row["size"]
    if body is not Body.NONE:
        text = text_of(row["body"], body)
        if text is None:
            found["body_base64"] = base64.b64encode(row["body"]).decode()
        else:
            found["body"] = text
    return found


def rows(found: Rows) -> Iterator[dict[str, Any]]:
    """One after another."""
    for batch in found:
        yield from batch.to_pylist()


def text_of(body: bytes | None, how: Body) -> str | None:
    """None: it is no text. Of a head, a character that is cut off at the end is left out."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        return decoder.decode(body or b"", final=how is not Body.HEAD)
    except UnicodeDecodeError:
        return None


def _write_csv(found: Rows, file: IO[str], body: Body) -> None:
    names = [*result_names(body), *(["body_base64"] if body is not Body.NONE else [])]
    writer = csv.writer(file)
    writer.writerow(names)
    for row in rows(found):
        fields = document(row, body)
        fields["timestamp"] = iso(row["timestamp"])
        fields["headers"] = msgspec.json.encode(fields["headers"]).decode()
        writer.writerow([fields.get(name, "") for name in names])


def iso(moment: datetime) -> str:
    """In UTC, with milliseconds."""
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


# -- for people -----------------------------------------------------------------------------------


def _write_table(found: Rows, file: IO[str], body: Body) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    names = [name for name in result_names(body) if name not in ("partition", "offset")]
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in names:
        right = name == "size"
        whole = name in ("topic", "timestamp", "id")
        table.add_column(
            {"topic": "place", "timestamp": "time (UTC)"}.get(name, name),
            justify="right" if right else "left",
            no_wrap=True,
            overflow="ignore" if whole else "ellipsis",
        )
    for row in rows(found):
        table.add_row(*(Text(_cell(row, name, body)) for name in names))
    tty = file.isatty()
    console = Console(file=file, highlight=False, width=None if tty else 400, no_color=not tty)
    console.print(table)


def _cell(row: dict[str, Any], name: str, body: Body) -> str:
    value = row[name]
    if name == "topic":
        value = f"{value} {row['partition']}/{row['offset']}"
    elif name == "timestamp":
        value = iso(value)[:-1].replace("T", " ")
    elif name == "headers":
        value = _short(" ".join(f"{header}={text}" for header, text in value or ()))
    elif name == "body":
        text = text_of(value, body)
        value = _short(value.decode("utf-8", "backslashreplace") if text is None else text)
    elif name == "size":
        value = f"{value:,}"
    return printable("" if value is None else value)


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN_MAX else f"{text[: _SHOWN_MAX - 1]}…"


def printable(text: str) -> str:
    """With escapes for what a terminal would obey."""
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)


_WRITERS: Final[dict[Format, Callable[[Rows, IO[str], Body], None]]] = {
    Format.TABLE: _write_table,
    Format.JSONL: _write_json,
    Format.CSV: _write_csv,
}
