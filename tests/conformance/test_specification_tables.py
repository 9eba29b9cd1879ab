"""The tables of the specification, row by row: sections 2.1, 3.1, 4, 5, 6.3 and 7.

Each row has its dialogue elsewhere, too; here they stand as the specification has them, so that
nothing of it is forgotten.
"""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.conformance.dialogue import Client, World, cmd, declared, document, http, ok, put
from zbus.dialects.zbus.dialect import COMMANDS
from zbus.dialects.zbus.settings import ZbusSettings

TIME = r"[0-9]{13}"
JSON = "application/json"


def world_of_rows() -> tuple[World, Client]:
    """Topics T (with groups T and g, one message) and alone, whose group somebody has."""
    world = World(settings=ZbusSettings(certificate=lambda: "PEM"))
    client = world.connect()
    ok(client, http("/T?cmd=declare"))
    ok(client, http("/T/g?cmd=declare&group_mask=64"))
    put(client, "T", b"hello", query="tag=a.b")
    ok(client, http("/alone?cmd=declare&group_mask=16"))
    world.connect().exchange(cmd("consume", "topic: alone"))
    return world, client


# Section 4: case, request, status, body, content type.
REPLIES: list[tuple[str, tuple[str, ...], bytes, int, str, str | None]] = [
    ("produce", ("topic: T",), b"x", 200, TIME, None),
    ("remove", ("topic: T",), b"", 200, TIME, None),
    ("remove", ("topic: T", "consume_group: g"), b"", 200, TIME, None),
    ("empty", ("topic: T",), b"", 200, TIME, None),
    ("empty", ("topic: T", "consume_group: g"), b"", 200, TIME, None),
    ("ack", ("topic: T", "offset: 0"), b"", 200, TIME, None),
    ("track_pub", (), b'{"serverInfo":{"serverAddress":{"address":"a:1"}}}', 200, TIME, None),
    ("declare", ("topic: N",), b"", 200, r'\{.*"topicName":"N"\}', JSON),
    ("declare", ("topic: T", "consume_group: n"), b"", 200, r'\{.*"groupName":"n".*', JSON),
    ("query", (), b"", 200, r'\{"infoVersion":.*', JSON),
    ("query", ("topic: T",), b"", 200, r'\{.*"topicName":"T"\}', JSON),
    ("query", ("topic: T", "consume_group: g"), b"", 200, r'\{.*"groupName":"g".*', JSON),
    ("server", (), b"", 200, r'\{"infoVersion":.*', JSON),
    ("tracker", (), b"", 200, r'\{"infoVersion":.*"serverTable".*', JSON),
    ("ssl", (), b"", 200, "PEM", "text/plain"),
    ("consume", ("topic: T",), b"", 200, "hello", None),
    ("consume", ("topic: T", "offset: 0"), b"", 200, "hello", None),
    *[
        (name, (), b"", 400, "400: Bad Format, Missing topic", None)
        for name in ("produce", "consume", "unconsume", "ack", "declare", "remove", "empty")
    ],
    (
        "produce",
        ("topic: T", "id: " + "i" * 40),
        b"x",
        400,
        "400: Bad Format, Message.Id length should be <= 39",
        None,
    ),
    (
        "produce",
        ("topic: T", "tag: " + "t" * 128),
        b"x",
        400,
        "400: Bad Format, Message.Tag length should be <= 127",
        None,
    ),
    ("track_pub", (), b"", 400, "400: Bad Format, track_pub json required", None),
    ("foo", (), b"", 400, r"Bad format: command\(foo\) not support", "text/html"),
    *[
        (name, ("topic: T", "offset: 0", f"{field}: abc"), b"", 400, f"400: .* {field} .*", None)
        for name, field in (
            ("declare", "topic_mask"),
            ("declare", "group_mask"),
            ("consume", "offset"),
            ("declare", "group_start_time"),
            ("ack", "offset"),
            ("consume", "consume_window"),
        )
    ],
    ("consume", ("topic: alone",), b"", 401, r"ConsumeGroup\(alone\) exclusive, forbbiden", None),
    *[
        (name, ("topic: NOPE", "offset: 0"), b"", 404, r"404: Topic\(NOPE\) Not Found", None)
        for name in ("produce", "consume", "unconsume", "ack", "query", "remove", "empty")
    ],
    *[
        (
            name,
            ("topic: T", "consume_group: no"),
            b"",
            404,
            r"404: ConsumeGroup\(no\) Not Found",
            None,
        )
        for name in ("consume", "unconsume", "query", "remove", "empty")
    ],
    ("consume", ("topic: T", "offset: 5"), b"", 404, "404: Message Not Found: offset=5", None),
    ("ssl", ("server: h:1",), b"", 404, r"404: Certificate\(h:1\) Not Found", None),
]


