"""The very bytes of the stock clients (specification, section 15.1), as they were recorded, over
TCP and over WebSocket; and what section 15.2 says would break them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from tests.conformance.dialogue import Client, Reply, World, document
from tests.conformance.websocket_client import read_http, upgraded

Fields = dict[str, str]
Write = Callable[[str, str, Fields, bytes], bytes]

JAVA_ORDER = (
    "content-type",
    "content-length",
    "consume_group",
    "offset",
    "recver",
    "group_mask",
    "ack",
    "topic",
    "connection",
    "tag",
    "cmd",
    "id",
    "group_name_auto",
    "version",
    "topic_mask",
    "group_ack_timeout",
    "origin_status",
    "group_filter",
)
"""Its headers come in the order of a hash table."""


def java(cmd: str, id: str, fields: Fields, body: bytes) -> bytes:
    rest = {"content-length": str(len(body)), "connection": "Keep-Alive", "version": "0.11.4"}
    if "ack" in fields:
        fields = fields | {"ack": "0"}
    if cmd in ("produce", "route") and body[:1] in (b"{", b"3"):
        rest["content-type"] = "application/json; charset=utf-8"
    every = fields | rest | {"cmd": cmd, "id": id}
    return _request([(name, every.pop(name)) for name in JAVA_ORDER if name in every], body)


def zbuspy(cmd: str, id: str, fields: Fields, body: bytes) -> bytes:
    media_type = "application/json" if body[:1] in (b"{", b"3") else "text/plain"
    lines = [*fields.items(), ("cmd", cmd), ("id", id)]
    lines += [("content-type", f"{media_type}; charset=utf8"), ("content-length", str(len(body)))]
    encoded = {"*": "%2A", "#": "%23", ";": "%3B"}  # in `group_filter` and `tag`
    lines = [
        (name, "".join(encoded.get(c, c) for c in value) if "filter" in name else value)
        for name, value in lines
    ]
    return _request(lines, body)


def zbusjs(cmd: str, id: str, fields: Fields, body: bytes) -> bytes:
    if "ack" in fields:
        fields = fields | {"ack": "false"}
    lines = [*fields.items(), ("cmd", cmd), ("id", id), ("content-length", str(len(body)))]
    if body == b"3":
        lines.append(("content-type", "application/json"))
    if cmd in ("heartbeat", "track_sub"):
        lines.remove(("id", id))
    return _request(lines, body)


def _request(lines: list[tuple[str, str]], body: bytes) -> bytes:
    head = "".join(f"{name}: {value}\r\n" for name, value in lines)
    return f"GET / HTTP/1.1\r\n{head}\r\n".encode() + body


@pytest.mark.parametrize(
    ("written", "recorded"),
    [
        (
            java("declare", "ID", {"topic": "MyTopic"}, b""),
            b"GET / HTTP/1.1\r\ncontent-length: 0\r\ntopic: MyTopic\r\nconnection: Keep-Alive\r\n"
            b"cmd: declare\r\nid: ID\r\nversion: 0.11.4\r\n\r\n",
        ),
        (
            java("produce", "ID", {"topic": "MyRpc", "ack": "0"}, b'{"a":1}'),
            b"GET / HTTP/1.1\r\ncontent-type: application/json; charset=utf-8\r\n"
            b"content-length: 7\r\nack: 0\r\ntopic: MyRpc\r\nconnection: Keep-Alive\r\n"
            b'cmd: produce\r\nid: ID\r\nversion: 0.11.4\r\n\r\n{"a":1}',
        ),
        (
            zbuspy("produce", "ID", {"topic": "MyRpc", "ack": "False"}, b'{"module": null}'),
            b"GET / HTTP/1.1\r\ntopic: MyRpc\r\nack: False\r\ncmd: produce\r\nid: ID\r\n"
            b"content-type: application/json; charset=utf8\r\ncontent-length: 16\r\n\r\n"
            b'{"module": null}',
        ),
        (
            zbusjs("produce", "ID", {"topic": "MyTopic", "tag": "a.b", "my_header": "x"}, b"hello"),
            b"GET / HTTP/1.1\r\ntopic: MyTopic\r\ntag: a.b\r\nmy_header: x\r\ncmd: produce\r\n"
            b"id: ID\r\ncontent-length: 5\r\n\r\nhello",
        ),
        (
            zbusjs("track_sub", "ID", {}, b""),
            b"GET / HTTP/1.1\r\ncmd: track_sub\r\ncontent-length: 0\r\n\r\n",
        ),
    ],
)
def test_they_are_written_as_they_were_recorded(written: bytes, recorded: bytes) -> None:
    assert written == recorded


class Connection:
    """A stock client's connection. Over WebSocket, each request is a binary frame."""

    def __init__(self, world: World, write: Write, websocket: bool) -> None:
        self._write = write
        self._client = world.connect()
        self._frames = upgraded(self._client) if websocket else None
        self._serial = 0

    def send(self, cmd: str, body: bytes = b"", **fields: str) -> str:
        """Returns the id."""
        self._serial += 1
        id = f"{cmd}-{self._serial}"
        return self.send_as(id, cmd, body, **fields)

    def send_as(self, id: str, cmd: str, body: bytes = b"", **fields: str) -> str:
        data = self._write(cmd, id, fields, body)
        self._client.send(data if self._frames is None else self._frames.frame(data))
        self._client.world.settle()
        return id

    def replies(self) -> list[Reply]:
        if self._frames is None:
            return self._client.replies()
        return [read_http(message.data) for message in self._frames.messages()]

    def ask(self, cmd: str, body: bytes = b"", **fields: str) -> Reply:
        """The one reply, known by its id."""
        id = self.send(cmd, body, **fields)
        found = self.replies()
        assert [reply.headers.get("id") for reply in found] == [id], (cmd, found)
        reply = found[0]
        assert reply.headers["content-length"] == str(len(reply.body))
        assert "transfer-encoding" not in reply.headers
        assert all(name == name.lower() for name in reply.headers)
        return reply

    def vanish(self) -> None:
        self._client.vanish()


