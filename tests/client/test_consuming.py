"""The core of the consumers against the broker in one process."""

from __future__ import annotations

import random
from functools import partial
from typing import Any, TypeVar

from hypothesis import given
from hypothesis import strategies as st

from tests.client.peer import NEVER, Joined
from tests.limits import examples
from zbus.client import commands
from zbus.client.links.request_tracker import Call
from zbus.client.links.shared import Turns
from zbus.client.messages import Delivery
from zbus.client.readers.consumer import ConsumerSteps
from zbus.client.readers.consuming import Consuming, Opening
from zbus.client.requests import Request
from zbus.testing.world import World

T = TypeVar("T")


class JoinedLink:
    """A link within a world, whose time goes on while it waits."""

    def __init__(self, joined: Joined) -> None:
        self.joined = joined
        self.sent: list[Call[Any]] = []
        """All but pulls."""
        self.last_time = joined.exchange.last_time

    def now_s(self) -> float:
        return self.joined.world.now_ms / 1000

    def submit(self, request: Request[T]) -> Call[T]:
        call = self.joined.submit(request)
        if request.pulling is None:
            self.sent.append(call)
        return call

    async def flush(self) -> None:
        """It is sent when something is waited for."""

    async def wait(self, call: Call[Any], until_s: float | None = None) -> bool:
        self.joined.settle()
        if not call.done:
            self.joined.world.advance(1_000)
            self.joined.settle()
        assert call.done
        return True

    async def run(self, request: Request[T]) -> T:
        call = self.submit(request)
        await self.wait(call)
        return call.result()


class Reader(ConsumerSteps[Delivery]):
    """A consumer without IO. Time is the world's."""

    def __init__(self, joined: Joined, **options: Any) -> None:
        settings: dict[str, Any] = {
            **{"batch": None, "partition": None, "timeout_ms": 0, "auto_ack": True},
            **options,
        }
        self.joined = joined
        self.link = JoinedLink(joined)
        make = partial(Consuming, "T", "g", **settings)
        query = commands.query("T", "g")
        super().__init__(self.link, joined.exchange, Opening(query, True, make), Delivery)
        self.finish = Turns().finish
        self.core = self.finish(self._begin())
        self.link.sent.clear()

    @property
    def now_s(self) -> float:
        return self.link.now_s()

    def take(self) -> Delivery | None:
        """The next message."""
        return self.finish(self.next())

    def send(self, requests: list[Any]) -> None:
        for request in requests:
            self.link.submit(request)

    def close(self, failed: bool = False) -> None:
        self.finish(self._leave(failed, 1.0))


def world_of(count: int, **options: Any) -> World:
    world = World()
    joined = Joined(world)
    joined.run(commands.declare("T", "g", **{"ack": True, "lease_ms": 5_000, **options}))
    if count:
        joined.run(commands.produce_many("T", [b"%d" % n for n in range(count)]))
    return world


def left(world: World) -> dict[str, int]:
    info = Joined(world).run(commands.query("T", "g"))
    return {"messageCount": info.message_count, "leasedCount": info.leased_count}


def test_a_whole_topic() -> None:
    world = world_of(1_000)
    joined = Joined(world)
    reader = Reader(joined)
    bodies = []
    while (delivery := reader.take()) is not None:
        bodies.append(int(delivery.body))
    assert bodies == list(range(1_000))
    requests = len(reader.link.sent)
    assert requests < 100, "many acknowledgements in one request"
    reader.close()
    assert left(world) == {"messageCount": 0, "leasedCount": 0}


def test_what_nobody_saw_comes_again_in_its_order_and_at_once() -> None:
    world = world_of(300)
    first = Reader(Joined(world))
    seen = [first.take() for _ in range(10)]
    assert [int(d.body) for d in seen if d] == list(range(10))
    first.close()
    assert left(world) == {"messageCount": 290, "leasedCount": 0}
    second = Reader(Joined(world))
    again = [second.take() for _ in range(290)]
    assert [int(d.body) for d in again if d] == list(range(10, 300))


def test_what_came_as_it_left_comes_again_at_once() -> None:
    world = world_of(10)
    reader = Reader(Joined(world), batch=2)
    reader.take()
    reader.joined.settle()
    assert left(world)["leasedCount"] == 4, "one in hand, one to take, two that just came"
    reader.close()
    assert left(world) == {"messageCount": 9, "leasedCount": 0}


def test_a_pull_that_waits_ends_as_it_leaves() -> None:
    world = world_of(1)
    reader = Reader(Joined(world), batch=2, timeout_ms=None)
    reader.take()
    now_ms = world.now_ms
    reader.close()
    assert world.now_ms == now_ms
    assert left(world) == {"messageCount": 0, "leasedCount": 0}


