"""The classes that Spark calls, called directly: what they do in a driver and in a task."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import pytest
from pyspark.sql import datasource as spark
from pyspark.sql import types
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from tests.process.broker import BrokerProcess
from tests.process.endpoint import wait_for
from tests.spark.counted import Counted
from zbus.client import BlockingClient, connect
from zbus.spark.errors import DataLoss, UnknownTopic, Unreachable, Usage
from zbus.spark.options import OF_STREAMS, OF_TABLES
from zbus.spark.source.listener import Lag
from zbus.spark.source.location import Where
from zbus.spark.source.reading import close_logs
from zbus.spark.source.source import PushingReader, Reader, ZbusDataSource, columns_of
from zbus.spark.source.stream import IDLE_S, StreamReader

COUNT = 100


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("reader") / "data") as found:
        with connect(f"127.0.0.1:{found.port}") as bus:
            fill(bus, "orders")
        yield found
        for query in Query.all_of_them:
            query.reader.stop()
        close_logs()


def fill(bus: BlockingClient, topic: str, count: int = COUNT) -> None:
    bus.declare(topic)
    for number in range(count):
        tag = ("eu", "us", None)[number % 3]
        bus.produce(topic, b"%d" % number, tag=tag, key=f"k{number % 5}")


def source(broker: BrokerProcess, /, **options: Any) -> ZbusDataSource:
    texts = {name: str(value) for name, value in options.items()}
    return ZbusDataSource({"broker": f"127.0.0.1:{broker.port}", "topic": "orders", **texts})


_KINDS: dict[str, types.DataType] = {
    "int": types.IntegerType(),
    "long": types.LongType(),
    "timestamp": types.TimestampType(),
    "string": types.StringType(),
    "binary": types.BinaryType(),
    "map<string,string>": types.MapType(types.StringType(), types.StringType()),
}


def ddl(text: str) -> types.StructType:
    """Spark's own needs a JVM."""
    fields = [field.strip().split(" ") for field in text.split(", ")]
    return types.StructType([types.StructField(name, _KINDS[kind]) for name, kind in fields])


def schema_of(made: ZbusDataSource) -> types.StructType:
    return ddl(made.schema())


def flat(batches: list[list[int]]) -> list[int]:
    return [each for batch in batches for each in batch]


def rows(reader: Any, parts: Any) -> list[dict[str, Any]]:
    """As in tasks: reader and parts have travelled."""
    reader, parts = pickle.loads(pickle.dumps((reader, list(parts))))
    return [row for part in parts for batch in reader.read(part) for row in batch.to_pylist()]


def batch_rows(made: ZbusDataSource) -> list[dict[str, Any]]:
    reader = made.reader(schema_of(made))
    return rows(reader, reader.partitions())


# -- a table --------------------------------------------------------------------------------------


def test_all_of_a_topic(broker: BrokerProcess) -> None:
    found = batch_rows(source(broker))
    assert [row["body"] for row in found] == [b"%d" % number for number in range(COUNT)]
    assert found[4] | {"timestamp": None, "headers": None} == {
        **{"topic": "orders", "partition": 0, "offset": 4, "timestamp": None},
        **{"id": found[4]["id"], "tag": "us", "key": "k4", "headers": None, "body": b"4"},
        "deliver_at": None,
    }


@pytest.mark.parametrize(
    ("options", "offsets"),
    [
        ({"startingOffsets": '{"orders": 95}'}, range(95, 100)),
        ({"endingOffsets": '{"orders": 5}'}, range(5)),
        ({"startingOffsets": "latest"}, range(0)),
        ({"tags": "eu"}, range(0, 100, 3)),
        ({"tags": "eu||us", "endingOffsets": '{"orders": 6}'}, [0, 1, 3, 4]),
        ({"splitBytes": "1 KiB", "maxRecordsPerPartition": "7"}, range(100)),
        ({"columns": "offset", "tags": "us"}, range(1, 100, 3)),
    ],
)
def test_parts_of_it(broker: BrokerProcess, options: Any, offsets: Any) -> None:
    assert [row["offset"] for row in batch_rows(source(broker, **options))] == list(offsets)


