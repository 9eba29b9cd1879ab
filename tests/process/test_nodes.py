"""Three nodes with six shards on three real NATS servers: one server to the outside, whatever node
a client asks and whichever of them ends."""

from __future__ import annotations

import json
import os
import signal
import socket
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path

import pytest
import trustme

from tests.forked import run_zbus
from tests.limits import WAIT_S
from tests.process.broker import run_serve
from tests.process.nats import NatsCluster, find_program, ports_in_a_row
from tests.process.test_standby import Node
from zbus.config import load
from zbus.protocol.places import shard_of
from zbus.server.doctor import engine as doctor

pytestmark = pytest.mark.skipif(
    find_program() is None, reason="needs nats-server: the extra `replicated`"
)

SHARDS = 6
TOPICS = [next(f"T{n}" for n in count() if shard_of(f"T{n}", SHARDS) == s) for s in range(SHARDS)]
"""One in each shard."""

CLUSTERS = map("n{}".format, count())


class Member(Node):
    """A node, with all of its processes."""

    relay_port = 0  # of the owner of shard 0

    def children(self) -> list[int]:
        found = subprocess.run(["pgrep", "-P", str(self.process.pid)], capture_output=True)
        return [int(pid) for pid in found.stdout.split()]

    def kill(self) -> None:
        """All at the same moment, as a machine without power."""
        pids = [self.process.pid, *self.children()] if self.process.poll() is None else []
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()

    def owner_of(self, shard: int) -> int:
        """The process that listens at the shard's port."""
        inode = next(
            words[9]
            for words in map(str.split, Path("/proc/net/tcp").read_text().splitlines()[1:])
            if words[3] == "0A" and int(words[1].partition(":")[2], 16) == self.relay_port + shard
        )
        return next(
            pid
            for pid in self.children()
            for file in Path(f"/proc/{pid}/fd").iterdir()
            if f"socket:[{inode}]" == os.readlink(file)
        )

    def put(self, topic: str, body: bytes) -> None:
        """It may take a moment, and is done."""
        reply = self.ask(f"/{topic}?cmd=produce", body)
        assert reply is not None, self.log_path.read_text()
        assert reply.status == 200, (reply, self.log_path.read_text())

    def take_all(self, topic: str) -> list[bytes]:
        """What the topic's group has to give."""
        found: list[bytes] = []
        while True:
            reply = self.ask(f"/{topic}?cmd=consume&timeout=0")
            assert reply is not None
            if reply.status == 204:
                return found
            assert reply.status == 200, reply
            found.append(reply.body)

    @property
    def log(self) -> str:
        return self.log_path.read_text()


Make = Callable[..., Member]


def start_node(
    folder: Path, engine: str, name: str, authority: trustme.CA, *options: str
) -> Member:
    """It believes others whose certificates the first authority signed that is in the folder."""
    if not (folder / "ca.pem").exists():
        authority.cert_pem.write_to_path(folder / "ca.pem")
    certificate, port = folder / f"{name}.pem", ports_in_a_row(SHARDS)
    authority.issue_cert(f"{name}.test").private_key_and_cert_chain_pem.write_to_path(certificate)
    options = (
        *("--shards", str(SHARDS), "--set", f"relay_listen=127.0.0.1:{port}"),
        *("--set", f"relay_ca_file={folder}/ca.pem", "--set", f"relay_cert_file={certificate}"),
        *options,
    )
    node = Member(folder, engine, name, *options)
    node.relay_port = port
    return node


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsCluster]:
    with NatsCluster(tmp_path_factory.mktemp("nats")) as cluster:
        yield cluster


@pytest.fixture
def make(cluster: NatsCluster, tmp_path: Path) -> Iterator[Make]:
    """Starts nodes of a cluster of their own."""
    engine, nodes = cluster.engine(next(CLUSTERS)), list[Member]()
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")

    def start(name: str, *options: str, by: trustme.CA = authority) -> Member:
        nodes.append(start_node(tmp_path, engine, name, by, "--set", "hold_ms=60000", *options))
        return nodes[-1]

    yield start
    for node in nodes:
        node.kill()


def test_one_server_whichever_node_ends(make: Make) -> None:
    """One is killed like a machine, comes back and is stopped, then another one is stopped: no
    client has an error, and nothing is lost."""
    nodes = [make(name) for name in "abc"]
    for node in nodes:
        node.wait_for("/_health", 200)
    a, b, c = nodes
    stored: dict[str, list[bytes]] = {topic: [] for topic in TOPICS}

    def put(*through: Member) -> None:
        for topic in TOPICS:
            for node in through:
                body = f"{len(stored[topic])}".encode()
                node.put(topic, body)
                stored[topic].append(body)

    for topic in TOPICS:
        b.wait_for(f"/{topic}?cmd=declare", 200)
    put(a, b, c)
    c.kill()
    put(a, b)
    c.start()
    c.wait_for("/_health", 200)
    put(a, b, c)
    b.process.send_signal(signal.SIGTERM)
    assert b.ended() == 0
    put(a, c)
    for topic in TOPICS:
        assert c.take_all(topic) == stored[topic]
    assert "Traceback" not in a.log + b.log + c.log


