"""Connections between three workers of a server: who has them, how many, what is left of them."""

from __future__ import annotations

import array
import os
import resource
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.process.broker import BrokerProcess, Wire, eventually, request
from tests.process.test_workers import TOPICS, TRIES, server, workers
from tests.process.websocket import WebSocket
from zbus.workers.forwarding import ROW
from zbus.workers.gathering import UNANSWERED_MAX

EACH = 10
"""Connections of one address in each worker."""


@pytest.fixture
def sockets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where workers have their sockets."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


@pytest.fixture
def broker(tmp_path: Path, sockets: Path) -> Iterator[BrokerProcess]:
    with server(tmp_path) as started:
        for topic in TOPICS:
            assert started.get(f"/{topic}?cmd=declare").status == 200
        yield started
        assert "Traceback" not in started.log()


def at(broker: BrokerProcess, topic: str) -> Wire:
    """A connection to the worker of a topic, as it is handed over."""
    wire = broker.connect()
    assert wire.get(f"/{topic}?cmd=query").status == 200
    return wire


def worker_of(wire: Wire) -> str:
    """The worker that has the connection: ids of what it sends begin with it."""
    return wire.get("/?cmd=ping").headers["id"][:20]


def test_a_worker_without_a_descriptor_is_asked_when_it_has_one(broker: BrokerProcess) -> None:
    """What others ask of it waits, and it does not turn meanwhile."""
    wires = [at(broker, topic) for topic in TOPICS]
    asked = broker.workers()[0]
    usual = resource.prlimit(asked, resource.RLIMIT_NOFILE)
    resource.prlimit(asked, resource.RLIMIT_NOFILE, (5, usual[1]))
    for wire in wires:
        wire.send(b"".join([request(f"/{topic}?cmd=query") for topic in TOPICS]))
    eventually(lambda: "accepting other workers paused" in broker.log())
    resource.prlimit(asked, resource.RLIMIT_NOFILE, usual)
    statuses = [wire.read().status for wire in wires for _ in TOPICS]
    assert statuses.count(200) >= len(statuses) - 2, "this one could ask nobody"
    for wire in wires:
        assert [wire.get(f"/{topic}?cmd=query").status for topic in TOPICS] == [200] * len(TOPICS)
        wire.close()


# -- limits ------------------------------------------------------------------------------------


def opened(broker: BrokerProcess, topic: str) -> list[Wire]:
    """As many connections as one address may have, all for one topic."""
    wires, refused = [], 0
    while refused < 12 * TRIES:
        wire = broker.connect()
        try:
            status = wire.get(f"/{topic}?cmd=query").status
        except (EOFError, OSError):
            status = 0
        if status == 200:
            wires.append(wire)
            continue
        refused += 1
        wire.close()
    return wires


def test_a_worker_that_has_enough_gives_connections_back(tmp_path: Path, sockets: Path) -> None:
    """What cannot be had by the worker of the topic stays where it came in, and is passed on."""
    limit = f"connections_per_address_max={3 * EACH}"
    with server(tmp_path, "--set", limit) as broker:
        assert broker.get(f"/{TOPICS[0]}?cmd=declare").status == 200
        for _ in range(2):
            wires = opened(broker, TOPICS[0])
            assert len(wires) == 3 * EACH
            for wire in wires:
                assert wire.get(f"/{TOPICS[0]}", body=b"x").status == 200
                wire.close()
            eventually(lambda: broker.get("/?cmd=ping").status == 200)
        assert "Traceback" not in broker.log()


def test_what_is_no_connection_is_closed(broker: BrokerProcess, sockets: Path) -> None:
    """Whatever comes where workers send connections."""
    (path,) = sockets.glob("zbus-workers-*/given-0")
    pid = workers(broker)[0]
    before = len(os.listdir(f"/proc/{pid}/fd"))
    sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    for _ in range(50):
        for files in ([0], [0, 1], []):
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))]
            sender.sendmsg([b'{"address":"x"}\n'], rights if files else [], 0, str(path))
    sender.close()
    eventually(lambda: broker.log().count("no connection") >= 150)
    eventually(lambda: len(os.listdir(f"/proc/{pid}/fd")) <= before + 2)


# -- who has a connection ----------------------------------------------------------------------


def same(wire: Wire, topic: str, count: int) -> None:
    for _ in range(count):
        assert wire.get(f"/{topic}", body=b"x").status == 200


@pytest.mark.parametrize(
    ("before", "moves"),
    [
        ([], True),
        ([(TOPICS[2], "", b"")], True),  # of a third worker, that leaves nothing
        ([(TOPICS[0], "?cmd=consume", b"")], False),  # a reader of the group here
        ([(TOPICS[1], "?cmd=consume", b"")], False),
        ([(TOPICS[2], "?cmd=consume", b"")], False),
    ],
)
def test_many_requests_in_a_row_move_a_connection(
    broker: BrokerProcess, before: list[tuple[str, str, bytes]], moves: bool
) -> None:
    wire = at(broker, TOPICS[0])
    for topic in TOPICS:
        assert broker.get(f"/{topic}", body=b"x").status == 200
    for topic, query, body in before:
        assert wire.get(f"/{topic}{query}", body=body).status == 200
    here = worker_of(wire)
    same(wire, TOPICS[1], ROW)
    assert worker_of(wire) == here, "not before the next request"
    same(wire, TOPICS[1], ROW + 1)
    assert (worker_of(wire) != here) is moves
    same(wire, TOPICS[1], 1)


def test_requests_that_are_no_row(broker: BrokerProcess) -> None:
    wire = at(broker, TOPICS[0])
    here = worker_of(wire)
    same(wire, TOPICS[1], ROW - 10)
    same(wire, TOPICS[2], 1)
    same(wire, TOPICS[1], ROW - 10)
    assert worker_of(wire) == here