def test_between_two_times(broker: BrokerProcess) -> None:
    times = [row["timestamp"] for row in batch_rows(source(broker, columns="timestamp"))]
    since, until = times[30], times[60]
    options = {"startingTimestamp": since.isoformat(), "endingTimestamp": until.isoformat()}
    found = batch_rows(source(broker, columns="timestamp", **options))
    assert [row["timestamp"] for row in found] == [t for t in times if since <= t < until]


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        ("size int", "no column size"),
        ("offset int", "offset is long, and not int"),
        ("body string", "body is binary, and not string"),
        ("headers string", "headers is map<string,string>"),
    ],
)
def test_a_schema_that_does_not_fit(columns: str, text: str) -> None:
    with pytest.raises(Usage, match=text):
        columns_of(ddl(columns))


def test_a_schema_is_a_projection(broker: BrokerProcess) -> None:
    reader = source(broker).reader(ddl("key string, offset long"))
    assert rows(reader, reader.partitions())[6] == {"key": "k1", "offset": 6}


def test_without_parts_spark_asks_for_none(broker: BrokerProcess) -> None:
    reader = source(broker).reader(schema_of(source(broker)))
    assert list(reader.read(spark.InputPartition(None))) == []


@pytest.mark.parametrize(
    ("options", "problem", "text"),
    [
        ({"topic": "nobody"}, UnknownTopic, "nobody"),
        ({"startingOffsets": '{"orders": 101}'}, Usage, "ends at 100"),
        ({"broker": "127.0.0.1:1", "patience": "200ms"}, Unreachable, "cannot be reached"),
    ],
)
def test_what_cannot_be_planned(
    broker: BrokerProcess, options: Any, problem: type[Exception], text: str
) -> None:
    made = source(broker, **options)
    with pytest.raises(problem, match=text):
        made.reader(schema_of(made)).partitions()


def test_a_topic_that_is_made_again_while_it_is_read(broker: BrokerProcess) -> None:
    with connect(f"127.0.0.1:{broker.port}") as bus:
        fill(bus, "again", 5)
        made = source(broker, topic="again")
        reader = made.reader(schema_of(made))
        parts = list(reader.partitions())
        lenient = source(broker, topic="again", failOnDataLoss="false")
        other = lenient.reader(schema_of(lenient))
        bus.remove("again")
        fill(bus, "again", 5)
        with pytest.raises(DataLoss, match="removed and made again"):
            rows(reader, parts)
        assert rows(other, parts) == []


# -- conditions -----------------------------------------------------------------------------------

OFFSET, TAG, KEY, BODY = ("offset",), ("tag",), ("key",), ("body",)


@pytest.mark.parametrize(
    ("conditions", "offsets"),
    [
        ([spark.EqualTo(OFFSET, 7)], [7]),
        ([spark.GreaterThan(OFFSET, 97)], [98, 99]),
        ([spark.GreaterThanOrEqual(OFFSET, 98), spark.LessThan(OFFSET, 99)], [98]),
        ([spark.LessThanOrEqual(OFFSET, 1)], [0, 1]),
        ([spark.In(OFFSET, (3, 5))], [3, 5]),
        ([spark.Not(spark.GreaterThan(OFFSET, 1))], [0, 1]),
        ([spark.IsNull(TAG), spark.LessThan(OFFSET, 6)], [2, 5]),
        ([spark.IsNotNull(TAG), spark.LessThan(OFFSET, 6)], [0, 1, 3, 4]),
        ([spark.EqualTo(TAG, "eu"), spark.LessThan(OFFSET, 6)], [0, 3]),
        ([spark.Not(spark.EqualTo(TAG, "eu")), spark.LessThan(OFFSET, 6)], [1, 4]),
        ([spark.Not(spark.In(TAG, ("eu", "us"))), spark.LessThan(OFFSET, 6)], []),
        ([spark.StringStartsWith(KEY, "k"), spark.StringEndsWith(KEY, "4")], range(4, 100, 5)),
        ([spark.StringContains(TAG, "u"), spark.LessThan(OFFSET, 3)], [0, 1]),
        ([spark.EqualTo(("topic",), "other")], []),
        ([spark.EqualTo(("partition",), 0), spark.LessThan(OFFSET, 1)], [0]),
    ],
)
def test_conditions_that_are_taken(broker: BrokerProcess, conditions: Any, offsets: Any) -> None:
    made = source(broker)
    reader = PushingReader(made.reader(schema_of(made))._wish, ("offset",))  # type: ignore[attr-defined]
    assert list(reader.pushFilters(conditions)) == []
    found = rows(reader, reader.partitions())
    assert [row["offset"] for row in found] == list(offsets)
    assert all(list(row) == ["offset"] for row in found)


