"""The broker, its clients, its disk and its clock in one process, under one seed."""

from zbus.testing.simulation.machine import Machine, Options, PowerCut
from zbus.testing.simulation.model import Violation
from zbus.testing.simulation.network import Connection, Reply
from zbus.testing.simulation.scene import Scene, request
from zbus.testing.simulation.simulation import Simulation

__all__ = [
    "Connection",
    "Machine",
    "Options",
    "PowerCut",
    "Reply",
    "Scene",
    "Simulation",
    "Violation",
    "request",
]