def test_a_failure_gives_the_current_one_back() -> None:
    world = world_of(3)
    reader = Reader(Joined(world))
    reader.take()
    reader.take()
    reader.close(failed=True)
    again = Reader(Joined(world))
    found = []
    while (delivery := again.take()) is not None:
        found.append((int(delivery.body), delivery.retry))
    # All three were fetched, and handed out once.
    assert found == [(1, 1), (2, 1)]


def test_by_hand_nothing_is_settled_for_the_user() -> None:
    world = world_of(4)
    reader = Reader(Joined(world), auto_ack=False)
    first, second, third = (reader.take() for _ in range(3))
    assert first
    assert second
    assert third
    reader.core.ack(second, reader.now_s)
    request = reader.core.nack(third, 0, True)
    assert request is not None
    reader.send([request])
    assert reader.core.nack(third, 0, True) is None
    reader.core.ack(third, reader.now_s)
    reader.close()
    assert left(world) == {"messageCount": 2, "leasedCount": 1}, "the third, the fourth; the first"


def test_leases_that_ran_out_and_came_back() -> None:
    """Nobody extended them, and the same consumer gets the messages again: each is worked on once,
    and acknowledged under the lease that is."""
    world = world_of(3)
    reader = Reader(Joined(world))
    found = [reader.take()]
    world.advance(6_000)
    reader.joined.settle()
    while (delivery := reader.take()) is not None:
        found.append(delivery)
    assert [int(delivery.body) for delivery in found if delivery] == [0, 1, 2]
    reader.close()
    assert left(world) == {"messageCount": 0, "leasedCount": 0}


def test_what_is_not_leased_any_more_is_given_back_in_vain() -> None:
    world = world_of(30)
    reader = Reader(Joined(world))
    reader.take()
    Joined(world).run(commands.empty("T", "g"))
    reader.close(failed=True)
    assert left(world) == {"messageCount": 0, "leasedCount": 0}


def test_a_message_that_did_not_reach_the_user_is_the_next_one() -> None:
    world = world_of(2)
    reader = Reader(Joined(world))
    reader.take()
    assert reader.core.step(reader.now_s) is not None
    reader.core.unseen()
    again = reader.take()
    assert again is not None
    assert again.body == b"1"


def test_leases_are_kept() -> None:
    world = world_of(100)
    reader = Reader(Joined(world))
    reader.take()
    for _ in range(20):
        world.advance(round(reader.core.keep_every_s * 1000))
        reader.finish(reader._keep_leases(reader.core))
    other = Reader(Joined(world))
    found = []
    while (delivery := other.take()) is not None:
        found.append(delivery.retry)
    assert set(found) <= {0}
    reader.close()


def test_a_group_without_leases_is_read_one_by_one() -> None:
    world = world_of(5, ack=False)
    reader = Reader(Joined(world))
    reader.take()
    assert reader._pull is None, "nothing is fetched ahead"
    assert left(world)["messageCount"] == 4
    reader.take()
    reader.close()
    assert left(world)["messageCount"] == 3


def test_acknowledgements_do_not_wait_for_ever() -> None:
    world = world_of(50)
    reader = Reader(Joined(world))
    reader.take()
    reader.take()
    assert reader.link.sent == []
    world.advance(101)
    reader.take()
    reader.joined.settle()
    (ack,) = reader.link.sent
    assert ack.result() is None
    assert left(world)["leasedCount"] == 48


cuts = st.lists(
    st.tuples(
        st.one_of(st.integers(0, 20_000), st.just(NEVER)),
        st.one_of(st.integers(0, 20_000), st.just(NEVER)),
    ),
    max_size=6,
)


@given(cuts, st.integers(0, 2**32), st.integers(1, 120), st.sampled_from([1, 3, 30, None]))
@examples(150)
def test_no_message_is_lost(
    breaks: list[tuple[int, int]], seed: int, count: int, batch: int | None
) -> None:
    """Consumers come and go, fail, and lose connections: all messages are worked on, and in the end
    all are done."""
    world = world_of(count)
    choose = random.Random(seed)
    done: set[bytes] = set()
    for _ in range(200):
        if left(world) == {"messageCount": 0, "leasedCount": 0}:
            break
        reader = Reader(Joined(world, breaks), batch=batch)
        breaks = []
        failed = False
        for _ in range(choose.randrange(1, 60)):
            delivery = reader.take()
            if delivery is None:
                break
            failed = choose.random() < 0.05
            if failed:
                break
            done.add(delivery.body)
        reader.close(failed)
        if left(world)["leasedCount"]:
            world.advance(5_000)  # what was on its way when a connection broke
    assert left(world) == {"messageCount": 0, "leasedCount": 0}
    assert done == {b"%d" % n for n in range(count)}
    world.broker.check()
