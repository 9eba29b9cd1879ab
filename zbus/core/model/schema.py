"""The JSON Schema of a topic: its versions, and the check of a body against the newest.

Who declares a schema is not trusted, and who puts is not either. So a schema is looked through
before the library compiles it, and has to be one whose check takes a time that is known before:
small, without a reference to elsewhere, to itself or by a name that only a run resolves, with
patterns that cannot backtrack. Then a check costs no more than the *weight* of the schema times the
length of the body, and a body that would be over `WORK_MAX` is refused unread.

The library is imported with the first schema: a broker without one neither waits nor pays for it.

Tests: `tests/core/model/test_schema.py`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any, Final
from urllib.parse import unquote

import attrs
import msgspec

from zbus.core.model.errors import BrokerError, Refusal

SCHEMA_BYTES_MAX: Final = 64 << 10
VERSIONS_MAX: Final = 20
"""That are kept; the oldest are forgotten."""
VERSIONS_BYTES_MAX: Final = 256 << 10
"""Of all that are kept: every checkpoint of a partition has them."""
DEPTH_MAX: Final = 32
"""Of subschemas in each other, those that `$ref` brings included."""
WEIGHT_MAX: Final = 2_000
WORK_MAX: Final = 100_000_000
"""Weight times bytes: about half a second at worst, and that only for what was made for it."""

COMPATIBILITIES: Final = ("backward", "forward", "full", "none")

_SLOW: Final = 50
"""The weight of what looks at every byte of a text or at every pair of items, instead of 1."""
_PATTERN_MEMORY_BYTES: Final = 256 << 10
_SHOWN_MAX: Final = 300
"""Characters of a reason."""

_DRAFTS: Final = {
    "json-schema.org/draft-07/schema": "Draft7Validator",
    "json-schema.org/draft/2019-09/schema": "Draft201909Validator",
    "json-schema.org/draft/2020-12/schema": "Draft202012Validator",
}
"""By what `$schema` is behind its scheme."""
_NEWEST: Final = "Draft202012Validator"

ONE: Final = (
    "additionalItems",
    "additionalProperties",
    "contains",
    "else",
    "if",
    "items",
    "not",
    "propertyNames",
    "then",
)
"""Keywords whose value is a schema; `items` of draft 7 may be a list of them."""
MANY: Final = ("allOf", "anyOf", "oneOf", "prefixItems")
NAMED: Final = ("$defs", "definitions", "dependentSchemas", "patternProperties", "properties")
_REFUSED: Final = {
    **dict.fromkeys(
        ("$anchor", "$dynamicAnchor", "$dynamicRef", "$recursiveAnchor", "$recursiveRef"),
        "use $ref with a JSON pointer such as #/$defs/address",
    ),
    **dict.fromkeys(
        ("unevaluatedItems", "unevaluatedProperties"),
        "its check may take any time; use additionalProperties or items",
    ),
    "dependencies": "use dependentRequired or dependentSchemas",
    "$vocabulary": "use no vocabulary of your own",
}


@attrs.frozen
class Schema:
    """Stored with the options of its topic."""

    versions: tuple[str, ...]  # JSON; the newest is the last, and the oldest may be forgotten
    number: int = 1  # of the newest, from 1
    compatibility: str = COMPATIBILITIES[0]  # of a version with the one before it

    @property
    def newest(self) -> str:
        return self.versions[-1]

    @property
    def first(self) -> int:
        """The number of the oldest version that is kept."""
        return self.number - len(self.versions) + 1

    def with_version(self, text: str) -> Schema:
        """With one more, unless it says what the newest does."""
        if canonical(read_json(text)) == canonical(read_json(self.newest)):
            return self
        versions = (*self.versions, text)[-VERSIONS_MAX:]
        while sum(map(len, versions)) > VERSIONS_BYTES_MAX:
            versions = versions[1:]
        return attrs.evolve(self, versions=versions, number=self.number + 1)


class Misfit(Exception):
    """A schema that cannot be one of a topic; the text says why, and where in it."""

    def __init__(self, text: str) -> None:
        super().__init__(text if len(text) <= 500 else f"{text[:150]}…{text[-300:]}")


def read_json(text: str) -> Any:  # noqa: ANN401  # whatever JSON holds
    return msgspec.json.decode(text)


def canonical(value: object) -> str:
    """Equal for what is equal as JSON. (In Python `True` equals 1.)"""
    return json.dumps(value, sort_keys=True)


class Check:
    """A schema, compiled."""

    __slots__ = ("_is_valid", "_validate", "weight")

    def __init__(
        self, weight: int, is_valid: Callable[[Any], bool], validate: Callable[[Any], object]
    ) -> None:
        self.weight = weight
        self._is_valid = is_valid
        self._validate = validate

    def problem(self, body: bytes) -> str | None:
        """What is wrong with a body, in one sentence with the path of the fault; None: it fits."""
        try:
            value = msgspec.json.decode(body)
        except (ValueError, RecursionError) as error:
            return f"the body is no JSON: {error}"
        try:
            if self._is_valid(value):
                return None
            self._validate(value)
        except ValueError as error:
            path = getattr(error, "instance_path", None)
            if path is None:  # the library goes 255 levels deep
                return f"the body cannot be checked: {error}"
            text: str = error.message  # type: ignore[attr-defined]  # the library's own error
            where = f"{pointer(path)}: " if path else ""
            return f"the body does not fit the schema of the topic: {where}{_short(text)}"
        return None

    def problem_of(self, bodies: Sequence[bytes]) -> BrokerError | None:
        """Why these are refused, as a whole: UNFIT or TOO_LARGE. Of several it is said which one,
        counted from 0."""
        most = WORK_MAX // self.weight
        if sum(map(len, bodies)) > most:
            text = f"by the schema of this topic {most} bytes can be checked at once: send less"
            return BrokerError(Refusal.TOO_LARGE, text)
        for index, body in enumerate(bodies):
            if (problem := self.problem(body)) is not None:
                which = f"message {index}: " if len(bodies) > 1 else ""
                return BrokerError(Refusal.UNFIT, f"{which}{problem}")
        return None


def check_of(schema: Schema | None) -> Check | None:
    """The check of a topic's newest version. One that was stored and does not compile any more,
    with another release of the library, fits nothing."""
    if schema is None:
        return None
    try:
        return compiled(schema.newest)
    except Misfit as error:
        text = str(error)

        def refuse(_: object) -> bool:
            raise ValueError(f"its schema does not compile any more: {text}")

        return Check(1, refuse, refuse)


@lru_cache(maxsize=64)  # the topics of one kind share it
def compiled(text: str) -> Check:
    """Compile a schema. Raises Misfit."""
    if len(text.encode()) > SCHEMA_BYTES_MAX:
        raise Misfit(f"a schema has at most {SCHEMA_BYTES_MAX} bytes")
    try:
        document = read_json(text)
        msgspec.json.encode(document)  # as others will who show it
    except (ValueError, RecursionError) as error:
        raise Misfit(f"it is no JSON: {error}") from None
    except OverflowError:  # of an older msgspec
        raise Misfit("its whole numbers have at most 64 bits") from None
    draft = _draft_of(document)
    weight = _Weighing(document).weight
    if weight > WEIGHT_MAX:
        raise Misfit(f"it has a weight of {weight}, of at most {WEIGHT_MAX}: check less")
    import jsonschema_rs as library  # not before there is a schema: it takes 50 ms

    try:
        validator = getattr(library, draft)(
            document,
            pattern_options=library.RegexOptions(size_limit=_PATTERN_MEMORY_BYTES),
            validate_formats=True,
            offline=True,
        )
    except ValueError as error:
        path = pointer(getattr(error, "instance_path", ()))
        reason = _short(getattr(error, "message", str(error)))
        if '"regex"' in reason:
            reason += " (without look-around and back-references, and not too large)"
        raise Misfit(f"{path or '#'}: {reason}") from None
    return Check(weight, validator.is_valid, validator.validate)


def _draft_of(document: object) -> str:
    named = document.get("$schema", "") if isinstance(document, dict) else ""
    if not named:
        return _NEWEST
    address = named.partition("://")[2] if isinstance(named, str) else ""
    draft = _DRAFTS.get(address.rstrip("#"))
    if draft is None:
        raise Misfit("/$schema: it is draft 7, 2019-09 or 2020-12, by its usual address")
    return draft


class _Weighing:
    """What the check of a schema costs: one for each keyword, and more for what is slow. What
    `$ref` brings counts each time. Raises Misfit for what has no bound."""

    def __init__(self, document: object) -> None:
        self._document = document
        self._known: dict[int, tuple[int, int]] = {}  # by identity: weight and height
        self._above: set[int] = set()
        self.weight, _ = self._of(document, "")

    def _of(self, schema: object, at: str) -> tuple[int, int]:
        if isinstance(schema, bool):
            return 1, 1
        if not isinstance(schema, dict):
            raise Misfit(f"{at or '#'}: a schema is an object, true or false")
        key = id(schema)
        if key in self._above:
            raise Misfit(f"{at}: it refers to itself, so its check has no bound")
        known = self._known.get(key)
        if known is None:
            self._above.add(key)
            if len(self._above) > DEPTH_MAX:
                raise Misfit(f"{at}: subschemas are nested more than {DEPTH_MAX} deep")
            weight, height = self._own(schema, at), 0
            for child, path in children(schema, at):
                more, deep = self._of(child, path)
                weight, height = weight + more, max(height, deep)
            if "$ref" in schema:
                more, deep = self._of(self._target(schema["$ref"], at), f"{at}/$ref")
                weight, height = weight + more, max(height, deep)
            self._above.remove(key)
            known = self._known[key] = weight, height + 1
        if len(self._above) + known[1] > DEPTH_MAX:
            raise Misfit(f"{at}: subschemas are nested more than {DEPTH_MAX} deep")
        return known

    def _own(self, schema: dict[str, Any], at: str) -> int:
        for name, instead in _REFUSED.items():
            if name in schema:
                raise Misfit(f"{at}/{name}: this keyword is not taken; {instead}")
        if "$id" in schema and at:
            raise Misfit(f"{at}/$id: only the schema as a whole may have one")
        if schema.get("format") == "regex":
            raise Misfit(f"{at}/format: regex is not taken")
        weight = len(schema)
        named = schema.get("enum", ())
        for value in (*(named if isinstance(named, list) else ()), schema.get("const")):
            if isinstance(value, (dict, list)):
                raise Misfit(f"{at}: values of enum and const are no objects and no arrays")
            weight += 1
        required = schema.get("required", ())
        weight += len(required) if isinstance(required, list) else 0
        slow = len(schema.get("patternProperties", ()) or ())
        slow += sum([schema.get(name) not in (None, False) for name in ("pattern", "uniqueItems")])
        return weight + _SLOW * slow

    def _target(self, ref: object, at: str) -> object:
        if not isinstance(ref, str) or not (ref == "#" or ref.startswith("#/")):
            raise Misfit(f"{at}/$ref: it stays within the schema, with # and a JSON pointer")
        found = resolve(self._document, ref)
        if found is None:
            raise Misfit(f"{at}/$ref: there is nothing at {_short(ref)}")
        return found


def children(schema: dict[str, Any], at: str) -> Iterator[tuple[object, str]]:
    """The subschemas of a schema, and where they are; none of those that `$ref` brings."""
    for name in ONE:
        if isinstance(value := schema.get(name), list):
            yield from ((each, f"{at}/{name}/{index}") for index, each in enumerate(value))
        elif name in schema:
            yield value, f"{at}/{name}"
    for name in MANY:
        if isinstance(value := schema.get(name), list):
            yield from ((each, f"{at}/{name}/{index}") for index, each in enumerate(value))
    for name in NAMED:
        if isinstance(value := schema.get(name), dict):
            yield from ((each, f"{at}/{name}{pointer((key,))}") for key, each in value.items())


def resolve(document: object, ref: str) -> object | None:
    """What is at a reference such as `#/$defs/address`; None: nothing."""
    found = document
    for part in unquote(ref[1:]).split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(found, dict):
            found = found.get(name)
        elif isinstance(found, list) and name.isascii() and name.isdigit() and len(name) < 6:
            found = found[int(name)] if int(name) < len(found) else None
        else:
            return None
    return found


def pointer(path: Sequence[str | int]) -> str:
    """A JSON pointer (RFC 6901); empty for the whole."""
    return _short("".join([f"/{str(part).replace('~', '~0').replace('/', '~1')}" for part in path]))


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}…"


def moved(schema: Any, place: str) -> Any:  # noqa: ANN401  # of JSON
    """A schema as it is part of another document, at this JSON pointer: references follow it."""
    if not isinstance(schema, dict):
        return schema
    result = dict(schema)
    for name in ONE + MANY:
        if isinstance(value := schema.get(name), list):
            result[name] = [moved(each, place) for each in value]
        elif name in schema:
            result[name] = moved(value, place)
    for name in NAMED:
        if isinstance(value := schema.get(name), dict):
            result[name] = {key: moved(each, place) for key, each in value.items()}
    if isinstance(ref := schema.get("$ref"), str):
        result["$ref"] = f"#{place}{ref[1:]}"
    return result
