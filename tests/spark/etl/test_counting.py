"""Read = written + filtered out + bad."""

from __future__ import annotations

from typing import Any

import pytest

from zbus.spark.etl.counting import Counts

CASES: list[tuple[dict[str, Any], list[str], int | None]] = [
    ({}, [], 0),
    ({"offsets": 10, "read": 10, "bad": 2, "bad_kept": 2, "results": 5}, [], 3),
    ({"offsets": 10, "read": 9, "results": 9}, ["10 offsets were to be read, and 9 rows were"], 0),
    ({"offsets": 10, "read": 11, "results": 9}, [], 2),  # a task was repeated
    (
        {"read": 9, "bad": 2, "bad_kept": 1},
        ["2 rows could not be parsed, and 1 were kept as bad"],
        7,
    ),
    ({"read": 9, "bad": 1, "bad_kept": 1, "results": 9}, ["of 8 rows the query made 9"], -1),
    ({"read": 9, "results": 90, "by_row": False}, [], None),
]


@pytest.mark.parametrize(("said", "problems", "filtered"), CASES)
def test_counts(said: dict[str, Any], problems: list[str], filtered: int | None) -> None:
    counts = Counts(**said)
    assert counts.problems() == problems
    assert counts.filtered == filtered


def test_sums() -> None:
    first = Counts(offsets=5, read=5, bad=1, bad_kept=1, results=3)
    both = first + Counts(offsets=2, read=2, results=2)
    assert both == Counts(offsets=7, read=7, bad=1, bad_kept=1, results=5)
    assert (first + Counts(read=1)).offsets is None
    assert str(first) == "5 read, 3 written, 1 filtered out, 1 bad"
    assert str(Counts(read=2, results=4, by_row=False)) == "2 read, 4 written, 0 bad"
    assert str(Counts(offsets=1, read=2)).endswith("(tasks were repeated)")
    assert str(Counts(read=2, by_row=False, late=1) + Counts(late=2)) == (
        "2 read, 0 written, 0 bad, 3 too late"
    )
    assert first.document() == {
        "read": 5,
        "written": 3,
        "filtered": 1,
        "bad": 1,
        "late": 0,
        "repeated": False,
    }
