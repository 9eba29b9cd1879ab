"""Which names are refused, and why."""

from __future__ import annotations

import pytest

from zbus.core.model.names import NAME_BYTES_MAX, name_problem

FINE = [
    "T",
    "MyTopic",
    "a.b.c",
    "...",
    ".hidden",
    "with space inside",
    "ünïcode",
    "主题",
    "😀",
    'a:b*c?d"e<f>g|h#i;j%20',
    "_private",
    "a" * NAME_BYTES_MAX,
    "ü" * (NAME_BYTES_MAX // 2),
]

REFUSED = [
    ("", "empty"),
    ("a" * (NAME_BYTES_MAX + 1), "longer"),
    ("ü" * (NAME_BYTES_MAX // 2 + 1), "longer"),
    (".", "path"),
    ("..", "path"),
    ("a/b", "path"),
    ("/", "path"),
    ("a\\b", "path"),
    ("../../etc/passwd", "path"),
    (" a", "space"),
    ("a ", "space"),
    (" ", "space"),
    ("a\tb", "control"),
    ("a\nb", "control"),
    ("a\r\nb: c", "control"),
    ("a\x00", "control"),
    ("a\x7f", "control"),
    ("a\u202eb", "control"),  # turns the rest of a log line around
    ("a\u200bb", "control"),
    ("a\u00a0b", "control"),
    ("a\ud800", "control"),  # half a character: no file could be named so
]


@pytest.mark.parametrize("name", FINE)
def test_fine(name: str) -> None:
    assert name_problem(name) is None


@pytest.mark.parametrize(("name", "word"), REFUSED)
def test_refused(name: str, word: str) -> None:
    problem = name_problem(name)
    assert problem is not None
    assert word in problem
