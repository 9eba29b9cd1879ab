"""Putting once, and only where expected: what is said, what is answered, what is refused."""

from __future__ import annotations

import pytest

from tests.conformance.dialogue import (
    Client,
    Reply,
    World,
    cmd,
    declared,
    document,
    drain,
    http,
    ok,
    pull,
    put,
    refused,
    restart,
)
from tests.conformance.websocket_client import upgraded
from zbus.testing.world import HeldJournal
from zbus.units import DURATIONS

NDJSON = "content-type: application/x-ndjson"
MESSAGES = "content-type: application/vnd.zbus.messages"
BAD_KEY = (
    "400: Bad Format, idempotency-key is 1 to 255 visible ASCII characters,"
    " perhaps in double quotes"
)
OWN_KEY = (
    "400: Bad Format, keys that begin with zb: are for the broker itself;"
    " choose another idempotency-key"
)
BAD_ID = (
    "400: Bad Format, an idempotent request has an id of visible ASCII characters without quotes"
)


def keyed(key: str, *lines: str, body: bytes = b"x", target: str = "/T") -> bytes:
    return http(target, f"Idempotency-Key: {key}", *lines, body=body, method="POST")


def shown(reply: Reply) -> tuple[str, str | None]:
    """Where it is, and whether it was there before."""
    assert reply.status == 200, reply
    return reply.headers["offset"], reply.headers.get("duplicate")


def depth(client: Client, topic: str = "T") -> int:
    count = document(client.request(http(f"/{topic}?cmd=query")))["messageDepth"]
    assert isinstance(count, int)
    return count


