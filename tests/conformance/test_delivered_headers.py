"""What a consumer sees of a message besides its body (specification 3.1, 3.2, 5.2)."""

import pytest

from tests.conformance.dialogue import (
    EPOCH_MS,
    Reply,
    cmd,
    declared,
    document,
    http,
    ok,
    pull,
    restart,
)
from zbus.core.cursor.state import TopicOptions

BROKERS_OWN = {"content-length", "connection", "offset", "origin_id", "timestamp", "sender", "host"}
BROKERS_OWN |= {"cache-control", "remote-addr", "origin_method", "consume_group", "id", "topic"}


def delivered(request: bytes, topic: str = "T?sender_headers=1") -> Reply:
    _, client = declared(topic)
    ok(client, request)
    reply = ok(client, cmd("consume", "topic: T", "id: pull-1"))
    return reply


def test_all_of_them() -> None:
    reply = delivered(cmd("produce", "topic: T", "id: m-1", "tag: a.b", "key: k", body=b"hello"))
    assert reply.headers == {
        "content-length": "5",
        "connection": "Keep-Alive",
        "cache-control": "no-store",
        "topic": "T",
        "id": "pull-1",
        "origin_id": "m-1",
        "offset": "0",
        "timestamp": str(EPOCH_MS),
        "consume_group": "T",
        "tag": "a.b",
        "key": "k",
        "origin_method": "GET",
        "sender": "session-1",
        "remote-addr": "/127.0.0.1:40001",
        "host": "127.0.0.1:15555",
    }


CURL = ("user-agent: curl/8.5.0", "accept: */*", "accept-encoding: gzip", "accept-language: de")
FORM = "content-type: application/x-www-form-urlencoded"


class TestHowAMessageCame:
    """What nobody asked for is stored where somebody may need it."""

    SAID = frozenset(("remote-addr", "host", "user-agent", "accept", "accept-language"))

    def said(self, topic: str, request: bytes) -> set[str]:
        reply = delivered(request, topic)
        assert reply.headers["sender"] == "session-1"
        assert reply.headers["x-app"] == "1"
        return reply.headers.keys() & {*self.SAID, "accept-encoding", "content-type"}

    @pytest.mark.parametrize(
        ("line", "kept"),
        [
            (FORM, set()),
            ("content-type: application/json", {"content-type"}),
            ("content-type: application/x-www-form-urlencoded; charset=utf-8", {"content-type"}),
        ],
    )
    def test_plain_http(self, line: str, kept: set[str]) -> None:
        request = http("/T?x-app=1", *CURL, line, body=b"x", method="POST")
        assert self.said("T", request) == kept
        everything = {*self.SAID, "accept-encoding", "content-type"}
        assert self.said("T?sender_headers=1", request) == everything

    def test_a_form_of_a_program_that_has_forms(self) -> None:
        lines = ("user-agent: python-requests/2", FORM)
        request = http("/T?x-app=1", *lines, body=b"x", method="POST")
        assert self.said("T", request) == {"content-type"}

    def test_with_a_command_it_is_the_same(self) -> None:
        request = cmd("produce", "topic: T", "x-app: 1", *CURL, FORM, body=b"x")
        assert self.said("T", request) == set()
        everything = {*self.SAID, "accept-encoding", "content-type"}
        assert self.said("T?sender_headers=1", request) == everything

    def test_what_is_said_with_the_prefix_is_the_applications(self) -> None:
        lines = (*(f"zbus-header-{line}" for line in CURL), f"zbus-header-{FORM}")
        request = cmd("produce", "topic: T", "x-app: 1", *CURL, *lines, body=b"x")
        own = {"user-agent", "accept", "accept-encoding", "accept-language", "content-type"}
        assert self.said("T", request) == own

    def test_a_batch(self) -> None:
        lines = (*CURL, "content-type: application/vnd.zbus.messages")
        data = b"POST / HTTP/1.1\r\nx-app: 1\r\naccept: a\r\ncontent-length: 1\r\n\r\nx"
        assert self.said("T", http("/T", *lines, body=data)) == {"accept"}

    def test_services_are_told_who_asks(self) -> None:
        world, service = declared("S?topic_mask=3")
        caller = world.connect()
        assert caller.exchange(http("/S/m", *CURL)) == []
        call = ok(service, cmd("consume", "topic: S"))
        assert call.headers.keys() >= self.SAID

    def test_it_may_be_changed_while_the_same_request_comes_again(self) -> None:
        world, client = declared("T")
        request = http("/T", *CURL, body=b"x")
        found = []
        for change in ("", "&sender_headers=1", "&dedupe_ms=0", "&sender_headers=0", ""):
            ok(client, http(f"/T?cmd=declare{change}"))
            for _ in range(2):
                ok(client, request)
                reply = pull(client)
                found.append(reply.headers.keys() >= {"remote-addr", "zbus-header-user-agent"})
        assert found == [False] * 2 + [True] * 4 + [False] * 4
        ok(client, http("/T?cmd=declare&sender_headers=1"))
        client = restart(world).connect()
        ok(client, request)
        assert pull(client).headers["remote-addr"] == "/127.0.0.1:40001"

    def test_older_topics_go_on_as_they_did(self) -> None:
        """Nothing is stored of the choice where it has not been made."""
        assert not TopicOptions("T").minimal_headers
        _, client = declared("T?sender_headers=1", "U")
        assert document(ok(client, http("/T?cmd=query")))["senderHeaders"] is True
        assert "senderHeaders" not in document(ok(client, http("/U?cmd=query")))

    def test_two_topics_and_one_connection(self) -> None:
        _, client = declared("T?sender_headers=1", "U")
        for topic, told in (("T", True), ("U", False), ("T", True)):
            ok(client, http("/", f"topic: {topic}", "cmd: produce", *CURL, body=b"x"))
            assert ("host" in pull(client, f"/{topic}").headers) is told


