"""Results as Parquet files, each batch once.

A batch is a directory `zbus_batch=<job>-<number>`. It is written under another name, which readers
pass over, and renamed when it is whole. A batch that is done again finds its directory and writes
nothing. `spark.read.parquet(DIR)` reads them all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from zbus.spark.errors import SparkProblem, Usage
from zbus.spark.etl.place import Place

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMN: Final = "zbus_batch"


def batch_name(job: str, batch: int) -> str:
    """The directory of a batch of this job."""
    return f"{COLUMN}={job}-{batch:010d}"


def check(columns: list[str]) -> None:
    """Raises Usage if files of these columns could not be read again."""
    lower = [name.lower() for name in columns]
    twice = sorted({name for name in lower if lower.count(name) > 1})
    if twice:
        raise Usage(f"the result has {', '.join(twice)} more than once: name columns with `as`")
    if COLUMN in lower:
        raise Usage(f"the result has a column {COLUMN}, which is the name of the directories")


def write(spark: SparkSession, root: str, job: str, batch: int, rows: DataFrame) -> bool:
    """Write a batch; False if it was written before. Raises SparkProblem."""
    place = Place(spark, root)
    name = batch_name(job, batch)
    draft = f"_{name.replace('=', '-')}"
    if place.exists(name):
        return False
    rows.write.mode("overwrite").parquet(place.uri(draft))
    if not place.rename(draft, name):
        raise SparkProblem(f"{place.uri(draft)} could not be renamed to {name}")
    return True