@pytest.mark.parametrize(
    "condition",
    [
        spark.EqualTo(BODY, b"1"),
        spark.EqualTo(OFFSET, "7"),
        spark.EqualTo(OFFSET, 7.0),
        spark.EqualTo(OFFSET, True),
        spark.EqualTo(OFFSET, None),
        spark.In(OFFSET, (1, None)),
        spark.EqualNullSafe(TAG, "eu"),
        spark.EqualTo(("headers", "a"), "b"),
        spark.StringStartsWith(OFFSET, "1"),
    ],
)
def test_conditions_that_spark_keeps(broker: BrokerProcess, condition: Any) -> None:
    made = source(broker)
    reader = PushingReader(made.reader(schema_of(made))._wish, ("offset",))  # type: ignore[attr-defined]
    assert list(reader.pushFilters([condition])) == [condition]


def test_conditions_on_times(broker: BrokerProcess) -> None:
    made = source(broker, columns="timestamp,offset")
    times = [row["timestamp"] for row in batch_rows(made)]
    lows, highs = (times[20], times[20] + timedelta(microseconds=1)), (times[70],)
    for low in lows:
        for high in highs:
            for upper in (spark.LessThan, spark.LessThanOrEqual):
                reader = PushingReader(made.reader(schema_of(made))._wish, ("timestamp",))  # type: ignore[attr-defined]
                wanted: list[spark.Filter] = [
                    spark.GreaterThanOrEqual(("timestamp",), low),
                    upper(("timestamp",), high),
                ]
                assert list(reader.pushFilters(wanted)) == []
                expected = [
                    time
                    for time in times
                    if low <= time
                    and (time < high or (upper is not spark.LessThan and time == high))
                ]
                found = [row["timestamp"] for row in rows(reader, reader.partitions())]
                assert found == expected


def test_a_plain_read_is_not_offered_conditions(broker: BrokerProcess) -> None:
    """Spark refuses a reader with pushFilters where it is not asked to push."""
    made = source(broker)
    assert type(made.reader(schema_of(made))) is Reader


# -- a stream -------------------------------------------------------------------------------------


class Query:
    """What Spark does with a stream, batch by batch, with its checkpoint."""

    all_of_them: ClassVar[list[Query]] = []
    reader: StreamReader

    def __init__(self, made: ZbusDataSource, available_now: bool = False) -> None:
        self.source = made
        self.available_now = available_now
        self.planned: list[tuple[Any, Any]] = []
        self.committed = 0
        self.restart()
        self.all_of_them.append(self)

    def restart(self) -> None:
        if hasattr(self, "reader"):
            self.reader.stop()
        reader = self.source.streamReader(schema_of(self.source))
        assert isinstance(reader, StreamReader)
        self.reader = reader
        if self.available_now:
            reader.prepareForTriggerAvailableNow()

    def plan(self) -> bool:
        """Says whether there is a batch."""
        if len(self.planned) > self.committed:
            return True  # of a run that ended before it was committed
        start = self.planned[-1][1] if self.planned else self.reader.initialOffset()
        end = self.reader.latestOffset(start, self.reader.getDefaultReadLimit())
        if end == start:
            return False
        self.planned.append((start, end))
        return True

    def run(self) -> list[int]:
        start, end = self.planned[self.committed]
        parts = self.reader.partitions(start, end)
        return [row["offset"] for row in rows(self.reader, parts)]

    def commit(self) -> None:
        self.committed += 1
        self.reader.commit(self.planned[self.committed - 1][1])

    def all(self) -> list[list[int]]:
        found = []
        while self.plan():
            found.append(self.run())
            self.commit()
        return found


