"""Rows that are written: what a task and a driver do, called directly, against a real broker."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import types

from tests.process.broker import BrokerProcess
from tests.process.endpoint import wait_for
from zbus.client import BlockingClient, connect
from zbus.client.errors import NotFound
from zbus.spark.errors import DataLoss, SparkProblem, Unreachable, Usage
from zbus.spark.options import SinkWish, read_sink_wish
from zbus.spark.sink import encode as rows
from zbus.spark.sink import sink as sink_module
from zbus.spark.sink.encode import loads
from zbus.spark.sink.sink import (
    StreamWriter,
    commit,
    is_decided,
    request_of_commit,
    stream_writer,
    write_rows,
    writer,
)
from zbus.spark.source.location import Where

HEADERS = pa.map_(pa.string(), pa.string())


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("sink") / "data") as found:
        yield found


@pytest.fixture
def bus(broker: BrokerProcess) -> Iterator[BlockingClient]:
    with connect(f"127.0.0.1:{broker.port}") as found:
        for topic in found.server().topics:
            found.remove(topic)
        found.declare("out")
        yield found


def wish_of(broker: BrokerProcess, **more: Any) -> SinkWish:
    return SinkWish(where=Where(broker=f"127.0.0.1:{broker.port}"), **more)


def table(bodies: list[Any], **columns: Any) -> pa.RecordBatch:
    kinds = {"headers": HEADERS, "deliver_at": pa.timestamp("us", "UTC")}
    arrays = {name: pa.array(some, kinds.get(name)) for name, some in columns.items()}
    return pa.RecordBatch.from_pydict({**arrays, "body": pa.array(bodies)})


def bodies(bus: BlockingClient, topic: str = "out") -> list[bytes]:
    return [each.body for each in messages(bus, topic)]


def messages(bus: BlockingClient, topic: str = "out") -> list[Any]:
    return bus.read(topic, offset=0)


# -- a row is a message ---------------------------------------------------------------------------


def test_rows_are_seen_when_they_are_committed(broker: BrokerProcess, bus: BlockingClient) -> None:
    wish = wish_of(broker, topic="out")
    batch = table(
        [b"a", b"", b"\xff\0"],
        id=["x", None, "z"],
        tag=["eu", None, ""],
        key=["k", None, None],
        headers=[[("color", "blue"), ("host", "elsewhere")], None, []],
    )
    staged = write_rows(wish, "app", [batch, batch])
    assert (staged.app, staged.count, [topic for topic, _ in staged.stages]) == ("app", 6, ["out"])
    assert bodies(bus) == []
    assert commit(bus, wish, "app", 0, [staged]) == 6
    found = messages(bus)
    assert [each.body for each in found] == [b"a", b"", b"\xff\0"] * 2
    assert (found[0].id, found[0].tag, found[0].key) == ("x", "eu", "k")
    assert found[0].headers["color"] == "blue"
    assert "elsewhere" not in found[0].headers.values()
    assert (found[1].tag, found[1].key) == ("", "")


def test_topics_and_times_of_rows(broker: BrokerProcess, bus: BlockingClient) -> None:
    bus.declare("other")
    later = datetime.now(UTC) + timedelta(hours=1)
    batch = table(
        ["1", "2", "3", "4", "5"],
        topic=["out", "other", "out", "out", "other"],
        deliver_at=[None, None, None, later, None],
    )
    wish = wish_of(broker)
    assert commit(bus, wish, "app", 7, [None, write_rows(wish, "app", [batch])]) == 5
    assert bodies(bus, "out") == [b"1", b"3", b"4"]
    assert bodies(bus, "other") == [b"2", b"5"]
    assert [each.body for each in bus.pull("out", batch=10)] == [b"1", b"3"]
    assert bus.query("out", "out").delayed_count == 1


@pytest.mark.parametrize(
    ("batch", "said"),
    [
        (table(["a", "b"], topic=["out", None]), "a row without a topic"),
        (table(["a"], topic=["out"], headers=[[("a b", "c")]]), "'a b' is not a header"),
        (table(["a"], topic=["out"], headers=[[("tag", "c")]]), "'tag' is not a header"),
        (table(["a"], topic=["out"], headers=[[("x", "c\r\nd: e")]]), "may not hold control"),
        (table(["a"], topic=["out"], id=["x" * 40]), "length should be <= 39"),
        (table(["a"], topic=["nowhere"]), "nowhere.*Not Found"),
    ],
)
def test_rows_that_no_message_can_have(
    broker: BrokerProcess, bus: BlockingClient, batch: pa.RecordBatch, said: str
) -> None:
    with pytest.raises(Usage, match=said):
        write_rows(wish_of(broker), "app", [batch])
    assert bodies(bus) == []


def test_rows_in_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "MESSAGES_MAX", 3)
    monkeypatch.setattr(rows, "BYTES_MAX", 60)
    due = [None, None, None, None, 1_000, 999.001, None]  # the last one is not due earlier
    times = [each and datetime.fromtimestamp(each / 1_000, UTC) for each in due]
    batch = table(["a", "b", "c", "d", "e", "f", "g" * 99], deliver_at=times)
    found = [(each.deliver_at_ms, each.messages) for each in loads(batch, "t")]
    assert found == [(None, 3), (None, 1), (1_000, 2), (None, 1)]
    assert [each.messages for each in loads(table(["x" * 40] * 3), "t")] == [1, 1, 1]
    assert list(loads(table([]), "t")) == []


# -- exactly once ---------------------------------------------------------------------------------


def test_a_batch_that_is_repeated_is_written_once(
    broker: BrokerProcess, bus: BlockingClient
) -> None:
    sink = StreamWriter(wish_of(broker, topic="out", app="app"))
    for number in range(3):
        for _ in range(2):  # Spark did not get to know that it was committed
            parts = [
                write_rows(wish_of(broker, topic="out"), "app", [table([f"{number}.{part}"])])
                for part in range(2)
            ]
            sink.commit(parts, number)
        sink.abort(parts, number)  # nor that it was not
    assert bodies(bus) == [b"0.0", b"0.1", b"1.0", b"1.1", b"2.0", b"2.1"]


def test_the_order_is_that_of_the_parts(broker: BrokerProcess, bus: BlockingClient) -> None:
    wish = wish_of(broker, topic="out")
    parts = [write_rows(wish, "app", [table([f"{part}"])]) for part in (1, 0)]
    commit(bus, wish, "app", 0, reversed(parts))
    assert bodies(bus) == [b"0", b"1"]


def test_what_a_lost_task_has_staged_is_not_seen(
    broker: BrokerProcess, bus: BlockingClient
) -> None:
    wish = wish_of(broker, topic="out")
    lost = write_rows(wish, "app", [table(["lost"])])
    commit(bus, wish, "app", 0, [write_rows(wish, "app", [table(["done"])])])
    assert bodies(bus) == [b"done"]
    with pytest.raises(DataLoss, match="what was staged is gone"):
        commit(bus, wish, "app", 1, [lost])


def test_aborted_rows_are_gone(broker: BrokerProcess, bus: BlockingClient) -> None:
    sink = StreamWriter(wish_of(broker, topic="out", app="app"))
    parts = [write_rows(wish_of(broker, topic="out"), "app", [table(["x"])]), None]
    sink.abort(parts, 0)
    with pytest.raises(DataLoss):
        sink.commit(parts, 0)
    assert bodies(bus) == []


def test_a_table_leaves_nothing_else(broker: BrokerProcess, bus: BlockingClient) -> None:
    for written in (True, False):
        sink = writer(types.StructType([BODY]), options(broker, topic="out"), False)
        parts = [sink.write(iter([table(["a", "b"])])), sink.write(iter([]))]
        sink.commit(parts) if written else sink.abort(parts)
        assert list(bus.server().topics) == ["out"]
    assert bodies(bus) == [b"a", b"b"]


def test_a_table_without_rows(broker: BrokerProcess, bus: BlockingClient) -> None:
    sink = writer(types.StructType([BODY]), options(broker, topic="out"), False)
    sink.commit([sink.write(iter([table([])])), sink.write(iter([]))])
    stream = StreamWriter(wish_of(broker, topic="out", app="app"))
    for batch in range(2):  # a filter may leave nothing of the first ones
        stream.commit([write_rows(wish_of(broker, topic="out"), "app", [])], batch)
    stream.commit([write_rows(wish_of(broker, topic="out"), "app", [table(["a"])])], 2)
    assert bodies(bus) == [b"a"]


def test_a_table_that_is_named_is_written_once(broker: BrokerProcess, bus: BlockingClient) -> None:
    for version in (0, 0, 1, 0):
        given = options(broker, topic="out", txnAppId="load", txnVersion=str(version))
        sink = writer(types.StructType([BODY]), given, False)
        sink.commit([sink.write(iter([table([f"{version}"])]))])
    assert bodies(bus) == [b"0", b"1"]


def test_a_table_that_is_decided_is_not_forgotten(
    broker: BrokerProcess, bus: BlockingClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark aborts after each commit that raised, and the broker may be moving the rest."""
    monkeypatch.setattr(sink_module, "COMMIT_TIMEOUT_S", 0.3)
    sink = writer(types.StructType([BODY]), options(broker, topic="out"), False)
    parts = [sink.write(iter([table(["x"] * 30_000)]))]
    with connect(f"127.0.0.1:{broker.port}") as other, other.pipeline() as pipeline:
        begun = pipeline.begin(request_of_commit(sink._app, 0, parts))
        pipeline.flush()
        assert wait_for(lambda: is_decided(bus, sink._app, 0))
        bus.remove("out")  # what is left of it cannot be moved now
        with pytest.raises(NotFound):
            begun.result()
        with pytest.raises(NotFound):
            pipeline.wait()
    with pytest.raises(SparkProblem, match="decided all the same: the broker stores what is miss"):
        sink.commit(parts)
    sink.abort(parts)
    bus.declare("out")
    assert wait_for(lambda: bus.query(f"txn.{sink._app}.rows", "txn").message_count == 0)
    assert bus.query("out").message_depth > 0


