"""Rows that are written as messages, exactly once (pipeline, 5.3).

A task stages its rows in the broker, where they are invisible, and reports which. When all tasks
are done, the driver commits what they reported in one request: all is stored, or nothing. Spark
repeats a batch that it does not know to be committed, with the same number; the broker knows the
numbers of each query, and stores a batch once. What was staged by tasks that are not part of a
commit is dropped with the next one.

With `delivery=at-least-once` tasks put messages directly: they are seen at once, and some twice if
a task is repeated.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import attrs
import msgspec
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from zbus.client import errors
from zbus.client.blocking import BlockingClient, Pending
from zbus.client.messages import StoredBatch
from zbus.client.requests import Request, optional, parse_count, parse_stored_batch, start
from zbus.spark.clients import problem_with, reported
from zbus.spark.errors import DataLoss, SparkProblem, Usage
from zbus.spark.options import SinkWish, read_sink_wish
from zbus.spark.sink.encode import Load, check_columns, loads

IN_FLIGHT_MAX: Final = 4
"""Requests of one task that are not answered: each has some megabytes."""

COMMIT_TIMEOUT_S: Final = 600.0
"""A large batch is stored in portions; the answer comes when all is durable."""

_COMMIT: Final = b"GET / HTTP/1.1\r\ncmd: txn_commit\r\n"
_QUERY_APP: Final = b"GET / HTTP/1.1\r\ncmd: txn_query\r\n"
_ABORT: Final = b"GET / HTTP/1.1\r\ncmd: txn_abort\r\n"
_RANGES_MAX: Final = 500  # in a header of one request
_QUERY = "sql.streaming.queryId"
_BATCH = "streaming.sql.batchId"


@attrs.frozen
class Staged(WriterCommitMessage):
    """What a task has staged: of each topic, ranges of offsets among what is staged, in order."""

    app: str
    stages: tuple[tuple[str, tuple[tuple[int, int], ...]], ...]
    count: int


def writer(schema: StructType, options: Mapping[str, str], overwrite: bool) -> Writer:
    """Of a batch: `df.write`. Raises Usage."""
    wish = read_sink_wish(options, overwrite)
    _check(schema, wish)
    return Writer(wish)


def stream_writer(schema: StructType, options: Mapping[str, str], overwrite: bool) -> StreamWriter:
    """Of a stream: `df.writeStream`. Raises Usage."""
    wish = read_sink_wish(options, False)
    _check(schema, wish)
    return StreamWriter(wish)


def _check(schema: StructType, wish: SinkWish) -> None:
    kinds = {each.name: each.dataType.simpleString() for each in schema.fields}
    check_columns(kinds, wish.topic)


class Writer(DataSourceArrowWriter):
    """Rows of a table. All of them are written, or none."""

    def __init__(self, wish: SinkWish) -> None:
        self._wish = wish
        # A table that is written again is other rows, unless the user says that it is the same.
        self._app = wish.app or f"spark-{secrets.token_hex(8)}"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        return write_rows(self._wish, self._app, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        wish = self._wish
        if wish.exactly_once:
            with wish.where.client() as bus:
                if _any(messages):
                    commit(bus, wish, self._app, wish.version, messages)
                if wish.app is None:
                    forget(bus, self._app)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        wish = self._wish
        if wish.exactly_once:
            with wish.where.client() as bus:
                # A commit whose answer was an error may be decided: the broker goes on with it.
                if abort(bus, self._app, wish.version, messages) and wish.app is None:
                    forget(bus, self._app)


class StreamWriter(DataSourceStreamArrowWriter):
    """Rows of the batches of a query. Each batch is written once."""

    def __init__(self, wish: SinkWish) -> None:
        self._wish = wish

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        context = TaskContext.get()
        assert context is not None
        app = self._wish.app or context.getLocalProperty(_QUERY)
        if app is None:
            raise Usage("this Spark does not tell tasks their query: say who writes, with txnAppId")
        return write_rows(self._wish, app, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        found = _staged(messages)
        if _any(messages) and self._wish.exactly_once:
            with self._wish.where.client() as bus:
                commit(bus, self._wish, found[0].app, batchId, messages)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        # Spark calls this after a commit whose answer was lost, too; the broker refuses it then.
        found = _staged(messages)
        if found and self._wish.exactly_once:
            with self._wish.where.client() as bus:
                abort(bus, found[0].app, batchId, messages)


# -- in a task ------------------------------------------------------------------------------------


def write_rows(wish: SinkWish, app: str, batches: Iterable[pa.RecordBatch]) -> Staged:
    """Send all rows; return what was staged. Raises Usage, Unreachable."""
    with wish.where.client() as bus:
        send = _Staging(bus, app) if wish.exactly_once else _Putting(bus)
        try:
            for batch in batches:
                for load in loads(batch, wish.topic):
                    send.begin(load)
            return Staged(app, *send.end())
        except errors.ZbusError as error:
            raise problem_with(wish.where, error, send.topic) from error


class _Staging:
    """Loads on their way into what is staged."""

    def __init__(self, bus: BlockingClient, app: str) -> None:
        self._pipeline = bus.pipeline(IN_FLIGHT_MAX)
        self._app = app
        self._begun: list[tuple[Load, Pending[StoredBatch]]] = []
        self._ranges: dict[str, list[tuple[int, int]]] = {}
        self._count = 0
        self.topic = ""

    def begin(self, load: Load) -> None:
        self.topic = load.topic
        self._begun.append((load._replace(body=b""), self._pipeline.begin(self.request(load))))
        self._pipeline.flush()
        while self._begun and self._begun[0][1].done:
            self._finish()

    def request(self, load: Load) -> Request[StoredBatch]:
        lines = start(b"txn_stage", load.topic) + optional(txn=self._app) + load.lines
        # A key is added by the client, so that a request whose answer was lost is sent again.
        return Request(lines, parse_stored_batch, load.body, safe=False, keyed=True)

    def end(self) -> tuple[tuple[tuple[str, tuple[tuple[int, int], ...]], ...], int]:
        while self._begun:
            self._finish()
        stages = tuple((topic, tuple(found)) for topic, found in self._ranges.items())
        return stages, self._count

    def _finish(self) -> None:
        load, pending = self._begun.pop(0)
        self.topic = load.topic
        first = pending.result().offset
        stop = first + load.messages
        ranges = self._ranges.setdefault(load.topic, [])
        if ranges and ranges[-1][1] == first:
            ranges[-1] = ranges[-1][0], stop
        else:
            ranges.append((first, stop))
        self._count += load.messages


class _Putting(_Staging):
    """Loads on their way into topics."""

    def __init__(self, bus: BlockingClient) -> None:
        super().__init__(bus, "")

    def request(self, load: Load) -> Request[StoredBatch]:
        lines = start(b"produce", load.topic) + load.lines
        return Request(lines, parse_stored_batch, load.body, safe=False, keyed=True)

    def end(self) -> tuple[tuple[tuple[str, tuple[tuple[int, int], ...]], ...], int]:
        _, count = super().end()
        return (), count


# -- in the driver --------------------------------------------------------------------------------


def _staged(messages: Iterable[WriterCommitMessage | None]) -> list[Staged]:
    """Those of tasks that have done it: Spark has None for the others."""
    return [each for each in messages if isinstance(each, Staged)]


def _any(messages: Iterable[WriterCommitMessage | None]) -> bool:
    """Something was staged. Else there is nothing to commit, and the broker may not know who asks:
    an aggregate, for instance, has no results in its first batch."""
    return any(each.stages for each in _staged(messages))


def commit(
    bus: BlockingClient,
    wish: SinkWish,
    app: str,
    batch: int,
    messages: Iterable[WriterCommitMessage | None],
) -> int:
    """Store what tasks have staged, in their order; how many messages that were, 0 if it was done
    before. Raises Usage, Unreachable, DataLoss."""
    messages = _staged(messages)

    try:
        with reported(wish.where):
            try:
                return bus.run(request_of_commit(app, batch, messages))
            except errors.Conflict as error:
                raise DataLoss(f"{wish.where}: what was staged is gone: {error}") from error
    except SparkProblem as error:
        if is_decided(bus, app, batch):
            text = "what was written is decided all the same: the broker stores what is missing"
            raise type(error)(f"{error}; {text} as soon as it can") from error
        raise


def request_of_commit(
    app: str, batch: int, messages: Iterable[WriterCommitMessage | None]
) -> Request[int]:
    stages = [
        {"topic": topic, "offsets": _offsets(ranges)}
        for each in _staged(messages)
        for topic, ranges in each.stages
    ]
    body = msgspec.json.encode({"stages": stages})
    lines = _COMMIT + optional(txn=app, batch=batch)
    return Request(lines, parse_count, body, timeout_s=COMMIT_TIMEOUT_S, waits=True)


def _offsets(ranges: Iterable[tuple[int, int]]) -> str:
    return ",".join(f"{first}-{stop - 1}" for first, stop in ranges)


class _Status(msgspec.Struct):
    batch: int | None = None


def last_batch(bus: BlockingClient, app: str) -> int | None:
    """The last batch of an application that is decided; None: a broker that has just started may
    not have read it yet. Raises NotFound if there is none."""
    request = Request(_QUERY_APP + optional(txn=app), lambda answer: answer.body)
    return msgspec.json.decode(bus.run(request), type=_Status).batch


def is_decided(bus: BlockingClient, app: str, batch: int) -> bool:
    """False also if the broker does not tell, or does not know it yet."""
    try:
        decided = last_batch(bus, app)
    except (errors.ZbusError, msgspec.MsgspecError):
        return False
    return decided is not None and decided >= batch


def abort(
    bus: BlockingClient, app: str, batch: int, messages: Iterable[WriterCommitMessage | None]
) -> bool:
    """Drop what tasks have staged, unless it is committed. What is left goes with the next one.
    Says whether it is certain that the batch is not stored."""
    if is_decided(bus, app, batch):
        return False  # the broker may be busy with it for long, and an abort waits for that
    ranges = [each for staged in _staged(messages) for _, some in staged.stages for each in some]
    ranges = ranges or [(0, 1)]  # nothing else tells that no commit is under way
    for at in range(0, len(ranges), _RANGES_MAX):
        offsets = _offsets(ranges[at : at + _RANGES_MAX])
        lines = _ABORT + optional(txn=app, batch=batch, offset=offsets)
        try:
            bus.run(Request(lines, parse_count))
        except errors.NotFound:
            return True  # nothing was ever staged
        except errors.ZbusError:
            return False
    return True


def forget(bus: BlockingClient, app: str) -> None:
    """Remove what the broker knows of an application that will not come back."""
    for topic in (f"txn.{app}.rows", f"txn.{app}"):
        try:
            bus.remove(topic)
        except errors.ZbusError:
            pass  # a token may be allowed to put, and not to remove: an empty topic stays
