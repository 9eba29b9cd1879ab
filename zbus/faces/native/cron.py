"""When a schedule is due: expressions as cron has them, in a time zone.

The parser is `cronsim`'s: five fields, or six with seconds first, and what Debian's cron knows.
Where clocks are put forward, a time that is skipped comes right after; where they are put back,
one that is there twice comes once.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, tzinfo
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from zbus.core.schedules import CRON_BYTES_MAX, ZONE_BYTES_MAX

_ZONE = re.compile(r"[0-9A-Za-z_+-]{1,32}(/[0-9A-Za-z_+-]{1,32}){0,2}\Z")  # so it is no path


@lru_cache(maxsize=256)
def zone_of(name: str) -> tzinfo | None:
    """A time zone by its IANA name, such as `Europe/Berlin`; None if there is none."""
    if len(name) > ZONE_BYTES_MAX:
        return None
    if name == "UTC":
        return UTC
    if _ZONE.match(name) is None:
        return None
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # it may be a folder of them
        return None


class CronTimes:
    """Expressions and their times (`zbus.core.schedules.Times`)."""

    def next_ms(self, cron: str, zone: str, after_ms: int) -> int | None:
        return _time(cron, zone, after_ms, reverse=False)

    def last_ms(self, cron: str, zone: str, until_ms: int) -> int | None:
        # What is looked for lies before the second that is given.
        return _time(cron, zone, until_ms // 1_000 * 1_000 + 1_000, reverse=True)


def _time(cron: str, zone: str, from_ms: int, *, reverse: bool) -> int | None:
    known = zone_of(zone)
    if known is None or len(cron) > CRON_BYTES_MAX or not cron.isascii():
        return None
    try:
        start = datetime.fromtimestamp(from_ms // 1_000, known)
        found = next(CronSim(cron, start, reverse=reverse))
    except (CronSimError, StopIteration, OverflowError, OSError, ValueError):
        return None
    return int(found.timestamp()) * 1_000


TIMES: Final = CronTimes()
