"""What a token must be granted for each action, over HTTP and on a WebSocket."""

from __future__ import annotations

import json

import pytest

from tests.conformance.dialogue import World, http
from tests.conformance.websocket_client import WebSocketClient, handshake
from tests.dialects.adf.speakers import binary, read_binary
from tests.dialects.talks import entry
from zbus.edge.access import Access
from zbus.testing.world import EPOCH_MS

NAMES = ("produce", "consume", "query", "empty", "declare", "remove")


TOKENS = (
    entry("admin", "admin", "*"),
    *(entry(name, name, "%2Fq") for name in NAMES),
    entry("all", "*", "%2Fq"),
    entry("elsewhere", "*", "%2Fother"),
    entry("group", "consume query", "%2Fq", groups=["others"]),
    entry("short", "*", "%2Fq", ends_ms=EPOCH_MS + 60_000),
)

NEEDED = (
    ("rpush", "produce"),
    ("lpush", "produce"),
    ("pull", "consume"),
    ("delete", "consume"),
    ("lcancel", "consume"),
    ("rcancel", "consume"),
    ("count", "query"),
    ("clear", "empty"),
    ("createqueue", "declare"),
    ("deletequeue", "remove"),
)


def made() -> World:
    world = World(access=Access(TOKENS))
    ask_http(world, "createqueue", "admin")
    ask_http(world, "rpush", "admin", body=b"x")
    return world


def ask_http(world: World, action: str, token: str, queue: str = "/q", body: bytes = b"") -> str:
    """The result, or the status if there is none."""
    line = [f"token: {token}"] if token else []
    target = f"/queue/{action}?queue={queue}&requestid=1&timeout=1"
    method = "POST" if action.endswith("push") else "GET"
    client = world.connect()
    client.send(http(target, *line, method=method, body=body or b"x" * (method == "POST")))
    world.settle()
    world.advance(1_000)
    [reply] = client.replies()
    if reply.headers["content-type"] != "application/json":
        return str(reply.status)
    result = json.loads(reply.body)["result"]
    assert isinstance(result, str)
    return result


def ask_websocket(world: World, action: str, token: str) -> str:
    client = world.connect()
    client.send(handshake("/queue/bin", f"token: {token}"))
    world.settle()
    assert client.received.startswith(b"HTTP/1.1 101")
    client.received = b""
    socket = WebSocketClient(client)
    body = b"x" if action.endswith("push") else None
    [message] = socket.exchange(socket.frame(binary(action, b"1", b"/q", body)))
    return read_binary(message.data).result


@pytest.mark.parametrize(("action", "operation"), NEEDED)
def test_what_each_action_needs(action: str, operation: str) -> None:
    for token in (*NAMES, "elsewhere", "group", "all"):
        may = token in (operation, "all")
        told = ask_http(made(), action, token)
        assert (told == "403") is not may, token
        told = ask_websocket(made(), action, token)
        assert (told == "forbidden.") is not may, token
    for token in ("", "wrong"):
        assert ask_http(made(), action, token) == "403"


@pytest.mark.parametrize("action", ["rpush", "lpush", "pull"])
def test_to_make_a_queue_by_use_needs_both(action: str) -> None:
    for token, result in (("produce", "403"), ("consume", "403")):
        world = World(access=Access(TOKENS))
        assert ask_http(world, action, token) == result
        assert world.broker.topic("%2Fq") is None
    world = World(access=Access(TOKENS))
    assert ask_http(world, action, "all") == ("pull timeout." if action == "pull" else "ok")
    assert world.broker.topic("%2Fq") is not None


def test_no_websocket_with_a_wrong_token() -> None:
    client = made().connect()
    assert client.request(handshake("/queue/json", "token: wrong")).status == 403


def test_a_websocket_without_a_token_may_do_nothing() -> None:
    world = made()
    client = world.connect()
    client.send(handshake("/queue/json"))
    world.settle()
    client.received = b""
    socket = WebSocketClient(client)
    request = '{"action":"rpush","requestid":"1","queue":"/q","body":"x"}'
    [message] = socket.exchange(socket.frame(request))
    assert json.loads(message.data)["result"] == "forbidden."


def test_what_waits_ends_with_its_rights() -> None:
    world = made()
    client = world.connect()
    client.send(handshake("/queue/json", "token: short"))
    world.settle()
    client.received = b""
    socket = WebSocketClient(client)
    requests = [
        socket.frame(json.dumps({"action": "pull", "requestid": id, "queue": "/q"})) for id in "ab"
    ]
    [message] = socket.exchange(b"".join(requests))
    assert json.loads(message.data)["body"] == "x"
    world.advance(60_000)
    world.posted.append(world.front.upkeep)
    world.settle()
    [message] = socket.messages()
    told = json.loads(message.data)
    assert (told["requestid"], told["result"]) == ("b", "forbidden.")


def test_names_of_queues_that_no_topic_can_have() -> None:
    """They need a known token, as whatever is refused."""
    world = made()
    assert ask_http(world, "count", "produce", "x" * 300) == "queue invalid."
    assert ask_http(world, "count", "", "x" * 300) == "403"
