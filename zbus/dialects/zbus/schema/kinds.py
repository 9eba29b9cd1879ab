"""Kinds of parameters: what their values may be, and how large.

Names, defaults and meanings are in `zbus.protocol.parameters`.
"""

from __future__ import annotations

import enum
from typing import TypeAlias, get_args

import attrs

from zbus.core.api import (
    ATTEMPTS_MAX,
    CRON_BYTES_MAX,
    DELAY_MS_MAX,
    DURABILITIES,
    FILTER_BYTES_MAX,
    LOSSES,
    PRIORITY_MAX,
    RATE_MAX,
    SCAN_MAX,
    SCHEMA_COMPATIBILITIES,
    ZONE_BYTES_MAX,
)
from zbus.core.api import LISTED_STATES as STATES
from zbus.core.api import PUSH_CONCURRENCY_MAX as CONCURRENCY_MAX
from zbus.core.api import PUSH_ENDPOINT_BYTES_MAX as ENDPOINT_BYTES_MAX
from zbus.core.api import PUSH_SECRET_BYTES_MAX as SECRET_BYTES_MAX
from zbus.core.api import PUSH_TIMEOUT_MS_MAX as TIMEOUT_MS_MAX
from zbus.core.api import PUSH_TIMEOUT_MS_MIN as TIMEOUT_MS_MIN
from zbus.protocol.documents import Order, Span
from zbus.protocol.parameters import STATS_INTERVAL_MS_MIN

NUMBER_MAX = (1 << 63) - 1
MASK_MAX = (1 << 31) - 1
WINDOW_MAX = 10_000
ACK_WINDOW_MAX = 1_000_000
ID_BYTES_MAX = 39
TAG_BYTES_MAX = 127
KEY_BYTES_MAX = 1_024
IDEMPOTENCY_KEY_BYTES_MAX = 255
READ_BYTES_MAX = 16 << 20
HEALTH_CHECKS = ("live", "ready", "all")
STATS_INTERVAL_MS_MAX = 60_000
LISTED_COUNT_MAX = 1_000
SEARCHED_BYTES_MAX = 1_024
GROUP_ORDERS = get_args(Order)
TEN_YEARS_AHEAD = "ten years ahead"


@attrs.frozen
class Number:
    """Decimal digits. What is bounded by an option, or by the time, names that."""

    maximum: int | str = NUMBER_MAX
    minimum: int = 0
    none: bool = False  # or the word `none`, which takes back what was said; then 0 is refused


@attrs.frozen
class Text:
    """Text of at most that many bytes; 0 = as many as a header has."""

    bytes_max: int = 0


@attrs.frozen
class Flag:
    """`1` and `true` are yes, anything else is no: no value is refused."""

    default: bool = False


@attrs.frozen
class Switch:
    """`1` and `true`, or `0` and `false`; none is as if it were absent."""


@attrs.frozen
class Duration:
    """Milliseconds, or a number with a unit: `30s`, `5m` (`zbus.units`)."""

    maximum_ms: int
    minimum_ms: int = 0


@attrs.frozen
class Size:
    """Bytes, or a number with a unit: `64KiB`, `1GiB` (`zbus.units`)."""

    maximum_bytes: int = NUMBER_MAX


@attrs.frozen
class Time:
    """Epoch milliseconds, or ISO 8601 (`zbus.units`)."""

    maximum: int | str = NUMBER_MAX


@attrs.frozen
class Word:
    """One of these; none = the name of a command."""

    values: tuple[str, ...] = ()


class Form(enum.Enum):
    """Text of a form of its own."""

    NAME = enum.auto()  # of a topic
    OFFSETS = enum.auto()  # numbers and ranges of them, at most `OFFSETS_MAX` in all
    IDEMPOTENCY_KEY = enum.auto()
    PAUSES = enum.auto()  # one duration, or two with a comma between, or `none`
    START = enum.auto()  # a place in a log (`zbus.dialects.zbus.request.positions`)
    APPLICATION = enum.auto()  # that commits batches


Kind: TypeAlias = "Number | Text | Flag | Switch | Duration | Size | Time | Word | Form"

KINDS: dict[str, Kind] = {
    "name": Form.NAME,
    "offsets": Form.OFFSETS,
    "idempotency key": Form.IDEMPOTENCY_KEY,
    "application": Form.APPLICATION,
    "many offsets": Text(),
    "flag": Flag(),
    "flag, true": Flag(default=True),
    "switch": Switch(),
    "start": Form.START,
    "lease": Duration(MASK_MAX),
    "own lease": Duration(MASK_MAX, minimum_ms=1),
    "cron": Text(CRON_BYTES_MAX),
    "zone": Text(ZONE_BYTES_MAX),
    "push concurrency": Number(CONCURRENCY_MAX, minimum=1),
    "push timeout": Duration(TIMEOUT_MS_MAX, TIMEOUT_MS_MIN),
    "push url": Text(ENDPOINT_BYTES_MAX),
    "push secret": Text(SECRET_BYTES_MAX),
    "number": Number(),
    "duration": Duration(DELAY_MS_MAX),
    "lifetime": Duration(DELAY_MS_MAX),
    "time": Time(),
    "time to come": Time(TEN_YEARS_AHEAD),
    "mask": Number(MASK_MAX),
    "priority": Number(PRIORITY_MAX),
    "attempts": Number(ATTEMPTS_MAX, minimum=1, none=True),
    "rate": Number(RATE_MAX, minimum=1, none=True),
    "pauses": Form.PAUSES,
    "lost leases": Word(LOSSES),
    "ack window": Number(ACK_WINDOW_MAX),
    "consume window": Number(WINDOW_MAX),
    "batch": Number("batch_messages_max", minimum=1),
    "count": Number("batch_messages_max"),
    "bytes": Size(READ_BYTES_MAX),
    "size": Size(),
    "partitions": Number("partitions_max", minimum=1),
    "text": Text(),
    "id": Text(ID_BYTES_MAX),
    "tag": Text(TAG_BYTES_MAX),
    "key": Text(KEY_BYTES_MAX),
    "filter": Text(FILTER_BYTES_MAX),
    "durability": Word(DURABILITIES),
    "searched text": Text(SEARCHED_BYTES_MAX),
    "scan count": Number(SCAN_MAX, minimum=1),
    "listed state": Word(tuple(STATES)),
    "listed count": Number(LISTED_COUNT_MAX, minimum=1),
    "health check": Word(HEALTH_CHECKS),
    "span": Word(get_args(Span)),
    "interval": Duration(STATS_INTERVAL_MS_MAX, STATS_INTERVAL_MS_MIN),
    "order": Word(GROUP_ORDERS),
    "key order": Word(GROUP_ORDERS[:2]),
    "json": Word(("json",)),
    "compatibility": Word(SCHEMA_COMPATIBILITIES),
    "command": Word(),
}
