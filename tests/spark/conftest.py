"""The one session of Spark of a test run: whoever asks for it is run by the same process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from zbus.spark.session import start

QUICK = {
    "spark.driver.extraJavaOptions": "-Xss4m",
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "2",
    # The other one starts `readlink` for every look at a file, which is a third of a batch.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
}


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = start("tests", master="local[2]", conf=QUICK)
    yield session
    session.stop()
