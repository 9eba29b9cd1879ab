"""What a `declare` says of a topic, of a group and of its start, in words and in masks, and where
that contradicts itself."""

from __future__ import annotations

from typing import Any

import attrs

from zbus.core.api import DELAY_MS_MAX, Start
from zbus.core.api import SeekCheck as Check
from zbus.dialects.zbus.request import legacy_flags as masks
from zbus.dialects.zbus.request.params import BadRequest, Params
from zbus.units import DURATIONS, parse_ms


def read_words(params: Params, known: dict[bytes, int]) -> dict[bytes, bool]:
    """Those of these words that a request says."""
    return {word: value for word in known if (value := params.switch(word)) is not None}


def read_mask(
    params: Params, name: bytes, known: dict[bytes, int], words: dict[bytes, bool]
) -> int | None:
    """A mask. It says all that the words can say, so it may not say anything else than they do; but
    a group's 0 leaves everything open."""
    mask = params.number(name)
    if mask is None or (mask == 0 and known is masks.GROUP_WORDS):
        return mask
    for word, value in words.items():
        if bool(mask & known[word]) != value:
            text = f"{word.decode()}={'true' if value else 'false'}"
            text = f"{name.decode()}={mask} and {text} contradict each other"
            raise BadRequest(400, f"400: Bad Format, {text}")
    return mask


def first_place(params: Params) -> Start:
    """Where a new group begins."""
    offset = params.number(b"group_start_offset")
    time_ms = params.time(b"group_start_time")
    start = params.start(b"from")
    if start is not None and (offset is not None or time_ms is not None):
        text = "from and group_start_offset or group_start_time are one: give one of them"
        raise BadRequest(400, f"400: Bad Format, {text}")
    check = _has_id(params.fields.get(b"group_start_msgid", b""), offset)
    copy, partition = params.text(b"group_start_copy") or "", params.number(b"partition")
    if start is not None:
        return attrs.evolve(start, copy=copy, partition=partition)
    # In this form alone the original moves a group that exists (specification, section 6.2).
    moves = check is not None and offset is not None and params.seed
    return Start(copy, offset, check, time_ms=time_ms, partition=partition, moves=moves)


def _has_id(id: bytes, offset: int | None) -> Check | None:
    """What `group_start_msgid` asks of the message at that offset."""
    if not id:
        return None
    text = f"the message at offset {offset} has another id"
    return lambda found: None if found == id else text


def topic_changes(params: Params, partitions_max: int) -> dict[str, Any]:
    """Fields of `TopicOptions`, and what they are to be; those that are not named stay."""
    # The core judges how many there may be: a topic may have more, from before the limit.
    changes: dict[str, Any] = {
        "partitions": params.number(b"partitions", partitions_max, 1 << 16),
        "durability": params.word(b"durability") or None,
        "retention_ms": params.duration(b"retention_ms"),
        "retention_bytes": params.size(b"retention_bytes"),
        "retention_count": params.number(b"retention_count"),
        "dedupe_ms": params.duration(b"dedupe_ms"),
        "settled_ms": params.duration(b"settled_ms"),
        "compact": params.switch(b"compact"),
        "compact_tombstone_ms": params.duration(b"compact_tombstone_ms"),
    }
    for name in ("retention_done", "dedupe_live"):
        if name.encode() in params.fields:
            changes[name] = params.flag(name.encode())
    if b"sender_headers" in params.fields:
        changes["minimal_headers"] = not params.flag(b"sender_headers")
    found = {field: value for field, value in changes.items() if value is not None}
    return {**found, "grown": None} if params.word(b"partitions_order") == "none" else found


def group_changes(params: Params) -> dict[str, Any]:
    """The same of `GroupOptions`."""
    changes: dict[str, Any] = {
        "filter": params.text(b"group_filter"),
        "window": params.number(b"group_window"),
        "lease_ms": params.duration(b"group_lease"),
        "attempts_max": params.number(b"group_max_attempts"),
        "attempts_kept": params.switch(b"group_keep_attempts"),
        "rate_per_s": params.number(b"group_rate"),
        "dead_letter": params.text(b"group_dead_letter"),
        **_pauses(params.text(b"group_backoff")),
    }
    if on_loss := params.word(b"group_on_loss"):
        changes["on_loss"] = on_loss
    if b"group_order" in params.fields:  # an empty one is refused
        order = params.word(b"group_order", empty=False)
        changes["order"] = "" if order == "none" else order
    if (retain := params.switch(b"group_retain")) is not None:
        changes["retain"] = retain
    if b"group_one_batch" in params.fields:
        changes["one_batch"] = params.flag(b"group_one_batch")
    return {field: value for field, value in changes.items() if value is not None}


def _pauses(text: str | None) -> dict[str, int]:
    """The first pause, and perhaps the longest: `1000,60000` or `1s,1m`."""
    if not text:
        return {}
    if text == "none":
        return {"backoff_ms": 0, "backoff_max_ms": 0}
    first, comma, longest = text.partition(",")
    first_ms = parse_ms(first) or 0
    longest_ms = parse_ms(longest) if comma else first_ms
    if longest_ms is None or not 0 < first_ms <= longest_ms <= DELAY_MS_MAX:
        raise BadRequest(
            400,
            f"400: Bad Format, group_backoff is {DURATIONS}, or the first and the longest pause"
            f" such as 1s,60s, from 1 to {DELAY_MS_MAX} ms, or none, not {text[:40]!r}",
        )
    return {"backoff_ms": first_ms, "backoff_max_ms": longest_ms if comma else 0}
