"""What a transport of kombu holds: leases that are kept, acknowledged or given back."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple

from kombu.exceptions import ChannelError

from zbus.client import Delivery, NotFound, ZbusError, commands
from zbus.client.links.forking import follow_forks
from zbus.client.links.link import Link
from zbus.client.links.request_tracker import Call

PARTS_MAX = 380
"""Offsets in one request: they fit a header line even if none is next to another."""
CLOSE_S = 5.0
"""How long a connection that is closed waits for what is on its way."""


class Place:
    """One group of one topic: a queue has its messages from one or several of these."""

    def __init__(self, topic: str, group: str, **declared: Any) -> None:  # noqa: ANN401
        self.topic = topic
        self.group = group
        self.declared = declared
        self.pull: Call[list[Delivery]] | None = None


class Lease(NamedTuple):
    """A message that is held here."""

    place: Place
    partition: int
    offset: int


def by_log(leases: Iterable[Lease]) -> Iterator[tuple[Place, int, list[int]]]:
    """Place, partition and offsets of each request that is about these."""
    logs: dict[tuple[Place, int], list[int]] = {}
    for lease in leases:
        logs.setdefault((lease.place, lease.partition), []).append(lease.offset)
    for (place, partition), offsets in logs.items():
        offsets.sort()
        for at in range(0, len(offsets), PARTS_MAX):
            yield place, partition, offsets[at : at + PARTS_MAX]


class Leases:
    """The messages that are held here, by their delivery tags."""

    def __init__(self, make_link: Callable[[], Link], lease_s: float) -> None:
        self.lease_ms = max(1, round(lease_s * 1000))
        self.link = make_link()
        self.held: dict[str, Lease] = {}
        self._make_link = make_link
        self._acked: deque[Lease] = deque()
        self._over = threading.Event()
        self._keeper: threading.Thread | None = None
        follow_forks(self)

    def forked(self, parent: int) -> None:
        """In a child: what is held is the parent's."""
        self.held.clear()
        self._acked.clear()
        self._keeper = None

    def hold(self, place: Place, delivery: Delivery) -> str | None:
        """Its tag. None if it is held already: its lease was lost, and this one is it again."""
        tag = f"{place.topic}/{place.group}/{delivery.partition}/{delivery.offset}"
        if tag in self.held:
            return None
        self.held[tag] = Lease(place, delivery.partition, delivery.offset)
        if self._keeper is None:
            self._keeper = threading.Thread(target=self._keep, daemon=True)
            self._keeper.start()
        return tag

    def ack(self, tag: str, *, at_once: bool) -> None:
        """Acknowledge a message: now, or with others by the next `send_acks`. Raises ChannelError
        for one that is not held, such as one that is acknowledged already."""
        lease = self.held.pop(tag, None)
        if lease is None:
            raise ChannelError(
                f"PRECONDITION_FAILED - unknown delivery tag {tag!r}: it was acknowledged or given"
                " back before"
            )
        self._acked.append(lease)
        if at_once:
            self.send_acks(wait=True)

    def send_acks(self, *, wait: bool) -> None:
        """With `wait`, they are durable when this returns."""
        acked = []
        while self._acked:
            acked.append(self._acked.popleft())
        if not acked:
            return
        calls = [
            self.link.submit(commands.ack(place.topic, place.group, part, partition=partition))
            for place, partition, part in by_log(acked)
        ]
        self.link.flush()
        for call in calls if wait else ():
            self.link.wait(call)
            with suppress(NotFound):  # what was removed has nothing to settle
                call.result()

    def give_back(self, tags: Iterable[str]) -> None:
        """These messages are delivered again, first."""
        for place, partition, part in by_log(
            self.held.pop(tag) for tag in tags if tag in self.held
        ):
            with suppress(NotFound):  # not leased any more: they come again by themselves
                self.link.run(
                    commands.nack(
                        place.topic, place.group, part, partition=partition, timeout_s=CLOSE_S
                    )
                )

    def _keep(self) -> None:
        """The thread that extends all leases while tasks run. It has a connection of its own, so
        that it does not depend on whether the program's own thread has time. Nor may an
        acknowledgement wait for that: Celery's loop stands still while a pool ends."""
        link = self._make_link()
        while not self._over.wait(self.lease_ms / 3_000):
            with suppress(ZbusError):
                self.send_acks(wait=False)
            for place, partition, part in by_log(list(self.held.values())):
                request = commands.extend(
                    place.topic, place.group, part, partition=partition, lease_ms=self.lease_ms
                )
                with suppress(ZbusError):  # it tries again
                    link.run(request)
        link.close()

    def close(self) -> None:
        """Send what is acknowledged, give the rest back, and disconnect."""
        with suppress(ZbusError):
            self.send_acks(wait=True)
            self.give_back(list(self.held))
        self._over.set()
        self.link.close()
