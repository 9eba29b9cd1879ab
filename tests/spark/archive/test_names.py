"""Names of topics are hostile: whatever one is, its files are in the archive, and nobody else's."""

from __future__ import annotations

from pathlib import PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.spark.archive.harness import ROOT, LinkDisk, chains, put_numbers, run
from tests.spark.stored import MemoryLog
from zbus.spark.archive import layout as names
from zbus.spark.archive.layout import Attempt
from zbus.spark.errors import Usage
from zbus.spark.logs import Span

HOSTILE = (
    "orders",
    "a/b",
    "..",
    ".",
    "../../etc/passwd",
    "/etc/passwd",
    "a%2Fb",
    "a=b",
    "%",
    "topic=x/date=2020-01-01",
    "_tmp",
    "_zbus",
    "__HIVE_DEFAULT_PARTITION__",
    ".hidden",
    "007",
    "kööö",
    "\U0001f600",
    "a b",
    "a\nb",
    "a\0b",
    "*",
    "[a]",
    "{a,b}",
    "a:b",
    "\\",
    "~",
    "A",
    "a",
    "x" * 300,
    "x" * 300 + "y",
    "/" * 200,
    "ö" * 100,
    "null",
    "a+b",
    "a#b?c",
    "\ud800",
)


@pytest.mark.parametrize("topic", HOSTILE, ids=ascii)
def test_a_name_is_one_safe_name(topic: str) -> None:
    name = names.topic_name(topic)
    assert "/" not in name
    assert name[0] not in "._"
    assert len(name) <= names.TOPIC_BYTES_MAX
    assert name.isascii()
    assert names.topic_of(name) in (topic, None)


def test_different_topics_have_different_names() -> None:
    assert len({names.topic_name(topic) for topic in HOSTILE}) == len(HOSTILE)


@given(st.text(min_size=1), st.text(min_size=1))
def test_any_two_topics(one: str, other: str) -> None:
    names_of = names.topic_name(one), names.topic_name(other)
    assert (names_of[0] == names_of[1]) is (one == other)
    assert names.topic_of(names_of[0]) in (one, None)
    span = Span(one, 0, "1", 0, 1, 0)
    path = names.data_path(span, "2026-11-23", 0, 1, Attempt.begun(0))
    assert len(PurePosixPath(path).parts) == 3
    assert max(len(part) for part in PurePosixPath(path).parts) <= 255
    assert names.check_path(path) == path


def test_a_topic_has_a_name() -> None:
    with pytest.raises(Usage):
        names.topic_name("")


def test_an_attempt_says_when() -> None:
    attempt = Attempt.begun(1_800_000_000_000)
    assert attempt.time_ms == 1_800_000_000_000
    path = names.data_path(Span("t", 0, "1", 0, 1, 0), "2026-11-23", 0, 1, attempt)
    for name in (PurePosixPath(path).name, names.record_of(attempt), attempt.text):
        assert names.attempt_of(name) == attempt
    for name in ("x.parquet", "0.json", "part-00000.snappy.parquet", ""):
        assert names.attempt_of(name) is None


@pytest.mark.parametrize("path", ["", "/etc/passwd", "a/../../b", ".."])
def test_a_record_does_not_lead_out(path: str) -> None:
    with pytest.raises(Usage):
        names.check_path(path)


def test_all_of_them_in_one_archive() -> None:
    log = MemoryLog()
    topics = [topic for topic in HOSTILE if topic.isprintable() or topic == "a\nb"]
    for topic in topics:
        put_numbers(log, 2, topic)
    disk = LinkDisk()
    assert run(disk, log).messages == 2 * len(topics)
    assert sorted(topic for topic, _ in chains(disk).lanes()) == sorted(topics)
    for path in disk.list_all():
        assert path.is_relative_to(ROOT)
        assert len(path.relative_to(ROOT).parts) <= 5
