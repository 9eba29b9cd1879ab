"""Clients that are inherited: by children of `fork`, `multiprocessing` and gunicorn."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import zbus.client
from tests.examples.broker_process import ROOT, BrokerProcess, Program, lasting_port
from tests.limits import WAIT_S
from tests.process.endpoint import EndpointProcess
from tests.process.test_access import ADMIN, replace
from tests.process.test_tls import TlsBroker

PROGRAM = "tests/process/forked_client.py"


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data") as process:
        yield process.url


def saw(*arguments: str) -> Any:
    with Program("-m", "tests.process.forked_client", *arguments) as program:
        said = program.finish()
    return json.loads(said.rpartition("saw ")[2])


def test_each_message_of_all_processes_is_stored_once(url: str) -> None:
    answers = saw("produce_everywhere", url)
    stored = {body: offset for answer in answers for body, offset, _ in answer}
    assert not any(duplicate for answer in answers for _, _, duplicate in answer)
    assert sorted(stored, key=int) == [str(number) for number in range(1_000)]
    with zbus.client.connect(url) as bus:
        found = bus.read("Everywhere", count=1_001)
    assert {message.text: message.offset for message in found} == stored
    assert len(found) == 1_000


def test_the_same_body_of_several_children_is_several_messages(url: str) -> None:
    assert saw("same_body", url) == [False] * 5
    with zbus.client.connect(url) as bus:
        assert len(bus.read("Ticks")) == 5


def test_forks_while_other_threads_are_at_work(url: str) -> None:
    assert saw("in_the_middle", url) == [5] * 20


def test_what_is_begun_belongs_to_the_parent(url: str) -> None:
    answers = saw("things_of_the_parent", url)
    for what in ("next", "ack"):
        assert answers[what].startswith("RuntimeError: this consumer belongs to process ")
    assert answers["watch"].startswith("RuntimeError: this watch belongs to process ")
    assert answers["close"] is answers["close watch"] is None
    assert answers["pending"].startswith("ConnectionLost: it was begun by process ")
    assert answers["pending"].endswith("whether the request was done is not known")
    assert answers["own"] == ["one", "two", "three"]
    assert answers["rest"] == answers["watched"] == ["one", "two", "three", "four"]
    assert answers["left"] == 0


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_asynchronous_clients(url: str, backend: str) -> None:
    refused, parent, idle = saw("asynchronous", url, backend)
    assert refused.startswith("RuntimeError: this client belongs to process ")
    assert idle == parent + 1


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_multiprocessing(url: str, method: str) -> None:
    offsets, refused = saw("started", url, method)
    assert offsets == list(range(offsets[0], offsets[0] + 3))
    assert refused.startswith("BlockingClient has a connection and cannot be")


def test_tls(tmp_path: Path) -> None:
    replace(tmp_path / "tokens.toml", ADMIN)
    with TlsBroker(tmp_path, "--token-file", str(tmp_path / "tokens.toml")) as broker:
        url = f"https://localhost:{broker.port}"
        seen = saw("over_tls", url, str(broker.files.authority))
    offsets = [one for one in seen if isinstance(one, int)]
    for one in seen:
        offsets += one if isinstance(one, list) else []
    assert seen.count(None) == 2
    assert sorted(offsets) == list(range(14))


def test_semq(url: str, tmp_path: Path) -> None:
    port = int(url.rpartition(":")[2])
    with EndpointProcess(tmp_path / "a", "1:1", port) as endpoint:
        assert saw("over_semq", str(endpoint.socket)) == ["one", ["two"], []]


def test_gunicorn(url: str) -> None:
    """Two workers, the application loaded before they are forked, one client of the module."""
    port = lasting_port()
    command = [sys.executable, "-m", "gunicorn", "--preload", "--workers=2", "--threads=4"]
    command += [f"--bind=127.0.0.1:{port}", "tests.process.forked_app:app"]
    environment = {**os.environ, "BROKER_URL": url}
    server = subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True)
    try:
        assert server.stderr is not None
        booted = 0
        while booted < 2:
            line = server.stderr.readline()
            assert line, "gunicorn does not start"
            booted += "Booting worker" in line

        def post(number: int) -> tuple[int, int, str]:
            where = f"http://127.0.0.1:{port}/"
            with urllib.request.urlopen(where, str(number).encode(), WAIT_S) as reply:
                pid, offset = map(int, reply.read().split())
            return pid, offset, str(number)

        workers: set[int] = set()
        stored: dict[int, str] = {}
        with ThreadPoolExecutor(8) as pool:
            while len(workers) < 2 or len(stored) < 200:
                for pid, offset, body in pool.map(post, range(len(stored), len(stored) + 50)):
                    assert offset not in stored
                    workers.add(pid)
                    stored[offset] = body
        with zbus.client.connect(url) as bus:
            found = bus.read("Web", count=10_000)
        assert {one.offset: one.text for one in found} == stored
    finally:
        server.send_signal(signal.SIGTERM)
        server.communicate(timeout=WAIT_S)
