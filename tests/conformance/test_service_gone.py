"""The caller of a service that took the call and left is answered at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.conformance.dialogue import Client, World, cmd, declared, http, ok, refused
from tests.conformance.websocket_client import WebSocketClient, upgraded

TEXT = "502: the service that took this call has gone; it may have done the work"

Taker = Callable[[Client], None]


def _by_cmd(client: Client) -> None:
    client.send(cmd("consume", "topic: S", "consume_window: 5"))


def _by_batch(client: Client) -> None:
    client.send(cmd("consume", "topic: S", "batch: 5"))


def _by_socket(client: Client) -> None:
    socket = upgraded(client)
    socket.client.send(socket.frame(cmd("consume", "topic: S", "consume_window: 5")))


def _by_json(client: Client) -> None:
    socket = upgraded(client)
    socket.client.send(socket.frame('{"cmd":"consume","topic":"S","consume_window":5}'))


def _by_plain_http(client: Client) -> None:
    client.send(http("/S?cmd=consume"))


def called(words: str, take: Taker) -> tuple[World, Client, Client]:
    """A world, a service that took a call, and its caller."""
    world, _ = declared(f"S?topic_mask=3&{words}")
    service, caller = world.connect(), world.connect()
    caller.send(http("/S/m?timeout=500"))
    world.settle()
    take(service)
    world.settle()
    assert caller.replies() == []
    return world, service, caller


def leave(world: World, client: Client) -> None:
    client.vanish()
    world.settle()
    world.broker.check()


@pytest.mark.parametrize("take", [_by_cmd, _by_batch, _by_socket, _by_json])
@pytest.mark.parametrize("topic", ["", "partitions=3"])
def test_the_caller_is_answered_at_once(take: Taker, topic: str) -> None:
    world, service, caller = called(topic, take)
    leave(world, service)
    assert [(reply.status, reply.body.decode()) for reply in caller.replies()] == [(502, TEXT)]
    assert not caller.closed
    assert not world.broker._calls.placed
    assert len(world.broker._calls) == 0
    world.advance(1_000)
    assert caller.replies() == []


def test_a_service_by_plain_http_may_answer_from_elsewhere() -> None:
    world, service, caller = called("", _by_plain_http)
    (call,) = service.replies()
    leave(world, service)
    assert caller.replies() == []
    to = call.headers
    ok(world.connect(), http(f"/?cmd=route&recver={to['sender']}&id={to['origin_id']}", body=b"x"))
    assert [(reply.status, reply.body) for reply in caller.replies()] == [(200, b"x")]


def test_what_waits_for_a_service_waits_on() -> None:
    """It was handed to nobody yet."""
    world, service, caller = called("", _by_cmd)
    second = world.connect()
    leave(world, service)
    assert [reply.status for reply in caller.replies()] == [502]
    second.send(http("/S/m?timeout=500"))
    world.settle()
    leave(world, world.connect())
    assert second.replies() == []
    answer_next(world, world.connect())
    assert [reply.status for reply in second.replies()] == [200]


def answer_next(world: World, service: Client) -> None:
    call = ok(service, cmd("consume", "topic: S"))
    lines = (f"recver: {call.headers['sender']}", f"id: {call.headers['origin_id']}")
    assert service.exchange(cmd("route", *lines, body=b"3")) == []


def test_with_acknowledgements_another_service_may_answer() -> None:
    world, _ = declared("S?topic_mask=3&ack=true")
    service, caller = world.connect(), world.connect()
    caller.send(http("/S/m?timeout=100000"))
    world.settle()
    ok(service, cmd("consume", "topic: S", "consume_group: S", "ack_timeout: 1000"))
    leave(world, service)
    assert caller.replies() == []
    world.advance(31_000)
    answer_next(world, world.connect())
    assert [reply.status for reply in caller.replies()] == [200]


def test_who_has_answered_may_go() -> None:
    world, _ = declared("S?topic_mask=3")
    service, caller = world.connect(), world.connect()
    for _ in range(3):
        caller.send(http("/S/m"))
        world.settle()
        answer_next(world, service)
        assert [reply.status for reply in caller.replies()] == [200]
    assert not service.peer.taken
    leave(world, service)
    assert caller.replies() == []


def test_a_caller_that_goes_first_leaves_nothing_behind() -> None:
    world, service, caller = called("", _by_cmd)
    leave(world, caller)
    assert not service.peer.taken
    assert not world.broker._calls.placed
    leave(world, service)


def test_many_calls_end_in_parts() -> None:
    world, _ = declared("S?topic_mask=3")
    service = world.connect()
    callers = [world.connect() for _ in range(20)]
    for caller in callers:
        caller.send(http("/S/m"))
    service.send(cmd("consume", "topic: S", "consume_window: 100"))
    world.settle()
    broker, peer = world.broker, service.peer
    peer.closed = True
    ends = [broker.leave(peer, 6) for _ in range(4)]
    world.settle()
    assert ends == [False, False, False, True]
    assert [reply.status for caller in callers for reply in caller.replies()] == [502] * 20


CALLERS: list[tuple[str, Any]] = [
    ("plain", http("/S", body=b"x")),
    ("stock", cmd("produce", "topic: S", "id: 7", body=b"x")),
]


@pytest.mark.parametrize(("name", "request_"), CALLERS)
def test_callers(name: str, request_: bytes) -> None:
    world, _ = declared("S?topic_mask=3")
    service, caller = world.connect(), world.connect()
    _by_cmd(service)
    caller.send(request_)
    world.settle()
    leave(world, service)
    (reply,) = caller.replies()
    assert (reply.status, reply.body.decode()) == (502, TEXT)
    if name == "stock":
        assert reply.headers["id"] == "7"
    assert refused(caller, http("/Nope?cmd=query"))[0] == 404


def test_a_caller_on_a_websocket() -> None:
    world, _ = declared("S?topic_mask=3")
    service = world.connect()
    _by_cmd(service)
    socket: WebSocketClient = upgraded(world.connect())
    socket.client.send(socket.frame('{"cmd":"produce","topic":"S","id":"7","body":"x"}'))
    world.settle()
    leave(world, service)
    (message,) = socket.messages()
    assert b'"status":502' in message.data.replace(b" ", b"")
    assert TEXT.encode() in message.data