def test_a_table_of_which_no_task_was_done_is_forgotten(
    broker: BrokerProcess, bus: BlockingClient
) -> None:
    sink = writer(types.StructType([BODY]), options(broker, topic="out"), False)
    sink.abort([None])
    sink.write(iter([table(["a", "b"])]))
    sink.abort([None])
    assert list(bus.server().topics) == ["out"]


def test_at_least_once(broker: BrokerProcess, bus: BlockingClient) -> None:
    given = options(broker, topic="out", delivery="at-least-once")
    sink = stream_writer(types.StructType([BODY]), given, False)
    parts = [write_rows(sink._wish, "", [table(["a"]), table(["b"])])]
    assert bodies(bus) == [b"a", b"b"]
    sink.commit(parts, 0)
    sink.abort(parts, 0)
    assert list(bus.server().topics) == ["out"]


def test_many_tasks_of_a_query_that_is_new(broker: BrokerProcess, bus: BlockingClient) -> None:
    """Each of them finds that nothing was staged before, and all have more than a turn takes."""
    wish = wish_of(broker, topic="out")
    batches = [table([f"{part}.{row}" for row in range(2_000)]) for part in range(4)]
    with ThreadPoolExecutor(4) as pool:
        parts = list(pool.map(lambda batch: write_rows(wish, "app", [batch]), batches))
    assert commit(bus, wish, "app", 0, parts) == 8_000


