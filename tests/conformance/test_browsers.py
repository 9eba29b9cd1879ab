"""Browsers: what they are refused, what they are told beside, and pages that are loaded again."""

from __future__ import annotations

import pytest

from tests.conformance.dialogue import TYPED, World, cmd, declared, document, drain, http, ok, put
from zbus.dialects.zbus.dialect import COMMANDS
from zbus.dialects.zbus.request import reloads
from zbus.dialects.zbus.schema.commands import READS
from zbus.dialects.zbus.settings import ZbusSettings
from zbus.edge.guard import GuardSettings
from zbus.testing.world import Client, HeldJournal, Reply

IMAGE = ("sec-fetch-site: cross-site", "sec-fetch-mode: no-cors", "sec-fetch-dest: image")
PAGE = "origin: https://app.example"
STRICT = GuardSettings(cors_origins=("https://app.example",))


def strict(reload_window_ms: int = 2_000) -> tuple[World, Client]:
    """A world that knows its names, and a topic."""
    world = World(guard=STRICT, settings=ZbusSettings(reload_window_ms=reload_window_ms))
    client = world.connect()
    ok(client, http("/T?cmd=declare"))
    return world, client


# -- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_only_looking_is_for_links_of_others(command: bytes) -> None:
    """A link on another page, clicked, opens what only looks."""
    _, client = strict()
    target = f"/T?cmd={command.decode()}"
    link = ("sec-fetch-site: cross-site", *TYPED[2:])
    looks = command in READS or command == b"login"
    assert (client.request(http(target, *link)).status == 403) == (not looks)


@pytest.mark.parametrize(
    ("target", "lines"),
    [
        ("/T?body=x", ()),
        ("/T", ("cmd: produce",)),
        ("/T?cmd=consume", ()),
        ("/T?cmd=consume&offset=0", ()),
        ("/T?cmd=ack&offset=0", ()),
        ("/U?cmd=declare", ()),
        ("/T?cmd=remove", ()),
        ("/T?CMD=Remove", ()),
        ("/T?cmd=query", ()),
        ("/_log/T", ()),
        ("/_nothing", ()),
        ("/", ()),
    ],
)
def test_an_image_of_another_page_does_nothing(target: str, lines: tuple[str, ...]) -> None:
    world, client = strict()
    put(client, "T", b"a")
    reply = client.request(http(target, *IMAGE, *lines))
    assert reply.status == 403
    assert reply.body.startswith(b"403: a page of another site sent this request")
    assert list(world.broker.topics) == ["t"]
    assert drain(client) == [b"a"]


def test_refusals_keep_id_and_order() -> None:
    world, client = strict()
    client.send(
        http("/T?cmd=consume&timeout=50")
        + http("/T?body=x", "host: evil.example").replace(b"host: localhost\r\n", b"")
        + http("/T?body=x", *IMAGE)
        + http("/T?body=x", *IMAGE, "id: 7")
    )
    world.settle()
    assert [(r.status, r.headers["id"]) for r in client.replies()] == [(403, "7")]
    world.advance(50)
    assert [reply.status for reply in client.replies()] == [204, 421, 403]
    assert not client.closed


def test_a_refused_producer_that_wants_no_answer_gets_none() -> None:
    _, client = strict()
    forged = ("host: evil.example", "topic: T", "ack: 0")
    assert client.exchange(cmd("produce", *forged)) == []
    assert client.request(cmd("ping")).status == 200


def test_a_name_that_is_not_known() -> None:
    _, client = strict()
    data = b"GET /T?body=x HTTP/1.1\r\nhost: evil.example:15555\r\n\r\n"
    reply = client.request(data)
    assert reply.status == 421
    assert reply.body == (
        b"421: there is no evil.example:15555 here; if it is a name of this broker, add it to the"
        b" option allowed_hosts"
    )
    assert drain(client) == []


def test_a_handshake_of_another_page() -> None:
    world, _ = strict()
    lines = (
        "connection: Upgrade",
        "upgrade: websocket",
        "sec-websocket-version: 13",
        "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==",
    )
    foreign = http("/T", *lines, "origin: https://evil.example")
    rebound = http("/T", *lines).replace(b"localhost", b"evil.example")
    for data, status in ((foreign, 403), (rebound, 421), (http("/T", *lines, PAGE), 101)):
        client = world.connect()
        client.send(data + b"what a page would say then")
        world.settle()
        assert client.received.startswith(b"HTTP/1.1 %d " % status)
        assert client.closed, "and what came behind is not read, or is no frame"
    assert world.broker.topics["t"].depth() == 0


