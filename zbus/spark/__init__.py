"""The data pipeline: zbus and Spark (docs/reference/spark.md).

    import zbus.spark

    zbus.spark.register(spark)
    orders = spark.read.format("zbus").option("broker", "127.0.0.1:15555").option("topic", "orders")
    orders.load().show()

Nothing here needs Spark before it is called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

__all__ = ["open_archive", "register"]


def register(spark: SparkSession) -> None:
    """Make the format `zbus` known to a session, whether or not Spark has found it by itself."""
    from zbus.spark.source.source import ZbusDataSource

    spark.dataSource.register(ZbusDataSource)


def open_archive(
    spark: SparkSession,
    path: str | Path,
    version: int | None = None,
    topics: Sequence[str] = (),
) -> DataFrame:
    """All that is committed in an archive (docs/reference/spark-archive.md), or was in a version of
    it, or of some topics, as a table with the columns of a message. Raises Usage, Unverified,
    DataLoss if the files of a version were vacuumed."""
    from zbus.spark.archive.spark import open_archive

    return open_archive(spark, path, version, topics)