class TestKey:
    def test_the_whole_reply(self) -> None:
        _, client = declared("T")
        request = cmd("produce", "topic: T", "id: r", "idempotency-key: k", body=b"x")
        first, second = ok(client, request), ok(client, request)
        assert second.body == first.body
        assert second.headers == first.headers | {"duplicate": "1"}
        assert depth(client) == 1

    def test_it_travels_with_the_message(self) -> None:
        _, client = declared("T")
        ok(client, keyed("k-1", "x-app: 1"))
        headers = pull(client).headers
        assert (headers["idempotency-key"], headers["zbus-header-x-app"]) == ("k-1", "1")

    @pytest.mark.parametrize(
        ("one", "other"),
        [
            ("abc", '"abc"'),
            ('"abc"', "abc"),
            ('"8e03978e-40d5-43dd-bc93-6894a57f9324"', "8e03978e-40d5-43dd-bc93-6894a57f9324"),
            ("a%41b", '"a%41b"'),
            ("!#$%&'()*+,-./:;<=>?@[]^_`{|}~", '"!#$%&\'()*+,-./:;<=>?@[]^_`{|}~"'),
            ("k" * 255, f'"{"k" * 255}"'),
        ],
    )
    def test_bare_and_quoted_are_the_same(self, one: str, other: str) -> None:
        world, client = declared("T")
        assert shown(ok(client, keyed(one))) == ("0", None)
        assert shown(ok(client, keyed(other))) == ("0", "1")
        client = restart(world).connect()
        assert shown(ok(client, keyed(one))) == ("0", "1")

    @pytest.mark.parametrize(("one", "other"), [("a", "A"), ("a%41", "aA"), ("1", "01")])
    def test_other_bytes_are_another_key(self, one: str, other: str) -> None:
        _, client = declared("T")
        ok(client, keyed(one))
        assert shown(ok(client, keyed(other))) == ("1", None)

    @pytest.mark.parametrize(
        "key",
        [
            "",
            '""',
            '"',
            "k" * 256,
            f'"{"k" * 256}"',
            "a b",
            '"a b"',
            "a\tb",
            "ä",
            '"a',
            'a"',
            'a"b',
            '"a"b"',
            r'"a\"b"',
            r"a\b",
            '"a";p=1',
        ],
    )
    def test_bad_keys(self, key: str) -> None:
        _, client = declared("T")
        assert refused(client, keyed(key)) == (400, BAD_KEY)
        assert depth(client) == 0

    @pytest.mark.parametrize("key", ["zb:", "zb:1", '"zb:0a:0:17:g"'])
    def test_keys_of_the_broker_itself(self, key: str) -> None:
        """They are refused behind others of the same form, too, and similar keys are accepted."""
        _, client = declared("T")
        query = key.strip('"').replace(":", "%3A")
        for number in range(5):
            assert shown(ok(client, keyed(f"xzb:{number}"))) == (str(2 * number), None)
            assert refused(client, keyed(key)) == (400, OWN_KEY)
            line = cmd("produce", "topic: T", f"id: {key}", "idempotent: 1", body=b"x")
            assert refused(client, line) == (400, OWN_KEY if '"' not in key else BAD_ID)
            assert shown(ok(client, keyed(f"ZB:{number}"))) == (str(2 * number + 1), None)
            for form in (query, query.replace("%3A", ":")):
                asked = http(f"/T?idempotency-key={form}", body=b"x", method="POST")
                assert refused(client, asked) == (400, OWN_KEY)
        assert depth(client) == 10

    def test_over_a_websocket(self) -> None:
        world, client = declared("T")
        socket = upgraded(world.connect())
        for line in ("idempotency-key: zb:1", "idempotent: 1"):
            reply = socket.request(cmd("produce", "topic: T", "id: zb:1", line, body=b"x"))
            assert (reply.status, reply.body.decode()) == (400, OWN_KEY)
        assert depth(client) == 0

    def test_of_batches_and_of_what_is_staged(self) -> None:
        _, client = declared("T")
        batch = http("/T", NDJSON, "idempotency-key: zb:1", body=b'"x"\n', method="POST")
        assert refused(client, batch) == (400, OWN_KEY)
        staged = http("/T?cmd=txn_stage&txn=a", "idempotency-key: zb:1", body=b"x", method="POST")
        assert refused(client, staged) == (400, OWN_KEY)
        assert ok(client, http("/T?id=zb:1", body=b"x", method="POST")).headers["id"] == "zb:1"

    def test_a_control_byte_is_no_header_at_all(self) -> None:
        _, client = declared("T")
        assert client.request(keyed("a\x01b")).status == 400
        assert client.closed

    def test_the_last_of_a_repeated_header_counts(self) -> None:
        _, client = declared("T")
        ok(client, keyed("a", "idempotency-key: b"))
        assert shown(ok(client, keyed("b"))) == ("0", "1")
        assert shown(ok(client, keyed("a"))) == ("1", None)

    def test_the_url_says_it_too_and_the_header_wins(self) -> None:
        _, client = declared("T")
        ok(client, http("/T?idempotency-key=u", body=b"x"))
        assert shown(ok(client, keyed("u"))) == ("0", "1")
        assert shown(ok(client, keyed("h", target="/T?idempotency-key=u"))) == ("1", None)
        assert refused(client, http("/T?idempotency-key=a%0D%0Ab", body=b"x")) == (400, BAD_KEY)

    @pytest.mark.parametrize(
        "other",
        [
            keyed("k", body=b"y"),
            keyed("k", "tag: t"),
            keyed("k", "key: r"),
            keyed("k", NDJSON, body=b"x\nx"),
        ],
    )
    def test_another_message_under_the_same_key_is_refused(self, other: bytes) -> None:
        world, client = declared("T")
        ok(client, keyed("k"))
        for each in (client, restart(world).connect()):
            assert refused(each, other) == (
                422,
                "422: this idempotency-key was used for a different message",
            )
            assert depth(each) == 1

    def test_what_is_not_content_may_differ(self) -> None:
        _, client = declared("T")
        ok(client, keyed("k", "id: 1", "x-trace: 1"))
        retry = keyed("k", "id: 2", "x-trace: 2", target="/T?delay=5")
        assert shown(ok(client, retry)) == ("0", "1")

    def test_each_topic_has_its_own(self) -> None:
        _, client = declared("T", "U")
        ok(client, keyed("k"))
        assert shown(ok(client, keyed("k", target="/U"))) == ("0", None)

    def test_no_reply_is_wanted(self) -> None:
        _, client = declared("T")
        request = cmd("produce", "topic: T", "ack: 0", "idempotency-key: k", body=b"x")
        assert client.exchange(request + request) == []
        assert drain(client) == [b"x"]

    def test_two_at_once(self) -> None:
        journal = HeldJournal()
        world = World(journal)
        client = world.connect()
        client.send(http("/T?cmd=declare"))
        world.turn()
        journal.release()
        world.settle()
        client.replies()
        client.send(keyed("k") + keyed("k"))
        world.settle()
        assert client.replies() == [], "neither is known to be durable"
        journal.release()
        world.settle()
        assert [shown(reply) for reply in client.replies()] == [("0", None), ("0", "1")]

    def test_calls_take_none(self) -> None:
        _, client = declared("R?topic_mask=2")
        text = (
            "400: Bad Format, a call takes no idempotency-key, no expected_offset and no ack_topic"
        )
        assert refused(client, keyed("k", target="/R")) == (400, text)
        assert refused(client, http("/R?expected_offset=0", body=b"x")) == (400, text)


