"""What `getMonitorData` and `/metrics` count: windows of a minute, of which the last whole one is
shown. Kept in memory."""

from __future__ import annotations

import msgspec

from zbus.core.broker import Broker
from zbus.core.topic import Group, Topic
from zbus.faces.camellia.settings import CamelliaSettings


class RequestStats(msgspec.Struct, rename="camel"):
    """Of one topic in one window."""

    topic: str
    send_msg: int = 0
    pull_msg: int = 0  # messages that were handed out
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

    def add(self, gap_ms: int, count: int = 1, largest_ms: int = 0) -> None:
        """Things that were so late altogether."""
        total_ms = self.avg * self.count + gap_ms
        self.count += count
        self.avg = total_ms / self.count
        self.max = max(self.max, largest_ms or gap_ms)


class Window(msgspec.Struct):
    """What happened in one window, by topic."""

    requests: dict[str, RequestStats] = {}
    pulls: dict[str, GapStats] = {}
    dues: dict[str, GapStats] = {}


class Monitor:
    """See the module."""

    def __init__(self, broker: Broker, settings: CamelliaSettings) -> None:
        self._broker = broker
        self._window_ms = settings.camellia_monitor_ms
        self._now = Window()
        self._last = Window()
        self._end_ms = 0  # of the window that is being counted

    def note(self, topic: str) -> RequestStats:
        """What is counted of a topic now."""
        self._roll()
        stats = self._now.requests.get(topic)
        if stats is None:
            stats = self._now.requests[topic] = RequestStats(topic)
        return stats

    def pulled(self, group: Group, due_ms: int) -> None:
        """A message was handed out that was due then."""
        name = group.topic.name
        self.note(name).pull_msg += 1
        gaps = self._now.pulls.get(name)
        if gaps is None:
            gaps = self._now.pulls[name] = GapStats(name)
        gaps.add(max(0, self._broker.now_ms - due_ms))

    def watch(self, topic: Topic) -> None:
        """The topic is used."""

    def last(self) -> Window:
        """The last window that is over."""
        self._roll()
        return self._last

    def _roll(self) -> None:
        now_ms = self._broker.now_ms
        if now_ms < self._end_ms:
            return
        whole = now_ms < self._end_ms + self._window_ms
        self._last, self._now = self._now if whole else Window(), Window()
        self._end_ms = now_ms - (now_ms - self._end_ms) % self._window_ms + self._window_ms
