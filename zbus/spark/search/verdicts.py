"""Conditions that SQL does not say as they are meant here, as functions of a column of Arrow that
say of each message whether they are true. DuckDB and Spark both call them.

Regular expressions are RE2's, whose time is bounded by pattern and text, so no pattern can make a
search hang. A path into JSON and a filter of tags mean the same everywhere because it is the same
code. What is null fulfils nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from zbus.spark.search.conditions import Conditions
from zbus.spark.search.json_path import Matcher

Verdict = Callable[[pa.Array], pa.Array]
"""Of a column: an array of true and false."""

LITERAL_BYTES_MAX: Final = 256
"""Of a text that is looked for as an expression."""


class Test(NamedTuple):
    """A condition of a column."""

    column: str
    verdict: Verdict


def tests_of(conditions: Conditions) -> list[Test]:
    """Cheap ones first. What SQL says, too, is not among them."""
    tests = []
    if conditions.tag_filter:
        tests.append(Test("tag", tag_passes(conditions.tag_filter)))
    if conditions.regex is not None:
        tests.append(Test("body", matches(conditions.regex)))
    tests += [Test("body", has_json(each.path, each.equals)) for each in conditions.json]
    return tests


def prefilter(conditions: Conditions) -> list[Test]:
    """Some of what SQL says, for messages that are in Arrow already: it is dear to give them to
    DuckDB only to have them refused."""
    columns = (("id", conditions.ids), ("key", conditions.keys), ("tag", conditions.tags))
    tests = [Test(name, one_of(values)) for name, values in columns if values]
    return tests + [Test("body", contains(text)) for text in conditions.contains]


def passed(batch: pa.RecordBatch, tests: Sequence[Test]) -> pa.RecordBatch:
    """The messages for which all are true."""
    for test in tests:
        if not batch.num_rows:
            break
        batch = batch.filter(test.verdict(batch.column(test.column)))
    return batch


def one_of(values: Sequence[str]) -> Verdict:
    known = pa.array(values, pa.string())
    return lambda column: pc.is_in(column, value_set=known)


def _sure(verdicts: pa.Array) -> pa.Array:
    return pc.fill_null(verdicts, False)


# -- tags -----------------------------------------------------------------------------------------


def tag_passes(text: str) -> Verdict:
    """A filter as groups have them (docs/reference/zbus.md, Filters)."""
    alternatives = [_words(part) for part in text.split(";") if part]

    def passes(tag: str | None) -> bool:
        words = _words(tag or "")
        return not alternatives or (bool(tag) and any(_fits(each, words) for each in alternatives))

    def verdict(tags: pa.Array) -> pa.Array:
        """Each distinct tag is looked at once."""
        distinct = tags.dictionary_encode(null_encoding="encode")
        known = pa.array([passes(tag) for tag in distinct.dictionary.to_pylist()], pa.bool_())
        return _sure(known.take(distinct.indices))

    return verdict


def _words(text: str) -> list[str]:
    return text.rstrip(".").split(".") if text.rstrip(".") else []


def _fits(pattern: Sequence[str], words: Sequence[str]) -> bool:
    for position, part in enumerate(pattern):
        if part == "#":
            return True
        if position >= len(words) or part not in ("*", words[position]):
            return False
    return len(pattern) == len(words)


# -- bodies ---------------------------------------------------------------------------------------


def contains(text: bytes) -> Verdict:
    """Byte by byte. As an expression, all of whose bytes are literals, it is found several times
    quicker than by Arrow's own search."""
    pattern = b"".join(b"\\x%02x" % byte for byte in text)
    short = len(text) <= LITERAL_BYTES_MAX

    def verdict(bodies: pa.Array) -> pa.Array:
        if short:
            return _sure(pc.match_substring_regex(bodies, pattern))
        return _sure(pc.match_substring(bodies, text))

    return verdict


def matches(pattern: str) -> Verdict:
    """A regular expression that some of a body's text matches."""

    def verdict(bodies: pa.Array) -> pa.Array:
        return _sure(pc.match_substring_regex(as_text(bodies), pattern))

    return verdict


def as_text(bodies: pa.Array) -> pa.Array:
    """Bytes that are no UTF-8 are replaced."""
    try:
        return bodies.cast(pa.string())
    except pa.ArrowInvalid:
        texts = (
            None if body is None else body.decode("utf-8", "replace") for body in bodies.to_pylist()
        )
        return pa.array(list(texts), pa.string())


def has_json(path: tuple[str | int | None, ...], equals: str | None) -> Verdict:
    matcher = Matcher(path, equals)

    def verdict(bodies: pa.Array) -> pa.Array:
        return pa.array([matcher(body) for body in bodies.to_pylist()], pa.bool_())

    return verdict
