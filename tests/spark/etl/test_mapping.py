"""Which column becomes what of a message."""

from __future__ import annotations

import pytest

from zbus.spark.errors import Usage
from zbus.spark.etl.mapping import Plan, plan

ALL = {"topic": "string", "partition": "int", "offset": "bigint", "timestamp": "timestamp"}


@pytest.mark.parametrize(
    ("types", "route", "expected"),
    [
        ({"body": "binary"}, False, Plan((), (), True)),
        ({"a": "int", "b": "string"}, False, Plan((), ("a", "b"), False)),
        ({"key": "string", "n": "bigint"}, False, Plan(("key",), ("n",), False)),
        ({**ALL, "body": "string", "value": "struct<a:int>"}, False, Plan((), (), True)),
        ({"topic": "string", "n": "int"}, False, Plan((), ("topic", "n"), False)),
        ({"topic": "string", "n": "int"}, True, Plan(("topic",), ("n",), False)),
        ({"timestamp": "timestamp", "n": "int"}, False, Plan((), ("timestamp", "n"), False)),
        (
            {"key": "int", "deliver_at": "timestamp_ntz", "body": "struct<a:int>"},
            False,
            Plan(("key", "deliver_at"), (), True),
        ),
    ],
)
def test_plans(types: dict[str, str], route: bool, expected: Plan) -> None:
    assert plan(types, route) == expected


@pytest.mark.parametrize(
    ("types", "route", "said"),
    [
        ({"n": "int"}, True, "--route needs a column `topic`"),
        ({"body": "string", "n": "int"}, False, "so n would be lost"),
        ({"key": "string"}, False, "the result has only labels"),
        ({"key": "binary", "n": "int"}, False, "the column key of the result is binary"),
        ({"tag": "array<string>", "n": "int"}, False, "the sink wants string"),
        ({"headers": "string", "n": "int"}, False, "the sink wants map<string,string>"),
        ({"deliver_at": "bigint", "n": "int"}, False, "the sink wants timestamp"),
    ],
)
def test_plans_that_are_refused(types: dict[str, str], route: bool, said: str) -> None:
    with pytest.raises(Usage) as caught:
        plan(types, route)
    assert said in str(caught.value)
