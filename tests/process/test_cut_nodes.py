"""A node that other nodes do not reach any more, while NATS servers and clients do: it keeps its
shards, and requests for them are refused elsewhere instead of waiting."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
import trustme

from tests.process.nats import find_program
from tests.process.nats_faults import FaultyCluster
from tests.process.networks import Link, Namespaces, ThisMachine, find_network
from tests.process.test_nodes import TOPICS, Member, start_node
from tests.process.test_standby import REQUEST_S, Reply

pytestmark = pytest.mark.skipif(
    find_program() is None, reason="needs nats-server: the extra `replicated`"
)

NODES = "ab"
REFUSED_S = 15.0
"""`hold_ms`, and as much until a cut is noticed, on a slow machine. It may not be `REQUEST_S`."""


@pytest.fixture
def network() -> Iterator[ThisMachine]:
    with find_network(NODES) as network:
        if not isinstance(network, Namespaces):
            pytest.skip("needs network namespaces: root, and the program `ip`")
        yield network


def test_requests_over_a_link_that_is_cut_are_refused(network: ThisMachine, tmp_path: Path) -> None:
    assert REFUSED_S < REQUEST_S
    authority, nodes = trustme.CA(), list[Member]()
    with FaultyCluster(tmp_path / "nats", NODES, "cut", Random(1), network.host) as servers:
        try:
            for name in NODES:
                ports = servers.ports_for(name)
                engine = f"nats://{','.join([f'{network.host}:{port}' for port in ports])}/cut"
                machine = network.machines[name]
                nodes.append(
                    start_node(tmp_path, engine, name, authority, "--insecure", machine=machine)
                )
            a, b = nodes
            a.wait_for("/_health/all", 200)
            for topic in TOPICS:
                a.wait_for(f"/{topic}?cmd=declare", 200)
            (*_, far) = (topic for topic in TOPICS if f"shard={TOPICS.index(topic)} " in b.log)
            waiting: list[Reply | None] = []
            begun_s = time.monotonic()

            def take() -> None:
                waiting.append(a.ask(f"/{far}?cmd=consume&timeout=60000"))

            taking = threading.Thread(target=take)
            taking.start()
            time.sleep(1)  # it waits at the owner
            network.cut(b.name, Link.NODES)
            reply = a.ask(f"/{far}?cmd=produce", b"new")
            taking.join()
            assert time.monotonic() - begun_s < REFUSED_S
            for refused in (*waiting, reply):
                assert refused is not None
                assert refused.status == 503
            b.put(far, b"here")
            network.mend(b.name, Link.NODES)
            a.wait_for(f"/{far}?cmd=produce", 200, b"there")
        finally:
            for node in nodes:
                node.kill()
