"""Three nodes with six shards on three real NATS servers: one server to the outside, whatever node
a client asks and whichever of them ends."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import count, cycle
from pathlib import Path

import pytest
import trustme

import zbus
from tests.forked import run_zbus
from tests.limits import WAIT_S
from tests.process.broker import run_serve
from tests.process.nats import NatsCluster, find_program, ports_in_a_row
from tests.process.networks import HERE, Machine
from tests.process.test_standby import Node
from zbus.config import load
from zbus.protocol.places import NODE_PROTOCOL, shard_of
from zbus.server.doctor import engine as doctor
from zbus.storage.jetstream.presence import order_of

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

    def start_in(self, tree: Path) -> None:
        """With another program."""
        command, self._command = self._command, ["env", "-C", str(tree), *self._command]
        self.start()
        self._command = command

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
    folder: Path,
    engine: str,
    name: str,
    authority: trustme.CA,
    *options: str,
    machine: Machine = HERE,
) -> Member:
    """It believes others whose certificates the first authority signed that is in the folder."""
    if not (folder / "ca.pem").exists():
        authority.cert_pem.write_to_path(folder / "ca.pem")
    certificate, port = folder / f"{name}.pem", ports_in_a_row(SHARDS)
    authority.issue_cert(f"{name}.test").private_key_and_cert_chain_pem.write_to_path(certificate)
    options = (
        *("--shards", str(SHARDS), "--set", f"relay_listen={machine.relay_host}:{port}"),
        *("--set", f"relay_ca_file={folder}/ca.pem", "--set", f"relay_cert_file={certificate}"),
        *options,
    )
    node = Member(folder, engine, name, *options, machine=machine)
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
        node.wait_for("/_health/all", 200)
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
    c.wait_for("/_health/all", 200)
    put(a, b, c)
    b.process.send_signal(signal.SIGTERM)
    assert b.ended() == 0
    put(a, c)
    for topic in TOPICS:
        assert c.take_all(topic) == stored[topic]
    assert "Traceback" not in a.log + b.log + c.log


@pytest.mark.check
def test_nodes_are_replaced_one_after_another(make: Make) -> None:
    """As in an upgrade: each is stopped when all shards have owners, and clients go on."""
    nodes = [make(name) for name in "abc"]
    for node in nodes:
        node.wait_for("/_health/all", 200)
    for topic in TOPICS:
        nodes[0].wait_for(f"/{topic}?cmd=declare", 200)
    url = "zbus://" + ",".join(node.address for node in nodes)
    stored: dict[str, list[bytes]] = {topic: [] for topic in TOPICS}
    ended = threading.Event()

    def produce() -> None:
        with zbus.connect(url, retries=30) as client:
            for number, topic in zip(count(), cycle(TOPICS)):
                client.produce(topic, f"{number}")
                stored[topic].append(f"{number}".encode())
                if ended.is_set():
                    return

    with ThreadPoolExecutor(1) as pool:
        client = pool.submit(produce)
        for node in nodes:
            node.process.send_signal(signal.SIGTERM)
            assert node.ended() == 0
            for other in set(nodes) - {node}:
                other.wait_for("/_health/all", 200)
            node.start()
            node.wait_for("/_health/all", 200)
        ended.set()
        client.result(WAIT_S)
    for topic in TOPICS:
        assert nodes[0].take_all(topic) == stored[topic]
    assert "Traceback" not in "".join(node.log for node in nodes)


def test_an_owner_that_ends_is_replaced_at_once(make: Make) -> None:
    """Its parent has seen the end, so nobody waits until it is certain."""
    node = make("a")
    node.wait_for("/_health/all", 200)
    for topic in TOPICS:
        node.wait_for(f"/{topic}?cmd=declare&ack=true", 200)
        node.put(topic, b"before")
    for pid in reversed(node.children()):  # first the spare
        os.kill(pid, signal.SIGKILL)
        node.wait_for("/_health/all", 200)
    for topic in TOPICS:
        node.put(topic, b"after")
        reply = node.wait_for(f"/{topic}?cmd=consume&lease=60000", 200)
        assert reply.body == b"before"
    assert "Traceback" not in node.log


def test_each_node_is_told_with_what_it_owns(make: Make) -> None:
    """So stock clients, which choose a server by its topics, go to the right one."""
    nodes = [make(name) for name in "ab"]
    for node in nodes:
        node.wait_for("/_health/all", 200)
    for topic in TOPICS:
        nodes[0].wait_for(f"/{topic}?cmd=declare", 200)
    told = [json.loads(node.wait_for("/?cmd=tracker", 200).body) for node in nodes]
    for document in told:
        table = document["serverTable"]
        assert set(table) <= {node.address for node in nodes}
        topics = [topic for server in table.values() for topic in server["topicTable"]]
        assert sorted(topics) == sorted(TOPICS)
    assert told[0]["serverTable"].keys() == told[1]["serverTable"].keys()


def test_a_shard_is_moved_by_hand(make: Make) -> None:
    """To each node in turn, while messages are put: none of the requests fails, and all are there.
    A shard that cannot be moved stays where it is, and it is said why."""
    nodes = {name: make(name) for name in "abc"}
    for node in nodes.values():
        node.wait_for("/_health/all", 200)
    a, topic = nodes["a"], TOPICS[0]
    a.wait_for(f"/{topic}?cmd=declare", 200)

    def owner() -> str:
        document = json.loads(a.wait_for("/_cluster", 200).body)
        assert [node["node"] for node in document["nodes"]] == [*nodes]
        name = document["shards"][0].get("node", "")
        assert isinstance(name, str)
        return name

    def move(shard: object, to: str) -> subprocess.CompletedProcess[str]:
        return run_zbus("move", shard, to, "--url", f"http://{a.address}")

    first, stored = owner(), list[bytes]()
    for name in [*(name for name in nodes if name != first), first]:
        moved = move(0, name)
        assert moved.returncode == 0, moved.stderr
        assert moved.stdout.startswith(f"node {name} owns shard 0 after ")
        for node in nodes.values():
            stored.append(b"%d" % len(stored))
            node.put(topic, stored[-1])
    assert a.take_all(topic) == stored
    shown = run_zbus("cluster", "--url", f"http://{nodes['b'].address}").stdout
    assert f"\n0      {first}      4 " in shown
    assert "moved by hand" in shown
    for shard, to, said in (
        (0, first, f"409: node {first} owns shard 0 already"),
        (6, "a", "404: there is no shard 6: they are 0 to 5"),
        (0, "x", "404: there is no node x just now: a, b, c"),
    ):
        refused = move(shard, to)
        assert (refused.returncode, refused.stderr.strip()) == (1, said)
    for target, status in (
        ("/?cmd=move&shard=0", 400),
        ("/?cmd=move&shard=-1&to=a", 400),
        ("/?cmd=move&shard=x&to=a", 400),
        ("/?cmd=move&shard=99999999999&to=a", 404),
        ("/?cmd=move&to=a", 400),
    ):
        reply = a.ask(target)
        assert reply is not None
        assert (target, reply.status) == (target, status)


def version(folder: Path, number: int) -> Path:
    """A tree of this program that is of another version, and speaks its protocol."""
    tree = folder / f"v{number}"
    package = Path(zbus.__file__).parent
    shutil.copytree(package, tree / "zbus", ignore=shutil.ignore_patterns("__pycache__"))
    for name, before, after in (
        ("protocol/places.py", f"NODE_PROTOCOL: Final = {NODE_PROTOCOL}", f"{number}"),
        ("__init__.py", f'__version__ = "{zbus.__version__}"', f'"{number}.0.0"'),
    ):
        path = tree / "zbus" / name
        text = path.read_text()
        assert before in text
        path.write_text(text.replace(before, f"{before.rpartition(' ')[0]} {after}"))
    return tree


def test_an_upgrade_without_a_stop(make: Make, tmp_path: Path) -> None:
    """One node after the other becomes one of the next version, and nothing fails meanwhile. One of
    the version behind that cannot come to them."""
    nodes = [make(name) for name in "ab"]
    for node in nodes:
        node.wait_for("/_health/all", 200)
    a, b = nodes
    for topic in TOPICS:
        a.wait_for(f"/{topic}?cmd=declare", 200)
    stored: dict[str, list[bytes]] = {topic: [] for topic in TOPICS}

    def put(*through: Member) -> None:
        for topic in TOPICS:
            for node in through:
                stored[topic].append(b"%d" % len(stored[topic]))
                node.put(topic, stored[topic][-1])

    def warnings() -> list[str]:
        found = json.loads(a.wait_for("/_cluster", 200).body)["warnings"]
        assert isinstance(found, list)
        return found

    put(a, b)
    following = version(tmp_path, NODE_PROTOCOL + 1)
    for node, told in ((a, ["Nodes differ in version: a / b."]), (b, [])):
        node.process.send_signal(signal.SIGTERM)
        assert node.ended() == 0
        put(*(other for other in nodes if other is not node))
        node.start_in(following)
        node.wait_for("/_health/all", 200)
        put(a, b)
        deadline_s = time.monotonic() + WAIT_S
        while warnings() != told:
            assert time.monotonic() < deadline_s, warnings()
    for topic in TOPICS:
        assert b.take_all(topic) == stored[topic]
    c = make("c")
    c.wait_for("/_health/all", 200)
    c.kill()
    c.start_in(version(tmp_path, NODE_PROTOCOL + 3))
    assert c.ended() == 3
    assert f"and speaks protocol {NODE_PROTOCOL + 1}, this one is of" in c.log


def test_dead_letters_go_from_node_to_node(make: Make) -> None:
    """Each topic's to the next one, so that some pairs are of two nodes."""
    nodes = [make(name) for name in "ab"]
    for node in nodes:
        node.wait_for("/_health/all", 200)
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
    node.wait_for("/_health/all", 200)
    for topic in TOPICS:
        node.wait_for(f"/{topic}?cmd=declare", 200)
    node.wait_for("/_health/all", 200)
    stopped = node.owner_of(0)
    os.kill(stopped, signal.SIGSTOP)
    node.wait_for_log("a former owner is killed")
    node.wait_for(f"/{TOPICS[0]}?cmd=produce", 200, b"by the next one")
    assert node.owner_of(0) != stopped
    assert "Address already in use" not in node.log