def test_an_owner_that_ends_is_replaced_at_once(make: Make) -> None:
    """Its parent has seen the end, so nobody waits until it is certain."""
    node = make("a")
    node.wait_for("/_health", 200)
    for topic in TOPICS:
        node.wait_for(f"/{topic}?cmd=declare&ack=true", 200)
        node.put(topic, b"before")
    for pid in reversed(node.children()):  # first the spare
        os.kill(pid, signal.SIGKILL)
        node.wait_for("/_health", 200)
    for topic in TOPICS:
        node.put(topic, b"after")
        reply = node.wait_for(f"/{topic}?cmd=consume&lease=60000", 200)
        assert reply.body == b"before"
    assert "Traceback" not in node.log


def test_each_node_is_told_with_what_it_owns(make: Make) -> None:
    """So stock clients, which choose a server by its topics, go to the right one."""
    nodes = [make(name) for name in "ab"]
    for node in nodes:
        node.wait_for("/_health", 200)
    for topic in TOPICS:
        nodes[0].wait_for(f"/{topic}?cmd=declare", 200)
    told = [json.loads(node.wait_for("/?cmd=tracker", 200).body) for node in nodes]
    for document in told:
        table = document["serverTable"]
        assert set(table) <= {node.address for node in nodes}
        topics = [topic for server in table.values() for topic in server["topicTable"]]
        assert sorted(topics) == sorted(TOPICS)
    assert told[0]["serverTable"].keys() == told[1]["serverTable"].keys()


def test_dead_letters_go_from_node_to_node(make: Make) -> None:
    """Each topic's to the next one, so that some pairs are of two nodes."""
    nodes = [make(name) for name in "ab"]
    for node in nodes:
        node.wait_for("/_health", 200)
    pairs = list(zip(TOPICS, [f"{topic}x" for topic in TOPICS], strict=True))
    for topic, dead in pairs:
        nodes[0].wait_for(f"/{dead}?cmd=declare", 200)
        words = f"group=g&ack=true&group_max_attempts=1&group_dead_letter={dead}"
        nodes[0].wait_for(f"/{topic}?cmd=declare&{words}", 200)
        nodes[1].put(topic, topic.encode())
        taken = nodes[0].wait_for(f"/{topic}/g?cmd=consume", 200)
        offset = taken.headers["offset"]
        nodes[1].wait_for(f"/{topic}/g?cmd=nack&offset={offset}", 200)
    for topic, dead in pairs:
        assert nodes[0].wait_for(f"/{dead}?cmd=consume&timeout=5000", 200).body == topic.encode()
    shards = {(shard_of(topic, SHARDS), shard_of(dead, SHARDS)) for topic, dead in pairs}
    assert any(one != other for one, other in shards)


def test_an_owner_that_stands_still_is_replaced_on_its_node(make: Make) -> None:
    """It holds its sockets: the node kills it when another one has claimed its shard."""
    node = make("a")
    node.wait_for("/_health", 200)
    for topic in TOPICS:
        node.wait_for(f"/{topic}?cmd=declare", 200)
    node.wait_for("/_health", 200)
    stopped = node.owner_of(0)
    os.kill(stopped, signal.SIGSTOP)
    node.wait_for_log("a former owner is killed")
    node.put(TOPICS[0], b"by the next one")
    assert node.owner_of(0) != stopped
    assert "Address already in use" not in node.log


def test_signals_for_all_processes(make: Make) -> None:
    """As a terminal and service managers send them: a reload ends nobody."""
    node = make("a")
    node.wait_for("/_health", 200)
    before = node.children()
    for pid in [node.process.pid, *before]:
        os.kill(pid, signal.SIGHUP)
    node.wait_for("/_health", 200)
    for topic in TOPICS:
        node.wait_for(f"/{topic}?cmd=declare", 200)
    assert node.children() == before
    for pid in [*before, node.process.pid]:
        os.kill(pid, signal.SIGINT)
    assert node.ended() == 0
    assert "ERROR" not in node.log


def test_a_stopped_process_says_nothing_more(make: Make) -> None:
    """An owner that stands still loses its shard, and ends when it wakes up."""
    a, b = make("a"), make("b")
    for node in (a, b):
        node.wait_for("/_health", 200)
    for topic in TOPICS:
        a.wait_for(f"/{topic}?cmd=declare", 200)
    stopped = a.children()
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    for topic in TOPICS:
        b.put(topic, b"by b")
    for pid in stopped:
        os.kill(pid, signal.SIGCONT)
    deadline_s = time.monotonic() + WAIT_S
    while "an owner has lost its shard" not in a.log:
        assert time.monotonic() < deadline_s, a.log
        time.sleep(0.02)
    for topic in TOPICS:
        a.put(topic, b"by a")
        assert a.take_all(topic) == [b"by b", b"by a"]


