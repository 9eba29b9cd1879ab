"""Many messages in one body, both ways."""

import base64

import msgspec
import pytest

from tests.conformance.dialogue import (
    Client,
    Reply,
    World,
    cmd,
    declared,
    drain,
    http,
    ok,
    pull,
    put,
    refused,
)
from zbus.core.model.limits import Limits
from zbus.dialects.zbus.settings import ZbusSettings

NDJSON = "application/x-ndjson"
MESSAGES = "application/vnd.zbus.messages"
JSON = "application/json"
ODD = bytes(range(256))


def message(body: bytes, *lines: str, start: str = "POST / HTTP/1.1") -> bytes:
    head = "\r\n".join((start, f"content-length: {len(body)}", *lines, "", ""))
    return head.encode() + body


def produce(container: str, body: bytes, *lines: str, target: str = "/T") -> bytes:
    return http(target, f"content-type: {container}", *lines, body=body, method="POST")


def pull_batch(
    client: Client, accept: str = JSON, query: str = "batch=100", path: str = "/T"
) -> Reply:
    return client.request(http(f"{path}?cmd=consume&timeout=0&{query}", f"accept: {accept}"))


class TestIn:
    def test_lines(self) -> None:
        _, client = declared("T")
        reply = ok(client, produce(NDJSON, b'{"n":1}\n{"n":2}\r\n\n  \n{"n":3}'))
        assert (reply.headers["count"], reply.headers["offset"]) == ("3", "0")
        first = pull(client)
        assert (first.body, first.headers["content-type"]) == (b'{"n":1}', JSON)
        assert drain(client) == [b'{"n":2}', b'{"n":3}']

    def test_messages(self) -> None:
        _, client = declared("T")
        body = message(ODD, "id: a", "tag: x.y", "x-app: 1") + message(b"", "X-App: 2")
        reply = ok(client, produce(MESSAGES, body, "id: batch"))
        assert (reply.headers["count"], reply.headers["id"]) == ("2", "batch")
        first, second = pull(client), pull(client)
        assert (first.body, first.headers["origin_id"], first.headers["tag"]) == (ODD, "a", "x.y")
        assert [one.headers["zbus-header-x-app"] for one in (first, second)] == ["1", "2"]
        assert first.headers["origin_method"] == "POST"
        assert first.headers["sender"] == "session-1"
        assert second.headers["origin_id"] not in ("", "batch")
        assert (second.body, second.headers["offset"]) == (b"", "1")

    def test_one_is_a_batch_too(self) -> None:
        _, client = declared("T")
        assert ok(client, produce(NDJSON, b"1")).headers["count"] == "1"

    @pytest.mark.parametrize(
        "case",
        [
            "APPLICATION/X-NDJSON",
            "application/x-ndjson; charset=utf-8",
            "application/ndjson",
            "application/jsonl; charset=utf-8",
        ],
    )
    def test_the_type_is_read_as_a_media_type(self, case: str) -> None:
        _, client = declared("T")
        ok(client, produce(case, b"1\n2"))
        assert drain(client) == [b"1", b"2"]

    def test_json_is_one_message(self) -> None:
        _, client = declared("T")
        ok(client, produce(JSON, b"[1,2]"))
        assert drain(client) == [b"[1,2]"]

    def test_tag_and_key_of_the_request_are_for_all_that_have_none(self) -> None:
        _, client = declared("T")
        body = message(b"1") + message(b"2", "tag: own", "key: own")
        ok(client, produce(MESSAGES, body, "tag: all", "key: all"))
        shown = [pull(client).headers for _ in range(2)]
        assert [(h["tag"], h["key"]) for h in shown] == [("all", "all"), ("own", "own")]

    @pytest.mark.parametrize("name", ["delay", "ttl"])
    def test_times_of_the_request_are_for_all(self, name: str) -> None:
        world, client = declared("T")
        ok(client, produce(NDJSON, b"1\n2", target=f"/T?{name}=1000"))
        world.advance(1000)
        assert drain(client) == ([b"1", b"2"] if name == "delay" else [])

    @pytest.mark.parametrize(
        ("container", "body", "text"),
        [
            (NDJSON, b"", "the batch is empty"),
            (NDJSON, b"\n \n\r\n", "the batch is empty"),
            (MESSAGES, b"", "the batch is empty"),
            (MESSAGES, b"garbage", "message 0 "),
            (MESSAGES, message(b"1") + b"\r\n", "message 1 "),
            (MESSAGES, message(b"1") + message(b"22")[:-1], "message 1 is cut short"),
            (MESSAGES, message(b"1") + message(b"2", "x: \x01"), "message 1"),
            (MESSAGES, message(b"1") + b"POST / HTTP/1.1\r\ncontent-length: +1\r\n\r\n2", "1"),
            (
                MESSAGES,
                message(b"1") + b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
                "message 1 may not have a transfer-encoding",
            ),
            (MESSAGES, message(b"1") + message(b"2", "id: " + "i" * 40), "Message.Id length"),
            (MESSAGES, message(b"1") + message(b"2", "tag: " + "t" * 128), "Message.Tag length"),
            (MESSAGES, message(b"1") + message(b"2", "key: " + "k" * 1025), "key length"),
            (NDJSON, b"1\n" * 6, "a batch has 1 to 5 messages"),
            (MESSAGES, message(b"1") * 6, "5 messages"),
        ],
    )
    def test_all_or_none(self, container: str, body: bytes, text: str) -> None:
        limits = Limits(batch_messages_max=5)
        world = World(settings=ZbusSettings(batch_messages_max=5), limits=limits)
        client = world.connect()
        ok(client, http("/T?cmd=declare"))
        status, told = refused(client, produce(container, body))
        assert status == 400
        assert told.startswith("400: Bad Format, ")
        assert text in told
        assert drain(client) == []
        assert ok(client, http("/T")).headers["offset"] == "0"

    def test_a_message_that_is_too_large(self) -> None:
        client = World(limits=Limits(message_bytes_max=10)).connect()
        ok(client, http("/T?cmd=declare"))
        assert refused(client, produce(NDJSON, b"1\n" + b"x" * 11))[0] == 413
        assert drain(client) == []

    def test_without_a_reply(self) -> None:
        _, client = declared("T")
        lines = ("topic: T", "ack: 0", f"content-type: {NDJSON}")
        assert client.exchange(cmd("produce", *lines, body=b"1\n2")) == []
        assert drain(client) == [b"1", b"2"]

    def test_an_unknown_topic(self) -> None:
        _, client = declared()
        assert refused(client, produce(NDJSON, b"1"))[0] == 404

    def test_batches_and_single_messages_keep_their_order(self) -> None:
        _, client = declared("T")
        data = http("/T", body=b"0") + produce(NDJSON, b"1\n2") + http("/T", body=b"3")
        offsets = [reply.headers["offset"] for reply in client.exchange(data)]
        assert offsets == ["0", "1", "3"]
        assert drain(client) == [b"0", b"1", b"2", b"3"]


