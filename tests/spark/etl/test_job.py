"""What an etl job is told: files, options, and what does not fit together."""

from __future__ import annotations

from typing import Any

import pytest

from zbus.spark.errors import Usage
from zbus.spark.etl.job import Job, merge, parse_file

GOOD: dict[str, Any] = {"sources": ("a",), "sql": "select 1", "to": "b"}

FILE = """
from = "flights"
parse = "json"
schema = "carrier string"
sql = '''
select * from input
'''
to = "late"
bad-rows = "flights.bad"
once = true
checkpoint = "/c"
"""


def test_a_file_and_options() -> None:
    job = merge(Job(to="other"), parse_file(FILE, "job.toml"))
    assert job == Job(
        sources=("flights",),
        parse="json",
        schema="carrier string",
        sql="select * from input\n",
        to="other",
        bad_rows="flights.bad",
        once=True,
        checkpoint="/c",
    )


def test_several_topics() -> None:
    assert parse_file('from = ["a", "b"]', "f") == {"sources": ("a", "b")}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("to = ", "f is not TOML"),
        ("too = 'x'", "there is no option 'too'; they are allow-change, bad-rows"),
        ("sources = ['x']", "there is no option 'sources'"),
        ("from = 3", "f: from is a topic, or a list of them"),
        ("from = ['a', 3]", "f: from is a topic, or a list of them"),
        ("to = 3", "f: to is a text, not 3"),
        ("once = 'yes'", "f: once is true or false, not 'yes'"),
    ],
)
def test_files_that_are_refused(text: str, said: str) -> None:
    with pytest.raises(Usage) as caught:
        parse_file(text, "f")
    assert said in str(caught.value)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"sources": ()}, "--from TOPIC"),
        ({"to": None}, "--to TOPIC, --route or --files DIR"),
        ({"files": "/d"}, "--to TOPIC, --route or --files DIR"),
        ({"to": "A"}, "a would be read and written"),
        ({"bad_rows": "A", "parse": "text"}, "a would be read and written"),
        ({"bad_rows": "b", "parse": "text"}, "--to and --bad-rows are the same"),
        ({"sql": None}, "--sql QUERY or --transform"),
        ({"parse": "avro"}, "--parse is one of json, csv, text"),
        ({"parse": "json"}, "--parse json needs --schema"),
        ({"schema": "a int"}, "--schema is for --parse json or csv"),
        ({"bad_rows": "c"}, "add --parse"),
        ({"once": True}, "add --checkpoint DIR"),
        ({"interval": "30s"}, "add --checkpoint DIR"),
        ({"checkpoint": "/c", "once": True, "interval": "1s"}, "contradict each other"),
        ({"checkpoint": "/c", "until": "1h"}, "a stream has no --until"),
        ({"mode": "update"}, "--mode is of streams"),
        ({"mode": "complete"}, "--mode is one of append, update"),
        ({"event_time": "value.at"}, "--event-time needs --watermark"),
    ],
)
def test_what_does_not_fit(change: dict[str, Any], said: str) -> None:
    with pytest.raises(Usage) as caught:
        Job(**{**GOOD, **change}).check()
    assert said in str(caught.value)


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"to": None, "route": True},
        {"to": None, "files": "/d"},
        {"sql": None, "transform": "a:b"},
        {"checkpoint": "/c", "mode": "update", "once": True},
        {"parse": "text", "bad_rows": "c"},
        {"since": "1h", "until": "10m"},
    ],
)
def test_what_fits(change: dict[str, Any]) -> None:
    assert Job(**{**GOOD, **change}).check()
