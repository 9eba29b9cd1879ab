"""`zbus copy` between a directory and three real NATS servers."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import zbus
from tests.forked import run_zbus, start_zbus
from tests.limits import WAIT_S
from tests.process.nats import NatsCluster, find_program
from tests.process.test_standby import Node
from tests.storage.test_copying import filled, in_logs

pytestmark = pytest.mark.skipif(
    find_program() is None, reason="needs nats-server: the extra `replicated`"
)

NAMES = map("m{}".format, itertools.count())


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsCluster]:
    with NatsCluster(tmp_path_factory.mktemp("nats")) as cluster:
        yield cluster


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Node]]:
    nodes: list[Node] = []

    def start(engine: str, *options: str) -> Node:
        nodes.append(Node(tmp_path, engine, "data", *options))
        return nodes[-1]

    yield start
    for node in nodes:
        node.kill()


def copy(*arguments: object) -> tuple[int, str]:
    """The exit code, and what was said."""
    process = start_zbus("copy", *arguments)
    output, errors = process.communicate(timeout=WAIT_S)
    return process.returncode, output + errors


def test_a_move_while_the_broker_runs(
    cluster: NatsCluster, serve: Callable[[str], Node], tmp_path: Path
) -> None:
    """What is there is copied first, and what came since when the broker is stopped."""
    engine, data, back = cluster.engine(next(NAMES)), tmp_path / "data", tmp_path / "back"
    node = serve("files")
    node.wait_for("/_health/ready", 200)
    with zbus.connect(f"zbus://{node.address}") as client:
        client.declare("Orders", "billing", ack=True)
        for number in range(20):
            client.produce("Orders", str(number))
    code, text = copy(data, engine)
    assert (code, "20 messages copied" in text, "not complete: a broker uses" in text) == (3, 1, 1)
    with zbus.connect(f"zbus://{node.address}") as client:
        client.produce("Orders", "20")
        with client.consume("Orders", "billing", timeout_ms=0) as messages:
            messages.ack(next(iter(messages)))
    node.process.terminate()
    node.ended()
    code, text = copy(data, engine)
    assert code == 0, text
    assert "1 message copied" in text
    assert f"complete: start the brokers with --engine {engine}" in text

    owner = serve(engine)
    owner.wait_for("/_health/ready", 200)
    with zbus.connect(f"zbus://{owner.address}", retries=20) as client:
        assert client.produce("Orders", "21").offset == 21
        with client.consume("Orders", "billing", timeout_ms=0) as messages:
            got = next(iter(messages))
            assert (got.text, got.offset) == ("1", 1)
            messages.ack(got)
    code, text = copy(data, engine)
    assert (code, "data 127.0.0.1" in text, "stop all brokers of this cluster" in text) == (3, 1, 1)
    code, text = copy(engine, tmp_path / "beside")
    assert (code, "a broker serves zbus-" in text) == (0, True), text
    owner.process.terminate()
    owner.ended()
    code, text = copy(data, engine)
    assert (code, "holds messages already; a copy needs a new one" in text) == (3, True), text
    assert copy(engine, back)[0] == 0
    code, text = copy(engine, back)
    assert (code, "is not empty; a copy makes a new directory" in text) == (3, True), text
    other = cluster.engine(next(NAMES))
    assert copy(engine, other)[0] == 0
    assert copy(other, tmp_path / "third")[0] == 0
    assert in_logs(tmp_path / "third") == in_logs(back)
    assert "all in order" in run_zbus("verify", "--data-dir", back).stdout


def test_a_copy_that_is_killed_goes_on(
    cluster: NatsCluster, serve: Callable[[str], Node], tmp_path: Path
) -> None:
    name = next(NAMES)
    engine, data = cluster.engine(name), tmp_path / "logs"
    filled(data, 300, b"x" * 500, 4 << 20).close()  # 30 MB
    process = start_zbus("copy", data, engine)
    deadline_s = time.monotonic() + WAIT_S
    while time.monotonic() < deadline_s:
        answer = cluster.ask(f"STREAM.INFO.zbus-{name}-0")
        if answer is not None and answer.state is not None and answer.state.bytes > 1 << 20:
            break
    process.kill()
    process.communicate()
    node = serve(engine)
    assert node.ended() == 3
    assert "holds an unfinished copy of" in node.log_path.read_text()
    code, text = copy(data, engine)
    assert (code, "complete: start the brokers" in text) == (0, True), text
    assert copy(engine, tmp_path / "back")[0] == 0
    assert in_logs(tmp_path / "back") == in_logs(data)


def test_the_number_of_shards_changes(
    cluster: NatsCluster, serve: Callable[..., Node], tmp_path: Path
) -> None:
    """One directory, a cluster of three shards, one of two, and a directory again."""
    data, back = tmp_path / "data", tmp_path / "back"
    names = [f"topic-{number}" for number in range(6)]
    node = serve("files")
    node.wait_for("/_health/ready", 200)
    with zbus.connect(f"zbus://{node.address}") as client:
        for name in names:
            client.declare(name, "g", ack=True, partitions=2)
            for number in range(4):
                client.produce(name, str(number), key=str(number))
    node.process.terminate()
    node.ended()
    three, two = cluster.engine(next(NAMES)), cluster.engine(next(NAMES))
    code, text = copy(data, three, "--shards", 3)
    assert (code, f"complete: start the brokers with --engine {three} --shards 3" in text) == (0, 1)
    # A copy that ended between two shards goes on: no broker has owned them yet.
    assert copy(data, three, "--shards", 3)[0] == 0
    code, text = copy(data, three, "--shards", 2)
    assert (code, "it was made with --shards 3, not 2" in text) == (3, True), text
    assert copy(three, two, "--shards", 2)[0] == 0
    assert copy(two, back)[0] == 0
    assert in_logs(back) == in_logs(data)
    # One of the servers cannot be reached: there are as many shards as before.
    others = three.replace("nats://", "nats://127.0.0.1:1,")
    assert copy(others, tmp_path / "again")[0] == 0
    assert in_logs(tmp_path / "again") == in_logs(data)
    node = serve(two, "--shards", "2")
    node.wait_for("/_health/all", 200)
    with zbus.connect(f"zbus://{node.address}", retries=20) as client:
        for name in names:
            with client.consume(name, "g", timeout_ms=0) as messages:
                assert sorted(message.text for message in messages) == list("0123")
    code, text = copy(two, tmp_path / "beside")
    assert (code, "and what it takes from now on is missing" in text) == (0, True), text


@pytest.mark.parametrize(
    ("source", "target", "code", "text"),
    [
        ("data", "other", 64, "for two directories use `zbus backup` and `zbus restore`"),
        ("nowhere", "ENGINE", 3, "cannot open nowhere: No such file or directory"),
        ("file", "ENGINE", 3, "file"),
        ("empty", "ENGINE", 3, "empty is not a data directory of zbus"),
        ("ENGINE", "data", 3, "there is no stream zbus-"),
        ("data", "nats://127.0.0.1:1", 64, "is neither files nor nats://"),
        ("data", "nats://127.0.0.1:1/x", 3, "127.0.0.1:1: [Errno 111] Connection refused"),
        ("nats://127.0.0.1:1/x", "new", 3, "127.0.0.1:1: [Errno 111] Connection refused"),
    ],
)
def test_what_cannot_be_copied(
    source: str,
    target: str,
    code: int,
    text: str,
    cluster: NatsCluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    filled(tmp_path / "data").close()
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("")
    engine = cluster.engine(next(NAMES))
    ends = [engine if end == "ENGINE" else end for end in (source, target)]
    got, said = copy(*ends, "--set", "engine_timeout_ms=3000")
    assert (got, text in said) == (code, True), said
