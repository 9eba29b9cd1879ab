"""What simulations have found, in a few steps each."""

from __future__ import annotations

import errno
from random import Random

import pytest

from tests.dialects.dialects import DIALECTS, DialectCase
from zbus.storage.port import Verdict
from zbus.testing.disk import Operation
from zbus.testing.simulation import Machine, Options, Reply, request

WAITING = ("native", "adf", "camellia")
"""Dialects whose pulls over HTTP wait."""


def ask(machine: Machine, data: bytes) -> Reply:
    connection = machine.connect()
    connection.send(data)
    machine.settle()
    (reply,) = connection.replies()
    return reply


@pytest.mark.parametrize("seed", range(20))
def test_what_a_killed_broker_left_is_not_handed_out_before_it_is_durable(seed: int) -> None:
    machine = Machine(Random(seed))
    machine.start()
    assert ask(machine, request("declare", "T")).status == 200
    machine.connect().send(request("produce", "T", body=b"1"))
    machine.turn()  # written, and the sync is on its way
    machine.kill()
    machine.start()
    consumer = machine.connect()
    consumer.send(request("consume", "T"))
    machine.turn()
    (reads,) = [worker for worker in machine.running.workers if worker.name == "zbus-read"]
    reads.run()  # and no sync
    machine.turn()
    assert [reply.body for reply in consumer.replies()] == [b"1"]
    machine.power_cut()
    machine.start()
    topic = machine.broker.topic("T")
    assert topic is not None
    assert topic.partitions[0].end == 1


def test_what_a_fenced_partition_held_is_not_handed_out_before_it_is_durable() -> None:
    """Nor is somebody who asks again told that it is stored: a power cut may still take it."""
    machine = Machine(Random(0), options=Options(late=True))
    machine.start()
    assert ask(machine, request("declare", "T")).status == 200
    late = machine.running.late
    assert late is not None
    put = request("produce", "T", b"1", **{"idempotency-key": "k"})
    producer, consumer = machine.connect(), machine.connect()
    producer.send(put)
    machine.turn()
    late.step(("T", 0), Verdict.LOST, written=True)
    late.run()
    machine.turn()  # it is fenced, and read again
    consumer.send(request("consume", "T"))
    (reads,) = [worker for worker in machine.running.workers if worker.name == "zbus-read"]
    for _ in range(5):  # and no sync
        producer.send(put)
        late.run()
        reads.run()
        machine.turn()
    assert [reply.status for reply in producer.replies()] == [503] * 6
    assert consumer.replies() == []
    machine.settle()
    assert [reply.body for reply in consumer.replies()] == [b"1"]
    machine.power_cut()
    machine.start()
    topic = machine.broker.topic("T")
    assert topic is not None
    assert topic.partitions[0].end == 1


def test_a_reserve_that_cannot_be_made_for_a_broken_disk_ends_the_broker() -> None:
    """And not with an exception in the middle of the loop."""
    machine = Machine(Random(0), options=Options(reserve_bytes=10_000))
    machine.disk.capacity_bytes = 5_000  # not enough for the reserve: puts are refused
    machine.start()
    assert ask(machine, request("declare", "T")).status == 507

    def fail(operation: Operation) -> None:
        if operation.name == "open":
            raise OSError(errno.EIO, "broken")

    machine.disk.capacity_bytes = None
    machine.disk.faults = fail
    for _ in range(10):
        if machine.process is not None:
            machine.connect().send(request("declare", "T"))
            machine.settle()
    assert machine.process is None


def test_half_a_request_is_worth_nothing() -> None:
    machine = Machine(Random(0))
    machine.start()
    assert ask(machine, request("declare", "T")).status == 200
    connection = machine.connect()
    data = request("produce", "T", body=b"12345678")
    for byte in range(len(data) - 1):
        connection.send(data[byte : byte + 1])
        machine.settle()
    connection.finish()
    machine.settle()
    assert not connection.alive
    assert ask(machine, request("consume", "T", timeout=0)).status == 204


@pytest.mark.parametrize("dialect", [one for one in DIALECTS if one.name in WAITING], ids=str)
@pytest.mark.parametrize("how", ["finish", "reset"])
def test_who_is_gone_is_given_nothing_though_too_many_of_its_requests_wait(
    dialect: DialectCase, how: str
) -> None:
    """No more of them are read then, and the end of the connection is noticed all the same."""
    machine = Machine(Random(0), options=Options(tickets_per_connection_max=2))
    machine.start()
    assert ask(machine, request("declare", "T")).status == 200
    ask(machine, dialect.put("T", b"1"))
    assert dialect.bodies(dialect.read(ask(machine, dialect.pull("T")))) == [b"1"]
    gone = machine.connect()
    gone.send(b"".join(dialect.pull("T") for _ in range(8)))
    machine.settle()
    assert gone.socket.inbound == b""
    gone.send(dialect.pull("T"))
    machine.settle()
    assert gone.socket.inbound != b""  # nor is the end behind it seen by reading
    getattr(gone, how)()
    machine.settle()
    assert not gone.alive
    ask(machine, dialect.put("T", b"2"))
    assert dialect.bodies(dialect.read(ask(machine, dialect.pull("T")))) == [b"2"]
