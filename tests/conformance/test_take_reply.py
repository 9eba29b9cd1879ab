"""Replies are read by h11 once for each shape, and then in a shorter way: it finds the same."""

from __future__ import annotations

from tests.conformance.dialogue import http
from zbus.testing.world import Reply, World, _take_by_h11, take_reply


def replies(data: bytes, by_h11: bool) -> list[tuple[Reply | None, int]]:
    found: list[tuple[Reply | None, int]] = []
    end = 0
    while end < len(data):
        reply, end = _take_by_h11(data, end) if by_h11 else take_reply(data, end)
        found.append((reply, end))
        if reply is None:
            break
    return found


def test_the_short_way_finds_the_same() -> None:
    world = World()
    client = world.connect()
    client.send(http("/T?cmd=declare") + b"".join(http("/T", body=b"%d" % n) for n in range(12)))
    client.send(http("/T?cmd=consume") * 14 + http("/T?cmd=query") + http("/No?cmd=query"))
    world.settle()
    data = client.received
    assert len(replies(data, True)) > 20
    for length in range(0, len(data), 7):
        assert replies(data[:length], False) == replies(data[:length], True)
