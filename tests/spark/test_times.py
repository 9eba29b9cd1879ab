"""Times, durations and rates as people write them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from zbus.spark.errors import Usage
from zbus.spark.times import between_ms, bytes_s, ceil_ms, duration_ms, interval, moment_ms

NOW_MS = 1_800_000_000_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("now", NOW_MS),
        ("24h", NOW_MS - 86_400_000),
        (" 1.5h ", NOW_MS - 5_400_000),
        ("0", 0),
        ("1700000000000", 1_700_000_000_000),
        ("2026-11-23", 1_795_392_000_000),
        ("2026-11-23T12:00", 1_795_435_200_000),
        ("2026-11-23T12:00:00.5+01:00", 1_795_431_600_500),
        ("", None),
        ("yesterday", None),
        ("-5", None),
        ("2026-13-01", None),
        ("0001-01-01", 0),  # before all that there is
        ("99999999w", None),
        ("99999999999999999999", None),
    ],
)
def test_moments(text: str, expected: int | None) -> None:
    if expected is None:
        with pytest.raises(Usage, match=r"--since .*: it is like 24h \(ago\)"):
            moment_ms(text, "--since", NOW_MS)
    else:
        assert moment_ms(text, "--since", NOW_MS) == expected


def test_nothing_is_between() -> None:
    assert between_ms("2h", "1h", NOW_MS) == (NOW_MS - 7_200_000, NOW_MS - 3_600_000)
    assert between_ms(None, None) == (None, None)
    for since, until in (("1h", "1h"), ("1h", "2h")):
        with pytest.raises(Usage, match="--until is not after --since"):
            between_ms(since, until, NOW_MS)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("30s", 30_000),
        ("200", 200),
        ("10 minutes", 600_000),
        ("1 Hour", 3_600_000),
        ("1.5 days", 129_600_000),
        ("0s", None),
        ("0 minutes", None),
        ("1 month", None),
        ("minutes", None),
        (" ", None),
        ("x minutes", None),
        ("99999999 weeks", None),
    ],
)
def test_durations(text: str, expected: int | None) -> None:
    if expected is None:
        with pytest.raises(Usage, match="--window"):
            duration_ms(text, "--window")
    else:
        assert duration_ms(text, "--window") == expected


def test_intervals_of_spark() -> None:
    assert interval("10 minutes", "--watermark") == "600000 milliseconds"
    assert interval("0s", "--watermark") == "0 milliseconds"


def test_rates() -> None:
    assert [bytes_s(text) for text in ("20MiB/s", "20MiB", "5")] == [20 << 20, 20 << 20, 5]
    for text in ("", "0", "-1", "fast", "20MiB/m", "9999999TiB"):
        with pytest.raises(Usage, match="--rate"):
            bytes_s(text)


@pytest.mark.parametrize("more_us", [0, 1, 499, 999])
def test_milliseconds_of_a_moment_are_exact_and_never_early(more_us: int) -> None:
    """A float of seconds is wrong by one for some of these."""
    for time_ms in range(1_700_000_000_000, 1_900_000_000_000, 199_999_999):
        moment = datetime.fromtimestamp(0, UTC) + timedelta(
            milliseconds=time_ms, microseconds=more_us
        )
        assert ceil_ms(moment) == time_ms + (more_us > 0)
