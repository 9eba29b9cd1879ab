"""One document of those of several workers, which have different topics and one machine."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from operator import add
from typing import Any, Final, TypeAlias

import msgspec

from zbus.dialects.openmetrics import END, Fold, merge_texts
from zbus.edge.places import MAKER_DIGITS
from zbus.wire.responses import Response

Merged: TypeAlias = "tuple[bytes, bytes]"
"""Header lines that are to be added, and the body."""

_LARGEST: Final = frozenset(
    [
        "changedTime",
        "diskFreeBytes",
        "diskFreeMinBytes",
        "diskTotalBytes",
        "freeShards",
        "infoVersion",
        "liveNodes",
        "maxFiles",
        "memoryTotalBytes",
        "p50",
        "p99",
        "time",
    ]
)
"""Figures of the machine, and of the newest; others are counts, which are added up."""

_decode = msgspec.json.Decoder().decode


def merge_documents(responses: Sequence[Response]) -> Merged:
    """Objects: what they have in common is added up, the rest is there as it was."""
    merged: Any = None
    for response in responses:
        if not response.body:  # a worker that is left out
            continue
        found = _decode(response.body)
        merged = found if merged is None else _merge("", merged, found)
    return b"", msgspec.json.encode(merged, order="sorted")


def merge_histories(responses: Sequence[Response]) -> Merged:
    """Histories of one span, each of the topics of its worker: step by step the sum of theirs, as
    far as all of them know it."""
    found = [_decode(response.body) for response in responses]
    step_ms = found[0]["stepMs"]
    lists = {key: [each[key] for each in found] for key, v in found[0].items() if type(v) is list}
    first = max(each["start"] for each in found)
    merged = {**found[0], "start": first}
    for key, values in lists.items():
        skipped = [(first - each["start"]) // step_ms for each in found]
        rows = zip(*[row[n:] for row, n in zip(values, skipped, strict=True)], strict=False)
        merged[key] = [None if None in row else round(sum(row), 3) for row in rows]
    return b"", msgspec.json.encode(merged, order="sorted")


def merge_names(responses: Sequence[Response]) -> Merged:
    """Lists of names."""
    names: set[str] = set()
    for response in responses:
        names.update(_decode(response.body))
    return b"", msgspec.json.encode(sorted(names))


def merge_pages(responses: Sequence[Response]) -> Merged:
    """Pages of connections, in the order of their ids: as far as each worker has told. What other
    workers do for a client is part of its one row."""
    ends = [found.fields[b"next"] for found in responses if b"next" in found.fields]
    end = min(ends).decode() if ends else ""
    own: list[dict[str, Any]] = []
    others: list[dict[str, Any]] = []
    for number, response in enumerate(responses):
        maker = f"{number:0{MAKER_DIGITS}x}"
        for row in _decode(response.body):
            if not end or row["id"] <= end:
                (own if row["id"].startswith(maker) else others).append(row)
    clients: dict[str, dict[str, Any]] = {}
    for row in own:
        clients.setdefault(row["id"], row)
    for row in [*own, *others]:
        client = clients.get(row["id"], row)
        if client is not row:  # else it is the client, or is of one that has gone
            client["reads"] += row["reads"]
            client["heldBytes"] += row["heldBytes"]
            client["waitingRequests"] = max(client["waitingRequests"], row["waitingRequests"])
            if "user" in row:
                client.setdefault("user", row["user"])
    merged = [clients[id] for id in sorted(clients)]
    lines = b"count: %d\r\n" % len(merged) + (b"next: %b\r\n" % end.encode() if end else b"")
    return lines, msgspec.json.encode(merged)


def merge_metrics(responses: Sequence[Response]) -> Merged:
    """Texts of OpenMetrics: a sample of all workers is the sum of theirs, or the largest if it is
    no count. Those of a process say of which worker they are."""
    texts = [
        _OF_PROCESS.sub(rb'\1{worker="%d"} ' % number, response.body)
        for number, response in enumerate(responses)
    ]
    return b"", merge_texts(texts, _fold_of) + END.encode()


_OF_PROCESS: Final = re.compile(rb"^(process_\w+) ", re.MULTILINE)
"""Its samples, of which none has labels of its own."""

_SHARED: Final = ("build", "cluster_", "disk_", "draining", "refusing", "engine_")


def _fold_of(family: str) -> Fold:
    """The largest of what is of the machine, or says yes or no."""
    return max if family.removeprefix("zbus_").startswith(_SHARED) else add


def _merge(name: str, one: Any, other: Any) -> Any:  # noqa: ANN401 - JSON
    if isinstance(one, dict) and isinstance(other, dict):
        keys = [*one, *(key for key in other if key not in one)]
        merged: dict[str, Any] = {
            key: _merge(key, one[key], other[key])
            if key in one and key in other
            else one.get(key, other.get(key))
            for key in keys
        }
        if "warningCount" in one and "warningCount" in other:  # what both say is one warning
            told = len(one["warnings"]) + len(other["warnings"])
            merged["warningCount"] -= told - len(merged["warnings"])
        return merged
    if isinstance(one, list) and isinstance(other, list):
        return one + [each for each in other if each not in one]
    if isinstance(one, bool) or isinstance(other, bool):
        return one or other
    if isinstance(one, int | float) and isinstance(other, int | float):
        if name == "startTime":
            return min(one, other)
        return max(one, other) if name in _LARGEST else one + other
    return one if one not in ("", None) else other


Merge: TypeAlias = "Callable[[Sequence[Response]], Merged]"
