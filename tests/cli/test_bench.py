"""The load tool counts right: messages, statuses, failures, percentiles; whatever the framing."""

from __future__ import annotations

import itertools
import json
import random
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Answer, FakeBroker, Zbus
from zbus.cli.bench import Options, run_load
from zbus.cli.bench.generator import Generator, _Connection
from zbus.cli.bench.options import TABLE_ENTRIES_MAX, Requests
from zbus.cli.bench.report import TICK_NS, Histogram


@pytest.mark.parametrize("unique_ids", [True, False])
@pytest.mark.parametrize(
    ("connections", "pipeline", "batch", "processes"),
    [(1, 1, 1, 1), (4, 1, 1, 1), (3, 8, 1, 1), (3, 1, 7, 1), (2, 3, 5, 1), (4, 2, 1, 2)],
)
def test_every_message_arrives_once(
    broker: FakeBroker,
    unique_ids: bool,
    connections: int,
    pipeline: int,
    batch: int,
    processes: int,
) -> None:
    messages = 210
    options = Options(
        mode="produce-then-consume",
        url=broker.url,
        topic="a topic",
        group="g",
        connections=connections,
        messages=messages,
        body_bytes=9,
        pipeline=pipeline,
        batch=batch,
        unique_ids=unique_ids,
        processes=processes,
        durability="os",
        partitions=2,
    )
    report = run_load(options)
    assert report.errors == 0
    for name in ("produce", "consume"):
        phase = report.phase(name)
        assert phase.messages == messages
        assert phase.statuses[200] == messages // batch
        assert sum(phase.latency.counts.values()) == phase.requests
    assert not broker.messages

    declare, *others = broker.asked
    assert declare.headers["durability"] == "os"
    assert declare.headers["partitions"] == "2"
    ids = [asked.headers.get("id") for asked in others]
    assert len(set(ids)) == (len(others) if unique_ids else 1)
    assert {asked.headers["topic"] for asked in others} == {"a%20topic"}
    assert others[-1].headers["consume_group"] == "g"


@pytest.mark.parametrize(
    ("messages", "batch", "processes", "put"),
    [(10, 1_000, 1, 10), (25, 10, 1, 20), (10, 10, 2, 10), (25, 10, 2, 20)],
)
def test_no_more_is_put_than_is_wanted(
    broker: FakeBroker, messages: int, batch: int, processes: int, put: int
) -> None:
    options = Options(
        mode="produce",
        url=broker.url,
        connections=2,
        messages=messages,
        batch=batch,
        processes=processes,
    )
    assert run_load(options).phase("produce").messages == put
    assert len(broker.messages) == put


def test_consume_ends_when_the_topic_is_empty(broker: FakeBroker) -> None:
    broker.messages.extend([b"x\r\n\r\n"] * 25)
    report = run_load(Options(mode="consume", url=broker.url, messages=100, connections=3))
    phase = report.phase("consume")
    assert (phase.messages, phase.statuses) == (25, {200: 25, 204: 3})


def test_refusals_are_counted_by_status(broker: FakeBroker) -> None:
    broker.answers.extend([Answer(), Answer(), Answer(507, b"full"), Answer(404, b"gone" * 99)])
    phase = run_load(Options(url=broker.url, messages=10, connections=1)).phase("produce")
    assert phase.statuses == {200: 8, 404: 1, 507: 1}
    assert (phase.messages, phase.errors) == (8, 2)


def test_time_limit_ends_the_run(broker: FakeBroker) -> None:
    options = Options(url=broker.url, messages=10**9, connections=2, seconds=0.05)
    phase = run_load(options).phase("produce")
    assert phase.errors == 0
    assert 0 < phase.messages == len(broker.messages)