@pytest.mark.parametrize(("name", "lines", "body", "status", "text", "media_type"), REPLIES)
def test_section_4_forms_of_replies(
    name: str, lines: tuple[str, ...], body: bytes, status: int, text: str, media_type: str | None
) -> None:
    _, client = world_of_rows()
    if not any(line.startswith("id:") for line in lines):
        lines = (*lines, "id: mine")
    reply = client.request(cmd(name, *lines, body=body))
    assert reply.status == status
    assert re.fullmatch(text, reply.body.decode()), reply.body
    assert reply.headers.get("content-type") == media_type
    fields = dict(line.split(": ", 1) for line in lines)
    assert reply.headers["id"] == fields["id"]
    assert reply.headers.get("topic") == fields.get("topic"), "as sent"
    assert reply.headers["connection"] == "Keep-Alive"
    assert reply.headers["content-length"] == str(len(reply.body))
    assert not client.closed
    ok(client, cmd("ping"))


# Section 5: how many replies a multiplexed request gets with `ack: 0`.
QUIET = {
    "produce": 0,
    "ack": 0,
    "track_pub": 0,
    "route": 0,
    "heartbeat": 0,
    "unconsume": 0,
    "consume": 1,
    "declare": 1,
    "query": 1,
    "remove": 1,
    "empty": 1,
    "tracker": 1,
    "server": 1,
    "ssl": 1,
    "track_sub": 1,
    "ping": 1,
    "version": 1,
    "home": 1,
}


@pytest.mark.parametrize("name", sorted(QUIET))
@pytest.mark.parametrize("ack", ["0", "false", "no", "False", "yes", ""])
def test_section_5_who_is_answered_without_ack(name: str, ack: str) -> None:
    _, client = world_of_rows()
    lines = ("topic: T", "offset: 0", f"ack: {ack}")
    assert len(client.exchange(cmd(name, *lines, body=b"x"))) == QUIET[name]
    ok(client, cmd("ping"))


@pytest.mark.parametrize("ack", ["1", "true", "TRUE", " true "])
@pytest.mark.parametrize("name", ["produce", "ack"])
def test_section_3_1_what_a_true_ack_is(name: str, ack: str) -> None:
    _, client = world_of_rows()
    ok(client, cmd(name, "topic: T", "offset: 0", f"ack: {ack}"))


def test_section_5_every_command_of_the_original_is_here() -> None:
    original = (
        "produce consume unconsume ack route declare query remove empty track_pub track_sub tracker"
        " server ssl heartbeat home login logout"
    )
    assert {name.encode() for name in original.split()} <= set(COMMANDS)


@pytest.mark.parametrize("name", ["consume", "unconsume", "ack"])
def test_section_5_the_default_group_is_named_like_the_topic(name: str) -> None:
    world, client = world_of_rows()
    ok(client, cmd("remove", "topic: T", "consume_group: T"))
    statuses = [reply.status for reply in client.exchange(cmd(name, "topic: T", "offset: 0"))]
    assert statuses == ([200] if name == "ack" else [404])
    world.broker.check()


# Section 3.1: what a delivery has, beside the producer's own headers.
DELIVERED = {
    "id": "pull",
    "origin_id": "message",
    "topic": "t",  # as the consumer sent it
    "consume_group": "T",
    "offset": "0",
    "timestamp": TIME,
    "tag": "a.b",
    "sender": "session-1",
    "host": "127.0.0.1:15555",
    "remote-addr": r"/127\.0\.0\.1:[0-9]+",
    "origin_method": "FOO",
    "connection": "Keep-Alive",
    "cache-control": "no-store",
    "content-length": "5",
    "version": "0.11.4",
    "my-header": "Kept As It Is",
}


