"""What is accepted is delivered through nginx as it comes, which takes a head of 4 KiB.

The messages are those of `tests/conformance/test_head_sizes.py`: every limit at once, by every way
in that needs nothing but HTTP. The world there knows sizes; here a real nginx judges them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import pytest

from tests.conformance import test_head_sizes as sizes
from tests.conformance.dialogue import Client, Reply, http
from tests.conformance.test_head_sizes import MESSAGES, TOPIC, WAYS_OUT, give_back, group_of, path
from tests.process.broker import BrokerProcess, Wire
from tests.process.proxies import KINDS, Proxy, program_of
from zbus.testing.world import take_reply

BARE = "nginx-bare"
KIND_OF = {kind.name: kind for kind in KINDS}
OTHERS = ("nginx", "haproxy-bare", "varnish", "caddy")
OPTIONS = ("--set", f"cors_origins={sizes.ORIGIN}", "--set", f"server_name={'h' * 60}.example")
WAYS_IN = [
    sizes.by_header,
    sizes.with_its_way,
    sizes.by_container,
    sizes.of_lines,
    sizes.by_schedule,
    sizes.opened_in_a_browser,
    sizes.by_id,
    sizes.by_death,
    sizes.by_death_of_a_schedule,
]


class Caller:
    """What the ways in need of a client, over a connection for each request."""

    def __init__(self, port: int) -> None:
        self._port = port

    def request(self, data: bytes) -> Reply:
        wire, received = Wire(self._port), b""
        wire.send(data)
        while True:
            received += wire._receive()
            reply, _ = take_reply(received)
            if reply is not None:
                wire.sock.close()
                return reply

    def exchange(self, data: bytes) -> list[Reply]:
        return [self.request(data)]


@pytest.fixture(scope="module")
def proxies(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, int]]:
    """The ports of those that are here, and of the broker."""
    folder = tmp_path_factory.mktemp("full")
    with BrokerProcess(folder / "data", *OPTIONS) as broker:
        running: dict[str, Proxy] = {}
        try:
            for name in (BARE, *OTHERS):
                if program_of(KIND_OF[name]) is not None:
                    running[name] = Proxy(KIND_OF[name], folder / name, broker.port)
            for proxy in running.values():
                proxy.wait()
            yield {"": broker.port, **{name: proxy.port for name, proxy in running.items()}}
        finally:
            for proxy in running.values():
                proxy.stop()


@pytest.mark.parametrize("message", MESSAGES)
@pytest.mark.parametrize("way_in", WAYS_IN)
def test_what_is_accepted_is_delivered(
    proxies: dict[str, int], way_in: sizes.WayIn, message: str
) -> None:
    take_all(proxies, BARE, way_in, message)


@pytest.mark.parametrize("way_in", [sizes.with_its_way, sizes.by_death])
@pytest.mark.parametrize("proxy", OTHERS)
def test_other_proxies(proxies: dict[str, int], proxy: str, way_in: sizes.WayIn) -> None:
    take_all(proxies, proxy, way_in, "many lines")


def take_all(proxies: dict[str, int], proxy: str, way_in: sizes.WayIn, message: str) -> None:
    """Store one message, and take it twice in each way."""
    if proxy not in proxies:
        pytest.skip(f"{proxy} is not installed: make system-packages")
    producer, consumer = (cast(Client, Caller(proxies[name])) for name in ("", proxy))
    for name in sizes.ALL_TOPICS:
        producer.request(http(f"{path(name)}?cmd=remove"))
    sizes.prepare(producer, TOPIC)
    topic = way_in(producer, MESSAGES[message]) or TOPIC
    for way_out in WAYS_OUT:
        group = group_of(way_out)
        first = consumer.request(way_out(topic, group))
        assert first.status == 200, (way_out, first)
        give_back(producer, path(topic, group), first.headers)
        again = consumer.request(way_out(topic, group))
        assert (again.status, again.headers["retry"]) == (200, "1"), (way_out, again)