@pytest.mark.parametrize(
    ("target", "shown"),
    [
        ("/", None),
        ("/T", "/T"),
        ("/T/x/%41?a=1&b=c%20d", "/T/x/%41?a=1&b=c%20d"),
        ("/T?token=secret", "/T"),
        ("/T?a=1&TOKEN=secret&b=2", "/T?a=1&b=2"),
        ("/T?tokens=3", "/T?tokens=3"),
    ],
)
def test_origin_url(target: str, shown: str | None) -> None:
    reply = delivered(http(target, "topic: T", body=b"x"))
    assert reply.headers.get("origin_url") == shown
    assert "secret" not in str(reply)


@pytest.mark.parametrize("method", ["GET", "POST", "FOO", "x-y"])
def test_origin_method(method: str) -> None:
    assert delivered(http("/T", body=b"x", method=method)).headers["origin_method"] == method


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("x-app", "plain"),
        ("x-app", "a  b\tc"),
        ("x-app", "naïve 中文"),
        ("x-app", "100%41 %zz %"),
        ("x-app", '"quoted"; a=b, c'),
        ("x-empty", ""),
        ("content-type", "text/plain; charset=gbk"),
        ("user-agent", "curl/8"),
        ("version", "0.11.4"),
        ("recver", "somebody"),
    ],
)
def test_fields_of_the_application_are_kept(name: str, value: str) -> None:
    reply = delivered(cmd("produce", "topic: T", f"{name.title()}: {value}", body=b"x"))
    assert reply.headers[name] == value


def test_a_latin_1_value_is_kept_byte_for_byte() -> None:
    _, client = declared("T")
    ok(client, b"GET /T HTTP/1.1\r\nhost: x\r\nx-app: \xe9\xff\r\n\r\n")
    client.send(http("/T?cmd=consume"))
    client.world.settle()
    assert b"\r\nzbus-header-x-app: \xe9\xff\r\n" in client.received


