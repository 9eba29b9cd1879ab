"""The rings of a series against a model that keeps everything."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.limits import examples
from zbus.dialects.zbus.documents.series import SPANS, WIDTH, Row, Series, packed, unpacked

LARGEST = 4094 << 30
COUNTED = 2
SHORT = [span.step_ms // 10_000 for span in SPANS]


def test_every_code_is_one_number_and_they_grow() -> None:
    numbers = [unpacked(bits) for bits in range(0xFFFF)]
    assert numbers[:4096] == list(range(4096))
    assert all(small < large for small, large in pairwise(n or 0 for n in numbers))
    assert numbers[-1] == LARGEST
    assert [packed(n) for n in numbers] == list(range(0xFFFF))


@pytest.mark.parametrize("value", [None, 0, 4095, 4096, LARGEST])
def test_what_is_exact(value: int | None) -> None:
    assert unpacked(packed(value)) == value


@given(st.integers(0, LARGEST))
def test_a_number_is_within_a_part_in_4096(value: int) -> None:
    assert abs((unpacked(packed(value)) or 0) - value) <= value / 4096


def test_what_is_too_large_is_the_largest() -> None:
    assert unpacked(packed(1 << 60)) == LARGEST


def kept(value: int | None) -> int | None:
    return unpacked(packed(value))


def model(rows: dict[int, Row], level: int, step: int) -> Row:
    """The row of a step, out of all that was ever put."""
    if level == 0:
        return [kept(value) for value in rows.get(step, [None] * WIDTH)]
    per = SHORT[level] // SHORT[level - 1]
    parts = [model(rows, level - 1, step * per + n) for n in range(per)]
    made: Row = []
    for column in range(WIDTH):
        known = [row[column] for row in parts if row[column] is not None]
        if not known:
            made.append(None)
        elif column < COUNTED:
            made.append(round(sum(n or 0 for n in known) * per / len(known)))
        else:
            made.append(max(n or 0 for n in known))
    return made


def stored(row: Row) -> Row:
    return [kept(value) for value in row]


PAUSES = st.one_of(
    st.just(1), st.just(1), st.integers(1, 70), st.sampled_from([359, 360, 361, 9_000, 61_000])
)
NUMBERS = st.one_of(st.none(), st.integers(0, 5_000), st.just(1 << 33))
ROWS = st.lists(NUMBERS, min_size=WIDTH, max_size=WIDTH)


@given(
    first=st.integers(100_000, 100_500),
    puts=st.lists(st.tuples(PAUSES, ROWS, st.integers(1, 40)), min_size=1, max_size=12),
    later=st.sampled_from([0, 1, 29, 200, 400, 90_000]),
    reloaded=st.booleans(),
)
@examples(150)
def test_a_series_is_what_the_model_says(
    first: int, puts: list[tuple[int, Row, int]], later: int, reloaded: bool
) -> None:
    series, rows, step = Series(COUNTED), {}, first
    for pause, row, times in puts:
        step += pause
        for _ in range(times):
            step += 1
            series.put(step, row)
            rows[step] = row
        if reloaded:
            saved, series = series.save(), Series(COUNTED)
            series.load(saved)
    now = step + later
    for level, span in enumerate(SPANS):
        start, found = series.rows(level, now)
        end = now // SHORT[level]
        wanted = [model(rows, level, each) for each in range(end - span.count + 1, end + 1)]
        while wanted and wanted[0] == [None] * WIDTH:
            wanted.pop(0)
        assert start == end + 1 - len(wanted)
        assert close(found, wanted)


def close(found: list[Row], wanted: list[Row]) -> bool:
    """A row of a longer span is made of rounded ones, and rounded when it is stored."""
    assert len(found) == len(wanted)
    for row, other in zip(found, wanted, strict=True):
        for a, b in zip(row, other, strict=True):
            if (a is None) != (b is None):
                return False
            if a is not None and b is not None and abs(a - b) > max(1, b * 2 / 4096):
                return False
    return True


@pytest.mark.parametrize("cells", [b"", b"\0" * 10])
def test_rings_of_another_size_are_refused(cells: bytes) -> None:
    saved = Series(COUNTED).save()
    with pytest.raises(ValueError, match="size"):
        Series(COUNTED).load([(1, cells), *saved[1:]])