def test_section_3_1_headers_of_a_delivery() -> None:
    _, client = declared("T?sender_headers=1")
    lines = (
        "cmd: produce",
        "topic: T",
        "id: message",
        "tag: a.b",
        "version: 0.11.4",
        "token: secret",
        "sender: forged",
        "remote-addr: forged",
        "offset: 9",
        "timestamp: 9",
        "retry: 9",
        "origin_id: 9",
        "ack: 1",
        "My-Header: Kept As It Is",
    )
    ok(client, http("/", *lines, body=b"hello", method="FOO"))
    reply = client.request(cmd("consume", "topic: t", "id: pull"))
    assert set(reply.headers) == set(DELIVERED)
    for name, value in DELIVERED.items():
        assert re.fullmatch(value, reply.headers[name]), (name, reply.headers[name])


# Section 7: the keys of each document; what is here beyond them is in docs/reference/zbus.md.
GROUP = (
    "consumerCount consumerList createdTime groupName lastUpdatedTime mask messageCount topicName"
)
TOPIC = (
    "consumeGroupList consumerCount createdTime lastUpdatedTime mask messageDepth serverAddress"
    " serverVersion topicName"
)
SERVER = "infoVersion serverAddress serverVersion topicTable trackerList"
TRACKER = "infoVersion serverAddress serverTable serverVersion"


@pytest.mark.parametrize(
    ("lines", "keys"),
    [
        (("cmd: query", "topic: T", "consume_group: T"), GROUP),
        (("cmd: query", "topic: T", "consume_group: f"), GROUP + " filter"),
        (("cmd: query", "topic: T"), TOPIC),
        (("cmd: server",), SERVER),
        (("cmd: tracker",), TRACKER),
    ],
)
def test_section_7_keys_of_documents(lines: tuple[str, ...], keys: str) -> None:
    _, client = declared("T", "T/f?group_filter=a.*")
    reader = client.world.connect()
    reader.exchange(cmd("consume", "topic: T"))
    reply = ok(client, http("/", *lines))
    info = document(reply)
    assert set(keys.split()) <= set(info)
    assert list(info) == sorted(info)
    _no_nulls(info)
    if "topicName" in info and "groupName" not in info:
        assert info["consumeGroupList"][0]["consumerList"] == [f"/{reader.peer.address}"]
        assert info["serverAddress"] == {"address": "127.0.0.1:15555", "sslEnabled": False}
        assert isinstance(info["createdTime"], int)


def _no_nulls(value: Any) -> None:
    assert value is not None
    for inner in value.values() if isinstance(value, dict) else ():
        _no_nulls(inner)
    for inner in value if isinstance(value, list) else ():
        _no_nulls(inner)


# Section 6.3: names that the server chooses.
def test_section_6_3_automatic_names() -> None:
    _, client = declared()
    names = []
    for _ in range(13):
        request = cmd("declare", "topic: E", "group_name_auto: 1", "consume_group: ignored")
        names.append(document(ok(client, request))["groupName"])
    assert names == ["E", *(f"E{number}" for number in range(12))]


# Section 2.1: what of HTTP stock clients and tools rely on.
@pytest.mark.parametrize(
    ("request_bytes", "status_line"),
    [
        (cmd("ping"), b"HTTP/1.1 200 OK\r\n"),
        (cmd("query", "topic: NOPE"), b"HTTP/1.1 404 Not Found\r\n"),
        (cmd("declare"), b"HTTP/1.1 400 Bad Request\r\n"),
    ],
)
def test_section_2_1_the_first_line(request_bytes: bytes, status_line: bytes) -> None:
    world, client = declared()
    client.send(request_bytes)
    world.settle()
    assert client.received.startswith(status_line)
    head = client.received.partition(b"\r\n\r\n")[0]
    for line in head.split(b"\r\n")[1:]:
        name, separator, _ = line.partition(b": ")
        assert (name, separator) == (name.lower(), b": ")


def test_section_2_1_the_last_of_two_headers_wins() -> None:
    _, client = declared("T", "U")
    ok(client, cmd("produce", "topic: T", "topic: U", body=b"x"))
    assert document(ok(client, cmd("query", "topic: U")))["messageDepth"] == 1
