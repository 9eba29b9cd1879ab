"""A server of three workers is to its clients what one process is, whichever of them they reach."""

from __future__ import annotations

import os
import resource
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from functools import partial
from hashlib import sha256
from pathlib import Path
from socket import SHUT_WR
from subprocess import PIPE, Popen
from threading import Timer
from typing import Any

import msgspec
import pytest

from tests import forked
from tests.conformance.dialogue import http
from tests.dialects.semq.words import EPOCH, A, B, frame, send_fields
from tests.dialects.talks import post
from tests.forked import run_zbus
from tests.limits import WAIT_S
from tests.process.broker import (
    BrokerProcess,
    Wire,
    eventually,
    request,
    run_serve,
    serve_command,
)
from tests.process.websocket import HANDSHAKE, WebSocket
from zbus.protocol.places import shard_of

WORKERS = 3
TOPICS = [next(f"t{n}" for n in range(99) if shard_of(f"t{n}", WORKERS) == s) for s in range(3)]
"""One of each worker."""
TRIES = 6
"""Connections that come to some worker each."""


def server(path: Path, *options: str) -> BrokerProcess:
    return BrokerProcess(path / "data", "--workers", str(WORKERS), *options)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    nodes = ("--set", f"semq_nodes={A},{B}")
    with server(tmp_path_factory.mktemp("workers"), *nodes) as started:
        for topic in TOPICS:
            assert started.get(f"/{topic}?cmd=declare").status == 200
        yield started
        assert "Traceback" not in started.log()


@pytest.fixture(params=TOPICS)
def wire(broker: BrokerProcess, request: pytest.FixtureRequest) -> Iterator[Wire]:
    """A connection to the worker of this topic: what is asked of others is passed on."""
    made = broker.connect()
    assert made.get(f"/{request.param}?cmd=query").status == 200
    yield made
    made.close()


def empty(broker: BrokerProcess) -> None:
    for topic in TOPICS:
        assert broker.get(f"/{topic}?cmd=empty").status == 200


def workers(broker: BrokerProcess) -> list[int]:
    return broker.workers()


# -- requests ----------------------------------------------------------------------------------


def test_all_topics_over_one_connection(broker: BrokerProcess, wire: Wire) -> None:
    empty(broker)
    for body in (b"1", b"2"):
        for topic in TOPICS:
            put = wire.get(f"/{topic}", body=body)
            assert (put.status, put.headers["topic"]) == (200, topic)
    for body in (b"1", b"2"):
        for topic in TOPICS:
            assert wire.get(f"/{topic}?cmd=consume").body == body
    assert wire.get(f"/{TOPICS[0]}?cmd=consume&timeout=1").status == 204
    assert wire.get("/?cmd=ping").status == 200


def test_replies_come_in_the_order_of_the_requests(broker: BrokerProcess, wire: Wire) -> None:
    """Also if the first one waits for what comes last."""
    empty(broker)
    asked = [request(f"/{TOPICS[0]}?cmd=consume&timeout=20000")]
    asked += [request(f"/{topic}", body=b"x") for topic in (TOPICS[1], TOPICS[2], TOPICS[0])]
    wire.send(b"".join(asked))
    came = [wire.read() for _ in asked]
    assert [each.headers["topic"] for each in came] == [TOPICS[0], *TOPICS[1:], TOPICS[0]]
    assert came[0].body == b"x"


@pytest.mark.parametrize("lines", [("cmd: consume",), ("cmd: consume", "id: 1"), ()])
@pytest.mark.parametrize("leaves", [False, True])
def test_a_last_request_that_waits_is_answered(
    lines: tuple[str, ...], leaves: bool, broker: BrokerProcess, wire: Wire
) -> None:
    """As proxies ask, each over a connection of its own; a client that leaves gets no message. With
    `cmd` in a header the connection stays, as in the original."""
    empty(broker)
    for topic in TOPICS:
        with closing(broker.connect()) as asking:
            assert all(asking.get(f"/{other}?cmd=query").status == 200 for other in TOPICS)
            target = f"/{topic}?timeout=20000" + ("" if lines else "&cmd=consume")
            asking.send(request(target, *lines, "connection: close"))
            eventually(partial(waits, broker, topic))
            if leaves:
                asking.sock.close()
                eventually(partial(waits, broker, topic, wanted=False))
            assert wire.get(f"/{topic}", body=b"x").status == 200
            if not leaves:
                assert asking.read().body == b"x"
                assert lines or asking.at_end()
        left = wire.get(f"/{topic}?cmd=consume&timeout=0")
        assert left.status == (200 if leaves else 204)


def waits(broker: BrokerProcess, topic: str, wanted: bool = True) -> bool:
    """Whether somebody waits for messages of the topic, or nobody."""
    rows = msgspec.json.decode(broker.get("/_connections").body)
    reads = [row for row in rows if row["waitingRequests"]]
    return wanted == any(each["topic"] == topic for row in reads for each in row["reads"])


def test_a_client_that_sends_no_more_is_answered(broker: BrokerProcess, wire: Wire) -> None:
    empty(broker)
    words = os.urandom(4 << 20)
    asked = [request(f"/{topic}", body=words) for topic in TOPICS]
    wire.send(b"".join(asked))
    wire.sock.shutdown(SHUT_WR)
    assert [wire.read().status for _ in TOPICS] == [200] * 3
    assert wire.at_end()
    assert all(broker.get(f"/{topic}?cmd=consume").body == words for topic in TOPICS)


def test_replies_with_ids_are_known_by_them(wire: Wire) -> None:
    ids = [f"{topic}-{number}" for number in range(50) for topic in TOPICS]
    asked = [request(f"/{id.split('-')[0]}", f"id: {id}", body=b"x") for id in ids]
    wire.send(b"".join(asked))
    assert sorted(wire.read().headers["id"] for _ in ids) == sorted(ids)


