"""Options of a source: those of `spark.read.format("zbus")`, checked.

Names are those of Spark's Kafka source where it has them; letters' case does not matter. What is
unknown, missing or contradictory is refused at planning, with the option's name in the text.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

import attrs
import msgspec

from zbus.spark.errors import Usage
from zbus.spark.source.columns import NAMES
from zbus.spark.source.location import Where
from zbus.units import parse_bytes, parse_ms

EARLIEST: Final = -2
LATEST: Final = -1
"""As Kafka's source writes them in a map of offsets."""

SPLIT_BYTES: Final = 128 << 20
_COUNT_MAX: Final = 1 << 62

Place = int | dict[str, Any] | datetime
"""Where a range begins or ends: `EARLIEST`, `LATEST`, offsets by topic, or a time."""


@attrs.frozen(kw_only=True)
class Wish:
    """What is to be read. It travels to other machines."""

    where: Where
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    start: Place | None = None
    end: Place = LATEST
    start_strict: bool = False  # nothing at or after the time to start at is an error
    fail_on_data_loss: bool = True
    tags: frozenset[str] = frozenset()
    columns: tuple[str, ...] = NAMES
    split_bytes: int = SPLIT_BYTES
    partitions_min: int = 0
    records_max: int | None = None  # of a task
    trigger_rows_max: int | None = None
    trigger_bytes_max: int | None = None
    trigger_rows_min: int | None = None
    trigger_delay_ms: int = 900_000
    in_step_ms: int | None = None  # the delay of a watermark
    group: str | None = None
    name: str | None = None  # of the query


@attrs.frozen(kw_only=True)
class SinkWish:
    """Where rows are to be written, and how. It travels to other machines."""

    where: Where
    topic: str | None = None  # of all rows; else there is a column topic
    exactly_once: bool = True
    app: str | None = None  # who writes, in the broker's books; by default the query
    version: int = 0  # of a table that an application writes


def read_wish(options: Mapping[str, str]) -> Wish:
    """Of a source's options. Raises Usage."""
    where, values = _read(options, OPTIONS)
    topic = values.pop("topic", None)
    if topic is not None:
        if "topics" in values:
            raise Usage("say one of topic, topics and topicsPattern")
        values["topics"] = topic
    if ("topics" in values) == ("pattern" in values):
        raise Usage("missing source: one of topic, topics and topicsPattern")
    wish = Wish(where=where, **values)
    if (where.broker is None) == (where.path is None):
        raise Usage("set either broker (host:port) or path (a data directory or a backup of one)")
    if wish.group is not None and where.broker is None:
        raise Usage("option group: only a broker has consumer groups, and path is read without one")
    return wish


def read_table_wish(options: Mapping[str, str]) -> Wish:
    """Of a source that is read as a table. Raises Usage."""
    _refuse(options, OF_STREAMS, "is of streams, and this is a table")
    return read_wish(options)


def read_stream_wish(options: Mapping[str, str]) -> Wish:
    """Of a source that is read as a stream. Raises Usage."""
    _refuse(options, OF_TABLES, "is of tables: a stream has no end")
    return read_wish(options)


def _refuse(options: Mapping[str, str], names: Iterable[str], why: str) -> None:
    given = {name.lower() for name in options}
    for name in names:
        if name.lower() in given:
            raise Usage(f"the option {name} {why}")


def read_sink_wish(options: Mapping[str, str], overwrite: bool) -> SinkWish:
    """Of a sink's options. Raises Usage."""
    if overwrite:
        raise Usage('a topic is append-only: use .mode("append")')
    # Spark gives a sink what belongs to itself, too.
    own = {name: value for name, value in options.items() if name.lower() not in _OF_SPARK}
    where, values = _read(own, SINK_OPTIONS)
    if where.broker is None:
        raise Usage("missing option broker (host:port)")
    wish = SinkWish(where=where, **values)
    if not wish.exactly_once and wish.app is not None:
        raise Usage("txnAppId is for delivery=exactly-once: nothing is committed otherwise")
    return wish