class TestIds:
    def test_the_whole_reply(self) -> None:
        _, client = declared("T?dedupe_ms=1000")
        request = cmd("produce", "topic: T", "id: m", body=b"x")
        first, second = ok(client, request), ok(client, request)
        assert second.headers == first.headers | {"duplicate": "1"}
        other = ok(client, cmd("produce", "topic: T", "id: m", body=b"something else"))
        assert shown(other) == ("0", "1"), "an id is the message, whatever else is sent"

    def test_without_the_option_ids_mean_nothing(self) -> None:
        _, client = declared("T")
        for offset in ("0", "1"):
            assert shown(ok(client, http("/T?id=1", body=b"x"))) == (offset, None)

    def test_messages_without_an_id_are_all_new(self) -> None:
        _, client = declared("T?dedupe_ms=1000")
        assert [shown(ok(client, http("/T", body=b"x"))) for _ in range(2)] == [
            ("0", None),
            ("1", None),
        ]

    def test_the_option(self) -> None:
        world, client = declared("T?dedupe_ms=1000")
        ok(client, http("/T?cmd=declare&topic_mask=64"))
        assert document(client.request(http("/T?cmd=query")))["dedupeMs"] == 1000
        ok(client, http("/T?id=1", body=b"x"))
        client = restart(world).connect()
        assert document(client.request(http("/T?cmd=query")))["dedupeMs"] == 1000
        assert shown(ok(client, http("/T?id=1", body=b"x"))) == ("0", "1")
        reply = ok(client, http("/T?cmd=declare&dedupe_ms=0"))
        assert document(reply)["dedupeMs"] == 0
        assert shown(ok(client, http("/T?id=1", body=b"x"))) == ("1", None)

    @pytest.mark.parametrize("value", ["-1", "x", "1.5", "315360000001", "9" * 31])
    def test_bad_options(self, value: str) -> None:
        world = World()
        status, text = refused(world.connect(), http(f"/T?cmd=declare&dedupe_ms={value}"))
        assert status == 400
        assert f"dedupe_ms is {DURATIONS}, from 0 to 315360000000 ms" in text
        assert world.broker.topic("T") is None

    def test_ids_are_forgotten_in_time(self) -> None:
        world, client = declared("T?dedupe_ms=1000")
        ok(client, http("/T?id=1", body=b"x"))
        world.advance(999)
        assert shown(ok(client, http("/T?id=1", body=b"x"))) == ("0", "1")
        world.advance(1)
        assert shown(ok(client, http("/T?id=1", body=b"x"))) == ("1", None)

    def test_the_partition_of_the_original_is_told(self) -> None:
        _, client = declared("T?dedupe_ms=1000&partitions=3")
        first = ok(client, http("/T?id=1&partition=2", body=b"x"))
        second = ok(client, http("/T?id=1", body=b"x"))
        assert (first.headers["partition"], second.headers["partition"]) == ("2", "2")