def test_an_owner_that_stands_still_is_killed_when_another_node_has_its_shard(make: Make) -> None:
    """Its clients would wait for it as long as it stands."""
    nodes = {name: make(name) for name in "ab"}
    for node in nodes.values():
        node.wait_for("/_health/all", 200)
    first, second = sorted("ab", key=lambda name: order_of(name, 0))
    node = nodes[second]
    node.wait_for(f"/{TOPICS[0]}?cmd=declare", 200)
    moved = run_zbus("move", 0, second, "--url", f"http://{node.address}")
    assert moved.returncode == 0 or "owns shard 0 already" in moved.stderr, moved
    stopped = node.owner_of(0)
    os.kill(stopped, signal.SIGSTOP)
    node.wait_for_log("a former owner is killed")
    assert nodes[first].owner_of(0)
    nodes[first].wait_for(f"/{TOPICS[0]}?cmd=produce", 200, b"by the next one")


def test_signals_for_all_processes(make: Make) -> None:
    """As a terminal and service managers send them: a reload ends nobody."""
    node = make("a")
    node.wait_for("/_health/all", 200)
    before = node.children()
    for pid in [node.process.pid, *before]:
        os.kill(pid, signal.SIGHUP)
    node.wait_for("/_health/all", 200)
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
        node.wait_for("/_health/all", 200)
    for topic in TOPICS:
        a.wait_for(f"/{topic}?cmd=declare", 200)
    stopped, owned = a.children(), a.log.count("INFO owner")
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    for topic in TOPICS:
        b.put(topic, b"by b")
    for pid in stopped:
        os.kill(pid, signal.SIGCONT)
    deadline_s = time.monotonic() + WAIT_S
    while a.log.count("an owner has lost its shard") < owned:  # none of them takes a connection now
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
    (b'{"address":"x",OURS,"shard":0}\nGET /?cmd=ping HTTP/1.1\r\n\r\n', b"HTTP/1.1 200 "),
    (b'{"address":"x",OURS,"shard":1}\nGET /?cmd=ping HTTP/1.1\r\n\r\n', b"the shard has moved"),
    (b'{"address":"x",OURS,"shard":1,"inner":true}\n', b"the shard has moved"),
    (b'{"address":"x","shard":0,"cluster":"other","protocol":1}\n', b"503: this node is of the"),
    (b'{"address":"x","shard":0}\n', b"503: this node is of the cluster"),
    (b'{"address":"x",OURS,"protocol":3}\n', b"503: this node speaks protocol 1"),
    (b"GET /?cmd=ping HTTP/1.1\r\n\r\n", b"HTTP/1.1 400 "),
    (b'{"address":1}\nGET / HTTP/1.1\r\n\r\n', b"HTTP/1.1 400 "),
    (b"[" * 10_000 + b"\n", b"HTTP/1.1 400 "),
    (b"\0" * 100_000, b"HTTP/1.1 400 "),
]


