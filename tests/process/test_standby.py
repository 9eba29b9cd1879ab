"""An owner and standbys on three real NATS servers: who serves, who waits, and how each ends."""

from __future__ import annotations

import http.client
import itertools
import json
import random
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

import zbus
from tests import forked
from tests.forked import run_zbus
from tests.limits import WAIT_S
from tests.process.nats import NatsCluster, find_program, free_ports
from tests.process.networks import HERE, Machine
from zbus.storage.jetstream.settings import Cluster, make_settings
from zbus.storage.jetstream.subjects import Subjects
from zbus.storage.jetstream.wire import encode_publish

pytestmark = pytest.mark.skipif(
    find_program() is None, reason="needs nats-server: the extra `replicated`"
)

CLUSTERS = map("c{}".format, itertools.count())
REQUEST_S = 20.0


class Reply(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes


class Node:
    """A broker on the engine; it may be a standby."""

    def __init__(
        self, folder: Path, engine: str, name: str, *options: str, machine: Machine = HERE
    ) -> None:
        self.name = name
        self.machine = machine
        self.engine = engine
        (self.port,) = free_ports(1)
        self.log_path = folder / f"{name}.log"
        self._command = [*machine.within, sys.executable, "-m", "zbus", "serve"]
        self._command += ["--host", machine.host, "--port", str(self.port)]
        self._command += ["--engine", engine, "--data-dir", str(folder / name), *options]
        self._command += ["--set", f"node={name}"]
        self.start()

    def start(self) -> None:
        with self.log_path.open("ab") as log:
            self.process = forked.Popen[bytes](self._command, stdout=log, stderr=log)

    @property
    def address(self) -> str:
        return f"{self.machine.host}:{self.port}"

    def ask(self, target: str, body: bytes | None = None) -> Reply | None:
        """None: no connection, or no reply."""
        connection = http.client.HTTPConnection(self.address, timeout=REQUEST_S)
        try:
            connection.request("GET" if body is None else "POST", target, body)
            reply = connection.getresponse()
            return Reply(reply.status, dict(reply.getheaders()), reply.read())
        except (OSError, http.client.HTTPException):
            return None
        finally:
            connection.close()

    def wait_for(self, target: str, status: int, body: bytes | None = None) -> Reply:
        """Ask until this is the status."""
        deadline_s = time.monotonic() + WAIT_S
        while time.monotonic() < deadline_s:
            reply = self.ask(target, body)
            if reply is not None and reply.status == status:
                return reply
            assert self.process.poll() is None, self.log_path.read_text()
            time.sleep(0.02)
        raise AssertionError(f"{self.name} never replied {status}: {self.log_path.read_text()}")

    def wait_for_log(self, text: str) -> None:
        """Until a line of its log has this."""
        deadline_s = time.monotonic() + WAIT_S
        while text not in self.log_path.read_text():
            assert time.monotonic() < deadline_s, self.log_path.read_text()
            time.sleep(0.02)

    def ended(self) -> int:
        return self.process.wait(WAIT_S)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsCluster]:
    with NatsCluster(tmp_path_factory.mktemp("nats")) as cluster:
        yield cluster


Make = Callable[..., Node]


@pytest.fixture
def make(cluster: NatsCluster, tmp_path: Path) -> Iterator[Make]:
    """Starts brokers of a cluster of their own."""
    engine, nodes = cluster.engine(next(CLUSTERS)), list[Node]()

    def start(name: str, *options: str) -> Node:
        nodes.append(Node(tmp_path, engine, name, *options))
        return nodes[-1]

    yield start
    for node in nodes:
        node.kill()


def owner_and_standby(make: Make) -> tuple[Node, Node]:
    owner = make("owner")
    owner.wait_for("/_health", 200)
    owner.wait_for("/T?cmd=declare&ack=true", 200)
    standby = make("standby")
    standby.wait_for("/_health", 503)
    deadline_s = time.monotonic() + WAIT_S
    while owner.address.encode() not in standby.wait_for("/_health", 503).body:
        assert time.monotonic() < deadline_s
    return owner, standby


