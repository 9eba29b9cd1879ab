"""The column `value`: types of JSON Schemas, what is read of bodies, and both in Spark."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.process.broker import BrokerProcess
from zbus.client import connect
from zbus.spark.errors import Usage
from zbus.spark.source.value import ddl_of, reader_of, with_value

pytestmark = pytest.mark.xdist_group("spark")


@pytest.mark.parametrize(
    ("schema", "ddl"),
    [
        ({"type": "integer"}, "bigint"),
        ({"type": ["number", "null"]}, "double"),
        ({"type": ["number", "integer"]}, "double"),
        ({"type": "boolean"}, "boolean"),
        ({"type": "string"}, "string"),
        ({"type": "string", "format": "date-time"}, "timestamp"),
        ({"type": "string", "format": "date"}, "date"),
        ({"type": "string", "format": "uuid"}, "string"),
        ({"enum": ["a", "b"]}, "string"),
        ({"type": ["string", "integer"]}, "string"),
        ({}, "string"),
        (True, "string"),
        (False, "string"),
        ({"type": "null"}, "string"),
        ({"type": "array", "items": {"type": "integer"}}, "array<bigint>"),
        ({"type": "array"}, "array<string>"),
        ({"type": "array", "items": [{"type": "integer"}]}, "array<string>"),
        ({"type": "object"}, "string"),
        ({"type": "object", "properties": {}}, "string"),
        (
            {"type": "object", "additionalProperties": {"type": "number"}},
            "map<string,double>",
        ),
        (
            {"properties": {"a": {"type": "integer"}, "b c": {"type": "string"}, "`": {}}},
            "struct<a:bigint,`b c`:string,````:string>",
        ),
        ({"properties": {"a": {}, "A": {}}}, "string"),
        (
            {"properties": {"a": {"$ref": "#/$defs/x~1y"}}, "$defs": {"x/y": {"type": "boolean"}}},
            "struct<a:boolean>",
        ),
        ({"anyOf": [{"type": "null"}, {"type": "integer"}]}, "bigint"),
        ({"anyOf": [{"type": "string"}, {"type": "integer"}]}, "string"),
    ],
)
def test_types(schema: Any, ddl: str) -> None:
    assert ddl_of(schema) == ddl


ORDER = pa.struct([pa.field("item", pa.string()), pa.field("price", pa.float64())])


@pytest.mark.parametrize(
    ("kind", "body", "value"),
    [
        (pa.int64(), b"7", 7),
        (pa.int64(), b"null", None),
        (pa.int64(), b"7.5", None),
        (pa.int64(), b"true", None),
        (pa.int64(), b"9223372036854775808", None),
        (pa.int8(), b"200", None),
        (pa.float64(), b"7", 7.0),
        (pa.float64(), b"1" + b"0" * 400, None),
        (pa.bool_(), b"true", True),
        (pa.bool_(), b"1", None),
        (pa.string(), b'"a"', "a"),
        (pa.string(), b'{"a":[1]}', '{"a":[1]}'),
        (pa.timestamp("us", "UTC"), b'"2026-01-02T03:04:05Z"', datetime(2026, 1, 2, 3, 4, 5)),
        (pa.timestamp("us", "UTC"), b'"2026-01-02T03:04:05+01:00"', datetime(2026, 1, 2, 2, 4, 5)),
        (pa.timestamp("us", "UTC"), b'"soon"', None),
        (pa.date32(), b'"2026-01-02"', date(2026, 1, 2)),
        (pa.date32(), b'"2026-13-02"', None),
        (pa.list_(pa.int64()), b"[1,null]", [1, None]),
        (pa.list_(pa.int64()), b'[1,"2"]', None),
        (pa.map_(pa.string(), pa.int64()), b'{"a":1}', [("a", 1)]),
        (ORDER, b'{"item":"chair","price":2,"more":[]}', {"item": "chair", "price": 2.0}),
        (ORDER, b'{"price":null}', {"item": None, "price": None}),
        (ORDER, b'{"item":"chair","price":"2"}', None),
        (ORDER, b"[]", None),
        (ORDER, b"", None),
        (ORDER, b"two chairs", None),
        (ORDER, b"\xff", None),
        (ORDER, b"[" * 100_000, None),
    ],
)
def test_bodies(kind: pa.DataType, body: bytes, value: Any) -> None:
    batch = pa.RecordBatch.from_pydict({"offset": [3], "body": [body]})
    found = with_value(batch, kind, ["value", "offset"])
    assert found.schema.names == ["value", "offset"]
    if isinstance(value, datetime):
        value = value.replace(tzinfo=UTC)
    assert found.to_pylist() == [{"value": value, "offset": 3}]


@pytest.mark.parametrize("kind", [pa.binary(), pa.decimal128(9, 2), pa.list_(pa.binary())])
def test_types_that_are_read_of_no_json(kind: pa.DataType) -> None:
    with pytest.raises(Usage, match="say string"):
        reader_of(kind)


SCHEMA = {
    "type": "object",
    "required": ["item", "price"],
    "properties": {
        "item": {"type": "string"},
        "price": {"type": "number"},
        "made": {"type": "string", "format": "date-time"},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with BrokerProcess(tmp_path_factory.mktemp("value") / "data") as broker:
        url = f"127.0.0.1:{broker.port}"
        with connect(url) as bus:
            bus.declare("orders")
            bus.produce("orders", b"from before")
            bus.declare("orders", schema=SCHEMA)
            for price in (1, 2.5):
                bus.produce("orders", b'{"item":"chair","price":%a,"tags":["a"]}' % price)
            bus.produce("orders", b'{"item":"x","price":4,"made":"2026-01-02T03:04:05Z"}')
            bus.declare("plain")
        yield url


def test_a_topic_with_a_schema_is_a_table_with_types(spark: Any, place: str) -> None:
    source = spark.read.format("zbus").option("broker", place).option("topic", "orders")
    rows = source.option("columns", "offset,value").load()
    assert rows.dtypes == [
        ("offset", "bigint"),
        ("value", "struct<item:string,price:double,made:timestamp,tags:array<string>>"),
    ]
    rows.createOrReplaceTempView("typed")
    text = "SELECT value.item, sum(value.price), max(value.made) FROM typed GROUP BY 1 ORDER BY 1"
    found = [tuple(row) for row in spark.sql(text).collect()]
    assert found[:2] == [(None, None, None), ("chair", 3.5, None)]
    assert found[2][:2] == ("x", 4.0)
    assert spark.sql("SELECT offset FROM typed WHERE value IS NULL").collect() == [(0,)]


def test_a_type_of_ones_own_and_a_stream(spark: Any, place: str, tmp_path: Path) -> None:
    source = spark.readStream.format("zbus").schema("value struct<price:double>, offset long")
    source = source.option("broker", place).option("topic", "orders")
    writer = source.option("startingOffsets", "earliest").load().writeStream.format("parquet")
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
    writer.trigger(availableNow=True).start(str(tmp_path / "rows")).awaitTermination()
    rows = spark.read.parquet(str(tmp_path / "rows")).sort("offset")
    assert [row.value and row.value.price for row in rows.collect()] == [None, 1.0, 2.5, 4.0]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"topic": "plain"}, "Topic(plain) has no schema"),
        ({"topics": "orders,plain"}, "is that of one topic's schema"),
    ],
)
def test_where_no_type_is_known(spark: Any, place: str, options: dict[str, str], text: str) -> None:
    source = spark.read.format("zbus").option("broker", place).options(**options)
    with pytest.raises(Exception, match="schema") as caught:
        source.option("columns", "value").load()
    assert text in str(caught.value)