def _read(
    options: Mapping[str, str], table: Mapping[str, tuple[str, Callable[[str], Any]]]
) -> tuple[Where, dict[str, Any]]:
    """Where, and the other values by field. Raises Usage for what is unknown or said twice."""
    known = {name.lower(): each for name, each in table.items()}
    values: dict[str, Any] = {}
    where: dict[str, Any] = {}
    for name, text in options.items():
        found = known.get(name.lower())
        if found is None:
            raise Usage(f"there is no option {name}{_nearest(name.lower(), table)}")
        field, read = found
        try:
            value = read(text)
        except (ValueError, msgspec.DecodeError) as error:
            raise Usage(f"option {name}: {error}") from error
        if field in _WHERE:
            where[field] = value
        elif field in values:
            spellings = " and ".join(each for each, (other, _) in table.items() if other == field)
            raise Usage(f"option {name} contradicts another: say one of {spellings}")
        else:
            values[field] = value
    return Where(**where), values


def _nearest(lower: str, table: Iterable[str]) -> str:
    spelled = {name.lower(): name for name in table}
    near = difflib.get_close_matches(lower, spelled, 1)
    return f"; {spelled[near[0]]} is meant?" if near else f"; there are {', '.join(table)}"


# -- values ---------------------------------------------------------------------------------------


def _text(value: str) -> str:
    if not value:
        raise ValueError("it is empty")
    return value


def _one(value: str) -> tuple[str, ...]:
    return (_text(value),)


def _list(value: str) -> tuple[str, ...]:
    found: tuple[str, ...] = ()
    if value.startswith("["):
        try:
            found = tuple(msgspec.json.decode(value, type=list[str]))
        except msgspec.MsgspecError:
            pass  # a name may begin like that
    found = found or tuple(word for word in (part.strip() for part in value.split(",")) if word)
    if not found or len(set(found)) < len(found):
        raise ValueError("it is a list with commas, of different names")
    return found


def _columns(value: str) -> tuple[str, ...]:
    found = _list(value)
    for name in found:
        if name not in NAMES:
            raise ValueError(f"there is no column {name}; there are {', '.join(NAMES)}")
    return found


def _pattern(value: str) -> str:
    try:
        re.compile(value)
    except re.error as error:
        raise ValueError(f"it is not a regular expression: {error}") from error
    return value


def _flag(value: str) -> bool:
    if value.lower() not in ("true", "false"):
        raise ValueError(f"it is true or false, not {value}")
    return value.lower() == "true"


def _number(least: int) -> Callable[[str], int]:
    def read(value: str) -> int:
        if not (value.isascii() and value.isdecimal() and len(value) < 19):
            raise ValueError(f"{value[:40]} is not a number")
        if not least <= int(value) <= _COUNT_MAX:
            raise ValueError(f"{value} is less than {least}")
        return int(value)

    return read


def _duration_ms(value: str) -> int:
    found = parse_ms(value)
    if found is None or not 0 < found < 1 << 40:
        raise ValueError(f"{value[:40]} is not a duration; for instance 200ms, 30s, 15m")
    return found


def _size_bytes(value: str) -> int:
    found = parse_bytes(value)
    if found is None or not 0 < found < 1 << 50:
        raise ValueError(f"{value[:40]} is not a size; for instance 134217728, 128 MiB")
    return found


def _tags(value: str) -> frozenset[str]:
    return frozenset(_text(part.strip()) for part in value.split("||"))


def _offsets(value: str) -> Place:
    if value in ("earliest", "latest"):
        return EARLIEST if value == "earliest" else LATEST
    found = msgspec.json.decode(value) if value.startswith("{") else None
    if not isinstance(found, dict) or not found:
        raise ValueError('it is earliest, latest or offsets by topic: {"orders": 120}')
    for topic, offset in found.items():
        each = list(offset.values()) if isinstance(offset, dict) else [offset]
        if not each or any(type(one) is not int or one < EARLIEST for one in each):
            raise ValueError(f"{topic}: an offset is a number; -2 is the oldest, -1 the end")
    return found