# -- replies --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        http("/T?body=x"),
        http("/T?cmd=consume&timeout=0"),
        http("/T?cmd=consume&offset=0"),
        http("/T?cmd=consume&batch=5"),
        http("/T?cmd=query"),
        http("/_log/T"),
        http("/"),
        http("/favicon.ico"),
        http("/nowhere?body=x"),
        http("/_nowhere"),
        http("/?cmd=nonsense"),
        http("/T?body=x", method="HEAD"),
    ],
)
def test_browsers_are_told_the_same_and_more(data: bytes) -> None:
    replies: list[Reply] = []
    for lines in (b"", "".join(f"{line}\r\n" for line in TYPED[1:]).encode()):
        _, client = strict()
        put(client, "T", b"a")
        asked = data[:-2] + lines + b"\r\n"
        if asked.startswith(b"HEAD"):
            client.send(asked)
            client.world.settle()
            assert client.received.endswith(b"\r\n\r\n")
            assert (b"nosniff" in client.received) == bool(lines)
            return
        replies.append(client.request(asked))
    plain, told = replies
    assert (told.status, told.body) == (plain.status, plain.body)
    added = told.headers.keys() - plain.headers.keys()
    assert added - {"content-type"} == {
        "x-content-type-options",
        "x-frame-options",
        "x-robots-tag",
        "vary",
        "cross-origin-resource-policy",
        "content-security-policy",
        "referrer-policy",
    }
    assert told.body == b"" or "content-type" in told.headers


def test_a_message_is_shown_and_not_run() -> None:
    world, client = declared("T")
    lines = ("content-type: text/html; charset=gbk", "set-cookie: a=b", "refresh: 0", "x-app: 1")
    ok(client, http("/T", *lines, method="POST", body=b"<script>alert(1)</script>"))
    shown = ok(world.connect(), http("/T?cmd=consume&offset=0", *TYPED))
    assert shown.headers["content-type"] == "text/plain; charset=gbk"
    assert shown.headers["content-security-policy"].startswith("sandbox;")
    told = ok(client, http("/T?cmd=consume&offset=0"))
    assert told.headers["content-type"] == "application/octet-stream"
    assert told.body == shown.body
    for reply in (shown, told):
        assert not {"set-cookie", "refresh", "x-app"} & reply.headers.keys()
        own = ("content-type", "set-cookie", "refresh", "x-app")
        said = [reply.headers[f"zbus-header-{name}"] for name in own]
        assert said == ["text/html; charset=gbk", "a=b", "0", "1"]


def test_what_a_service_answers_is_shown_in_the_sandbox() -> None:
    _, caller = declared("S?topic_mask=2")
    service = caller.world.connect()
    service.exchange(cmd("consume", "topic: S", "id: p"))
    caller.send(http("/S/page", *TYPED))
    caller.world.settle()
    (call,) = service.replies()
    lines = (f"recver: {call.headers['sender']}", f"id: {call.headers['origin_id']}")
    more = ("content-type: text/html", "set-cookie: a=b", "location: /T?cmd=remove")
    service.exchange(cmd("route", *lines, *more, "origin_status: 600", body=b"<h1>hello</h1>"))
    (answer,) = caller.replies()
    assert (answer.status, answer.body) == (600, b"<h1>hello</h1>")
    assert answer.headers["content-type"] == "text/html"
    assert answer.headers["content-security-policy"].startswith("sandbox;")
    assert not {"set-cookie", "location"} & answer.headers.keys()


# -- pages that are listed ------------------------------------------------------------------------


def test_a_listed_page_asks_first_and_then_does() -> None:
    _, client = strict()
    asks = (
        PAGE,
        "access-control-request-method: POST",
        "access-control-request-headers: content-type,tag",
    )
    allowed = client.request(http("/T", *asks, method="OPTIONS"))
    assert (allowed.status, allowed.body) == (204, b"")
    assert allowed.headers["access-control-allow-origin"] == "https://app.example"
    assert allowed.headers["access-control-allow-credentials"] == "true"
    assert allowed.headers["access-control-allow-methods"] == "POST"
    assert allowed.headers["access-control-allow-headers"] == "content-type,tag"
    lines = (PAGE, "sec-fetch-site: cross-site", "sec-fetch-mode: cors", "sec-fetch-dest: empty")
    stored = ok(client, http("/T", *lines, method="POST", body=b"x"))
    assert stored.headers["access-control-allow-origin"] == "https://app.example"
    assert "offset" in stored.headers["access-control-expose-headers"]
    assert ok(client, http("/T?cmd=consume", *lines)).body == b"x"
    assert drain(client) == [], "the preflight put nothing"


