"""What a connection costs that does nothing. `make bench`: it takes time to see nothing happen."""

from __future__ import annotations

import socket
import time
from pathlib import Path

import pytest

from tests.bench.measure import cpu_seconds, resident_bytes, show
from tests.process.broker import BrokerProcess

pytestmark = pytest.mark.bench


@pytest.mark.parametrize("count", [1_000, 10_000])
def test_idle_connections(tmp_path: Path, count: int) -> None:
    """At most 8 KB for an idle connection, 2 % of a core for all of them."""
    with BrokerProcess(tmp_path / "data", "--set", "connections_per_address_max=0") as broker:
        before = resident_bytes(broker.process.pid)
        socks = []
        ping = b"GET /?cmd=ping HTTP/1.1\r\nhost: localhost\r\n\r\n"
        for _ in range(count):
            sock = socket.create_connection(("127.0.0.1", broker.port))
            sock.sendall(ping)
            assert sock.recv(4096).startswith(b"HTTP/1.1 200")
            socks.append(sock)
        each = (resident_bytes(broker.process.pid) - before) / count
        total = resident_bytes(broker.process.pid) / 1e6
        cpu, started = cpu_seconds(broker.process.pid), time.monotonic()
        time.sleep(10)
        busy = (cpu_seconds(broker.process.pid) - cpu) / (time.monotonic() - started)
        for sock in socks:
            sock.close()
    show(connections=count, bytes_each=each, total_mb=total, idle_cpu=busy)
    assert each <= 8192
    assert busy <= 0.02
