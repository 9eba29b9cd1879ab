"""Errors that differ in numbers and ids only have one fingerprint."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zbus.spark.dlq.fingerprints import KEPT_MAX, fingerprint

CASES = [
    ("", ""),
    ("connection refused", "connection refused"),
    ("Order 4711 of 10.0.0.7: timeout after 30s", "Order # of #.#.#.#: timeout after #s"),
    ("id 550e8400-e29b-41d4-a716-446655440000 unknown", "id # unknown"),
    ("id abcdefab-cdef-abcd-efab-cdefabcdefab unknown", "id # unknown"),
    ("commit 9f3c2a1b7d not found", "commit # not found"),
    ("sha256 of user_42 in order-7", "sha# of user_# in order-#"),
    ("key a1b2c3 of x", "key # of x"),
    ("line 3,\n   column 14", "line #, column #"),
    ("HTTP 503", "HTTP #"),
    ("1,234.50 EUR", "#,#.# EUR"),
    ("Größe 12 für Zoë", "Größe # für Zoë"),
    ("٣ items", "٣ items"),  # other digits than 0 to 9 are letters here
]


@pytest.mark.parametrize(("text", "expected"), CASES)
def test_fingerprints(text: str, expected: str) -> None:
    assert fingerprint(text) == expected


@given(st.text(max_size=2_000))
def test_any_text_has_one(text: str) -> None:
    found = fingerprint(text)
    assert len(found) <= KEPT_MAX
    assert not set(found) & set("0123456789")


@given(st.lists(st.integers(0, 10**12), min_size=2, max_size=2))
def test_numbers_do_not_matter(numbers: list[int]) -> None:
    first, second = (fingerprint(f"order {number} failed") for number in numbers)
    assert first == second == "order # failed"