# -- what is refused ------------------------------------------------------------------------------

BODY = types.StructField("body", types.BinaryType())
TEXT = types.StructField("topic", types.StringType())


def options(broker: BrokerProcess | None = None, **more: str) -> dict[str, str]:
    port = 1 if broker is None else broker.port
    return {"broker": f"127.0.0.1:{port}", **more}


@pytest.mark.parametrize(
    ("fields", "given", "said"),
    [
        ([], {"topic": "t"}, "there must be a column body"),
        ([BODY], {}, "the option topic, or a column topic"),
        ([BODY, types.StructField("offset", types.LongType())], {"topic": "t"}, r"\.drop\(\"off"),
        ([BODY, types.StructField("color", types.LongType())], {"topic": "t"}, "has no color"),
        ([types.StructField("body", types.LongType())], {"topic": "t"}, "binary or string, and"),
        ([BODY, TEXT], {"tpoic": "t"}, r"no option tpoic; did you mean topic\?"),
        ([BODY, TEXT], {"path": "x"}, "no option path"),
        ([BODY, TEXT], {"delivery": "once"}, "exactly-once or at-least-once, not once"),
        ([BODY, TEXT], {"txnAppId": "a b"}, "1 to 100 letters"),
        ([BODY, TEXT], {"txnAppId": "a.rows"}, "not at the end .rows"),
        ([BODY, TEXT], {"txnVersion": "-1"}, "is not a number"),
        ([BODY, TEXT], {"txnAppId": "a", "delivery": "at-least-once"}, "for delivery=exactly-once"),
        ([BODY, TEXT], {"broker": ""}, "it is empty"),
    ],
)
def test_bad_sinks(fields: list[Any], given: dict[str, str], said: str) -> None:
    for make in (writer, stream_writer):
        with pytest.raises(Usage, match=said):
            make(types.StructType(fields), {**options(), **given}, False)


def test_more_that_is_refused() -> None:
    with pytest.raises(Usage, match="append-only"):
        writer(types.StructType([BODY]), options(topic="t"), True)
    with pytest.raises(Usage, match="missing option broker"):
        writer(types.StructType([BODY]), {"topic": "t"}, False)
    stream_writer(types.StructType([BODY]), options(topic="t", checkpointLocation="c"), False)
    absent = SinkWish(where=Where(broker="127.0.0.1:1", patience_s=0.2), topic="t")
    with pytest.raises(Unreachable, match="cannot be reached"):
        write_rows(absent, "app", [table(["a"])])


def test_a_wish_is_read() -> None:
    given = options(topic="t", txnAppId="a", txnVersion="3", tokenFile="f", TLSCA="c")
    where = Where(broker="127.0.0.1:1", token_file="f", tls_ca="c")
    assert read_sink_wish(given, False) == SinkWish(where=where, topic="t", app="a", version=3)
    with where.__class__(broker="127.0.0.1:1").client() as bus:
        assert bus is not None


def test_no_path_of_files(tmp_path: Path) -> None:
    with pytest.raises(Usage, match="no option path"):
        read_sink_wish({"path": str(tmp_path), "topic": "t"}, False)
