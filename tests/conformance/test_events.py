"""`consume` as a stream of server-sent events."""

from __future__ import annotations

import base64
import json

import pytest

from tests.conformance.dialogue import (
    EPOCH_MS,
    Client,
    World,
    cmd,
    declared,
    http,
    ok,
    put,
    refused,
    restart,
)

ACCEPT = "accept: text/event-stream"
HANDSHAKE = (
    "connection: Upgrade",
    "upgrade: websocket",
    "sec-websocket-version: 13",
    "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==",
)


def masked(payload: bytes) -> bytes:
    """A binary frame of a client, masked with zeros."""
    if len(payload) <= 125:
        return b"\x82" + bytes([0x80 | len(payload)]) + bytes(4) + payload
    return b"\x82\xfe" + len(payload).to_bytes(2, "big") + bytes(4) + payload


def stream(world: World, target: str, *lines: str) -> Client:
    """A new connection that asks for events; its head is checked and taken away."""
    client = world.connect()
    client.send(http(target, ACCEPT, *lines))
    world.settle()
    head, end, client.received = client.received.partition(b"\r\n\r\n")
    assert end, head
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    fields = head.decode().split("\r\n")[1:]
    assert "content-type: text/event-stream; charset=utf-8" in fields
    assert "cache-control: no-store" in fields
    assert "connection: close" in fields
    assert not any(field.startswith(("content-length", "transfer-encoding")) for field in fields)
    first, _, client.received = client.received.partition(b"\n\n")
    assert first.startswith(b"retry: 1000")
    return client


def events(client: Client) -> list[dict[str, str]]:
    """What an EventSource makes of the bytes that came since the last call."""
    found = []
    received, client.received = client.received, b""
    assert not received or received.endswith(b"\n\n")
    assert b"\r" not in received
    for block in received.decode().split("\n\n")[:-1]:
        event: dict[str, str] = {}
        for line in block.split("\n"):
            name, _, value = line.partition(":")
            if name:
                value = value.removeprefix(" ")
                event[name] = f"{event[name]}\n{value}" if name in event else value
        found.append(event)
    return found


def data(client: Client) -> list[str]:
    return [event["data"] for event in events(client)]


class TestEvents:
    @pytest.mark.parametrize(
        ("body", "told"),
        [
            (b"plain", "plain"),
            (b"", ""),
            (b" leading space", " leading space"),
            (b"two\nlines", "two\nlines"),
            (b"a\r\nb\rc\n", "a\nb\nc\n"),
            (b"\n\n", "\n\n"),
            (b"data: x\n\nevent: end", "data: x\n\nevent: end"),
            ("caf\u00e9 \u2028 \U0001f600".encode(), "caf\u00e9 \u2028 \U0001f600"),
            (b"\0", "\0"),
        ],
    )
    def test_a_body_comes_through(self, body: bytes, told: str) -> None:
        world, client = declared("T")
        reader = stream(world, "/T?cmd=consume")
        put(client, "T", body)
        assert events(reader) == [{"id": "0", "data": told}]

    def test_what_is_no_text_is_told_as_base64(self) -> None:
        world, client = declared("T")
        reader = stream(world, "/T?cmd=consume")
        body = bytes(range(256))
        put(client, "T", body)
        (event,) = events(reader)
        assert event["event"] == "base64"
        assert base64.b64decode(event["data"]) == body

    def test_it_begins_where_the_group_named_like_the_topic_stands(self) -> None:
        world, client = declared("T")
        put(client, "T", b"a")
        put(client, "T", b"b")
        assert ok(client, http("/T?cmd=consume")).body == b"a"
        reader = stream(world, "/t?cmd=consume")
        assert data(reader) == ["b"]
        ok(client, http("/T/T?cmd=remove"))
        other = stream(world, "/T?cmd=consume")
        put(client, "T", b"c")
        assert data(other) == ["c"]

    def test_an_envelope_has_everything(self) -> None:
        world, client = declared("T")
        reader = stream(world, "/T?cmd=consume&envelope=json")
        ok(client, http("/T?tag=a.b&id=m-1&key=k", "x-own: 1", body=b"a\nb", method="POST"))
        (event,) = events(reader)
        told = json.loads(event["data"])
        assert told["headers"]["x-own"] == "1"
        found = {name: told[name] for name in ("id", "topic", "offset", "tag", "key", "body")}
        assert found == {
            "id": "m-1",
            "topic": "T",
            "offset": 0,
            "tag": "a.b",
            "key": "k",
            "body": "a\nb",
        }
        assert "consume_group" not in told

    @pytest.mark.parametrize(
        "request_data",
        [
            http("/T?cmd=consume", ACCEPT),
            http("/T?cmd=consume", "accept: TEXT/Event-Stream, */*;q=0.1"),
            http("/T?cmd=consume&accept=text/event-stream"),
            http("/?cmd=consume&topic=T", ACCEPT),
            cmd("consume", "topic: T", ACCEPT),
        ],
    )
    def test_ways_to_ask(self, request_data: bytes) -> None:
        world, client = declared("T")
        reader = world.connect()
        reader.send(request_data)
        world.settle()
        put(client, "T", b"x")
        assert reader.received.endswith(b"id: 0\ndata: x\n\n")

    def test_head_is_refused(self) -> None:
        world, client = declared("T")
        put(client, "T", b"x")
        for target in ("/T?cmd=consume", "/T/T?cmd=consume"):
            reader = world.connect()
            reader.send(http(target, ACCEPT, method="HEAD"))
            world.settle()
            assert reader.received.startswith(b"HTTP/1.1 405 ")
            assert reader.received.endswith(b"allow: GET, POST\r\n\r\n")


