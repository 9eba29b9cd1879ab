"""The conditions, as functions of Arrow columns that say of each message whether it is true.

The local engine uses all of them. Spark has its own words for those that compare columns, and calls
these functions for what its words would do differently: regular expressions here are RE2's, whose
time is bounded by pattern and text, so no pattern can make a search hang; a path into JSON, a
filter of tags and a text in a body mean the same in both engines because it is the same code.

What is null fulfils nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import reduce
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from zbus.spark.search.conditions import Conditions
from zbus.spark.search.cursor import Cursor
from zbus.spark.search.json_path import Matcher
from zbus.spark.source.columns import arrow_schema

Verdict = Callable[..., pa.Array]
"""Of arrays, one for each column of the test: an array of true and false."""

TIME: Final = arrow_schema(["timestamp"]).field(0).type


LITERAL_BYTES_MAX: Final = 256
"""Of a text that is looked for as an expression."""


class Test(NamedTuple):
    """A condition."""

    columns: tuple[str, ...]
    verdict: Verdict
    spark: bool
    """Spark has words of its own for it."""


def tests_of(conditions: Conditions) -> list[Test]:
    """Cheap ones first: later ones see only what the former let pass."""
    tests = []
    for column, values in (
        ("id", conditions.ids),
        ("key", conditions.keys),
        ("tag", conditions.tags),
    ):
        if values:
            tests.append(Test((column,), one_of(values), True))
    times = (conditions.since_ms, conditions.until_ms)
    if times != (None, None):
        tests.append(Test(("timestamp",), between(*times), True))
    if conditions.after is not None:
        columns = ("topic", "partition", "timestamp", "offset")
        tests.append(Test(columns, behind(conditions.after), True))
    if conditions.tag_filter:
        tests.append(Test(("tag",), tag_passes(conditions.tag_filter), False))
    tests += [Test(("headers",), header_is(*each), True) for each in conditions.headers]
    tests += [Test(("body",), contains(text), True) for text in conditions.contains]
    if conditions.regex is not None:
        tests.append(Test(("body",), matches(conditions.regex), False))
    tests += [Test(("body",), has_json(each.path, each.equals), False) for each in conditions.json]
    return tests


def passed(batch: pa.RecordBatch, tests: Sequence[Test]) -> pa.RecordBatch:
    """The messages for which all are true."""
    for test in tests:
        if not batch.num_rows:
            break
        batch = batch.filter(verdict_of(batch, test))
    return batch


def verdict_of(batch: pa.RecordBatch, test: Test) -> pa.Array:
    """One for each message."""
    return test.verdict(*(batch.column(name) for name in test.columns))


def columns_of(tests: Sequence[Test]) -> list[str]:
    """All that are looked at."""
    return list(dict.fromkeys(column for test in tests for column in test.columns))


def _sure(verdicts: pa.Array) -> pa.Array:
    return pc.fill_null(verdicts, False)


def moment(time_ms: int) -> datetime:
    """As a value of the column `timestamp`."""
    return datetime.fromtimestamp(time_ms / 1_000, UTC)


def time_scalar(time_ms: int) -> pa.Scalar:
    """The same for Arrow."""
    return pa.scalar(1_000 * time_ms, pa.int64()).cast(TIME)


# -- columns that are compared --------------------------------------------------------------------


def one_of(values: Sequence[str]) -> Verdict:
    known = pa.array(values, pa.string())

    def verdict(column: pa.Array) -> pa.Array:
        if len(known) == 1:
            return _sure(pc.equal(column, known[0]))
        return pc.is_in(column, value_set=known)

    return verdict


def between(since_ms: int | None, until_ms: int | None) -> Verdict:
    def verdict(times: pa.Array) -> pa.Array:
        found = pc.is_valid(times)
        if since_ms is not None:
            found = pc.and_(found, _sure(pc.greater_equal(times, time_scalar(since_ms))))
        if until_ms is not None:
            found = pc.and_(found, _sure(pc.less(times, time_scalar(until_ms))))
        return found

    return verdict


def behind(cursor: Cursor) -> Verdict:
    place = (
        pa.scalar(cursor.topic, pa.string()),
        pa.scalar(cursor.partition, pa.int32()),
        time_scalar(cursor.time_ms),
        pa.scalar(cursor.offset, pa.int64()),
    )

    def verdict(*columns: pa.Array) -> pa.Array:
        pairs = list(zip(columns, place, strict=True))[::-1]

        def further(found: pa.Array, pair: tuple[pa.Array, pa.Scalar]) -> pa.Array:
            column, value = pair
            same = pc.and_(pc.equal(column, value), found)
            return pc.or_(pc.greater(column, value), same)

        last = pc.greater(pairs[0][0], pairs[0][1])
        return _sure(reduce(further, pairs[1:], last))

    return verdict


def header_is(name: str, value: str) -> Verdict:
    def verdict(headers: pa.Array) -> pa.Array:
        values = pc.map_lookup(headers, pa.scalar(name, pa.string()), "first")
        return _sure(pc.equal(values, pa.scalar(value, pa.string())))

    return verdict


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
