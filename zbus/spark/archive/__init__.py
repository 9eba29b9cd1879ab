"""The archive: topics as a table of Delta Lake, each offset once (docs/reference/spark-archive.md).

    from zbus.spark.archive import Archive

    archive = Archive("/srv/archive")
    table = archive.dataset().to_table()

None of this needs Spark, but `open_archive` and the engine of that name.
"""

from __future__ import annotations

from zbus.spark.archive.table import Archive, ArchiveFile

__all__ = ["Archive", "ArchiveFile"]
