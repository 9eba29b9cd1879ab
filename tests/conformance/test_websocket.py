"""WebSocket: the upgrade, HTTP messages in frames, closing, and what a connection may hold."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conformance.dialogue import World, cmd, declared, http, ok, put
from tests.conformance.websocket_client import (
    WebSocketClient,
    begun,
    connected,
    handshake,
    read_http,
    upgraded,
)
from tests.limits import examples
from tests.wire.websocket_frames import frame
from zbus.testing.world import HeldJournal
from zbus.wire.limits import WireLimits


def world_with(*topics: str) -> World:
    return declared(*topics)[0]


# -- the upgrade --------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["/", "/T", "/T/g?cmd=consume", "/_log/T", "/any/path?x=y"])
def test_any_path_is_a_websocket(target: str) -> None:
    client = World().connect()
    socket = upgraded(client, handshake(target))
    assert socket.request(cmd("ping")).status == 200
    assert not client.closed


def test_an_upgrade_has_no_other_effect() -> None:
    world = world_with("T")
    upgraded(world.connect(), handshake("/T?cmd=remove"))
    assert world.broker.topic("T") is not None


@pytest.mark.parametrize(
    ("status", "data"),
    [
        (426, handshake(version="8")),
        (400, handshake(key="short")),
        (400, handshake("/", "content-length: 0", "transfer-encoding: chunked")),
        (400, handshake().replace(b"GET", b"POST")),
        (400, handshake().replace(b", Upgrade", b"")),
        (404, handshake("/queue/text")),
        (404, handshake("/queue/pull")),
        (404, handshake("/camellia/delayQueue")),
    ],
)
def test_a_refused_handshake_closes(status: int, data: bytes) -> None:
    client = World().connect()
    replies = client.exchange(data + http("/?cmd=ping"))
    assert [reply.status for reply in replies] == [status]
    assert replies[0].headers["connection"] == "close"
    assert client.closed
    if status == 426:
        assert replies[0].headers["sec-websocket-version"] == "13"
        assert replies[0].body == b"426: unsupported WebSocket version: only 13 is supported"


def test_other_upgrades_are_ignored() -> None:
    client = World().connect()
    request = http("/?cmd=ping", "connection: Upgrade, HTTP2-Settings", "upgrade: h2c")
    assert [reply.status for reply in client.exchange(request + request)] == [200, 200]


def test_an_upgrade_within_a_frame_is_nothing() -> None:
    socket = connected(World())
    reply = socket.request(cmd("ping", "upgrade: websocket", "connection: Upgrade"))
    assert reply.status == 200
    assert socket.request(cmd("ping")).status == 200


def test_what_comes_behind_the_handshake_is_frames() -> None:
    client = World().connect()
    frames = WebSocketClient(client)
    data = frames.frame(cmd("ping", "id: 1")) + frames.frame(cmd("ping", "id: 2"))
    for cut in (len(data), 1, 0):
        client = World().connect()
        client.send(handshake() + data[:cut])
        client.send(data[cut:])
        client.world.settle()
        messages = begun(client).messages()
        assert [read_http(message.data).headers["id"] for message in messages] == ["1", "2"]


def test_the_handshake_is_answered_after_the_requests_before_it() -> None:
    """A plain consume that waits holds up the 101, and the frames behind it wait too."""
    world = world_with("T")
    client = world.connect()
    frames = WebSocketClient(client)
    client.send(http("/T?cmd=consume&timeout=1000") + http("/?cmd=ping"))
    client.send(cmd("ping", "id: by-id"))
    client.send(handshake() + frames.frame(cmd("produce", "topic: T", body=b"x")))
    world.settle()
    (by_id,) = client.replies()
    assert by_id.headers["id"] == "by-id"
    topic = world.broker.topic("T")
    assert topic is not None
    assert topic.depth() == 0
    world.advance(1_000)
    assert client.received.startswith(b"HTTP/1.1 204 ")
    before, _, after = client.received.partition(b"HTTP/1.1 101 ")
    assert before.count(b"HTTP/1.1") == 2
    client.received = b"HTTP/1.1 101 " + after
    (reply,) = begun(client).messages()
    assert read_http(reply.data).status == 200
    assert topic.depth() == 1


def test_nothing_is_pushed_before_the_handshake_is_answered() -> None:
    """It would be taken for the answer to the request before."""
    world = world_with("T")
    client, other = world.connect(), world.connect()
    client.send(http("/T?cmd=consume") + handshake())
    world.settle()
    route = cmd("route", f"recver: {client.peer.id.decode()}", "id: x", body=b"psst")
    assert not other.exchange(route)
    assert not client.received
    put(other, "T", b"hello")
    before, _, after = client.received.partition(b"HTTP/1.1 101 ")
    assert before.count(b"HTTP/1.1") == 1
    assert before.endswith(b"hello")
    client.received = b"HTTP/1.1 101 " + after
    socket = begun(client)
    assert not other.exchange(route)
    (message,) = socket.messages()
    assert read_http(message.data).body == b"psst"


def test_a_pull_from_before_the_handshake_is_answered_in_a_frame() -> None:
    world = world_with("T")
    client = world.connect()
    client.exchange(cmd("consume", "topic: T", "id: early"))
    socket = upgraded(client)
    put(world.connect(), "T", b"hello")
    (message,) = socket.messages()
    reply = read_http(message.data)
    assert (reply.headers["id"], reply.body) == ("early", b"hello")


# -- HTTP messages in frames --------------------------------------------------------------------


@pytest.mark.parametrize("binary", [True, False])
def test_produce_and_consume(binary: bool) -> None:
    socket = connected(world_with("T"))

    def ask(data: bytes) -> bytes | str:
        return data if binary else data.decode()

    reply = socket.request(ask(cmd("produce", "topic: T", "id: 1", "tag: a", body=b"hello")))
    assert (reply.status, reply.headers["id"], reply.headers["offset"]) == (200, "1", "0")
    reply = socket.request(ask(cmd("consume", "topic: T", "id: 2")))
    assert (reply.status, reply.body) == (200, b"hello")
    assert (reply.headers["id"], reply.headers["origin_id"]) == ("2", "1")


def test_a_message_is_text_if_it_is_utf8_as_a_whole() -> None:
    world = world_with("T")
    socket = connected(world)
    put(world.connect(), "T", "ä".encode(), b"\xff\xfe")
    (text,) = socket.exchange(socket.frame(cmd("consume", "topic: T")))
    (binary,) = socket.exchange(socket.frame(cmd("consume", "topic: T")))
    assert (text.is_text, read_http(text.data).body) == (True, "ä".encode())
    assert (binary.is_text, read_http(binary.data).body) == (False, b"\xff\xfe")


def test_requests_in_url_form_are_known_by_id_too() -> None:
    """A waiting one holds up nothing, and one without an id gets the id made for it."""
    socket = connected(world_with("T"))
    wait = socket.frame(b"GET /T?cmd=consume HTTP/1.1\r\n\r\n")
    look = socket.frame(b"GET /T?cmd=query HTTP/1.1\r\n\r\n")
    (message,) = socket.exchange(wait + look)
    reply = read_http(message.data)
    assert reply.headers["content-type"] == "application/json"
    assert reply.headers["id"]


def test_a_call_by_url_in_a_frame() -> None:
    world = world_with("R?topic_mask=3")
    service, caller = connected(world), connected(world)
    assert not service.exchange(service.frame(cmd("consume", "topic: R", "id: pull")))
    assert not caller.exchange(caller.frame(b"GET /R/plus/1/2 HTTP/1.1\r\nid: call\r\n\r\n"))
    (message,) = service.messages()
    asked = read_http(message.data)
    assert asked.body == b'{"method":"plus","module":"","params":[1,2]}'
    sender, call = asked.headers["sender"], asked.headers["origin_id"]
    service.exchange(service.frame(cmd("route", f"recver: {sender}", f"id: {call}", body=b"3")))
    (message,) = caller.messages()
    answer = read_http(message.data)
    assert (answer.status, answer.headers["id"], answer.body) == (200, "call", b"3")


def test_a_routed_message_that_nobody_asked_for_is_pushed() -> None:
    world = World()
    first, second = connected(world), connected(world)
    sender = first.client.peer.id.decode()
    second.exchange(second.frame(cmd("route", f"recver: {sender}", "id: x", body=b"psst")))
    (message,) = first.messages()
    assert read_http(message.data).body == b"psst"


def test_quiet_requests_get_no_frame() -> None:
    socket = connected(world_with("T"))
    assert not socket.exchange(socket.frame(cmd("heartbeat", "id: 1")))
    quiet = cmd("produce", "topic: T", "ack: false", body=b"x")
    assert not socket.exchange(socket.frame(quiet))
    by_url = b"POST /T?ack=0 HTTP/1.1\r\ncontent-length: 1\r\n\r\nx"
    assert not socket.exchange(socket.frame(by_url))
    assert socket.request(cmd("consume", "topic: T", "timeout: 0")).body == b"x"


def test_what_is_the_connections_business_means_nothing_in_a_frame() -> None:
    socket = connected(world_with("T"))
    for lines in (("connection: close",), ("expect: 100-continue",), ("host: any",)):
        reply = socket.request(cmd("query", "topic: T", *lines))
        assert (reply.status, reply.headers["connection"]) == (200, "Keep-Alive")
    head = socket.request(b"HEAD /T?cmd=query HTTP/1.0\r\n\r\n")
    assert len(head.body) == int(head.headers["content-length"]) > 0
    assert not socket.client.closed


def test_many_pulls_on_one_connection() -> None:
    world = world_with(*(f"T{n}" for n in range(50)))
    socket = connected(world)
    pulls = [socket.frame(cmd("consume", f"topic: T{n}", f"id: {n}")) for n in range(50)]
    assert not socket.exchange(b"".join(pulls))
    other = world.connect()
    for n in reversed(range(50)):
        put(other, f"T{n}", b"%d" % n)
    replies = [read_http(message.data) for message in socket.messages()]
    assert [(reply.headers["id"], reply.body) for reply in replies] == [
        (str(n), b"%d" % n) for n in reversed(range(50))
    ]


def test_a_window_of_messages_for_one_pull() -> None:
    world = world_with("T")
    put(world.connect(), "T", b"1", b"2", b"3", b"4")
    socket = connected(world)
    messages = socket.exchange(
        socket.frame(b"GET /T?cmd=consume&consume_window=3 HTTP/1.1\r\n\r\n")
    )
    assert [read_http(message.data).body for message in messages] == [b"1", b"2", b"3"]


# -- what is no request -------------------------------------------------------------------------

BAD_FRAMES: list[tuple[str, bytes, str]] = [
    ("empty", b"", "one HTTP message or one JSON object"),
    ("no head", b"hello", "one HTTP message or one JSON object"),
    ("half a head", b"GET / HTTP/1.1\r\ncmd: ping\r\n", "one HTTP message or one JSON object"),
    ("no request line", b"hello\r\n\r\n", "the request line"),
    ("no version", b"GET /\r\n\r\n", "the request line"),
    ("version 2", b"GET / HTTP/2.0\r\n\r\n", "only 1.1 and 1.0"),
    ("bare LF", b"GET / HTTP/1.1\ncmd: ping\r\n\r\n", "must end with CR LF"),
    ("no colon", b"GET / HTTP/1.1\r\ncmd ping\r\n\r\n", "has no colon"),
    ("empty line first", b"\r\n" + cmd("ping"), "must begin with a method"),
    ("body and no length", b"GET / HTTP/1.1\r\ncmd: ping\r\n\r\nx", "is 0, the body has 1 bytes"),
    ("too little", b"GET / HTTP/1.1\r\ncontent-length: 3\r\n\r\nab", "is 3, the body has 2"),
    ("too much", cmd("ping", body=b"ab") + b"c", "is 2, the body has 3 bytes"),
    ("two messages", cmd("ping") + cmd("ping"), "is 0, the body has"),
    ("length +1", b"GET / HTTP/1.1\r\ncontent-length: +1\r\n\r\na", "not a number of bytes"),
    (
        "chunked",
        b"GET / HTTP/1.1\r\ncmd: ping\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        "no transfer-encoding",
    ),
    ("JSON array", b'["cmd"]', "one HTTP message or one JSON object"),
]


@pytest.mark.parametrize(
    ("message", "reason"), [case[1:] for case in BAD_FRAMES], ids=[case[0] for case in BAD_FRAMES]
)
def test_a_frame_that_is_no_request_closes(message: bytes, reason: str) -> None:
    socket = connected(World())
    before, after = cmd("ping", "id: before"), cmd("ping", "id: after")
    data = b"".join(socket.frame(piece) for piece in (before, message, after))
    (reply,) = socket.exchange(data)
    assert read_http(reply.data).headers["id"] == "before"
    assert socket.close is not None
    assert socket.close[0] == 1007
    assert reason in socket.close[1]
    assert socket.client.closed


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (frame(1, b"x", key=b""), 1002),
        (frame(3), 1002),
        (frame(1, b"\xff"), 1007),
        (frame(2, length=1 << 40), 1009),
    ],
)
def test_a_frame_that_is_none_closes(data: bytes, code: int) -> None:
    socket = connected(World())
    (_,) = socket.exchange(socket.frame(cmd("ping")) + data + socket.frame(cmd("ping")))
    assert socket.close is not None
    assert (socket.close[0], bool(socket.close[1])) == (code, True)
    assert socket.client.closed


def test_a_body_over_the_limit_closes() -> None:
    world = World(wire_limits=WireLimits(body_bytes_max=100))
    socket = connected(world)
    assert socket.request(cmd("ping", body=b"x" * 100)).status == 200
    socket.exchange(socket.frame(cmd("ping", body=b"x" * 101)))
    assert socket.close == (1009, "a body has at most 100 bytes")


# -- ping, close, order -------------------------------------------------------------------------


def test_pings_are_answered_in_their_place() -> None:
    socket = connected(World())
    data = socket.ping(b"1") + socket.frame(cmd("ping")) + socket.ping(b"2")
    socket.client.send(data)
    socket.client.world.settle()
    kinds = [socket.client.received.find(pong) for pong in (b"\x8a\x011", b"\x81", b"\x8a\x012")]
    assert kinds == sorted(kinds)
    assert min(kinds) == 0


@pytest.mark.parametrize(
    ("code", "echoed"), [(1000, 1000), (1001, 1001), (None, 1005)], ids=["1000", "1001", "none"]
)
def test_close_is_answered(code: int | None, echoed: int) -> None:
    socket = connected(World())
    late = socket.frame(cmd("ping"))
    assert len(socket.exchange(socket.frame(cmd("ping")) + socket.closing(code) + late)) == 1
    assert socket.close == (echoed, "")
    assert socket.client.closed


def test_requests_before_a_close_are_answered_before_it() -> None:
    """They wait for the disk; what may wait for ever is ended."""
    journal = HeldJournal()
    world = World(journal)
    client = world.connect()
    client.send(http("/T?cmd=declare"))
    world.settle()
    journal.release()
    world.settle()
    (declared_,) = client.replies()
    assert declared_.status == 200
    for ending in ("close", "garbage"):
        socket = connected(world)
        pull = socket.frame(cmd("consume", "topic: T", "consume_group: none", "id: lost"))
        pull += socket.frame(cmd("consume", "topic: T", f"id: {ending}"))
        put_ = socket.frame(cmd("produce", "topic: T", "id: put", "delay: 1000", body=b"x"))
        last = socket.closing() if ending == "close" else b"garbage"
        replies = socket.exchange(pull + put_ + last)
        assert [read_http(reply.data).status for reply in replies] == [404]
        assert socket.close is None
        assert not socket.client.closed
        journal.release()
        world.settle()
        ids = [read_http(reply.data).headers["id"] for reply in socket.messages()]
        assert ids == ["put"]
        assert socket.close is not None
        assert socket.close[0] == (1000 if ending == "close" else 1002)
        assert socket.client.closed
    world.broker.check()


def test_a_call_that_waits_is_told_before_the_close() -> None:
    socket = connected(world_with("R?topic_mask=3"))
    data = socket.frame(cmd("produce", "topic: R", "id: call", body=b"x")) + socket.closing()
    (message,) = socket.exchange(data)
    assert read_http(message.data).status == 504
    assert socket.close == (1000, "")


def test_no_message_is_handed_to_a_peer_that_closes() -> None:
    world = world_with("T")
    socket = connected(world)
    socket.exchange(socket.frame(cmd("consume", "topic: T")) + socket.closing())
    put(world.connect(), "T", b"x")
    assert not socket.messages()
    assert world.broker.topic("T").group("t").ready_count() == 1  # type: ignore[union-attr]


# -- any way of sending it ----------------------------------------------------------------------

REQUESTS = [
    cmd("produce", "topic: T", "id: p1", body=b"one"),
    cmd("consume", "topic: T", "id: c1"),
    b'{"cmd":"produce","topic":"T","id":"j1","body":"two"}',
    b"GET /?cmd=version HTTP/1.1\r\nid: v1\r\n\r\n",
    b'{"cmd":"consume","topic":"T","consume_group":"other","id":"j2"}',
    b'{"cmd":',
    cmd("nope", "id: n1"),
]


def everything(pieces: list[bytes]) -> list[bytes]:
    world = world_with("T", "T/other")
    client = world.connect()
    for piece in pieces:
        client.send(piece)
        world.settle()
    socket = begun(client)
    return sorted(message.data for message in socket.messages())


WHOLE = everything([handshake(), *(frame(2, request) for request in REQUESTS)])


@examples(60)
@given(st.data())
def test_no_split_and_no_fragmentation_changes_a_dialogue(data: st.DataObject) -> None:
    stream = handshake()
    for request in REQUESTS:
        cuts = sorted(data.draw(st.lists(st.integers(0, len(request)), max_size=2)))
        parts = list(zip((0, *cuts), (*cuts, len(request)), strict=True))
        for number, (begin, end) in enumerate(parts):
            last = number == len(parts) - 1
            stream += frame(0 if number else 1, request[begin:end], fin=last)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=5)))
    ends = zip((0, *cuts), (*cuts, len(stream)), strict=True)
    assert everything([stream[begin:end] for begin, end in ends]) == WHOLE


def test_a_stalled_peer_is_answered_when_it_reads_again() -> None:
    """More than may wait for it: the rest of its frames is done as it takes the replies."""
    world = world_with("T")
    ok(world.connect(), http("/T", body=b"x" * 100_000, method="POST"))
    socket = connected(world)
    peek = cmd("consume", "topic: T", "offset: 0")
    messages = socket.exchange(b"".join(socket.frame(peek) for _ in range(20)))
    assert len(messages) == 20


@pytest.mark.parametrize("payload", [b"{", b'{"topic":"%d"}', b"GET /%d HTTP/1.1\r\n\r\n"])
def test_requests_of_a_stalled_peer_take_little_memory(payload: bytes) -> None:
    """However small they are: there may be thousands in what was read at once."""
    world = world_with("T")
    socket = connected(world)
    peer = socket.client.peer
    numbered = [payload % n if b"%d" in payload else payload for n in range(2_000)]
    data = b"".join(frame(1, message) for message in numbered)
    peer.stalled = True
    tracemalloc.start()
    try:
        peer.receive(data)
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert size / len(numbered) < 800
    peer.stalled = False
    peer.resume()
    world.settle()
    assert len(socket.messages()) == len(numbered)