class TestTheConnection:
    def test_what_else_it_asks_is_dropped(self) -> None:
        world, client = declared("T")
        reader = world.connect()
        reader.send(http("/T?cmd=consume", ACCEPT) + http("/T?body=in the same breath"))
        world.settle()
        reader.send(http("/T?body=later"))
        reader.send(b"not http at all\n\n")
        world.settle()
        assert not reader.closed
        put(client, "T", b"from another")
        assert reader.received.count(b"HTTP/1.1") == 1
        assert reader.received.endswith(b"id: 0\ndata: from another\n\n")

    @pytest.mark.parametrize("close", ["connection: close", "connection: keep-alive"])
    def test_whatever_it_says_of_its_connection(self, close: str) -> None:
        world, client = declared("T")
        reader = stream(world, "/T?cmd=consume", close)
        put(client, "T", b"x")
        assert data(reader) == ["x"]
        assert not reader.closed

    def test_nothing_else_may_be_open_on_it(self) -> None:
        world, _ = declared("T", "U")
        client = world.connect()
        client.send(cmd("consume", "topic: U", "id: 1"))
        client.send(cmd("consume", "topic: T", "id: 2", ACCEPT))
        world.settle()
        (reply,) = client.replies()
        assert (reply.status, reply.headers["id"]) == (400, "2")
        assert b"on which nothing else is open" in reply.body
        put(world.connect(), "U", b"x")
        assert client.replies()[0].body == b"x"

    def test_a_websocket_is_no_place_for_it(self) -> None:
        world, _ = declared("T")
        client = world.connect()
        client.send(http("/", *HANDSHAKE))
        world.settle()
        client.received = b""
        client.send(masked(http("/T?cmd=consume", ACCEPT, "id: 1")))
        world.settle()
        assert b"400: Bad Format, a stream of events needs plain HTTP" in client.received
        assert not client.closed

    def test_answers_before_it_are_sent_before_it(self) -> None:
        world, _ = declared("T")
        client = world.connect()
        client.send(http("/?cmd=ping") + http("/T?cmd=consume", ACCEPT))
        world.settle()
        first, second = client.received.split(b"HTTP/1.1 200 OK\r\n")[1:]
        assert b"content-length" in first
        assert b"event-stream" in second

    def test_routed_messages_do_not_get_between(self) -> None:
        world, client = declared("T")
        reader = world.connect()
        reader.send(cmd("consume", "topic: T", ACCEPT))
        world.settle()
        before = reader.received
        reply = client.request(cmd("route", "recver: session-2", "ack: 1", body=b"x"))
        assert reply.status == 404
        assert reader.received == before

    def test_no_news_of_a_tracker_get_between(self) -> None:
        world, other = declared("T")
        client = world.connect()
        client.exchange(cmd("track_sub", "id: 1"))
        client.send(http("/T?cmd=consume", ACCEPT))
        world.settle()
        client.received = b""
        ok(other, http("/New?cmd=declare"))
        world.advance(1_000)
        put(other, "T", b"a")
        assert data(client) == ["a"]

    def test_it_is_counted_as_no_reader(self) -> None:
        world, client = declared("T")
        stream(world, "/T?cmd=consume")
        info = json.loads(ok(client, http("/T?cmd=query")).body)
        assert info["consumerCount"] == 0
        stream(world, "/T/T?cmd=consume")
        info = json.loads(ok(client, http("/T?cmd=query")).body)
        assert info["consumerCount"] == 1


