"""Plans of what is sent back: who is in them, and that they are what was looked at."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from zbus.spark.dlq.plan import (
    Entry,
    Letter,
    Plan,
    choose,
    confirm,
    parse,
    ranges,
    read,
    report,
    write,
)
from zbus.spark.errors import Usage

OPEN = {0: {1, 2, 3, 4, 5}, 1: {0}}

PLAN = Plan(
    action="redrive",
    topic="T.DLQ",
    group="T.DLQ",
    incarnations=("17", "17"),
    entries=(
        Entry(0, 1, "a", "T", 1),
        Entry(0, 2, "b", "T", 3),
        Entry(0, 4, "c", "U", 1),
        Entry(1, 0, "ü", "T", 1),
    ),
    where="reason = 'expired'",
    audit="audit",
    left={"more than --max": 2},
    made_ms=17,
)


@pytest.mark.parametrize(
    ("letters", "how", "entries", "left"),
    [
        ([], {}, (), {}),
        (
            [Letter(1, 0, "b", "T", 0), Letter(0, 2, "a", "T", 2)],
            {},
            (Entry(0, 2, "a", "T", 3), Entry(1, 0, "b", "T", 1)),
            {},
        ),
        ([Letter(0, 2, "a", "T", 3)], {}, (), {"sent back 3 times or more": 1}),
        ([Letter(0, 2, "a", "T", 3)], {"redrives_max": 4}, (Entry(0, 2, "a", "T", 4),), {}),
        ([Letter(0, 9, "a", "T", 0)], {}, (), {"done already, or with a consumer": 1}),
        ([Letter(2, 1, "a", "T", 0)], {}, (), {"done already, or with a consumer": 1}),
        ([Letter(0, 2, "a", None, 0)], {}, (), {"no origin: give --to TOPIC": 1}),
        ([Letter(0, 2, "a", None, 0)], {"to": "X"}, (Entry(0, 2, "a", "X", 1),), {}),
        (
            [Letter(0, offset, "a", "T", 0) for offset in (3, 1, 2)],
            {"count_max": 2},
            (Entry(0, 1, "a", "T", 1), Entry(0, 2, "a", "T", 1)),
            {"more than --max": 1},
        ),
    ],
)
def test_who_is_sent_back(letters: list, how: dict, entries: tuple, left: dict) -> None:
    assert choose(letters, "redrive", open_offsets=OPEN, **how) == (entries, left)


def test_who_is_dropped() -> None:
    letters = [Letter(0, 1, "a", None, 9), Letter(0, 8, "b", "T", 0)]
    entries, left = choose(letters, "drop", open_offsets=OPEN)
    assert entries == (Entry(0, 1, "a", None, 9),)
    assert left == {"done already, or with a consumer": 1}


def test_a_plan_comes_back_from_its_file(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    write(PLAN, path)
    again = read(path)
    assert again == PLAN
    assert again.token == PLAN.token
    assert PLAN.token in path.read_text()
    with pytest.raises(Usage, match="exists already"):
        write(PLAN, path)


def test_an_empty_plan_has_a_text_too() -> None:
    plan = msgspec.structs.replace(PLAN, entries=())
    assert parse(plan.text()) == plan


@pytest.mark.parametrize(
    ("old", "new"),
    [('"T.DLQ"', '"other"'), ('[0,2,"b"', '[0,3,"b"'), ('"U"', '"V"'), ("expired", "lost")],
)
def test_a_changed_plan_is_refused(old: str, new: str) -> None:
    assert old in PLAN.text()
    with pytest.raises(Usage, match="was changed after it was made"):
        parse(PLAN.text().replace(old, new, 1))


@pytest.mark.parametrize("text", ["", "3", "{}", '{"v": 2, "token": ""}', '{"v": 1, "token": ""}'])
def test_what_is_no_plan(text: str) -> None:
    with pytest.raises(Usage, match="is no plan"):
        parse(text)


def test_the_token_is_of_this_plan() -> None:
    confirm(PLAN, PLAN.token)
    with pytest.raises(Usage, match="look at the plan again"):
        confirm(PLAN, msgspec.structs.replace(PLAN, made_ms=18).token)


def test_what_the_audit_topic_is_told() -> None:
    document = report(PLAN, 20)
    json.dumps(document)
    assert document["offsets"] == {"0": "1-2,4", "1": "0"}
    assert document["targets"] == {"T": 3, "U": 1}
    assert document["count"] == 4


@pytest.mark.parametrize(
    ("offsets", "text"), [([], ""), ([3], "3"), ([1, 2, 3], "1-3"), ([1, 3, 4, 9], "1,3-4,9")]
)
def test_ranges(offsets: list[int], text: str) -> None:
    assert ranges(offsets) == text