def batch(*ids: str) -> bytes:
    return b"".join(
        f"POST / HTTP/1.1\r\nid: {id}\r\ncontent-length: 1\r\n\r\nx".encode() for id in ids
    )


class TestBatches:
    @pytest.mark.parametrize("restarted", [False, True])
    def test_one_key_for_all(self, restarted: bool) -> None:
        world, client = declared("T")
        ok(client, http("/T", body=b"before"))
        request = keyed("k", NDJSON, body=b"1\n2\n3")
        first = ok(client, request)
        ok(client, http("/T", body=b"after"))
        client = restart(world).connect() if restarted else client
        second = ok(client, request)
        assert (first.headers["offset"], first.headers["count"]) == ("1", "3")
        assert "duplicate" not in first.headers
        assert {name: second.headers[name] for name in ("offset", "count", "duplicate")} == {
            "offset": "1",
            "count": "3",
            "duplicate": "3",
        }
        assert depth(client) == 5

    def test_every_message_has_the_key(self) -> None:
        _, client = declared("T")
        ok(client, keyed("k", NDJSON, body=b"1\n2"))
        assert [pull(client).headers["idempotency-key"] for _ in range(2)] == ["k", "k"]

    def test_keys_within_a_batch_are_dropped(self) -> None:
        """What a consumer received may be sent on as it is."""
        world, client = declared("T", "U")
        ok(client, keyed("k"))
        accept = "accept: application/vnd.zbus.messages"
        taken = ok(client, http("/T?cmd=consume&batch=9", accept))
        assert b"idempotency-key: k\r\n" in taken.body
        ok(client, http("/U", MESSAGES, body=taken.body))
        assert "idempotency-key" not in pull(client, "/U").headers
        client = restart(world).connect()
        assert shown(ok(client, keyed("k", "tag: new", body=b"n", target="/U"))) == ("1", None)

    @pytest.mark.parametrize(
        ("ids", "offset", "duplicates"),
        [
            (("3", "4"), "2", None),
            (("1", "2"), "0", "2"),
            (("2",), "1", "1"),
            (("2", "3", "1", "4"), "2", "2"),
            (("5", "5"), "2", "1"),
        ],
    )
    def test_ids_of_its_messages(
        self, ids: tuple[str, ...], offset: str, duplicates: str | None
    ) -> None:
        world, client = declared("T?dedupe_ms=1000")
        ok(client, http("/T", MESSAGES, body=batch("1", "2")))
        client = restart(world).connect()
        reply = ok(client, http("/T", MESSAGES, body=batch(*ids)))
        assert shown(reply) == (offset, duplicates)
        assert reply.headers["count"] == str(len(ids))
        assert depth(client) == 2 + len(ids) - int(duplicates or 0)


