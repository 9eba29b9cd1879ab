"""A connection that is gone leaves nothing for the collector, whatever it was amid of.

The collector looks at everything there is; a broker that needs it for each connection that goes
would either stand still often or grow.
"""

from __future__ import annotations

import gc
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.conformance.websocket_client import handshake
from tests.limits import WAIT_S
from tests.wire.websocket_frames import frame
from zbus.config import Config
from zbus.server.process.serve import Server

POST = b"POST /T HTTP/1.1\r\nhost: localhost\r\n"


def ask(target: str, *lines: str, body: str = "") -> bytes:
    head = [f"GET {target} HTTP/1.1", "host: localhost", f"content-length: {len(body)}", *lines]
    return ("\r\n".join(head) + "\r\n\r\n" + body).encode()


WAITS = ask("/T?cmd=consume")

AMID = {
    "nothing": b"",
    "a reply": ask("/?cmd=ping"),
    "a pull": WAITS,
    "many pulls": WAITS * 200,
    "more pulls than end in a turn": WAITS * 1_000,
    "more pulls than are read": WAITS * 1_100,
    "puts behind a pull": WAITS + ask("/M", body="x") * 20,
    "pulls by id": b"".join(ask("/T?cmd=consume", f"id: {n}") for n in range(50)),
    "a pull with a timeout": ask("/T?cmd=consume&timeout=60000"),
    "the protocol's own pulls": ask("/", "cmd: consume", "topic: T", "consume_window: 3"),
    "refusals": b"".join(ask(f"/T?cmd=consume&timeout=x{n}") for n in range(100)),
    "names that are not there": b"".join(ask(f"/No{n}?cmd=consume") for n in range(100)),
    "heads that are not remembered": b"".join(
        ask(f"/{path}?cmd=ping&n={n}{'&x=y' * 60}") for n in range(100) for path in ("", "T")
    ),
    "a bad head": b"GET / HTTP/9.9\r\n\r\n",
    "half a head": b"GET / HTTP/1.1\r\nhost: lo",
    "half a body": ask("/T", body="x" * 100)[:-50],
    "half a chunk": POST + b"transfer-encoding: chunked\r\n\r\n5\r\nab",
    "a body that is too large": POST + b"content-length: 99999999\r\n\r\n",
    "puts": ask("/M", body="x") * 100,
    "a call": ask("/R/method/1", "id: 1"),
    "calls": ask("/R/method/1") * 20,
    "a stream": ask("/T?cmd=consume", "accept: text/event-stream"),
    "a stream of figures": ask("/_stats", "accept: text/event-stream"),
    "following a tracker": ask("/", "cmd: track_sub"),
    "a websocket": handshake(),
    "a pull on a websocket": handshake() + frame(1, WAITS),
    "half a frame": handshake() + frame(1, b"x" * 50)[:-10],
    "half a message": handshake() + b"\x01\x84abcd1234",
    "a bad frame": handshake() + b"\xff\xff\xff",
    "a group that comes and goes": ask("/T/g?cmd=declare") + ask("/T/g?cmd=remove"),
    "documents": ask("/?cmd=query") + ask("/?cmd=server") + ask("/?cmd=tracker"),
    "a call in vain": ask("/R/method/1?timeout=1"),
    "a closing frame": handshake() + b"\x88\x80abcd",
}


class Turns:
    """A server whose turns are made here."""

    server: Server

    @classmethod
    def of(cls, server: Server) -> Turns:
        """Of this one, which has no topics."""
        turns = cls.__new__(cls)
        turns.server = server
        return turns

    def __init__(self, tmp_path: Path) -> None:
        self.server = Server(Config(port=0, data_dir=tmp_path / "data", durability="os"))
        client = self.connect(
            ask("/T?cmd=declare"), ask("/M?cmd=declare"), ask("/R?cmd=declare&topic_mask=3")
        )
        client.close()
        self.run()

    def connect(self, *said: bytes) -> socket.socket:
        client = socket.create_connection(("127.0.0.1", self.server.port))
        client.setblocking(False)  # what is sent is read by turns
        for data in said:
            while data:
                with suppress(BlockingIOError):
                    data = data[client.send(data) :]
                self.run()
        return client

    def run(self) -> None:
        """Until there is nothing to do in this thread."""
        loop = self.server.loop
        quiet = 0
        while quiet < 2:
            events = loop._readiness.wait(0.002, 1024)
            loop.now_ms = int(time.monotonic() * 1000)
            loop.turn(events)
            quiet = 0 if events or loop._ring.links else quiet + 1

    def receive(self, client: socket.socket) -> bytes:
        """The next piece that is sent to it. A reply may wait for a thread of the journal, which
        does its work between two turns or much later: the end of `run` is no sign of a reply."""
        found = []

        def came() -> bool:
            with suppress(BlockingIOError):
                found.append(client.recv(1 << 20))
            return bool(found)

        self.until(came)
        return found[0]

    def until(self, done: Callable[[], bool]) -> None:
        end_s = time.monotonic() + WAIT_S
        while not done():
            self.run()
            assert time.monotonic() < end_s

    def gone(self) -> None:
        """Until no connection is left."""
        self.until(lambda: not self.server.loop.links)


@pytest.fixture
def turns(tmp_path: Path) -> Iterator[Turns]:
    turns = Turns(tmp_path)
    gc.collect()
    gc.freeze()  # for good: who thaws that thaws a million objects of all tests, too
    gc.disable()
    yield turns
    gc.enable()
    turns.server.close()


@pytest.mark.parametrize("target", ["/_stats", "/T?cmd=consume", "/T/g?cmd=consume"])
def test_a_reader_that_has_read_all_and_hangs_up(turns: Turns, target: str) -> None:
    """The system does not say that it takes no more."""
    client = turns.connect(ask("/T/g?cmd=declare"), ask(target, "accept: text/event-stream"))
    came = b""
    while b"retry: 1000" not in came:
        came += turns.receive(client)
    turns.run()
    with suppress(BlockingIOError):
        client.recv(1 << 20)
    client.close()
    turns.gone()


@pytest.mark.parametrize("amid", AMID)
def test_nothing_is_left(turns: Turns, amid: str) -> None:
    found = []
    for _ in range(3):  # the first time the interpreter itself may leave some
        gc.collect()
        turns.connect(AMID[amid]).close()
        turns.gone()
        found.append(gc.collect())
        if not found[-1]:
            break
    assert min(found) == 0
    turns.server._assembly.heads.forget()
    assert gc.collect() == 0
