"""A job on the checkpoint of another one."""

from __future__ import annotations

import pytest

from zbus.spark.errors import Usage
from zbus.spark.etl import history
from zbus.spark.etl.job import Job
from zbus.spark.etl.query import facts

JOB = Job(sources=("b", "a"), sql="select *\n  from input;", to="c")


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("select  1\n\n+ 2 ;", "select 1 + 2"),
        ("select 'a  b',  \"c\n d\"", "select 'a  b', \"c\n d\""),
        ("select `x  y`", "select `x  y`"),
    ],
)
def test_queries_on_one_line(sql: str, expected: str) -> None:
    assert history.one_line(sql) == expected


def test_the_same_job_is_the_same() -> None:
    kept = history.text_of(facts(JOB))
    again = Job(sources=("a", "b"), sql="select * from input", to="c", once=True, checkpoint="x")
    assert history.differences(kept, facts(again)) == []
    assert history.digest(facts(again)) == history.digest(facts(JOB))


@pytest.mark.parametrize(
    ("job", "expected"),
    [
        (
            Job(sources=("a", "b"), sql="select key from input", to="c"),
            "--sql was 'select * from input' and is 'select key from input'",
        ),
        (Job(sources=("a",), sql="select * from input", to="c"), "--from was 'a, b' and is 'a'"),
        (
            Job(sources=("a", "b"), sql="select * from input", files="/d"),
            "sink was '--to c' and is '--files /d'",
        ),
        (
            Job(sources=("a", "b"), sql="select * from input", to="c", watermark="1 hour"),
            "--watermark was not given and is '1 hour'",
        ),
    ],
)
def test_what_is_another_one_is_named(job: Job, expected: str) -> None:
    assert history.differences(history.text_of(facts(JOB)), facts(job)) == [expected]


def test_long_texts_are_cut() -> None:
    kept = history.text_of({"--sql": "select " + "x" * 500})
    [text] = history.differences(kept, {"--sql": "y"})
    assert len(text) < 150
    assert "…" in text


@pytest.mark.parametrize("kept", ["", "{}", '{"v": 2, "job": {}}', '{"v": 1, "job": 3}', "[]"])
def test_a_damaged_note(kept: str) -> None:
    with pytest.raises(Usage, match="damaged"):
        history.differences(kept, {})


def changed(rows: object) -> object:
    return rows


def test_a_function_is_known_by_its_text() -> None:
    job = Job(sources=("a",), transform="tests.spark.etl.test_history:changed", to="c")
    found = facts(job)["--transform"]
    assert found is not None
    name, _, digest = found.partition(" ")
    assert name == job.transform
    assert len(digest) == 16
    assert facts(Job(transform="nowhere:at_all"))["--transform"] == "nowhere:at_all"
