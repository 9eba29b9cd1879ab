"""The replicated engine on three real NATS servers."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import zbus.client
from tests.limits import WAIT_S
from tests.process.broker import BrokerProcess
from tests.process.nats import NatsCluster, find_program
from zbus.config import load
from zbus.server.doctor import engine
from zbus.storage.jetstream.client import NatsClient
from zbus.storage.jetstream.engine import JetStreamJournal
from zbus.storage.jetstream.nats import NatsStream
from zbus.storage.jetstream.ownership import Claim, Claimed, Owner
from zbus.storage.jetstream.settings import Cluster, make_settings
from zbus.storage.jetstream.standby import Standby
from zbus.storage.jetstream.subjects import Subjects
from zbus.storage.port import JournalError
from zbus.testing.contract import Crash, JournalContract
from zbus.testing.engines import Bench

pytestmark = pytest.mark.skipif(
    find_program() is None, reason="needs nats-server: the extra `replicated`"
)

NAMES = map("t{}".format, itertools.count())


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsCluster]:
    with NatsCluster(tmp_path_factory.mktemp("nats")) as cluster:
        yield cluster


class NatsBench(Bench):
    """A bench whose engines own the shard of a cluster of its own."""

    def __init__(self, cluster: NatsCluster) -> None:
        super().__init__()
        self.cluster = cluster
        self.brokers = Cluster(next(NAMES))
        self.subjects = Subjects(self.brokers.name)

    def connect(self) -> NatsStream:
        return NatsStream(NatsClient(self.cluster.access(), self.post), self.subjects.stream)

    def ask(self, command: str, question: dict[str, object]) -> None:
        answer = self.cluster.ask(command, question)
        assert answer is not None
        assert answer.error is None, answer.error

    def make(self, **settings: object) -> None:
        """Make the stream, with other settings than the broker would."""
        question = {**make_settings(self.brokers, self.subjects), **settings}
        self.ask(f"STREAM.CREATE.{self.subjects.stream}", question)

    def standby(self) -> Claimed | JournalError:
        stream, answers = self.connect(), list[Claimed | JournalError]()
        standby = Standby(
            stream.client,
            lambda name: stream,
            self.brokers,
            "node",
            "a:1",
            10_000,
            answers.append,
        )
        standby.start()
        self.run_until(lambda: answers)
        stream.close()
        return answers[0]

    def claim(self) -> JetStreamJournal:
        """Take the shard from its owner."""
        stream, answers = self.connect(), list[Claimed | Owner | JournalError | None]()
        Claim(stream, self.subjects, "node", "", lambda owner: True, answers.append).start()
        self.run_until(lambda: answers)
        assert isinstance(answers[0], Claimed)
        return JetStreamJournal(stream, self.subjects, answers[0], self.failures.append)


@pytest.fixture
def bench(cluster: NatsCluster) -> Iterator[NatsBench]:
    bench = NatsBench(cluster)
    bench.make()
    yield bench
    cluster.ask(f"STREAM.DELETE.{bench.subjects.stream}")


class TestOnRealServers(JournalContract):
    """The engine keeps the contract."""

    @pytest.fixture
    def bench(self, bench: NatsBench) -> NatsBench:
        return bench

    @pytest.fixture
    def engine(self, bench: NatsBench) -> Iterator[Callable[[], Any]]:
        made: list[JetStreamJournal] = []

        def make() -> JetStreamJournal:
            made.append(bench.claim())
            return made[-1]

        yield make
        for journal in made:
            journal.close()

    @pytest.fixture
    def crash(self, bench: NatsBench) -> Crash:
        def crash(journal: JetStreamJournal, power: bool) -> None:
            journal.close()
            if power:
                bench.cluster.restart()

        return crash


MISFITS: list[tuple[dict[str, object], str]] = [
    ({"num_replicas": 1}, "num_replicas is 1, must be 3"),
    ({"storage": "memory"}, "storage is 'memory', must be 'file'"),
    ({"discard": "old"}, "discard is 'old', must be 'new'"),
    ({"retention": "interest"}, "retention is 'interest', must be 'limits'"),
    ({"allow_direct": False}, "allow_direct is False, must be True"),
    ({"allow_atomic": False}, "allow_atomic is None, must be True"),
    ({"max_msgs": 1_000}, "max_msgs is 1000, and such a limit removes messages"),
    ({"max_age": 10**12}, "max_age is 1000000000000, and such a limit removes messages"),
    ({"max_msgs_per_subject": 5}, "max_msgs_per_subject is 5, and such a limit"),
    ({"deny_purge": True}, "deny_purge is True, must be False"),
    ({"subjects": ["zb.other.0.>"]}, "subjects is ['zb.other.0.>'], must be"),
    ({"metadata": {"zbus": "2"}}, "metadata zbus is '2', this version of zbus writes '1'"),
    ({"metadata": {"zbus-shards": "8"}}, "it was made with --shards 8, not 1"),
]


@pytest.mark.parametrize(("settings", "text"), MISFITS)
def test_a_stream_that_does_not_fit_is_named_by_its_field(
    cluster: NatsCluster, settings: dict[str, object], text: str
) -> None:
    bench = NatsBench(cluster)
    if "subjects" in settings:
        settings = {"subjects": [f"zb.other-{bench.brokers.name}.0.>"]}
        text = text.replace("zb.other.0", f"zb.other-{bench.brokers.name}.0")
    bench.make(**settings)
    answer = bench.standby()
    assert isinstance(answer, JournalError)
    assert text in str(answer)
    cluster.ask(f"STREAM.DELETE.{bench.subjects.stream}")


def test_the_stream_is_made_if_there_is_none(cluster: NatsCluster) -> None:
    bench = NatsBench(cluster)
    first = bench.standby()
    assert isinstance(first, Claimed)
    assert first.owner.epoch == 1
    second = bench.standby()  # the first one is silent: it has closed its connection
    assert isinstance(second, Claimed)
    assert second.owner.epoch == 2
    assert second.quiet_until_ms > second.sent_ms


def test_doctor_looks_at_servers_stream_and_replicas(cluster: NatsCluster) -> None:
    bench = NatsBench(cluster)
    config = load(options={"engine": cluster.engine(bench.brokers.name)})
    found = list(engine(config, cluster.monitors[0]))
    assert [one.check for one in found] == ["server", "sync"] * 3 + ["stream"]
    assert [one.level for one in found if one.check == "server"] == ["ok"] * 3
    assert [one.level for one in found if one.check == "sync"] == ["ok", "warning", "warning"]
    assert "there is no stream" in found[-1].text
    bench.make()
    ends_s = time.monotonic() + WAIT_S  # a replica of a stream that was just made may be late
    while True:
        *_, stream, replicas = engine(config, cluster.monitors[0])
        if replicas.level == "ok" or time.monotonic() > ends_s:
            break
        time.sleep(0.1)
    assert (stream.level, replicas.level) == ("ok", "ok")
    bench.ask(f"STREAM.DELETE.{bench.subjects.stream}", {})
    bench.make(max_msgs=7)
    *_, stream = engine(config, cluster.monitors[0])
    assert (stream.level, "max_msgs is 7" in stream.text) == ("problem", True)
    bench.ask(f"STREAM.DELETE.{bench.subjects.stream}", {})


def test_doctor_names_a_server_that_does_not_answer() -> None:
    config = load(options={"engine": "nats://127.0.0.1:1/x"})
    (finding,) = engine(config, 1)
    assert (finding.check, finding.level) == ("server", "problem")
    assert "127.0.0.1:1: " in finding.text


@pytest.mark.check
def test_a_compact_topic(cluster: NatsCluster, tmp_path: Path) -> None:
    """Old messages go, and the newest of each key are there for another broker after a kill."""
    options = ("--engine", cluster.engine(next(NAMES)))
    values = {f"k{key}": "" for key in range(200)}
    with BrokerProcess(tmp_path / "one", *options) as broker:
        with zbus.client.connect(f"http://127.0.0.1:{broker.port}") as bus:
            bus.declare("table", "g", ack=True, compact=True)
            deadline_s = time.monotonic() + WAIT_S
            while not (stored := bus.read("table", count=1)) or stored[0].offset < 2_000:
                assert time.monotonic() < deadline_s
                values = {key: f"{time.monotonic()} {'x' * 200}" for key in values}
                for key, value in values.items():
                    bus.produce("table", value, key=key)
        broker.kill()
    with (
        BrokerProcess(tmp_path / "two", *options) as broker,
        zbus.client.connect(f"http://127.0.0.1:{broker.port}") as bus,
    ):
        assert {key: bus.get("table", key).text for key in values} == values
        given: dict[str, str] = {}
        while messages := bus.pull("table", "g", batch=500, wait_ms=200):
            given |= {message.key: message.text for message in messages}
            bus.ack("table", "g", [message.offset for message in messages])
        assert given == values
