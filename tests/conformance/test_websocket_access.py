"""Tokens and WebSockets: the handshake's token counts for what has none of its own."""

from __future__ import annotations

import pytest

from tests.conformance.dialogue import World, cmd
from tests.conformance.test_access import entry, replace_table, world_with
from tests.conformance.websocket_client import WebSocketClient, connected, handshake, upgraded
from zbus.edge.access import Entry

PRODUCER = entry("producer", "produce", {"Orders": []})
CONSUMER = entry("consumer", "consume", {"Orders": []})

PUT = {"cmd": "produce", "topic": "Orders", "body": "x"}


def with_token(*lines: str, target: str = "/") -> tuple[World, WebSocketClient]:
    world, _ = world_with(PRODUCER, CONSUMER, url_allowed=True)
    return world, upgraded(world.connect(), handshake(target, *lines))


@pytest.mark.parametrize(
    ("target", "lines"),
    [
        ("/", ["token: producer"]),
        ("/", ["cookie: a=b; token=producer"]),
        ("/any?token=producer", []),
    ],
)
def test_the_token_of_the_handshake_counts(target: str, lines: list[str]) -> None:
    _, socket = with_token(*lines, target=target)
    assert socket.ask(PUT)["status"] == 200
    assert socket.request(cmd("produce", "topic: Orders", body=b"x")).status == 200
    assert socket.ask({"cmd": "consume", "topic": "Orders"})["status"] == 403


def test_a_token_of_a_request_wins() -> None:
    _, socket = with_token("token: producer")
    pull = {"cmd": "consume", "topic": "Orders", "timeout": 0}
    assert socket.ask({**pull, "token": "consumer"})["status"] == 204
    assert socket.ask(pull)["status"] == 403
    assert socket.ask({**PUT, "token": "consumer"})["status"] == 403
    assert socket.ask({**PUT, "token": "nobody"})["status"] == 403
    assert socket.ask(PUT)["status"] == 200


@pytest.mark.parametrize(
    ("target", "lines"), [("/", ["token: nobody"]), ("/?token=producer", [])], ids=["token", "url"]
)
def test_a_handshake_with_a_bad_token_is_refused(target: str, lines: list[str]) -> None:
    world, _ = world_with(PRODUCER)
    client = world.connect()
    (reply,) = client.exchange(handshake(target, *lines))
    assert (reply.status, reply.body[:4]) == (403, b"403:")
    assert client.closed


def test_without_a_token_requests_bring_theirs() -> None:
    world, _ = world_with(PRODUCER)
    socket = connected(world)
    assert socket.ask(PUT)["status"] == 403
    assert socket.ask({**PUT, "token": "producer"})["status"] == 200


def test_what_a_token_is_worth_may_change() -> None:
    world, socket = with_token("token: producer")
    assert socket.ask(PUT)["status"] == 200
    replace_table(world, Entry(CONSUMER.grant, PRODUCER.digests))
    assert socket.ask(PUT)["status"] == 403
    assert socket.ask({"cmd": "consume", "topic": "Orders", "timeout": 0})["status"] == 200
    replace_table(world)
    assert socket.ask(PUT)["status"] == 403
