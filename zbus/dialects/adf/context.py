"""The Adf dialect as its parts see it."""

from __future__ import annotations

from typing import Protocol

from zbus.core.api import Broker
from zbus.dialects.adf.leases import HttpLeases
from zbus.dialects.adf.queues import Queues
from zbus.dialects.adf.settings import AdfSettings
from zbus.edge.connection import Plan
from zbus.edge.guard import Guard
from zbus.edge.http_reply import PlainHead


class Context(Protocol):
    """The settings and state that plans share."""

    broker: Broker
    guard: Guard
    settings: AdfSettings
    queues: Queues
    leases: HttpLeases

    def plan(self, asked: PlainHead) -> Plan:
        """How it is done, what was asked in this dialect."""
