"""Requests about single messages: what each sends, and what a broker makes of it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.client.peer import Joined
from zbus.client import commands, errors, single
from zbus.client.requests import Request
from zbus.testing.world import EPOCH_MS, World


@pytest.fixture
def bus() -> Joined:
    return Joined(World())


def delayed(bus: Joined, count: int = 4) -> None:
    bus.run(commands.declare("T", "g", dedupe_ms=60_000, settled_ms=60_000))
    for n in range(count):
        bus.run(commands.produce("T", f"{n}", id=f"id{n}", tag=f"t.{n}", delay_ms=1_000 * (n + 1)))


def bodies(bus: Joined) -> list[bytes]:
    return [delivery.body for delivery in bus.run(commands.pull("T", "g", batch=10))]


def test_orders(bus: Joined) -> None:
    delayed(bus)
    assert bus.run(single.cancel("T", "g", 0)) == 1
    assert bus.run(single.delete("T", "g", [0, 1])) == 1
    assert bus.run(single.fire("T", "g", id="id2")) == 1
    assert bus.run(single.reschedule("T", "g", 3, deliver_at_ms=EPOCH_MS + 500)) == 1
    assert bodies(bus) == [b"2"]
    bus.world.advance(500)
    assert bodies(bus) == [b"3"]
    with pytest.raises(errors.Conflict, match="offset 3 is finished in g") as refused:
        bus.run(single.cancel("T", "g", 3))
    assert refused.value.next_offset == 3
    with pytest.raises(errors.NotFound):
        bus.run(single.delete("T", "g", 3))


def test_all_groups(bus: Joined) -> None:
    delayed(bus)
    bus.run(commands.declare("T", "h"))
    assert bus.run(single.reschedule("T", offsets=range(4), delay_ms=0)) == 8


def test_a_listing(bus: Joined) -> None:
    delayed(bus)
    page = bus.run(single.peek("T", "g", state="delayed", count=3))
    assert [row["offset"] for row in page.messages] == [0, 1, 2]
    rest = bus.run(single.peek("T", "g", state="delayed", after=page.next, body=True))
    assert [(row["id"], row["body"]) for row in rest.messages] == [("id3", "3")]
    assert (rest.next, rest.unseen) == ("", 0)
    found = bus.run(single.peek("T", "g", state="delayed", tag="*.2"))
    assert [row["tag"] for row in found.messages] == ["t.2"]
    assert bus.run(single.peek("T", "g")) == single.Listed([], "", 0)


def test_why(bus: Joined) -> None:
    delayed(bus, 1)
    found = bus.run(single.why("T", "g", 0))
    assert (found["state"], found["until"]) == ("delayed", EPOCH_MS + 1_000)
    assert bus.run(single.why("T", "g", id="id0")) == found


@pytest.mark.parametrize(
    "make",
    [
        lambda: single.delete("T", "g"),
        lambda: single.cancel("T", "g", 1, id="a"),
        lambda: single.why("T"),
        lambda: single.fire("T", id="a\r\nb"),
        lambda: single.reschedule("T", "g", 1),
        lambda: single.reschedule("T", "g", 1, delay_ms=1, deliver_at_ms=1),
    ],
)
def test_what_names_no_message_or_two(make: Callable[[], object]) -> None:
    with pytest.raises(ValueError, match=r".+"):
        make()


@pytest.mark.parametrize("make", [single.cancel, single.fire])
def test_what_is_not_sent_twice(make: Callable[..., Request[int]]) -> None:
    """The second would be refused, and the first may have been done."""
    assert not make("T", "g", 1).safe
    assert single.delete("T", "g", 1).removes
