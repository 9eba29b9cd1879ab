"""What the requests of the Adf dialect share."""

from __future__ import annotations

from collections.abc import Callable

from zbus.dialects.adf.leases import HttpLeases
from zbus.dialects.adf.queues import Queues
from zbus.dialects.adf.settings import AdfSettings
from zbus.edge.connection import Plan
from zbus.edge.dialect import Context, Parts
from zbus.edge.http_reply import PlainHead


class AdfContext(Context[AdfSettings]):
    """`plan` says how it is done, what was asked in this dialect."""

    def __init__(self, parts: Parts, plan: Callable[[PlainHead], Plan]) -> None:
        super().__init__(parts, AdfSettings)
        self.queues = Queues(self.broker, self.settings)
        self.leases = HttpLeases(self.broker)
        self.plan = plan
