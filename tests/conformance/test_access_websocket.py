"""Tokens on a WebSocket: of the handshake, and of each message."""

from __future__ import annotations

import pytest

from tests.conformance.dialogue import World, cmd, http, ok
from tests.conformance.test_access import (
    ADMIN,
    ADMIN_ENTRY,
    entry,
    pass_time,
    replace_table,
    world_with,
)
from tests.conformance.websocket_client import handshake, upgraded
from zbus.edge.access import Access
from zbus.edge.guard import GuardSettings
from zbus.testing.world import EPOCH_MS

FORBIDDEN = b"403: Command(query) Topic(Orders) Forbbiden"
QUERY = cmd("query", "topic: Orders")


@pytest.mark.parametrize(
    ("target", "line"),
    [
        ("/", "token: b"),
        ("/", "cookie: a=1; token=b"),
        ("/", "authorization: Basic OmI="),
        ("/?token=b", "x: y"),
    ],
)
def test_the_token_of_the_handshake_counts_for_all_messages(target: str, line: str) -> None:
    world, client = world_with(entry("b", "query", {"Orders": []}), url_allowed=True)
    socket = upgraded(world.connect(), handshake(target, line))
    assert socket.request(QUERY).status == 200
    assert socket.ask({"cmd": "query", "topic": "Orders", "id": 1})["status"] == 200
    reply = socket.request(cmd("produce", "topic: Orders", body=b"x"))
    assert (reply.status, reply.body[:4]) == (403, b"403:")
    assert client.request(http("/Orders?cmd=query")).status == 403, "it counts there only"


def test_a_message_may_have_a_token_of_its_own() -> None:
    world, _ = world_with(entry("b", "query", {"Orders": []}), entry("c", "server"))
    socket = upgraded(world.connect())
    reply = socket.request(QUERY)
    assert (reply.status, reply.body) == (403, FORBIDDEN)
    assert socket.request(cmd("query", "topic: Orders", "token: b")).status == 200
    assert socket.ask({"cmd": "query", "topic": "Orders", "token": "b"})["status"] == 200
    refused = socket.ask({"cmd": "query", "topic": "Orders", "id": "7"})
    assert (refused["status"], refused["id"]) == (403, "7")
    assert refused["body"] == "403: Command(query) Topic(Orders) Forbidden"
    other = upgraded(world.connect(), handshake("/", "token: b"))
    assert other.request(cmd("server", "token: c")).status == 200
    assert other.request(cmd("query", "topic: Orders", "token: c")).status == 403
    assert other.request(QUERY).status == 200


@pytest.mark.parametrize(
    ("target", "line", "text"),
    [
        ("/", "token: wrong", b"403: this token is not known"),
        ("/", "cookie: token=wrong", b"403: this token is not known"),
        ("/", "authorization: Basic YTpiYg==", b"403: this token is not known"),
        ("/", "authorization: Basic b", b"403: this token is not known"),
        (
            "/?token=b",
            "x: y",
            b"403: a token in the URL is not taken here: send it as a header or cookie",
        ),
    ],
)
def test_a_handshake_with_a_token_that_is_worth_nothing(
    target: str, line: str, text: bytes
) -> None:
    world, _ = world_with(entry("b", "query"))
    client = world.connect()
    replies = client.exchange(handshake(target, line) + http("/?cmd=ping", ADMIN))
    assert [(reply.status, reply.body) for reply in replies] == [(403, text)]
    assert replies[0].headers["connection"] == "close"
    assert client.closed
    assert len(client.exchange(b"")) == 0


def test_a_token_that_ends_ends_what_waits_on_an_open_socket() -> None:
    b = entry("b", "consume query", {"Orders": []}, expires_ms=EPOCH_MS + 5_000)
    world, client = world_with(b)
    socket = upgraded(world.connect(), handshake("/", "token: b"))
    assert socket.exchange(socket.frame(cmd("consume", "topic: Orders", "id: 7"))) == []
    ok(client, http("/Orders", ADMIN, body=b"x"))
    (delivered,) = socket.messages()
    assert delivered.data.endswith(b"x")
    assert socket.exchange(socket.frame(cmd("consume", "topic: Orders", "id: 8"))) == []
    pass_time(world, 5_000)
    (ended,) = socket.messages()
    assert ended.data.startswith(b"HTTP/1.1 403 ")
    assert b"\r\nid: 8\r\n" in ended.data
    reply = socket.request(QUERY)
    assert (reply.status, reply.body) == (403, FORBIDDEN)


def test_a_token_that_is_taken_away_and_given_back() -> None:
    world, _ = world_with(entry("b", "query"))
    socket = upgraded(world.connect(), handshake("/", "token: b"))
    replace_table(world, ADMIN_ENTRY)
    assert socket.request(QUERY).status == 403
    replace_table(world, ADMIN_ENTRY, entry("b", "query"))
    assert socket.request(QUERY).status == 403, "a connection's token is looked up once"
    assert socket.request(cmd("query", "topic: Orders", "token: b")).status == 200


@pytest.mark.parametrize(
    ("origin", "counts"),
    [
        ("origin: https://any.example", False),
        ("origin: https://app.example", True),
        ("origin: http://localhost", True),
        ("x: program", True),
    ],
)
def test_the_certificate_of_a_browser_does_not_count_for_any_page(
    origin: str, counts: bool
) -> None:
    """Browsers show it for whatever page opens a connection."""
    access = Access([entry("machine", "query", {"Orders": []}, principals=("machine-7",))])
    guard = GuardSettings(cors_origins=("*", "https://app.example"))
    world = World(access=access, guard=guard)
    client, socket = world.connect(), world.connect()
    client.peer.principal = socket.peer.principal = "machine-7"
    status = 404 if counts else 403
    assert client.request(http("/Orders?cmd=query", origin)).status == status
    assert upgraded(socket, handshake("/", origin)).request(QUERY).status == status
    shown = http("/Orders?cmd=query", origin, "token: machine")
    assert client.request(shown).status == 404, "a token that the page itself shows"
