"""What must be refused, with status, text and a connection that goes on; and what ends it."""

import pytest

from tests.conformance.dialogue import cmd, declared, document, http, ok, pull, refused
from zbus.units import DURATIONS, SIZES, TIMES
from zbus.wire.numbers import parse_number

INTEGERS = {  # field: requests that carry it, and the maximum
    "topic_mask": ("declare", 2**31 - 1),
    "group_mask": ("declare", 2**31 - 1),
    "group_ack_window": ("declare", 1_000_000),
    "group_start_offset": ("declare", 2**63 - 1),
    "group_start_time": ("declare", 2**63 - 1),
    "partitions": ("declare", 64),
    "offset": ("consume", 2**63 - 1),
    "timeout": ("consume", 315_360_000_000),
    "batch": ("consume", 100_000),
    "consume_window": ("consume", 10_000),
    "partition": ("produce", 2**63 - 1),
    "delay": ("produce", 315_360_000_000),
    "deliver_at": ("produce", 2**63 - 1),
    "ttl": ("produce", 315_360_000_000),
    "bytes": ("read", 16 << 20),
    "count": ("read", 100_000),
}
FORMS = {  # of those that are more than a number
    **dict.fromkeys(("timeout", "delay", "ttl"), f"{DURATIONS}, from 0 to {{}} ms"),
    **dict.fromkeys(("group_start_time", "deliver_at"), TIMES),
    "bytes": f"{SIZES}, from 0 to {{}} bytes",
    **dict.fromkeys(("partitions", "batch"), "a number from 1 to {}"),
}
ODD_NUMBERS = ["+1", "-1", "1_0", "1e3", "1.0", "0x10", "abc", "1 2", "\uff19", "²", "1,000", "nan"]
ODD_NUMBERS += [str(2**63), "9" * 19, "9" * 5000]


@pytest.mark.parametrize("value", ODD_NUMBERS, ids=lambda value: value[:20])
@pytest.mark.parametrize("field", INTEGERS)
def test_numbers_in_headers(field: str, value: str) -> None:
    _, client = declared("T")
    command, maximum = INTEGERS[field]
    status, text = refused(client, cmd(command, "topic: T", f"{field}: {value}"))
    assert status == 400
    form = FORMS.get(field, "a number from 0 to {}").format(maximum)
    expected = f"400: Bad Format, {field} is {form}, not {value[:40]!r}"
    assert text == expected or not value.isascii()
    assert len(text) < 250


@pytest.mark.parametrize("value", ["1%201", "%2B1", "1%00", "1%0A", "%EF%BC%91", "%FF"])
@pytest.mark.parametrize("field", INTEGERS)
def test_numbers_in_urls(field: str, value: str) -> None:
    _, client = declared("T")
    command = INTEGERS[field][0]
    assert refused(client, http(f"/T?cmd={command}&{field}={value}"))[0] == 400


@pytest.mark.parametrize("value", ["%201", "1%20", "+1"])
@pytest.mark.parametrize("field", [field for field in INTEGERS if field not in FORMS])
def test_numbers_without_a_unit_have_no_blanks(field: str, value: str) -> None:
    _, client = declared("T")
    command = INTEGERS[field][0]
    assert refused(client, http(f"/T?cmd={command}&{field}={value}"))[0] == 400


@pytest.mark.parametrize("field", INTEGERS)
def test_one_more_than_the_largest(field: str) -> None:
    _, client = declared("T")
    command, maximum = INTEGERS[field]
    status, text = refused(client, cmd(command, "topic: T", f"{field}: {maximum + 1}"))
    assert (status, text[:16]) == (400, "400: Bad Format,")


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (b"0", 0),
        (b"007", 7),
        (b"9223372036854775807", 2**63 - 1),
        (b"9223372036854775808", None),
        (b"", None),
        (b"1\n", None),
        (b"0" * 19, 0),
        (b"0" * 20, None),
        ("٣".encode(), None),
    ],
)
def test_parse_number(value: bytes, number: int | None) -> None:
    assert parse_number(value) == number


@pytest.mark.parametrize("value", [*ODD_NUMBERS, "1x", "s", "1.5ms", "-1s", "25d", "1s1s"])
@pytest.mark.parametrize("field", ["group_lease", "group_ack_timeout"])
@pytest.mark.parametrize("command", ["declare", "extend"])
def test_durations(command: str, field: str, value: str) -> None:
    _, client = declared("T")
    data = cmd(command, "topic: T", "offset: 0", f"{field}: {value}")
    status, text = refused(client, data)
    form = f"{DURATIONS}, from 0 to 2147483647 ms"
    expected = f"400: Bad Format, {field} is {form}, not {value[:40]!r}"
    assert status == 400
    assert text == expected or not value.isascii()


@pytest.mark.parametrize("value", ["0", "00", "0s", "-1", "25d"])
def test_a_lease_of_the_consumers_own(value: str) -> None:
    _, client = declared("T")
    form = f"{DURATIONS}, from 1 to 2147483647 ms"
    expected = f"400: Bad Format, lease is {form}, not {value!r}"
    assert refused(client, cmd("consume", "topic: T", f"lease: {value}")) == (400, expected)


