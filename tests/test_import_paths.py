"""What programs of users import is where it has always been."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module

import pytest

import zbus.client
from tests.limits import WAIT_S


@pytest.mark.parametrize(
    ("module", "names"),
    [
        ("zbus", "connect connect_async __version__"),
        ("zbus.client", "connect connect_async Client Consumer Message Service Watcher ZbusError"),
        ("zbus.client.commands", "produce ack declare"),
        ("zbus.client.errors", "ZbusError"),
        ("zbus.client.tracing", "Tracing"),
        ("zbus.testing.world", "World HeldJournal"),
        ("zbus.testing.simulation", "request"),
        ("zbus.spark.session", "start"),
        ("zbus.spark.archive", "Archive"),
        ("zbus.testing.contract", "JournalContract"),
        ("zbus.semq", "connect connect_blocking Semq BlockingSemq Message Sent"),
        ("zbus.spark", "open_archive"),
        ("zbus.storage.port", "Journal JournalError"),
        ("pyspark_zbus", "__all__"),
    ],
)
def test_names_of_users(module: str, names: str) -> None:
    found = import_module(module)
    assert [name for name in names.split() if not hasattr(found, name)] == []


def test_each_name_of_the_client_has_a_place() -> None:
    assert [name for name in zbus.client.__all__ if not hasattr(zbus.client, name)] == []
    with pytest.raises(AttributeError, match=r"zbus\.client.*no attribute 'conect'"):
        getattr(zbus.client, "conect")  # noqa: B009  # a type checker would know better


@pytest.mark.parametrize("name", ["commands", "errors", "messages", "options", "service"])
def test_the_client_has_its_modules_and_lists_its_names(name: str) -> None:
    """As it had when it imported them all."""
    shown = "'__all__' in dir(c), 'Client' in dir(c), 'connect' in dir(c)"
    program = f"import zbus.client as c; c.{name}; print({shown})"
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=WAIT_S)
    assert done.stdout.split() == ["True"] * 3


def test_a_command_that_asks_a_broker_imports_what_it_needs() -> None:
    """The user waits for its start."""
    program = "import zbus.cli.topics, sys; print(*sys.modules)"
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=WAIT_S)
    others = {"anyio", "asyncio", "attrs", "logging", "rich", "ssl", "trio"}
    others |= {"zbus.client.blocking", "zbus.client.readers.consuming"}
    assert others & set(done.stdout.split()) == set()
