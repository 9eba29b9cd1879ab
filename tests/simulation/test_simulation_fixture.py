"""The fixture for users: the example of the page, and what they can do to the broker."""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from typing import Any

import pytest

from tests.docs.pages import DOCS, blocks
from zbus.testing.simulation import Reply, Scene, request
from zbus.testing.simulation.trace import LINES_MAX

Play = Generator[bytes, Reply, None]


def example() -> Callable[[Scene], None]:
    (block,) = blocks(DOCS / "howto/simulate.md", "python")
    names: dict[str, object] = {}
    exec(compile(block.text, "simulate.md", "exec"), names)
    (test,) = [value for name, value in names.items() if name.startswith("test_")]
    assert callable(test)
    return test


EXAMPLE = example()


@pytest.mark.simulation(seeds=8)
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


def test_a_story_says_who_did_what() -> None:
    scene = Scene(1)

    def shop() -> Play:
        yield request("declare", "orders", group_mask=64, group_ack_timeout=100)
        yield request("produce", "orders", body=b"x" * 100)

    def packer(number: int) -> Play:
        while True:
            order = yield request("consume", "orders", timeout=50)
            if order.status == 200 and number == 2:
                yield request("ack", "orders", offset=order.headers["offset"])

    scene.start(shop, partial(packer, 1))
    scene.run(200)
    scene.start(partial(packer, 2))
    scene.run(300)
    scene.kill()
    scene.run(60_000)
    scene.power_cut()
    assert scene.request(request("remove", "orders", consume_group="nobody")).status == 404
    story = scene.story()
    for words in (
        " ms  shop asks: declare orders group_mask=64 group_ack_timeout=100\n",
        " ms  shop is told 200 offset=0 b'1800000000",
        " ms  shop is done\n",
        " ms  packer 1 asks: consume orders timeout=50\n",
        " ms  packer 1 is told 200 offset=0 b'" + "x" * 40 + "'...\n",
        " ms  packer 2 asks: ack orders offset=0\n",
        " ms  packer 2 is told 204 empty=drained, and ",
        " ms  the broker is killed\n",
        " ms  packer 2 begins anew\n",
        " ms  the power fails\n",
        " ms  the test asks: remove orders consume_group=nobody\n",
        " ms  the test is told 404 b'404: ConsumeGroup(nobody) Not Found'",
    ):
        assert words in story, words
    assert len(story.splitlines()) < 60, "what is idle is told once"


def test_a_story_has_an_end(simulation: Scene) -> None:
    def shop() -> Play:
        while True:
            yield request("produce", "T", body=b"1")

    simulation.request(request("declare", "T"))
    simulation.start(shop)
    simulation.run(3_000)
    assert len(simulation.story().splitlines()) == 1 + LINES_MAX


def test_an_actor_that_returns_is_done(simulation: Scene) -> None:
    runs = []

    def once() -> Play:
        runs.append(1)
        yield request("declare", "T")

    simulation.start(once)
    simulation.run(1_000)
    simulation.kill()
    simulation.run(1_000)
    assert runs == [1]


def test_mistakes_are_told() -> None:
    scene = Scene(1)

    def named(name: str) -> Play:
        yield request("declare", name)

    def plain() -> None:
        pass

    def text() -> Generator[str, Reply, None]:
        yield "declare"

    wrong: Any
    for wrong, says in (
        (named("x"), "start takes a generator function, not a generator: .*partial"),
        (plain, "plain is no generator function"),
        (text, "text yielded str, and has to be bytes"),
    ):
        with pytest.raises(TypeError, match=says):
            scene.start(wrong)
    body: Any = "text"
    with pytest.raises(TypeError, match="the body of a request is str, and has to be bytes"):
        request("produce", "T", body=body)
    headers: Any = {"idempotency-key": "k-1"}
    assert b"\r\nidempotency-key: k-1\r\n" in request("produce", "T", **headers)
