"""`produce` with `cron`: a message that is put again and again (`zbus.core.patterns.schedules`)."""

from __future__ import annotations

import attrs

from zbus.core.api import CRON_LINE as CRON
from zbus.core.api import SCHEDULES_PREFIX as PREFIX
from zbus.core.api import ZONE_LINE as ZONE
from zbus.core.api import Partition, Topic, make_row
from zbus.core.api import without_schedule_lines as without_lines
from zbus.dialects.zbus.messages.cron import TIMES, problem_of, zone_of
from zbus.dialects.zbus.messages.put_tickets import PutPlan, PutReply
from zbus.dialects.zbus.request.batch_formats import container_of
from zbus.dialects.zbus.request.params import BadRequest, Params
from zbus.edge.connection import Connection
from zbus.wire.target import encode_header_value

_ALONE = (
    b"delay",
    b"deliver_at",
    b"ttl",
    b"front",
    b"partition",
    b"max_attempts",
    b"ack_topic",
    b"expected_offset",
    b"idempotent",
    b"idempotency-key",
)
"""What no schedule has: an occurrence is a plain message."""


@attrs.frozen
class Schedule:
    """When it is due, as it was said."""

    cron: str
    zone: str

    @classmethod
    def of(cls, params: Params) -> Schedule | None:
        """What a head says of it; None = nothing."""
        cron, zone = params.text(b"cron"), params.text(b"cron_zone")
        if not cron:
            if zone:
                raise BadRequest(400, "400: Bad Format, cron_zone is for messages with cron")
            return None
        zone = zone or "UTC"
        if zone_of(zone) is None:
            text = f"cron_zone is a time zone such as Europe/Berlin, not {zone[:40]!r}"
            raise BadRequest(400, f"400: Bad Format, {text}")
        if TIMES.next_ms(cron, zone, 0) is None:
            form = "cron is five fields such as 0 9 * * 1-5, or six with seconds first"
            text = f"{form}, not {cron[:40]!r}: {problem_of(cron)}"
            raise BadRequest(400, f"400: Bad Format, {text}")
        for name in _ALONE:
            if params.fields.get(name):
                text = f"cron and {name.decode()} do not go together"
                raise BadRequest(400, f"400: Bad Format, {text}")
        if container_of(params.fields):
            raise BadRequest(400, "400: Bad Format, cron is for one message, not for a batch")
        return cls(cron, zone)

    def put(
        self, plan: PutPlan, topic: Topic, peer: Connection, id: bytes, lines: bytes, body: bytes
    ) -> None:
        """Store the schedule of a topic."""
        if topic.options.calls:
            raise BadRequest(400, "400: Bad Format, cron is not for calls")
        broker = plan.dialect.broker
        due_ms = TIMES.next_ms(self.cron, self.zone, broker.now_ms)
        if due_ms is None:
            raise BadRequest(400, "400: Bad Format, cron names no time that is to come")
        ticket = ScheduleReply(plan, peer, id, topic.name, due_ms)
        schedule_lines = CRON + encode_header_value(self.cron.encode()) + b"\r\n"
        schedule_lines += ZONE + self.zone.encode() + b"\r\n"
        lines = without_lines(lines) + schedule_lines
        row = make_row(ticket.id, lines, body, plan.tag, plan.key, due_ms)
        broker.schedules.put(ticket, topic, row)


class ScheduleReply(PutReply):
    """Where the schedule is, and when it is due: one of its id that was there before as it is."""

    __slots__ = ("_due_ms", "_name")

    def __init__(self, plan: PutPlan, peer: Connection, id: bytes, name: str, due_ms: int) -> None:
        super().__init__(plan.dialect, plan.params, peer, id, plan.quiet)
        self._name = name
        self._due_ms = due_ms

    def stored_lines(self, partition: Partition) -> bytes:
        lines = super().stored_lines(partition)
        due_ms = self.dialect.broker.schedules.due_ms(partition.topic, self.offset)
        name = encode_header_value(f"{PREFIX}{self._name}".encode())
        return lines + b"schedule: %b\r\ndue: %d\r\n" % (name, due_ms or self._due_ms)
