"""Times of schedules against a clock that is looked at every minute, over changes of the clock."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim
from hypothesis import given
from hypothesis import strategies as st

from tests.limits import examples
from zbus.dialects.zbus.messages.cron import TIMES

CHANGES = [
    ("Australia/Lord_Howe", "2026-04-04T15:00"),  # back by half an hour
    ("Australia/Lord_Howe", "2026-10-03T15:30"),  # forward by half an hour
    ("Europe/Berlin", "2026-03-29T01:00"),
    ("Europe/Berlin", "2026-10-25T01:00"),
    ("America/St_Johns", "2026-03-08T05:30"),
    ("America/St_Johns", "2026-11-01T04:30"),
    ("Africa/Casablanca", "2026-02-15T02:00"),
    ("Africa/Casablanca", "2026-03-22T02:00"),
    ("Pacific/Apia", "2011-12-30T10:00"),  # a day is left out
    ("America/Sao_Paulo", "2018-11-04T03:00"),  # midnight is left out
    ("Asia/Kathmandu", "2026-01-01T00:00"),
    ("UTC", "2026-01-01T00:00"),
]


def matches(cron: str, time: datetime) -> bool:
    """Whether a calendar without zones has it."""
    return next(CronSim(cron, time - timedelta(seconds=1))) == time


def model(cron: str, zone: str, first: datetime, last: datetime) -> list[int]:
    """Look at the clock every minute."""
    minute, hour = cron.split()[:2]
    fixed = not (minute.startswith("*") or hour.startswith("*"))
    known, found, seen = ZoneInfo(zone), [], None
    moment = first - timedelta(hours=3)
    while moment <= last:
        shown = moment.astimezone(known).replace(tzinfo=None, fold=0)
        due = matches(cron, shown)
        if fixed and seen is not None:
            due = due and shown > seen
            skipped = seen + timedelta(minutes=1)
            while skipped < shown:
                due = due or matches(cron, skipped)
                skipped += timedelta(minutes=1)
        if due and first < moment:
            found.append(int(moment.timestamp()) * 1_000)
        seen = shown if seen is None or not fixed else max(seen, shown)
        moment += timedelta(minutes=1)
    return found


def listed(cron: str, zone: str, first: datetime, last: datetime) -> list[int]:
    found, at_ms, end_ms = [], int(first.timestamp()) * 1_000, int(last.timestamp()) * 1_000
    while (next_ms := TIMES.next_ms(cron, zone, at_ms)) is not None and next_ms <= end_ms:
        assert next_ms > at_ms
        found.append(at_ms := next_ms)
    return found


def listed_backwards(cron: str, zone: str, first: datetime, last: datetime) -> list[int]:
    found, begin_ms, at_ms = [], int(first.timestamp()) * 1_000, int(last.timestamp()) * 1_000
    while (last_ms := TIMES.last_ms(cron, zone, at_ms)) is not None and last_ms > begin_ms:
        assert last_ms <= at_ms
        found.append(last_ms)
        at_ms = last_ms - 1
    return found[::-1]


def check(cron: str, zone: str, first: datetime, last: datetime) -> None:
    expected = model(cron, zone, first, last)
    assert listed(cron, zone, first, last) == expected
    assert listed_backwards(cron, zone, first, last) == expected


CRONS = [
    "*/20 * * * *",
    "*/15 2 * * *",
    "*/20 2 * * *",
    "0 * * * *",
    "30 * * * *",
    "15 */2 * * *",
    "10 2 * * *",
    "15,45 1,2 * * *",
    "0-50/10 1-3 * * *",
    "0 0 * * *",
    "30 1,23 * * 0,6",
]


@pytest.mark.parametrize("cron", CRONS)
@pytest.mark.parametrize(("zone", "change"), CHANGES)
def test_days_on_which_the_clock_changes(zone: str, change: str, cron: str) -> None:
    at = datetime.fromisoformat(change).replace(tzinfo=UTC)
    check(cron, zone, at - timedelta(hours=4), at + timedelta(hours=4))


LORD_HOWE = [
    # In April 01:30 to 02:00 is there twice, in October 02:00 to 02:30 is not there.
    ("2026-04-04T14:25", "30 * * * *", ["01:30", "01:30", "02:30", "03:30"]),
    ("2026-04-04T14:25", "*/20 2 * * *", ["02:00", "02:20", "02:40"]),
    ("2026-04-04T14:25", "*/20 * * * *", ["01:40", "01:40", "02:00", "02:20"]),
    ("2026-04-04T14:25", "40 1 * * *", ["01:40"]),
    ("2026-10-03T14:55", "30 * * * *", ["01:30", "02:30", "03:30"]),
    ("2026-10-03T14:55", "*/20 2 * * *", ["02:40"]),
    ("2026-10-03T14:55", "*/20 * * * *", ["01:40", "02:40", "03:00"]),
    ("2026-10-03T14:55", "10 2 * * *", ["02:30"]),
]


@pytest.mark.parametrize(("after", "cron", "expected"), LORD_HOWE)
def test_half_an_hour(after: str, cron: str, expected: list[str]) -> None:
    first = datetime.fromisoformat(after).replace(tzinfo=UTC)
    found = listed(cron, "Australia/Lord_Howe", first, first + timedelta(hours=20))
    zone = ZoneInfo("Australia/Lord_Howe")
    shown = [f"{datetime.fromtimestamp(ms // 1_000, zone):%H:%M}" for ms in found]
    assert shown[: len(expected)] == expected


FIELDS = st.sampled_from(["*", "*/20", "*/7", "0", "30", "15,45", "10-50/10", "0-59"])
HOURS = st.sampled_from(["*", "*/2", "0", "1", "2", "1,2", "0-23", "23", "*/5"])


@examples(60)
@given(
    change=st.sampled_from(CHANGES),
    minute=FIELDS,
    hour=HOURS,
    from_min=st.integers(-180, 60),
    count_min=st.integers(1, 200),
)
def test_any(
    change: tuple[str, str], minute: str, hour: str, from_min: int, count_min: int
) -> None:
    zone, text = change
    first = datetime.fromisoformat(text).replace(tzinfo=UTC) + timedelta(minutes=from_min)
    check(f"{minute} {hour} * * *", zone, first, first + timedelta(minutes=count_min))


def test_seconds_in_a_day_that_is_left_out() -> None:
    """The calendar is not gone through second by second."""
    first = datetime(2011, 12, 30, 9, 59, 58, tzinfo=UTC)
    found = listed("* * * * * *", "Pacific/Apia", first, first + timedelta(seconds=4))
    assert [ms // 1_000 - int(first.timestamp()) for ms in found] == [1, 2, 3, 4]
    found = listed_backwards("* * * * * *", "Pacific/Apia", first, first + timedelta(seconds=4))
    assert len(found) == 4


def test_a_time_that_never_comes() -> None:
    assert TIMES.next_ms("0 0 30 2 *", "Europe/Berlin", 0) is None
    assert TIMES.next_ms("0 0 29 2 *", "Europe/Berlin", 1_767_225_600_000) == 1_835_391_600_000
