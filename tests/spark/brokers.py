"""Helpers of tests with a broker: what is in a topic, dead letters, jobs as commands."""

from __future__ import annotations

from typing import Any, NoReturn

from click.testing import CliRunner, Result

from zbus.client.blocking import BlockingClient
from zbus.spark.commands import Common
from zbus.spark.commands import spark as group


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


def job(*words: str) -> Result:
    """`zbus spark ...`, of which nobody has caught an error that is not the user's."""
    return CliRunner().invoke(group, words, catch_exceptions=False)


def require_refused(found: Result, code: int, text: str) -> None:
    """It ended with this exit code, said why, and nothing else."""
    assert (found.exit_code, found.stdout) == (code, ""), found.output
    assert text in found.stderr
    assert "Traceback" not in found.stderr


def no_session(common: Common) -> NoReturn:
    """Instead of `Common.session`, where none is to begin."""
    raise AssertionError("a session of Spark begins")