class TestOut:
    @pytest.mark.parametrize(
        ("accept", "container"),
        [
            ("*/*", JSON),
            ("text/html,application/xhtml+xml,*/*;q=0.8", JSON),
            (JSON, JSON),
            (NDJSON, NDJSON),
            (MESSAGES, MESSAGES),
            (f"{MESSAGES}, */*", MESSAGES),
        ],
    )
    def test_the_container_is_chosen_by_accept(self, accept: str, container: str) -> None:
        _, client = declared("T")
        ok(client, http("/T", body=b"x"))
        reply = pull_batch(client, accept)
        assert (reply.headers["content-type"], reply.headers["count"]) == (container, "1")

    @pytest.mark.parametrize("container", [JSON, NDJSON])
    def test_objects(self, container: str) -> None:
        world, client = declared("T/g?group_mask=64")
        ok(client, http("/T", "id: a", "tag: t", "key: k", "x-app: 1", body="é".encode()))
        ok(client, http("/T", body=ODD))
        pull(client, "/T/g")
        world.advance(10_000)
        reply = pull_batch(client, container, path="/T/g")
        if container == NDJSON:
            assert reply.body.count(b"\n") == 2
            items = [msgspec.json.decode(line) for line in reply.body.splitlines()]
        else:
            items = msgspec.json.decode(reply.body)
        headers = items[0].pop("headers")
        assert headers["x-app"] == "1"
        assert headers["sender"] == "session-1"
        assert items[0] == {
            "id": "a",
            "topic": "T",
            "partition": 0,
            "offset": 0,
            "timestamp": world.now_ms - 10_000,
            "consume_group": "g",
            "tag": "t",
            "key": "k",
            "retry": 1,
            "body": "é",
        }
        assert base64.b64decode(items[1]["body_base64"]) == ODD
        assert "body" not in items[1]

    @pytest.mark.parametrize(
        ("query", "counts"),
        [("batch=1", [1, 1, 1, 1]), ("batch=3", [3, 1]), ("batch=100", [4])],
    )
    def test_how_many(self, query: str, counts: list[int]) -> None:
        _, client = declared("T")
        ok(client, produce(NDJSON, b"0\n1\n2\n3"))
        got = [pull_batch(client, query=query) for _ in range(len(counts) + 1)]
        assert [int(reply.headers["count"]) for reply in got[:-1]] == counts
        assert (got[-1].status, got[-1].headers["empty"]) == (204, "drained")

    def test_it_waits_for_the_first_only(self) -> None:
        world, client = declared("T")
        reader = world.connect()
        assert reader.exchange(http("/T?cmd=consume&batch=10")) == []
        ok(client, http("/T", body=b"0"))
        assert [reply.headers["count"] for reply in reader.replies()] == ["1"]

    def test_it_keeps_to_the_window(self) -> None:
        _, client = declared("T/g?group_mask=64&group_ack_window=3")
        ok(client, produce(NDJSON, b"0\n1\n2\n3"))
        assert pull_batch(client, path="/T/g").headers["count"] == "3"

    @pytest.mark.parametrize("value", ["0", "100001", "x", "-1"])
    def test_illegal_numbers(self, value: str) -> None:
        _, client = declared("T")
        assert refused(client, http(f"/T?cmd=consume&batch={value}"))[0] == 400

    def test_an_offset_with_a_batch(self) -> None:
        _, client = declared("T")
        ok(client, produce(NDJSON, b"0\n1"))
        reply = pull_batch(client, query="batch=5&offset=1")
        assert [item["offset"] for item in msgspec.json.decode(reply.body)] == [1]


