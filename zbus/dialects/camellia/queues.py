"""A topic of camellia: the topic of that name, and the group of that name in it.

So a client that consumes it in another dialect, without a group, competes for the same messages.
It comes into being with the first message. What others declared is used as it is; only a group
that no client has named or read so far becomes one of this dialect.
"""

from __future__ import annotations

from zbus.core.api import (
    Broker,
    BrokerError,
    Group,
    GroupOptions,
    GroupWish,
    Opening,
    Refusal,
    Topic,
    TopicOptions,
    name_problem,
)
from zbus.dialects.camellia.settings import CamelliaSettings

WINDOW = 1 << 31
"""Messages that may be in the hands of consumers at once: as many as there are."""


class Queues:
    def __init__(self, broker: Broker, settings: CamelliaSettings) -> None:
        self._broker = broker
        self._settings = settings
        # By topic, lower case: when it was used last. In the order in which they were sent to.
        self._used_ms: dict[str, int] = {}

    def use(self, name: str) -> None:
        """A message verb was called for a topic."""
        key = name.lower()
        if key in self._used_ms:
            self._used_ms[key] = self._broker.now_ms

    def sent_to(self, name: str) -> None:
        """It is the last in the list from now on."""
        key = name.lower()
        self._used_ms.pop(key, None)
        self._used_ms[key] = self._broker.now_ms

    def listed(self) -> list[Group]:
        """Those that hold messages, or were sent to and used in this dialect lately. Where nothing
        was sent to since the start of the broker comes first."""
        broker, used_ms = self._broker, self._used_ms
        idle_ms = broker.now_ms - self._settings.camellia_idle_ms
        for key in [key for key in used_ms if key not in broker.topics]:
            del used_ms[key]
        others = [key for key in broker.topics if key not in used_ms]
        listed = []
        for key in (*others, *used_ms):
            topic = broker.topics[key]
            group = topic.group(key)
            if group is None or not group.lease:
                continue
            if used_ms.get(key, -1) > idle_ms or any(group.counts()[:3]):
                listed.append(group)
        return listed

    def reading(self, name: str) -> Group | BrokerError | None:
        """The group to read from, made if there is none; None = there is no topic."""
        topic = self._broker.topic(name)
        if topic is None:
            return None
        group = topic.group(name)
        if group is None or (group.options.unclaimed and not group.readers):
            opened = self._open(topic.name)
            if isinstance(opened, BrokerError):
                return opened
            group = opened.group(name)
        assert group is not None
        if group.lease:
            return group
        text = f"the group {group.name} of {topic.name} is acknowledged on delivery"
        return BrokerError(Refusal.ILLEGAL, text, topic.name)

    def writing(self, name: str) -> Topic | BrokerError:
        """The topic to write to, made if there is none."""
        topic = self._broker.topic(name)
        if topic is not None and topic.options.calls:
            text = f"{topic.name} is a topic of services"
            return BrokerError(Refusal.ILLEGAL, text, topic.name)
        if topic is not None and topic.group(name) is not None:
            return topic
        return self._open(name if topic is None else topic.name)

    def _open(self, name: str) -> Topic | BrokerError:
        """Declare what is missing. It is there at once; that it is durable is known when what is
        written along with it is."""
        text = name_problem(name)
        if text is not None:
            return BrokerError(Refusal.ILLEGAL, f"topic: {text}")
        ticket = Opening()
        self._broker.declare(ticket, name, lambda topic: self._wished(name, topic))
        topic = self._broker.topic(name)
        if ticket.problem is not None:
            return ticket.problem
        assert topic is not None, "a group without a place to look for is declared at once"
        return topic

    def _wished(self, name: str, topic: Topic | None) -> tuple[TopicOptions, GroupWish]:
        settings = self._settings
        options = TopicOptions(
            name,
            durability=settings.durability,
            dedupe_live=True,
            settled_ms=settings.camellia_ended_ms,
            retention_done=True,
            minimal_headers=True,
        )
        lease_ms = settings.camellia_ack_timeout_ms
        attempts_max = settings.camellia_max_retry + 1  # of messages that say nothing themselves
        group = GroupOptions(
            lease=True, lease_ms=lease_ms, window=WINDOW, attempts_max=attempts_max
        )
        return options if topic is None else topic.options, GroupWish(name, group)