class TestExpectedOffset:
    @pytest.mark.parametrize("where", ["header", "query"])
    def test_only_where_the_log_ends(self, where: str) -> None:
        world, client = declared("T")

        def request(offset: int) -> bytes:
            if where == "query":
                return http(f"/T?expected_offset={offset}", body=b"x")
            return http("/T", f"expected_offset: {offset}", body=b"x")

        assert shown(ok(client, request(0))) == ("0", None)
        reply = client.request(request(0))
        assert (reply.status, reply.headers["offset"]) == (409, "1")
        assert reply.body == b"409: expected_offset does not match: partition 0 continues at 1"
        assert client.request(request(2)).headers["offset"] == "1"
        client = restart(world).connect()
        assert client.request(request(0)).status == 409
        assert shown(ok(client, request(1))) == ("1", None)
        assert "expected_offset" not in pull(client).headers

    def test_those_of_one_turn_count(self) -> None:
        world, client = declared("T")
        client.send(http("/T?expected_offset=0", body=b"x") * 2)
        world.settle()
        assert [reply.status for reply in client.replies()] == [200, 409]

    def test_a_batch(self) -> None:
        _, client = declared("T")
        ok(client, http("/T?expected_offset=0", NDJSON, body=b"1\n2"))
        reply = client.request(http("/T?expected_offset=1", NDJSON, body=b"3\n4"))
        assert (reply.status, reply.headers["offset"]) == (409, "2")
        assert drain(client) == [b"1", b"2"]

    def test_a_duplicate_is_answered_before_the_expectation_is_looked_at(self) -> None:
        _, client = declared("T")
        request = keyed("k", target="/T?expected_offset=0")
        assert shown(ok(client, request)) == ("0", None)
        assert shown(ok(client, request)) == ("0", "1")
        assert client.request(keyed("new", target="/T?expected_offset=0")).status == 409

    @pytest.mark.parametrize("value", ["-1", "+1", "x", "1.0", "1_0", "0x1", "9223372036854775808"])
    def test_bad_numbers(self, value: str) -> None:
        _, client = declared("T")
        status, text = refused(client, http("/T", f"expected_offset: {value}", body=b"x"))
        assert status == 400
        assert text.startswith("400: Bad Format, expected_offset is a number from 0 to ")
        assert depth(client) == 0

    @pytest.mark.parametrize("lines", [(), (NDJSON,)])
    def test_which_partition(self, lines: tuple[str, ...]) -> None:
        _, client = declared("T?partitions=3")
        text = "expected_offset needs a partition or key: this topic has several partitions"
        request = http("/T?expected_offset=0", *lines, body=b"x")
        assert refused(client, request) == (400, f"400: Bad Format, {text}")
        for more in ("partition=0", "key=k"):
            ok(client, http(f"/T?expected_offset=0&{more}", *lines, body=b"x"))
        reply = client.request(http("/T?expected_offset=9&partition=2", *lines, body=b"x"))
        assert (reply.status, reply.headers["offset"]) == (409, "0")
        assert reply.body == b"409: expected_offset does not match: partition 2 continues at 0"

    def test_no_reply_is_wanted(self) -> None:
        _, client = declared("T")
        request = cmd("produce", "topic: T", "ack: 0", "expected_offset: 7", body=b"x")
        assert client.exchange(request) == []
        assert depth(client) == 0


class TestTheIdAsKey:
    """`idempotent: 1` says that the request's id is its idempotency key."""

    def test_it_is_stored_once(self) -> None:
        _, client = declared("T")
        request = cmd("produce", "topic: T", "id: a-1", "idempotent: 1", body=b"x")
        assert ok(client, request).headers["offset"] == "0"
        again = ok(client, request)
        assert (again.headers["offset"], again.headers["duplicate"]) == ("0", "1")
        named = cmd("produce", "topic: T", "id: b", "idempotency-key: a-1", body=b"x")
        assert ok(client, named).headers["duplicate"] == "1", "it is the same key"
        reply = pull(client)
        assert reply.headers["idempotency-key"] == "a-1"
        assert "idempotent" not in reply.headers
        assert pull(client).status == 204

    @pytest.mark.parametrize("durability", ["os", "disk"])
    def test_many_at_once_are_answered_as_one_by_one(self, durability: str) -> None:
        """New ones, repeated ones and reused keys in one turn, of one client and of another."""
        sent = [(1, b"x"), (2, b"x"), (1, b"x"), (3, b"x"), (2, b"other"), (4, b""), (4, b"")]
        requests = [
            cmd("produce", "topic: T", f"id: {id}", "idempotent: 1", body=body) for id, body in sent
        ]

        def told(reply: Reply) -> tuple[object, ...]:
            lines = (reply.headers.get(name) for name in ("id", "offset", "duplicate"))
            return reply.status, *lines, reply.body if reply.status != 200 else b""

        _, client = declared(f"T?durability={durability}")
        expected = [told(client.request(request)) for request in requests]
        world, one = declared(f"T?durability={durability}")
        other = world.connect()
        one.send(b"".join(requests[:4]))
        other.send(b"".join(requests[4:]))
        world.settle()
        replies = [*one.replies(), *other.replies()]
        assert sorted(map(told, replies), key=repr) == sorted(expected, key=repr)
        assert depth(world.connect()) == depth(client) == 4

    def test_of_a_batch(self) -> None:
        world, client = declared("T")
        lines = ("topic: T", "id: 7", "idempotent: 1", "content-type: application/x-ndjson")
        request = cmd("produce", *lines, body=b"1\n2\n")
        assert ok(client, request).headers["offset"] == "0"
        client = restart(world).connect()
        assert ok(client, request).headers["duplicate"] == "2"

    def test_a_key_of_its_own_counts(self) -> None:
        _, client = declared("T")
        for id in ("1", "2"):
            lines = ("topic: T", f"id: {id}", "idempotency-key: k", "idempotent: 1")
            reply = ok(client, cmd("produce", *lines, body=b"x"))
        assert reply.headers["duplicate"] == "1"

    @pytest.mark.parametrize("line", ["x: y", 'id: a"b', "id: a b", "id: a\\b"])
    def test_it_needs_an_id(self, line: str) -> None:
        _, client = declared("T")
        text = "400: Bad Format, an idempotent request has an id of visible ASCII characters"
        request = cmd("produce", "topic: T", line, "idempotent: 1", body=b"x")
        assert refused(client, request) == (400, f"{text} without quotes")

    def test_a_call_takes_none(self) -> None:
        _, client = declared("R?topic_mask=3")
        request = cmd("produce", "topic: R", "id: 1", "idempotent: 1", body=b"{}")
        assert refused(client, request)[0] == 400


