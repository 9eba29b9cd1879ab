"""The fixture for users: the example of the page, and what they can do to the broker."""

from __future__ import annotations

from collections.abc import Callable, Generator

import pytest

from tests.docs.pages import DOCS, blocks
from zbus.testing.simulation import Reply, Scene, request

Play = Generator[bytes, Reply, None]


def example() -> Callable[[Scene], None]:
    (block,) = blocks(DOCS / "howto/simulate.md", "python")
    names: dict[str, object] = {}
    exec(compile(block.text, "simulate.md", "exec"), names)
    (test,) = [value for name, value in names.items() if name.startswith("test_")]
    assert callable(test)
    return test


EXAMPLE = example()


@pytest.mark.simulation(seeds=20)
def test_the_example_of_the_page(simulation: Scene) -> None:
    EXAMPLE(simulation)


def orders(simulation: Scene, ack_first: bool) -> tuple[list[bytes], list[bytes]]:
    """The page's example, with a packer that may be wrong; what was sent, and what was packed."""
    to_send = [b"order %d" % number for number in range(40)]
    sent, packed = [], []

    def shop() -> Play:
        yield request("declare", "orders", group_mask=64, group_ack_timeout=1000)
        while to_send:
            reply = yield request("produce", "orders", body=to_send[0])
            if reply.status == 200:
                sent.append(to_send.pop(0))

    def packer() -> Play:
        while True:
            order = yield request("consume", "orders", timeout=1000)
            if order.status == 200:
                ack = request("ack", "orders", offset=order.headers["offset"])
                if ack_first:
                    yield ack
                packed.append(order.body)
                if not ack_first:
                    yield ack

    simulation.start(shop, packer, packer)
    for _ in range(10):
        simulation.run(30)
        simulation.power_cut()
    simulation.run(60_000)
    return sent, packed


def test_the_page_is_right_that_the_other_order_loses_orders() -> None:
    for seed in range(30):
        sent, packed = orders(Scene(seed), ack_first=True)
        if set(sent) - set(packed):
            return
    raise AssertionError("none of 30 seeds has found it")


def test_a_scene_is_its_seed() -> None:
    stories = [orders(scene := Scene(seed), False) and scene.story() for seed in (3, 3, 4)]
    assert stories[0] == stories[1] != stories[2]


def test_all_that_can_go_wrong(simulation: Scene) -> None:
    def shop() -> Play:
        while True:
            yield request("produce", "T", body=b"1")

    assert simulation.request(request("declare", "T")).status == 200
    simulation.start(shop)
    simulation.run(100)
    simulation.disconnect()
    simulation.run(100)
    simulation.kill()
    simulation.run(100)
    simulation.restart()
    simulation.fill_disk()
    simulation.run(100)
    assert simulation.request(request("produce", "T", body=b"x" * 10_000)).status == 507
    simulation.free_disk()
    simulation.run(100)
    assert simulation.request(request("produce", "T")).status == 200
    assert simulation.request(request("declare", "D")).status == 200
    late = simulation.connect()
    late.send(request("produce", "D", body=b"later", delay=3_600_000))
    simulation.run(100)
    assert [reply.status for reply in late.replies()] == [200]
    consume = request("consume", "D", timeout=0)
    assert simulation.request(consume).headers["empty"] == "delayed"
    simulation.jump(3_600_000)
    assert simulation.request(consume).body == b"later"
    assert simulation.story().startswith(f"seed {simulation.seed}\n")
