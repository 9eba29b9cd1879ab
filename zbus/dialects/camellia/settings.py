"""Options of the camellia dialect."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from zbus.core.api import DELAY_MS_MAX
from zbus.option import number

_HOUR_MS = 3_600_000
_DAY_MS = 24 * _HOUR_MS


@attrs.frozen(slots=False, kw_only=True)
class CamelliaOptions:
    """The dialect of camellia."""

    camellia_ttl_ms: int = number(
        _HOUR_MS,
        1,
        DELAY_MS_MAX,
        "How long a message of the camellia dialect can be consumed after it is due, if its "
        "producer sets no time.",
    )
    camellia_max_retry: int = number(
        10, 0, 999_999, "Redeliveries of a message whose producer sets no limit."
    )
    camellia_ack_timeout_ms: int = number(
        30_000, 1, _DAY_MS, "Lease time of a pull without ackTimeoutMillis."
    )
    camellia_ended_ms: int = number(
        300_000, 0, _DAY_MS, "How long `getMsg` shows a message after its end."
    )
    camellia_batch: int = number(1, 1, 10_000, "Messages of a camellia pull that names no `batch`.")
    camellia_poll_timeout_ms: int = number(
        10_000, 1, _HOUR_MS, "Longest wait of a camellia long poll that names none."
    )
    camellia_monitor_ms: int = number(
        60_000, 100, _DAY_MS, "Length of the windows in which camellia's monitor data are counted."
    )
    camellia_idle_ms: int = number(
        1_800_000,
        0,
        _DAY_MS,
        "Camellia: an empty topic leaves the list after this long without use.",
    )


@attrs.frozen(slots=False, kw_only=True)
class CamelliaSettings(CamelliaOptions):
    """The options, and what only a running server knows."""

    # Declared by the zbus dialect, and by the loop.
    durability: str = "disk"
    tickets_per_connection_max: int = 1_024
    # Resident bytes of the process, if the system tells.
    memory_used: Callable[[], int | None] | None = None
    cpu_count: int = 1
    version: str = "0"
