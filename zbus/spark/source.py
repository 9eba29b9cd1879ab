"""The format `zbus` of Spark."""

from __future__ import annotations

from pyspark.sql.datasource import DataSource


class ZbusDataSource(DataSource):
    """See the module."""

    @classmethod
    def name(cls) -> str:
        return "zbus"
