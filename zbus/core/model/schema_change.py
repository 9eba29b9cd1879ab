"""Whether a version of a schema takes what the one before it took, and where it does not.

Keyword by keyword, along the paths that both have. What cannot be compared that way (an `anyOf` of
other branches, another `pattern`) counts as a break: to be wrong on that side costs a question, and
on the other a consumer. A property that the older version does not name is nothing that it
promised: a new one that is not required breaks nothing, also where unnamed ones were let through.

Tests: `tests/core/model/test_schema_change.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

from zbus.core.model.schema import Schema, canonical, pointer, read_json, resolve

BREAKS_MAX: Final = 10
"""That a refusal names."""

_STEPS_MAX: Final = 20_000

_TYPES: Final = frozenset(("null", "boolean", "object", "array", "number", "integer", "string"))
_LOWER: Final = ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties")
_UPPER: Final = ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties")
_SAME: Final = (
    "multipleOf",
    "pattern",
    "format",
    "contentEncoding",
    "contentMediaType",
    "dependentRequired",
    "minContains",
    "maxContains",
    "allOf",
    "oneOf",
    "not",
    "if",
    "then",
    "else",
    "contains",
    "propertyNames",
    "dependentSchemas",
    "additionalItems",
    "patternProperties",
)
"""Keywords that may go, and may not come or change."""


def breaks(before: Schema, after: Schema) -> list[str]:
    """What the newest version of `after` breaks by its own rule of compatibility, where and how;
    empty = nothing."""
    old, new = read_json(before.newest), read_json(after.newest)
    found: list[str] = []
    if after.compatibility in ("backward", "full"):
        found += islice(_Comparison(old, new).at("", old, new), BREAKS_MAX)
    if after.compatibility in ("forward", "full"):
        changes = islice(_Comparison(new, old).at("", new, old), BREAKS_MAX)
        found += [f"for consumers of the version before: {each}" for each in changes]
    return found[:BREAKS_MAX]


class _Comparison:
    """Of what an older document took with what a newer one takes."""

    def __init__(self, old: object, new: object) -> None:
        self._old, self._new = old, new
        self._refers = "$ref" in repr((old, new))
        self._steps = 0

    def at(self, path: str, old: Any, new: Any) -> Iterator[str]:  # noqa: ANN401  # of JSON
        self._steps += 1
        if self._steps > _STEPS_MAX:  # branches of branches
            yield "the two are too different to be compared"
            return
        old, new = _plain(self._old, old), _plain(self._new, new)
        if new is True or new == {} or old is False:
            return
        here = path or "#"
        if new is False:
            yield f"{here}: nothing is taken there any more"
            return
        old = {} if old is True else old
        yield from self._keywords(here, old, new)
        yield from self._objects(path, old, new)
        yield from self._arrays(path, old, new)

    def _keywords(self, here: str, old: dict[str, Any], new: dict[str, Any]) -> Iterator[str]:
        types, more = _types(old), _types(new)
        if lost := types - more:
            yield f"{here}: {', '.join(sorted(lost))} was taken, and is no more"
        values, kept = _values(old), _values(new)
        if kept is not None and (values is None or any(value not in kept for value in values)):
            yield f"{here}: not every value that was taken is among the new ones"
        for names, sign in ((_LOWER, 1), (_UPPER, -1)):
            for name in names:
                limit, was = new.get(name), old.get(name)
                if limit is not None and (was is None or limit * sign > was * sign):
                    yield f"{here}: {name} was {_said(was)}, and is {limit}"
        for name in _SAME:
            if name in new and not self._same(old.get(name), new[name]):
                yield f"{here}: {name} is new or another"
        if new.get("uniqueItems") and not old.get("uniqueItems"):
            yield f"{here}: uniqueItems is new"
        if "anyOf" in new:
            yield from self._branches(here, old.get("anyOf", [old]), new["anyOf"])

    def _same(self, old: object, new: object) -> bool:
        """Equal, and so is what they refer to."""
        if self._refers:
            old, new = _inlined(self._old, old), _inlined(self._new, new)
        return canonical(old) == canonical(new)

    def _branches(self, here: str, old: list[Any], new: list[Any]) -> Iterator[str]:
        for index, branch in enumerate(old):
            if all(next(self.at("", branch, other), None) for other in new):
                yield f"{here}: branch {index} of anyOf is taken by none of the new ones"

    def _objects(self, path: str, old: dict[str, Any], new: dict[str, Any]) -> Iterator[str]:
        for name in sorted({*new.get("required", ())} - {*old.get("required", ())}):
            yield f"{path}{pointer((name,))}: it is required now, and was not"
        named, names = old.get("properties", {}), new.get("properties", {})
        others, rest = old.get("additionalProperties", True), new.get("additionalProperties", True)
        for name in (*named, *(names if isinstance(others, dict) else ())):
            was, now = named.get(name, others), names.get(name, rest)
            yield from self.at(path + pointer((name,)), was, now)
        for name, schema in old.get("patternProperties", {}).items():
            if name not in new.get("patternProperties", {}):
                yield from self.at(path + pointer((name,)), schema, rest)
        if "object" in _types(old):
            yield from self.at(f"{path}/*", others, rest)

    def _arrays(self, path: str, old: dict[str, Any], new: dict[str, Any]) -> Iterator[str]:
        if "array" not in _types(old):
            return
        first, then = _items(old)
        leading, others = _items(new)
        for index in range(max(len(first), len(leading))):
            was = first[index] if index < len(first) else then
            now = leading[index] if index < len(leading) else others
            yield from self.at(f"{path}/{index}", was, now)
        yield from self.at(f"{path}/-", then, others)


def _plain(document: object, schema: Any) -> Any:  # noqa: ANN401  # of JSON
    """What a reference that stands alone refers to."""
    while isinstance(schema, dict) and "$ref" in schema:
        found: Any = resolve(document, schema["$ref"])
        others = {name: value for name, value in schema.items() if name != "$ref"}
        schema = {**found, **others} if others and isinstance(found, dict) else found
    return schema


def _inlined(document: object, value: Any) -> Any:  # noqa: ANN401  # of JSON
    if isinstance(value, dict):
        value = _plain(document, value)
    if isinstance(value, dict):
        return {name: _inlined(document, each) for name, each in value.items()}
    return [_inlined(document, each) for each in value] if isinstance(value, list) else value


def _types(schema: dict[str, Any]) -> frozenset[str]:
    named = schema.get("type")
    if named is None:
        values = _values(schema)
        return _TYPES if values is None else frozenset([_type_of(value) for _, value in values])
    found = frozenset([named] if isinstance(named, str) else named)
    return found | {"integer"} if "number" in found else found


def _type_of(value: object) -> str:
    kinds = {bool: "boolean", int: "integer", float: "number", str: "string"}
    return kinds.get(type(value), "null")


def _values(schema: dict[str, Any]) -> list[tuple[bool, Any]] | None:
    """The values that it names, if it does. (`True` equals 1 in Python, and not in JSON.)"""
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    return None if values is None else [(type(value) is bool, value) for value in values]


def _items(schema: dict[str, Any]) -> tuple[list[Any], Any]:
    """Of an array: the schemas of its first items, and that of the others."""
    items = schema.get("items", True)
    if isinstance(items, list):
        return items, schema.get("additionalItems", True)
    return schema.get("prefixItems", []), items


def _said(value: object) -> str:
    return "not limited" if value is None else str(value)