def test_a_standby_names_the_owner_and_takes_over_when_it_is_killed(make: Make) -> None:
    owner, standby = owner_and_standby(make)
    stored = owner.wait_for("/T?cmd=produce", 200, b"first")
    assert stored.headers["durability"] == "replicated"
    health = standby.wait_for("/_health/ready", 503)
    assert json.loads(health.body) == {
        "status": "standby",
        "owner": owner.address,
        "reasons": [f"the owner is {owner.address}"],
    }
    refused = standby.wait_for("/T?cmd=produce", 503, b"no")
    assert (refused.headers["standby"], refused.headers["retry-after"]) == (owner.address, "1")
    with zbus.connect(f"zbus://{owner.address},{standby.address}", retries=30) as client:
        client.produce("T", "second")
        owner.kill()
        client.produce("T", "third")
    found = [standby.wait_for("/T?cmd=consume", 200).body for _ in range(3)]
    assert found == [b"first", b"second", b"third"]


def test_a_standby_is_made_the_owner_by_hand(make: Make) -> None:
    """The former owner becomes a standby, unless it was told to stop meanwhile."""
    owner, standby = owner_and_standby(make)
    for former, next_one in ((owner, standby), (standby, owner)):
        url = f"http://{former.address}"
        moved = run_zbus("move", 0, next_one.name, "--url", url)
        assert moved.returncode == 0, moved
        assert f"node {next_one.name} owns shard 0 after" in moved.stdout
        next_one.wait_for("/T?cmd=produce", 200, b"x")
        former.wait_for("/T?cmd=produce", 503, b"x")
    document = json.loads(owner.wait_for("/_cluster", 200).body)
    assert document["warnings"] == []
    with socket.create_connection(("127.0.0.1", owner.port)) as waits:
        # A client that takes nothing holds the stop up for a while.
        owner.wait_for("/T?cmd=produce", 200, b"x" * (4 << 20))
        waits.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        waits.sendall(b"GET /_log/T?count=1000&bytes=8MiB HTTP/1.1\r\nhost: x\r\n\r\n" * 4)
        connection = http.client.HTTPConnection("127.0.0.1", owner.port, timeout=REQUEST_S)
        connection.request("GET", "/?cmd=ping")
        connection.getresponse().read()
        owner.process.terminate()
        owner.wait_for_log("stopping")
        with suppress(OSError, http.client.HTTPException):
            connection.request("GET", f"/?cmd=move&shard=0&to={standby.name}")
            assert connection.getresponse().status == 503
        connection.close()
    assert owner.ended() == 0


def test_what_watches_over_brokers_tells_owner_and_standby_apart(make: Make) -> None:
    """Neither is down, and a supervisor must not restart the one that waits."""
    for number, node in enumerate(owner_and_standby(make)):
        text = node.wait_for("/_metrics", 200).body.decode()
        (family,) = [
            one for one in text_string_to_metric_families(text) if one.name == "zbus_engine_standby"
        ]
        assert [sample.value for sample in family.samples] == [number]
        node.wait_for("/_health/live", 200)


def test_stats_and_topics_name_the_engine(make: Make) -> None:
    owner = make("owner")
    owner.wait_for("/T?cmd=declare", 200)
    engine = owner._command[owner._command.index("--engine") + 1]
    found = json.loads(owner.wait_for("/_stats", 200).body)["engine"]
    assert (found["address"], found["epoch"], found["inDoubt"]) == (engine, 1, False)
    assert json.loads(owner.wait_for("/T?cmd=query", 200).body)["durability"] == "replicated"


def test_an_owner_stops_while_no_server_answers(cluster: NatsCluster, make: Make) -> None:
    """It cannot give its ownership up, and does not wait for that."""
    owner = make("owner")
    owner.wait_for("/T?cmd=declare", 200)
    try:
        for number in range(3):
            cluster.signal(number, signal.SIGSTOP)
        owner.wait_for_log("ownership not confirmed")
        owner.process.terminate()
        assert owner.ended() == 0
    finally:
        for number in range(3):
            cluster.signal(number, signal.SIGCONT)
    assert "WARNING ownership not given up" in owner.log_path.read_text()