@pytest.mark.parametrize(
    ("value", "ms"),
    [
        ("0", 0),
        ("7", 7),
        ("500ms", 500),
        ("30s", 30_000),
        ("5m", 300_000),
        ("2h", 7_200_000),
        ("24d", 2_073_600_000),
        ("2147483647", 2**31 - 1),
    ],
)
@pytest.mark.parametrize("field", ["group_lease", "group_ack_timeout"])
def test_durations_with_units(field: str, value: str, ms: int) -> None:
    _, client = declared("T")
    info = document(ok(client, http(f"/T/g?cmd=declare&{field}={value}")))
    assert (info["leaseMs"], info["ackTimeout"]) == (ms, ms)


NAMES = {
    "path characters": ["a%2Fb", "%2E%2E", "..", ".", "a%5Cb", "..%2F..%2Fetc", "%2F", "%5C..%5C"],
    "control characters": [
        "a%00b",
        "a%0Ab",
        "a%0D%0Ab",
        "a%1Bb",
        "a%1E",
        "a%7Fb",
        "a%C2%85b",
        "a%E2%80%AEb",
        "a%E2%80%A8b",
        "a%EF%BB%BFb",
    ],
    "longer than 200 bytes": ["a" * 201, "%E4%B8%AD" * 67],
}


@pytest.mark.parametrize(
    ("name", "why"), [(name, why) for why, names in NAMES.items() for name in names]
)
class TestNames:
    def test_of_topics(self, name: str, why: str) -> None:
        _, client = declared()
        status, text = refused(client, http(f"/?cmd=declare&topic={name}"))
        assert status == 400
        assert text.startswith("400: Bad Format, topic: ")
        assert why in text
        assert document(ok(client, http("/?cmd=query")))["topicTable"] == {}

    def test_of_groups(self, name: str, why: str) -> None:
        _, client = declared()
        status, text = refused(client, http(f"/T?cmd=declare&consume_group={name}"))
        assert status == 400
        assert text.startswith("400: Bad Format, group: ")
        assert why in text
        assert client.request(http("/T?cmd=query")).status == 404, "nor is the topic made"

    def test_are_unknown_elsewhere(self, name: str, why: str) -> None:
        _, client = declared("T")
        for command in ("produce", "consume", "query", "remove", "empty", "read", "ack"):
            request = http(f"/?cmd={command}&topic={name}&offset=0")
            assert refused(client, request)[0] == 404
        for command in ("consume", "query", "remove", "empty"):
            request = http(f"/T?cmd={command}&consume_group={name}")
            assert refused(client, request)[0] == 404


@pytest.mark.parametrize(
    "name",
    ["a" * 200, "a%20b", "a.b", "...", "..a", "-", "%25", "a:b*%3F", "%E4%B8%AD", "%F0%9F%98%80"],
)
def test_good_names(name: str) -> None:
    _, client = declared()
    ok(client, http(f"/?cmd=declare&topic={name}&consume_group={name}"))
    ok(client, http(f"/?topic={name}", body=b"x"))
    assert pull(client, f"/{name}/{name}").body == b"x"


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        (("id: " + "i" * 40,), "Message.Id length should be <= 39"),
        (("id: " + "é" * 20,), "Message.Id length should be <= 39"),
        (("tag: " + "t" * 128,), "Message.Tag length should be <= 127"),
        (("tag: " + "é" * 64,), "Message.Tag length should be <= 127"),
        (("key: " + "k" * 1025,), "key length should be <= 1024"),
    ],
)
@pytest.mark.parametrize("topic", ["T", "RPC", "M"])
def test_too_long_labels(topic: str, lines: tuple[str, ...], text: str) -> None:
    _, client = declared("T", "RPC?topic_mask=2", "M?topic_mask=1")
    request = cmd("produce", f"topic: {topic}", *lines)
    assert refused(client, request) == (400, f"400: Bad Format, {text}")
    assert pull(client, f"/{topic}").status == 204


@pytest.mark.parametrize("line", ["id: " + "i" * 39, "tag: " + "t" * 127, "key: " + "k" * 1024])
def test_the_longest_labels(line: str) -> None:
    _, client = declared("T")
    ok(client, cmd("produce", "topic: T", line))
    name, _, value = line.partition(": ")
    assert pull(client).headers[{"id": "origin_id"}.get(name, name)] == value


def test_a_long_id_in_the_url() -> None:
    _, client = declared("T")
    assert refused(client, http("/T?id=" + "i" * 40))[0] == 400


