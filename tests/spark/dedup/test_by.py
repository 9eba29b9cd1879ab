"""By what messages are compared."""

from __future__ import annotations

import pytest

from zbus.spark.dedup.frames import parse_by
from zbus.spark.errors import Usage


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("id", ("id",)),
        ("key, body_hash", ("key", "body_hash")),
        ("header.x-order", ("header.x-order",)),
    ],
)
def test_columns(text: str, expected: tuple[str, ...]) -> None:
    assert parse_by(text) == expected


@pytest.mark.parametrize("text", ["", "body", "id,", "id,id", "header."])
def test_columns_that_are_refused(text: str) -> None:
    with pytest.raises(Usage, match="--by"):
        parse_by(text)
