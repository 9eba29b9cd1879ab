"""Words and grips that the conformance tests share.

`http` is a request as curl or a browser sends it, `cmd` one as the stock zbus clients send it:
`GET /` with everything in header lines, and no Host.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from zbus.testing.world import EPOCH_MS, Client, Reply, World

__all__ = ["EPOCH_MS", "Client", "Reply", "World"]

Setup = Callable[[World], None]

TEN_YEARS_MS = 10 * 365 * 86_400_000


TYPED = (
    "accept: text/html,*/*;q=0.8",
    "sec-fetch-site: none",
    "sec-fetch-mode: navigate",
    "sec-fetch-user: ?1",
    "sec-fetch-dest: document",
)
"""What a browser says of an address that was typed."""


def http(target: str, *lines: str, body: bytes = b"", method: str = "GET") -> bytes:
    if method != "GET" and not body and any(line.startswith("content-type:") for line in lines):
        lines = (*lines, "content-length: 0")  # else something is announced that has no end
    return _request(f"{method} {target} HTTP/1.1", ("host: localhost", *lines), body)


def cmd(name: str, *lines: str, body: bytes = b"") -> bytes:
    return _request("GET / HTTP/1.1", (f"cmd: {name}", *lines), body)


def _request(start: str, lines: tuple[str, ...], body: bytes) -> bytes:
    if body:
        lines = (*lines, f"content-length: {len(body)}")
    return "\r\n".join((start, *lines, "", "")).encode() + body


def ok(client: Client, data: bytes) -> Reply:
    reply = client.request(data)
    assert reply.status == 200, reply
    return reply


def refused(client: Client, data: bytes) -> tuple[int, str]:
    """Status and text of the one reply; the connection must live on."""
    reply = client.request(data)
    assert not client.closed
    assert client.request(http("/?cmd=ping")).status == 200, "the connection is still usable"
    return reply.status, reply.body.decode()


def document(reply: Reply) -> Any:
    assert reply.headers["content-type"] == "application/json", reply
    return msgspec.json.decode(reply.body)


def put(client: Client, topic: str, *bodies: bytes, query: str = "") -> None:
    for body in bodies:
        ok(client, http(f"/{topic}?{query}", body=body, method="POST"))


def pull(client: Client, path: str = "/T", query: str = "") -> Reply:
    """One message, or 204 at once (a millisecond later if the log has to be read first)."""
    replies = client.exchange(http(f"{path}?cmd=consume&timeout=0&{query}"))
    if not replies:
        client.world.advance(1)
        replies = client.replies()
    assert len(replies) == 1, replies
    return replies[0]


def drain(client: Client, path: str = "/T") -> list[bytes]:
    """All bodies that a group hands out now."""
    bodies = []
    while (reply := pull(client, path)).status == 200:
        bodies.append(reply.body)
    assert reply.status == 204, reply
    return bodies


def declared(*targets: str) -> tuple[World, Client]:
    """A world with these declarations (`T?topic_mask=1`) and one client."""
    world = World()
    client = world.connect()
    for target in targets:
        name, _, query = target.partition("?")
        ok(client, http(f"/{name}?cmd=declare&{query}"))
    return world, client


def restart(world: World) -> World:
    """What another process finds on the same journal."""
    world.broker.check()
    world.flush()
    again = World(world.journal, now_ms=world.now_ms)
    again.broker.check()
    return again


def reply_set(client: Client) -> list[tuple[str, int, bytes, dict[str, str]]]:
    """Replies without their order, which only plain HTTP promises."""
    found = [
        (reply.headers.get("id", ""), reply.status, reply.body, reply.headers)
        for reply in client.replies()
    ]
    return sorted(found, key=lambda reply: reply[:3])


def conversation(setup: Setup, data: bytes, cuts: tuple[int, ...]) -> list[Any]:
    """What a client gets that sends `data` in pieces."""
    world = World()
    setup(world)
    client = world.connect()
    for begin, end in zip((0, *cuts), (*cuts, len(data)), strict=True):
        client.send(data[begin:end])
        world.settle()
    world.broker.check()
    return reply_set(client)
