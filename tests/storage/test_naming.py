"""Names on disk: safe, unique, and what they were before."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from zbus.storage.local.naming import (
    is_topic_directory,
    partition_number,
    segment_base,
    segment_name,
    topic_directory,
)

TABLE = {
    "orders": "orders",
    "Orders": "Orders",
    "a.b_c-9": "a.b_c-9",
    "a/b": "a%2Fb",
    ".": "%2E",
    "..": "%2E.",
    ".hidden": "%2Ehidden",
    "100%": "100%25",
    "a~b": "a%7Eb",
    "a\0\n": "a%00%0A",
    "lock": "%6Cock",
    "reserve": "%72eserve",
    "landmarks": "%6Candmarks",
    "quarantine": "%71uarantine",
    "identity": "%69dentity",
    "manifest.json": "%6Danifest.json",
    "ü": "%C3%BC",
}


@pytest.mark.parametrize(("topic", "name"), TABLE.items())
def test_table(topic: str, name: str) -> None:
    assert topic_directory(topic) == name


TOPICS = st.text(max_size=100) | st.text("ab./%~", max_size=300)


@given(TOPICS, TOPICS)
@example("", "~")
@example("ü" * 100, "ü" * 99 + "u")
@example("a" * 256, "a" * 257)
@example("lock", "%6Cock")
def test_names_are_safe_and_unique(one: str, other: str) -> None:
    names = topic_directory(one), topic_directory(other)
    assert (one == other) == (names[0] == names[1])
    for name in names:
        assert 0 < len(name) <= 255
        assert name.isascii()
        assert "/" not in name
        assert name[0] != "."
        assert is_topic_directory(name)


@pytest.mark.parametrize("topic", ["ü" * 100, "/" * 200, "", "\ud800", "a" * 255])
def test_the_file_system_takes_them(topic: str, tmp_path: Path) -> None:
    (tmp_path / topic_directory(topic)).mkdir()
    assert os.listdir(tmp_path) == [topic_directory(topic)]


@pytest.mark.parametrize(
    "name", ["lock", "reserve", "identity", ".x", "lost+found", "", "a/b", "a\n"]
)
def test_names_that_are_not_ours(name: str) -> None:
    assert not is_topic_directory(name)


@given(st.integers(0, 2**64 - 1))
def test_segments(base: int) -> None:
    assert segment_base(segment_name(base)) == base
    assert len(segment_name(base)) == 24


@pytest.mark.parametrize(
    ("name", "number"), [("0", 0), ("17", 17), ("01", None), ("", None), ("-1", None), ("٣", None)]
)
def test_partitions(name: str, number: int | None) -> None:
    assert partition_number(name) == number
    assert segment_base(name) is None
