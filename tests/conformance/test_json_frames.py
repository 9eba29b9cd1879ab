"""Requests and replies as JSON objects on a WebSocket."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conformance.dialogue import EPOCH_MS, World, cmd, declared, http, ok, put
from tests.conformance.websocket_client import WebSocketClient, connected, read_http, read_json
from zbus.dialects.zbus.request.json_frames import BadFrame, read_request
from zbus.wire.heads.heads import Heads
from zbus.wire.limits import WireLimits


def dialogue(*topics: str) -> tuple[World, WebSocketClient]:
    world = declared(*topics)[0]
    return world, connected(world)


def test_a_reply() -> None:
    _, socket = dialogue("T")
    assert socket.ask({"cmd": "produce", "topic": "T", "id": "a", "body": "hello"}) == {
        "status": 200,
        "id": "a",
        "headers": {"topic": "T", "durability": "disk", "offset": "0"},
        "body": str(EPOCH_MS),
    }


@pytest.mark.parametrize("topic", ["T", 'a"id":""b', "\u00e4 offset", '"offset":""'])
def test_replies_that_are_made_together_are_those_that_are_made_alone(topic: str) -> None:
    """A put to a certain offset has a reply of its own."""
    _, socket = dialogue()
    assert socket.ask({"cmd": "declare", "topic": topic, "partitions": 1})["status"] == 200
    ids = ["a", 'q"', "b\\", "%41", "<>", "0-7", 7, None, ""]
    puts = [{"cmd": "produce", "topic": topic, "id": id, "body": "b"} for id in ids]
    alone = [socket.ask({**put, "expected_offset": at}) for at, put in enumerate(puts)]
    frames = [socket.frame(msgspec.json.encode(put).decode()) for put in puts]
    together = [read_json(message) for message in socket.exchange(b"".join(frames))]
    for at, (one, other) in enumerate(zip(alone, together, strict=True)):
        places = [int(reply["headers"].pop("offset")) for reply in (one, other)]
        assert places == [at, at + len(ids)]
        if one["id"] == f"0-{at}":
            one["id"] = f"0-{places[1]}"
        assert list(one.items()) == list(other.items())
        assert other["headers"] == {"topic": topic, "durability": "disk"}


def test_a_delivery() -> None:
    world, socket = dialogue("T")
    ok(world.connect(), http("/T", "id: m", "x-own: ä", "tag: t", body=b"hi", method="POST"))
    reply = socket.ask({"cmd": "consume", "topic": "T", "id": "b"})
    assert (reply["status"], reply["id"], reply["body"]) == (200, "b", "hi")
    headers = reply["headers"]
    assert (headers["origin_id"], headers["x-own"], headers["tag"]) == ("m", "ä", "t")
    assert not {"id", "content-length", "connection"} & headers.keys()


# What is asked, and how the stored message is seen by a stock client: body and some headers.
MESSAGES: list[tuple[dict[str, Any], bytes, dict[str, str | None]]] = [
    ({"body": "hello"}, b"hello", {"content-type": None, "origin_method": "POST"}),
    ({"body": ""}, b"", {"content-type": None}),
    ({}, b"", {"content-type": None}),
    ({"body": None}, b"", {"content-type": None}),
    ({"body": "ä\n\u20ac"}, "ä\n€".encode(), {"content-type": None}),
    ({"body": "{}"}, b"{}", {"content-type": None}),
    ({"body": {"a": [1, None]}}, b'{"a":[1,null]}', {"content-type": "application/json"}),
    ({"body": [1]}, b"[1]", {"content-type": "application/json"}),
    ({"body": 7}, b"7", {"content-type": "application/json"}),
    ({"body": True}, b"true", {"content-type": "application/json"}),
    ({"body": 1, "content-type": "a/b"}, b"1", {"content-type": "a/b"}),
    ({"body": 1, "headers": {"Content-Type": "a/b"}}, b"1", {"content-type": "a/b"}),
    ({"body_base64": "/wD+"}, b"\xff\x00\xfe", {"content-type": None}),
    ({"body_base64": ""}, b"", {}),
    ({"tag": "t", "key": "k"}, b"", {"tag": "t", "key": "k"}),
    ({"headers": {"tag": "t", "x-a": "b"}}, b"", {"tag": "t", "x-a": "b"}),
    ({"tag": "top", "headers": {"tag": "inner"}}, b"", {"tag": "top"}),
    ({"headers": {"TAG": "t", "X-Own": "V"}}, b"", {"tag": "t", "x-own": "V"}),
    ({"x-n": 12, "x-f": 1.5, "x-t": True, "x-none": None}, b"",
     {"x-n": "12", "x-f": "1.5", "x-t": "true", "x-none": None}),
    ({"headers": None}, b"", {}),
    ({"headers": {"content-length": 99, "transfer-encoding": "chunked", "connection": "close",
                  "expect": "x", "upgrade": "websocket"}, "body": "b"}, b"b", {"upgrade": None}),
    ({"status": 200, "body": "again"}, b"again", {"status": None}),
    ({"method": "PUT"}, b"", {"origin_method": "PUT"}),
    ({"x-quote": 'a"b\\c'}, b"", {"x-quote": 'a"b\\c'}),
    ({"x-umlaut": "ä€"}, b"", {"x-umlaut": "ä€"}),
]  # fmt: skip


@pytest.mark.parametrize(("members", "body", "headers"), MESSAGES)
def test_how_an_object_becomes_a_message(
    members: dict[str, Any], body: bytes, headers: dict[str, str | None]
) -> None:
    world, socket = dialogue("T")
    reply = socket.ask({"cmd": "produce", "topic": "T", **members})
    assert reply["status"] == 200, reply
    stored = ok(world.connect(), cmd("consume", "topic: T"))
    assert stored.body == body
    assert {name: stored.headers.get(name) for name in headers} == headers


# A message as it was produced over HTTP, and the body (or body_base64) of its delivery.
BODIES: list[tuple[str, bytes, dict[str, Any]]] = [
    ("text/plain", b"hi", {"body": "hi"}),
    ("text/plain", b'{"a":1}', {"body": '{"a":1}'}),
    ("application/json", b'{"a": [1, 2.50]}', {"body": {"a": [1, 2.5]}}),
    ("application/json; charset=utf-8", b'"x"', {"body": "x"}),
    ("application/json", b" [1] ", {"body": [1]}),
    ("application/json", b"{oops", {"body": "{oops"}),
    ("application/json", b"", {"body": ""}),
    ("application/json", b"[" * 100_000, {"body": "[" * 100_000}),
    ("application/json", b'"\xff"', {"body_base64": "Iv8i"}),
    ("application/json", b"1 2", {"body": "1 2"}),
    ("a/b", b"\xff\x00", {"body_base64": "/wA="}),
    ("a/b", b"\x00\x01", {"body": "\x00\x01"}),
]


@pytest.mark.parametrize(("kind", "body", "members"), BODIES)
def test_how_a_message_becomes_an_object(kind: str, body: bytes, members: dict[str, Any]) -> None:
    world, socket = dialogue("T")
    ok(world.connect(), http("/T", f"content-type: {kind}", body=body, method="POST"))
    reply = socket.ask({"cmd": "consume", "topic": "T"})
    assert {name: reply[name] for name in reply if name.startswith("body")} == members


def test_numbers_keep_their_digits() -> None:
    world, socket = dialogue("T")
    message = b'{"a":12345678901234567890123,"b":1.50}'
    frame = b'{"cmd":"produce","topic":"T","body":' + message + b"}"
    socket.exchange(socket.frame(frame.decode()))
    assert ok(world.connect(), http("/T?cmd=consume&consume_group=T")).body == message
    put(world.connect(), "T", message, query="content-type=application/json")
    (delivery,) = socket.exchange(socket.frame('{"cmd":"consume","topic":"T"}'))
    assert message in delivery.data


def test_documents_are_values() -> None:
    _, socket = dialogue("T")
    assert socket.ask({"cmd": "query", "topic": "T"})["body"]["topicName"] == "T"
    reply = socket.ask({"cmd": "declare", "topic": "U", "partitions": 4, "group_filter": "a"})
    assert reply["body"]["partitionCount"] == 4


def test_a_batch_is_an_array() -> None:
    world, socket = dialogue("T")
    put(world.connect(), "T", b"1", b"2")
    reply = socket.ask({"cmd": "consume", "topic": "T", "batch": 10, "timeout": 0})
    assert [item["body"] for item in reply["body"]] == ["1", "2"]
    assert reply["headers"]["count"] == "2"
    empty = socket.ask({"cmd": "consume", "topic": "T", "batch": 10, "timeout": 0})
    assert (empty["status"], empty["headers"]["empty"], empty["body"]) == (204, "drained", "")


@pytest.mark.parametrize("id", [7, "7"])
def test_an_id_comes_back_as_text(id: object) -> None:
    _, socket = dialogue()
    assert socket.ask({"cmd": "ping", "id": id})["id"] == "7"


def test_an_id_is_made_if_there_is_none() -> None:
    _, socket = dialogue()
    replies = socket.asks({"cmd": "ping"}, {"cmd": "ping", "id": None}, {"cmd": "ping", "id": ""})
    assert len({reply["id"] for reply in replies}) == 3


def test_urls() -> None:
    _, socket = dialogue("T%C3%A4")
    assert socket.ask({"url": "/T%C3%A4?tag=a", "body": "x"})["status"] == 200
    assert socket.ask({"url": "/Tä?cmd=consume"})["headers"]["tag"] == "a"
    assert (
        socket.ask({"topic": "Tä", "body": "a topic and no command is a produce"})["status"] == 200
    )
    assert socket.ask({"cmd": "home"})["headers"]["location"] == "/_console/"
    for nothing in ({}, {"tpoic": "T", "body": "x"}):
        reply = socket.ask(nothing)
        assert reply["status"] == 400
        assert "`cmd`, `topic`, or both" in str(reply["body"])


def test_a_quiet_produce_and_a_heartbeat_are_not_answered() -> None:
    world, socket = dialogue("T")
    assert not socket.asks(
        {"cmd": "produce", "topic": "T", "ack": False, "body": "x"}, {"cmd": "heartbeat"}
    )
    assert world.broker.topic("T").depth() == 1  # type: ignore[union-attr]


def test_a_call_and_its_service() -> None:
    world, service = dialogue("R?topic_mask=3")
    caller = connected(world)
    assert not service.asks({"cmd": "consume", "topic": "R", "id": "pull"})
    question = {"module": "", "method": "plus", "params": [1, 2]}
    assert not caller.asks({"cmd": "produce", "topic": "R", "id": 9, "body": question})
    (asked,) = map(read_json, service.messages())
    assert asked["body"] == question
    answer = {
        "cmd": "route",
        "recver": asked["headers"]["sender"],
        "id": asked["headers"]["origin_id"],
        "body": 3,
    }
    assert not service.asks(answer)
    (reply,) = map(read_json, caller.messages())
    assert (reply["status"], reply["id"], reply["body"]) == (200, "9", 3)


def test_each_request_is_answered_in_its_own_form() -> None:
    world, socket = dialogue("T")
    data = socket.frame('{"cmd":"consume","topic":"T","id":"json"}') + socket.frame(cmd("ping"))
    (ping,) = socket.exchange(data)
    assert read_http(ping.data).status == 200
    put(world.connect(), "T", b"x")
    (delivery,) = map(read_json, socket.messages())
    assert delivery["id"] == "json"


def test_what_nobody_asked_for_is_told_in_the_form_of_the_last_request() -> None:
    world, socket = dialogue()
    session = socket.client.peer.id.decode()
    route = cmd("route", f"recver: {session}", "id: x", "content-type: application/json", body=b"1")
    other = world.connect()
    other.exchange(route)
    assert read_http(socket.messages()[0].data).body == b"1"
    socket.ask({"cmd": "ping"})
    other.exchange(route)
    (pushed,) = map(read_json, socket.messages())
    assert (pushed["status"], pushed["id"], pushed["body"]) == (200, "x", 1)
    socket.request(cmd("ping"))
    other.exchange(route)
    assert read_http(socket.messages()[0].data).body == b"1"


BAD: list[tuple[str | bytes, str | None, str]] = [
    ("{", None, "not a JSON object"),
    ("{}x", None, "not a JSON object"),
    ('{"cmd"', None, "not a JSON object"),
    ('{"a":' + "[" * 100_000, None, "not a JSON object"),
    ('{"a":' + '{"a":' * 50_000, None, "not a JSON object"),
    ('{"id":"7","headers":[]}', None, "not a JSON object"),
    (b'{"cmd":"\xff"}', None, "not a JSON object"),
    ('{"id":7,"topic":["T"]}', "7", "topic is text, a number, true, false or null"),
    ('{"id":7,"topic":{}}', "7", "topic is text"),
    ('{"id":7,"headers":{"a":[]}}', "7", "a is text"),
    ('{"id":[],"cmd":"ping"}', None, "id is text"),
    ('{"id":7,"a b":"c"}', "7", "'a b' is not the name of a header"),
    ('{"id":7,"":"c"}', "7", "is not the name of a header"),
    ('{"id":7,"a:b":"c"}', "7", "is not the name of a header"),
    ('{"id":7,"a\\r\\nb":"c"}', "7", "is not the name of a header"),
    ('{"id":7,"\u00e4":"c"}', "7", "is not the name of a header"),
    ('{"id":7,"a":"b\\r\\nc: d"}', "7", "a is more than one line"),
    ('{"id":7,"a":"b\\nc"}', "7", "a is more than one line"),
    ('{"id":7,"a":"\\u0000"}', "7", "control byte"),
    ('{"id":"a\\nb"}', None, "id is more than one line"),
    ('{"id":7,"body":"a","body_base64":""}', "7", "exclude each other"),
    ('{"id":7,"body_base64":"?"}', "7", "body_base64 is not Base64"),
    ('{"id":7,"body_base64":"YQ"}', "7", "body_base64 is not Base64"),
    ('{"id":7,"body_base64":[]}', "7", "body_base64 is text"),
    ('{"id":7,"body_base64":"\u00e4"}', "7", "body_base64 is not Base64"),
    ('{"id":7,"method":"A B"}', "7", "the method is not a token"),
    ('{"id":7,"method":"P / HTTP/1.1\\r\\nx: y"}', "7", "the method is not a token"),
    ('{"id":7,"method":[]}', "7", "method is text"),
    ('{"id":7,"url":[]}', "7", "url is text"),
    ('{"id":7,"headers":{"host":"a","Host":"b"}}', "7", "host may not be repeated"),
]


@pytest.mark.parametrize(("frame", "id", "text"), BAD)
def test_a_bad_object_is_refused_in_json(frame: str | bytes, id: str | None, text: str) -> None:
    _, socket = dialogue()
    (message,) = socket.exchange(socket.frame(frame))
    reply = read_json(message)
    assert (reply["status"], reply.get("id")) == (400, id)
    assert reply["body"].startswith("400: Bad Format, ")
    assert text in reply["body"]
    assert socket.ask({"cmd": "ping"})["status"] == 200, "the connection is still usable"


@pytest.mark.parametrize(
    ("members", "status"),
    [
        ({"a": "x" * 9_000}, 431),
        ({f"a{n}": n for n in range(101)}, 431),
        ({"url": "/" + "x" * 9_000}, 414),
        ({"cmd": "nope"}, 400),
        ({"cmd": ""}, 400),
        ({"cmd": "consume", "topic": "none"}, 404),
        ({"cmd": "produce", "topic": "T", "delay": "soon"}, 400),
        ({"cmd": "produce", "topic": "T", "delay": 1.5}, 400),
        ({"cmd": "produce", "topic": "T", "delay": -1}, 400),
        ({"cmd": "produce", "topic": "T", "delay": 10**30}, 400),
    ],
)
def test_limits_and_refusals(members: dict[str, Any], status: int) -> None:
    _, socket = dialogue("T")
    reply = socket.ask({"id": 1, **members})
    assert (reply["status"], reply["id"]) == (status, "1")
    assert socket.ask({"cmd": "ping"})["status"] == 200


def test_a_body_over_the_limit_closes() -> None:
    socket = connected(World(wire_limits=WireLimits(body_bytes_max=100)))
    socket.exchange(socket.frame('{"cmd":"ping","body":"' + "x" * 101 + '"}'))
    assert socket.close == (1009, "a body has at most 100 bytes")


def test_equal_requests_share_a_plan() -> None:
    """Only the id and the body differ, so only the first is planned."""
    world, socket = dialogue("T")
    plans = []
    read = world.dialect.read
    world.dialect.read = lambda head: plans.append(head) or read(head)  # type: ignore[method-assign, func-returns-value]
    for number in range(10):
        socket.ask({"cmd": "produce", "topic": "T", "id": f"i{number}", "body": str(number)})
    assert len(plans) <= 2  # the lines of the first were new
    assert all(head.json for head in plans)


# -- any object ---------------------------------------------------------------------------------

scalars = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text())
values = st.recursive(
    scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=5
)
names = st.one_of(
    st.sampled_from(
        ("cmd", "topic", "id", "headers", "body", "body_base64", "url", "method", "host", "ack")
    ),
    st.text(max_size=5),
)


@given(st.dictionaries(names, values, max_size=6))
def test_any_object_is_answered_once_or_not_at_all(request: dict[str, Any]) -> None:
    _, socket = dialogue("T")
    replies = socket.asks(request)
    assert len(replies) <= 1
    for reply in replies:
        assert set(reply) <= {"status", "id", "headers", "body", "body_base64"}
    assert socket.ask({"cmd": "ping", "id": "alive"})["id"] == "alive"


@given(st.dictionaries(st.from_regex(r"x-[a-z]{1,5}", fullmatch=True), st.text(max_size=20)))
def test_headers_are_those_of_http(headers: dict[str, str]) -> None:
    """An object's head is the one that the same lines make."""
    heads = Heads().json
    frame = msgspec.json.encode({"headers": headers})
    try:
        head, _, _ = read_request(frame, heads)
    except BadFrame:
        return
    expected = {name: value.strip(" \t") for name, value in headers.items()}
    assert {name.decode(): value.decode() for name, value in head.fields.items()} == expected