Connect = Callable[[], Connection]


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture(params=[java, zbuspy, zbusjs], ids=lambda write: str(write.__name__))
def write(request: pytest.FixtureRequest) -> Write:
    found: Write = request.param
    return found


@pytest.fixture(params=[False, True], ids=["tcp", "websocket"])
def connect(request: pytest.FixtureRequest, world: World, write: Write) -> Connect:
    return lambda: Connection(world, write, request.param)


def test_declare_produce_consume_ack(connect: Connect) -> None:
    client = connect()
    assert document(client.ask("declare", topic="MyTopic"))["topicName"] == "MyTopic"
    info = document(client.ask("declare", topic="MyTopic", consume_group="g", group_filter="a.*;x"))
    assert (info["groupName"], info["filter"]) == ("g", "a.*;x")
    stored = client.ask("produce", "hello 中文".encode(), topic="MyTopic", tag="a.b")
    assert stored.status == 200
    assert stored.body.isdigit()
    assert "content-type" not in stored.headers
    for group in ("MyTopic", "g"):
        message = client.ask("consume", topic="MyTopic", consume_group=group)
        assert message.status == 200
        assert message.body == "hello 中文".encode()
        assert message.headers["origin_id"] == stored.headers["id"]
        assert message.headers["tag"] == "a.b"
        assert message.headers["consume_group"] == group
        offset = message.headers["offset"]
        acked = client.ask("ack", topic="MyTopic", consume_group=group, offset=offset)
        assert acked.body.isdigit()
    assert document(client.ask("query", topic="MyTopic"))["messageDepth"] == 1
    assert document(client.ask("server"))["topicTable"]["MyTopic"]["messageDepth"] == 1
    for cmd in ("empty", "remove"):
        reply = client.ask(cmd, topic="MyTopic")
        assert (reply.status, reply.body.isdigit()) == (200, True)
    assert client.ask("query", topic="MyTopic").status == 404


def test_what_was_not_acknowledged_comes_again(world: World, connect: Connect) -> None:
    client = connect()
    client.ask("declare", topic="T", consume_group="T", group_mask="64", group_ack_timeout="300")
    client.ask("produce", b"once", topic="T")
    first = client.ask("consume", topic="T", consume_group="T")
    pull = client.send("consume", topic="T", consume_group="T")
    assert not client.replies()
    world.advance(300)
    (second,) = client.replies()
    assert second.headers["id"] == pull
    assert second.headers["retry"] == "1"
    for name in ("origin_id", "offset"):
        assert second.headers[name] == first.headers[name]
    client.ask("ack", topic="T", consume_group="T", offset=second.headers["offset"])
    client.send("consume", topic="T", consume_group="T")
    world.advance(1_000)
    assert not client.replies()


def test_a_404_makes_them_declare(connect: Connect) -> None:
    client = connect()
    assert client.ask("consume", topic="T", consume_group="g").status == 404
    name = document(client.ask("declare", topic="T", consume_group="g"))["groupName"]
    pull = client.send("consume", topic="T", consume_group=name)
    other = connect()
    other.ask("produce", b"x", topic="T")
    assert [reply.headers["id"] for reply in client.replies()] == [pull]
    client.send("unconsume", topic="T", consume_group="g")
    assert not client.replies(), "fire and forget"


def test_exclusive_and_temporary_groups(world: World, connect: Connect) -> None:
    holder, other = connect(), connect()
    name = document(holder.ask("declare", topic="T", group_mask="48", group_name_auto="true"))[
        "groupName"
    ]
    holder.send("consume", topic="T", consume_group=name)
    assert other.ask("consume", topic="T", consume_group=name).status == 401
    holder.vanish()
    world.settle()
    assert other.ask("consume", topic="T", consume_group=name).status == 404