REFUSALS = [
    cmd("foo"),
    cmd("produce"),
    cmd("produce", "topic: NOPE"),
    cmd("produce", "topic: T", "id: " + "i" * 40),
    cmd("produce", "topic: T", "delay: x"),
    cmd("produce", "topic: T", "partition: 9"),
    cmd("consume", "topic: T", "group: g"),
    cmd("consume", "topic: T", "offset: 9"),
    cmd("declare", "topic: a/b"),
    cmd("declare", "topic: T", "durability: os"),
    cmd("remove", "topic: NOPE"),
    cmd("ack", "topic: T"),
]


@pytest.mark.parametrize("request_bytes", REFUSALS)
def test_the_form_of_a_refusal(request_bytes: bytes) -> None:
    _, client = declared("T")
    reply = client.request(request_bytes.replace(b"\r\n", b"\r\nid: my-id\r\n", 1))
    assert 400 <= reply.status < 500
    if b"iiii" not in request_bytes:
        assert reply.headers["id"] == "my-id"
    assert reply.headers["connection"] == "Keep-Alive"
    assert int(reply.headers["content-length"]) == len(reply.body) > 0
    unknown_command = b"cmd: foo" in request_bytes
    assert reply.headers.get("content-type") == ("text/html" if unknown_command else None)
    topic = b"topic: " in request_bytes
    assert ("topic" in reply.headers) is topic, "echoed as sent"


@pytest.mark.parametrize("request_bytes", REFUSALS)
def test_pipelined_refusals_leave_the_rest_alone(request_bytes: bytes) -> None:
    _, client = declared("T")
    replies = client.exchange(request_bytes + http("/?cmd=ping") + request_bytes)
    assert sorted(reply.status for reply in replies)[0] == 200
    assert len(replies) == 3


MALFORMED = [
    (b"garbage\r\n\r\n", 400),
    (b"GET /\r\n\r\n", 400),
    (b"GET / HTTP/2.0\r\n\r\n", 505),
    (b"GET / HTTP/1.1\r\nhost: a b\r\n\r\n", 400),
    (b"GET / HTTP/1.1\r\ncmd : ping\r\n\r\n", 400),
    (b"GET / HTTP/1.1\r\ncmd: ping\r\n folded\r\n\r\n", 400),
    (b"GET / HTTP/1.1\ncmd: ping\n\n", 400),
    (b"GET / HTTP/1.1\r\ncmd: ping\r\ncontent-length: +1\r\n\r\nx", 400),
    (b"GET / HTTP/1.1\r\ncmd: ping\r\ncontent-length: 1\r\ncontent-length: 1\r\n\r\nx", 400),
    (b"GET / HTTP/1.1\r\ncmd: ping\r\nx: a\0b\r\n\r\n", 400),
    (b"GET /\xff HTTP/1.1\r\ncmd: ping\r\n\r\n", 400),
    (b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\ncmd: ping\r\n\r\n", 414),
    (b"GET / HTTP/1.1\r\ncmd: ping\r\nx: " + b"a" * 9000 + b"\r\n\r\n", 431),
    (b"GET / HTTP/1.1\r\ncmd: ping\r\n" + b"x: a\r\n" * 101 + b"\r\n", 431),
    (b"GET / HTTP/1.1\r\ncmd: ping\r\ncontent-length: 99999999\r\n\r\n", 413),
]


@pytest.mark.parametrize(
    "data",
    [
        b"POST /T HTTP/1.1\r\nid: 7\r\ncontent-length: 99999999\r\n\r\n",
        b"POST /T HTTP/1.1\r\nid: 7\r\ntransfer-encoding: chunked\r\n\r\nnonsense\r\n",
    ],
)
def test_a_refused_body_is_told_under_the_id_of_its_head(data: bytes) -> None:
    _, client = declared("T")
    reply = client.request(data)
    assert reply.status in (400, 413)
    assert reply.headers["id"] == "7"
    assert client.closed


@pytest.mark.parametrize(("data", "status"), MALFORMED, ids=range(len(MALFORMED)))
class TestMalformed:
    def test_it_is_told_and_the_connection_closes(self, data: bytes, status: int) -> None:
        _, client = declared("T")
        reply = client.request(data)
        assert reply.status == status
        assert reply.headers["connection"] == "close"
        assert reply.body.startswith(b"%d: " % status)
        assert reply.headers["id"] == client.peer.id.decode()
        assert client.closed
        assert client.exchange(cmd("ping")) == [], "nothing after it is believed"

    def test_what_came_before_is_answered_first(self, data: bytes, status: int) -> None:
        _, client = declared("T")
        replies = client.exchange(http("/T", body=b"x") + data)
        assert [reply.status for reply in replies] == [200, status]
        assert client.closed

    @pytest.mark.parametrize("pull", [cmd("consume", "topic: T"), http("/T?cmd=consume")])
    def test_a_waiting_pull_does_not_keep_it_open(
        self, data: bytes, status: int, pull: bytes
    ) -> None:
        world, client = declared("T")
        broken = world.connect()
        broken.exchange(pull + data)
        assert broken.closed
        broken.vanish()
        ok(client, http("/T", body=b"x"))
        assert ok(client, http("/T?cmd=consume")).body == b"x"
