"""`seek`: a group that exists is moved.

`declare` says what something is to be like, and is repeated by everybody at each start: it leaves
groups where they are.
"""

from __future__ import annotations

import attrs

from zbus.core.api import BrokerError
from zbus.dialects.zbus.context import Context
from zbus.dialects.zbus.messages.consume import GroupPlan
from zbus.dialects.zbus.replies import DeclareReply
from zbus.dialects.zbus.request.params import BadRequest, Params
from zbus.dialects.zbus.request.positions import FORMS
from zbus.edge.connection import Connection

_MOVING_WORK = 20
"""What each partition costs a connection of its turn, in microseconds or so."""


class Seek(GroupPlan):
    """Moves a group that exists."""

    __slots__ = ("start",)

    def __init__(self, dialect: Context, params: Params) -> None:
        super().__init__(dialect, params)
        params.check_query()
        start = params.start(b"from")
        if start is None:
            raise BadRequest(400, f"400: Bad Format, Missing from: {FORMS}")
        self.start = attrs.evolve(start, partition=params.number(b"partition"))

    def run(self, peer: Connection, id: bytes, body: bytes) -> None:
        ticket = DeclareReply(self.dialect, self.params, peer, id, True)
        found = self.find()
        if isinstance(found, BrokerError):
            ticket.settle(found)
        else:
            topic, group = found
            peer.work -= _MOVING_WORK * len(topic.partitions)
            self.dialect.broker.seek(ticket, group, self.start)
