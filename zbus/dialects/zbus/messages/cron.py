"""When a schedule is due: expressions as cron has them, in a time zone.

The parser is `cronsim`'s: five fields, or six with seconds first, and what Debian's cron knows.
Where clocks are put forward, a time that is skipped comes right after; where they are put back,
one that is there twice comes once.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from zbus.core.api import CRON_BYTES_MAX, ZONE_BYTES_MAX

_ZONE = re.compile(r"[0-9A-Za-z_+-]{1,32}(/[0-9A-Za-z_+-]{1,32}){0,2}\Z")  # so it is no path


_DAY_S = 86_400
_SECOND = timedelta(seconds=1)


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


def problem_of(cron: str) -> str:
    """What is wrong with an expression: `bad minute`."""
    try:
        CronSim(cron, datetime(2000, 1, 1))
    except CronSimError as error:
        return str(error).lower()
    return "it is too long, or names no time"


class CronTimes:
    """Expressions and their times (`zbus.core.patterns.schedules.Times`)."""

    def next_ms(self, cron: str, zone: str, after_ms: int) -> int | None:
        return _time(cron, zone, after_ms, reverse=False)

    def last_ms(self, cron: str, zone: str, until_ms: int) -> int | None:
        # What is looked for lies before the second that is given.
        return _time(cron, zone, until_ms // 1_000 * 1_000 + 1_000, reverse=True)


def _time(cron: str, zone: str, from_ms: int, *, reverse: bool) -> int | None:
    known = zone_of(zone)
    if known is None or len(cron) > CRON_BYTES_MAX or not cron.isascii():
        return None
    clock, from_s = _Clock(known), from_ms // 1_000
    try:
        if _is_fixed(cron):
            found_s = _fixed(cron, clock, from_s, reverse)
        else:
            found_s = _shown(cron, clock, from_s, reverse)
    except (CronSimError, StopIteration, OverflowError, OSError, ValueError):
        return None
    return found_s * 1_000


def _is_fixed(cron: str) -> bool:
    parts = cron.split()
    return len(parts) == 5 and not (parts[0].startswith("*") or parts[1].startswith("*"))


class _Clock:
    """A clock on the wall of a zone. Moments are seconds since 1970, times are what it shows."""

    def __init__(self, zone: tzinfo) -> None:
        self._zone = zone

    def time(self, moment: int) -> datetime:
        return datetime.fromtimestamp(moment, self._zone).replace(tzinfo=None, fold=0)

    def moments(self, time: datetime) -> list[int]:
        """When it shows this: once, twice or never."""
        found = {self._moment(time, fold) for fold in (0, 1)}
        return sorted(moment for moment in found if self.time(moment) == time)

    def after_gap(self, time: datetime) -> int:
        """The first moment after a time that is never shown."""
        return self._change(self._moment(time, 1), self._moment(time, 0))

    def put_back(self, first: int, last: int) -> int | None:
        """The moment at which it was put back, after the first and not after the last one."""
        back = self._offset(last) < self._offset(first)
        return self._change(first, last) if back else None

    def _moment(self, time: datetime, fold: int) -> int:
        return int(time.replace(tzinfo=self._zone, fold=fold).timestamp())

    def _offset(self, moment: int) -> timedelta:
        return datetime.fromtimestamp(moment, self._zone).utcoffset() or timedelta()

    def _change(self, first: int, last: int) -> int:
        """The offset is another at the last than at the first moment: since when?"""
        before = self._offset(first)
        while last - first > 1:
            middle = (first + last) // 2
            if self._offset(middle) == before:
                first = middle
            else:
                last = middle
        return last


def _fixed(cron: str, clock: _Clock, from_s: int, reverse: bool) -> int:
    """The next time of day, or the one before: each is due once."""
    start = clock.time(from_s)
    change_s = clock.put_back(from_s - _DAY_S, from_s) if reverse else None
    if change_s is not None:  # what it shows now, and a little more, it has shown before
        start = max(start, clock.time(change_s - 1) + _SECOND)
    for time in CronSim(cron, start, reverse=reverse):
        moments = clock.moments(time)
        moment = moments[0] if moments else clock.after_gap(time)
        if (moment < from_s) if reverse else (moment > from_s):
            return moment
    raise StopIteration


def _shown(cron: str, clock: _Clock, from_s: int, reverse: bool) -> int:
    """The next moment at which the clock shows one of the times, or the one before."""
    start = clock.time(from_s)
    while not (moments := clock.moments(time := next(CronSim(cron, start, reverse=reverse)))):
        gap_s = clock.after_gap(time)
        start = clock.time(gap_s - 1) + _SECOND if reverse else clock.time(gap_s) - _SECOND
    if reverse:
        found_s = max([moment for moment in moments if moment < from_s])
        change_s = clock.put_back(from_s - _DAY_S, from_s)
    else:
        found_s = min([moment for moment in moments if moment > from_s])
        change_s = clock.put_back(from_s, from_s + _DAY_S)
    if change_s is None:
        return found_s
    # What the clock shows on this side of the change it shows on the other side, too.
    first, last = clock.time(change_s), clock.time(change_s - 1)
    time = next(CronSim(cron, last + _SECOND if reverse else first - _SECOND, reverse=reverse))
    if not first <= time <= last:
        return found_s
    moments = clock.moments(time)
    return max(found_s, moments[0]) if reverse else min(found_s, moments[-1])


TIMES: Final = CronTimes()
