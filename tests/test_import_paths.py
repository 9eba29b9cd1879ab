"""What programs of users import is where it has always been."""

from __future__ import annotations

from importlib import import_module

import pytest


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