def test_what_another_node_may_say(make: Make, tmp_path: Path) -> None:
    """Only one with a certificate is heard at all."""
    node = make("a")
    node.wait_for("/_health/all", 200)
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
    cluster = json.loads(node.wait_for("/_cluster", 200).body)["cluster"]
    ours = f'"cluster":"{cluster}","protocol":1'.encode()
    for said, answer in SAID:
        assert answer in say(said.replace(b"OURS", ours)), said[:80]
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
    """By a broker, and by `zbus doctor`."""
    node = make("a")
    node.wait_for("/_health/all", 200)
    engine = node.engine
    ended = run_serve("--port", "0", "--engine", engine, "--shards", "4", "--node", "b")
    assert ended.returncode == 3
    assert f"it was made with --shards {SHARDS}, not 4" in ended.stderr
    found = [
        [each.level for each in doctor(load(options={"engine": engine, "shards": f"{shards}"}), 1)]
        for shards in (SHARDS, 4)
    ]
    assert [levels.count("problem") for levels in found] == [0, 4]
    told = [each for each in doctor(load(options={"engine": engine, "shards": f"{SHARDS}"}), 1)]
    (known,) = [each.text for each in told if each.check == "node"]
    assert known.startswith(f"a {zbus.__version__} at {node.address}, shards [0, 1, 2, 3, 4, 5]")
