"""The consumer inside of the broker that serves groups with a webhook.

For each request that may be open it has one pull waiting. What a pull is given goes to the
courier; what comes of it comes back through the mailbox: an acknowledgement, or a failure. Then the
message has to wait as the group says (its backoff, or one second and twice as long each time), and
after `attempts_max` of them it is dead, as with any other consumer.

An endpoint that replies 410 is gone for good: its group is paused, and the message stays in it.

An endpoint that refuses everything is left alone: after some failures in a row the broker tries one
message at a time, and pauses in between. So an outage does not use up the attempts of all messages.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Protocol

import attrs

from zbus.core.api import (
    Broker,
    Delivered,
    EmptyReason,
    Group,
    GroupWish,
    Outcome,
    Pull,
    PullOptions,
    Push,
    PushState,
    Session,
    Silent,
    pause_ms,
)
from zbus.server.push.request import Attempt, Reply, attempt_of

BACKOFF_MS = 1_000
"""Before the second attempt, in a group that does not say."""

STREAK = 5
"""This many failures in a row are an outage."""

PROBE_MS, PROBE_MS_MAX = 1_000, 30_000
"""Pauses in an outage: the first, and the longest."""

OPEN_BYTES_MAX = 64 << 20
"""Of bodies that are under way, or may be in a moment; each group has one message all the same."""

EXPECTED_BYTES = 16 << 20
"""Of the first message of a group."""

LEASE_SPARE_MS = 10_000
"""A lease is that much longer than its request may take."""

log = logging.getLogger("zbus")


class Sender(Protocol):
    """What sends: `zbus.server.push.courier.Courier`."""

    def send(self, attempt: Attempt) -> None: ...

    def close(self) -> None: ...


Told = Callable[[Attempt, Reply], None]


class _Pull(Pull):
    """Of one request that may be open."""

    __slots__ = ("_pushed", "_reserved_bytes")

    def __init__(self, pushed: Pushed, wants: PullOptions) -> None:
        super().__init__(pushed.session, wants)
        self._pushed = pushed
        self._reserved_bytes = pushed.expected_bytes
        pushed.hold(self._reserved_bytes)

    def answer(self, outcome: Outcome) -> None:
        self._pushed.waiting -= 1
        self._pushed.hold(-self._reserved_bytes)
        if isinstance(outcome, Delivered):
            self._pushed.send(outcome)
        else:
            self._pushed.ended = True


class Pushed:
    """A group with an endpoint."""

    def __init__(self, pushing: Pushing, group: Group, number: int) -> None:
        self._pushing = pushing
        self.group = group
        # It joins no sessions: no client can route to it, and it ends with its group.
        self.session = Session(b"webhook-%d" % number, "webhook")
        self.session.faults = pushing.broker.faults
        self.state = group.pushed = PushState()
        self.large_bytes = 0  # of bodies lately: the next may be as large
        self.waiting = 0  # pulls
        self.open: set[tuple[int, int]] = set()  # requests: partitions and offsets
        self.ended = False  # a pull did: it is looked at again
        self.resume_ms = 0  # in an outage: no pull before it
        self.pause_ms = 0  # the last one
        self._wants = PullOptions()

    @property
    def push(self) -> Push | None:
        return self.group.options.push

    def fill(self, share: int) -> None:
        """Pull as much as may be sent."""
        push, broker = self.push, self._pushing.broker
        if push is None or broker.stopping or broker.now_ms < self.resume_ms:
            return
        if not self.group.paused:
            self.state.gone = False
        most = min(push.concurrency, share)
        if self.state.streak >= STREAK:
            most = 1
        lease_ms = push.timeout_ms + LEASE_SPARE_MS
        if self._wants.lease_ms != lease_ms:
            self._wants = PullOptions(lease_ms=lease_ms, standby=True)
        while (busy := self.waiting + len(self.open)) < most and not self.ended:
            if busy and self._pushing.open_bytes + self.expected_bytes > OPEN_BYTES_MAX:
                return
            self.waiting += 1
            broker.pull(self.group, _Pull(self, self._wants), None)

    @property
    def expected_bytes(self) -> int:
        return self.large_bytes or EXPECTED_BYTES

    def hold(self, size: int) -> None:
        """This many bytes more are under way, or fewer."""
        self._pushing.open_bytes += size

    def send(self, delivered: Delivered) -> None:
        """Give to the courier what a pull was given."""
        push = self.push
        for index, chunk, start, stop, attempts in delivered.pieces:
            for at in range(start, stop):
                if push is not None:  # else it is pushed no more; the lease ends by time
                    self.open.add((index, chunk.first + at))
                    attempt = attempt_of(self, self.group, push, index, chunk, at, attempts)
                    self.hold(len(attempt.body))
                    self.large_bytes = max(len(attempt.body), self.large_bytes * 15 // 16)
                    self._pushing.courier().send(attempt)

    def give_back(self) -> None:
        """No client will hear what comes of the requests that are under way: they come again at the
        next start, and not when their leases would have ended."""
        broker, group = self._pushing.broker, self.group
        for index, offset in self.open:
            partition = group.topic.partitions[index]
            if not (group.gone or partition.removed or partition.fenced is not None):
                offsets = [range(offset, offset + 1)]
                broker.nack(Silent(), group, partition, offsets, False, broker.now_ms + 1)

    def leave(self) -> None:
        """Its messages are sent no more. What is under way counts when it ends."""
        broker = self._pushing.broker
        if not self.group.gone:
            broker.leave_group(self.session, self.group, EmptyReason.LEFT)
        self.session.closed = self.session.leaving = True
        if self.group.pushed is self.state:
            self.group.pushed = None


class Pushing:
    """`post` gets a call to the loop from another thread; `make` makes the
    courier."""

    def __init__(
        self,
        broker: Broker,
        post: Callable[[Callable[[], None]], None],
        make: Callable[[Told], Sender],
        connections_max: int,
    ) -> None:
        self.broker = broker
        self._post = post
        self._make = make
        self._connections_max = connections_max
        self._courier: Sender | None = None
        self._groups: dict[Group, Pushed] = {}
        self.open_bytes = 0
        self._seen = -1
        self._count = 0  # of groups, ever

    def look(self) -> None:
        """Called about once a second: find the groups, and go on where it was paused."""
        broker = self.broker
        if broker.stopping or not self._connections_max:
            return
        if self._seen != broker.changes.count:
            self._seen = broker.changes.count
            self._find()
        for pushed in self._groups.values():
            pushed.ended = False
            pushed.fill(self._share())

    def _find(self) -> None:
        found = {
            group: None
            for topic in self.broker.topics.values()
            for group in topic.groups.values()
            if group.options.push is not None
        }
        for group in [group for group in self._groups if group not in found]:
            self._groups.pop(group).leave()
        for group in found:
            if group not in self._groups:
                self._count += 1
                self._groups[group] = Pushed(self, group, self._count)

    def _share(self) -> int:
        """Requests that each group may have open."""
        return max(1, self._connections_max // max(1, len(self._groups)))

    def courier(self) -> Sender:
        """Made when there is something to send for the first time."""
        if self._courier is None:
            self._courier = self._make(
                lambda attempt, reply: self._post(partial(self._replied, attempt, reply))
            )
        return self._courier

    def _replied(self, attempt: Attempt, reply: Reply) -> None:
        """What came of a request, in the broker's loop."""
        broker, group = self.broker, attempt.group
        pushed = self._groups.get(group)
        if pushed is not attempt.owner:
            pushed = None  # it was ended, and perhaps begun again
        self.open_bytes -= len(attempt.body)
        if pushed is not None:
            pushed.open.discard((attempt.partition, attempt.offset))
        partition = group.topic.partitions[attempt.partition]
        if group.gone or partition.removed or partition.fenced is not None:
            return
        offsets = [range(attempt.offset, attempt.offset + 1)]
        if not reply.error:
            broker.ack(Silent(), group, partition, offsets)
        elif reply.gone and pushed is not None and self._pause(pushed, attempt.push):
            broker.undo(group, partition, attempt.offset, pushed.session.id)
        else:
            options = group.options
            if not options.backoff_ms:
                options = attrs.evolve(options, backoff_ms=BACKOFF_MS)
            pause = max(pause_ms(options, max(1, attempt.attempts)), reply.retry_after_ms)
            broker.nack(Silent(), group, partition, offsets, False, broker.now_ms + pause)
        if pushed is not None:
            self._note(pushed, reply)
            pushed.fill(self._share())

    def _pause(self, pushed: Pushed, push: Push) -> bool:
        """The endpoint is gone for good: pause its group, durably. False if that was the endpoint
        of before, or cannot be; then it has failed like any other."""
        group = pushed.group
        topic, current = group.topic, group.options.push
        if current is None or current.endpoint != push.endpoint:
            return False
        if not group.paused:
            options = attrs.evolve(group.options, paused=True)
            wish = GroupWish(group.name, options)
            self.broker.declare(Silent(), topic.name, lambda _: (topic.options, wish))
            why = "its endpoint replied 410 Gone"
            log.warning("webhook paused", extra={**_names(group), "why": why})
        pushed.state.gone = group.paused
        return group.paused

    def _note(self, pushed: Pushed, reply: Reply) -> None:
        state, group = pushed.state, pushed.group
        if not reply.error:
            if state.streak >= STREAK:
                log.info("webhook delivery works again", extra=_names(group))
            state.took()
            pushed.resume_ms = pushed.pause_ms = 0
            return
        state.refused(reply.error, self.broker.now_ms)
        if state.streak < STREAK:
            return
        if state.streak == STREAK:
            log.warning("webhook delivery failed", extra={**_names(group), "why": reply.error})
        now_ms = self.broker.now_ms
        if now_ms >= pushed.resume_ms:  # else it is one of several that were open
            pushed.pause_ms = min(max(PROBE_MS, 2 * pushed.pause_ms), PROBE_MS_MAX)
            pushed.resume_ms = now_ms + pushed.pause_ms
        pushed.resume_ms = max(pushed.resume_ms, now_ms + reply.retry_after_ms)

    def stop(self) -> None:
        """The broker stops: it does not wait for endpoints. A reply still counts as long as it
        has other things to do."""
        for pushed in self._groups.values():
            pushed.give_back()

    def close(self) -> None:
        """No reply counts from here on."""
        self._groups.clear()
        if self._courier is not None:
            self._courier.close()


def _names(group: Group) -> dict[str, str]:
    return {"topic": group.topic.name, "group": group.name}
