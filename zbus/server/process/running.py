"""What commands may know of the server around the broker, and do with its connections."""

from __future__ import annotations

import resource
import threading
import time
from functools import partial
from typing import Any

from zbus.dialects.zbus.settings import Cluster, Kept, Timings, Traffic
from zbus.edge.connection import Connection
from zbus.server.loop.loop import Loop
from zbus.server.loop.mailbox import Mailbox
from zbus.server.loop.socket_connection import SocketConnection
from zbus.server.process.engines import Engine
from zbus.server.watch.history_file import HistoryFile
from zbus.server.watch.pressure import MemoryUsage, Pressure
from zbus.server.watch.system_stats import SystemStats

WINDOW_S = 60
"""`syncMs` covers this time, or up to twice that: an operator wants the present."""

SAVE_EVERY_S = 300
"""What is lost of the history of rates when the process is killed, at most."""


class RunningServer:
    """Loop, engine and pressure come later than the dialects that ask."""

    def __init__(
        self,
        gauges: SystemStats,
        reserve_bytes: int,
        holdings: MemoryUsage,
        mailbox: Mailbox,
        history_file: HistoryFile | None,
    ) -> None:
        """Without `history_file` the history of rates ends with the process."""
        self._gauges = gauges
        self._reserve_bytes = reserve_bytes
        self._holdings = holdings
        self._mailbox = mailbox
        self._history_file = history_file
        self._history: Kept | None = None
        self._saved_s = time.monotonic()
        self.timings = Timings()
        self._syncs = [self.timings.sync.counts[:]] * 2  # as counted at the last two looks
        self._looked_s = time.monotonic()
        self._start_ms = time.time_ns() // 1_000_000
        self.loop: Loop | None = None
        self.engine: Engine | None = None
        self.pressure: Pressure | None = None
        self.visitors: dict[bytes, bytes] = {}

    @property
    def cluster(self) -> Cluster | None:
        """The nodes that this server is one of."""
        return None if self.engine is None else self.engine.nodes

    def look(self) -> None:
        """Called about once a second."""
        if time.monotonic() - self._looked_s >= WINDOW_S:
            self._looked_s = time.monotonic()
            self._syncs = [self._syncs[1], self.timings.sync.counts[:]]
        if self._history is not None and time.monotonic() - self._saved_s >= SAVE_EVERY_S:
            self._saved_s = time.monotonic()
            if self._history_file is not None:
                self._history_file.save(self._history.save())

    def keep(self, history: Kept) -> None:
        """Over restarts."""
        self._history = history
        if self._history_file is not None:
            self._history_file.load(history.load)

    def close(self) -> None:
        """Before the engine is closed."""
        if self._history is not None and self._history_file is not None:
            self._history_file.close(self._history.save())

    def figures(self) -> dict[str, Any]:
        """Of the process and the machine; what the system does not tell is left out."""
        known: dict[str, Any] = {
            "startTime": self._start_ms,
            "cpuMs": time.process_time_ns() // 1_000_000,
            "memoryBytes": self._gauges.memory_used(),
            "memoryTotalBytes": self._gauges.memory_total(),
            "heldBytes": self._holdings.bytes_used(),
            "reserveBytes": self._reserve_bytes,
            "maxFiles": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
            "threads": threading.active_count(),
        }
        if self.engine is not None:
            known |= self.engine.figures()
        if self.engine is not None and (space := self.engine.space()) is not None:
            known |= {"diskFreeBytes": space.free, "diskTotalBytes": space.total}
            if self.pressure is not None:
                known["diskFreeMinBytes"] = self.pressure.disk_free_min(space)
        syncs = self.timings.sync.since(self._syncs[0])
        if any(syncs.counts):
            known["syncMs"] = {
                name: round(syncs.quantile(part) * 1000, 3)
                for name, part in (("p50", 0.5), ("p99", 0.99))
            }
        return {name: value for name, value in known.items() if value is not None}

    def idle_ms(self, peer: Connection) -> int:
        """How long nothing has come from this connection."""
        if self.loop is None or not isinstance(peer, SocketConnection):
            return 0
        return max(0, self.loop.now_ms - peer.heard_ms)

    def traffic(self, peer: Connection) -> Traffic | None:
        """What has gone over this connection."""
        if self.loop is None or not isinstance(peer, SocketConnection):
            return None
        age_ms = max(0, self.loop.now_ms - peer.opened_ms)
        return Traffic(peer.in_bytes, peer.sent_bytes + peer.taken_bytes, age_ms)

    def disconnect(self, peer: Connection) -> None:
        """End this connection, at the beginning of the next turn."""
        if self.loop is not None and isinstance(peer, SocketConnection):
            self._mailbox.post(partial(self.loop.drop, peer))
