"""The two ends of a job: messages as a frame that stays what it is, and rows as messages.

A job may read its input more than once. So a range gets its bounds when it is looked at first, and
what is stored meanwhile is not in it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs

from zbus.client import errors
from zbus.spark.errors import SparkProblem, UnknownTopic, Usage, problem_in
from zbus.spark.logs import Span
from zbus.spark.source.location import TRIED_S, Where

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMAT: Final = "zbus"

_RAISED: Final = re.compile(r"^\s*((?:\w+\.)*\w+(?:Error|Exception): [^\n]*)", re.MULTILINE)


@attrs.frozen
class Range:
    """Of each partition, from where to where."""

    spans: tuple[Span, ...]
    starts: tuple[int, ...]
    stops: tuple[int, ...]

    @property
    def messages(self) -> int:
        """How many there are."""
        return sum(self.stops) - sum(self.starts)

    @property
    def topics(self) -> list[str]:
        """As the broker spells them."""
        return list(dict.fromkeys(span.topic for span in self.spans))

    def options(self) -> dict[str, str]:
        """For the source."""
        starts: dict[str, dict[str, int]] = {}
        stops: dict[str, dict[str, int]] = {}
        for span, start, stop in zip(self.spans, self.starts, self.stops, strict=True):
            starts.setdefault(span.topic, {})[str(span.partition)] = start
            stops.setdefault(span.topic, {})[str(span.partition)] = stop
        return {
            "topics": names_option(self.topics),
            "startingOffsets": json.dumps(starts),
            "endingOffsets": json.dumps(stops),
        }


def find_range(
    where: Where, topics: Sequence[str], since_ms: int | None = None, until_ms: int | None = None
) -> Range:
    """What there is of these topics now. Raises UnknownTopic, Unreachable."""
    with where.open() as log:
        spans = [span for topic in topics for span in log.spans(topic)]
        starts, stops = [], []
        for span in spans:
            starts.append(span.first if since_ms is None else log.offset_at(span, since_ms))
            stop = span.end if until_ms is None else log.offset_at(span, until_ms)
            stops.append(max(starts[-1], stop))
    return Range(tuple(spans), tuple(starts), tuple(stops))


def require(where: Where, topics: Sequence[str]) -> Range:
    """Topics that are to be read are there: it is asked before a session begins. Raises
    UnknownTopic, Unreachable."""
    return find_range(where.impatient(), topics)


def require_targets(where: Where, topics: Iterable[str]) -> None:
    """The same of those that are to be written."""
    with where.impatient().client() as bus:
        for name in sorted(set(topics)):
            try:
                bus.query(name)
            except errors.Forbidden:
                continue  # a token may be allowed to put, and not to ask
            except errors.NotFound:
                text = f"there is no topic {name}: make it, zbus declare {name}"
                raise UnknownTopic(text) from None


def require_new(path: str, option: str) -> None:
    """Nothing is there yet. Raises Usage."""
    if "://" not in path and Path(path).exists():
        raise Usage(f"{option} {path} exists already: choose another directory")


def load(spark: SparkSession, where: Where, found: Range) -> DataFrame:
    """A range as a frame."""
    options = {**where_options(where), **found.options()}
    return spark.read.format(FORMAT).options(**options).load()


def load_stream(
    spark: SparkSession, where: Where, topics: Sequence[str], options: Mapping[str, str]
) -> DataFrame:
    """Topics as a stream."""
    given = {**where_options(where), "topics": names_option(topics), **options}
    return spark.readStream.format(FORMAT).options(**given).load()


def write(rows: DataFrame, where: Where, app: str | None = None, version: int = 0) -> None:
    """Rows as messages, all or none; the same app and version again do nothing."""
    options = where_options(where)
    if app is not None:
        options |= {"txnAppId": app, "txnVersion": str(version)}
    rows.write.format(FORMAT).mode("append").options(**options).save()


def names_option(names: Sequence[str]) -> str:
    """The option `topics`, for names that may have commas."""
    return json.dumps(list(names))


def where_options(where: Where) -> dict[str, str]:
    """How Spark's options say where."""
    given = {
        "broker": where.broker,
        "path": where.path,
        "tokenFile": where.token_file,
        "tlsCa": where.tls_ca,
        "patience": None if where.patience_s == TRIED_S else f"{where.patience_s:.3f}s",
    }
    return {name: value for name, value in given.items() if value is not None}


def forget(where: Where, app: str) -> None:
    """What the broker knows of a job that will not come back."""
    from zbus.spark.sink import sink

    with where.client() as bus:
        sink.forget(bus, app)


@contextmanager
def problems(about: str = "") -> Iterator[None]:
    """Raises SparkProblem for what a job of Spark fails with: what a task or a worker said, or the
    first line. What came from an option of the user is Usage; `about` names it."""
    try:
        yield
    except SparkProblem:
        raise
    except Exception as error:
        raise problem_of(error, about) from error


def problem_of(error: BaseException, about: str = "") -> SparkProblem:
    """The same, of an error that was caught."""
    text = str(error)
    # Without a trace it is of the query itself, of which a plan may have the text of a problem.
    found = None if about and "Traceback" not in text else problem_in(error)
    if found is not None:
        return found
    if type(error).__name__ in ("AnalysisException", "ParseException"):
        about = about or "Spark"  # of what the user wrote
    raised = _RAISED.findall(text) if "Traceback" in text else []
    first = raised[-1] if raised else (text.strip().splitlines() or [type(error).__name__])[0]
    return Usage(f"{about}: {first}") if about else SparkProblem(first)