def test_after_a_clean_stop_there_is_no_pause(make: Make) -> None:
    owner, standby = owner_and_standby(make)
    owner.wait_for("/T?cmd=produce", 200, b"first")
    owner.process.terminate()
    assert owner.ended() == 0
    assert standby.wait_for("/T?cmd=consume", 200).body == b"first"
    assert "INFO ownership given up" in owner.log_path.read_text()
    log = standby.log_path.read_text()
    assert log.index(f"INFO standby why=the owner is {owner.address}") < log.index("epoch=2")


def test_an_owner_that_was_stopped_says_nothing_more(make: Make) -> None:
    """SIGSTOP, until another one serves: then it ends with 75."""
    owner, standby = owner_and_standby(make)
    owner.process.send_signal(signal.SIGSTOP)
    standby.wait_for("/T?cmd=produce", 200, b"by the next owner")
    owner.process.send_signal(signal.SIGCONT)
    reply = owner.ask("/T?cmd=produce", b"by the former one")
    assert reply is None or reply.status == 503
    assert owner.ended() == 75
    assert "another broker has taken over" in owner.log_path.read_text()
    assert standby.wait_for("/T?cmd=consume", 200).body == b"by the next owner"


def test_of_two_standbys_one_takes_over(make: Make) -> None:
    owner, first = owner_and_standby(make)
    second = make("second")
    second.wait_for("/_health", 503)
    owner.kill()
    deadline_s = time.monotonic() + WAIT_S
    while True:
        statuses = [reply.status for node in (first, second) if (reply := node.ask("/_health"))]
        assert statuses != [200, 200]
        if sorted(statuses) == [200, 503]:
            break
        assert time.monotonic() < deadline_s
        time.sleep(0.02)


BAD_STARTS = [
    ("nats://127.0.0.1:1/x", [], "no stream zbus-x-0 within 3000 ms: 127.0.0.1:1: "),
    ("nats://host-without-port/x", [], "is not of the form host:port"),
    ("nats://127.0.0.1:99999/x", [], "is not of the form host:port"),
    ("nats://127.0.0.1:1/x", ["engine_user_file=none"], "engine_user_file none: "),
    ("nats://127.0.0.1:1/x", ["engine_ca_file=none"], "engine_ca_file, engine_cert_file"),
    ("nats://127.0.0.1:1/x", ["engine_cert_file=none"], "engine_cert_file needs engine_ca_file"),
]


@pytest.mark.parametrize(("engine", "options", "text"), BAD_STARTS)
def test_what_cannot_start_says_why(
    tmp_path: Path, engine: str, options: list[str], text: str
) -> None:
    given = [word for one in ["engine_timeout_ms=3000", *options] for word in ("--set", one)]
    node = Node(tmp_path, engine, "node", *given)
    assert node.ended() == 3
    assert text in node.log_path.read_text()


def test_a_password_in_the_address_is_refused(tmp_path: Path) -> None:
    node = Node(tmp_path, "nats://user:secret@127.0.0.1:1/x", "node")
    assert node.ended() == 64
    assert "belong in engine_user_file" in node.log_path.read_text()


def test_a_purged_and_a_deleted_stream_end_the_owner(cluster: NatsCluster, make: Make) -> None:
    owner = make("owner")
    owner.wait_for("/T?cmd=declare", 200)
    stream = f"zbus-{owner._command[owner._command.index('--engine') + 1].rpartition('/')[2]}-0"
    cluster.ask(f"STREAM.PURGE.{stream}")
    assert owner.ended() == 74
    assert "somebody purged it" in owner.log_path.read_text()
    owner.start()
    assert owner.ended() == 3
    assert "somebody purged it" in owner.log_path.read_text().splitlines()[-1]
    cluster.ask(f"STREAM.DELETE.{stream}")
    owner.start()
    owner.wait_for("/T?cmd=declare", 200)
    cluster.ask(f"STREAM.DELETE.{stream}")
    assert owner.ended() == 74
    assert "it was deleted" in owner.log_path.read_text()


