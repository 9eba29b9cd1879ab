"""The face as its commands see it: what a plan may reach while it is made and while it runs.

`NativeFace` is one. Commands are written against this and not against that class, so that imports
go one way: `face` knows all commands, and no command knows `face`.
"""

from __future__ import annotations

from typing import Protocol

from zbus.core.broker import Broker
from zbus.faces.guard import Guard
from zbus.faces.native.metrics import Metrics
from zbus.faces.native.put_kinds import PutKind
from zbus.faces.native.reloads import Reloads
from zbus.faces.native.settings import NativeSettings
from zbus.faces.native.stats_told import Stats
from zbus.faces.native.track import Tracking
from zbus.faces.rights import Rights
from zbus.wire.heads import Heads


class Context(Protocol):
    """One broker, and what commands of this dialect share around it."""

    broker: Broker
    settings: NativeSettings
    heads: Heads  # reads the messages of a batch
    rights: Rights  # whose tokens may do what
    guard: Guard
    tracking: Tracking
    reloads: Reloads
    stats: Stats
    metrics: Metrics
    put_kinds: dict[object, PutKind]  # those that there are, by all that they depend on