def _time(value: str) -> datetime:
    if value.isascii() and value.isdecimal() and len(value) < 16:
        return datetime.fromtimestamp(int(value) / 1_000, UTC)
    try:
        found = datetime.fromisoformat(value)
    except ValueError:
        text = "it is a time (2026-11-23T12:00:00+00:00) or epoch milliseconds"
        raise ValueError(text) from None
    return found.replace(tzinfo=found.tzinfo or UTC)


def _strategy(value: str) -> bool:
    if value.lower() not in ("latest", "error"):
        raise ValueError(f"it is latest or error, not {value}")
    return value.lower() == "error"


def _delivery(value: str) -> bool:
    if value.lower() not in ("exactly-once", "at-least-once"):
        raise ValueError(f"it is exactly-once or at-least-once, not {value[:40]}")
    return value.lower() == "exactly-once"


def _app(value: str) -> str:
    if _APP.fullmatch(value) is None or value.lower().endswith(".rows"):
        raise ValueError("it is 1 to 100 letters, digits, dots, _ and -, and not at the end .rows")
    return value


_APP: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")

_PLACES: Final[dict[str, tuple[str, Callable[[str], Any]]]] = {
    "broker": ("broker", _text),
    "tokenFile": ("token_file", _text),
    "tlsCa": ("tls_ca", _text),
    "patience": ("patience_s", lambda value: _duration_ms(value) / 1_000),
}
OPTIONS: Final[dict[str, tuple[str, Callable[[str], Any]]]] = {
    **_PLACES,
    "path": ("path", _text),
    "topic": ("topic", _one),
    "topics": ("topics", _list),
    "topicsPattern": ("pattern", _pattern),
    "startingOffsets": ("start", _offsets),
    "startingTimestamp": ("start", _time),
    "startingTimestampStrategy": ("start_strict", _strategy),
    "endingOffsets": ("end", _offsets),
    "endingTimestamp": ("end", _time),
    "failOnDataLoss": ("fail_on_data_loss", _flag),
    "tags": ("tags", _tags),
    "columns": ("columns", _columns),
    "splitBytes": ("split_bytes", _size_bytes),
    "minPartitions": ("partitions_min", _number(1)),
    "maxRecordsPerPartition": ("records_max", _number(1)),
    "maxOffsetsPerTrigger": ("trigger_rows_max", _number(1)),
    "maxBytesPerTrigger": ("trigger_bytes_max", _size_bytes),
    "minOffsetsPerTrigger": ("trigger_rows_min", _number(1)),
    "maxTriggerDelay": ("trigger_delay_ms", _duration_ms),
    "inStep": ("in_step_ms", _duration_ms),
    "group": ("group", _text),
    "queryName": ("name", _text),
}
"""By name: the field of `Wish` or `Where`, and how its text is read."""

OF_TABLES: Final = ("endingOffsets", "endingTimestamp")
OF_STREAMS: Final = (
    "maxOffsetsPerTrigger",
    "maxBytesPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "inStep",
    "group",
    "queryName",
)

SINK_OPTIONS: Final[dict[str, tuple[str, Callable[[str], Any]]]] = {
    **_PLACES,
    "topic": ("topic", _text),
    "delivery": ("exactly_once", _delivery),
    "txnAppId": ("app", _app),
    "txnVersion": ("version", _number(0)),
}
"""The same for a sink, and `SinkWish`."""

_OF_SPARK: Final = frozenset(("checkpointlocation", "queryname", "outputmode"))
_WHERE: Final = frozenset(("broker", "path", "token_file", "tls_ca", "patience_s"))
