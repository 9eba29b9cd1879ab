"""Connections of a task or a driver to the broker, and how its refusals are reported."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from zbus.client import errors
from zbus.client.blocking import BlockingClient
from zbus.client.options import Options
from zbus.spark.errors import SparkProblem, UnknownTopic, Unreachable, Usage


def client_of(broker: str, options: Options) -> BlockingClient:
    """A client that connects when it is first asked for something. Raises Usage."""
    try:
        return BlockingClient(broker, options)
    except ValueError as error:
        raise Usage(f"broker: {error}") from error


@contextmanager
def reported(broker: object, topic: str = "") -> Iterator[None]:
    """What a client raises becomes a SparkProblem, about this topic if it is about one."""
    try:
        yield
    except errors.ZbusError as error:
        raise problem_with(broker, error, topic) from error


def problem_with(broker: object, error: errors.ZbusError, topic: str = "") -> SparkProblem:
    """The text in place of an error of the client."""
    if isinstance(error, errors.ConnectionLost | errors.Timeout | errors.Overloaded):
        return Unreachable(f"the broker {broker} cannot be reached: {error}")
    about = f"{broker}: {topic}" if topic else broker
    if isinstance(error, errors.NotFound):
        return UnknownTopic(f"{about}: {error}")
    if isinstance(error, errors.BadRequest | errors.Forbidden):
        return Usage(f"{about}: {error}")
    return SparkProblem(f"{about}: {error}")
