"""The column `value`: the body of a message, parsed as JSON into a type of Spark.

It is not among the columns that are read without asking. The type is that of the topic's JSON
Schema, or the one that a query's own schema gives it. A body that is not JSON of that type is null:
a topic may have messages from before its schema.

    integer            long           array of T       array<T>
    number             double         object           struct, of its properties
    boolean            boolean        object of T      map<string,T>, by additionalProperties
    date-time, date    timestamp, date
    string             string         anything else    string: its text as JSON

`null` among other types is left out, for every column may be null.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from typing import Any, Final, TypeAlias

import msgspec
import pyarrow as pa

from zbus.spark.errors import Usage
from zbus.spark.source.columns import VALUE

_PLAIN: Final = {"integer": "bigint", "number": "double", "boolean": "boolean"}
_FORMATS: Final = {"date-time": "timestamp", "date": "date"}
_PLAIN_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

Read: TypeAlias = "Callable[[Any], Any]"
"""A value of JSON as Arrow takes it; raises ValueError for one that is not of the type."""


def ddl_of(schema: Any) -> str:  # noqa: ANN401 - JSON
    """The type in the words of Spark. A schema of a topic refers neither to elsewhere nor to
    itself, and is nested at most 32 deep."""
    return _type_of(schema, schema)


def _type_of(document: Any, schema: Any) -> str:  # noqa: ANN401 - JSON
    schema = _resolved(document, schema)
    kinds = _kinds(schema)
    if kinds == ["object"]:
        return _object_of(document, schema)
    if kinds == ["array"]:
        items = schema.get("items", True)
        return f"array<{_type_of(document, {} if isinstance(items, list) else items)}>"
    if kinds == ["string"]:
        return _FORMATS.get(schema.get("format"), "string")
    if kinds and set(kinds) <= {"integer", "number"}:
        return _PLAIN["number" if "number" in kinds else "integer"]
    return _PLAIN.get(kinds[0], "string") if len(kinds) == 1 else "string"


def _object_of(document: Any, schema: dict[str, Any]) -> str:  # noqa: ANN401 - JSON
    fields = {name: _type_of(document, of) for name, of in schema.get("properties", {}).items()}
    if len({name.lower() for name in fields}) < len(fields):
        return "string"  # Spark does not tell them apart
    if fields:
        named = [f"{_quoted(name)}:{kind}" for name, kind in fields.items()]
        return f"struct<{','.join(named)}>"
    others = schema.get("additionalProperties")
    return f"map<string,{_type_of(document, others)}>" if isinstance(others, dict) else "string"


def _quoted(name: str) -> str:
    return name if _PLAIN_NAME.fullmatch(name) else f"`{name.replace('`', '``')}`"


def _kinds(schema: Any) -> list[str]:  # noqa: ANN401 - JSON
    """The types that a value may have, but null; none = any."""
    if not isinstance(schema, dict):
        return []
    named = schema.get("type", "object" if "properties" in schema else [])
    return [kind for kind in ([named] if isinstance(named, str) else named) if kind != "null"]


def _resolved(document: Any, schema: Any) -> Any:  # noqa: ANN401 - JSON
    """What a reference refers to; and of `anyOf` with null the other one."""
    while isinstance(schema, dict):
        branches = [each for each in schema.get("anyOf", ()) if each != {"type": "null"}]
        if "$ref" in schema:
            found = document
            for part in schema["$ref"].split("/")[1:]:
                name = part.replace("~1", "/").replace("~0", "~")
                found = found[int(name) if isinstance(found, list) else name]
            schema = found
        elif len(branches) == 1:
            schema = branches[0]
        else:
            break
    return schema


def with_value(batch: pa.RecordBatch, kind: pa.DataType, names: Sequence[str]) -> pa.RecordBatch:
    """These columns of a batch that has the bodies, `value` of this type among them."""
    read = reader_of(kind)
    values = [_value(read, body) for body in batch.column("body").to_pylist()]
    made = pa.array(values, kind)
    columns = [made if name == VALUE else batch.column(name) for name in names]
    fields = [pa.field(VALUE, kind) if n == VALUE else batch.schema.field(n) for n in names]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def _value(read: Read, body: bytes | None) -> Any:  # noqa: ANN401 - JSON
    try:
        return read(msgspec.json.decode(body or b""))
    except (ValueError, OverflowError, RecursionError):
        return None


def reader_of(kind: pa.DataType) -> Read:
    """Raises Usage for a type that is read of no JSON."""
    read = _reader_of(kind)
    return lambda value: None if value is None else read(value)


def _reader_of(kind: pa.DataType) -> Read:
    if pa.types.is_struct(kind):
        fields = {field.name: reader_of(field.type) for field in kind}
        return lambda value: {
            name: read(value[name]) for name, read in fields.items() if name in _a(dict, value)
        }
    if pa.types.is_list(kind):
        item = reader_of(kind.value_type)
        return lambda value: [item(each) for each in _a(list, value)]
    if pa.types.is_map(kind) and pa.types.is_string(kind.key_type):
        item = reader_of(kind.item_type)
        return lambda value: [(name, item(each)) for name, each in _a(dict, value).items()]
    if pa.types.is_string(kind):
        return _text
    if pa.types.is_boolean(kind):
        return lambda value: _a(bool, value)
    if pa.types.is_integer(kind):
        half = 1 << kind.bit_width - 1
        return lambda value: _within(half, _a(int, value))
    if pa.types.is_floating(kind):
        return lambda value: float(value if type(value) is int else _a(float, value))
    if pa.types.is_timestamp(kind):
        return lambda value: _moment(_a(str, value))
    if pa.types.is_date(kind):
        return lambda value: date.fromisoformat(_a(str, value))
    raise Usage(f"the column {VALUE} cannot have the type {kind}: say string, and cast it")


def _a(kind: type[Any], value: Any) -> Any:  # noqa: ANN401 - JSON
    if type(value) is not kind:
        raise ValueError(f"{value!r:.40} is no {kind.__name__}")
    return value


def _text(value: Any) -> str:  # noqa: ANN401 - JSON
    return value if type(value) is str else msgspec.json.encode(value).decode()


def _within(half: int, value: int) -> int:
    if not -half <= value < half:
        raise ValueError("out of range")
    return value


def _moment(text: str) -> datetime:
    found = datetime.fromisoformat(text)
    return found if found.tzinfo else found.replace(tzinfo=UTC)