def test_a_connection_with_an_open_request_stays(broker: BrokerProcess) -> None:
    calls = f"calls{{{TOPICS[1]}}}"
    assert broker.get(f"/{calls}?cmd=declare&rpc=true").status == 200
    wire, service = at(broker, TOPICS[0]), broker.connect()
    service.send(request("/", "cmd: consume", f"topic: {calls}", "id: take"))
    same(wire, TOPICS[1], ROW - 1)
    wire.send(request(f"/{calls}", body=b"?"))
    call = service.read()
    wire.send(request(f"/{TOPICS[1]}", body=b"x"))
    assert broker.get(f"/{TOPICS[1]}?cmd=query").status == 200
    answer = ("cmd: route", f"recver: {call.headers['sender']}", f"id: {call.headers['origin_id']}")
    service.send(request("/", *answer, body=b"!"))
    assert wire.read().body == b"!"
    assert wire.read().status == 200


# -- answers -----------------------------------------------------------------------------------


def test_who_asks_behind_a_stream_that_is_refused_is_answered(broker: BrokerProcess) -> None:
    wire = at(broker, TOPICS[0])
    for topic, other in (TOPICS[1:], TOPICS[:0:-1]):
        assert broker.get(f"/{other}?cmd=empty").status == 200
        wire.send(request(f"/{other}?cmd=consume&timeout=200"))
        wire.send(request(f"/{topic}?cmd=consume", "accept: text/event-stream"))
        wire.send(request(f"/{topic}", body=b"x"))
        assert [wire.read().status for _ in range(3)] == [204, 400, 200]
        wire.send(request(f"/none{{{topic}}}?cmd=consume", "accept: text/event-stream"))
        wire.send(request(f"/{topic}", body=b"x"))
        assert [wire.read().status for _ in range(2)] == [404, 200]
    stream = request(f"/{TOPICS[1]}?cmd=consume", "accept: text/event-stream")
    wire.send(stream + request(f"/{TOPICS[2]}", body=b"x"))
    came = b""
    while b"data: y" not in came:
        came += wire.sock.recv(65_536)
        if b"retry" in came:
            assert broker.get(f"/{TOPICS[1]}", body=b"y").status == 200
    assert came.count(b"HTTP/1.1") == 1, "what is behind a stream is dropped"


def test_a_pull_of_a_silent_client_ends_with_a_word(tmp_path: Path, sockets: Path) -> None:
    with server(tmp_path, "--set", "idle_timeout_ms=1000") as broker:
        for topic in TOPICS:
            assert broker.get(f"/{topic}?cmd=declare").status == 200
        wires = [at(broker, topic) for topic in TOPICS for _ in range(2)]
        for number, waiting in enumerate(wires):
            waiting.send(request(f"/{TOPICS[(1 + number) // 2 % 3]}?cmd=consume"))
        assert [waiting.read().headers.get("empty") for waiting in wires] == ["left"] * 6


@pytest.mark.parametrize("topic", TOPICS)
def test_a_websocket_is_told_that_all_stops(tmp_path: Path, sockets: Path, topic: str) -> None:
    """With the same code wherever its topics are."""
    with server(tmp_path) as broker:
        for each in TOPICS:
            assert broker.get(f"/{each}?cmd=declare").status == 200
        found = [WebSocket(at(broker, each), sent=False) for each in TOPICS]
        for web_socket in found:
            ask = {"cmd": "produce", "topic": topic, "id": "1", "body": "x", "ack": 1}
            assert web_socket.ask(ask)["status"] == 200
        broker.process.send_signal(signal.SIGTERM)
        assert [web_socket.read_close()[0] for web_socket in found] == [1001] * 3
        assert broker.stop() == 0


def test_a_worker_that_hangs_is_not_asked_for_ever(broker: BrokerProcess) -> None:
    stopped = workers(broker)[0]
    others = [at(broker, TOPICS[1]), at(broker, TOPICS[2])]
    os.kill(stopped, signal.SIGSTOP)
    try:
        asking = []
        for _ in range(2 * UNANSWERED_MAX):
            wire = broker.connect()
            wire.send(request("/?cmd=server"))
            asking.append(wire)
        for wire in others:  # those that another worker has as it has them
            wire.send(b"".join([request("/?cmd=server", "id: 1")] * 2 * UNANSWERED_MAX))
            assert wire.read().status == 503
        pids = workers(broker)[1:]
        for wire in (*asking, *others):
            wire.reset()

        def few() -> bool:
            return all(len(os.listdir(f"/proc/{pid}/fd")) < UNANSWERED_MAX for pid in pids)

        eventually(few)
    finally:
        os.kill(stopped, signal.SIGCONT)
    eventually(lambda: broker.get("/?cmd=server").status == 200)


# -- what is left ------------------------------------------------------------------------------


def test_what_a_killed_server_leaves_goes_with_the_next(tmp_path: Path, sockets: Path) -> None:
    for name in ("first", "second", "third"):
        (tmp_path / name).mkdir()
    with server(tmp_path / "first") as first:
        killed = server(tmp_path / "second")
        pids = workers(killed)
        assert len([*sockets.glob("zbus-workers-*")]) == 2
        killed.kill()
        eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))
        with server(tmp_path / "third") as third:
            assert len([*sockets.glob("zbus-workers-*")]) == 2
            assert third.get("/?cmd=ping").status == 200
            assert third.stop() == 0
        assert first.get("/_metrics").status == 200
        assert first.stop() == 0
    assert not [*sockets.glob("zbus-workers-*")]