class TestWhileItLives:
    """`dedupe_live`: an id is taken as long as its message is not finished in every group."""

    def test_taken_and_free(self) -> None:
        world, client = declared("T/g?dedupe_live=1&group_mask=64&group_ack_timeout=1000")
        assert document(ok(client, http("/T?cmd=query")))["dedupeLive"] is True
        first = ok(client, http("/T?id=a", body=b"1", method="POST"))
        assert (first.headers["offset"], first.headers.get("duplicate")) == ("0", None)
        for _ in range(2):
            again = ok(client, http("/T?id=a", body=b"2", method="POST"))
            assert (again.headers["offset"], again.headers["duplicate"]) == ("0", "1")
            world = restart(world)
            client = world.connect()
        assert pull(client, "/T/g").body == b"1"
        ok(client, http("/T/g?cmd=ack&offset=0"))
        ok(client, http("/T?id=a", body=b"3", method="POST"))
        assert pull(client, "/T/g").body == b"3"

    def test_of_a_batch_only_what_is_free_is_stored(self) -> None:
        _, client = declared("T/g?dedupe_live=1")
        put(client, "T", b"1", query="id=a")
        lines = [
            b"POST / HTTP/1.1\r\nid: %b\r\ncontent-length: 1\r\n\r\n%b" % (n, n)
            for n in (b"a", b"b")
        ]
        kind = "content-type: application/vnd.zbus.messages"
        reply = ok(client, http("/T", kind, body=b"".join(lines), method="POST"))
        assert (reply.headers["count"], reply.headers["duplicate"]) == ("2", "1")
        assert drain(client, "/T/g") == [b"1", b"b"]

    def test_named_by_its_id(self) -> None:
        _, client = declared("T/g?dedupe_live=1")
        put(client, "T", b"1", query="id=a")
        ok(client, http("/T/g?cmd=delete&msgid=a"))
        status, text = refused(client, http("/T/g?cmd=delete&msgid=a"))
        assert (status, text) == (
            404,
            "404: there is no message with the id a, or it was finished and forgotten",
        )

    def test_it_is_switched_off(self) -> None:
        _, client = declared("T/g?dedupe_live=1")
        assert "dedupeLive" in document(ok(client, http("/T?cmd=declare&partitions=1")))
        assert "dedupeLive" not in document(ok(client, http("/T?cmd=declare&dedupe_live=0")))
        put(client, "T", b"1", b"1", query="id=a")
        assert drain(client, "/T/g") == [b"1", b"1"]
