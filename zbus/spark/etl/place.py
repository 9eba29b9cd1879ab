"""A directory as Hadoop sees it, through Spark's JVM: whatever Spark can write to is one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Place:
    """A directory as Hadoop sees it: on this disk, or wherever the URI says."""

    def __init__(self, spark: SparkSession, uri: str) -> None:
        self._jvm = spark._jvm
        assert self._jvm is not None
        self._root = self._jvm.org.apache.hadoop.fs.Path(uri)
        self._fs = self._root.getFileSystem(spark._jsc.hadoopConfiguration())

    def _path(self, name: str) -> Any:  # noqa: ANN401 - of Java
        assert self._jvm is not None
        return self._jvm.org.apache.hadoop.fs.Path(self._root, name)

    def exists(self, name: str) -> bool:
        return bool(self._fs.exists(self._path(name)))

    def has_any(self, name: str) -> bool:
        """Whether there is a directory with something in it; checksums are nothing."""
        if not self.exists(name):
            return False
        found = self._fs.listStatus(self._path(name))
        return any(not each.getPath().getName().startswith(".") for each in found)

    def read(self, name: str) -> str | None:
        if not self.exists(name):
            return None
        assert self._jvm is not None
        stream = self._fs.open(self._path(name))
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def write(self, name: str, text: str) -> None:
        """Whole or not at all."""
        new = self._path(f"_{name}.new")
        stream = self._fs.create(new, True)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()
        self._fs.delete(self._path(name), False)
        self._fs.rename(new, self._path(name))

    def uri(self, name: str) -> str:
        return str(self._path(name).toString())

    def rename(self, old: str, new: str) -> bool:
        return bool(self._fs.rename(self._path(old), self._path(new)))