REFUSED = [
    ("/?cmd=consume", 400, "400: Bad Format, Missing topic"),
    ("/None?cmd=consume", 404, "404: Topic(None) Not Found"),
    ("/T/none?cmd=consume", 404, "404: ConsumeGroup(none) Not Found"),
    ("/T?cmd=consume&partition=1", 404, "404: Partition(1) Not Found"),
    ("/T?cmd=consume&envelope=xml", 400, "400: Bad Format, envelope is json"),
    *(
        (
            f"/T?cmd=consume&last_event_id={id}",
            400,
            "400: Bad Format, last-event-id needs a time in milliseconds after the @",
        )
        for id in ("1@", "1@x", "1@2@3", "1@-1")
    ),
    (
        "/R?cmd=consume",
        400,
        "400: Bad Format, a topic of services has no event stream",
    ),
    (
        "/T?cmd=consume&offset=x",
        400,
        "400: Bad Format, offset is an offset, or one for each partition, not 'x'",
    ),
    (
        "/T?cmd=consume&last_event_id=1,-1",
        400,
        "400: Bad Format, last-event-id is an offset, or one for each partition, not '1,-1'",
    ),
    (
        "/T?cmd=consume&last_event_id=1,2",
        400,
        "400: Bad Format, last-event-id needs an offset for each partition, and there are 1",
    ),
    (
        "/T/T?cmd=consume&last_event_id=1,2",
        400,
        "400: Bad Format, last-event-id needs an offset for each partition, and there are 1",
    ),
    (
        "/T?cmd=consume&offset=1,2",
        400,
        "400: Bad Format, offset needs an offset for each partition, and there are 1",
    ),
    (
        f"/T?cmd=consume&group_filter={'a' * 128}",
        400,
        "400: Bad Format, filter length should be <= 127",
    ),
    (
        "/T/T?cmd=consume&offset=1",
        400,
        "400: Bad Format, offset is for a stream without a group",
    ),
    (
        "/T/T?cmd=consume&group_filter=a",
        400,
        "400: Bad Format, group_filter is for a stream without a group",
    ),
    (
        "/T/T?cmd=consume&group_start_time=1",
        400,
        "400: Bad Format, group_start_time is for a stream without a group",
    ),
    (f"/T?cmd=consume&last_event_id={'9' * 19}", 400, None),
    ("/T?cmd=consume&group_start_time=-1", 400, None),
    ("/T/T?cmd=consume&from=0", 400, "400: Bad Format, from is for a stream without a group"),
    ("/T?cmd=consume&from=1", 404, None),
    ("/T?cmd=consume&from=begin", 400, None),
    ("/T?cmd=consume&from=-1", 400, None),
    (
        "/T?cmd=consume&from=0,0",
        400,
        "400: Bad Format, from needs an offset for each partition, and there are 1",
    ),
]


@pytest.mark.parametrize(("target", "status", "text"), REFUSED)
def test_refusals(target: str, status: int, text: str | None) -> None:
    world, _ = declared("T", "R?topic_mask=3")
    found = refused(world.connect(), http(target, ACCEPT))
    assert found[0] == status
    assert text is None or found[1] == text


