"""The broker, its clients, its disk and its clock in one process, under one seed."""

from zbus.testing.simulation.machine import Machine, Options
from zbus.testing.simulation.network import Connection
from zbus.testing.simulation.scene import Scene, request
from zbus.testing.world import Reply

__all__ = [
    "Connection",
    "Machine",
    "Options",
    "Reply",
    "Scene",
    "request",
]
