"""A broker on the example's engine, through a restart."""

from __future__ import annotations

from pathlib import Path

import pytest

from examples.sqlite_engine import SqliteJournal
from tests.conformance.dialogue import http, ok, pull
from zbus.testing.world import World


@pytest.mark.parametrize("durability", ["os", "disk"])
def test_a_broker_goes_on_where_it_was(tmp_path: Path, durability: str) -> None:
    journal = SqliteJournal(tmp_path / "journal.db")
    world = World(journal)
    client = world.connect()
    ok(client, http(f"/T?cmd=declare&durability={durability}"))
    for body in (b"first", b"second", b"third"):
        assert ok(client, http("/T?cmd=produce", body=body)).headers["durability"] == durability
    assert pull(client).body == b"first"
    world.advance(10)  # what a group has read is written within 5 ms
    journal.close()
    journal = SqliteJournal(tmp_path / "journal.db")
    client = World(journal).connect()
    assert [pull(client).body for _ in range(2)] == [b"second", b"third"]
    assert pull(client).status == 204
    journal.close()