def test_a_stream_with_less_than_was_confirmed_is_served_by_nobody(
    cluster: NatsCluster, make: Make
) -> None:
    """A standby that heard of more does not go on with less."""
    owner = make("owner")
    owner.wait_for("/T?cmd=declare", 200)
    standby = make("standby")
    standby.wait_for("/_health", 503)
    for number in range(20):
        owner.wait_for(f"/T?cmd=produce&body={number}", 200)
    time.sleep(2)  # until a heartbeat says so
    name = owner._command[owner._command.index("--engine") + 1].rpartition("/")[2]
    owner.process.send_signal(signal.SIGSTOP)
    cluster.ask(f"STREAM.DELETE.zbus-{name}-0")
    cluster.ask(f"STREAM.CREATE.zbus-{name}-0", make_settings(Cluster(name), Subjects(name)))
    assert standby.ended() == 74
    assert "and its owner had confirmed" in standby.log_path.read_text()
    owner.process.send_signal(signal.SIGCONT)
    assert owner.ended() == 74


def test_a_foreign_message_is_named(cluster: NatsCluster, make: Make) -> None:
    owner = make("owner")
    owner.wait_for("/T?cmd=declare", 200)
    name = owner._command[owner._command.index("--engine") + 1].rpartition("/")[2]
    cluster.publish(encode_publish(f"zb.{name}.0.o", "", b"hello"))
    assert owner.ended() == 75
    owner.start()
    assert owner.ended() == 3
    assert "is no message of a broker" in owner.log_path.read_text()


def test_a_full_stream_refuses_messages_and_takes_acknowledgements(make: Make) -> None:
    room = ["engine_bytes_max=200000", "reserve_bytes=100000"]
    owner = make("owner", *[word for one in room for word in ("--set", one)])
    owner.wait_for("/T?cmd=declare&ack=true", 200)
    owner.wait_for("/T?cmd=produce", 507, b"x" * 10_000)
    message = owner.wait_for("/T?cmd=consume", 200)
    done = owner.wait_for(f"/T?cmd=ack&offset={message.headers['offset']}", 200)
    assert done.status == 200


def test_a_message_that_is_larger_than_the_servers_take(make: Make) -> None:
    """Their `max_payload` is 8 MB: it is stored in pieces, and as the first message of all."""
    owner = make("owner")
    owner.wait_for("/T?cmd=declare&ack=true", 200)
    body = random.Random(1).randbytes(15_000_000)
    owner.wait_for("/T?cmd=produce", 200, body)
    owner.wait_for("/T?cmd=produce", 200, b"next")
    owner.kill()
    owner.start()
    assert owner.wait_for("/T?cmd=consume", 200).body == body
    assert owner.wait_for("/T?cmd=consume", 200).body == b"next"


def test_servers_that_are_late_for_ever(cluster: NatsCluster, make: Make) -> None:
    owner = make("owner", "--set", "engine_timeout_ms=3000")
    owner.wait_for("/T?cmd=declare", 200)
    try:
        for number in range(3):
            cluster.signal(number, signal.SIGSTOP)
        reply = owner.ask("/T?cmd=produce", b"late")
        assert reply is not None
        assert reply.status == 503
        owner.wait_for_log("ownership not given up")
    finally:
        for number in range(3):
            cluster.signal(number, signal.SIGCONT)
    owner.wait_for("/T?cmd=produce", 200, b"again")
    lines = [line.partition(" ")[2] for line in owner.log_path.read_text().splitlines()]
    told = [line for line in lines if line.startswith(("INFO owner ", "WARNING", "ERROR"))]
    wanted = [
        "INFO owner epoch=1",
        "WARNING ownership not confirmed",
        "WARNING write in doubt",
        "ERROR the engine does not answer; starting again, as a standby",
        "WARNING ownership not given up",
        "INFO owner epoch=2",
    ]
    assert sorted(wanted) == sorted(
        [start for line in told for start in wanted if line.startswith(start)]
    )
