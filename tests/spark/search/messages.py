"""What is searched in these tests: some hundred messages with all sorts of values, and conditions
with what they mean in plain Python."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from random import Random
from typing import Any

from tests.spark.stored import TIME_MS, MemoryLog
from zbus.core.model.filters import compile_filter
from zbus.spark.search.conditions import Conditions, Wanted

BODIES = [
    b"",
    b'{"a": {"b": [1, 2, {"c d": "x"}]}, "n": 5, "t": true}',
    b'{"a": {"b": "5"}, "n": 5.0}',
    b'{"n": "5", "t": "true", "u": "\\u00e4"}',
    b'{"n": null, "t": 1, "n": 6}',
    b'[{"n": 1}, {"n": 2}]',
    b'{"n": 12345678901234567890123, "e": 1e2}',
    b'{"broken": ',
    b'{"bad": "\xff"}',
    b"5",
    b"\xff\xfe\x00binary\x00",
    "größe 10 €\nsecond line\r\n".encode(),
    b"' OR 1=1 --",
    b"a" * 60 + b"!",
    b"x" * 3_000 + b"needle" + b"y" * 10,
    b"tab\there",
]
TAGS = [
    b"",
    b"eu",
    b"eu.de",
    b"eu.de.x",
    b"us.ca",
    b"a..b",
    b"..",
    b"eu.",
    b"' OR '1'='1",
    b"k\xc3\xb6",
]
KEYS = [b"", b"k1", b"k2", b"'; DROP TABLE x; --", b"k%", b"\xff", b"a\x00b"]
HEADERS = [
    b"",
    b"kind: order\r\n",
    b"kind: pay\r\nx-y: a: b\r\n",
    b"empty: \r\n",
    b"content-type: application/json\r\n",
]


def fill(log: MemoryLog, seed: int = 1, batches: int = 30, first: int = 0) -> None:
    """Two topics, one with two partitions; times do not go back, and some are equal."""
    random = Random(seed)
    time_ms = TIME_MS + first
    number = first
    for _ in range(batches):
        time_ms += random.choice([0, 0, 7, 1_000])
        for topic, partition in (("orders", 0), ("orders", 1), ("pay", 0)):
            count = random.randint(1, 12)
            log.put(
                topic,
                [random.choice(BODIES) for _ in range(count)],
                partition,
                time_ms=time_ms,
                ids=[random.choice([b"", b"id-%d" % (number + at)]) for at in range(count)],
                tags=[random.choice(TAGS) for _ in range(count)],
                keys=[random.choice(KEYS) for _ in range(count)],
                headers=[random.choice(HEADERS) for _ in range(count)],
            )
            number += count


Meaning = Callable[[dict[str, Any]], bool]


def at(path: list[Any], body: bytes) -> Any:
    """What Python finds there; None also if there is nothing."""
    try:
        found = json.loads(body)
        for step in path:
            found = found[step]
    except (ValueError, KeyError, IndexError, TypeError):
        return None
    return found


def text(body: bytes) -> str:
    return body.decode("utf-8", "replace")


def passes(pattern: str, tag: str | None) -> bool:
    match = compile_filter(pattern)
    return match is None or match((tag or "").encode())


TABLE: list[tuple[dict[str, Any], Meaning]] = [
    ({}, lambda row: True),
    ({"ids": ["id-8"]}, lambda row: row["id"] == "id-8"),
    ({"ids": ["0-3"]}, lambda row: row["id"] == "0-3"),
    ({"ids": ["nobody"]}, lambda row: False),
    ({"ids": ["' OR '1'='1"]}, lambda row: False),
    ({"ids": ["id-8", "id-13", "x"]}, lambda row: row["id"] in ("id-8", "id-13")),
    ({"keys": ["k1"]}, lambda row: row["key"] == "k1"),
    ({"keys": ["'; DROP TABLE x; --"]}, lambda row: row["key"] == "'; DROP TABLE x; --"),
    ({"keys": ["k%"]}, lambda row: row["key"] == "k%"),
    ({"keys": ["\xff"]}, lambda row: row["key"] == "\xff"),
    ({"keys": ["a\x00b"]}, lambda row: row["key"] == "a\x00b"),
    ({"keys": [""]}, lambda row: False),
    ({"tags": ["eu.de", "kö"]}, lambda row: row["tag"] in ("eu.de", "kö")),
    ({"tags": ["' OR '1'='1"]}, lambda row: row["tag"] == "' OR '1'='1"),
    *(
        ({"tag_filter": each}, lambda row, each=each: passes(each, row["tag"]))
        for each in ("eu.#", "*.de", "eu", "*", "#", "eu.*;us.#", "*.#", "a.*.b", ";", "a.#.b")
    ),
    ({"since": str(TIME_MS + 1_007)}, lambda row: row["ms"] >= TIME_MS + 1_007),
    ({"until": str(TIME_MS + 1_007)}, lambda row: row["ms"] < TIME_MS + 1_007),
    ({"since": str(TIME_MS + 90_000_000)}, lambda row: False),
    ({"headers": ["Kind=order"]}, lambda row: row["headers"].get("kind") == "order"),
    ({"headers": ["x-y=a: b"]}, lambda row: row["headers"].get("x-y") == "a: b"),
    ({"headers": ["empty="]}, lambda row: row["headers"].get("empty") == ""),
    ({"headers": ["kind=pay", "x-y=no"]}, lambda row: False),
    ({"contains": ["needle"]}, lambda row: b"needle" in row["body"]),
    ({"contains": ["€"]}, lambda row: "€".encode() in row["body"]),
    ({"contains": ["' OR 1=1 --"]}, lambda row: b"' OR 1=1 --" in row["body"]),
    ({"contains": ["\x00"]}, lambda row: b"\x00" in row["body"]),
    ({"contains": ["\udcff\udcfe"]}, lambda row: b"\xff\xfe" in row["body"]),
    ({"contains": ["(a|b)*\\"]}, lambda row: False),
    ({"contains": ["x" * 300]}, lambda row: b"x" * 300 in row["body"]),
    ({"contains": ["a", "b"]}, lambda row: b"a" in row["body"] and b"b" in row["body"]),
    ({"regex": "^a+!$"}, lambda row: re.search(r"^a+!\Z", text(row["body"])) is not None),
    ({"regex": r"(?i)GRÖSSE|größe \d+ ."}, lambda row: "größe" in text(row["body"])),
    ({"regex": "(a+)+$"}, lambda row: text(row["body"]).endswith("a")),
    ({"regex": "\ufffd"}, lambda row: "\ufffd" in text(row["body"])),
    ({"regex": "(?s)10.*second"}, lambda row: "second" in text(row["body"])),
    ({"json_paths": ["$.n"]}, lambda row: b'"n"' in row["body"] and row["body"][:1] == b"{"),
    ({"json_paths": ["$"]}, lambda row: valid(row["body"])),
    (
        {"json_paths": ["$.n"], "equals": ["5"]},
        lambda row: at(["n"], row["body"]) in (5, "5"),
    ),
    (
        {"json_paths": ["$.a.b[2]['c d']"], "equals": ["x"]},
        lambda row: at(["a", "b", 2, "c d"], row["body"]) == "x",
    ),
    ({"json_paths": ["$.t"], "equals": ["true"]}, lambda row: is_truth(at(["t"], row["body"]))),
    ({"json_paths": ["$.t"], "equals": ["1"]}, lambda row: b'"t": 1' in row["body"]),
    ({"json_paths": ["$.u"], "equals": ["ä"]}, lambda row: at(["u"], row["body"]) == "ä"),
    ({"json_paths": ["$.e"], "equals": ["100"]}, lambda row: b"1e2" in row["body"]),
    ({"json_paths": ["$[*].n"], "equals": ["2"]}, lambda row: row["body"][:1] == b"["),
    ({"json_paths": ["$[-1]"]}, lambda row: row["body"][:1] == b"["),
    (
        {"keys": ["k1"], "tags": ["eu"], "contains": ["a"], "since": str(TIME_MS + 5)},
        lambda row: (
            row["key"] == "k1"
            and row["tag"] == "eu"
            and b"a" in row["body"]
            and row["ms"] >= TIME_MS + 5
        ),
    ),
]


def is_truth(value: Any) -> bool:
    return value is True or value == "true"


def valid(body: bytes) -> bool:
    try:
        json.loads(body)
    except ValueError:
        return False
    return True


def conditions(said: dict[str, Any]) -> Conditions:
    return Wanted(**said).read(TIME_MS)


def plain(row: dict[str, Any]) -> dict[str, Any]:
    """A message as the meanings above want it."""
    ms = round(row["timestamp"].timestamp() * 1_000)
    return {**row, "headers": dict(row["headers"] or ()), "ms": ms}
