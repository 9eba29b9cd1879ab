"""A put is synced and answered in its turn, or a worker syncs: whichever costs others less."""

from __future__ import annotations

from random import Random

import pytest

from zbus.server.loop.loop import FEW, MANY
from zbus.testing.simulation import Connection, Machine, request

PUT = request("produce", "T", b"hello")


def ready(machine: Machine, count: int) -> list[Connection]:
    """Connections that are known to ask for little."""
    machine.start()
    connections = [machine.connect() for _ in range(count)]
    for connection in connections:
        for asked in (request("declare", "T", durability="disk"), PUT):
            connection.send(asked)
            machine.settle()
            assert [reply.status for reply in connection.replies()] == [200]
    return connections


@pytest.mark.parametrize("count", [1, 2, FEW, MANY])
def test_few_or_many(count: int) -> None:
    machine = Machine(Random(1))
    connections = ready(machine, count)
    for _ in range(3):
        for connection in connections:
            connection.send(PUT)
        machine.turn()  # and no worker has run
        for connection in connections:
            assert [reply.status for reply in connection.replies()] == [200]
        assert not machine.running.works


@pytest.mark.parametrize("count", [FEW + 1, MANY - 1])
def test_some(count: int) -> None:
    machine = Machine(Random(1))
    connections = ready(machine, count)
    for connection in connections:
        connection.send(PUT)
    machine.turn()
    assert machine.running.works
    assert not any(connection.replies() for connection in connections)
    machine.settle()
    for connection in connections:
        assert [reply.status for reply in connection.replies()] == [200]


def test_one_that_comes_while_a_worker_syncs_waits_for_the_next_round() -> None:
    machine = Machine(Random(1))
    *connections, late = ready(machine, FEW + 2)
    for connection in connections:
        connection.send(PUT)
    machine.turn()
    late.send(PUT)
    machine.turn()
    assert late.replies() == []
    machine.settle()
    assert [len(one.replies()) for one in (*connections, late)] == [1] * (FEW + 2)


def test_one_that_asks_for_much() -> None:
    """What is left of it has turns, and goes on while a worker syncs what was done of it."""
    machine = Machine(Random(1))
    (connection,) = ready(machine, 1)
    connection.send(PUT * 100)
    machine.turn()
    assert machine.running.works
    machine.settle()
    assert len(connection.replies()) == 100
