"""What the operator of a broker should know, in sentences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from heapq import nlargest
from typing import Any
from urllib.parse import urlsplit

import attrs

from zbus.core.api import Broker, Group, Topic
from zbus.protocol.documents import WarningInfo, WarningKind

WARNINGS_MAX = 100
"""Of one document; the worst of them."""

IDLE_MS = 60_000
"""A group that has messages to read and did not read for this long is worth a word."""

LACKING = "which is missing or takes no messages"

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

    def document(self) -> WarningInfo:
        """As JSON has it."""
        return WarningInfo(kind=self.kind, topic=self.topic, group=self.group, text=self.text)


def dead_warnings(group: Group, dead: int, died_ms: int, broker: Broker) -> list[Warned]:
    """Of a group that dead-lettered `dead` messages, the last one at that time: as long as letters
    wait in its dead-letter topic, be they its own or of another group, or else for an hour. Without
    that topic what dies next waits for it."""
    target = group.options.dead_letter
    if lacks_dead_letter(group, broker):
        text = f"{_who(group)} puts what it gives up into {target}, {LACKING}: it stays leased."
        return [Warned("dead", text, 1 << 60, group.topic.name, group.name)]
    text = f"{_who(group)} has dead-lettered {_messages(dead)} after too many attempts"
    letters = 0
    if dead and target and not broker.elsewhere.has(target):
        letters = _open_letters(broker.topics.get(target.lower()))
        if not letters:
            return []
        text += f"; {_messages(letters)} wait" + ("s" if letters == 1 else "")
        text += f" in {target}"
    elif not dead or broker.now_ms - died_ms >= _HOUR_MS:
        return []
    return [Warned("dead", f"{text}.", letters or dead, group.topic.name, group.name)]


def lacks_dead_letter(group: Group, broker: Broker) -> bool:
    """Its dead-letter topic was removed, or became one of services."""
    target = group.options.dead_letter
    topic = broker.topics.get(target.lower())
    if topic is None and broker.elsewhere.has(target):
        return target.lower() in broker.elsewhere.missing
    return bool(target) and (topic is None or topic.options.calls)


def _open_letters(topic: Topic | None) -> int:
    """What the one of its groups that is furthest behind has not finished. The group that came with
    the topic counts if there is no other."""
    groups = [] if topic is None else list(topic.groups.values())
    read = [group for group in groups if not group.options.unclaimed]
    return max([sum(group.counts()[:2]) for group in read or groups], default=0)


def group_warnings(
    group: Group, ready: int, leased: int, idle_ms: int, now_ms: int
) -> list[Warned]:
    """Of a group with messages in these states, and its time without progress."""
    name, topic, who = group.name, group.topic.name, _who(group)
    failing = _failing(group, who, ready + leased + group.delayed_count(), now_ms)
    if failing is not None:
        return [failing]
    if not (ready or leased) or idle_ms < IDLE_MS:
        return []
    found = []
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


def _who(group: Group) -> str:
    name, topic = group.name, group.topic.name
    return f"Group {name} of topic {topic}" if name.lower() != topic.lower() else f"Group {name}"


def _failing(group: Group, who: str, waiting: int, now_ms: int) -> Warned | None:
    """Its webhook is not taken."""
    push, state = group.options.push, group.pushed
    if push is None or state is None or not ((state.streak or state.gone) and waiting):
        return None
    endpoint = urlsplit(push.endpoint).netloc
    if group.paused and state.gone:
        text = f"{who} was paused, because its webhook at {endpoint} replied 410 Gone"
        text += f"; {_messages(waiting)} wait" + ("s." if waiting == 1 else ".")
    elif not state.streak:
        return None
    else:
        text = f"{who} is sent to {endpoint}, which has failed"
        text += f" for {spoken(max(1_000, now_ms - state.failing_ms))}: {state.error}."
    return Warned("webhook", text, waiting, group.topic.name, group.name)


def server_warnings(
    figures: dict[str, Any], refusing: str | None, cluster: list[str]
) -> list[Warned]:
    """Of the whole broker, with those of the cluster that it is of."""
    found = [Warned("cluster", text, 1 << 62) for text in cluster]
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


def worst_of(warned: Iterable[Warned]) -> list[Warned]:
    """The worst first, `WARNINGS_MAX` at most. If there are more, as many of each kind as of the
    others, as far as it has them: ten thousand of one kind do not hide the one of another."""
    kinds: dict[str, list[Warned]] = {}
    for one in warned:
        kinds.setdefault(one.kind, []).append(one)
    ranked = [
        (rank, one)
        for found in kinds.values()
        for rank, one in enumerate(nlargest(WARNINGS_MAX, found, key=_weight))
    ]
    ranked.sort(key=lambda pair: (pair[0], -pair[1].weight))
    return sorted([one for _, one in ranked[:WARNINGS_MAX]], key=_weight, reverse=True)


def count_kinds(warned: Iterable[Sequence[Warned]]) -> dict[str, WarningKind]:
    """How many there are of each kind; those of one topic are together."""
    counts, topics = Counter[str](), Counter[str]()
    for found in warned:
        kinds = [one.kind for one in found]
        counts.update(kinds)
        topics.update(set(kinds))
    return {kind: WarningKind(count=counts[kind], topics=topics[kind]) for kind in sorted(counts)}


def _weight(one: Warned) -> int:
    return one.weight


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
