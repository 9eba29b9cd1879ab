"""What a `produce` acknowledges along with what it stores: consume, transform, produce."""

from __future__ import annotations

from zbus.core.api import BrokerError, Refusal, Source, group_unknown, topic_unknown
from zbus.dialects.zbus.context import Context
from zbus.dialects.zbus.request.params import BadRequest, Params

SETTLES = (b"ack_topic", b"ack_group", b"ack_partition", b"ack_offset")
"""The parameters."""


class Settles:
    """Deliveries of a group, by offset, in one partition."""

    __slots__ = ("_broker", "_group", "_partition", "_ranges", "_topic")

    def __init__(self, dialect: Context, params: Params) -> None:
        self._broker = dialect.broker
        self._topic = params.text(b"ack_topic") or ""
        self._group = params.text(b"ack_group") or self._topic
        self._partition = params.number(b"ack_partition") or 0
        self._ranges = params.ranges(b"ack_offset")
        for name, there in ((b"ack_topic", self._topic), (b"ack_offset", self._ranges)):
            if not there:
                raise BadRequest(400, f"400: Bad Format, Missing {name.decode()}")

    @classmethod
    def of(cls, dialect: Context, params: Params) -> Settles | None:
        """Those that the head names; None = none."""
        return None if params.fields.keys().isdisjoint(SETTLES) else cls(dialect, params)

    def sources(self) -> list[Source] | BrokerError:
        """Where they are now, if there is such a place."""
        topic = self._broker.topic(self._topic)
        if topic is None:
            return topic_unknown(self._topic)
        group = topic.group(self._group)
        if group is None:
            return group_unknown(self._group)
        if self._partition >= len(topic.partitions):
            text = f"{self._topic} has no partition {self._partition}: nothing is stored"
            return BrokerError(Refusal.OFFSET_UNKNOWN, text)
        return [Source(group, topic.partitions[self._partition], self._ranges)]
