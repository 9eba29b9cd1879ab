"""How far a query is behind."""

from __future__ import annotations

from typing import Any

import pytest

from zbus.spark.source.listener import lag_of, offsets_in
from zbus.spark.source.planning import Offsets


@pytest.mark.parametrize(
    ("end", "latest", "lag"),
    [
        ({"a": ("1", [5])}, {"a": ("1", [5])}, {"a": 0}),
        ({"a": ("1", [5, 0])}, {"a": ("1", [9, 3])}, {"a": 7}),
        ({"a": ("1", [5])}, {"a": ("1", [5, 4])}, {"a": 4}),
        ({"a": ("1", [5])}, {"a": ("2", [3])}, {"a": 3}),
        ({}, {"b": ("1", [2])}, {"b": 2}),
        ({"a": ("1", [5])}, {"a": ("1", [4])}, {"a": 0}),
    ],
)
def test_lag(end: Offsets, latest: Offsets, lag: dict[str, int]) -> None:
    assert lag_of(end, latest) == lag


@pytest.mark.parametrize("text", [None, "", "{", "{}", "5", '{"orders": {"0": 5}}'])
def test_offsets_of_other_sources(text: Any) -> None:
    assert offsets_in(text) is None


def test_offsets_of_ours() -> None:
    assert offsets_in('{"v": 1, "t": {"a": ["1", [5]]}}') == {"a": ("1", [5])}
