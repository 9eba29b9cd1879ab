"""The columns of a message as Spark and Arrow see it (specification of the pipeline, 4.3).

All may be null. `timestamp` is when the broker stored the message, `deliver_at` when it is due, if
it was delayed. Names in `headers` are in lower case; what is not UTF-8 is taken
for Latin-1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa

NAMES: Final = (
    "topic",
    "partition",
    "offset",
    "timestamp",
    "id",
    "tag",
    "key",
    "headers",
    "body",
    "deliver_at",
)

VALUE: Final = "value"
"""Only there if it is asked for (`zbus.spark.source.value`)."""

_TIME: Final = pa.timestamp("us", tz="UTC")
_ARROW: Final = {
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": _TIME,
    "id": pa.string(),
    "tag": pa.string(),
    "key": pa.string(),
    "headers": pa.map_(pa.string(), pa.string()),
    "body": pa.binary(),
    "deliver_at": _TIME,
}

_SPARK: Final = {
    "partition": "int",
    "offset": "long",
    "timestamp": "timestamp",
    "headers": "map<string,string>",
    "body": "binary",
    "deliver_at": "timestamp",
}

TYPES: Final = {name: _SPARK.get(name, "string") for name in NAMES}
"""Of Spark, as in DDL."""

DDL: Final = ", ".join(f"{name} {TYPES[name]}" for name in NAMES)


def arrow_schema(names: Sequence[str] = NAMES) -> pa.Schema:
    """Of these columns, in this order."""
    return pa.schema([pa.field(name, _ARROW[name]) for name in names])