class TestFollowing:
    def test_everybody_is_told_everything(self) -> None:
        world, client = declared("T")
        put(client, "T", b"before")
        readers = [stream(world, "/T?cmd=consume") for _ in range(3)]
        put(client, "T", b"one", b"two")
        for reader in readers:
            assert data(reader) == ["before", "one", "two"]

    @pytest.mark.parametrize(
        ("query", "told"),
        [
            ("", "cd"),
            ("from=earliest", "abcd"),
            ("from=latest", ""),
            ("from=0", "abcd"),
            ("from=3", "d"),
            ("from=3&offset=1", "d"),
            (f"from=time:{EPOCH_MS + 1000}", "bcd"),
            ("from=2027-01-15T08:00:01Z", "bcd"),
            ("from=2999-01-01", ""),
            ("last_event_id=0&from=3", "bcd"),
            ("offset=begin", "abcd"),
            ("offset=end", ""),
            ("offset=3", "d"),
            ("offset=4", ""),
            ("last_event_id=0", "bcd"),
            ("last_event_id=9", f"{EPOCH_MS}abcd"),  # of another log: told so, and from its start
            ("last_event_id=0&offset=3", "bcd"),
            ("last-event-id=2", "d"),
            (f"group_start_time={EPOCH_MS + 1000}", "bcd"),
            (f"group_start_time={EPOCH_MS + 9000}", ""),
            ("group_filter=x.*", "d"),
        ],
    )
    def test_where_it_begins(self, query: str, told: str) -> None:
        world, client = declared("T")
        for body in (b"a", b"b", b"c", b"d"):
            put(client, "T", body, query=f"tag=x.{body.decode()}" if body == b"d" else "")
            world.advance(1_000)
        for _ in range(2):
            ok(client, http("/T?cmd=consume&timeout=0"))
        reader = stream(world, f"/T?cmd=consume&{query}")
        assert "".join(data(reader)) == told

    def test_an_offset_past_the_end_is_of_another_log(self) -> None:
        _, client = declared("T")
        put(client, "T", b"a")
        reply = client.request(http("/T?cmd=consume&offset=2", ACCEPT))
        assert (reply.status, reply.body) == (404, b"404: partition 0 has offsets 0 to 1")

    def test_the_header_wins_over_the_query(self) -> None:
        """A browser repeats the URL, and says in the header where it was."""
        world, client = declared("T")
        put(client, "T", b"a", b"b", b"c")
        target = "/T?cmd=consume&offset=begin&last_event_id=0&last-event-id=0"
        reader = stream(world, target, "last-event-id: 1")
        assert data(reader) == ["c"]

    def test_it_comes_again(self) -> None:
        world, client = declared("T?partitions=3")
        reader = stream(world, "/T?cmd=consume&offset=begin")
        bodies = []
        for number in range(9):
            bodies.append(f"{number}")
            put(client, "T", b"%d" % number, query=f"key={number}")
        told = events(reader)
        assert sorted(event["data"] for event in told) == bodies
        for cut in range(1, 10):
            again = stream(world, "/T?cmd=consume", f"last-event-id: {told[cut - 1]['id']}")
            rest = data(again)
            assert sorted([event["data"] for event in told[:cut]] + rest) == bodies

    def test_what_was_forgotten(self) -> None:
        world, client = declared("T")
        put(client, "T", b"a", b"b", b"c")
        ok(client, http("/T?cmd=empty"))
        put(client, "T", b"d")
        reader = stream(world, "/T?cmd=consume", "last-event-id: 0")
        assert events(reader) == [
            {"event": "skipped", "id": "2", "data": "2"},
            {"id": "3", "data": "d"},
        ]

    def test_delayed_and_expired(self) -> None:
        world, client = declared("T")
        reader = stream(world, "/T?cmd=consume")
        put(client, "T", b"late", query="delay=5000")
        put(client, "T", b"gone", query="delay=2000&ttl=1000")
        put(client, "T", b"now")
        world.advance(4_999)
        assert data(reader) == ["now"]
        world.advance(1)
        assert events(reader) == [{"id": "2", "data": "late"}]

    def test_a_topic_in_memory(self) -> None:
        world, client = declared("T?topic_mask=1")
        reader = stream(world, "/T?cmd=consume")
        put(client, "T", b"a", b"b")
        assert data(reader) == ["a", "b"]


