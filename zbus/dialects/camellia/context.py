"""What the verbs of this dialect are given: the state around them, and the request."""

from __future__ import annotations

from zbus.dialects.camellia.health import Health
from zbus.dialects.camellia.monitor import Monitor
from zbus.dialects.camellia.parking import Parking
from zbus.dialects.camellia.queues import Queues
from zbus.dialects.camellia.replies import CamelliaReply
from zbus.dialects.camellia.settings import CamelliaSettings
from zbus.dialects.verbs import Call
from zbus.edge.dialect import Context, Parts


class CamelliaContext(Context[CamelliaSettings]):
    """One broker, and what the requests of this dialect share around it."""

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts, CamelliaSettings)
        self.queues = Queues(self.broker, self.settings)
        self.monitor = Monitor(self.broker, self.settings)
        self.parking = Parking(self.broker, self.queues)
        self.health = Health()

    def begin(self) -> None:
        self.health.begin(self.broker.now_ms)


class CamelliaCall(Call[CamelliaContext]):
    """One request while it is done."""

    __slots__ = ()

    def reply(self, empty: str = "") -> CamelliaReply:
        """A ticket; `empty` is the key that is null in a refusal."""
        return CamelliaReply(self.asked, self.peer, empty)
