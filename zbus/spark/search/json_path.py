"""Paths into JSON: `$.a.b[0]['c d'][*]`, and whether a body has something there.

`.name` and `['name']` are a member of an object, `[0]` is an element of an array, from its end if
it is negative, `[*]` any of them. A body that is no JSON has nothing anywhere.

What is there equals a text if it is that text; if it is no text, the text is read as JSON and has
to be the same value: `5` is 5, 5.0 and "5", `true` is true and "true", `[1, 2]` is that array.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from zbus.spark.errors import Usage

JsonPath = tuple[str | int | None, ...]
"""Members, elements; None is any element."""

STEPS_MAX: Final = 100
_STEP: Final = re.compile(
    r"""\.(?P<name>[^.\[\]'"\s]+)
    | \[\s*(?:(?P<index>-?[0-9]{1,9}) | (?P<any>\*)
        | '(?P<single>(?:[^'\\]|\\.)*)' | "(?P<double>(?:[^"\\]|\\.)*)")\s*\]""",
    re.VERBOSE,
)
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)
_NO_JSON: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def read_path(text: str) -> JsonPath:
    """Raises Usage."""
    steps: list[str | int | None] = []
    at = 1
    while at < len(text) and text.startswith("$") and len(steps) <= STEPS_MAX:
        found = _STEP.match(text, at)
        if found is None:
            break
        at = found.end()
        quoted = found["single"] if found["single"] is not None else found["double"]
        if found["index"] is not None:
            steps.append(int(found["index"]))
        elif found["any"]:
            steps.append(None)
        else:
            steps.append(found["name"] or _ESCAPED.sub(r"\1", quoted))
    if not text.startswith("$") or at < len(text) or len(steps) > STEPS_MAX:
        raise Usage(
            f"--json-path {text[:60]}: it is like $.order.lines[0]['unit price'] or $.a[*].b"
        )
    return tuple(steps)


def values_at(document: Any, path: JsonPath, at: int = 0) -> Iterator[Any]:  # noqa: ANN401 - JSON
    """What is there."""
    while at < len(path):
        step = path[at]
        at += 1
        if step is None:
            if isinstance(document, list):
                for each in document:
                    yield from values_at(each, path, at)
            return
        if isinstance(step, str):
            if not isinstance(document, dict) or step not in document:
                return
            document = document[step]
        else:
            if not isinstance(document, list) or not -len(document) <= step < len(document):
                return
            document = document[step]
    yield document


class Matcher:
    """Whether bodies have something at a path, or something that equals a text."""

    def __init__(self, path: JsonPath, equals: str | None) -> None:
        self._path = path
        self._equals = equals
        try:
            self._value = _comparable(msgspec.json.decode(equals)) if equals is not None else None
        except (*_NO_JSON, UnicodeEncodeError):
            self._value = None  # it can equal texts only
            self._is_json = False
        else:
            self._is_json = True

    def __call__(self, body: bytes | None) -> bool:
        try:
            document = msgspec.json.decode(body) if body else _NOTHING
        except _NO_JSON:
            return False
        if document is _NOTHING:
            return False
        return any(self._fits(value) for value in values_at(document, self._path))

    def _fits(self, value: Any) -> bool:  # noqa: ANN401 - JSON
        if self._equals is None:
            return True
        if isinstance(value, str):
            return value == self._equals
        return self._is_json and _comparable(value) == self._value


_NOTHING: Final = object()


def _comparable(value: Any) -> Any:  # noqa: ANN401 - JSON
    """With true and 1 told apart, at any depth."""
    if isinstance(value, bool):
        return (value,)
    if isinstance(value, list):
        return [_comparable(each) for each in value]
    if isinstance(value, dict):
        return {name: _comparable(each) for name, each in value.items()}
    return value
