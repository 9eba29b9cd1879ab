"""What a declare says of a group's retries and pace: words of the dialect, fields of options."""

from __future__ import annotations

from typing import Any

from zbus.core.api import DELAY_MS_MAX
from zbus.dialects.zbus.request.params import BadRequest, Params
from zbus.units import DURATIONS, parse_ms


def group_changes(params: Params) -> dict[str, Any]:
    """Fields of `GroupOptions`, and what they are to be; those that are not named stay."""
    changes: dict[str, Any] = {
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
