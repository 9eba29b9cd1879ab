"""New versions of a schema: what they break, by a table of both."""

from __future__ import annotations

import json
from time import process_time
from typing import Any

import pytest

from zbus.core.model.schema import Schema
from zbus.core.model.schema_change import BREAKS_MAX, breaks


def found(old: Any, new: Any, compatibility: str = "backward") -> list[str]:
    before = Schema((json.dumps(old),))
    after = Schema((*before.versions, json.dumps(new)), 2, compatibility)
    return breaks(before, after)


OBJECT = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
CLOSED = {**OBJECT, "additionalProperties": False}


def with_property(schema: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {**schema, "properties": {**schema["properties"], **more}}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (OBJECT, OBJECT),
        (OBJECT, True),
        (OBJECT, {}),
        (False, OBJECT),
        (True, {"title": "anything"}),
        (OBJECT, with_property(OBJECT, b={"type": "integer"})),
        (CLOSED, with_property(CLOSED, b={"type": "integer"})),
        (CLOSED, OBJECT),
        (CLOSED, {**CLOSED, "required": []}),
        (OBJECT, {**OBJECT, "description": "more words", "properties": {}}),
        ({"type": "integer"}, {"type": "number"}),
        ({"type": "integer"}, {"type": ["null", "integer"]}),
        ({"enum": ["a"]}, {"enum": ["b", "a"]}),
        ({"const": "a"}, {"enum": ["b", "a"]}),
        ({"enum": ["a"]}, {"type": "string"}),
        ({"minimum": 1, "maxLength": 3}, {"minimum": 0, "maxLength": 4}),
        ({"minimum": 1, "pattern": "a"}, {"pattern": "a"}),
        ({"type": "array", "uniqueItems": True}, {"type": "array"}),
        ({"items": {"type": "integer"}}, {"items": {"type": "number"}}),
        ({"prefixItems": [{"type": "integer"}]}, {"prefixItems": [{"type": "number"}]}),
        ({"anyOf": [{"type": "null"}]}, {"anyOf": [{"type": "string"}, {"type": "null"}]}),
        ({"type": "null"}, {"anyOf": [{"type": "string"}, {"type": "null"}]}),
        ({"oneOf": [{"type": "null"}]}, {"oneOf": [{"type": "null"}]}),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"type": "null"}}}, {"type": "null"}),
        ({"type": "null"}, {"$ref": "#/$defs/b", "$defs": {"b": {"type": ["null", "string"]}}}),
        (
            {"not": {"$ref": "#/$defs/a"}, "$defs": {"a": {"type": "null"}}},
            {"not": {"$ref": "#/$defs/b"}, "$defs": {"b": {"type": "null"}}},
        ),
        (
            {"patternProperties": {"^x": {"type": "integer"}}},
            {"patternProperties": {"^x": {"type": "integer"}}},
        ),
    ],
)
def test_nothing_is_broken(old: Any, new: Any) -> None:
    assert found(old, new) == []


@pytest.mark.parametrize(
    ("old", "new", "first"),
    [
        (OBJECT, False, "#: nothing is taken there any more"),
        ({"type": "number"}, {"type": "integer"}, "#: number was taken, and is no more"),
        (True, {"type": "null"}, "#: array, boolean, integer, number, object, string was taken"),
        ({"enum": ["a", "b"]}, {"enum": ["a"]}, "#: not every value that was taken"),
        ({"enum": [1]}, {"enum": [True]}, "#: integer was taken"),
        ({"type": "string"}, {"enum": ["a"]}, "#: not every value that was taken"),
        ({}, {"const": 1}, "#: array"),
        ({"minimum": 1}, {"minimum": 2}, "#: minimum was 1, and is 2"),
        ({}, {"maximum": 2}, "#: maximum was not limited, and is 2"),
        ({"maxItems": 3}, {"maxItems": 2}, "#: maxItems was 3, and is 2"),
        ({}, {"pattern": "a"}, "#: pattern is new or another"),
        ({"format": "date"}, {"format": "time"}, "#: format is new or another"),
        ({}, {"uniqueItems": True}, "#: uniqueItems is new"),
        (OBJECT, {**OBJECT, "required": ["a", "b"]}, "/b: it is required now, and was not"),
        (OBJECT, CLOSED, "/*: nothing is taken there any more"),
        (CLOSED, {**CLOSED, "properties": {}, "required": []}, "/a: nothing is taken there"),
        (OBJECT, with_property(OBJECT, a={"type": "null"}), "/a: string was taken"),
        (
            {"additionalProperties": {"type": "string"}},
            {"properties": {"x": {"type": "null"}}, "additionalProperties": {"type": "string"}},
            "/x: string was taken",
        ),
        (
            {"patternProperties": {"^x": {"type": "null"}}, "additionalProperties": False},
            {"additionalProperties": False},
            "/^x: nothing is taken there",
        ),
        ({"items": {"type": "number"}}, {"items": {"type": "integer"}}, "/-: number was taken"),
        ({"prefixItems": [{}]}, {"prefixItems": [False]}, "/0: nothing is taken there"),
        ({"items": [{}]}, {"items": [{}, False]}, "/1: nothing is taken there"),
        (
            {"anyOf": [{"type": "null"}, {"type": "string"}]},
            {"anyOf": [{"type": "null"}]},
            "#: branch 1 of anyOf is taken by none",
        ),
        ({"oneOf": [{}]}, {"oneOf": [{}, {}]}, "#: oneOf is new or another"),
        (
            {"not": {"$ref": "#/$defs/a"}, "$defs": {"a": {"type": "null"}}},
            {"not": {"$ref": "#/$defs/a"}, "$defs": {"a": {"type": "string"}}},
            "#: not is new or another",
        ),
        (
            {"properties": {"a": {"properties": {"b": {}}}}},
            {"properties": {"a": {"properties": {"b": {"minimum": 1}}}}},
            "/a/b: minimum was not limited, and is 1",
        ),
    ],
)
def test_what_is_broken(old: Any, new: Any, first: str) -> None:
    assert found(old, new)[0].startswith(first)


def test_the_other_rules() -> None:
    wider = {"type": ["integer", "null"]}
    narrower = {"type": "integer"}
    assert found(narrower, wider, "forward") != []
    assert found(wider, narrower, "forward") == []
    assert found(wider, narrower, "full") != []
    assert found(narrower, wider, "full")[0].startswith("for consumers of the version before: #")
    assert found(wider, False, "none") == []


def test_how_much_is_told_and_how_long_it_takes() -> None:
    old: Any = {"properties": {f"p{number}": {} for number in range(500)}}
    new = {"properties": {f"p{number}": False for number in range(500)}}
    assert len(found(old, new)) == BREAKS_MAX
    branches = [{"anyOf": [{"minimum": n * 20 + m} for m in range(20)]} for n in range(30)]
    others = [{"anyOf": [{"minimum": 900 + m} for m in range(20)]} for _ in range(30)]
    before_s = process_time()
    assert found({"anyOf": branches}, {"anyOf": others})
    assert process_time() - before_s < 2