@pytest.mark.parametrize(
    "name",
    [
        "token",
        "cmd",
        "ack",
        "origin_id",
        "origin_method",
        "origin_url",
        "origin_status",
        "offset",
        "retry",
        "timestamp",
        "sender",
        "host",
        "remote-addr",
        "consume_group",
        "group",
        "body",
        "te",
        "trailer",
        "keep-alive",
    ],
)
def test_what_a_producer_may_not_say(name: str) -> None:
    value = {"cmd": "produce", "ack": "1"}.get(name, "forged")
    plain = delivered(cmd("produce", "topic: T", body=b"x"))
    lines = () if name == "cmd" else (f"{name}: {value}",)
    reply = delivered(cmd("produce", "topic: T", *lines, body=b"x"))
    assert reply.headers.get(name) == plain.headers.get(name)
    assert "forged" not in str(reply)


@pytest.mark.parametrize(
    ("cookie", "kept"),
    [
        ("token=secret", None),
        ("a=1; token=secret; b=2", "a=1; b=2"),
        ("token=secret; a=1", "a=1"),
        ("mytoken=1", "mytoken=1"),
    ],
)
def test_the_token_in_a_cookie_is_taken_out_for_a_service(cookie: str, kept: str | None) -> None:
    assert "cookie" not in delivered(http("/T", f"cookie: {cookie}", body=b"x")).headers
    world, service = declared("S?topic_mask=3")
    caller = world.connect()
    assert caller.exchange(http("/S/m", f"cookie: {cookie}")) == []
    call = ok(service, cmd("consume", "topic: S"))
    assert call.headers.get("cookie") == kept


def test_no_content_type_is_invented() -> None:
    assert "content-type" not in delivered(http("/T", body=b"x")).headers


def test_the_last_of_a_repeated_field_wins() -> None:
    reply = delivered(cmd("produce", "topic: T", "x-a: 1", "X-A: 2", body=b"x"))
    assert reply.headers["x-a"] == "2"


def test_query_keys_become_fields() -> None:
    reply = delivered(http("/T?foo=bar%20x&a=1&&b=&c=d=e&A-B=+z", "a: header", body=b"x"))
    extra = {name: reply.headers[name] for name in reply.headers.keys() - BROKERS_OWN}
    shown = {"foo": "bar x", "a": "header", "b": "", "c": "d=e", "a-b": "z"}
    assert extra == shown | {"origin_url": "/T?foo=bar%20x&a=1&&b=&c=d=e&A-B=+z"}


@pytest.mark.parametrize(
    "query",
    [
        "x%0D%0Aevil:%201=2",
        "evil:%201=2",
        "x=1%0D%0Aevil:%201",
        "tag=1%0D%0Aevil:%201",
        "key=1%0D%0Aevil:%201",
        "id=1%0D%0Aevil:%201",
        "cookie=1%0D%0Aevil:%201",
        "content-type=a%0D%0Aevil:%201",
        "%E5%90%8D=1",
    ],
)
def test_a_url_cannot_write_header_lines(query: str) -> None:
    _, client = declared("T")
    reply = client.request(http(f"/T?{query}", body=b"x"))
    assert reply.status == (200 if query.startswith("cookie") else 400)
    assert "evil" not in reply.headers
    reply = pull(client)
    assert reply.status == (200 if query.startswith("cookie") else 204), "nothing else is stored"
    assert "evil" not in reply.headers


@pytest.mark.parametrize("name", ["topic", "tag", "consume_group", "token"])
def test_nor_can_an_encoded_header(name: str) -> None:
    _, client = declared("T")
    for request in ("produce", "consume", "query", "ack"):
        line = f"{name}: T%0D%0Aevil: 1"
        topic = () if name == "topic" else ("topic: T",)
        for reply in client.exchange(cmd(request, *topic, line, "timeout: 0", "offset: 0")):
            assert "evil" not in reply.headers


def test_a_pull_by_url_gets_its_topic_as_it_wrote_it() -> None:
    _, client = declared("MyTopic")
    ok(client, http("/mytopic", body=b"x"))
    assert pull(client, "/MYTOPIC").headers["topic"] == "MYTOPIC"


