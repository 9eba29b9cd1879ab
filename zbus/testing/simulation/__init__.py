"""The broker, its clients, its disk and its clock in one process, under one seed."""

from zbus.testing.simulation.machine import Machine, Options
from zbus.testing.simulation.network import Connection, Reply
from zbus.testing.simulation.scene import Scene, request

__all__ = [
    "Connection",
    "Machine",
    "Options",
    "Reply",
    "Scene",
    "request",
]