def test_what_a_consumer_got_may_be_fed_back_as_it_is() -> None:
    world, client = declared("T/g?group_mask=64", "U")
    ok(client, http("/T", "id: a", "tag: t", "key: k", "x-app: é", body=ODD))
    ok(client, http("/T", "id: b", "content-type: text/plain", body=b""))
    pull(client, "/T/g")
    world.advance(10_000)
    got = pull_batch(client, MESSAGES, path="/T/g")
    other = world.connect()
    assert ok(other, produce(MESSAGES, got.body, target="/U")).headers["count"] == "2"
    first, second = pull(other, "/U"), pull(other, "/U")
    assert (first.body, second.body) == (ODD, b"")
    shown = first.headers
    assert (shown["origin_id"], shown["tag"], shown["key"]) == ("a", "t", "k")
    assert shown["zbus-header-x-app"] == "é"
    assert second.headers["content-type"] == "text/plain"
    assert shown["consume_group"] == "U"
    assert shown["sender"] == "session-2", "who sent it here, not who sent it first"
    assert "retry" not in shown
    assert "origin_url" not in shown, "of the first producer"


def test_and_with_heads_and_bodies_it_is_the_same_again() -> None:
    world, client = declared("T", "U", "V")
    ok(client, produce(MESSAGES, message(ODD, "id: a", "x-app: 1") + message(b"2", "id: b")))
    first = pull_batch(client, MESSAGES).body
    ok(client, produce(MESSAGES, first, target="/U"))
    second = pull_batch(client, MESSAGES, path="/U").body
    swap = first.replace(b"topic: T", b"topic: U").replace(b"group: T", b"group: U")
    assert second == swap
    world.broker.check()


@pytest.mark.parametrize(("idle_ms", "answers"), [(0, 10), (21, 3)])
def test_an_answer_is_not_so_long_that_others_wait_for_it(idle_ms: int, answers: int) -> None:
    """All the less as long as somebody puts."""
    world, client = declared("T")
    bodies = [b"%03d" % number + b"x" * 997 for number in range(300)]
    for body in bodies:
        put(client, "T", body)
    world.advance(idle_ms)
    taken: list[int] = []
    while sum(taken) < len(bodies):
        reply = ok(client, http("/T?cmd=consume&batch=1000&timeout=0"))
        assert len(reply.body) < 200 << 10
        taken.append(int(reply.headers["count"]))
    assert len(taken) == answers
