"""The core of a consumer: which message is next, and what is to be asked of the broker. No IO.

A shell calls `step` for the next message, sends what `requests` gives, and hands what the pull
brought to `took`. While the user works, the next pull is under way already, and what was done is
acknowledged many at a time; so a message costs a fraction of a request each way.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from zbus.client import commands
from zbus.client.messages import Body, Delivery, Labels, Stored
from zbus.client.requests import Pulling, Request, parse_deliveries
from zbus.protocol.documents import GroupInfo
from zbus.wire.responses import Response

BATCH = 100
"""Messages asked for at once from a group that leases."""

WAIT_MS = 20_000
"""How long a pull waits at the broker. Then it is asked again, so a dead connection is noticed."""

ACKS_MAX = 380
"""Offsets in one request: they fit a header line even if none is next to another."""

ACK_EVERY_S = 0.1
"""What was done is acknowledged after this long, even if no more comes."""


UNKNOWN = GroupInfo(ack=True, window=1)


class Consuming:
    """A consumer without its socket: what it holds, settles and asks for next."""

    def __init__(
        self,
        topic: str,
        group: str,
        info: GroupInfo | None,
        batch: int | None,
        partition: int | None,
        timeout_ms: int | None,
        auto_ack: bool,
        lease_ms: int | None = None,
        standby: bool = False,
    ) -> None:
        """`info` is the group's document: whether it leases, how long, and how many at once. None:
        it may not be looked at. Then one message is fetched at a time, and acknowledged, which for
        a group that does not lease changes nothing."""
        self.topic = topic
        self.group = group
        info = UNKNOWN if info is None else info
        self.leases = info.ack
        self.own_lease_ms = lease_ms
        self.lease_ms = max(1, info.lease_ms if lease_ms is None else lease_ms)
        self.standby = standby
        # One batch is worked on while the next is on its way: both have to fit the window.
        self.batch = batch or (max(1, min(BATCH, info.window // 2)) if self.leases else 1)
        self.partition = partition
        self.timeout_ms = timeout_ms
        self.auto_ack = auto_ack
        self.parse: Callable[[Response], list[Delivery]] = parse_deliveries  # the shell's own
        self.closing = False
        self.current: Delivery | None = None
        self._ready: deque[Delivery] = deque()
        self._leased: dict[tuple[int, int], Delivery] = {}  # held here, not settled
        self._longer: dict[tuple[int, int], float] = {}  # of them: the user's own lease ends then
        self._acks: dict[int, list[int]] = {}  # partition -> offsets
        self._ack_count = 0
        self._acks_since_s = 0.0
        self._pulling = False
        self._asked = False  # a pull was sent since the user waits
        self._dry_since_s: float | None = None

    # -- messages -------------------------------------------------------------------------

    def step(self, now_s: float) -> Delivery | None:
        """The next message; None: wait for the pull, or stop if `finished`. Asking for the next
        one says that the one before is done."""
        done, self.current = self.current, None
        if done is not None and done.settled:
            self._settle(done)  # by a produce that acknowledged it, perhaps
        elif done is not None and self.auto_ack:
            self.ack(done, now_s)
        if not self._ready:
            if self._dry_since_s is None:
                self._dry_since_s = now_s
            return None
        self._dry_since_s = None
        self._asked = False
        self.current = self._ready.popleft()
        return self.current

    def unseen(self) -> None:
        """The message that `step` gave did not reach the user."""
        if self.current is not None:
            self._ready.appendleft(self.current)
            self.current = None

    def finished(self, now_s: float) -> bool:
        """Nothing came for as long as the user wants to wait. Then the next wait begins anew."""
        if self.closing:
            return True
        if self.timeout_ms is None or self._dry_since_s is None or not self._asked:
            return False
        if self._pulling or now_s < self._dry_since_s + self.timeout_ms / 1000:
            return False
        self._dry_since_s = None
        self._asked = False
        return True

    def took(self, deliveries: list[Delivery]) -> None:
        """What a pull brought. What is held already comes again when its lease was lost: to that
        it is the lease that came back."""
        self._pulling = False
        if self.leases:
            for delivery in deliveries:
                place = delivery.partition, delivery.offset
                held = self._leased.get(place)
                if held is None or held.settled:
                    self._leased[place] = delivery
                    self._ready.append(delivery)
        else:
            self._ready.extend(deliveries)
            for delivery in deliveries:
                delivery.settled = True

    def pull_failed(self) -> None:
        """No answer to the pull."""
        self._pulling = False

    def pull(self, now_s: float) -> Request[list[Delivery]] | None:
        """The next pull, if it is time for one."""
        if self._pulling or self.closing:
            return None
        waiting = self._dry_since_s is not None
        if not waiting and (not self.leases or self.batch == 1):
            return None  # what is delivered without a lease is gone if this process dies
        if len(self._ready) > self.batch // 2:
            return None
        wait_ms = WAIT_MS
        if self.timeout_ms is not None:
            since_s = now_s if self._dry_since_s is None else self._dry_since_s
            left_ms = self.timeout_ms - (now_s - since_s) * 1000
            wait_ms = min(WAIT_MS, max(0, round(left_ms)))
        self._pulling = True
        self._asked = waiting
        request = commands.pull(
            self.topic,
            self.group,
            batch=self.batch,
            wait_ms=wait_ms,
            partition=self.partition,
            lease_ms=self.own_lease_ms,
            standby=self.standby,
        )
        request.parse = self.parse
        return request

    # -- settling -------------------------------------------------------------------------

    def require_held(self, *deliveries: Delivery) -> None:
        """Offsets of another topic would settle messages of this one. Raises ValueError."""
        for delivery in deliveries:
            place = delivery.partition, delivery.offset
            if not delivery.settled and self._leased.get(place) is not delivery:
                raise ValueError(f"this consumer does not hold {delivery!r}")

    def _settle(self, delivery: Delivery) -> None:
        delivery.settled = True
        place = delivery.partition, delivery.offset
        if self._leased.get(place) is delivery:  # not if it has come again already
            del self._leased[place]
            self._longer.pop(place, None)

    def ack(self, delivery: Delivery, now_s: float) -> None:
        """Acknowledge it with the next `requests`."""
        if delivery.settled:
            return
        self._settle(delivery)
        self._acks.setdefault(delivery.partition, []).append(delivery.offset)
        if not self._ack_count:
            self._acks_since_s = now_s
        self._ack_count += 1

    def nack(self, delivery: Delivery, delay_ms: int, front: bool) -> Request[int] | None:
        """It is to come again; what to send for that, if anything."""
        if delivery.settled:
            return None
        request = commands.nack(
            self.topic,
            self.group,
            delivery.offset,
            partition=delivery.partition,
            delay_ms=delay_ms or None,
            front=front,
        )
        self._settle(delivery)
        return request

    def extend(self, delivery: Delivery, lease_ms: int | None, now_s: float) -> Request[int] | None:
        """It is to stay leased that long from now; what to send for that, if anything."""
        if delivery.settled:
            return None
        if lease_ms is not None:
            self._longer[delivery.partition, delivery.offset] = now_s + lease_ms / 1000
        return commands.extend(
            self.topic,
            self.group,
            delivery.offset,
            partition=delivery.partition,
            lease_ms=lease_ms,
        )

    def reply_to(
        self, delivery: Delivery, topic: str, body: Body, labels: Labels
    ) -> Request[Stored]:
        """What puts it there and acknowledges the message. Raises ValueError for one that is
        settled, since nothing would be left to be acknowledged."""
        if delivery.settled:
            raise ValueError(f"{delivery!r} is settled already, or needs no acknowledgement")
        return commands.produce(topic, body, acks=delivery, **labels)

    def replied(self, delivery: Delivery) -> None:
        """It is done by that, or it is another party's."""
        self._settle(delivery)

    def requests(self, now_s: float) -> list[Request[Any]]:
        """Acknowledgements that are to be sent now."""
        if not self._ack_count:
            return []
        old = now_s >= self._acks_since_s + ACK_EVERY_S
        if self._ready and self._ack_count < min(ACKS_MAX, self.batch // 2) and not old:
            return []
        return self.flush()

    def flush(self) -> list[Request[Any]]:
        """All acknowledgements."""
        acks, self._acks = self._acks, {}
        self._ack_count = 0
        return [
            commands.ack(self.topic, self.group, offsets[at : at + ACKS_MAX], partition=partition)
            for partition, offsets in acks.items()
            for at in range(0, len(offsets), ACKS_MAX)
        ]

    def extensions(self, now_s: float) -> list[Request[Any]]:
        """What keeps the leases of everything that is held here, but for those that the user made
        longer than that."""
        return [
            commands.extend(
                self.topic, self.group, part, partition=partition, lease_ms=self.own_lease_ms
            )
            for partition, offsets in self._held(now_s + self.lease_ms / 1000).items()
            for part in _parts(offsets)
        ]

    @property
    def keep_every_s(self) -> float:
        """How often leases are to be extended."""
        return self.lease_ms / 3000

    def close(self) -> list[Request[Any]]:
        """The last requests but `give_back`: no more messages are wanted."""
        self.closing = True
        return [*self.flush(), commands.unconsume(self.topic, self.group)]

    @property
    def pulling(self) -> Pulling:
        return Pulling(self.topic, self.group, self.partition, self.batch)

    def left(self) -> list[Delivery]:
        """Messages that came, were not delivered, and cannot be given back."""
        if self.leases:
            return []
        left = list(self._ready)
        self._ready.clear()
        return left

    def give_back(self, failed: bool, now_s: float) -> list[Request[Any]]:
        """What becomes of what is held, when the pull has ended: what no client has seen comes
        again first, at once. So does the current message if the work on it failed; else it is done.
        What the user has and was to acknowledge himself stays his until its lease ends."""
        current, self.current = self.current, None
        if current is not None and self.auto_ack and not current.settled:
            if failed:
                self._ready.appendleft(current)
            else:
                self.ack(current, now_s)
        requests = self.flush()
        unseen: dict[int, list[int]] = {}
        for delivery in self._ready:
            if not delivery.settled:
                self._settle(delivery)
                unseen.setdefault(delivery.partition, []).append(delivery.offset)
        self._ready.clear()
        for partition, offsets in unseen.items():
            # What is put in front last comes first.
            for part in reversed(_parts(offsets)):
                requests.append(commands.nack(self.topic, self.group, part, partition=partition))
        return requests

    def _held(self, until_s: float) -> dict[int, list[int]]:
        held: dict[int, list[int]] = {}
        for (partition, offset), delivery in list(self._leased.items()):
            if delivery.settled:  # by a produce that acknowledged it
                self._settle(delivery)
            elif self._longer.get((partition, offset), until_s) <= until_s:
                held.setdefault(partition, []).append(offset)
        return held


class Opening(NamedTuple):
    """How a consumer begins."""

    query: Request[GroupInfo]
    """Asks for the group."""
    required: bool
    """It must not be refused."""
    make: Callable[[GroupInfo | None], Consuming]
    """The core, from the group's document."""


def _parts(offsets: list[int]) -> list[list[int]]:
    offsets = sorted(offsets)
    return [offsets[at : at + ACKS_MAX] for at in range(0, len(offsets), ACKS_MAX)]
