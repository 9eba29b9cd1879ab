"""Schemas of topics: which are taken, what they say of bodies, and that no check has no bound."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import pairwise
from time import process_time
from typing import Any

import pytest

from zbus.core.model import schema as schemas
from zbus.core.model.errors import Refusal
from zbus.core.model.schema import Check, Misfit, Schema, check_of, compiled, moved

ORDER = {
    "type": "object",
    "required": ["item", "price"],
    "properties": {
        "item": {"type": "string", "minLength": 1, "pattern": "^[a-z ]+$"},
        "price": {"type": "number", "minimum": 0},
        "tags": {"type": "array", "items": {"$ref": "#/$defs/tag"}, "uniqueItems": True},
        "made": {"type": "string", "format": "date-time"},
        "a/b": {"enum": [1, None]},
    },
    "$defs": {"tag": {"type": "string", "maxLength": 5}},
    "additionalProperties": False,
}


def check(schema: Any) -> Check:
    return compiled(json.dumps(schema))


@pytest.mark.parametrize(
    "body",
    [
        b'{"item":"chair","price":20}',
        b' {"price":2.5e1,"item":"two chairs","tags":["a","b"],"a/b":null} ',
        b'{"item":"c","price":1,"made":"2026-01-01T00:00:00Z","a/b":1}',
        b'{"item":"c","price":99999999999999999999999999}',
    ],
)
def test_bodies_that_fit(body: bytes) -> None:
    assert check(ORDER).problem(body) is None


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b"", "is no JSON"),
        (b"two chairs", "is no JSON"),
        (b"\xff\xfe", "is no JSON"),
        (b"\x1f\x8b\x08", "is no JSON"),  # of a compressed body
        (b'{"item":"c","price":NaN}', "is no JSON"),
        (b'{"item":"c","price":1e999}', "is no JSON"),
        (b'{"item":"c","price":1} x', "is no JSON"),
        (b"[" * 100_000 + b"]" * 100_000, "is no JSON"),
        (b"[]", 'topic: [] is not of type "object"'),
        (b'{"item":"c"}', 'topic: "price" is a required property'),
        (b'{"item":"c","price":"1"}', 'topic: /price: "1" is not of type "number"'),
        (b'{"item":"c","price":true}', "topic: /price: "),
        (b'{"item":"c","price":-1}', "topic: /price: "),
        (b'{"item":"","price":1}', "topic: /item: "),
        (b'{"item":"C","price":1}', "topic: /item: "),
        (b'{"item":"c","price":1,"tags":["a","a"]}', "topic: /tags: "),
        (b'{"item":"c","price":1,"tags":["a","abcdef"]}', "topic: /tags/1: "),
        (b'{"item":"c","price":1,"made":"yesterday"}', "topic: /made: "),
        (b'{"item":"c","price":1,"a/b":true}', "topic: /a~1b: "),
        (b'{"item":"c","price":1,"more":1}', "topic: Additional properties"),
    ],
)
def test_bodies_that_do_not_fit(body: bytes, problem: str) -> None:
    found = check(ORDER).problem(body)
    assert found is not None
    assert problem in found
    assert len(found) < 700


def test_bodies_that_are_deep() -> None:
    """The library looks at 255 levels; what is deeper is refused where it is looked at."""
    deep = b"[" * 300 + b"]" * 300
    found = check({"items": {"items": {"enum": [1]}}}).problem(deep)
    assert found is not None
    assert check({"uniqueItems": True}).problem(b"[" + deep + b"," + deep + b"]") is not None


def test_of_a_batch_it_is_said_which() -> None:
    whole = check({"type": "integer"})
    assert whole.problem_of([b"1", b"2"]) is None
    found = whole.problem_of([b"1", b"2", b'"x"'])
    assert found is not None
    assert found.refusal is Refusal.UNFIT
    assert found.text.startswith("message 2: the body does not fit")
    alone = whole.problem_of([b'"x"'])
    assert alone is not None
    assert alone.text.startswith("the body does not fit")


def nested(levels: int) -> Any:
    found: Any = {}
    for _ in range(levels):
        found = {"items": found}
    return found


def doubled(levels: int) -> Any:
    """Its check would take two to the power of `levels`."""
    names = [f"a{number}" for number in range(levels)]
    rest = {name: {"allOf": [{"$ref": f"#/$defs/{after}"}] * 2} for name, after in pairwise(names)}
    return {"$defs": {**rest, names[-1]: {}}, "$ref": "#/$defs/a0"}


BAD: list[tuple[Any, str]] = [
    (7, "a schema is an object, true or false"),
    ([], "a schema is an object, true or false"),
    ({"type": "text"}, "/type: "),
    ({"minimum": "1"}, "/minimum: "),
    ({"properties": {"a": 7}}, "/properties/a: "),
    ({"properties": {"a": {"type": "text"}}}, "/properties/a/type"),
    ({"items": [7]}, "/items/0: "),
    ({"required": "a"}, "/required: "),
    ({"$schema": "http://json-schema.org/draft-04/schema#"}, "/$schema: "),
    ({"$schema": "http://example.com/mine"}, "/$schema: "),
    ({"$schema": 7}, "/$schema: "),
    # Elsewhere.
    ({"$ref": "http://example.com/order.json"}, "/$ref: it stays within the schema"),
    ({"$ref": "https://example.com/#/a"}, "/$ref: it stays within the schema"),
    ({"$ref": "file:///etc/passwd"}, "/$ref: it stays within the schema"),
    ({"$ref": "order.json"}, "/$ref: it stays within the schema"),
    ({"$ref": "#order"}, "/$ref: it stays within the schema"),
    ({"$ref": 7}, "/$ref: it stays within the schema"),
    ({"properties": {"a/b": {"$ref": "//host/x"}}}, "/properties/a~1b/$ref: it stays"),
    ({"$id": "http://a/b", "items": {"$id": "http://c/d"}}, "/items/$id: only"),
    ({"$dynamicRef": "#a"}, "/$dynamicRef: this keyword is not taken"),
    ({"$anchor": "a"}, "/$anchor: this keyword is not taken"),
    ({"$ref": "#/$defs/a"}, "/$ref: there is nothing at #/$defs/a"),
    ({"$ref": "#/allOf/7", "allOf": [{}]}, "/$ref: there is nothing at"),
    ({"$ref": "#/allOf/x", "allOf": [{}]}, "/$ref: there is nothing at"),
    ({"$ref": "#/title/a", "title": "a"}, "/$ref: there is nothing at"),
    # Without a bound, or with one that is too high.
    ({"$ref": "#"}, "it refers to itself"),
    ({"properties": {"left": {"$ref": "#"}}}, "it refers to itself"),
    ({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}, "it refers to itself"),
    ({"unevaluatedProperties": False}, "/unevaluatedProperties: this keyword is not taken"),
    ({"dependencies": {"a": ["b"]}}, "/dependencies: this keyword is not taken"),
    (nested(40), "nested more than 32 deep"),
    (doubled(14), "it has a weight of"),
    (doubled(40), "nested more than 32 deep"),
    ({"enum": list(range(3_000))}, "it has a weight of"),
    ({"properties": {f"p{number}": {} for number in range(1_000)}} | {"allOf": [{}] * 1_001}, "it"),
    ({"anyOf": [{"type": "string"}] * 1_500}, "it has a weight of"),
    ({"required": [f"p{number}" for number in range(3_000)]}, "it has a weight of"),
    ({"allOf": [{"uniqueItems": True}] * 50}, "it has a weight of"),
    ({"enum": [{"a": 1}]}, "values of enum and const are no"),
    ({"const": [1]}, "values of enum and const are no"),
    ({"format": "regex"}, "/format: regex is not taken"),
    ({"description": "x" * 70_000}, "at most 65536 bytes"),
    ({"properties": {"x" * 60_000: {"properties": {"y": 7}}}}, "a schema is an object"),
    # Patterns that backtrack are none of this engine, and large ones take memory.
    ({"pattern": "(?=a)b"}, "without look-around"),
    ({"pattern": "(a)\\1"}, "without look-around"),
    ({"pattern": "("}, "without look-around"),
    ({"pattern": "a{1000}{1000}"}, "without look-around"),
    ({"patternProperties": {"(?!x)": {}}}, "without look-around"),
]


@pytest.mark.parametrize(("schema", "problem"), BAD)
def test_schemas_that_are_refused(schema: Any, problem: str) -> None:
    with pytest.raises(Misfit) as caught:
        check(schema)
    assert problem in str(caught.value)
    assert len(str(caught.value)) < 1_000


@pytest.mark.parametrize(
    "text",
    [
        '{"title":"\\ud800"}',
        '{"default":' + "[" * 400 + "]" * 400 + "}",
        "",
        "{",
        "nul",
        "[" * 50_000,
        '{"a":1}}',
        "\ud800",
    ],
)
def test_texts_that_are_no_json(text: str) -> None:
    with pytest.raises((Misfit, UnicodeEncodeError)):
        compiled(text)


@pytest.mark.parametrize(
    "schema",
    [
        True,
        False,
        {},
        {"$schema": "http://json-schema.org/draft-07/schema#", "items": [{}, {"type": "null"}]},
        {"$schema": "https://json-schema.org/draft/2019-09/schema", "$id": "urn:order"},
        {"$schema": "https://json-schema.org/draft/2020-12/schema", "prefixItems": [{}]},
        {"properties": {"$ref": {"type": "string"}, "$id": {}, "format": {"const": "regex"}}},
        {"enum": ["http://example.com", None, 1.5, True]},
        {"$defs": {"a b": {"type": "null"}}, "items": {"$ref": "#/$defs/a%20b"}},
        {"$defs": {"a/b": {"type": "null"}}, "items": {"$ref": "#/$defs/a~1b"}},
        {"examples": [{"$ref": "http://example.com"}], "default": {"$ref": 1}},
        {"enum": list(range(1_900))},
        {"pattern": "^(a+)+$"},
        {"format": "int64"},
        doubled(6),
        ORDER,
    ],
)
def test_schemas_that_are_taken(schema: Any) -> None:
    assert check(schema).weight <= schemas.WEIGHT_MAX


HOSTILE: list[tuple[Any, bytes]] = [
    ({"pattern": "^(a+)+$"}, b'"' + b"a" * 1_000_000 + b'!"'),
    ({"pattern": "(x+x+)+y"}, b'"' + b"x" * 1_000_000 + b'"'),
    ({"pattern": "^[ab]*a[ab]{60}$"}, b'"' + b"ab" * 500_000 + b'"'),
    ({"uniqueItems": True}, b"[" + b",".join(b"[%d]" % n for n in range(150_000)) + b"]"),
    ({"items": {"enum": list(range(1_500))}}, b"[" + b",".join([b"5000"] * 10_000) + b"]"),
    (
        {"items": {"anyOf": [{"minLength": n, "maxLength": n} for n in range(300, 600)]}},
        b"[" + b",".join([b'"aaaa"'] * 9_000) + b"]",
    ),
    (
        {
            "items": {
                "anyOf": [
                    {"properties": {"a": {"const": n}}, "required": ["a"]} for n in range(150)
                ]
            }
        },
        b"[" + b",".join([b'{"a":-1}'] * 9_000) + b"]",
    ),
    ({"items": {"format": "idn-hostname"}}, b"[" + b",".join([b'"xn--11"'] * 90_000) + b"]"),
    (doubled(6), b"[" + b"1," * 100_000 + b"1]"),
]


@pytest.mark.parametrize(("schema", "body"), HOSTILE)
def test_no_check_takes_long(schema: Any, body: bytes) -> None:
    """It ends within the bound, or the body is refused unread. (The bound is half a second where it
    was measured; a test machine may be four times as slow.)"""
    whole = check(schema)
    before_s = process_time()
    found = whole.problem_of([body])
    assert process_time() - before_s < 2
    assert found is None or found.refusal in (Refusal.UNFIT, Refusal.TOO_LARGE)


def test_more_than_can_be_checked_at_once() -> None:
    whole = check({"enum": list(range(1_900))})
    most = schemas.WORK_MAX // whole.weight
    body = b'"' + b"x" * (most - 2) + b'"'
    small = whole.problem_of([body])
    assert small is not None
    assert small.refusal is Refusal.UNFIT
    large = whole.problem_of([body, b"1"])
    assert large is not None
    assert large.refusal is Refusal.TOO_LARGE
    assert f"{most} bytes" in large.text


def test_a_broker_without_schemas_does_not_import_the_library() -> None:
    """It takes 50 ms, and 15 MB on the disk."""
    code = "import sys, zbus.server.process.serve; print('jsonschema_rs' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "False\n"


def test_versions() -> None:
    one = Schema(('{"type":"integer"}',))
    assert (one.number, one.first, one.newest) == (1, 1, '{"type":"integer"}')
    assert one.with_version('{ "type": "integer" }') is one, "it says the same"
    two = one.with_version('{"type":"number"}')
    assert (two.number, two.first, two.newest) == (2, 1, '{"type":"number"}')


def test_the_oldest_versions_are_forgotten() -> None:
    many = Schema(("0",))
    for number in range(1, 30):
        many = many.with_version(str(number))
    assert (many.number, many.first, len(many.versions)) == (30, 11, schemas.VERSIONS_MAX)
    large = Schema(("0",))
    for number in range(10):
        large = large.with_version(json.dumps(f"{number}" + "x" * 60_000))
    assert sum(map(len, large.versions)) <= schemas.VERSIONS_BYTES_MAX
    assert large.first > 1


def test_a_stored_schema_that_does_not_compile_any_more_fits_nothing() -> None:
    broken = check_of(Schema(('{"type":"text"}',)))
    assert broken is not None
    found = broken.problem(b"1")
    assert found is not None
    assert "does not compile any more" in found
    assert check_of(None) is None


def test_a_schema_within_another_document() -> None:
    own = {
        "$ref": "#/$defs/a",
        "$defs": {"a": {"items": {"$ref": "#/$defs/b"}}, "b": True},
        "properties": {"$ref": {"enum": ["#/$defs/b"]}},
        "anyOf": [{"$ref": "#/$defs/b"}, False],
        "not": {"$ref": "#/$defs/b"},
    }
    assert moved(own, "/x/y") == {
        "$ref": "#/x/y/$defs/a",
        "$defs": {"a": {"items": {"$ref": "#/x/y/$defs/b"}}, "b": True},
        "properties": {"$ref": {"enum": ["#/$defs/b"]}},
        "anyOf": [{"$ref": "#/x/y/$defs/b"}, False],
        "not": {"$ref": "#/x/y/$defs/b"},
    }