class TestFromAGroup:
    def test_readers_compete(self) -> None:
        world, client = declared("T")
        one, other = (stream(world, "/T/T?cmd=consume") for _ in range(2))
        put(client, "T", b"1", b"2", b"3", b"4")
        assert sorted(data(one) + data(other)) == ["1", "2", "3", "4"]
        assert client.request(http("/T?cmd=consume&timeout=0")).status == 204

    def test_its_filter_counts(self) -> None:
        world, client = declared("T")
        ok(client, http("/T/g?cmd=declare&group_filter=a.*"))
        reader = stream(world, "/T/g?cmd=consume")
        put(client, "T", b"1", query="tag=a.b")
        put(client, "T", b"2", query="tag=b")
        assert events(reader) == [{"id": "0", "data": "1"}]

    def test_an_exclusive_group(self) -> None:
        world, _ = declared("T")
        ok(world.connect(), http("/T/g?cmd=declare&group_mask=16"))
        reader = stream(world, "/T/g?cmd=consume")
        target = http("/T/g?cmd=consume", ACCEPT)
        assert refused(world.connect(), target) == (401, "ConsumeGroup(g) exclusive, forbidden")
        reader.vanish()
        stream(world, "/T/g?cmd=consume")

    def test_what_was_lost_comes_again(self) -> None:
        world, client = declared("T")
        put(client, "T", b"0", b"1", b"2", b"3")
        first = stream(world, "/T/T?cmd=consume")
        assert data(first) == ["0", "1", "2", "3"]
        beside = stream(world, "/T/T?cmd=consume", "last-event-id: 0")
        assert data(beside) == [], "the group has another reader"
        first.vanish()
        beside.vanish()
        again = stream(world, "/T/T?cmd=consume", "last-event-id: 1")
        assert data(again) == ["2", "3"]
        again.vanish()
        put(client, "T", b"4")
        ahead = stream(world, "/T/T?cmd=consume", "last-event-id: 9")
        assert data(ahead) == ["4"], "the cursor goes back only"

    def test_a_group_that_goes_back_keeps_what_waits(self) -> None:
        world, client = declared("T")
        put(client, "T", b"late", query="delay=5000")
        put(client, "T", b"1", b"2")
        first = stream(world, "/T/T?cmd=consume")
        assert data(first) == ["1", "2"]
        first.vanish()
        again = stream(world, "/T/T?cmd=consume", "last-event-id: 1")
        assert data(again) == ["2"]
        world.advance(5_000)
        assert events(again) == [{"id": "2", "data": "late"}]

    def test_with_leases(self) -> None:
        world, client = declared("T")
        ok(client, http("/T/g?cmd=declare&group_mask=64&group_ack_timeout=1000"))
        put(client, "T", b"0", b"1", b"2", b"3")
        reader = stream(world, "/T/g?cmd=consume&consume_window=2")
        assert data(reader) == ["0", "1"]
        ok(client, http("/T/g?cmd=ack&offset=0"))
        assert data(reader) == ["2"]
        ok(client, http("/T/g?cmd=ack&offset=1"))
        ok(client, http("/T/g?cmd=ack&offset=2"))
        assert data(reader) == ["3"]
        world.advance(1_000)
        assert events(reader) == [{"id": "3", "data": "3"}], "its lease ended"
        envelopes = stream(world, "/T/g?cmd=consume&envelope=json")
        reader.vanish()
        world.advance(1_000)
        (told,) = (json.loads(text) for text in data(envelopes))
        assert (told["body"], told["retry"], told["consume_group"]) == ("3", 2, "g")

    def test_a_window_is_each_reader_s_own(self) -> None:
        world, client = declared("T")
        ok(client, http("/T/g?cmd=declare&group_mask=64"))
        put(client, "T", *[b"%d" % number for number in range(6)])
        one = stream(world, "/T/g?cmd=consume&consume_window=2")
        other = stream(world, "/T/g?cmd=consume&consume_window=3")
        assert (len(data(one)), len(data(other))) == (2, 3)

    def test_one_partition(self) -> None:
        world, client = declared("T?partitions=2")
        reader = stream(world, "/T/T?cmd=consume&partition=1")
        put(client, "T", b"0", query="partition=0")
        put(client, "T", b"1", query="partition=1")
        assert events(reader) == [{"id": ",0", "data": "1"}]

    def test_skipped(self) -> None:
        world, client = declared("T?retention_count=1&durability=os")
        put(client, "T", *[b"%d" % number * 100_000 for number in range(10)] * 2)
        world.advance(10_000)
        first, *rest = events(stream(world, "/T/T?cmd=consume"))
        assert first["event"] == "skipped"
        assert int(first["data"]) + len(rest) == 20


