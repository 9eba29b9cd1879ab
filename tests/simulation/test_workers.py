"""Worlds of several workers: what one process promises, three do, whatever happens to them."""

from __future__ import annotations

import os
import subprocess
import sys
from random import Random

import pytest

from tests.limits import WAIT_S, checked
from tests.simulation.seeds import run_seed
from tests.simulation.workers.server import WORKERS, Node, Server
from zbus.protocol.places import shard_of
from zbus.testing.simulation.machine import Options

SEEDS = [*range(10), *checked(range(10, 50))]


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_promised_holds(seed: int) -> None:
    assert run_seed(seed, dialect="workers").problem == ""


def test_a_seed_is_one_run() -> None:
    """Also where hashes of strings differ."""
    code = (
        "from tests.simulation.workers.world import WorkersSimulation\n"
        "for seed in range(2):\n"
        "    simulation = WorkersSimulation(seed, 60)\n"
        "    simulation.run()\n"
        "    print(simulation.digest)\n"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | {"PYTHONHASHSEED": hash_seed},
            capture_output=True,
            check=True,
            timeout=WAIT_S,
        ).stdout
        for hash_seed in ("0", "4711")
    }
    (output,) = outputs
    assert len(set(output.split())) == 2


# -- what they have found --------------------------------------------------------------------------

READ = (
    b"GET /orders?cmd=read&count=10 HTTP/1.1\r\nhost: 127.0.0.1:15555\r\n"
    b"accept: application/x-ndjson\r\n\r\n"
)


def unexpected(node: Node) -> None:
    raise AssertionError(f"worker {node.number} ended")


@pytest.fixture
def server() -> Server:
    """With a topic of 30 KiB, none of which it remembers."""
    options = Options(output_bytes_max=64_000, cache_bytes_max=100)
    made = Server(Random(0), options, 100, unexpected)
    made.settle()
    client = made.connect(1 << 20, owner(made))
    client.send(b"GET /orders?cmd=declare HTTP/1.1\r\nhost: 127.0.0.1:15555\r\n\r\n")
    for _ in range(3):
        client.send(
            b"POST /orders HTTP/1.1\r\nhost: 127.0.0.1:15555\r\ncontent-length: 10000\r\n\r\n"
        )
        client.send(b"." * 10_000)
    made.settle()
    assert [reply.status for reply in client.replies()] == [200] * 4
    made.kill(owner(made))  # now it has to read them
    made.settle()
    return made


def owner(server: Server) -> Node:
    return server.nodes[shard_of("orders", WORKERS)]


def another(server: Server) -> Node:
    return server.nodes[(owner(server).number + 1) % WORKERS]


def test_requests_behind_the_first_of_a_connection_that_is_handed_over(server: Server) -> None:
    client = server.connect(1 << 20, another(server))
    client.send(3 * READ)
    server.settle()
    assert [reply.status for reply in client.replies()] == [200] * 3


def test_a_client_that_hangs_up_takes_nothing_and_goes(server: Server) -> None:
    client = server.connect(500, another(server))
    client.send(b"GET / HTTP/1.1\r\ncmd: ping\r\n\r\n")  # so it stays where it is
    server.settle()
    client.send(9 * READ)
    client.finish()
    server.settle()
    assert server.left_over()
    client.reset()
    server.settle()
    assert server.left_over() == []
