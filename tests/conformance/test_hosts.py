"""Requests without `Host`, and with one that is a message's: stock clients send both. Only browsers
have to be judged by it, and they always send it (specification, section 15.1)."""

from __future__ import annotations

import pytest

from tests.conformance.dialogue import Client, World, cmd, http, ok, pull
from zbus.edge.guard import GuardSettings

ELSEWHERE = "host: other.example:15555"


def strict() -> tuple[World, Client]:
    """A broker that knows its names, and a topic."""
    world = World(guard=GuardSettings())
    client = world.connect()
    ok(client, http("/T?cmd=declare&sender_headers=1"))
    return world, client


def hostless(target: str, *lines: str) -> bytes:
    return "\r\n".join((f"GET {target} HTTP/1.1", *lines, "", "")).encode()


@pytest.mark.parametrize(
    ("target", "status"),
    [
        ("/?cmd=ping", 200),
        ("/", 302),
        ("/server", 404),  # a topic that is not there
        ("/T?body=x", 200),
        ("/T?cmd=query", 200),
        ("/_log/T", 200),
    ],
)
def test_a_request_without_host_is_a_program_s(target: str, status: int) -> None:
    """Stock Java's `setUrl`, and hand-typed lines."""
    _, client = strict()
    for lines in ((), ("connection: Keep-Alive", "version: 0.11.4"), ("id: 7",)):
        reply = client.request(hostless(target, *lines))
        assert reply.status == status
        assert reply.headers["id"] == "7" if "id: 7" in lines else reply.headers["id"]
        assert not client.closed


@pytest.mark.parametrize("line", ["origin: http://localhost", "sec-fetch-site: same-origin"])
def test_what_has_no_host_is_of_no_page(line: str) -> None:
    _, client = strict()
    assert client.request(hostless("/T?body=x", line)).status in (400, 403)
    assert pull(client).status == 204


def test_a_delivery_may_be_published_again() -> None:
    """With all of its headers, of which `host` names the broker that it came from."""
    _, client = strict()
    browser = ("user-agent: Mozilla/5.0", "accept: */*", "accept-encoding: gzip")
    lines = ("topic: T", "id: 1", ELSEWHERE, *browser, "sec-fetch-site: none")
    ok(client, cmd("produce", *lines, body=b"again"))
    reply = pull(client)
    assert reply.body == b"again"
    assert reply.headers["host"] == "127.0.0.1:15555", "the broker's own, as always"
    ok(client, cmd("produce", "topic: T", ELSEWHERE, "content-length: 0"))
    posted = cmd("produce", "topic: T", ELSEWHERE, body=b"x").replace(b"GET", b"POST", 1)
    ok(client, posted)


def test_a_route_may_name_the_host_of_its_target() -> None:
    """A proxy service answers with all the headers that its target gave."""
    world, caller = strict()
    ok(caller, http("/S?cmd=declare&topic_mask=5"))
    service = world.connect()
    service.exchange(cmd("consume", "topic: S", "id: p"))
    caller.send(http("/S/a/page"))
    world.settle()
    (call,) = service.replies()
    lines = (f"recver: {call.headers['sender']}", f"id: {call.headers['origin_id']}")
    service.exchange(cmd("route", *lines, "host: target.example", body=b"<h1>hello</h1>"))
    (answer,) = caller.replies()
    assert (answer.status, answer.body) == (200, b"<h1>hello</h1>")


@pytest.mark.parametrize("method", ["GET", "POST", "X"])
def test_a_page_whose_name_was_rebound_is_refused_with_a_cmd_header_too(method: str) -> None:
    """By plain http, to a name of its own, a browser says neither the site nor (of a GET) the page;
    the script may send a `cmd` and name itself as it likes."""
    world, client = strict()
    lines = ["accept: */*", "user-agent: curl", "accept-encoding: gzip", "cmd: remove", "topic: T"]
    if method != "GET":
        lines += ["origin: http://evil.example", "content-length: 0"]
    data = http("/", *lines, method=method).replace(b"localhost", b"evil.example")
    assert client.request(data).status == 421
    assert "t" in world.broker.topics