class TestTheEnd:
    @pytest.mark.parametrize("target", ["/T?cmd=consume", "/T/g?cmd=consume"])
    def test_ends(self, target: str) -> None:
        for end, text in [
            (http("/T?cmd=remove"), "404: Topic(T) Not Found"),
            (None, "503: the broker is stopping"),
        ]:
            world, client = declared("T")
            ok(client, http("/T/g?cmd=declare"))
            reader = stream(world, target)
            if end is None:
                world.broker.stop()
                world.settle()
            else:
                ok(client, end)
            assert events(reader) == [{"event": "end", "data": text}]
            assert reader.closed

    def test_the_group_is_removed(self) -> None:
        world, client = declared("T")
        ok(client, http("/T/g?cmd=declare"))
        reader = stream(world, "/T/g?cmd=consume")
        ok(client, http("/T/g?cmd=remove"))
        assert events(reader) == [{"event": "end", "data": "404: ConsumeGroup(g) Not Found"}]
        assert reader.closed

    @pytest.mark.parametrize("target", ["/T?cmd=consume", "/T/T?cmd=consume"])
    def test_the_client_leaves(self, target: str) -> None:
        world, client = declared("T")
        reader = stream(world, target)
        reader.vanish()
        put(client, "T", b"x")
        assert reader.received == b""
        assert reader.peer.open_tickets == reader.peer.open_waits == 0
        world.broker.check()


class TestSlowReaders:
    def test_a_follower_goes_on_from_where_it_was(self) -> None:
        world, client = declared("T?durability=os")
        slow, brisk = (stream(world, "/T?cmd=consume") for _ in range(2))
        slow.takes = False
        body = b"x" * 50_000
        for number in range(20):
            put(client, "T", b"%d" % number + body)
        assert len(data(brisk)) == 20
        assert 256 << 10 < slow.peer.out_bytes < (256 << 10) + 2 * len(body)
        slow.takes = True
        world.settle()
        assert [event["id"] for event in events(slow)] == [str(number) for number in range(20)]

    def test_a_reader_of_a_group_leaves_the_rest_to_others(self) -> None:
        world, client = declared("T?durability=os")
        slow, brisk = (stream(world, "/T/T?cmd=consume") for _ in range(2))
        slow.takes = False
        put(client, "T", *[b"x" * 50_000] * 40)
        taken = len(data(brisk))
        assert taken > 30
        slow.takes = True
        world.settle()
        assert taken + len(data(slow)) == 40

    def test_it_may_leave_meanwhile(self) -> None:
        world, client = declared("T?durability=os")
        slow = stream(world, "/T?cmd=consume")
        slow.takes = False
        put(client, "T", *[b"x" * 50_000] * 10)
        slow.vanish()
        put(client, "T", b"y")
        assert slow.peer.open_tickets == 0
        world.broker.check()


