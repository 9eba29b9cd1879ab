"""Helpers of tests with a broker: what is in a topic, and dead letters."""

from __future__ import annotations

from typing import Any

from zbus.client.blocking import BlockingClient


def everything(bus: BlockingClient, topic: str) -> list[Any]:
    """All messages of a topic with one partition, in order."""
    found: list[Any] = []
    while some := bus.read(topic, offset=len(found), count=1_000):
        found += some
    return found


def kill(bus: BlockingClient, topic: str, group: str) -> None:
    """Each message of a group is given back until it is dead, one after another."""
    while some := bus.pull(topic, group):
        bus.nack(topic, group, some[0].offset)
