"""Rows that are written as messages. To come: a stub until the broker has transactions."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql.datasource import DataSourceStreamWriter, DataSourceWriter
from pyspark.sql.types import StructType

from zbus.spark.errors import Usage


def writer(schema: StructType, options: Mapping[str, str], overwrite: bool) -> DataSourceWriter:
    raise Usage("zbus cannot be written yet")


def stream_writer(
    schema: StructType, options: Mapping[str, str], overwrite: bool
) -> DataSourceStreamWriter:
    raise Usage("zbus cannot be written yet")
