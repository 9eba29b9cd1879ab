"""What the parts of this face know of it."""

from __future__ import annotations

from typing import Protocol

from zbus.core.broker import Broker
from zbus.faces.adf.leases import HttpLeases
from zbus.faces.adf.queues import Queues
from zbus.faces.adf.settings import AdfSettings
from zbus.faces.guard import Guard
from zbus.faces.peer import Plan
from zbus.faces.plain import PlainHead


class Context(Protocol):
    """The face."""

    broker: Broker
    guard: Guard
    settings: AdfSettings
    queues: Queues
    leases: HttpLeases

    def plan(self, asked: PlainHead) -> Plan:
        """How it is done, what was asked in this dialect."""
