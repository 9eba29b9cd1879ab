"""Starting, stopping, killing: exit codes, texts, and what is there afterwards."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path

import pytest

from tests import forked
from tests.limits import WAIT_S, checked
from tests.process.broker import BrokerProcess, Wire, request, run_serve, serve_command


@pytest.fixture
def as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Started as users start it."""
    monkeypatch.setattr(forked.Popen, "forks", False)


as_users_do = pytest.mark.usefixtures("as_it_is")


@as_users_do
def test_the_first_lines(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        reply = broker.get("/MyTopic?cmd=declare")
        assert json.loads(reply.body)["topicName"] == "MyTopic"
        assert broker.stop() == 0
        assert "stopped" in broker.log()


@as_users_do
def test_port_taken(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        ended = run_serve("--port", str(port), "--data-dir", str(tmp_path / "data"))
    assert ended.returncode == 3
    assert f"cannot listen on 127.0.0.1:{port}" in ended.stderr
    assert "--port" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_data_directory_in_use(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        ended = run_serve("--port", "0", "--data-dir", str(tmp_path / "data"))
        assert ended.returncode == 3
        assert str(tmp_path / "data") in ended.stderr
        assert "Traceback" not in ended.stderr
        assert broker.get("/?cmd=ping").status == 200


def test_data_directory_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    ended = run_serve("--port", "0", "--data-dir", str(tmp_path / "file"))
    assert ended.returncode == 3
    assert str(tmp_path / "file") in ended.stderr
    assert "Traceback" not in ended.stderr


def test_damaged_log_is_refused(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        broker.get("/T?cmd=declare")
        for number in range(10):
            broker.get("/T?cmd=produce", body=b"message %d" % number)
        broker.stop()
    [log] = (tmp_path / "data").glob("*/0/*.log")
    stored = bytearray(log.read_bytes())
    stored[stored.index(b"message 3")] ^= 1
    log.write_bytes(stored)
    ended = run_serve("--port", "0", "--data-dir", str(tmp_path / "data"))
    assert ended.returncode == 3
    assert log.name in ended.stderr


@as_users_do
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_stop_answers_what_waits(tmp_path: Path, number: signal.Signals) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        broker.get("/T?cmd=declare")
        waiting = broker.connect()
        waiting.send(request("/T?cmd=consume&timeout=60000"))
        deadline = time.monotonic() + WAIT_S
        while not json.loads(broker.get("/T/T?cmd=query").body or b"{}").get("consumerCount"):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        call = broker.connect()
        broker.get("/rpc?cmd=declare&topic_mask=3")
        call.send(request("/rpc/plus/1/2"))
        busy = broker.connect()
        busy.send(request("/T?cmd=produce", body=b"last") * 100)
        assert busy.read().status == 200
        assert broker.stop(number) == 0
        replies = [busy.read().status for _ in range(99)]
        assert set(replies) == {200}
        assert waiting.read().status in (200, 204)
        assert call.read().status == 503


def produce_until_it_breaks(
    wire: Wire, prefix: str, acknowledged: list[str], done: threading.Event, enough: int
) -> None:
    start = len(acknowledged)
    for count in range(100_000):
        name = f"{prefix}-{count}"
        try:
            if wire.get("/T?cmd=produce", f"id: {name}", body=b"x").status != 200:
                return
        except (OSError, EOFError):
            return
        acknowledged.append(name)
        if len(acknowledged) > start + enough:
            done.set()


@pytest.mark.parametrize("durability", ["disk", *checked(["os"])])
def test_kill_loses_nothing_acknowledged(tmp_path: Path, durability: str) -> None:
    acknowledged: list[str] = []
    data_dir = tmp_path / "data"
    for round_number in range(4):
        with BrokerProcess(data_dir, "--durability", durability) as broker:
            assert broker.get("/T?cmd=declare").status == 200
            wires = [broker.connect() for _ in range(8)]
            done = threading.Event()

            threads = [
                threading.Thread(
                    target=produce_until_it_breaks,
                    args=(wire, f"{round_number}-{n}", acknowledged, done, 2_000),
                )
                for n, wire in enumerate(wires)
            ]
            for thread in threads:
                thread.start()
            assert done.wait(WAIT_S)
            broker.kill()
            for thread in threads:
                thread.join()
    with BrokerProcess(data_dir) as broker:
        wire = broker.connect()
        found: set[str] = set()
        while True:
            reply = wire.get("/T?cmd=consume&timeout=500&batch=1000")
            if reply.status == 204:
                break
            found |= {message["id"] for message in json.loads(reply.body)}
        assert set(acknowledged) <= found


def test_a_confirmed_ack_is_not_forgotten(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        broker.get("/T/g?cmd=declare&group_mask=64&group_ack_timeout=500")
        for number in range(20):
            broker.get("/T?cmd=produce", body=b"%d" % number)
        wire = broker.connect()
        acked = set()
        for number in range(20):
            reply = wire.get("/T/g?cmd=consume&timeout=1000")
            if number % 2:
                offset = reply.headers["offset"]
                assert (
                    wire.get("/T/g?cmd=ack&topic=T&consume_group=g&offset=" + offset).status == 200
                )
                acked.add(reply.body)
        broker.kill()
    with BrokerProcess(tmp_path / "data") as broker:
        wire = broker.connect()
        again = []
        while (reply := wire.get("/T/g?cmd=consume&timeout=1500")).status == 200:
            assert reply.headers["retry"]
            again.append(reply.body)
            offset = reply.headers["offset"]
            wire.get("/T/g?cmd=ack&topic=T&consume_group=g&offset=" + offset)
        assert sorted(again, key=int) == [b"%d" % n for n in range(0, 20, 2)]
        assert not acked & set(again)


@as_users_do
def test_file_descriptors_run_out(tmp_path: Path) -> None:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
    try:
        broker = BrokerProcess(tmp_path / "data")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    with broker:
        broker.get("/T?cmd=declare")
        wires = [broker.connect() for _ in range(100)]
        assert wires[0].get("/T?cmd=produce", body=b"x").status == 200
        for wire in wires[1:]:
            wire.close()
        assert broker.get("/T?cmd=query").status == 200
        assert wires[0].get("/T?cmd=produce", body=b"y").status == 200
        assert broker.process.poll() is None
    assert os.path.exists(tmp_path / "data")


def loaded(pid: int, library: str) -> bool:
    """The process has come so far."""
    return library in Path(f"/proc/{pid}/maps").read_text()


def test_a_reload_during_the_start_ends_nothing(tmp_path: Path) -> None:
    """Whoever renews a certificate or a token does not know that the broker is just starting."""
    command = serve_command(tmp_path / "data")
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, bufsize=0)
    assert process.stdout is not None
    try:
        deadline = time.monotonic() + 20
        while process.poll() is None and not loaded(process.pid, "_socket"):
            assert time.monotonic() < deadline
        said = b""
        while b"try:" not in said:
            process.send_signal(signal.SIGHUP)
            if select.select([process.stdout], [], [], 0.005)[0]:
                line = process.stdout.readline()
                assert line, f"it ended with {process.wait(10)}"
                said += line
        while "reloaded" not in (tmp_path / "log").read_text():
            assert time.monotonic() < deadline
            time.sleep(0.01)
    finally:
        process.terminate()
        process.stdout.close()
        assert process.wait(20) == 0


def test_debug_lines_tell_what_clients_do(tmp_path: Path) -> None:
    def lines(level: str) -> list[str]:
        options = ("--set", f"log_level={level}", "--set", "idle_timeout_ms=100")
        with BrokerProcess(tmp_path / level, *options) as broker:
            silent = broker.connect()
            wire = broker.connect()
            wire.get("/T/g?cmd=declare")
            wire.get("/T?cmd=produce", body=b"x")
            wire.get("/Nope?cmd=consume", "token: SECRET")
            wire.get("/T/g?cmd=remove")
            wire.get("/T?cmd=consume&timeout=x")
            wire.close()
            bad = broker.connect()
            bad.send(b"GET / HTTP/1.1\r\nno colon\r\n\r\n")
            assert bad.read().status == 400
            bad.close()
            assert silent.at_end()
            silent.close()
            assert broker.stop() == 0
            return broker.log().splitlines()

    told = "\n".join(lines("debug"))
    assert told.count(" DEBUG connection opened peer=127.0.0.1:") == 3
    assert told.count(" DEBUG connection closed peer=127.0.0.1:") == 3
    for text in (
        "declared peer=",
        "topic=T group=g\n",
        "removing peer=",
        "command=consume topic=Nope why=404: Topic(Nope) Not Found",
        "why=the client closed it",
        "why=400: Bad Format, timeout is milliseconds, or a number with a unit",
        "connection refused",
        "why=400: the header line 'no colon' has no colon",
        "closing, nothing was heard",
        "why=the last reply was sent",
        "why=it was refused",
    ):
        assert text in told
    assert "SECRET" not in told
    assert not [line for line in lines("info") if "DEBUG" in line]
