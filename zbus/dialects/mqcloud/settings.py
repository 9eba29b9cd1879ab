"""Options of the MQCloud dialect."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import attrs

from zbus.option import number, option

PULL_SIZE_MAX = 128
CONSUME_TIMEOUT_MS_MIN, CONSUME_TIMEOUT_MS_MAX = 10_000, 129_600_000

_NAME = r"[^\s,=:/\\]+"
_PRODUCERS = rf"^\s*(?:{_NAME}={_NAME}\s*)?(?:,\s*{_NAME}={_NAME}\s*)*\Z"
_CONSUMER = rf"{_NAME}={_NAME}(?::broadcast)?"
_CONSUMERS = rf"^\s*(?:{_CONSUMER}\s*)?(?:,\s*{_CONSUMER}\s*)*\Z"


@attrs.frozen(slots=False, kw_only=True)
class MqcloudOptions:
    """The dialect of MQCloud."""

    mqcloud_producers: str = option(
        "",
        "Producers that the MQCloud dialect knows from the start, separated by commas: "
        "`orders-producer=orders`.",
        _PRODUCERS,
        "{item!r} is not of the form producer=topic",
    )
    mqcloud_consumers: str = option(
        "",
        "Consumers, likewise: `billing=orders`, or `screens=orders:broadcast`.",
        _CONSUMERS,
        "{item!r} is not of the form consumer=topic or consumer=topic:broadcast",
    )
    mqcloud_auto_register: bool = option(
        False,
        "Whether an unknown producer `<topic>-producer`, or an unknown consumer of a topic, is "
        "registered by its first request. For trying things out.",
    )
    mqcloud_first: Literal["earliest", "latest"] = option(
        "earliest",
        "Where a consumer, or a client of a broadcast consumer, starts that is registered without "
        "`first`.",
    )
    mqcloud_queues: int = number(
        8, 1, 65_535, "Queues (partitions) of a topic that comes into being by a registration."
    )
    mqcloud_pull_size: int = number(
        32, 1, PULL_SIZE_MAX, "Messages in one answer, for a consumer that has no setting."
    )
    mqcloud_consume_timeout_ms: int = number(
        300_000,
        CONSUME_TIMEOUT_MS_MIN,
        CONSUME_TIMEOUT_MS_MAX,
        "Lease time of a batch, for a consumer that has no setting; then it is redelivered.",
    )
    mqcloud_limit_rate: int = number(
        1_024,
        1,
        1_000_000_000,
        "Messages delivered to a consumer in a second, for one that has no setting.",
    )
    mqcloud_clients_max: int = number(
        100, 1, 65_535, "Clients of one broadcast consumer; each has a group of its own."
    )


@attrs.frozen(slots=False, kw_only=True)
class MqcloudSettings(MqcloudOptions):
    """The options, and what only a running server knows."""

    # Declared by others.
    durability: str = "disk"
    partitions_max: int = 64
    address: str = "127.0.0.1:15555"  # where clients reach this broker: host:port
    # Whether a topic of this name is kept here: each of several workers has some.
    keeps: Callable[[str], bool] = attrs.field(default=lambda topic: True)
