"""The dialect as its commands see it: what a plan may reach while it is made and while it runs.

`NativeFace` is one. Commands are written against this and not against that class, so that imports
go one way: `dialect` knows all commands, and no command knows `dialect`.
"""

from __future__ import annotations

from typing import Protocol

from zbus.core.api import Broker
from zbus.dialects.zbus.documents.history import Recorder
from zbus.dialects.zbus.documents.metrics import Metrics
from zbus.dialects.zbus.documents.stats_stream import Stats
from zbus.dialects.zbus.documents.trackers import Tracking
from zbus.dialects.zbus.request.put_kinds import PutKind
from zbus.dialects.zbus.request.reloads import Reloads
from zbus.dialects.zbus.settings import ZbusSettings
from zbus.edge.guard import Guard
from zbus.edge.rights import Rights
from zbus.wire.heads.heads import Heads


class Context(Protocol):
    """One broker, and what commands of this dialect share around it."""

    broker: Broker
    settings: ZbusSettings
    heads: Heads  # reads the messages of a batch
    rights: Rights  # whose tokens may do what
    guard: Guard
    tracking: Tracking
    reloads: Reloads
    stats: Stats
    metrics: Metrics
    history: Recorder | None  # None = it is off
    put_kinds: dict[object, PutKind]  # those that there are, by all that they depend on
