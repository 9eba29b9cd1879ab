"""Bodies on their way in take what they may, and the system has it back when they are gone."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from tests.bench.measure import resident_bytes
from tests.limits import WAIT_S, checked
from tests.process.broker import BrokerProcess, Wire
from tests.process.websocket import WebSocket
from tests.wire.websocket_frames import frame

CONNECTIONS = 60
BLOCK = b"x" * 60_000
BODIES_BYTES_MAX = 64 << 20

LENGTH = b"POST /T HTTP/1.1\r\nhost: localhost\r\ncontent-length: 16777216\r\n\r\n"
CHUNKED = b"POST /T HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n"


@pytest.mark.parametrize("kind", ["length", "websocket", *checked(["chunked"])])
def test_memory_of_bodies(tmp_path: Path, kind: str) -> None:
    """They grow by turns. 60 of 2 MiB are twice as much as they may be: the last ones are refused,
    and close their connections."""
    begin, piece = {
        "length": (LENGTH, BLOCK),
        "chunked": (CHUNKED, b"ea60\r\n%b\r\n" % BLOCK),
        "websocket": (frame(2, fin=False), frame(0, BLOCK, fin=False, key=bytes(4))),
    }[kind]
    options = ("--set", f"bodies_bytes_max={BODIES_BYTES_MAX}")
    with BrokerProcess(tmp_path / "data", *options) as broker:
        before = resident_bytes(broker.process.pid)

        def taken() -> int:
            return resident_bytes(broker.process.pid) - before

        wires = [_begun(broker, kind, begin) for _ in range(CONNECTIONS)]
        for _ in range(35):
            for wire in wires:
                with suppress(OSError):  # it was refused
                    wire.send(piece)
        _until("little is taken", lambda: taken() > BODIES_BYTES_MAX * 0.7)
        for wire in wires:
            wire.close()
        _until("much is kept", lambda: taken() < 12 << 20)
        assert _peak_bytes(broker.process.pid) - before < BODIES_BYTES_MAX * 1.3
        assert broker.get("/?cmd=ping").status == 200


def _until(otherwise: str, told: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not told():
        assert time.monotonic() < deadline, otherwise
        time.sleep(0.05)


def _peak_bytes(pid: int) -> int:
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) << 10


def _begun(broker: BrokerProcess, kind: str, begin: bytes) -> Wire:
    wire = broker.connect()
    if kind == "websocket":
        wire = WebSocket(wire).wire
    wire.send(begin)
    return wire