def test_a_stream_in_batches(broker: BrokerProcess) -> None:
    made = source(broker, startingOffsets="earliest", maxOffsetsPerTrigger=40, group="seen")
    query = Query(made)
    found = query.all()
    assert [len(batch) for batch in found] == [40, 40, 20]
    assert flat(found) == list(range(COUNT))
    with connect(f"127.0.0.1:{broker.port}") as bus:
        assert bus.query("orders", "seen").message_count == 0
    assert query.reader.reportLatestOffset() == query.planned[-1][1]


def test_a_batch_that_was_not_committed_comes_again(broker: BrokerProcess) -> None:
    query = Query(source(broker, startingOffsets="earliest", maxOffsetsPerTrigger=60))
    assert query.plan()
    first = query.run()
    query.restart()
    assert query.plan()
    assert query.run() == first
    query.commit()
    assert flat(query.all()) == list(range(60, COUNT))


def test_new_partitions_come_with_the_next_batch(broker: BrokerProcess) -> None:
    """From their first offset, whatever the checkpoint knows of; also after a restart."""
    query = Query(source(broker, topic="grows", startingOffsets="earliest", group="seen"))
    with connect(f"127.0.0.1:{broker.port}") as bus:
        fill(bus, "grows", 3)
        assert query.all() == [[0, 1, 2]]
        bus.declare("grows", partitions=3)
        for number in range(4):
            bus.produce("grows", b"%d" % number, partition=number % 3)
        query.restart()
        assert query.all() == [[3, 4, 0, 0]]
        assert bus.query("grows", "seen").message_count == 0


def test_available_now_ends_where_it_began(broker: BrokerProcess) -> None:
    with connect(f"127.0.0.1:{broker.port}") as bus:
        fill(bus, "now", 10)
        made = source(broker, topic="now", startingOffsets="earliest", maxOffsetsPerTrigger=4)
        query = Query(made, available_now=True)
        fill(bus, "now", 7)
        assert flat(query.all()) == list(range(10))
        query.restart()
        assert flat(query.all()) == list(range(10, 17))


@pytest.mark.parametrize("name", [{"queryName": "q1"}, {"group": "g1"}])
def test_latest_is_where_the_query_was_first_asked(
    broker: BrokerProcess, name: dict[str, str]
) -> None:
    topic = f"growing-{next(iter(name.values()))}"
    with connect(f"127.0.0.1:{broker.port}") as bus:
        bus.declare(f"spark.start.{next(iter(name.values()))}", retention_ms=1_000)
        fill(bus, topic, 10)
        made = source(broker, topic=topic, **name)
        query = Query(made)
        begin = query.reader.initialOffset()
        fill(bus, topic, 5)
        query.restart()  # before the first batch is planned: nothing of it is in the checkpoint
        assert query.reader.initialOffset() == begin
        assert flat(query.all()) == list(range(10, 15))
        assert bus.query(f"spark.start.{next(iter(name.values()))}").retention_ms is None
        bus.empty(f"spark.start.{next(iter(name.values()))}")
        query.restart()
        with pytest.raises(DataLoss, match=r"was dropped by the retention of spark\.start"):
            query.reader.initialOffset()
        bus.remove(f"spark.start.{next(iter(name.values()))}")
        query.restart()
        assert query.reader.initialOffset() != begin


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, "needs the option queryName"),
        ({"startingTimestamp": "2026-01-01"}, "needs the option queryName"),
        ({"startingOffsets": "latest"}, "needs the option queryName"),
    ],
)
def test_a_start_that_depends_on_the_moment_needs_a_name(
    broker: BrokerProcess, options: Any, text: str
) -> None:
    made = source(broker, **options)
    with pytest.raises(Usage, match=text):
        made.streamReader(schema_of(made))