SECRETS = (
    "authorization",
    "proxy-authorization",
    "cookie",
    "x-api-key",
    "api-key",
    "private-token",
    "x-forwarded-access-token",
    "x-auth-token",
    "acme-api-key",
    "x-gitlab-token",
    "x-xsrf-token",
    "x-amzn-oidc-data",
    "x-ms-token-aad-id-token",
    "cf-access-jwt-assertion",
)
WAY = (
    "user-agent",
    "via",
    "forwarded",
    "x-forwarded-for",
    "x-forwarded-user",
    "x-real-ip",
    "http2-settings",
    "cdn-loop",
    "cf-connecting-ip",
    "accept-language",
    "cache-control",
    "if-none-match",
    "range",
    "x-envoy-internal",
    "true-client-ip",
)


@pytest.mark.parametrize("sender_headers", ["0", "1"])
@pytest.mark.parametrize("prefix", ["", "zbus-header-"])
@pytest.mark.parametrize("name", SECRETS)
def test_secrets_are_never_stored(name: str, prefix: str, sender_headers: str) -> None:
    _, client = declared(f"T?sender_headers={sender_headers}")
    line = f"{prefix}{name}: s3cret"
    kind = "content-type: application/vnd.zbus.messages"
    row = f"POST / HTTP/1.1\r\n{line}\r\ncontent-length: 1\r\n\r\nx".encode()
    ok(client, http("/T", line, body=b"x", method="POST"))
    ok(client, http(f"/T?{prefix}{name}=s3cret", body=b"x", method="POST"))
    ok(client, http("/T", kind, body=row, method="POST"))
    ok(client, cmd("produce", "topic: T", line, body=b"x"))
    for _ in range(4):
        reply = ok(client, http("/T?cmd=consume&batch=1", "accept: application/json"))
        assert b"s3cret" not in reply.body


@pytest.mark.parametrize("name", WAY)
def test_how_it_came_is_stored_where_it_is_wanted(name: str) -> None:
    for make in (lambda *lines: http("/T", *lines, body=b"x", method="POST"), _command):
        _, client = declared("T", "U?sender_headers=1")
        ok(client, make(f"{name}: way"))
        assert "way" not in str(ok(client, http("/T?cmd=consume")))
    _, client = declared("T?sender_headers=1")
    ok(client, http("/T", f"{name}: way", body=b"x", method="POST"))
    kept = ok(client, http("/T?cmd=consume")).headers.get(f"zbus-header-{name}")
    assert kept == (None if name == "http2-settings" else "way")


def _command(*lines: str) -> bytes:
    return cmd("produce", "topic: T", *lines, body=b"x")


@pytest.mark.parametrize(
    ("lines", "status"),
    [
        ([f"x-{number}: 1" for number in range(40)], 200),
        ([f"x-{number}: 1" for number in range(41)], 431),
        ([f"traceparent: {'v' * 2_033}"], 200),
        ([f"traceparent: {'v' * 2_034}"], 431),
        ([f"x: {'v' * 2_031}"], 200),
        ([f"x: {'v' * 2_032}"], 431),
        ([f"x: {'v' * 1_000}", f"key: {'k' * 1_024}"], 200),
        ([f"x: {'v' * 1_001}", f"key: {'k' * 1_024}"], 431),
        ([f"content-type: x/y; z={'v' * 1_973}"], 200),
        ([f"content-type: x/y; z={'v' * 1_974}"], 431),
        ([f"x: {'v' * 1_897}", f"tag: {'%2541' * 25}"], 200),
        ([f"x: {'v' * 1_900}", f"tag: {'%2541' * 25}"], 431),
        ([f"user-agent: {'v' * 4_000}"], 200),
    ],
)
def test_lines_have_a_limit(lines: list[str], status: int) -> None:
    _, client = declared("T", "U?sender_headers=1")
    kind = "content-type: application/vnd.zbus.messages"
    head = "\r\n".join(("POST / HTTP/1.1", *lines, "content-length: 1", "", "x"))
    if not lines[0].startswith("user-agent"):
        batch = client.request(http("/T", kind, body=head.encode(), method="POST"))
        assert batch.status == status
        assert batch.status == 200 or batch.body.startswith(b"431: message 0: ")
    for topic in ("T", "U"):
        assert client.request(http(f"/{topic}", *lines, body=b"x", method="POST")).status == status
        assert ok(client, http("/?cmd=ping")).body
    assert pull(client, "/U").status == (200 if status == 200 else 204)
