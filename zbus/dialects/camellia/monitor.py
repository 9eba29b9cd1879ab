"""What `getMonitorData` and `/metrics` count: windows of a minute, of which the last whole one is
shown. Kept in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from zbus.core.api import Broker, Group, Lateness, Timer
from zbus.dialects.camellia.settings import CamelliaSettings


class RequestStats(msgspec.Struct, rename="camel"):
    """Of one topic in one window."""

    topic: str
    send_msg: int = 0
    pull_msg: int = 0  # messages that were delivered
    delete_msg: int = 0
    ack_msg: int = 0
    get_msg: int = 0
    trigger_msg_ready: int = 0
    trigger_msg_end_life: int = 0
    trigger_msg_timeout: int = 0


class GapStats(msgspec.Struct):
    """How late things were, in milliseconds."""

    topic: str
    count: int = 0
    avg: float = 0.0
    max: int = 0

    def add(self, count: int, late_ms: int, latest_ms: int) -> None:
        """Add `count` things with their total and greatest lateness."""
        total_ms = self.avg * self.count + late_ms
        self.count += count
        self.avg = total_ms / self.count
        self.max = max(self.max, latest_ms)


class Window(msgspec.Struct):
    """What happened in one window, by topic."""

    requests: dict[str, RequestStats] = {}
    pulls: dict[str, GapStats] = {}
    dues: dict[str, GapStats] = {}

    def seen(self, sees: Callable[[str], bool]) -> Window:
        """With those topics alone."""
        return Window(
            {name: one for name, one in self.requests.items() if sees(name)},
            {name: one for name, one in self.pulls.items() if sees(name)},
            {name: one for name, one in self.dues.items() if sees(name)},
        )

    def of(self, topic: str) -> RequestStats:
        stats = self.requests.get(topic)
        if stats is None:
            stats = self.requests[topic] = RequestStats(topic)
        return stats

    def gaps(self, table: dict[str, GapStats], topic: str) -> GapStats:
        gaps = table.get(topic)
        if gaps is None:
            gaps = table[topic] = GapStats(topic)
        return gaps


NOTHING: Final = Lateness()


class Monitor:
    def __init__(self, broker: Broker, settings: CamelliaSettings) -> None:
        self._broker = broker
        self._window_ms = settings.camellia_monitor_ms
        self._now = Window()
        self._last = Window()
        self._end_ms = 0  # of the window that is being counted
        self._watched: dict[Group, None] = {}  # what time does there is counted by the core
        self._ends: Timer[Monitor] = broker.timers.timer(lambda monitor: monitor._roll())

    def note(self, topic: str) -> RequestStats:
        """What is counted of a topic now."""
        self._roll()
        return self._now.of(topic)

    def pulled(self, group: Group, due_ms: int) -> None:
        """A message was delivered that was due then."""
        name = group.topic.name
        self.note(name).pull_msg += 1
        late_ms = max(0, self._broker.now_ms - due_ms)
        self._now.gaps(self._now.pulls, name).add(1, late_ms, late_ms)

    def watch(self, group: Group | None) -> None:
        """The group is used in this dialect."""
        if self not in self._ends:
            self._roll()
            self._ends.set(self, self._end_ms)
        if group is None or group in self._watched:
            return
        self._watched[group] = None
        group.take_lateness()

    def last(self) -> Window:
        """The last window that is over."""
        self._roll()
        return self._last

    def _roll(self) -> None:
        """Begin another window, if it is time."""
        now_ms = self._broker.now_ms
        if now_ms < self._end_ms:
            return
        busy = [self._collect(group) for group in list(self._watched)]
        whole = now_ms < self._end_ms + self._window_ms
        self._last, self._now = self._now if whole else Window(), Window()
        self._end_ms = now_ms - (now_ms - self._end_ms) % self._window_ms + self._window_ms
        if any(busy) or self._last.requests:
            self._ends.set(self, self._end_ms)

    def _collect(self, group: Group) -> bool:
        """Take over what the core has counted in the window that ends. Whether something may happen
        in the next one though no client asks for anything."""
        topic, window = group.topic, self._now
        if topic.groups.get(group.name.lower()) is not group or topic.partitions[0].removed:
            del self._watched[group]
            return False
        for tally in group.take_lateness():
            if tally == NOTHING:
                continue
            stats = window.of(topic.name)
            stats.trigger_msg_ready += tally.due
            stats.trigger_msg_timeout += tally.lost
            stats.trigger_msg_end_life += tally.ended
            if tally.due:
                gaps = window.gaps(window.dues, topic.name)
                gaps.add(tally.due, tally.due_late_ms, tally.due_latest_ms)
        return any(group.counts()[:3])
