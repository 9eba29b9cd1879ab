"""What a message has to be like to be found. All that is said has to be true of it.

Values are values: none is ever made a part of a text that something runs. Only `where` is SQL,
written by who searches, and only Spark understands it.
"""

from __future__ import annotations

from typing import Final

import attrs
import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from zbus.spark.commands import Ranged, option
from zbus.spark.errors import Usage
from zbus.spark.search.cursor import Cursor
from zbus.spark.search.json_path import JsonPath, read_path
from zbus.spark.times import between_ms

PATTERN_BYTES_MAX: Final = 10_000
"""Of a regular expression."""


@attrs.frozen(kw_only=True)
class JsonTest:
    """There is something at `path`; with `equals`, that is this. See `json_path`."""

    path: JsonPath
    equals: str | None = None


@attrs.frozen(kw_only=True)
class Conditions:
    """It travels to other machines. What may be said several times, as a tuple, is
    true if one of the values is; of `headers`, `contains` and `json` all have to be."""

    ids: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    tag_filter: str = ""
    since_ms: int | None = None
    until_ms: int | None = None  # before it
    headers: tuple[tuple[str, str], ...] = ()  # names in lower case
    contains: tuple[bytes, ...] = ()
    regex: str | None = None
    json: tuple[JsonTest, ...] = ()
    where: str | None = None
    after: Cursor | None = None

    @property
    def is_look_up(self) -> bool:
        """It is about one id, or one key: little is read."""
        return len(self.ids) == 1 or len(self.keys) == 1


@attrs.frozen(kw_only=True)
class Wanted(Ranged):
    """The conditions, as a user writes them."""

    ids: tuple[str, ...] = option("--id ID", "One of these ids.", default=())
    keys: tuple[str, ...] = option("--key KEY", "One of these keys.", default=())
    tags: tuple[str, ...] = option("--tag TAG", "One of these tags.", default=())
    tag_filter: str = option(
        "--tag-filter FILTER", "A filter as groups have them: eu.*;us.#", default=""
    )
    headers: tuple[str, ...] = option(
        "--header NAME=VALUE", "With this header, and each of them.", default=()
    )
    contains: tuple[str, ...] = option(
        "--contains TEXT", "With this in the body, and each of them.", default=()
    )
    regex: str | None = option("--regex RE", "Some of the body's text matches: RE2's expressions.")
    json_paths: tuple[str, ...] = option(
        "--json-path PATH",
        "The body is JSON and has something there: $.order.lines[0].sku",
        default=(),
    )
    equals: tuple[str, ...] = option(
        "--equals VALUE",
        "And it is this: one for each --json-path, in the same order.",
        default=(),
    )
    where: str | None = option(
        "--where SQL", 'Spark\'s SQL over the columns: "partition = 1 AND offset % 2 = 0"'
    )
    after: str | None = option("--after CURSOR", "The next page: what the last one ended with.")

    def read(self, now_ms: int | None = None) -> Conditions:
        """Raises Usage."""
        since_ms, until_ms = between_ms(self.since, self.until, now_ms)
        return Conditions(
            ids=self.ids,
            keys=self.keys,
            tags=self.tags,
            tag_filter=self.tag_filter,
            since_ms=since_ms,
            until_ms=until_ms,
            headers=tuple(_header(each) for each in self.headers),
            contains=tuple(_bytes(each, "--contains") for each in self.contains),
            regex=None if self.regex is None else _pattern(self.regex),
            json=_json_tests(self.json_paths, self.equals),
            where=self.where,
            after=None if self.after is None else Cursor.decode(self.after),
        )


def _header(text: str) -> tuple[str, str]:
    name, equal, value = text.partition("=")
    if not equal or not name:
        raise Usage(f"--header {text[:40]}: it is name=value")
    return name.lower(), value


def _bytes(text: str, option: str) -> bytes:
    found = text.encode("utf-8", "surrogateescape")  # as it came from the command line
    if not found:
        raise Usage(f"{option}: it is empty, which everything contains")
    return found


def _pattern(text: str) -> str:
    if len(text.encode("utf-8", "surrogatepass")) > PATTERN_BYTES_MAX:
        raise Usage(f"--regex: it has more than {PATTERN_BYTES_MAX} bytes")
    try:
        pc.match_substring_regex(pa.array([""]), text)
    except (pa.ArrowException, UnicodeEncodeError) as error:
        raise Usage(
            f"--regex: {error}; it is written as RE2 has it, without (?=…) or \\1"
        ) from None
    return text


def _json_tests(paths: tuple[str, ...], equals: tuple[str, ...]) -> tuple[JsonTest, ...]:
    if equals and len(equals) != len(paths):
        counts = f"{len(paths)} --json-path and {len(equals)} --equals"
        raise Usage(f"there are {counts}: an --equals belongs to each --json-path, or to none")
    values: tuple[str | None, ...] = equals or (None,) * len(paths)
    return tuple(
        JsonTest(path=read_path(path), equals=value)
        for path, value in zip(paths, values, strict=True)
    )


def describe(conditions: Conditions) -> str:
    """For people, in one line."""
    shown = msgspec.json.decode(msgspec.json.encode(_document(conditions)))
    return ", ".join(f"{name} {value}" for name, value in shown.items()) or "all messages"


def _document(conditions: Conditions) -> dict[str, object]:
    found: dict[str, object] = {}
    for field in attrs.fields(Conditions):
        value = getattr(conditions, field.name)
        if value not in (None, (), ""):
            found[field.name] = value if isinstance(value, int | str) else repr(value)
    return found