def test_a_node_with_a_certificate_of_another_authority(make: Make) -> None:
    """It serves what it owns, and is passed nothing of others."""
    a, b = make("a"), make("b", "--set", "hold_ms=0", by=trustme.CA())
    for node in (a, b):
        node.wait_for_log("listening")
    deadline_s = time.monotonic() + WAIT_S
    while (a.log + b.log).count("INFO owner") < SHARDS:
        assert time.monotonic() < deadline_s, a.log + b.log
        time.sleep(0.02)
    statuses = set()
    for topic in TOPICS:
        reply = b.ask(f"/{topic}?cmd=declare")
        assert reply is not None
        statuses.add(reply.status)
    assert statuses == {200, 503}
    assert "TLS failed" in a.log


SAID: list[tuple[bytes, bytes]] = [
    (b'{"address":"x","shard":0}\nGET /?cmd=ping HTTP/1.1\r\n\r\n', b"HTTP/1.1 200 "),
    (b'{"address":"x","shard":1}\nGET /?cmd=ping HTTP/1.1\r\n\r\n', b"the shard has moved"),
    (b'{"address":"x","shard":1,"inner":true}\n', b"the shard has moved"),
    (b"GET /?cmd=ping HTTP/1.1\r\n\r\n", b"HTTP/1.1 400 "),
    (b'{"address":1}\nGET / HTTP/1.1\r\n\r\n', b"HTTP/1.1 400 "),
    (b"[" * 10_000 + b"\n", b"HTTP/1.1 400 "),
    (b"\0" * 100_000, b"HTTP/1.1 400 "),
]


def test_what_another_node_may_say(make: Make, tmp_path: Path) -> None:
    """Only one with a certificate is heard at all."""
    node = make("a")
    node.wait_for("/_health", 200)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(tmp_path / "ca.pem")

    def say(data: bytes) -> bytes:
        with (
            socket.create_connection(("127.0.0.1", node.relay_port), WAIT_S) as plain,
            context.wrap_socket(plain) as sock,
        ):
            sock.sendall(data)
            return sock.recv(1 << 16)

    with pytest.raises((ssl.SSLError, ConnectionError)):
        say(SAID[0][0])
    context.load_cert_chain(tmp_path / "a.pem")
    for said, answer in SAID:
        assert answer in say(said), said[:80]
    assert "Traceback" not in node.log


REFUSED: list[tuple[tuple[str, ...], str]] = [
    (("--shards", "4"), "--shards is for NATS servers"),
    (("--engine", "nats://127.0.0.1:1/x", "--workers", "2"), "needs --shards"),
    *(
        (("--engine", "nats://127.0.0.1:1/x", "--shards", "4", *words), text)
        for words, text in (
            (("--set", "relay_listen=127.0.0.1:7000"), "needs relay_ca_file and relay_cert_file"),
            (("--set", "relay_listen=0.0.0.0:7000"), "an IP address that others reach"),
            (("--set", "relay_listen=b.internal:7000"), "an IP address that others reach"),
            (("--set", "relay_listen=127.0.0.1:65533"), "with a port for each shard"),
            (
                (
                    *("--set", "relay_listen=127.0.0.1:7000", "--set", "relay_ca_file=/nowhere"),
                    *("--set", "relay_cert_file=/nowhere"),
                ),
                "No such file",
            ),
            (("--set", "engine_timeout_ms=3000"), "Connection refused"),
        )
    ),
]


@pytest.mark.parametrize(("options", "text"), REFUSED)
def test_what_cannot_start(tmp_path: Path, options: tuple[str, ...], text: str) -> None:
    ended = run_serve("--port", "0", "--data-dir", str(tmp_path / "data"), *options)
    assert (ended.returncode, text in ended.stderr) == (3, True), ended.stderr


def test_another_number_of_shards_is_refused(make: Make, tmp_path: Path) -> None:
    """By a broker, by `zbus copy`, which would miss five of them, and by `zbus doctor`."""
    node = make("a")
    node.wait_for("/_health", 200)
    engine = node.engine
    ended = run_serve("--port", "0", "--engine", engine, "--shards", "4", "--node", "b")
    assert ended.returncode == 3
    assert f"it was made with --shards {SHARDS}, not 4" in ended.stderr
    copied = run_zbus("copy", engine, str(tmp_path / "copy"))
    assert (copied.returncode, f"one of {SHARDS} shards" in copied.stderr) == (3, True), copied
    found = [
        [each.level for each in doctor(load(options={"engine": engine, "shards": f"{shards}"}), 1)]
        for shards in (SHARDS, 4)
    ]
    assert [levels.count("problem") for levels in found] == [0, 4]
