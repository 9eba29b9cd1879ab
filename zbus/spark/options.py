"""Options of a source: those of `spark.read.format("zbus")`, checked.

Names are those of Spark's Kafka source where it has them; letters' case does not matter. What is
unknown, missing or contradictory is refused at planning, with the option's name in the text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

import attrs
import msgspec

from zbus.protocol.nearest import did_you_mean
from zbus.spark.errors import Usage
from zbus.spark.source.columns import NAMES, VALUE
from zbus.spark.source.location import Where
from zbus.units import parse_bytes, parse_ms

EARLIEST: Final = -2
LATEST: Final = -1
"""As Kafka's source writes them in a map of offsets."""

SPLIT_BYTES: Final = 128 << 20
_COUNT_MAX: Final = 1 << 62

Place = int | dict[str, Any] | datetime
"""Where a range begins or ends: `EARLIEST`, `LATEST`, offsets by topic, or a time."""

Read = Callable[[str], Any]
"""A text as a value. Raises ValueError, which says what it should be."""

Options = dict[str, tuple[str, Read]]


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
        if name not in (*NAMES, VALUE):
            raise ValueError(f"there is no column {name}; there are {', '.join(NAMES)}, {VALUE}")
    return found


def _pattern(value: str) -> str:
    try:
        re.compile(value)
    except re.error as error:
        raise ValueError(f"it is not a regular expression: {error}") from error
    return value


def _choice(**values: bool) -> Read:
    """A word of these; what is said with `-` is written with `_` here."""
    known = {name.replace("_", "-"): value for name, value in values.items()}

    def read(value: str) -> bool:
        if value.lower() not in known:
            raise ValueError(f"it is {' or '.join(known)}, not {value[:40]}")
        return known[value.lower()]

    return read


def _number(least: int) -> Read:
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


def _duration_s(value: str) -> float:
    return _duration_ms(value) / 1_000


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


def _app(value: str) -> str:
    if _APP.fullmatch(value) is None or value.lower().endswith(".rows"):
        raise ValueError("it is 1 to 100 letters, digits, dots, _ and -, and not at the end .rows")
    return value


_APP: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


# -- what they are --------------------------------------------------------------------------------

_READERS: Final = "options"
"""Where the metadata of a field has the names of its options, and how the text of each is read."""


def _given(default: Any = attrs.NOTHING, **readers: Read) -> Any:  # noqa: ANN401 - as attrs.field
    """A field that these options of Spark may set; only one of them."""
    return attrs.field(default=default, metadata={_READERS: readers})


@attrs.frozen(kw_only=True)
class Wish:
    """What is to be read. It travels to other machines."""

    where: Where
    topics: tuple[str, ...] = _given((), topic=_one, topics=_list)
    pattern: str | None = _given(None, topicsPattern=_pattern)
    start: Place | None = _given(None, startingOffsets=_offsets, startingTimestamp=_time)
    end: Place = _given(LATEST, endingOffsets=_offsets, endingTimestamp=_time)
    start_strict: bool = _given(False, startingTimestampStrategy=_choice(latest=False, error=True))
    """Nothing at or after the time to start at is an error."""
    fail_on_data_loss: bool = _given(True, failOnDataLoss=_choice(true=True, false=False))
    tags: frozenset[str] = _given(frozenset(), tags=_tags)
    columns: tuple[str, ...] = _given(NAMES, columns=_columns)
    value: Any = None
    """Of Arrow: the type of the column `value`, when the query is planned that reads it."""
    split_bytes: int = _given(SPLIT_BYTES, splitBytes=_size_bytes)
    partitions_min: int = _given(0, minPartitions=_number(1))
    records_max: int | None = _given(None, maxRecordsPerPartition=_number(1))  # of a task
    trigger_rows_max: int | None = _given(None, maxOffsetsPerTrigger=_number(1))
    trigger_bytes_max: int | None = _given(None, maxBytesPerTrigger=_size_bytes)
    trigger_rows_min: int | None = _given(None, minOffsetsPerTrigger=_number(1))
    trigger_delay_ms: int = _given(900_000, maxTriggerDelay=_duration_ms)
    in_step_ms: int | None = _given(None, inStep=_duration_ms)  # the delay of a watermark
    group: str | None = _given(None, group=_text)
    name: str | None = _given(None, queryName=_text)


@attrs.frozen(kw_only=True)
class SinkWish:
    """Where rows are to be written, and how. It travels to other machines."""

    where: Where
    topic: str | None = _given(None, topic=_text)  # of all rows; else there is a column topic
    exactly_once: bool = _given(True, delivery=_choice(exactly_once=True, at_least_once=False))
    app: str | None = _given(None, txnAppId=_app)
    """Who writes, in the broker's books; by default the query."""
    version: int = _given(0, txnVersion=_number(0))  # of a table that an application writes


_PLACES: Final[Options] = {
    "broker": ("broker", _text),
    "tokenFile": ("token_file", _text),
    "tlsCa": ("tls_ca", _text),
    "patience": ("patience_s", _duration_s),
}


def _options_of(kind: type[Any]) -> Options:
    fields = [(each.name, each.metadata.get(_READERS, {})) for each in attrs.fields(kind)]
    return {name: (field, read) for field, readers in fields for name, read in readers.items()}


OPTIONS: Final = {**_PLACES, "path": ("path", _text), **_options_of(Wish)}
"""Of a source, by name: the field of `Wish` or `Where`, and how its text is read."""

SINK_OPTIONS: Final = {**_PLACES, **_options_of(SinkWish)}
"""The same for a sink, and `SinkWish`."""

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
_OF_SPARK: Final = frozenset(("checkpointlocation", "queryname", "outputmode"))
_WHERE: Final = frozenset(each.name for each in attrs.fields(Where))


# -- reading them ---------------------------------------------------------------------------------


def read_wish(options: Mapping[str, str]) -> Wish:
    """Of a source's options. Raises Usage."""
    sources = {"topic", "topics", "topicspattern"}.intersection(map(str.lower, options))
    if len(sources) > 1:
        raise Usage("say one of topic, topics and topicsPattern")
    where, values = _read(options, OPTIONS)
    if not sources:
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


def _read(options: Mapping[str, str], table: Options) -> tuple[Where, dict[str, Any]]:
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
    return did_you_mean(lower, spelled) or f"; there are {', '.join(table)}"