@pytest.fixture
def closing_server() -> Iterator[str]:
    """Accepts two connections; answers the first with rubbish, closes the second."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            for answer in (b"SMTP ready\r\n\r\n", b""):
                sock, _ = server.accept()
                with sock:
                    sock.recv(1000)
                    sock.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        thread.join()


def test_lost_connections_and_rubbish_are_failures(closing_server: str) -> None:
    options = Options(url=closing_server, connections=2, messages=2)
    phase = Generator(options, "produce", 2, 2).run()
    assert phase.failures == {"malformed reply": 1, "connection lost": 1}


def test_silence_ends_the_run() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        options = Options(url=url, connections=2, messages=6, pipeline=3, stall_timeout_s=0.01)
        phase = Generator(options, "produce", 2, 6).run()
    assert phase.failures == {"no reply": 6}


def test_replies_are_counted_however_they_are_cut(broker: FakeBroker) -> None:
    replies = (
        b"HTTP/1.1 200 OK\r\ncontent-length: 13\r\nid: 1\r\n\r\n1763730000000"
        b"HTTP/1.1 200 OK\r\ncontent-length: 13\r\nid: 22\r\n\r\n1763730000000"
        b"HTTP/1.1 200 OK\r\ncontent-length: 130\r\n\r\n" + b"HTTP/1.1 " * 14 + b"\r\n\r\n"
        b"HTTP/1.1 204 No Content\r\nid: 3\r\n\r\n"
        b"HTTP/1.1 404 Not Found\r\nid: 3\r\nContent-Length: 4\r\n\r\ngone"
        b"HTTP/1.1 200 OK\r\nid: 4\r\ncontent-length:0\r\n\r\n"
    )
    generator = Generator(Options(url=broker.url, messages=1), "produce", 0, 1)
    cuts = [[0, cut, len(replies)] for cut in range(len(replies) + 1)]
    cuts.append(list(range(len(replies) + 1)))
    for cut in cuts:
        generator.phase.statuses.clear()
        generator.answered.clear()
        server, client = socket.socketpair()
        client_fd = client.fileno()
        with server, client:
            connection = _Connection(client)
            connection.outstanding = 6
            for start, end in itertools.pairwise(cut):
                if server.send(replies[start:end]):
                    generator._receive(client_fd, connection)
        assert connection.outstanding == 0
        assert generator.answered == [(client_fd, connection)]
        assert generator.phase.statuses == {200: 4, 204: 1, 404: 1}
    generator.close()


def test_ids_stay_unique_past_the_table() -> None:
    requests = Requests(Options(body_bytes=0), "produce")
    number = TABLE_ENTRIES_MAX * 2 + 5
    blocks = [requests.block(1) for _ in range(number - 5)] + [requests.block(5)]
    ids = [line for block in blocks for line in block.split(b"\r\n") if line.startswith(b"id: ")]
    assert len(set(ids)) == len(ids) == number
    assert max(map(len, ids)) <= len("id: ") + 39


def test_long_bodies_do_not_fill_memory() -> None:
    requests = Requests(Options(body_bytes=1 << 20), "produce")
    assert sum(map(len, requests._table)) < 16 << 20
    assert len(requests.block(3)) > 3 << 20


def test_percentiles_are_close_and_add_up() -> None:
    source = random.Random(1)
    samples = [int(source.lognormvariate(5, 2)) for _ in range(10_000)]
    halves = [Histogram(), Histogram()]
    for index, ticks in enumerate(samples):
        halves[index % 2].add({ticks: 1})
    halves[0].merge(halves[1])
    samples.sort()
    for percent in (50.0, 90.0, 99.0, 99.9, 100.0):
        exact = (samples[int(len(samples) * percent / 100) - 1] + 1) * TICK_NS / 1000
        assert exact <= halves[0].percentile_us(percent) <= exact * (1 + 1 / 64)
    assert halves[0].largest_us == (samples[-1] + 1) * TICK_NS / 1000
    assert Histogram().percentile_us(99) == 0.0


def test_command_prints_and_writes_a_report(zbus: Zbus, broker: FakeBroker, tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    result = zbus("bench", "-n", "20", "-c", "2", "--topic", "T", "--json", str(file))
    assert result.exit_code == 0, result.output
    assert "messages/s" in result.stdout
    assert "p99.9" in result.stdout
    report = json.loads(file.read_text(encoding="utf-8"))
    assert report["options"]["topic"] == "T"
    assert report["phases"][0]["statuses"] == {"200": 20}
    assert json.loads(zbus("bench", "-n", "20", "--json", "-").stdout)["phases"]


def test_command_fails_when_the_broker_refused(zbus: Zbus, broker: FakeBroker) -> None:
    broker.answers.extend([Answer(), Answer(503, b"later")])
    result = zbus("bench", "-n", "5", "-c", "1")
    assert result.exit_code == 1
    assert "503: 1" in result.stdout
