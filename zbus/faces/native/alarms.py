"""What somebody who looks after a broker should know, in sentences."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import attrs

from zbus.core.topic import Group

WARNINGS_MAX = 100
"""Of one document; the worst of them."""

IDLE_MS = 60_000
"""A group that has messages to read and did not read for so long is worth a word."""

_MINUTE_MS, _HOUR_MS, _DAY_MS = 60_000, 3_600_000, 86_400_000
_MIB = 1 << 20


@attrs.frozen
class Warned:
    """One sentence."""

    kind: str
    text: str
    weight: int  # the more, the worse
    topic: str = ""
    group: str = ""

    def document(self) -> dict[str, Any]:
        """As JSON; what is empty is left out."""
        names = {"topic": self.topic, "group": self.group}
        return {"kind": self.kind, **{k: v for k, v in names.items() if v}, "text": self.text}


def group_warnings(
    group: Group, ready: int, leased: int, dead: int, idle_ms: int, now_ms: int
) -> list[Warned]:
    """Of a group with so many messages in each state, that has not moved on for so long."""
    name, topic = group.name, group.topic.name
    who = f"Group {name} of topic {topic}" if name.lower() != topic.lower() else f"Group {name}"
    found = []
    if dead:
        text = f"{who} has given up {_messages(dead)} after too many attempts."
        found.append(Warned("dead", text, dead, topic, name))
    failing = _failing(group, who, ready + leased + group.delayed_count(), now_ms)
    if failing is not None:
        return [*found, failing]
    if not (ready or leased) or idle_ms < IDLE_MS:
        return found
    waiting, idle = f"{_messages(ready)} wait" + ("s" if ready == 1 else ""), spoken(idle_ms)
    if group.options.retain:
        waiting += ", and retention waits for it"
    if ready and group.paused:
        found.append(Warned("paused", f"{who} is paused; {waiting}.", ready, topic, name))
    elif ready and not group.readers:
        text = f"{who} has no consumer and has not read for {idle}; {waiting}."
        found.append(Warned("unread", text, ready, topic, name))
    elif ready and group.window_full():
        text = (
            f"{who} has {_messages(leased)} leased, as many as its window allows, and has not "
            f"acknowledged any for {idle}; {waiting}."
        )
        found.append(Warned("stuck", text, ready, topic, name))
    elif ready:
        text = f"{who} has not read for {idle}; {waiting}."
        found.append(Warned("idle", text, ready, topic, name))
    return found


def _failing(group: Group, who: str, waiting: int, now_ms: int) -> Warned | None:
    """Its webhook is not taken."""
    push, state = group.options.push, group.pushed
    if push is None or state is None or not (state.streak and waiting):
        return None
    text = f"{who} is sent to {urlsplit(push.endpoint).netloc}, which has failed"
    text += f" for {spoken(max(1_000, now_ms - state.failing_ms))}: {state.error}."
    return Warned("webhook", text, waiting, group.topic.name, group.name)


def server_warnings(figures: dict[str, Any], refusing: str | None) -> list[Warned]:
    """Of the whole broker."""
    found = []
    if refusing is not None:
        found.append(Warned("refusing", f"The broker refuses messages: {refusing}.", 1 << 62))
    free, least = figures.get("diskFreeBytes"), figures.get("diskFreeMinBytes")
    if free is not None and least is not None and least <= free < 2 * least:
        text = (
            f"The disk has {_mib(free)} left; below {_mib(least)} the broker stores no more "
            "messages."
        )
        found.append(Warned("disk", text, 1 << 61))
    return found


def spoken(ms: int) -> str:
    """A duration, as one says it."""
    for unit_ms, unit in ((_DAY_MS, "day"), (_HOUR_MS, "hour"), (_MINUTE_MS, "minute")):
        if ms >= unit_ms:
            count = ms // unit_ms
            return f"{count} {unit}" + ("s" if count != 1 else "")
    return f"{ms // 1000} seconds"


def _messages(count: int) -> str:
    return f"{count:,} message" + ("s" if count != 1 else "")


def _mib(size: int) -> str:
    return f"{size / _MIB:,.0f} MiB" if size < 10 << 30 else f"{size / (1 << 30):,.1f} GiB"
