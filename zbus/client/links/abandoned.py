"""Pulls that their callers gave up, and what comes of them all the same. No IO.

The broker may have handed messages to a pull before it learns that the caller has gone. They are
not lost. The broker is asked to end the pull; messages that come nevertheless are given back by a
nack. If none of them was leased, the document of the group says whether it leases at all: if it
does, the leases have ended and the messages come again. Messages of a group that does not lease
exist only here, and are kept for the next pull.

Until all of that is decided, the next pull of the group waits. So messages keep their order, and
what is kept of a group is never more than one pull brought.
"""

from __future__ import annotations

from itertools import groupby
from operator import attrgetter
from typing import Any, Literal, NamedTuple

from zbus.client import commands
from zbus.client.errors import NotFound, NotLeased, ZbusError
from zbus.client.messages import Delivery
from zbus.client.requests import Pulling, Request, failure
from zbus.wire.responses import Response

Key = tuple[str, str]


class Step(NamedTuple):
    """A request whose answer decides what becomes of messages."""

    kind: Literal["pull", "nack", "query"]
    request: Request[Any]
    pulling: Pulling
    deliveries: list[Delivery]  # of one partition; none yet of a pull
    since_s: float = 0.0  # when a pull was given up, by the exchange's clock


class Abandoned:
    """The abandoned pulls of one connection, and the messages that are kept for the next ones."""

    def __init__(self) -> None:
        self.steps: dict[bytes, Step] = {}  # by the ids of requests that are not answered yet
        self._kept: dict[Key, list[Delivery]] = {}

    @property
    def kept_count(self) -> int:
        return sum(map(len, self._kept.values()))

    def is_undecided(self, key: Key) -> bool:
        """Messages of the group may still come."""
        return any(step.pulling.key == key for step in self.steps.values())

    def keep(self, pulling: Pulling, deliveries: list[Delivery]) -> list[Step]:
        """Messages came that no caller waits for: the requests that give them back."""
        partition_of = attrgetter("partition")
        return [
            Step("nack", _nack(pulling, partition, held), pulling, held)
            for partition, group in groupby(sorted(deliveries, key=partition_of), key=partition_of)
            if (held := list(group))
        ]

    def put_back(self, pulling: Pulling, deliveries: list[Delivery]) -> None:
        """What `take` gave did not reach the caller: it is the first again."""
        self._kept[pulling.key] = [*deliveries, *self._kept.get(pulling.key, [])]

    def take(self, pulling: Pulling) -> list[Delivery]:
        """Messages that were kept for such a pull."""
        kept = self._kept.pop(pulling.key, None)
        if kept is None:
            return []
        wanted = pulling.partition
        taken = [one for one in kept if wanted is None or one.partition == wanted][: pulling.batch]
        rest = [one for one in kept if one not in taken]
        if rest:
            self._kept[pulling.key] = rest
        return taken

    def answered(self, id: bytes, response: Response) -> list[Step]:
        """The answer to a step, which may lead to others."""
        step = self.steps.pop(id)
        try:
            if response.status >= 400:
                raise failure(response)
            found = step.request.parse(response)
        except NotLeased:
            query = commands.query(step.pulling.topic, step.pulling.group)
            return [Step("query", query, step.pulling, step.deliveries)]
        except NotFound:
            return []  # the topic or the group was removed, and its messages with it
        except ZbusError:
            self._add(step)  # it cannot be given back, or asked about
            return []
        if step.kind == "pull":
            return self.keep(step.pulling, found)
        if step.kind == "query" and not found.ack:
            self._add(step)
        return []

    def lost(self) -> None:
        """The connection broke: pulls that are abandoned get no answer any more."""
        self.steps = {id: step for id, step in self.steps.items() if step.kind != "pull"}

    def give_up_pulls(self, key: Key, before_s: float) -> None:
        """The broker has not answered those that were given up before this."""
        self.steps = {
            id: step
            for id, step in self.steps.items()
            if step.kind != "pull" or step.pulling.key != key or step.since_s > before_s
        }

    def _add(self, step: Step) -> None:
        if step.deliveries:
            self._kept.setdefault(step.pulling.key, []).extend(step.deliveries)


def _nack(pulling: Pulling, partition: int, deliveries: list[Delivery]) -> Request[int]:
    offsets = [one.offset for one in deliveries]
    return commands.nack(pulling.topic, pulling.group, offsets, partition=partition)
