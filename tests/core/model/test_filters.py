"""Filters: the table measured at the original broker, and a matcher that is obviously right."""

from __future__ import annotations

import gc
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.limits import examples
from zbus.core.model import filters
from zbus.core.model.filters import FILTER_BYTES_MAX, compile_filter

TAGS = ["a.b", "a.c", "a.b.c", "x", "a", "stock.600256", "b.b"]
UNTAGGED = ""

TABLE = [
    ("a.*", "a.b a.c"),
    ("a.#", "a.b a.c a.b.c a"),
    ("#", "a.b a.c a.b.c x a stock.600256 b.b"),
    ("*", "x a"),
    ("*.b", "a.b b.b"),
    ("a.*.c", "a.b.c"),
    ("*.*", "a.b a.c stock.600256 b.b"),
    ("*.#", "a.b a.c a.b.c x a stock.600256 b.b"),
    ("a.#.c", "a.b a.c a.b.c a"),  # what follows # is ignored
    ("a.b;x", "a.b x"),
    ("a.+", ""),
    ("a.b,x", ""),
    ("A.B", ""),
    # Not measured: empty alternatives do not count, nor do dots at the end.
    (";a.b;;x;", "a.b x"),
    ("a.b.", "a.b"),
    ("a.", "a"),
    ("a...", "a"),
    (".a", ""),
    ("a..b", ""),
    ("#.a", "a.b a.c a.b.c x a stock.600256 b.b"),
    ("*.*.*.*", ""),
]


def matches(text: str, tag: str) -> bool:
    match = compile_filter(text)
    return match is None or match(tag.encode())


@pytest.mark.parametrize(("text", "wanted"), TABLE)
def test_table(text: str, wanted: str) -> None:
    assert [tag for tag in TAGS if matches(text, tag)] == wanted.split()
    assert not matches(text, UNTAGGED)


@pytest.mark.parametrize("text", ["", ";", ";;;"])
def test_no_alternative_lets_everything_through(text: str) -> None:
    assert compile_filter(text) is None


@pytest.mark.parametrize(
    ("text", "tag", "verdict"),
    [
        ("a", "a.", True),
        ("a", "a...", True),
        ("a", ".a", False),
        ("*.a", ".a", True),  # an empty word within counts as a word
        ("a.*.b", "a..b", True),
        ("a..b", "a..b", True),
        ("a.#", "a..", True),
        ("*", "a.", True),
        ("#", "...", True),
        ("*", "...", False),
        ("é.*", "é.ü", True),
    ],
)
def test_odd_dots(text: str, tag: str, verdict: bool) -> None:
    assert matches(text, tag) is verdict


def plainly(text: str, tag: str) -> bool:
    """The rules, as literally as they can be written."""
    alternatives = [part for part in text.split(";") if part]
    if not alternatives:
        return True
    return tag != "" and any(_plainly(_split(part), _split(tag)) for part in alternatives)


def _split(text: str) -> tuple[str, ...]:
    stripped = text.rstrip(".")
    return tuple(stripped.split(".")) if stripped else ()


def _plainly(pattern: tuple[str, ...], words: tuple[str, ...]) -> bool:
    if pattern[:1] == ("#",):
        return True
    if not pattern or not words:
        return pattern == words
    return pattern[0] in ("*", words[0]) and _plainly(pattern[1:], words[1:])


@given(st.text("ab.*#;", max_size=12), st.lists(st.text("ab.*#", max_size=8), max_size=8))
@examples(1000, derandomize=True)
def test_agrees_with_the_plain_matcher(text: str, tags: list[str]) -> None:
    match = compile_filter(text)
    for tag in [*tags, *tags]:  # the second time the memo answers
        verdict = match is None or match(tag.encode())
        assert verdict == plainly(text, tag)


def test_all_memos_together_have_a_limit() -> None:
    """Whatever is forgotten, no verdict changes."""
    matches = [compile_filter(f"a.*;{number}") for number in range(20)]
    tag_bytes = 10_000
    most = most_of_one = 0
    for number in range(300):
        tag = b"a.%d" % number + b"x" * tag_bytes
        for match in matches:
            assert match is not None
            assert match(tag)
            assert not match(tag + b".b")
        counts = [len(known.memo) for known in filters._filters.values()]
        most, most_of_one = max(most, sum(counts)), max(most_of_one, *counts)
    assert most_of_one > 10
    assert most * tag_bytes <= filters.MEMO_BYTES_MAX


def test_groups_with_the_same_filter_share_its_memo() -> None:
    one, other = compile_filter("shared.*"), compile_filter("shared.*")
    assert one is not None
    assert one == other
    del one, other
    gc.collect()
    assert "shared.*" not in filters._filters, "and it goes with the last of them"


def test_hostile_filters_and_tags_take_bounded_time() -> None:
    star = "*." * (FILTER_BYTES_MAX // 2)
    many = "*;" * (FILTER_BYTES_MAX // 2)
    begun = time.process_time()
    for text in (star + "#", star + "x", many, "a.*." * 30 + "b", "." * FILTER_BYTES_MAX):
        match = compile_filter(text)
        if match is not None:
            for size in (1, 1_000, 100_000):
                match(b"." * size)
                match(b"a." * size + b"c")
    # A matcher that backtracks would need years: the bound is for machines under load.
    assert time.process_time() - begun < 5
