"""A session of Spark with the settings that the jobs want (pipeline, section 6)."""

from __future__ import annotations

import os
import re
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from zbus.spark import register
from zbus.spark.errors import NoSpark, Usage
from zbus.spark.java import find_java_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL: Final = "local[*]"
VERSIONS: Final = ((4, 2), (5, 0))
"""From the first whose Python streams have limits to before the next that may change them."""

DEFAULTS: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
"""Unless `conf` says otherwise."""

_LOGGING = Path(__file__).with_name("log4j2.properties")
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_SHUFFLE = "spark.sql.shuffle.partitions"
_SUBMITTED = "PYSPARK_GATEWAY_PORT"  # spark-submit has started the JVM


def start(
    name: str,
    *,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    java_home: str | None = None,
) -> SparkSession:
    """A session, or the one that there is, with the format `zbus` in it.

    `master` is where it runs: by default where spark-submit says, else all cores of this machine.
    Raises NoSpark if Spark or Java is not there or does not fit, or the session does not begin.
    """
    _check_version()
    given = dict(conf or {})
    submitted = _SUBMITTED in os.environ
    if not submitted:
        os.environ["JAVA_HOME"] = str(find_java_home(java_home))
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if not submitted:
        quiet = f"-Dlog4j2.configurationFile={_LOGGING.as_uri()}"
        given[_JAVA_OPTIONS] = f"{quiet} {given.get(_JAVA_OPTIONS, '')}".rstrip()
    place = master or given.pop("spark.master", None) or (None if submitted else LOCAL)
    if place is not None and place.startswith("local"):
        # It would bind and tell others the address of this machine in the network.
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    session = _begin(name, place, {**DEFAULTS, **given})
    if _SHUFFLE not in given:
        session.conf.set(_SHUFFLE, str(2 * session.sparkContext.defaultParallelism))
    register(session)
    return session


def _begin(name: str, master: str | None, conf: Mapping[str, str]) -> SparkSession:
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(name)
    if master is not None:
        builder = builder.master(master)
    for key, value in conf.items():
        builder = builder.config(key, value)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            # It says so of a pandas that it has found and that nobody uses.
            warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas")
            session = builder.getOrCreate()
    except (PySparkException, Py4JError, OSError, RuntimeError) as error:
        # The JVM's text begins with one line about where it was asked.
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        why = lines[1] if isinstance(error, Py4JError) and len(lines) > 1 else str(error)
        place = master or "the master that is set"
        raise NoSpark(f"no session of Spark could be begun on {place}: {why}") from error
    session.sparkContext.setLogLevel("ERROR")
    return session


def _check_version() -> None:
    try:
        import pyspark
    except ImportError:
        raise NoSpark("Spark is not installed here: pip install 'zbus-broker[spark]'") from None
    found = re.match(r"(\d{1,3})\.(\d{1,3})", pyspark.__version__)
    version = (int(found[1]), int(found[2])) if found else (0, 0)
    first, after = VERSIONS
    if not first <= version < after:
        raise NoSpark(
            f"this is PySpark {pyspark.__version__}; zbus works with {first[0]}.{first[1]} and"
            f" newer, before {after[0]}.{after[1]}: pip install 'zbus-broker[spark]'"
        )


def read_conf(words: tuple[str, ...]) -> dict[str, str]:
    """Settings as a shell gives them, `key=value`. Raises Usage."""
    found = {}
    for word in words:
        key, mark, value = word.partition("=")
        if not mark or not key:
            raise Usage(f"--conf {word[:80]!r} is not of the form key=value")
        found[key] = value
    return found
