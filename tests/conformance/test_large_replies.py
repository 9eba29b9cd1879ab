"""A reply that is too large is answered to both sides: nobody waits for what does not come."""

from __future__ import annotations

import pytest

from tests.conformance.dialogue import Client, Reply, World, cmd, declared, http, ok, pull, restart
from tests.conformance.test_access import entry
from tests.conformance.websocket_client import connected, read_http, read_json, upgraded
from zbus.core.model.limits import Limits
from zbus.edge.access import Access
from zbus.wire.limits import DEFAULT_LIMITS, WireLimits

MIB = 1 << 20
TOO_LARGE = (502, b"502: the service's reply is too large to be passed on")

CALLS = {
    "plain": http("/S/m"),
    "plain with an id": http("/S/m?id=c"),
    "by headers": cmd("produce", "topic: S", "id: c"),
    "of a stock client": cmd("produce", "topic: S", "id: c", "ack: 0"),
}


def scene(wire_limits: WireLimits = DEFAULT_LIMITS) -> tuple[World, Client, Client]:
    """A world of small messages, a caller, and a service."""
    world = World(limits=Limits(message_bytes_max=1_000), wire_limits=wire_limits)
    caller, service = world.connect(), world.connect()
    ok(service, http("/S?cmd=declare&topic_mask=2"))
    return world, caller, service


def called(caller: Client, service: Client, request: bytes) -> tuple[str, str]:
    """How a service answers this call: `recver` and `id`."""
    assert caller.exchange(request) == []
    call = ok(service, cmd("consume", "topic: S"))
    return f"recver: {call.headers['sender']}", f"id: {call.headers['origin_id']}"


def told(replies: list[Reply]) -> list[tuple[int, bytes]]:
    return [(reply.status, reply.body) for reply in replies]


@pytest.mark.parametrize("how", CALLS)
def test_over_the_limit_of_messages(how: str) -> None:
    _, caller, service = scene()
    recver, id = called(caller, service, CALLS[how])
    reply = service.request(cmd("route", recver, id, "ack: 0", body=b"x" * 1_001))
    assert (reply.status, reply.body) == (413, b"413: a message body has at most 1000 bytes")
    assert f"id: {reply.headers['id']}" == id
    replies = caller.replies()
    assert told(replies) == [TOO_LARGE]
    if how != "plain":
        assert replies[0].headers["id"] == "c"
    assert caller.request(http("/?cmd=ping")).status == 200
    assert service.request(http("/?cmd=ping")).status == 200


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("how", CALLS)
def test_over_the_limit_of_the_connection(how: str, chunked: bool) -> None:
    _, caller, service = scene(WireLimits(body_bytes_max=2_000))
    recver, id = called(caller, service, CALLS[how])
    if chunked:
        request = cmd("route", recver, id, "transfer-encoding: chunked") + b"7d1\r\n"
    else:
        request = cmd("route", recver, id, "content-length: 2001")
    (reply,) = service.exchange(request)
    assert (reply.status, reply.headers["connection"]) == (413, "close")
    assert service.closed
    assert told(caller.replies()) == [TOO_LARGE]


def test_what_is_no_route_is_refused_and_nothing_else() -> None:
    world, caller, service = scene(WireLimits(body_bytes_max=2_000))
    recver, _ = called(caller, service, CALLS["plain"])
    (reply,) = service.exchange(cmd("produce", recver, "topic: S", "content-length: 2001"))
    assert reply.status == 413
    assert caller.replies() == []
    assert world.broker.topics["s"].partitions[0].end == 1


def test_replies_that_come_at_once_and_are_large_all_arrive() -> None:
    world = World()
    caller, service = world.connect(), world.connect()
    ok(service, http("/S?cmd=declare&topic_mask=2"))
    lines = [
        called(caller, service, cmd("produce", "topic: S", f"id: {n}", "ack: 0")) for n in range(4)
    ]
    for recver, id in lines:
        service.send(cmd("route", recver, id, body=b"x" * MIB))
    world.settle()
    assert [len(reply.body) for reply in caller.replies()] == [MIB] * 4


@pytest.mark.parametrize("durability", ["memory", "os", "disk"])
def test_a_message_of_16_mib(durability: str) -> None:
    """Alone, and several in one turn: through put, restart and pull."""
    world, client = declared(f"T?durability={durability}")
    body = bytes(range(256)) * (16 * MIB // 256)
    for _ in range(3):
        client.send(http("/T", body=body, method="POST"))
    world.settle()
    assert [reply.status for reply in client.replies()] == [200] * 3
    if durability != "memory":
        client = restart(world).connect()
    for _ in range(3):
        assert pull(client).body == body


def test_a_reply_of_16_mib() -> None:
    world = World()
    caller, service = world.connect(), world.connect()
    ok(service, http("/S?cmd=declare&topic_mask=2"))
    recver, id = called(caller, service, http("/S/m"))
    body = b"x" * (16 * MIB)
    assert service.exchange(cmd("route", recver, id, body=body)) == []
    assert told(caller.replies()) == [(200, body)]


@pytest.mark.parametrize("json", [False, True])
def test_a_caller_at_a_websocket(json: bool) -> None:
    _, caller, service = scene()
    socket = upgraded(caller)
    if json:
        assert socket.asks({"cmd": "produce", "topic": "S", "id": "c"}) == []
    else:
        assert socket.exchange(socket.frame(CALLS["by headers"])) == []
    call = ok(service, cmd("consume", "topic: S"))
    lines = f"recver: {call.headers['sender']}", f"id: {call.headers['origin_id']}"
    assert service.request(cmd("route", *lines, body=b"x" * 1_001)).status == 413
    (message,) = socket.messages()
    if json:
        reply = read_json(message)
        assert (reply["status"], reply["id"], reply["body"]) == (502, "c", TOO_LARGE[1].decode())
    else:
        assert told([read_http(message.data)]) == [TOO_LARGE]


def test_a_service_at_a_websocket() -> None:
    world, caller, service = scene(WireLimits(body_bytes_max=2_000))
    lines = called(caller, service, CALLS["plain"])
    socket = connected(world)
    socket.exchange(socket.frame(cmd("route", *lines, body=b"x" * 2_001)))
    assert socket.close == (1009, "a body has at most 2000 bytes")
    assert told(caller.replies()) == [TOO_LARGE]


def test_who_may_not_route_ends_no_call_either() -> None:
    """Whatever the length of the body."""
    limits, wire = Limits(message_bytes_max=1_000), WireLimits(body_bytes_max=2_000)
    access = Access([entry("admin", "admin"), entry("reader", "consume produce")])
    world = World(limits=limits, wire_limits=wire, access=access)
    caller, admin = world.connect(), world.connect()
    ok(admin, http("/S?cmd=declare&topic_mask=2", "token: admin"))
    assert caller.exchange(http("/S/m", "token: reader")) == []
    call = ok(admin, cmd("consume", "topic: S", "token: admin"))
    lines = f"recver: {call.headers['sender']}", f"id: {call.headers['origin_id']}"
    for size in (1_001, 2_001):
        request = cmd("route", *lines, "token: reader", body=b"x" * size)
        assert 403 in [reply.status for reply in world.connect().exchange(request)]
    assert caller.replies() == []