@pytest.mark.parametrize("name", OF_STREAMS)
def test_options_of_streams_are_not_of_tables(broker: BrokerProcess, name: str) -> None:
    made = source(broker, **{name.upper(): "1"})
    with pytest.raises(Usage, match=f"the option {name} is of streams"):
        made.reader(ddl("offset long"))


@pytest.mark.parametrize("name", OF_TABLES)
def test_a_stream_has_no_end(broker: BrokerProcess, name: str) -> None:
    made = source(broker, startingOffsets="earliest", **{name: "latest"})
    with pytest.raises(Usage, match=f"the option {name} is of tables: a stream has no end"):
        made.streamReader(ddl("offset long"))


def test_files_are_streamed_from_a_fixed_start(broker: BrokerProcess, tmp_path: Path) -> None:
    made = ZbusDataSource({"path": str(tmp_path), "topic": "orders", "queryName": "q"})
    with pytest.raises(Usage, match="files are streamed from"):
        made.streamReader(schema_of(made))


def test_a_minimum_is_waited_for(broker: BrokerProcess) -> None:
    with connect(f"127.0.0.1:{broker.port}") as bus:
        fill(bus, "few", 5)
    options = {"topic": "few", "startingOffsets": "earliest", "minOffsetsPerTrigger": 10}
    assert not Query(source(broker, **options)).plan()
    assert Query(source(broker, **options), available_now=True).plan()
    soon = Query(source(broker, maxTriggerDelay="1ms", **options))
    assert wait_for(soon.plan)


def test_a_new_topic_of_the_pattern_is_read_from_its_beginning(broker: BrokerProcess) -> None:
    with connect(f"127.0.0.1:{broker.port}") as bus:
        fill(bus, "pat-1", 3)
        made = ZbusDataSource(
            {
                **{"broker": f"127.0.0.1:{broker.port}", "topicsPattern": "pat-.*"},
                **{"startingOffsets": "earliest", "columns": "topic,offset"},
            }
        )
        query = Query(made)
        assert query.all() == [[0, 1, 2]]
        fill(bus, "pat-2", 2)
        assert wait_for(query.plan)
        assert query.run() == [0, 1]


def test_a_topic_that_is_made_again_amid_a_stream(broker: BrokerProcess) -> None:
    with connect(f"127.0.0.1:{broker.port}") as bus:
        fill(bus, "remade", 5)
        strict, lenient = (
            Query(source(broker, topic="remade", startingOffsets="earliest", failOnDataLoss=fail))
            for fail in ("true", "false")
        )
        assert strict.all() == lenient.all() == [[0, 1, 2, 3, 4]]
        bus.remove("remade")
        fill(bus, "remade", 3)
        strict.restart()
        lenient.restart()
        with pytest.raises(DataLoss, match="made again"):
            strict.plan()
        assert lenient.all() == [[0, 1, 2]]