def test_a_page_that_is_not_listed_may_not_even_ask() -> None:
    _, client = strict()
    asks = ("origin: https://evil.example", "access-control-request-method: POST")
    refused = client.request(http("/T", *asks, method="OPTIONS"))
    assert refused.status == 403
    assert not [name for name in refused.headers if name.startswith("access-control-")]
    assert refused.body == (
        b"403: pages of https://evil.example may not use this broker; if they are to, add it to"
        b" the option cors_origins"
    )


# -- pages that are loaded again ------------------------------------------------------------------


def test_a_reload_puts_once() -> None:
    world, client = declared("T")
    first = ok(client, http("/T?body=a", *TYPED))
    assert "duplicate" not in first.headers
    world.advance(1_999)
    again = ok(world.connect(), http("/T?body=a", *TYPED, "cache-control: max-age=0"))
    assert (again.headers["offset"], again.headers["duplicate"]) == ("0", "1")
    world.advance(1)
    later = ok(client, http("/T?body=a", *TYPED))
    assert (later.headers["offset"], "duplicate" in later.headers) == ("1", False)
    assert drain(client) == [b"a", b"a"]


@pytest.mark.parametrize(
    ("target", "lines", "same"),
    [
        ("/T?body=a", (), True),
        ("/T?body=b", (), False),
        ("/T?body=a&tag=x", (), False),
        ("/T?body=a", ("cookie: token=other",), False),
        ("/T?body=a", ("user-agent: another",), False),
        ("/T?body=a", ("accept-encoding: gzip",), True),
        ("/t?body=a", (), False),
        ("/T?body=a&id=1", (), False),
    ],
)
def test_what_is_a_reload(target: str, lines: tuple[str, ...], same: bool) -> None:
    _, client = declared("T")
    ok(client, http("/T?body=a", *TYPED))
    assert ("duplicate" in ok(client, http(target, *TYPED, *lines)).headers) == same


def test_a_reload_from_elsewhere_is_none() -> None:
    world, client = declared("T")
    ok(client, http("/T?body=a", *TYPED))
    other = world.connect()
    other.peer.address = "10.0.0.7:40001"
    assert "duplicate" not in ok(other, http("/T?body=a", *TYPED)).headers


@pytest.mark.parametrize(
    "lines",
    [
        (),
        ("sec-fetch-site: same-origin", "sec-fetch-mode: cors", "sec-fetch-dest: empty"),
        ("origin: http://localhost",),
    ],
)
def test_only_opened_pages_are_loaded_again(lines: tuple[str, ...]) -> None:
    """A program or a script that asks twice means it."""
    _, client = declared("T")
    for _ in range(2):
        assert "duplicate" not in ok(client, http("/T?body=a", *lines)).headers
    assert drain(client) == [b"a", b"a"]


def test_an_old_browser_loads_again() -> None:
    _, client = declared("T")
    old = ("user-agent: Mozilla/5.0", "accept: text/html", "upgrade-insecure-requests: 1")
    ok(client, http("/T?body=a", *old))
    assert ok(client, http("/T?body=a", *old)).headers["duplicate"] == "1"


def test_the_window_may_be_off() -> None:
    _, client = strict(reload_window_ms=0)
    for _ in range(2):
        ok(client, http("/T?body=a", *TYPED))
    assert drain(client) == [b"a", b"a"]


def test_names_of_the_senders_choice_go_first() -> None:
    _, client = declared("T", "D?dedupe_ms=60000")
    for target in ("/T?body=a&idempotency-key=k", "/D?body=a&id=1"):
        ok(client, http(target, *TYPED))
        client.world.advance(3_000)
        assert ok(client, http(target, *TYPED)).headers["duplicate"] == "1"
    ok(client, http("/T?body=b&id=1", *TYPED))
    assert ok(client, http("/T?body=b&id=1", *TYPED)).headers["duplicate"] == "1"
    client.world.advance(3_000)
    assert "duplicate" not in ok(client, http("/T?body=b&id=1", *TYPED)).headers


