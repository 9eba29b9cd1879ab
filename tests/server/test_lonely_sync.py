"""A put that comes alone is synced and answered in its turn; with others, a worker syncs."""

from __future__ import annotations

from random import Random

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


def test_alone() -> None:
    machine = Machine(Random(1))
    (connection,) = ready(machine, 1)
    for _ in range(3):
        connection.send(PUT)
        machine.turn()  # and no worker has run
        assert [reply.status for reply in connection.replies()] == [200]
        assert not machine.running.works


def test_beside_others() -> None:
    machine = Machine(Random(1))
    connections = ready(machine, 2)
    for connection in connections:
        connection.send(PUT)
    machine.turn()
    assert machine.running.works
    assert [connection.replies() for connection in connections] == [[], []]
    machine.settle()
    for connection in connections:
        assert [reply.status for reply in connection.replies()] == [200]


def test_one_that_comes_while_a_worker_syncs_waits_for_the_next_round() -> None:
    machine = Machine(Random(1))
    first, second, third = ready(machine, 3)
    for connection in (first, second):
        connection.send(PUT)
    machine.turn()
    third.send(PUT)
    machine.turn()
    assert third.replies() == []
    machine.settle()
    assert [len(one.replies()) for one in (first, second, third)] == [1, 1, 1]