class TestMadeAgain:
    """A topic is removed and declared again while a client is away."""

    def again(self, query: str, before: int, after: int) -> tuple[World, str]:
        """The world with the new topic, and the last id that was told of the old one."""
        world, client = declared("T")
        reader = stream(world, f"/T?cmd=consume&{query}")
        put(client, "T", *[b"old"] * before)
        last = events(reader)[-1]["id"]
        reader.vanish()
        world.advance(1_000)
        ok(client, http("/T?cmd=remove"))
        ok(client, http("/T?cmd=declare"))
        put(client, "T", *[b"%d" % number for number in range(after)])
        return world, last

    @pytest.mark.parametrize("form", ["", "envelope=json"])
    @pytest.mark.parametrize("after", [0, 2, 5])
    def test_nothing_is_passed_over(self, form: str, after: int) -> None:
        world, last = self.again(form, 3, after)
        if not form and after == 5:
            return  # a bare offset cannot tell: see the reference
        reader = stream(world, f"/T?cmd=consume&{form}", f"last-event-id: {last}")
        reset, *told = events(reader)
        topic = world.broker.topics["t"]
        assert (reset["event"], reset["data"]) == ("reset", str(topic.options.created_ms))
        assert len(told) == after
        # From here on it goes on as usual.
        again = stream(world, f"/T?cmd=consume&{form}", f"last-event-id: {reset['id']}")
        assert len(events(again)) == after
        if told:
            last = told[-1]["id"]
            again = stream(world, f"/T?cmd=consume&{form}", f"last-event-id: {last}")
            assert events(again) == []

    @pytest.mark.parametrize("id", ["0", "0@{}", "-", "-@{}"])
    def test_ids_of_this_log(self, id: str) -> None:
        """Of either form, whatever the envelope."""
        world, client = declared("T")
        put(client, "T", b"0", b"1")
        id = id.format(world.broker.topics["t"].options.created_ms)
        for form in ("", "envelope=json"):
            reader = stream(world, f"/T?cmd=consume&{form}", f"last-event-id: {id}")
            told = events(reader)
            assert len(told) == (1 if id[0] == "0" else 2)
            assert not any(event.get("event") for event in told)
            assert ("@" in told[-1]["id"]) == bool(form)

    def test_it_is_so_after_a_restart(self) -> None:
        world, client = declared("T")
        put(client, "T", b"0", b"1")
        reader = stream(world, "/T?cmd=consume&envelope=json&from=earliest")
        first = events(reader)[-2]["id"]
        reader = stream(restart(world), "/T?cmd=consume&envelope=json", f"last-event-id: {first}")
        assert [json.loads(text)["body"] for text in data(reader)] == ["1"]

    def test_a_group_is_not_put_back_to_a_place_of_before(self) -> None:
        world, last = self.again("envelope=json", 1, 3)
        client = world.connect()
        ok(client, http("/T/g?cmd=declare"))
        for _ in range(3):
            ok(client, http("/T/g?cmd=consume&timeout=0"))
        client.vanish()
        world.settle()
        reader = stream(world, "/T/g?cmd=consume&envelope=json", f"last-event-id: {last}")
        assert events(reader) == []


class TestGrowth:
    def test_who_follows_a_topic_follows_its_new_partitions(self) -> None:
        world, client = declared("T")
        all_of_it = stream(world, "/T?cmd=consume&from=latest")
        one_of_it = stream(world, "/T?cmd=consume&partition=0&from=latest")
        put(client, "T", b"old")
        (last,) = events(all_of_it)
        assert data(one_of_it) == ["old"]
        ok(client, http("/T?cmd=declare&partitions=3"))
        put(client, "T", b"new", query="partition=2")
        assert events(all_of_it) == [{"id": "0,,0", "data": "new"}]
        assert events(one_of_it) == []
        again = stream(world, "/T?cmd=consume", f"last-event-id: {last['id']}")
        assert events(again) == [{"id": "0,,0", "data": "new"}]
        again = stream(world, "/T?cmd=consume", "last-event-id: 0,,0")
        assert events(again) == []
        problem = "400: Bad Format, last-event-id needs an offset for each partition, and there are"
        request = http("/T?cmd=consume", ACCEPT, "last-event-id: 0,,0,0")
        assert refused(client, request) == (400, f"{problem} 3")

    def test_a_group_that_streams_gets_what_is_in_new_partitions(self) -> None:
        world, client = declared("T/g")
        reader = stream(world, "/T/g?cmd=consume")
        put(client, "T", b"old")
        ok(client, http("/T?cmd=declare&partitions=2"))
        put(client, "T", b"new", query="partition=1")
        (first, second) = events(reader)
        assert (first, second) == ({"id": "0", "data": "old"}, {"id": "0,0", "data": "new"})
        reader.vanish()
        world.settle()
        again = stream(world, "/T/g?cmd=consume", f"last-event-id: {first['id']}")
        assert events(again) == [second]
