"""Where webhooks connect: names that are looked up, and addresses that do not answer."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any

import httpcore
import pytest
import trio
from trio.testing import MockClock

from tests.limits import WAIT_S
from zbus.server.push.courier import ADDRESSES_MAX, LOOKUPS_MAX, Judged, Lookups
from zbus.wire.networks import Reachable, parse_networks

ANYWHERE = Reachable(parse_networks(("0.0.0.0/0", "::/0")))


class Net(httpcore.AsyncNetworkBackend):
    """Some of its addresses answer; the others are silent."""

    def __init__(self, *there: str) -> None:
        self.there = there
        self.tried: list[str] = []

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - of the library
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        self.tried.append(host)
        if host not in self.there:
            await trio.sleep_forever()
        return httpcore.AsyncMockStream([])


def judged(net: Net, *addresses: str) -> Judged:
    async def find(host: str, port: int) -> list[str]:
        return list(addresses)

    return Judged(ANYWHERE, find, net)


@pytest.mark.parametrize("number", range(1, ADDRESSES_MAX + 1))
async def test_each_address_has_a_share_of_the_time(autojump_clock: MockClock, number: int) -> None:
    """The last one of all is reached, with time left for the request."""
    names = [f"10.0.0.{each}" for each in range(number)]
    net = Net(names[-1])
    with trio.fail_after(30):
        await judged(net, *names).connect_tcp("name", 80)
        assert trio.current_effective_deadline() - trio.current_time() >= 5
    assert net.tried == names


async def test_no_address_answers(autojump_clock: MockClock) -> None:
    began_s = trio.current_time()
    with trio.move_on_after(30) as scope:
        await judged(Net(), "10.0.0.1", "10.0.0.2").connect_tcp("name", 80)
    assert scope.cancelled_caught
    assert trio.current_time() - began_s == 30


async def test_a_slow_server_of_names_is_no_others_business() -> None:
    go_on = threading.Event()

    def ask(host: str, port: int, **options: Any) -> list[Any]:
        if host == "slow":
            go_on.wait(WAIT_S)
        return [(0, 0, 0, "", ("10.0.0.1", port))] * 2

    lookups, found = Lookups(ask), []

    async def look(host: str) -> None:
        found.append((host, await lookups.find(host, 80)))

    with trio.fail_after(WAIT_S):
        async with trio.open_nursery() as nursery:
            for _ in range(100):
                nursery.start_soon(look, "slow")
            await trio.testing.wait_all_tasks_blocked()
            assert lookups.running("slow") == LOOKUPS_MAX
            await look("quick")
            assert found == [("quick", ["10.0.0.1"])]
            go_on.set()
    assert len(found) == 101
    assert lookups.running("slow") == 0