def test_a_reload_before_the_first_is_durable_has_its_fate() -> None:
    journal = HeldJournal()
    world = World(journal)
    client, other = world.connect(), world.connect()
    client.send(http("/T?cmd=declare"))
    world.settle()
    journal.release()
    world.settle()
    client.replies()
    for one in (client, other):
        one.send(http("/T?body=a", *TYPED))
        world.settle()
        assert one.replies() == []
    journal.release()
    world.settle()
    (first,), (second,) = client.replies(), other.replies()
    assert (first.headers["offset"], second.headers["offset"]) == ("0", "0")
    assert second.headers["duplicate"] == "1"


def test_a_removed_topic_is_another() -> None:
    _, client = declared("T")
    ok(client, http("/T?body=a", *TYPED))
    ok(client, http("/T?cmd=remove"))
    ok(client, http("/T?cmd=declare"))
    assert "duplicate" not in ok(client, http("/T?body=a", *TYPED)).headers
    assert drain(client) == [b"a"]


def test_a_call_is_made_again() -> None:
    """The broker keeps no answers of services."""
    world, caller = declared("S?topic_mask=2")
    for _ in range(2):
        caller.send(http("/S/m", *TYPED))
    world.settle()
    query = document(ok(world.connect(), http("/S/S?cmd=query")))
    assert query["messageCount"] == 2


def test_what_is_remembered_is_bounded() -> None:
    world, client = declared("T")
    for number in range(reloads.COUNT_MAX + 10):
        ok(client, http(f"/T?body={number}", *TYPED))
    opened = world.dialect.reloads._opened
    assert len(opened) == reloads.COUNT_MAX
    assert "duplicate" not in ok(client, http("/T?body=0", *TYPED)).headers
    newest = http(f"/T?body={reloads.COUNT_MAX}", *TYPED)
    assert ok(client, newest).headers["duplicate"] == "1"


# -- what a browser says unasked ------------------------------------------------------------------

UNASKED = (
    "cookie: token=secret; sid=secret",
    "referer: http://127.0.0.1:15555/?token=secret",
    "authorization: Basic secret",
)


def test_secrets_of_other_programs_do_not_travel_with_messages() -> None:
    """All ports of a host share cookies: these are of whatever else runs there."""
    _, client = strict()
    ok(client, http("/T?body=x", *TYPED, UNASKED[0], UNASKED[2]))
    ok(client, http("/T", "origin: http://localhost", *UNASKED, body=b"y"))
    for _ in range(2):
        reply = ok(client, http("/T?cmd=consume&batch=1"))
        assert b"secret" not in reply.body, reply.body


def test_secrets_of_programs_are_not_stored() -> None:
    """A log hands them to every consumer."""
    _, client = strict()
    ok(client, http("/T?cmd=declare&sender_headers=1"))
    ok(client, http("/T", *UNASKED, body=b"x"))
    batch = b"GET / HTTP/1.1\r\nauthorization: Bearer secret\r\ncontent-length: 1\r\n\r\nx"
    kind = "content-type: application/vnd.zbus.messages"
    ok(client, http("/T", kind, method="POST", body=batch))
    ok(client, cmd("produce", "topic: T", "authorization: secret", body=b"x"))
    for _ in range(3):
        headers = ok(client, cmd("consume", "topic: T")).headers
        assert not {"cookie", "authorization"} & headers.keys()


def test_a_credential_is_for_the_service_that_is_called() -> None:
    world, client = strict()
    ok(client, http("/R?cmd=declare&topic_mask=3"))
    service = world.connect()
    for target, body in (("/R", b"x"), ("/R/plus/1/2", b"")):
        service.send(http("/R?cmd=consume"))
        client.send(http(target, PAGE, "authorization: Bearer of-a-service", body=body))
        world.settle()
        (call,) = service.replies()
        assert call.headers["zbus-header-authorization"] == "Bearer of-a-service"
        client = world.connect()


@pytest.mark.parametrize("line", [*UNASKED[::2], "authorization: Bearer secret"])
def test_credentials_are_not_routed(line: str) -> None:
    """Whoever routes: they are between a client and the broker."""
    world, router = strict()
    target = world.connect()
    ok(target, cmd("ping", "id: 1"))
    recver = target.peer.id.decode()
    router.exchange(cmd("route", f"recver: {recver}", "id: 7", line, body=b"x"))
    (reply,) = target.replies()
    assert not {"authorization", "cookie"} & reply.headers.keys()
