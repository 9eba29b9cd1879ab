"""Times are counted from when a request was read, and leases from when they were told: not from the
beginning of the turn, which may be long ago by then. Nobody outside sees anything end early."""

from __future__ import annotations

from tests.conformance.dialogue import declared, http, ok, put
from zbus.testing.world import Client, World

LATE_MS = 30
"""So late in the turn is everything read here."""


def late(*group: str) -> tuple[World, Client]:
    """A world whose turns take long, on the clock of those who ask."""
    world, client = declared("T", *group)
    world.broker.request_clock.received_ms = lambda: world.now_ms + LATE_MS
    return world, client


def got(client: Client, group: str = "") -> bytes | None:
    """What a consume gets now."""
    reply = client.request(http(f"/T{group}?cmd=consume&timeout=0"))
    return reply.body if reply.status == 200 else None


def test_a_delayed_message() -> None:
    world, client = late()
    put(client, "T", b"x", query="delay=100")
    world.advance(100 + LATE_MS - 1)
    assert got(client) is None
    world.advance(1)
    assert got(client) == b"x"


def test_a_message_that_expires() -> None:
    world, client = late()
    put(client, "T", b"x", query="ttl=100")
    put(client, "T", b"y", query="ttl=100")
    world.advance(100 + LATE_MS - 1)
    assert got(client) == b"x"
    world.advance(1)
    assert got(client) is None


def test_a_time_of_day_is_what_it_is() -> None:
    world, client = late()
    put(client, "T", b"x", query=f"deliver_at={world.now_ms + 100}")
    world.advance(99)
    assert got(client) is None
    world.advance(1)
    assert got(client) == b"x"


def leased() -> tuple[World, Client]:
    world, client = late()
    ok(client, http("/T/g?cmd=declare&group_mask=64&group_ack_timeout=1000"))
    put(client, "T", b"x")
    return world, client


def test_a_lease_begins_when_it_is_told() -> None:
    world, client = leased()
    told_ms = iter([world.now_ms + 5, world.now_ms + 40])  # as it is written, and as it is sent
    world.broker.request_clock.received_ms = lambda: next(told_ms, world.now_ms)
    assert got(client, "/g") == b"x"
    world.advance(1_039)
    assert got(client, "/g") is None
    world.advance(1)
    assert got(client, "/g") == b"x"


def test_a_lease_that_is_extended() -> None:
    world, client = leased()
    assert got(client, "/g") == b"x"
    ok(client, http("/T/g?cmd=extend&offset=0&group_ack_timeout=2000"))
    world.advance(2_000 + LATE_MS - 1)
    assert got(client, "/g") is None
    world.advance(1)
    assert got(client, "/g") == b"x"


def test_a_message_that_is_given_back_for_later() -> None:
    world, client = leased()
    assert got(client, "/g") == b"x"
    ok(client, http("/T/g?cmd=nack&offset=0&delay=100"))
    world.advance(100 + LATE_MS - 1)
    assert got(client, "/g") is None
    world.advance(1)
    assert got(client, "/g") == b"x"
