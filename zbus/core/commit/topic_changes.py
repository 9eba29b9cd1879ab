"""Changes of a topic with several partitions: partition 0 decides.

Each partition is a log of its own, and a crash may keep what was written to some of them and lose
what was written to others. So which groups there are, and with which options, only partition 0
says. It gives each group an incarnation, a number that is never given again; every partition names
it with whatever it tells of the group, and what is told of any other incarnation does not count.

A group that is put somewhere else (declared with a start, emptied) is the same group with a new
incarnation. What partition 0 writes about it says where it begins in each partition (`Origin`), for
those that have not told of it when the power goes. Emptying a topic is likewise a number and the
first offset of each partition.

The others are written in the same turn. A crash that keeps what they wrote and loses what partition
0 did must find them as they were: so until a decision is durable, their checkpoints tell of the
former incarnations, too (`Topic.departing`). A topic with one partition needs nothing of this.
"""

from __future__ import annotations

from zbus.core.commit.tick import Tick
from zbus.core.cursor.backlog import Backlog
from zbus.core.cursor.state import Origin
from zbus.core.model.errors import BrokerError, Outcome
from zbus.core.model.ticket import Silent
from zbus.core.topics.topic import Departed, Group, Topic

_DEPTH_MAX = 8
"""Of models that are all so new that a crash may lose them. Beyond it a group may begin anew."""


def next_number(topic: Topic) -> int:
    topic.number += 1
    return topic.number


def depart(topic: Topic, group: Group) -> None:
    """The group, or this incarnation of it, is no more as soon as that is durable."""
    if len(topic.partitions) > 1:
        next_number(topic)
        topic.departing.append(Departed(group))


def begin(tick: Tick, group: Group, model: Group | None, whole: bool, places: list[int]) -> None:
    """The group is new. It stands where it is to begin; where `places` has -1 that is as its model
    stands, with all that is not finished there or with what is delayed."""
    topic = group.topic
    if len(topic.partitions) == 1:
        return
    group.incarnation = next_number(topic)
    if model is None:
        group.origin = Origin(tuple([backlog.cursor for backlog in group.backlogs]))
    else:
        group.origin = _like(model, model.incarnation, whole, places)
    notify(tick, group)


def _like(model: Group, incarnation: int, whole: bool, places: list[int]) -> Origin:
    before, depth = model.origin, 0
    while before is not None:
        before, depth = before.before, depth + 1
    if depth >= _DEPTH_MAX or min(places) >= 0:
        return Origin(tuple(places), model.name, incarnation, whole)
    return Origin(tuple(places), model.name, incarnation, whole, model.origin)


def renew(tick: Tick, group: Group, places: list[int]) -> None:
    """Put the group somewhere else, in all partitions or in none; -1 = it stays where it is."""
    topic, group.crossed = group.topic, 0
    if len(topic.partitions) == 1:
        if places[0] >= 0:
            group.backlogs[0].seek(places[0])
        return
    depart(topic, group)
    former, group.incarnation = group.incarnation, topic.number
    group.origin = _like(group, former, True, places)
    for index, place in enumerate(places):
        old = group.backlogs[index]
        if place < 0:
            old.record_all()
            continue
        new = group.backlogs[index] = Backlog(place)
        new.record_all()
        new.keep_fates(old.fates is not None)
        new.dirty, new.skipped, new.unreported = old.dirty, old.skipped, old.unreported
    topic.partitions[0].options_changed[group] = None
    for partition in topic.partitions:
        tick.change(partition, group)
    notify(tick, group)


def notify(tick: Tick, group: Group) -> None:
    """When all partitions have stored the group, its origin is not needed any more."""
    tick.confirm_all(group.topic, _Told(group))


class _Told(Silent):
    __slots__ = ("_group", "_incarnation")

    def __init__(self, group: Group) -> None:
        super().__init__()
        self._group = group
        self._incarnation = group.incarnation

    def answer(self, outcome: Outcome) -> None:
        group = self._group
        if not isinstance(outcome, BrokerError) and group.incarnation == self._incarnation:
            group.origin = None