def test_calls(connect: Connect) -> None:
    service, caller = connect(), connect()
    service.ask("declare", topic="R", consume_group="R", topic_mask="3")
    pull = service.send("consume", topic="R", consume_group="R")
    body = b'{"method": "plus", "params": [1, 2], "module": null}'
    call = caller.send("produce", body, topic="R", ack="False")
    assert not caller.replies(), "the broker itself says nothing"
    (request,) = service.replies()
    assert (request.headers["id"], request.body) == (pull, body)
    assert "ack" not in request.headers
    answer = {"recver": request.headers["sender"], "origin_status": "200"}
    service.send_as(request.headers["origin_id"], "route", b"3", **answer)
    assert not service.replies(), "and nothing to the service"
    (reply,) = caller.replies()
    assert (reply.status, reply.headers["id"], reply.body) == (200, call, b"3")
    assert reply.headers["content-type"].startswith("application/json")
    for gone in ("recver", "ack", "cmd", "origin_status"):
        assert gone not in reply.headers


def test_an_error_of_a_service(connect: Connect) -> None:
    service, caller = connect(), connect()
    service.ask("declare", topic="R", consume_group="R", topic_mask="3")
    service.send("consume", topic="R", consume_group="R")
    call = caller.send("produce", b"{}", topic="R", ack="False")
    (request,) = service.replies()
    sender = request.headers["sender"]
    service.send_as(call, "route", b"no", recver=sender, origin_status="600")
    (reply,) = caller.replies()
    assert (reply.status, reply.headers["id"], reply.body) == (600, call, b"no")


def test_trackers_and_heartbeats(world: World, connect: Connect) -> None:
    follower, client = connect(), connect()
    follower.send("track_sub")
    follower.send("heartbeat")
    pushes = [_pushed(reply) for reply in follower.replies()]
    client.ask("declare", topic="MyTopic")
    world.advance(100)
    pushes += [_pushed(reply) for reply in follower.replies()]
    client.ask("produce", b"x", topic="MyTopic")
    world.advance(1_000)
    assert not follower.replies()
    assert len(pushes) == 2
    assert pushes[0]["infoVersion"] < pushes[1]["infoVersion"]
    (address,) = pushes[1]["serverTable"]
    assert pushes[1]["serverTable"][address]["topicTable"]["MyTopic"]["consumerCount"] == 0
    assert list(document(client.ask("tracker"))["serverTable"]) == [address]
    certificate = client.ask("ssl")
    assert (certificate.status, "content-type" in certificate.headers) == (404, False)


def _pushed(reply: Reply) -> Any:
    assert "id" not in reply.headers, "it would be taken for another answer"
    assert reply.headers["cmd"] == "track_pub"
    assert reply.headers["content-type"] == "application/json"
    return msgspec.json.decode(reply.body)


def test_another_server_of_the_original(world: World, connect: Connect) -> None:
    """It reports with `ack: 0`, and is there until its connection ends."""
    follower, server = connect(), connect()
    follower.send("track_sub")
    follower.replies()
    address = {"address": "10.0.0.2:15555", "sslEnabled": False}
    info = {
        "infoVersion": 1514764800000,
        "serverAddress": address,
        "serverVersion": "0.11.4",
        "topicTable": {
            "MyTopic": {
                "consumeGroupList": [
                    {
                        "consumerCount": 1,
                        "consumerList": ["/10.0.0.3:40000"],
                        "createdTime": 1514764800000,
                        "groupName": "MyTopic",
                        "lastUpdatedTime": 1514764800000,
                        "mask": 0,
                        "messageCount": 0,
                        "topicName": "MyTopic",
                    }
                ],
                "consumerCount": 1,
                "createdTime": 1514764800000,
                "lastUpdatedTime": 1514764800000,
                "mask": 0,
                "messageDepth": 7,
                "serverAddress": address,
                "serverVersion": "0.11.4",
                "topicName": "MyTopic",
            }
        },
        "trackerList": [{"address": "127.0.0.1:15555", "sslEnabled": False}],
    }
    event = msgspec.json.encode({"live": True, "serverInfo": info})
    server.send("track_pub", event, ack="0")
    assert not server.replies()
    world.advance(1_000)
    (push,) = [_pushed(reply) for reply in follower.replies()]
    assert push["serverTable"]["10.0.0.2:15555"] == info
    server.vanish()
    world.advance(1_000)
    (push,) = [_pushed(reply) for reply in follower.replies()]
    assert list(push["serverTable"]) == ["127.0.0.1:15555"]


def test_who_made_nothing_of_it(connect: Connect) -> None:
    """Commands of clients that no server of the original knew, and a text that is no JSON."""
    client = connect()
    reply = client.ask("rpc", b"{}", topic="T")
    assert (reply.status, reply.headers["content-type"]) == (400, "text/html")
    assert client.ask("track_pub").status == 400


def test_plain_clients_and_stock_ones_share_a_connection(world: World) -> None:
    client: Client = world.connect()
    data = java("declare", "1", {"topic": "T"}, b"") + zbusjs("produce", "2", {"topic": "T"}, b"x")
    replies = client.exchange(data + zbuspy("consume", "3", {"topic": "T"}, b""))
    assert sorted(reply.headers["id"] for reply in replies) == ["1", "2", "3"]
