"""What the verbs of this dialect are given: the state around them, and the request."""

from __future__ import annotations

from typing import Final

from zbus.dialects.camellia.monitor import Monitor
from zbus.dialects.camellia.parking import Parking
from zbus.dialects.camellia.queues import Queues
from zbus.dialects.camellia.replies import CamelliaReply
from zbus.dialects.camellia.settings import CamelliaSettings
from zbus.dialects.verbs import Call
from zbus.edge.dialect import Context, Parts

QUIET_MS: Final = 20_000
"""Without a message verb for this long, a broker that was set offline may be stopped."""


class Health:
    """Whether load balancers are to send requests here, as the original's deploy scripts ask. Kept
    in memory: after a start it is online."""

    __slots__ = ("_used_ms", "online", "started_ms")

    def __init__(self) -> None:
        self.online = True
        self.started_ms = 0
        self._used_ms = -QUIET_MS

    def begin(self, now_ms: int) -> None:
        """The broker has a time now; it is that of the start if there was none before."""
        self.started_ms = self.started_ms or now_ms

    def use(self, now_ms: int) -> None:
        """A message verb was called."""
        self._used_ms = now_ms

    def quiet(self, now_ms: int) -> bool:
        return now_ms - self._used_ms > QUIET_MS


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
