"""The generators of the benchmarks send what a broker accepts; how fast is not looked at here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random

import pytest

from tests.bench.ack_rates import (
    Inboxes,
    acked_in_redis,
    is_nats,
    is_resp,
    prepare,
    zbus_kinds,
)
from tests.bench.dialect_rates import BODY, is_http, run
from tests.bench.lockstep import LINES
from tests.bench.measure import Server
from tests.bench.templates import MODES, Template, produces
from tests.bench.verb_costs import VERBS, brokers, cost_us
from tests.process.pipe import ask
from zbus.testing.world import World

TAKEN = b"*1\r\n*2\r\n$1\r\nA\r\n*1\r\n*2\r\n$3\r\n1-0\r\n*2\r\n$4\r\nbody\r\n$100\r\n%b\r\n" % BODY


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with brokers(tmp_path_factory.mktemp("bench"), "") as (only,):
        yield only


def test_every_verb_is_a_success(server: Server) -> None:
    for verb in VERBS:
        assert cost_us(server, verb, 4 * verb.part) >= 0, verb.name


def test_pairs_of_pull_and_ack(server: Server) -> None:
    prepare(server, is_http, ask("/Pairs/g?cmd=declare&ack=true"))
    for kind in zbus_kinds("Pairs"):
        assert run(*server, kind, 2, 60.0, 4)[0] == 4


@pytest.mark.parametrize("mode", MODES)
def test_what_wrk_sends(mode: str) -> None:
    """Filled here; `templates.lua` fills the same texts."""
    world, random = World(), Random(1)
    assert world.connect().request(ask("/T?cmd=declare")).status == 200
    for number, texts in enumerate(produces(mode, "T", 15555)):
        client = world.connect()
        for text in texts:
            request = Template.of(text).fill(number, random)
            assert client.request(request).status == 200, request


def test_every_line_in_lockstep() -> None:
    """The floor counts requests by what they end with."""
    world = World()
    for line in LINES:
        assert world.connect().request(ask(f"/{line.topic}?cmd=declare")).status == 200
        clients = [world.connect() for _ in range(line.connections)]
        for client, request in zip(clients, line.requests(), strict=False):
            assert request.endswith(line.end)
            assert request.count(line.end) == 1
            assert client.request(request).status == 200, request


@pytest.mark.parametrize(
    ("whole", "data"),
    [
        (is_resp, b":1\r\n"),
        (is_resp, b"$3\r\n1-0\r\n"),
        (is_resp, TAKEN),
        (is_nats, b"INFO {}\r\nPONG\r\n"),
        (is_nats, b'MSG _INBOX.1 1 7\r\n{"a":1}\r\n'),
        (is_nats, b"PING\r\nMSG A 1 $JS.ACK.1 5\r\nhello\r\n"),
    ],
)
def test_a_reply_of_another_broker_is_whole_at_its_end(
    whole: Callable[[bytes], bool], data: bytes
) -> None:
    assert [whole(data[:size]) for size in range(1, len(data))] == [False] * (len(data) - 1)
    assert whole(data)


def test_what_is_acknowledged_elsewhere() -> None:
    assert acked_in_redis(0, TAKEN).endswith(b"\r\n$3\r\n1-0\r\n")
    ack = Inboxes().ack(7, b"PING\r\nMSG A 1 $JS.ACK.1 5\r\nhello\r\n")
    assert ack == b"SUB _INBOX.7 1\r\nPUB $JS.ACK.1 _INBOX.7 4\r\n+ACK\r\n"
