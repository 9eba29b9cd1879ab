"""What a `declare` says in words, in masks and of a start, and where they contradict each other."""

from __future__ import annotations

import attrs

from zbus.core.api import SeekCheck as Check
from zbus.core.api import Start
from zbus.dialects.zbus.request import legacy_flags as masks
from zbus.dialects.zbus.request.params import BadRequest, Params


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
