"""A session of Spark with the settings that the jobs want (pipeline, section 6)."""

from __future__ import annotations

import os
import re
import sys
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from zbus.spark import register, stand_ins
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
"""Defaults for settings that `conf`, spark-submit, its properties file and the creator of the
session leave open."""

_LOGGING = Path(__file__).with_name("log4j2.properties")
_JAVA_OPTIONS = "SPARK_SUBMIT_OPTS"
"""Of the environment: before those that are set, so a person's own come later and win."""

_PROGRESS = "spark.ui.showConsoleProgress"
"""Spark sets it itself if it is not set, before a program could look."""

_SHUFFLE = "spark.sql.shuffle.partitions"
_DYNAMIC = "spark.dynamicAllocation.enabled"
_LOGGERS: Final = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
_LOUD: Final = (
    "executor.Executor",
    "scheduler.TaskSetManager",
    "util.Utils",
    "api.python.PythonRunner",
    "sql.execution.streaming.runtime.MicroBatchExecution",
    "sql.execution.datasources.v2",
    "sql.execution.streaming.MicroBatchExecution",
    "sql.execution.datasources.FileFormatWriter",
)
_EXECUTORS_S: Final = 30.0
_SETTLED_S: Final = 1.0
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
    quiet = f"-Dlog4j2.configurationFile={_LOGGING.as_uri()}"
    if not submitted and quiet not in os.environ.get(_JAVA_OPTIONS, ""):
        os.environ[_JAVA_OPTIONS] = f"{quiet} {os.environ.get(_JAVA_OPTIONS, '')}".rstrip()
    place = master or given.pop("spark.master", None) or (None if submitted else LOCAL)
    if place is not None and place.startswith("local"):
        # It would bind and tell others the address of this machine in the network.
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        if "SPARK_HOME" not in os.environ:  # its PySpark is the one that is installed here
            os.environ.setdefault("PYSPARK_PYTHON", str(stand_ins.python()))
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    session = _begin(name, place, given)
    if _SHUFFLE not in session.conf.getAll:
        session.conf.set(_SHUFFLE, str(2 * session.sparkContext.defaultParallelism))
    register(session)
    return session


def _begin(name: str, master: str | None, conf: Mapping[str, str]) -> SparkSession:
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    there = running()
    if there is not None:
        for key, value in {**_missing(there.conf.getAll), **conf}.items():
            if there.conf.isModifiable(key):
                there.conf.set(key, value)
        return there
    builder = SparkSession.builder.appName(name)
    if master is not None:
        builder = builder.master(master)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            # It warns of an installed pandas that is not used.
            warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas")
            for key, value in {**_missing(_set(conf)), **conf}.items():
                builder = builder.config(key, value)
            session = builder.getOrCreate()
    except (PySparkException, Py4JError, OSError, RuntimeError) as error:
        # The JVM's text begins with one line about where it was asked.
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        why = lines[1] if isinstance(error, Py4JError) and len(lines) > 1 else str(error)
        place = master or "the master that is set"
        raise NoSpark(f"no session of Spark could be begun on {place}: {why}") from error
    session.sparkContext.setLogLevel("ERROR")
    _await_executors(session)
    return session


def running() -> SparkSession | None:
    """The session that this process has already, which is another party's."""
    try:
        from pyspark import SparkContext
        from pyspark.sql import SparkSession
    except ImportError:
        return None
    if SparkContext._active_spark_context is None:
        return None
    return SparkSession.builder.getOrCreate()


@contextmanager
def without_a_log() -> Iterator[None]:
    """Errors of SQL are reported once, in our words."""
    from pyspark.logger import PySparkLogger

    loggers = [PySparkLogger.getLogger(name) for name in _LOGGERS]
    before = [logger.disabled for logger in loggers]
    try:
        for logger in loggers:
            logger.disabled = True
        yield
    finally:
        for logger, was in zip(loggers, before, strict=True):
            logger.disabled = was


def quieten(session: SparkSession) -> None:
    """The failure of a job is reported once, in our words, without a page of Java before it."""
    jvm = session._jvm
    assert jvm is not None
    log4j = jvm.org.apache.logging.log4j
    for name in _LOUD:
        log4j.core.config.Configurator.setLevel(f"org.apache.spark.{name}", log4j.Level.OFF)


def _set(conf: Mapping[str, str]) -> dict[str, str]:
    """What is set before a session begins: the JVM knows, which `conf` is given to."""
    from pyspark import SparkConf, SparkContext

    first = SparkConf().setAll(list(conf.items()))
    SparkContext._ensure_initialized(conf=first)
    found = dict(SparkConf().getAll())
    if _SUBMITTED not in os.environ:
        found.pop(_PROGRESS, None)
    return found


def _missing(known: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in DEFAULTS.items() if key not in known}


def _await_executors(session: SparkSession) -> None:
    """Those of a cluster come one after another when a session has begun, and how much is done at
    a time follows from how many there are."""
    context = session.sparkContext
    if (context.master or "").startswith("local") or session.conf.get(_DYNAMIC, "false") == "true":
        return
    begun = changed = time.monotonic()
    count = 0
    while time.monotonic() < begun + _EXECUTORS_S:
        there = context._jsc.sc().getExecutorMemoryStatus().size() - 1  # one is the driver
        if there != count:
            count, changed = there, time.monotonic()
        if count and time.monotonic() > changed + _SETTLED_S:
            return
        time.sleep(_SETTLED_S / 10)


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