def test_who_waits_holds_up_nobody_who_has_an_id(broker: BrokerProcess, wire: Wire) -> None:
    empty(broker)
    for topic in TOPICS:
        wire.send(request(f"/{topic}?cmd=consume&timeout=20000", f"id: wait {topic}"))
        for other in TOPICS:
            wire.send(request(f"/{other}?cmd=query", f"id: {other}"))
            assert wire.read().headers["id"] == other


@pytest.mark.parametrize("topic", TOPICS)
def test_other_ways_to_ask(topic: str, broker: BrokerProcess, wire: Wire) -> None:
    wire.send(f"HEAD /{topic}?cmd=query HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
    length = b""
    while b"\r\n\r\n" not in length:
        length += wire.sock.recv(65_536)
    assert b"content-length: " in length
    assert length.endswith(b"\r\n\r\n"), "no body"
    empty(broker)
    wire.send(
        f"POST /{topic} HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n"
        "expect: 100-continue\r\n\r\n".encode()
    )
    assert wire.sock.recv(65_536) == b"HTTP/1.1 100 Continue\r\n\r\n"
    wire.send(b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n")
    assert wire.read().status == 200
    without = broker.connect()
    without.send(f"POST /{topic} HTTP/1.0\r\nhost: localhost\r\n\r\n".encode())
    assert without.read().status == 411, "its body might end with the connection"
    large = os.urandom(1 << 20)
    assert wire.get(f"/{topic}", body=large).status == 200
    assert [wire.get(f"/{topic}?cmd=consume").body for _ in range(2)] == [b"abcde", large]
    assert wire.get(f"/{topic}?cmd=query", "connection: close").status == 200
    assert wire.at_end()


@pytest.mark.parametrize(
    ("target", "status", "text"),
    [
        ("/nothing?cmd=query", 404, b"Topic(nothing) Not Found"),
        (f"/{TOPICS[0]}?cmd=nonsense", 400, b"nonsense"),
        (f"/{TOPICS[0]}?ack_topic={TOPICS[1]}&ack_offset=0", 409, b"in braces"),
        (f"/semq/0:1/{TOPICS[1]}?cmd=semq_send&src=1:1&mid=1", 409, b"{semq}"),
        ("/_stats", 200, b"topicCount"),
        ("/mq/find?topic=a&id=x", 200, b'{"status":201}'),
        ("/mq/config/nobody", 200, b'{"status":201}'),
        ("/mq/clustering/queue/offset?consumer=nobody", 200, b"nobody haven't registered"),
    ],
)
def test_refusals(target: str, status: int, text: bytes, wire: Wire) -> None:
    answer = wire.get(target)
    assert answer.status == status
    assert text in answer.body
    assert wire.get("/?cmd=ping").status == 200, "the connection goes on"


def test_a_page_of_elsewhere_is_refused_first(wire: Wire) -> None:
    target = f"/{TOPICS[0]}?ack_topic={TOPICS[1]}&ack_offset=0"
    assert wire.get(target, "origin: http://elsewhere.example").status == 403


def test_other_dialects(broker: BrokerProcess, wire: Wire) -> None:
    for topic in TOPICS:
        form = "content-type: application/x-www-form-urlencoded"
        body = f"topic=c{topic}&msg=hello&delayMillis=0".encode()
        line = f"content-length: {len(body)}\r\n{form}"
        start = "HTTP/1.1\r\nhost: localhost"
        wire.send(f"POST /camellia/delayQueue/sendMsg {start}\r\n{line}\r\n\r\n".encode() + body)
        assert b'"code":200' in wire.read().body
        pushed = request(f"/queue/rpush.json?queue=/q{topic}&requestid=1", body=b"x")
        wire.send(pushed.replace(b"GET", b"POST", 1))
        assert b'"result":"ok"' in wire.read().body


def told(wire: Wire, asked: bytes) -> Any:
    """What is answered to a request of a dialect of forms."""
    wire.send(asked)
    answer = wire.read()
    assert answer.status == 200, answer
    return msgspec.json.decode(answer.body)


def test_lists_of_camellia(broker: BrokerProcess, wire: Wire) -> None:
    topics = {f"l{topic}" for topic in TOPICS}
    for topic in topics:
        told(wire, post("/camellia/delayQueue/sendMsg", topic=topic, msg="x", delayMillis=0))
    infos = told(wire, http("/camellia/delayQueue/getTopicInfoList"))
    assert infos["code"] == 200
    rows = [row for row in infos["data"] if row["topic"] in topics]
    assert sorted(row["topic"] for row in rows) == sorted(topics)
    assert all(row["readyQueueSize"] > 0 for row in rows)
    assert {*told(wire, http("/camellia/delayQueue/getMonitorString"))} > {"requestStats"}
    assert isinstance(
        told(wire, http("/camellia/delayQueue/getMonitorData"))["data"]["requestStatsList"], list
    )
    page = wire.get("/metrics").body.decode()
    assert all(f'topic="{topic}",type="readyQueueSize"' in page for topic in topics)
    assert "\ninfo{" in page
    assert page.count("\nstart_time ") == 1


def test_health_of_camellia_is_that_of_all(broker: BrokerProcess) -> None:
    def everywhere() -> set[int]:
        return {broker.get("/camellia/health/status").status for _ in range(TRIES)}

    assert everywhere() == {200}
    broker.get("/camellia/health/offline")
    assert everywhere() == {500}
    assert broker.get("/camellia/health/online").status == 200
    assert everywhere() == {200}


def test_another_server_reports(broker: BrokerProcess, wire: Wire) -> None:
    """Whoever it is told to, all know it until it goes."""

    def known(key: str) -> set[bool]:
        found = [broker.get("/?cmd=tracker").body for _ in range(TRIES)]
        return {key in msgspec.json.decode(body)["serverTable"] for body in found}

    reporter, key = broker.connect(), f"other{time.time_ns()}:1"
    follower = broker.connect()
    follower.send(request("/", "cmd: track_sub", "id: 1"))
    event = {"serverInfo": {"serverAddress": {"address": key}}, "certificate": "CERTIFICATE"}
    reporter.send(request("/", "cmd: track_pub", "id: 1", body=msgspec.json.encode(event)))
    assert reporter.read().status == 200
    assert known(key) == {True}
    assert wire.get(f"/?cmd=ssl&server={key}").body == b"CERTIFICATE"
    while key.encode() not in follower.read().body:
        pass
    reporter.close()
    while key.encode() in follower.read().body:
        pass
    assert known(key) == {False}
    follower.close()


def test_mqcloud(broker: BrokerProcess, wire: Wire) -> None:
    """A producer and a consumer are found by their names, wherever their topics are."""
    serial = time.time_ns()
    others = [broker.connect() for _ in range(TRIES)]
    named = {f"{topic}-{serial}": topic for topic in TOPICS}
    for name, topic in named.items():
        for kind in ("producer", "consumer"):
            assert told(wire, post("/mq/register", topic=topic, **{kind: name})) == {"status": 200}
            again = post("/mq/register", topic=TOPICS[TOPICS.index(topic) - 1], **{kind: name})
            for other in others:
                refusal = told(other, again)
                assert refusal["status"] == 500
                assert refusal["message"] == f"{kind} {name} is registered for the topic {topic}"
    empty(broker)
    for name, topic in named.items():
        for other in (wire, *others):
            for path, message in (("", {"message": "a"}), ("/batch", {"messages": '["a"]'})):
                put = told(other, post(f"/mq/produce{path}", producer=name, **message))
                assert put["status"] == 200
            assert told(other, http(f"/mq/config/{name}"))["result"]["topic"] == topic
            body = msgspec.json.encode({"consumer": name, "maxPullSize": 3})
            line = "content-type: application/json"
            asked = http("/mq/consumer/config", line, body=body, method="POST")
            assert told(other, asked) == {"status": 200}
            found = told(other, http(f"/mq/clustering/queue/offset?consumer={name}"))
            assert found["status"] == 200
        taken = f"/mq/message?topic={topic}&consumer={name}"
        result = told(wire, http(taken))["result"]
        assert len(result["msgList"]) == 3
        ack = f"/mq/ack?topic={topic}&consumer={name}&requestId={result['requestId']}"
        assert told(others[0], http(ack))["status"] == 200
    wire.send(b"HEAD /mq/config/%b HTTP/1.1\r\nhost: localhost\r\n\r\n" % name.encode())
    head = wire.sock.recv(65_536)
    assert head.startswith(b"HTTP/1.1 200")
    assert head.endswith(b"\r\n\r\n"), "no body"
    for kind in ("Producer", "Consumer"):
        rows = told(wire, http(f"/topic/http{kind}"))
        assert {row["topic"] for row in rows if row[kind.lower()] in named} == {*TOPICS}
    for name in named:
        for kind in ("producer", "consumer"):
            assert told(wire, post("/mq/unregister", **{kind: name})) == {"status": 200}
        gone = told(others[1], post("/mq/produce", producer=name, message="b"))
        assert gone["message"] == f"producer:{name} haven't registered"
        moved = post("/mq/register", topic=TOPICS[TOPICS.index(named[name]) - 1], producer=name)
        assert told(wire, moved) == {"status": 200}
        assert told(others[2], post("/mq/produce", producer=name, message="b"))["status"] == 200
        assert told(wire, post("/mq/unregister", producer=name)) == {"status": 200}
    for other in others:
        other.close()


def test_a_websocket(broker: BrokerProcess, wire: Wire) -> None:
    empty(broker)
    socket = WebSocket(wire)
    for topic in TOPICS:
        told = socket.ask({"cmd": "produce", "topic": topic, "id": topic, "body": topic, "ack": 1})
        assert (told["status"], told["id"]) == (200, topic)
    for topic in TOPICS:
        socket.tell({"cmd": "consume", "topic": topic, "id": topic})
    assert sorted(socket.read_json()["body"] for _ in TOPICS) == sorted(TOPICS)
    names = socket.ask({"cmd": "query", "names": True, "id": "all"})
    assert set(TOPICS) <= set(names["body"])


def test_a_websocket_that_closes_is_answered(broker: BrokerProcess, wire: Wire) -> None:
    empty(broker)
    socket = WebSocket(wire)
    for topic in TOPICS:
        socket.tell({"cmd": "produce", "topic": topic, "id": topic, "body": topic})
    socket.close()
    assert sorted(socket.read_json()["id"] for _ in TOPICS) == sorted(TOPICS)
    assert socket.read_close()[0] == 1000


def test_a_call_that_waits_is_told_before_a_websocket_closes(wire: Wire) -> None:
    topics = [f"rpc{time.time_ns()}{{{topic}}}" for topic in TOPICS]
    for topic in topics:
        assert wire.get(f"/{topic}?cmd=declare&rpc=true").status == 200
    socket = WebSocket(wire)
    for topic in topics:
        socket.tell({"cmd": "produce", "topic": topic, "id": topic, "body": "x"})
    socket.close()
    assert {(told["id"], told["status"]) for told in (socket.read_json() for _ in topics)} == {
        (topic, 504) for topic in topics
    }
    assert socket.read_close()[0] == 1000


def test_a_stream_needs_a_connection_on_which_nothing_waits(
    broker: BrokerProcess, wire: Wire
) -> None:
    """A message for who waits must not be lost because a stream is all that is told."""
    empty(broker)
    for waits, streams in ((TOPICS[n - 1], TOPICS[n]) for n in range(3)):
        client = broker.connect()
        assert client.get(f"/{TOPICS[0]}?cmd=query").status == 200
        client.send(request("/", "cmd: consume", f"topic: {waits}", "id: waits"))
        accept = "accept: text/event-stream"
        client.send(request("/", "cmd: consume", f"topic: {streams}", "id: streams", accept))
        refusal = client.read()
        assert (refusal.status, refusal.headers["id"]) == (400, "streams")
        assert broker.get(f"/{waits}", body=b"x").status == 200
        assert client.read().body == b"x"
        client.close()


def test_a_node_of_semq_is_sent_messages(broker: BrokerProcess, wire: Wire) -> None:
    """Over a connection that stays where it came in; not all that nodes say is answered."""
    assert broker.get("/_stats").status == 200
    other = broker.connect()
    assert other.get("/?cmd=ping").status == 200
    for node, name in ((wire, A), (other, B)):
        node.send(frame("semq_hello", id="hello", node=name, epoch=EPOCH))
        assert node.read().status == 200
        node.send(frame("heartbeat"))
    for seq in (1, 2):
        other.send(frame("semq_send", b"%d" % seq, id="sent", **send_fields(B, A, seq, savefwd=1)))
        while (came := wire.read()).headers.get("cmd") != "semq_deliver":
            assert came.status == 200
        assert came.body == b"%d" % seq
        while (came := other.read()).headers.get("id") != "sent":
            assert came.status == 200
    other.close()


def test_a_stream_of_events(broker: BrokerProcess, wire: Wire) -> None:
    empty(broker)
    wire.send(request(f"/{TOPICS[0]}?cmd=consume", "accept: text/event-stream"))
    came = b""
    while b"id: " not in came:
        came += wire.sock.recv(65_536)
    assert broker.get(f"/{TOPICS[0]}", body=b"now").status == 200
    while b"data: now" not in came:
        came += wire.sock.recv(65_536)


def test_a_stream_of_figures(broker: BrokerProcess, wire: Wire) -> None:
    """All topics first, and then what changes."""
    wire.send(request("/_stats", "accept: text/event-stream", "id: 7"))
    name, came = f"new{time.time_ns()}", b""
    while b"\n\n" not in came.partition(b"event: stats")[2]:
        came += wire.sock.recv(65_536)
    data = came.partition(b"event: stats")[2].partition(b"data: ")[2].partition(b"\n\n")[0]
    assert set(TOPICS) <= set(msgspec.json.decode(data)["topics"])
    assert broker.get(f"/{name}?cmd=declare").status == 200
    while name.encode() not in came:
        came += wire.sock.recv(65_536)
    assert came.count(b"HTTP/1.1 200") == came.count(b"event: stats") == came.count(b"retry: ") == 1
    assert came.count(b"\r\nid: 7\r\n") == 1


def test_a_stream_that_was_read_and_is_left_leaves_nothing(broker: BrokerProcess) -> None:
    def descriptors() -> list[int]:
        return [len(os.listdir(f"/proc/{pid}/fd")) for pid in workers(broker)]

    assert all(broker.get(f"/{topic}?cmd=query").status == 200 for topic in TOPICS)
    before = descriptors()
    for target in ("/_stats", f"/{TOPICS[0]}?cmd=consume", f"/{TOPICS[1]}?cmd=consume"):
        reader = broker.connect()
        reader.send(request(target, "accept: text/event-stream"))
        came = b""
        while b"retry: 1000" not in came:
            came += reader.sock.recv(65_536)
        reader.sock.shutdown(SHUT_WR)
        while reader.sock.recv(65_536):
            pass
        reader.close()
    eventually(lambda: sum(descriptors()) <= sum(before))


def test_figures_that_are_no_stream(broker: BrokerProcess, wire: Wire) -> None:
    """There are none behind a head alone, and in a WebSocket."""
    wire.send(request("/_stats", "accept: text/event-stream").replace(b"GET", b"HEAD", 1))
    assert wire.read().headers["content-type"].startswith("text/event-stream")
    assert wire.at_end()
    socket = WebSocket(broker.connect())
    refused = socket.ask({"cmd": "stats", "accept": "text/event-stream", "id": "1"})
    assert (refused["status"], "needs plain HTTP" in refused["body"]) == (400, True)
    assert socket.ask({"cmd": "ping", "id": "2"})["status"] == 200
    socket.wire.close()


@pytest.mark.parametrize("topic", TOPICS)
def test_a_stream_is_alone_on_its_connection(topic: str, broker: BrokerProcess, wire: Wire) -> None:
    """Else it is refused, and what was asked before it is answered first."""
    empty(broker)
    other = TOPICS[TOPICS.index(topic) - 1]
    wire.send(request(f"/{other}?cmd=consume&timeout=20000"))
    wire.send(request(f"/{topic}?cmd=consume", "accept: text/event-stream"))
    assert wire.get("/?cmd=ping", "id: 1").headers["id"] == "1"
    for _ in range(TRIES):  # so the worker of the topic has seen it
        assert broker.get(f"/{topic}?cmd=query").status == 200
    assert broker.get(f"/{other}", body=b"x").status == 200
    assert [wire.read().body for _ in range(2)] == [
        b"x",
        b"400: Bad Format, a stream of events needs a connection on which nothing else is open",
    ]
    assert wire.get("/?cmd=ping").status == 200


def test_what_is_put_with_an_id_and_without_one_is_in_order(
    broker: BrokerProcess, wire: Wire
) -> None:
    empty(broker)
    wire.send(
        b"".join(
            request(f"/{topic}", *([f"id: {n}"] if n % 2 else []), body=b"%d" % n)
            for n in range(10)
            for topic in TOPICS
        )
    )
    assert all(wire.read().status == 200 for _ in range(10) for _ in TOPICS)
    for topic in TOPICS:
        came = [broker.get(f"/{topic}?cmd=consume").body for _ in range(10)]
        assert came == [b"%d" % n for n in range(10)]


def test_a_stock_client_that_sends_no_more_is_answered(broker: BrokerProcess, wire: Wire) -> None:
    empty(broker)
    wire.send(b"".join(request("/", "cmd: produce", f"topic: {t}", f"id: {t}") for t in TOPICS))
    wire.sock.shutdown(SHUT_WR)
    assert sorted(wire.read().headers["id"] for _ in TOPICS) == sorted(TOPICS)
    assert wire.at_end()


def test_answers_that_begin_before_their_messages(broker: BrokerProcess, wire: Wire) -> None:
    """They come in the order in which they were asked for, and the connection goes on."""
    ids = [f"{topic}-{time.time_ns()}" for topic in TOPICS]
    queues = [f"/{id}{{{topic}}}" for id, topic in zip(ids, TOPICS, strict=True)]
    target = "/queue/{}.json?queue={}&requestid={}"
    for queue in queues:
        assert b"ok" in wire.get(target.format("createqueue", queue, 1)).body
    for queue, id in zip(queues, ids, strict=True):
        wire.send(request(target.format("pull", queue, f"{id}&timeout=20")))
    wire.send(request("/nothing?cmd=query"))
    came = b""
    while b"\r\n\r\n" not in came:
        came += wire.sock.recv(65_536)
    assert came.count(b"transfer-encoding: chunked") == 1, "the first of them, before its message"
    for queue in reversed(queues):
        other = broker.connect()
        push = request(target.format("rpush", queue, 2), body=b"x")
        other.send(push.replace(b"GET", b"POST", 1))
        assert b'"ok"' in other.read().body
        other.close()
    while b"Topic(nothing) Not Found" not in came:
        came += wire.sock.recv(65_536)
    places = [came.find(f'"requestid":"{id}"'.encode()) for id in ids]
    assert -1 not in places
    assert places == sorted(places)


def test_calls_are_answered_from_anywhere(broker: BrokerProcess, wire: Wire) -> None:
    for topic in (f"rpc{time.time_ns()}{{{topic}}}" for topic in TOPICS):
        assert wire.get(f"/{topic}?cmd=declare&rpc=true").status == 200
        service = broker.connect()
        service.send(request("/", "cmd: consume", f"topic: {topic}", "id: take"))
        wire.send(request(f"/{topic}", body=b"?"))
        call = service.read()
        answer = (
            "cmd: route",
            f"recver: {call.headers['sender']}",
            f"id: {call.headers['origin_id']}",
        )
        service.send(request("/", *answer, body=b"!"))
        assert wire.read().body == b"!"
        service.close()


def test_one_server_to_the_outside(broker: BrokerProcess, wire: Wire) -> None:
    document = msgspec.json.decode(wire.get("/?cmd=server").body)
    assert set(TOPICS) <= set(document["topicTable"])
    table = msgspec.json.decode(wire.get("/?cmd=tracker").body)["serverTable"]
    assert [*table] == [f"127.0.0.1:{broker.port}"]
    metrics = wire.get("/_metrics").body.decode()
    assert all(f'topic="{topic}"' in metrics for topic in TOPICS)
    assert all(f'process_threads{{worker="{number}"}}' in metrics for number in range(WORKERS))
    follower = broker.connect()
    follower.send(request("/", "cmd: track_sub", "id: 1"))
    told = follower.read()
    assert (told.headers["cmd"], "id" in told.headers) == ("track_pub", False)
    name = f"new{time.time_ns()}"
    assert wire.get(f"/{name}?cmd=declare").status == 200
    while name.encode() not in told.body:
        told = follower.read()
        assert "id" not in told.headers
    follower.close()


@pytest.mark.parametrize(
    ("lines", "id"), [((), ""), (("id: 7",), "7"), (("cmd: connections", "id: 7"), "7")]
)
def test_an_answer_of_all_has_the_lines_of_one(
    lines: tuple[str, ...], id: str, broker: BrokerProcess, wire: Wire
) -> None:
    """Each of them once."""
    wire.send(request("/_connections", *lines))
    while b"\r\n\r\n" not in wire._buffer:
        wire._more()
    names = [line.split(b":")[0] for line in wire._buffer.partition(b"\r\n\r\n")[0].split(b"\r\n")]
    assert len(names) == len(set(names))
    answer = wire.read()
    assert int(answer.headers["count"]) == len(msgspec.json.decode(answer.body))
    assert answer.headers["id"] == id or (not id and answer.headers["id"])


def test_a_client_of_all_workers_is_one_connection(broker: BrokerProcess, wire: Wire) -> None:
    """With what it reads in any of them, and it ends everywhere at once."""
    empty(broker)
    reader = broker.connect()
    for topic in TOPICS:
        declared = broker.get(f"/{topic}?cmd=declare&group={topic}-g")
        assert declared.status == 200
        reader.send(request(f"/{topic}?cmd=consume&group={topic}-g&timeout=60000"))

    def rows() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        after = ""
        while True:
            page = wire.get(f"/_connections?count=1&after={after}")
            found += msgspec.json.decode(page.body)
            after = page.headers.get("next", "")
            if not after:
                return found

    def its() -> list[dict[str, Any]]:
        return [row for row in rows() if len(row["reads"]) == WORKERS]

    eventually(lambda: len(its()) == 1)
    [row] = its()
    assert sorted(each["topic"] for each in row["reads"]) == sorted(TOPICS)
    found = msgspec.json.decode(wire.get("/_connections").body)
    assert found == sorted(found, key=lambda row: row["id"])
    assert len({row["id"] for row in found}) == len(found)
    count = msgspec.json.decode(wire.get("/_stats").body)["connectionCount"]
    assert count == len(rows()), "connections between workers are not counted"
    assert wire.get(f"/?cmd=disconnect&session={row['id']}").status == 200
    eventually(lambda: not its())
    assert reader.at_end()
    reader.close()


def test_a_client_that_takes_nothing_holds_up_nobody(broker: BrokerProcess) -> None:
    """And gets everything when it does."""
    empty(broker)
    bodies = [os.urandom(1 << 20) for _ in range(24)]
    slow = [broker.connect() for _ in TOPICS]
    for topic in TOPICS:
        assert all(broker.get(f"/{topic}", body=body).status == 200 for body in bodies)
    for wire, topic in zip(slow, TOPICS, strict=True):
        other = TOPICS[TOPICS.index(topic) - 1]
        assert wire.get(f"/{other}?cmd=query").status == 200, "so the topic is another worker's"
        wire.send(b"".join([request(f"/{topic}?cmd=consume") for _ in bodies]))
    for _ in range(TRIES):
        assert all(broker.get(f"/{topic}?cmd=query").status == 200 for topic in TOPICS)
    for wire in slow:
        assert [wire.read().body for _ in bodies] == bodies
        wire.close()


def test_a_client_that_leaves_gives_back_what_it_holds(broker: BrokerProcess) -> None:
    """Wherever it held it."""
    empty(broker)
    for topic in TOPICS:
        wanted = f"/{topic}?cmd=declare&group=g&ack=true&group_on_loss=front&group_lease=10m"
        assert broker.get(wanted).status == 200
        assert broker.get(f"/{topic}", body=b"x").status == 200
    holder = broker.connect()
    for topic in TOPICS:
        assert holder.get(f"/{topic}?cmd=consume&group=g").status == 200
    holder.close()
    other = broker.connect()
    for topic in TOPICS:
        assert other.get(f"/{topic}?cmd=consume&group=g&timeout=20000").body == b"x"
    other.close()


# -- processes ---------------------------------------------------------------------------------


def test_a_worker_that_is_killed_costs_its_topics_a_moment(tmp_path: Path) -> None:
    with server(tmp_path) as broker:
        wire = broker.connect()
        for topic in TOPICS:
            assert wire.get(f"/{topic}?cmd=declare").status == 200
            assert wire.get(f"/{topic}", body=b"kept").status == 200
        for number in range(WORKERS):
            before = workers(broker)
            os.kill(before[number], signal.SIGKILL)
            eventually(lambda before=before: set(workers(broker)) != set(before))  # type: ignore[misc]
            for topic in TOPICS:
                answer = broker.get(f"/{topic}?cmd=query")
                while answer.status == 503:
                    assert answer.headers["retry-after"] == "1"
                    answer = broker.get(f"/{topic}?cmd=query")
                assert answer.status == 200
        assert [broker.get(f"/{topic}?cmd=consume").body for topic in TOPICS] == [b"kept"] * 3
        assert broker.log().count("a worker has ended") == WORKERS
        wire.close()


def test_its_start_says_what_to_try(tmp_path: Path) -> None:
    """With what it takes there."""
    place, said = tmp_path / "sock", b""
    command = serve_command(tmp_path / "data", "--workers", "2", "--listen", f"unix:{place}")
    with forked.Popen[bytes](command, stdout=PIPE, bufsize=0) as process:
        assert process.stdout is not None
        while b"try:" not in said and (line := process.stdout.readline()):
            said += line
        process.terminate()
    tried = f"try: curl --unix-socket {place} 'http://localhost/MyTopic?cmd=declare'"
    assert tried in said.decode()
    assert (process.returncode, b"  workers         2\n" in said) == (0, True)


def test_without_standard_streams(tmp_path: Path) -> None:
    """As a program that starts it may have closed them."""
    place = tmp_path / "sock"
    command = serve_command(tmp_path / "data", "--workers", "2", "--listen", f"unix:{place}")
    with Popen(["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *command]) as process:
        eventually(lambda: process.poll() is not None or _answers(place))
        process.terminate()
    assert process.returncode == 0


def _answers(place: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as sock, suppress(OSError):
        sock.settimeout(WAIT_S)
        sock.connect(str(place))
        sock.sendall(request("/?cmd=ping"))
        return sock.recv(100).startswith(b"HTTP/1.1 200")
    return False


def test_a_worker_that_cannot_be_begun_is_tried_again(tmp_path: Path) -> None:
    """As after an end for want of memory, when the system has nothing to spare."""
    with server(tmp_path) as broker:
        usual = resource.prlimit(broker.process.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(broker.process.pid, resource.RLIMIT_NOFILE, (5, usual[1]))
        os.kill(workers(broker)[0], signal.SIGKILL)
        eventually(lambda: "a worker cannot be begun" in broker.log())
        assert len(workers(broker)) == WORKERS - 1, "the others go on"
        resource.prlimit(broker.process.pid, resource.RLIMIT_NOFILE, usual)
        eventually(lambda: len(workers(broker)) == WORKERS)
        assert broker.stop() == 0
    assert "Traceback" not in broker.log()


def test_a_parent_with_many_descriptors(tmp_path: Path) -> None:
    """As one of many workers with many addresses."""
    data = tmp_path / "data"
    with BrokerProcess(data, "--workers", "2", program=("tests.process.many_files",)) as broker:
        assert broker.get("/T?cmd=declare").status == 200
        assert broker.stop() == 0


def test_a_parent_that_is_killed_takes_its_workers_along(tmp_path: Path) -> None:
    broker = server(tmp_path)
    pids = workers(broker)
    assert len(pids) == WORKERS
    broker.stop(signal.SIGKILL)
    try:
        eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))
    finally:  # a failure leaves no processes behind
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    with server(tmp_path) as again:
        assert again.get("/?cmd=ping").status == 200


def test_a_server_starts_at_once_after_one_that_was_killed(tmp_path: Path) -> None:
    """Its workers hold the lock of the directory until they have seen that it is gone."""
    broker = server(tmp_path)
    pids = workers(broker)
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    broker.stop(signal.SIGKILL)

    def see() -> None:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)

    timer = Timer(1.0, see)
    timer.start()
    try:
        with server(tmp_path) as again:
            assert again.get("/?cmd=ping").status == 200
    finally:
        timer.join()


def test_a_backup_is_restored_for_as_many(tmp_path: Path) -> None:
    """It is made while the server runs; what is restored starts with as many workers, and with no
    shard missing."""
    data, backup, new = tmp_path / "data", tmp_path / "backup", tmp_path / "new"
    with server(tmp_path) as broker:
        for topic in TOPICS:
            assert broker.get(f"/{topic}?cmd=declare").status == 200
            assert broker.get(f"/{topic}", body=topic.encode()).status == 200
        verified = run_zbus("verify", "--data-dir", data)
        assert verified.returncode == 3
        assert f"{data} is in use by another process (pid {broker.process.pid})" in verified.stderr
        assert run_zbus("backup", "--data-dir", data, backup).returncode == 0
    assert run_zbus("restore", "--data-dir", new, backup).returncode == 0
    with BrokerProcess(new, "--workers", str(WORKERS)) as restored:
        found = [restored.get(f"/{topic}?cmd=consume").body for topic in TOPICS]
        assert found == [topic.encode() for topic in TOPICS]
    for workers, text in ((1, "start with --workers 3"), (2, "start with --workers 3")):
        refused = run_serve("--port", "0", "--data-dir", str(new), "--workers", str(workers))
        assert (refused.returncode, text in refused.stderr) == (3, True), refused.stderr
    (new / "shard=1").rename(tmp_path / "lost")
    refused = run_serve("--port", "0", "--data-dir", str(new), "--workers", str(WORKERS))
    assert (refused.returncode, "shard=1 is missing" in refused.stderr) == (3, True), refused.stderr


def test_schemas(tmp_path: Path) -> None:
    """Every worker checks its topics, one document has all of them, and so has a backup. What is
    staged in another process was not checked, and is not committed."""
    schema, body, copy, new = b'{"type":"integer"}', b'"x"', tmp_path / "copy", tmp_path / "new"
    with server(tmp_path) as broker, closing(broker.connect()) as wire:
        for topic in TOPICS:
            assert wire.get(f"/{topic}?cmd=declare&schema=body", body=schema).status == 200
            assert wire.get(f"/{topic}", body=body).status == 422
            assert wire.get(f"/{topic}", body=b"1").status == 200
        found = msgspec.json.decode(wire.get("/_asyncapi.json").body)
        assert set(found["channels"]) == {*TOPICS}
        assert len(found["operations"]) == 2 * len(TOPICS)
        assert found["asyncapi"] == "3.0.0"
        statuses = []
        for number, topic in enumerate(TOPICS):
            staged = wire.get(f"/{topic}?cmd=txn_stage&txn=app", body=body)
            statuses.append(staged.status)
            if staged.status == 200:
                where = f"batch={number}&topic={topic}&offset={staged.headers['offset']}"
                assert wire.get(f"/?cmd=txn_commit&txn=app&{where}").status == 422
        assert sorted(statuses) == [200, 200, 422], "one of them is where the application is"
        assert run_zbus("backup", "--data-dir", tmp_path / "data", copy).returncode == 0
    assert run_zbus("restore", "--data-dir", new / "data", copy).returncode == 0
    with server(new) as broker:
        for topic in TOPICS:
            assert broker.get(f"/{topic}", body=body).status == 422
            assert broker.get(f"/{topic}?cmd=schema").body == schema


def test_the_end(tmp_path: Path) -> None:
    """What is open is answered."""
    broker = server(tmp_path)
    waiting = broker.connect()
    for topic in TOPICS:
        assert waiting.get(f"/{topic}?cmd=declare").status == 200
    waiting.send(request(f"/{TOPICS[0]}?cmd=consume&timeout=60000"))
    assert broker.get("/?cmd=ping").status == 200
    pids = workers(broker)
    assert broker.stop() == 0
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
    waiting.close()


def test_tokens_are_one_for_all(tmp_path: Path) -> None:
    file = tmp_path / "tokens.toml"

    def write(token: str) -> None:
        digest = sha256(token.encode()).hexdigest()
        file.write_text(
            f'[[token]]\nname = "a"\nsha256 = ["{digest}"]\n'
            'operations = ["produce", "declare", "query"]\n[token.topics]\n"*" = ["*"]\n'
        )

    write("one")
    with server(tmp_path, "--token-file", str(file)) as broker:
        for topic in TOPICS:
            for _ in range(TRIES):
                assert broker.get(f"/{topic}?cmd=declare").status == 403
                assert broker.get(f"/{topic}?cmd=declare", "token: one").status == 200
                assert broker.get(f"/{topic}?cmd=consume", "token: one").status == 403
        wire = broker.connect()
        wire.send(HANDSHAKE.replace(b"\r\n\r\n", b"\r\ntoken: one\r\n\r\n"))
        socket = WebSocket(wire, sent=True)
        names = {"cmd": "query", "names": True, "id": "1"}
        assert socket.ask(names)["status"] == 200
        assert socket.ask({**names, "token": "two"})["status"] == 403, "a message's own token"
        apart = {"topic": TOPICS[0], "ack_topic": TOPICS[1], "ack_offset": 0, "ack": True}
        refused = socket.ask({"cmd": "produce", **apart, "id": "1", "token": "two"})
        assert refused["status"] == 403, "who may not is not told where topics are"
        assert broker.get(f"/{TOPICS[0]}?ack_topic={TOPICS[1]}&ack_offset=0").status == 403
        wire.close()
        write("other")
        broker.process.send_signal(signal.SIGHUP)
        eventually(lambda: broker.log().count("reloaded") == WORKERS)
        for topic in TOPICS:
            target = f"/{topic}?body=x"
            eventually(
                lambda target=target: broker.get(target, "token: other").status == 200  # type: ignore[misc]
            )
    file.write_text("[[token]]\nnonsense = 1\n")
    refused = run_serve(
        "--workers",
        "3",
        "--port",
        "0",
        "--data-dir",
        str(broker.data_dir),
        "--token-file",
        str(file),
    )
    assert (refused.returncode, refused.stderr.count("unknown key")) == (3, 1), "it is said once"


def test_another_number_of_processes(tmp_path: Path) -> None:
    """What one process has stored is there with three, with two, and with one again."""
    topics = [f"m{number}" for number in range(8)]
    with BrokerProcess(tmp_path / "data") as broker:
        for topic in topics:
            assert broker.get(f"/{topic}?cmd=declare").status == 200
    for round, shards in enumerate((3, 2, 1)):
        done = run_zbus("shard", str(tmp_path / "data"), "--shards", str(shards))
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.startswith(f"8 topics in {shards} shard")
        options = ("--workers", str(shards)) if shards > 1 else ()
        with BrokerProcess(tmp_path / "data", *options) as broker:
            busy = run_zbus("shard", str(tmp_path / "data"), "--shards", "5")
            assert (busy.returncode, "in use by another process" in busy.stderr) == (3, True)
            for topic in topics:
                assert broker.get(f"/{topic}", body=b"%d" % round).status == 200
            assert broker.stop() == 0  # who is killed leaves workers that have to see it first
    with BrokerProcess(tmp_path / "data") as broker:
        for topic in topics:
            found = [broker.get(f"/{topic}?cmd=consume").body for _ in range(3)]
            assert found == [b"0", b"1", b"2"]


def test_a_message_of_a_websocket_may_be_as_large_as_any(tmp_path: Path) -> None:
    with server(tmp_path, "--set", "body_bytes_max=4096") as broker:
        socket = WebSocket(broker.connect())
        for topic in TOPICS:
            assert socket.ask({"cmd": "declare", "topic": topic, "id": "1"})["status"] == 200
            put = {"cmd": "produce", "topic": topic, "id": "2", "body": "x" * 4_096}
            assert socket.ask(put)["status"] == 200


def test_a_port_is_not_shared_with_another_server(tmp_path: Path) -> None:
    with server(tmp_path) as broker:
        for workers in ("1", "2"):
            options = ("--workers", workers, "--port", str(broker.port))
            refused = run_serve(*options, "--data-dir", str(tmp_path / workers))
            assert (refused.returncode, "cannot listen" in refused.stderr) == (3, True)


@pytest.mark.parametrize(
    "options",
    [
        ("--host", "0.0.0.0"),
        ("--token-file", "/none"),
        ("--set", "listen=https://127.0.0.1:0"),
        ("--set", "tracker_list=127.0.0.1:1"),
    ],
)
def test_a_server_that_does_not_start_makes_no_directory(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    refused = run_serve(
        "--workers", "2", "--port", "0", "--data-dir", str(tmp_path / "x"), *options
    )
    assert (refused.returncode, refused.stderr.count("\n")) == (3, 1)
    assert not (tmp_path / "x").exists()


def test_directories_of_another_shape(tmp_path: Path) -> None:
    with server(tmp_path) as broker:
        assert broker.get("/MyTopic?cmd=declare").status == 200
        second = run_serve("--workers", "3", "--port", "0", "--data-dir", str(broker.data_dir))
        assert (second.returncode, "in use by another process" in second.stderr) == (3, True)
    other = run_serve("--workers", "2", "--port", "0", "--data-dir", str(broker.data_dir))
    assert (other.returncode, "was made for 3 workers, not 2" in other.stderr) == (3, True)
    engine = ("--engine", "nats://127.0.0.1:1/x", "--data-dir", str(tmp_path / "y"))
    remote = run_serve("--workers", "2", "--port", "0", *engine)
    assert (remote.returncode, "needs --shards" in remote.stderr) == (3, True)
    one = run_serve("--port", "0", "--data-dir", str(broker.data_dir))
    assert (one.returncode, "was made for 3 workers" in one.stderr) == (3, True)
    taken = BrokerProcess(tmp_path / "single")
    with taken:
        port = str(taken.port)
        refused = run_serve("--workers", "2", "--port", port, "--data-dir", str(tmp_path / "x"))
        assert (refused.returncode, "cannot listen" in refused.stderr) == (3, True)
        assert taken.get("/MyTopic?cmd=declare").status == 200
    two = run_serve("--workers", "2", "--port", "0", "--data-dir", str(taken.data_dir))
    assert (two.returncode, "was made by one process" in two.stderr) == (3, True)