@pytest.mark.parametrize("more", [{}, {"maxBytesPerTrigger": "1 GiB"}])
def test_a_stream_that_is_idle_asks_for_little(broker: BrokerProcess, more: dict[str, str]) -> None:
    with connect(f"127.0.0.1:{broker.port}") as bus, Counted(broker.port) as way:
        topic = f"idle{len(more)}"
        bus.declare(topic, partitions=2)
        for partition in range(2):
            bus.produce_many(topic, [b"x" * 200_000] * 2, partition=partition)
        options = {"topic": topic, "startingOffsets": "earliest", "columns": "offset", **more}
        query = Query(source(broker, broker=f"127.0.0.1:{way.port}", **options))
        assert flat(query.all()) == [0, 1, 0, 1]
        requests, answered = way.requests, way.answered_bytes
        assert answered > 800_000
        seconds = 1.0
        assert not wait_for(query.plan, seconds)
        looks = seconds / IDLE_S + 2
        assert way.requests - requests <= looks * 3  # the topic, and each of its partitions
        assert way.answered_bytes - answered < looks * 3_000
        query.reader.stop()


def test_the_size_of_a_partition_is_not_asked_for_again(broker: BrokerProcess) -> None:
    with connect(f"127.0.0.1:{broker.port}") as bus, Counted(broker.port) as way:
        fill(bus, "sized", 50)
        with Where(broker=f"127.0.0.1:{way.port}").open() as log:
            (first,) = log.spans("sized")
            known = way.requests
            assert log.spans("sized") == [first]
            assert way.requests - known == 2
            fill(bus, "sized", 50)
            assert log.spans("sized")[0].bytes > 1.5 * first.bytes


def test_a_topic_that_is_not_meant_any_more(broker: BrokerProcess) -> None:
    with connect(f"127.0.0.1:{broker.port}") as bus:
        fill(bus, "kept", 2)
        fill(bus, "dropped", 2)
    base = {"broker": f"127.0.0.1:{broker.port}", "startingOffsets": "earliest"}
    query = Query(ZbusDataSource({**base, "topics": "kept,dropped", "columns": "offset"}))
    assert flat(query.all()) == [0, 1, 0, 1]
    for which in ({"topics": "kept"}, {"topicsPattern": "kep."}):
        query.source = ZbusDataSource({**base, **which, "columns": "offset"})
        query.restart()
        with pytest.raises(Usage, match="is of topics dropped, kept, and dropped is not to be"):
            query.plan()
    lenient = {**base, "topics": "kept", "failOnDataLoss": "false", "columns": "offset"}
    query.source = ZbusDataSource(lenient)
    query.restart()
    assert query.all() == [[]]


def test_a_group_follows_what_a_listener_is_told(
    broker: BrokerProcess, caplog: pytest.LogCaptureFixture
) -> None:
    """Also if it could not be moved after the last batch of a run."""
    url = f"127.0.0.1:{broker.port}"
    told: list[dict[str, int]] = []
    lag = Lag(Where(broker=url), "followers", lambda _, behind: told.append(behind))
    with connect(url) as bus:
        bus.remove("followed") if "followed" in bus.server().topics else None
        created = str(bus.declare("followed").created_ms)
        bus.produce_many("followed", [b"x"] * 5)
        reached = json.dumps({"v": 1, "t": {"followed": [created, [4]]}})
        latest = reached.replace("[4]", "[5]")
        at = SimpleNamespace(endOffset=reached, latestOffset=latest)
        progress: Any = SimpleNamespace(name="q", id="1", runId="2", sources=[at])
        lag.report(progress)
        assert told == [{"followed": 1}]
        assert bus.query("followed", "followers").message_count == 1
        bus.remove("followed")
        lag.report(progress)
        bus.declare("followed")
        bus.produce_many("followed", [b"x"] * 5)
        lag.onQueryTerminated(cast("Any", SimpleNamespace(runId="2")))
        assert bus.query("followed", "followers").message_count == 1


def test_the_limit_of_trigger_once_is_none(broker: BrokerProcess) -> None:
    query = Query(source(broker, startingOffsets="earliest"))
    assert isinstance(query.reader.getDefaultReadLimit(), ReadAllAvailable)
    bounded = Query(source(broker, startingOffsets="earliest", maxOffsetsPerTrigger=7))
    assert bounded.reader.getDefaultReadLimit() == ReadMaxRows(7)
