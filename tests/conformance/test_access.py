"""Tokens in dialogues: what is refused and how, what is seen, what ends when rights end."""

from __future__ import annotations

from base64 import b64encode
from hashlib import sha256
from typing import Any

import pytest

from tests.conformance.dialogue import (
    EPOCH_MS,
    TYPED,
    Client,
    World,
    cmd,
    document,
    http,
    ok,
    pull,
)
from zbus.edge.access import Access, Entry, make_grant
from zbus.edge.connection import Connection
from zbus.wire.heads.heads import Head

ADMIN = "token: admin"

FORM_SENT = (
    "accept: text/html,*/*;q=0.8",
    "sec-fetch-site: same-origin",
    "sec-fetch-mode: navigate",
    "sec-fetch-dest: document",
    "origin: http://localhost",
)
"""What a browser says of a form of ours that a person sends."""


def digest(token: str) -> bytes:
    return sha256(token.encode()).digest()


def entry(
    name: str,
    operations: str,
    topics: dict[str, list[str]] | None = None,
    *,
    tokens: str = "",
    **more: Any,
) -> Entry:
    """`tokens` are those of this entry, by default one that is called like it."""
    expires_ms = more.pop("expires_ms", 1 << 63)
    grant = make_grant(
        name, operations.split(), {"*": []} if topics is None else topics, expires_ms
    )
    return Entry(grant, tuple(digest(token) for token in (tokens or name).split()), **more)


ADMIN_ENTRY = entry("admin", "admin")


def world_with(*entries: Entry, url_allowed: bool = False) -> tuple[World, Client]:
    """A world with these tokens and an admin; its client has declared Orders and Secret."""
    access = Access([ADMIN_ENTRY, *entries])
    world = World(access=access, allow_url_token=url_allowed)
    client = world.connect()
    for path in ("Orders", "Orders/billing", "Orders/audit", "Secret"):
        ok(client, http(f"/{path}?cmd=declare", ADMIN))
    return world, client


def replace_table(world: World, *entries: Entry) -> None:
    """As the broker does it: the new table, then what it ends."""
    access = world.front.rights.access
    assert access is not None
    world.posted.append(lambda: access.update(entries))
    world.posted.append(world.front.upkeep)
    world.settle()


def pass_time(world: World, ms: int) -> None:
    world.advance(ms)
    world.posted.append(world.front.upkeep)  # the server does so once a second
    world.settle()


# -- refusals -------------------------------------------------------------------------------------


REFUSALS = [
    (cmd("declare", "topic: MyTopic"), "403: Command(declare) Topic(MyTopic) Forbbiden"),
    (cmd("produce", "topic: Orders", body=b"x"), "403: Command(produce) Topic(Orders) Forbbiden"),
    (cmd("query"), "403: Command(query) Forbbiden"),
    (cmd("server"), "403: Command(server) Forbbiden"),
    (cmd("track_sub"), "403: Command(track_sub) Forbbiden"),
    (cmd("ping"), "403: Command(ping) Forbbiden"),
    (cmd("<b>"), "403: Command(<b>) Forbbiden"),
    (cmd(""), "403: Command() Forbbiden"),
    (cmd("consume"), "403: Command(consume) Forbbiden"),  # before anything else is looked at
    (http("/Orders", body=b"x"), "403: Command(produce) Topic(Orders) Forbidden"),
    (http("/_log/Orders"), "403: Command(read) Topic(Orders) Forbidden"),
    (http("/Nope?cmd=consume"), "403: Command(consume) Topic(Nope) Forbidden"),
]


@pytest.mark.parametrize(("data", "text"), REFUSALS, ids=[text for _, text in REFUSALS])
@pytest.mark.parametrize("shown", ["", "token: wrong\r\n"])
def test_without_a_known_token_everything_is_refused(data: bytes, text: str, shown: str) -> None:
    _, client = world_with()
    data = data.replace(b"\r\n", b"\r\n" + shown.encode(), 1)
    reply = client.request(data)
    if shown and text.endswith("Forbidden"):  # stock clients get the original's words
        text += "; this token is not known"
    assert (reply.status, reply.body.decode()) == (403, text)
    assert "content-type" not in reply.headers
    assert client.request(http("/?cmd=heartbeat")).status == 204, "the connection is still usable"


def test_the_refusal_has_id_and_topic() -> None:
    _, client = world_with()
    reply = client.request(cmd("consume", "topic: oRDERS", "id: 7"))
    assert (reply.status, reply.headers["id"], reply.headers["topic"]) == (403, "7", "oRDERS")


def test_what_needs_no_token() -> None:
    _, client = world_with()
    assert client.request(http("/?cmd=heartbeat")).status == 204
    assert client.exchange(cmd("heartbeat")) == []
    assert client.request(http("/favicon.ico")).status == 200
    assert client.request(http("/?cmd=login")).status == 200
    assert client.request(http("/_nothing")).status == 404


def test_a_quiet_produce_is_told_of_its_refusal() -> None:
    """Stock callers send `ack: 0` and wait for an answer of that id: they would wait for ever."""
    _, client = world_with()
    reply = client.request(cmd("produce", "topic: Orders", "ack: 0", "id: 7", body=b"x"))
    assert (reply.status, reply.headers["id"]) == (403, "7")


def test_refusals_keep_the_order_of_plain_http() -> None:
    _, client = world_with()
    bodies = [
        reply.status
        for reply in client.exchange(
            http("/?cmd=ping", ADMIN) + http("/?cmd=ping") + http("/?cmd=query", ADMIN)
        )
    ]
    assert bodies == [200, 403, 200]


def test_malformed_requests_of_strangers_say_no_more_than_others() -> None:
    _, client = world_with()
    assert refused_status(client, http("/?cmd=consume&offset=x")) == 403
    assert refused_status(client, http("/?cmd=consume&offset=x", ADMIN)) == 400
    assert refused_status(client, http("/?cmd=nonsense", ADMIN)) == 400


def refused_status(client: Client, data: bytes) -> int:
    return client.request(data).status


def test_unknown_topics_are_unknown_only_to_those_who_may_see_them() -> None:
    _, client = world_with(entry("b", "consume produce query declare", {"Orders": [], "New": []}))
    for command, status in (("consume", 404), ("produce", 404), ("query", 404)):
        assert client.request(http(f"/New?cmd={command}", "token: b")).status == status
    for topic in ("Secret", "Nope"):
        for command, status in (("consume", 403), ("produce", 403), ("query", 404)):
            reply = client.request(http(f"/{topic}?cmd={command}", "token: b"))
            assert reply.status == status
            assert topic.encode() in reply.body
    secret, nope = (
        client.request(http(f"/{topic}?cmd=query", "token: b")).body.replace(topic.encode(), b"")
        for topic in ("Secret", "Nope")
    )
    assert secret == nope, "a query does not tell whether a hidden topic is there"


# -- what each may --------------------------------------------------------------------------------


def test_a_whole_dialogue() -> None:
    _, client = world_with(
        entry("shop", "produce", {"Orders": []}),
        entry("billing", "consume", {"Orders": ["billing"]}),
    )
    ok(client, http("/Orders", "token: shop", body=b"one"))
    assert client.request(http("/Orders", "token: billing", body=b"x")).status == 403
    assert client.request(http("/Orders/billing?cmd=consume", "token: shop")).status == 403
    assert client.request(http("/Orders/audit?cmd=consume", "token: billing")).status == 403
    assert client.request(http("/Orders?cmd=consume", "token: billing")).status == 403
    reply = ok(client, http("/Orders/billing?cmd=consume", "token: billing"))
    assert reply.body == b"one"


def test_names_are_compared_without_regard_to_case() -> None:
    _, client = world_with(entry("b", "consume produce", {"ORDERS": ["BILLING"]}))
    ok(client, http("/oRdErS", "token: b", body=b"x"))
    assert ok(client, http("/orders/Billing?cmd=consume", "token: b")).body == b"x"


def test_a_declare_may_not_look_at_a_hidden_group() -> None:
    _, client = world_with(entry("b", "declare", {"Orders": ["b*"]}))
    ok(client, http("/Orders/b1?cmd=declare&group_start_copy=billing", "token: b"))
    data = http("/Orders/b2?cmd=declare&group_start_copy=audit", "token: b")
    assert refused_status(client, data) == 403
    assert refused_status(client, http("/Orders?cmd=declare&group_name_auto=1", "token: b")) == 403


def test_dead_letters_go_only_where_one_may_put_them() -> None:
    words = "/Orders/g?cmd=declare&group_mask=64&group_max_attempts=1&group_dead_letter=Secret"
    some, others = {"Orders": ["*"]}, {"*": ["*"]}
    _, client = world_with(
        entry("here", "declare produce", some),
        entry("reader", "declare", others),
        entry("both", "declare produce", others),
    )
    assert refused_status(client, http(words, "token: here")) == 404
    assert refused_status(client, http(words, "token: reader")) == 403
    assert document(ok(client, http(words, "token: both")))["deadLetter"] == "Secret"


def test_automatic_names_need_all_groups_that_begin_with_the_topic() -> None:
    _, client = world_with(
        entry("some", "declare", {"Orders": ["Orders", "Orders0"]}),
        entry("all", "declare", {"Orders": ["Orders*"]}),
    )
    data = "/Orders?cmd=declare&group_name_auto=1"
    assert refused_status(client, http(data, "token: some")) == 403
    assert document(ok(client, http(data, "token: all")))["groupName"] == "Orders0"


@pytest.mark.parametrize("command", ["remove", "empty"])
def test_a_whole_topic_needs_all_of_its_groups(command: str) -> None:
    _, client = world_with(
        entry("one", command, {"Orders": ["Orders"]}), entry("all", command, {"Orders": []})
    )
    assert refused_status(client, http(f"/Orders?cmd={command}", "token: one")) == 403
    assert refused_status(client, http(f"/Orders/audit?cmd={command}", "token: one")) == 403
    assert refused_status(client, http(f"/Orders/Orders?cmd={command}", "token: one")) == 200
    assert refused_status(client, http(f"/Orders?cmd={command}", "token: all")) == 200


def test_an_ack_needs_the_topic_and_no_operation() -> None:
    _, client = world_with(
        entry("b", "route", {"Orders": ["billing"]}), entry("n", "route", {"Secret": []})
    )
    assert client.request(http("/Orders/billing?cmd=ack&offset=0", "token: b")).status == 200
    assert client.request(http("/Orders/billing?cmd=ack&offset=0", "token: n")).status == 403


def test_a_batch_is_of_its_topic() -> None:
    world, client = world_with(entry("p", "produce", {"Orders": []}))
    inner = b"POST /Secret HTTP/1.1\r\ntopic: Secret\r\ntoken: t\r\ncontent-length: 1\r\n\r\nx"
    kind = "content-type: application/vnd.zbus.messages"
    ok(client, http("/Orders", kind, "token: p", body=inner * 2))
    assert world.broker.topics["orders"].depth() == 2
    assert world.broker.topics["secret"].depth() == 0
    assert refused_status(client, http("/Secret", kind, "token: p", body=inner)) == 403


def test_rpc_is_produce_consume_and_route() -> None:
    world, client = world_with(
        entry("caller", "produce", {"Calc": []}),
        entry("service", "consume route", {"Calc": []}),
    )
    ok(client, http("/Calc?cmd=declare&topic_mask=3", ADMIN))
    service = world.connect()
    service.send(cmd("consume", "topic: Calc", "id: 1", "token: service"))
    world.settle()
    client.send(cmd("produce", "topic: Calc", "id: q", "ack: 0", "token: caller", body=b"2+2"))
    world.settle()
    (call,) = service.replies()
    assert (call.body, "token" in call.headers) == (b"2+2", False)
    lines = (f"recver: {call.headers['sender']}", "id: q", "origin_status: 200")
    (reply,) = service.exchange(cmd("route", *lines, "token: caller", body=b"5"))
    assert (reply.status, reply.body) == (403, b"403: Command(route) Forbbiden")
    assert client.replies() == []
    service.send(cmd("route", *lines, "token: service", body=b"4"))
    world.settle()
    assert [reply.body for reply in client.replies()] == [b"4"]


# -- who asks -------------------------------------------------------------------------------------


def test_two_tokens_at_once_for_rotation() -> None:
    world, client = world_with(entry("b", "query", tokens="old new"))
    for token in ("old", "new"):
        ok(client, http("/Orders?cmd=query", f"token: {token}"))
    replace_table(world, entry("b", "query", tokens="new newer"))
    statuses = [
        refused_status(client, http("/Orders?cmd=query", f"token: {token}"))
        for token in ("old", "new", "newer", "old", "admin")
    ]
    assert statuses == [403, 200, 200, 403, 403]
    replace_table(world, entry("b", "query", tokens="old"))
    assert refused_status(client, http("/Orders?cmd=query", "token: old")) == 200


def test_a_token_that_becomes_known_counts_for_heads_seen_before() -> None:
    world, client = world_with()
    for _ in range(3):
        assert refused_status(client, http("/Orders?cmd=query", "token: late")) == 403
    replace_table(world, entry("late", "query"))
    assert refused_status(client, http("/Orders?cmd=query", "token: late")) == 200
    replace_table(world, entry("late", "query", {"Secret": []}))
    assert refused_status(client, http("/Orders?cmd=query", "token: late")) == 404


def test_a_certificate_counts_where_no_token_is_shown() -> None:
    world, _ = world_with(
        entry("machine", "query", {"Orders": []}, tokens="t", principals=("machine-7",))
    )
    client, other, stranger = world.connect(), world.connect(), world.connect()
    client.peer.principal = "machine-7"
    other.peer.principal = "machine-8"
    data = http("/Orders?cmd=query")  # one head, three peers
    statuses = [refused_status(c, data) for c in (client, other, stranger) * 2]
    assert statuses == [200, 403, 403] * 2
    assert refused_status(client, http("/Orders?cmd=query", "token: wrong")) == 403
    assert refused_status(other, http("/Orders?cmd=query", "token: t")) == 200
    replace_table(world, entry("machine", "query", tokens="t"))
    assert refused_status(client, data) == 403


def test_the_anonymous_are_whoever_shows_nothing() -> None:
    world, client = world_with(entry("public", "consume query", {"Orders": []}, anonymous=True))
    assert refused_status(client, http("/Orders?cmd=query")) == 200
    assert refused_status(client, http("/Secret?cmd=query")) == 404
    assert refused_status(client, http("/Orders?cmd=query", "token: wrong")) == 403
    replace_table(world)
    assert refused_status(client, http("/Orders?cmd=query")) == 403


def admit(world: World, peer: Connection, head: Head) -> str:
    return world.front.rights.admit(peer, head, world.dialect.read(head))


def test_a_handshake_speaks_for_its_connection() -> None:
    world, _ = world_with(entry("b", "query"), entry("c", "server"))
    client, other = world.connect(), world.connect()
    head, _ = world.dialect.heads.read(b"GET / HTTP/1.1\r\nhost: x\r\ncookie: token=b")
    assert admit(world, client.peer, head) == ""
    assert refused_status(client, http("/Orders?cmd=query")) == 200
    assert refused_status(other, http("/Orders?cmd=query")) == 403
    # A request's own token comes first, for that request.
    assert refused_status(client, http("/Orders?cmd=query", "token: c")) == 403
    assert refused_status(client, http("/?cmd=server")) == 403
    assert refused_status(client, http("/?cmd=server", "token: c")) == 200
    replace_table(world, entry("c", "server"))
    assert refused_status(client, http("/Orders?cmd=query")) == 403


@pytest.mark.parametrize(
    ("head", "text"),
    [
        (b"GET / HTTP/1.1\r\nhost: x", ""),
        (b"GET / HTTP/1.1\r\nhost: x\r\ntoken: wrong", "this token is not known"),
        (b"GET /?token=b HTTP/1.1\r\nhost: x", "a token in the URL is not taken here: "
         "send it as a header or cookie"),
    ],
)  # fmt: skip
def test_a_handshake_with_a_bad_token_is_refused(head: bytes, text: str) -> None:
    world, client = world_with(entry("b", "query"))
    assert admit(world, client.peer, world.dialect.heads.read(head)[0]) == text
    assert refused_status(client, http("/Orders?cmd=query")) == 403
    open_world = World()
    peer = open_world.connect().peer
    assert admit(open_world, peer, open_world.dialect.heads.read(head)[0]) == ""


def test_the_log_tells_of_refusals_but_no_token(caplog: pytest.LogCaptureFixture) -> None:
    world, client = world_with(entry("b", "query"))
    for token in ("b", "of-nobody", "of-nobody"):
        assert refused_status(client, http("/Orders?body=x", f"token: {token}")) == 403
    world.advance(1_000)
    assert refused_status(client, http("/Orders?body=x")) == 403
    first, second = caplog.records
    assert (first.who, first.command, first.topic, first.times) == ("b", "produce", "Orders", 1)  # type: ignore[attr-defined]
    assert (second.who, second.times) == ("no token", 3)  # type: ignore[attr-defined]
    assert "of-nobody" not in str([record.__dict__ for record in caplog.records])


def test_a_bearer_is_a_token() -> None:
    world, client = world_with(entry("b", "*"))
    ok(client, http("/Orders", "authorization: Bearer b", body=b"x"))
    ok(client, http("/Orders", "cmd: produce", "authorization: bearer  b", body=b"x"))
    for lines in (("authorization: Basic b",), ("authorization: Bearer a",), ("authorization: b",)):
        assert refused_status(client, http("/Orders?cmd=query", *lines)) == 403
    # A header `token` decides before it.
    both = http("/Orders?cmd=query", "token: wrong", "authorization: Bearer b")
    assert refused_status(client, both) == 403
    topic = world.broker.topic("Orders")
    assert topic is not None
    for offset in range(2):
        chunk = topic.partitions[0].log.find(offset)
        assert chunk is not None
        assert b"authorization" not in chunk.message(offset - chunk.first).headers


def basic(credentials: str) -> str:
    return "authorization: Basic " + b64encode(credentials.encode()).decode()


BASIC = [  # of a broker that knows the tokens b and other
    (basic(":b"), 200),
    (basic("b:"), 200),
    (basic("anything:b"), 200),
    (basic("b:anything"), 200),
    (basic("other:b"), 200),
    (basic("b:other"), 403),  # the password counts if it is a token
    (basic("b:c:d"), 200),
    (basic(":b").replace("Basic", "basic"), 200),
    (basic(":b") + "\r\ntoken: other", 403),  # what stands before it counts
    (basic(":b") + "\r\ncookie: token=other", 403),
    (basic(":other") + "\r\ncookie: token=b", 200),
    (basic("x:y"), 403),
    (basic("b"), 403),  # without a colon
    (basic(":" + "b" * 5_000), 403),
    ("authorization: Basic %", 403),
    ("authorization: Basic b", 403),
    ("authorization: Basic Ome", 403),
    ("authorization: Basic OmI=OmI=", 403),
    ("authorization: Basic \xff", 403),
    ("authorization: Basic :b", 403),
    (basic(":"), 403),
    ("authorization: Basic", 403),
    ("authorization: Basic ", 403),
]


@pytest.mark.parametrize(("line", "status"), BASIC)
def test_a_token_as_password_or_user(line: str, status: int) -> None:
    _, client = world_with(entry("b", "query produce"), entry("other", "consume"))
    assert client.request(http("/Orders?cmd=query", line)).status == status
    assert client.request(cmd("query", "topic: Orders", *line.split("\r\n"))).status == status
    assert client.request(http("/?cmd=ping", ADMIN)).status == 200, "the connection lives on"
    if status == 200:
        ok(client, http("/Orders", *line.split("\r\n"), body=b"x"))


def test_a_password_that_is_no_token_is_not_nobody() -> None:
    """Whoever shows one means it; an empty one is none, like everywhere."""
    _, client = world_with(entry("public", "query", anonymous=True))
    statuses = [
        client.request(http("/Orders?cmd=query", *lines)).status
        for lines in ((), (basic("x:y"),), (basic(":"),), ("authorization: Basic",))
    ]
    assert statuses == [200, 403, 200, 200]


OF_BROWSERS = [
    TYPED,
    ("sec-fetch-site: same-origin",),
    ("origin: http://localhost",),
    ("accept: */*", "user-agent: Mozilla/5.0", "upgrade-insecure-requests: 1"),
]


@pytest.mark.parametrize("lines", OF_BROWSERS)
def test_the_password_that_a_browser_adds_does_not_count(lines: tuple[str, ...]) -> None:
    """It does so for requests of any page; a cookie it keeps back."""
    _, client = world_with(entry("b", "query"))
    data = http("/Orders?cmd=query", *lines, basic(":b"))
    assert client.request(data).status in (302, 403)
    data = http("/Orders?cmd=query", *lines, basic(":other"), "cookie: token=b")
    assert client.request(data).status == 200


def test_the_token_in_a_password_is_stored_nowhere() -> None:
    world, client = world_with(entry("b", "*"))
    ok(client, http("/R?cmd=declare&topic_mask=3", ADMIN))
    service = world.connect()
    service.send(http("/R?cmd=consume", ADMIN))
    for target in ("/Orders?sender_headers=true", "/R", "/R/plus/1"):
        client.send(http(target, basic(":b"), body=b"x" if target != "/R/plus/1" else b""))
        client = world.connect()
    world.settle()
    service.send(http("/R?cmd=consume", ADMIN))
    world.settle()
    calls = service.replies()
    assert len(calls) == 2
    assert not any("authorization" in call.headers for call in calls)
    topic = world.broker.topic("Orders")
    assert topic is not None
    chunk = topic.partitions[0].log.find(0)
    assert chunk is not None
    assert b"authorization" not in chunk.message(0).headers


# -- rights that end ------------------------------------------------------------------------------


def test_an_expired_token_is_refused_on_an_open_connection() -> None:
    world, client = world_with(entry("b", "query", expires_ms=EPOCH_MS + 5_000))
    data = http("/Orders?cmd=query", "token: b")
    ok(client, data)
    world.advance(4_999)
    ok(client, data)
    world.advance(1)
    assert refused_status(client, data) == 403
    assert refused_status(client, http("/?cmd=ping", ADMIN)) == 200


@pytest.mark.parametrize("how", ["expiry", "removed", "narrowed", "regrouped"])
@pytest.mark.parametrize("form", ["multiplexed", "plain", "window"])
def test_a_waiting_consume_ends_with_its_right(how: str, form: str) -> None:
    b = entry("b", "consume produce", {"Orders": ["billing"]}, expires_ms=EPOCH_MS + 5_000)
    other = entry("other", "consume", {"Orders": ["billing"]})
    world, client = world_with(b, other)
    waiting, untouched = world.connect(), world.connect()
    lines = ("topic: Orders", "consume_group: billing", "id: 7")
    if form == "plain":
        waiting.send(http("/Orders/billing?cmd=consume", "token: b"))
    else:
        window = ("consume_window: 10",) if form == "window" else ()
        waiting.send(cmd("consume", *lines, *window, "token: b"))
    untouched.send(cmd("consume", *lines, "token: other"))
    world.settle()
    assert waiting.replies() == []
    changed = {
        "removed": [],
        "narrowed": [entry("b", "produce", {"Orders": ["billing"]})],
        "regrouped": [entry("b", "consume", {"Orders": ["audit"]})],
    }
    if how == "expiry":
        pass_time(world, 5_000)
    else:
        replace_table(world, ADMIN_ENTRY, other, *changed[how])
    (reply,) = waiting.replies()
    word = b"Forbidden" if form == "plain" else b"Forbbiden"  # to the original's own protocol
    expected = (403, b"403: Command(consume) Topic(Orders) " + word)
    assert (reply.status, reply.body) == expected
    group = world.broker.topics["orders"].groups["billing"]
    assert list(group.readers) == [untouched.peer]
    ok(client, http("/Orders", ADMIN, body=b"x"))
    assert [reply.body for reply in untouched.replies()] == [b"x"]
    assert waiting.replies() == []
    world.broker.check()


def test_a_waiting_consume_goes_on_if_its_right_does() -> None:
    b = entry("b", "consume", {"Orders": ["billing"]}, tokens="b b2")
    world, client = world_with(b)
    waiting = world.connect()
    waiting.send(http("/Orders/billing?cmd=consume", "token: b"))
    world.settle()
    replace_table(world, ADMIN_ENTRY, entry("b", "consume produce", {"*": []}, tokens="x b"))
    pass_time(world, 60_000)
    assert waiting.replies() == []
    ok(client, http("/Orders", ADMIN, body=b"x"))
    assert [reply.body for reply in waiting.replies()] == [b"x"]


def test_an_exclusive_group_is_free_when_its_reader_may_not_read_it_any_more() -> None:
    world, client = world_with(entry("b", "consume"), entry("c", "consume"))
    ok(client, http("/Orders/solo?cmd=declare&group_mask=16", ADMIN))
    first, second = world.connect(), world.connect()
    assert first.request(http("/Orders/solo?cmd=consume&timeout=0", "token: b")).status == 204
    assert second.request(http("/Orders/solo?cmd=consume&timeout=0", "token: c")).status == 401
    replace_table(world, ADMIN_ENTRY, entry("c", "consume"))
    assert second.request(http("/Orders/solo?cmd=consume&timeout=0", "token: c")).status == 204


def test_what_is_remembered_of_a_reader_is_what_it_reads() -> None:
    world, client = world_with(entry("b", "consume unconsume"))
    reader = world.connect()
    for number in range(50):
        ok(client, http(f"/Orders/g{number}?cmd=declare", ADMIN))
        reader.request(http(f"/Orders/g{number}?cmd=consume&timeout=0", "token: b"))
        assert reader.request(http(f"/Orders/g{number}?cmd=unconsume", "token: b")).status == 204
    assert len(reader.peer.admitted or ()) <= 2
    replace_table(world, ADMIN_ENTRY)
    assert not reader.peer.admitted


def test_the_last_token_on_a_connection_is_the_readers() -> None:
    world, _ = world_with(entry("b", "consume"), entry("c", "consume"))
    reader = world.connect()
    for token in ("b", "c"):
        reader.request(http("/Orders/billing?cmd=consume&timeout=0", f"token: {token}"))
    replace_table(world, ADMIN_ENTRY, entry("c", "consume"))
    assert reader.peer.groups
    replace_table(world, ADMIN_ENTRY, entry("b", "consume"))
    assert not reader.peer.groups


# -- filtered documents ---------------------------------------------------------------------------


def test_documents_hold_what_may_be_seen() -> None:
    world, client = world_with(
        entry("b", "server query declare", {"Orders": ["billing", "b*"]}), entry("all", "*")
    )
    reader = world.connect()
    reader.request(http("/Orders/audit?cmd=consume&timeout=0", ADMIN))
    for path in ("/?cmd=server", "/?cmd=query"):
        table = document(ok(client, http(path, "token: b")))["topicTable"]
        assert list(table) == ["Orders"]
        groups = [group["groupName"] for group in table["Orders"]["consumeGroupList"]]
        assert (groups, table["Orders"]["consumerCount"]) == (["billing"], 0)
        whole = document(ok(client, http(path, "token: all")))["topicTable"]
        assert sorted(whole) == ["Orders", "Secret"]
        assert whole["Orders"]["consumerCount"] == 1
    topic = document(ok(client, http("/Orders?cmd=query", "token: b")))
    assert [group["groupName"] for group in topic["consumeGroupList"]] == ["billing"]
    ok(client, http("/Orders/billing?cmd=query", "token: b"))
    reply = client.request(http("/Orders/audit?cmd=query", "token: b"))
    assert (reply.status, reply.body) == (404, b"404: ConsumeGroup(audit) Not Found")
    reply = client.request(http("/Secret?cmd=query", "token: b"))
    assert (reply.status, reply.body) == (404, b"404: Topic(Secret) Not Found")
    reply = ok(client, http("/Orders/billing?cmd=declare", "token: b"))
    assert document(reply)["groupName"] == "billing"


def test_a_declare_answers_with_what_may_be_seen_by_who_declared() -> None:
    """Its answer comes after a sync, when another request of the connection may be the last."""
    _, client = world_with(entry("b", "declare", {"Orders": ["Orders"]}))
    first, second = client.exchange(
        cmd("declare", "topic: Orders", "topic_mask: 0", "id: 1", "token: b")
        + cmd("declare", "topic: Orders", "topic_mask: 0", "id: 2", ADMIN)
    )
    names = [group["groupName"] for group in document(first)["consumeGroupList"]]
    assert (first.headers["id"], names) == ("1", ["Orders"])
    assert len(document(second)["consumeGroupList"]) == 3


# -- login ----------------------------------------------------------------------------------------


def login(client: Client, body: bytes) -> tuple[int, str, str]:
    kind = "content-type: application/x-www-form-urlencoded"
    reply = client.request(http("/?cmd=login", kind, body=body, method="POST"))
    return reply.status, reply.headers["location"], reply.headers.get("set-cookie", "")


def test_login_and_logout() -> None:
    _, client = world_with(entry("b", "route"))
    form = ok(client, http("/?cmd=login"))
    assert form.headers["content-type"].startswith("text/html")
    assert b'<form method="post" action="/?cmd=login">' in form.body
    status, location, cookie = login(client, b"token=b")
    assert (status, location) == (302, "/")
    assert cookie == "token=b; HttpOnly; SameSite=Strict; Path=/"
    ok(client, http("/?cmd=version", "cookie: " + cookie.partition(";")[0]))
    reply = client.request(http("/?cmd=logout", "cookie: token=b"))
    assert (reply.status, reply.headers["location"]) == (302, "/?cmd=login")
    assert reply.headers["set-cookie"] == "token=; HttpOnly; SameSite=Strict; Path=/; Max-Age=0"


def test_over_tls_the_cookie_is_for_tls() -> None:
    _, client = world_with(entry("b", "route"))
    client.peer.secure = True
    assert login(client, b"token=b")[2].endswith("; Path=/; Secure")


@pytest.mark.parametrize(
    "body",
    [b"token=wrong", b"token=", b"token", b"x=b", b"b", b"token=b" + b" " * 9000, b"\xff\0=&=&%"],
)
def test_login_with_anything_else(body: bytes) -> None:
    _, client = world_with(entry("b", "route"))
    assert login(client, body) == (302, "/?cmd=login", "")


def test_a_person_is_told_that_the_token_is_unknown() -> None:
    _, client = world_with(entry("b", "route"))
    assert b"does not know that token" not in ok(client, http("/?cmd=login", *TYPED)).body
    reply = client.request(http("/?cmd=login", *FORM_SENT, body=b"token=wrong", method="POST"))
    assert (reply.status, "set-cookie" in reply.headers) == (403, False)
    assert reply.headers["content-type"] == "text/html; charset=utf-8"
    assert b"does not know that token" in reply.body
    assert b'<form method="post" action="/?cmd=login">' in reply.body
    reply = client.request(http("/?cmd=login", *FORM_SENT, body=b"token=b", method="POST"))
    assert (reply.status, reply.headers["location"]) == (302, "/")


def test_the_form_fits_a_telephone() -> None:
    _, client = world_with()
    assert b'<meta name="viewport" content="width=device-width">' in (
        ok(client, http("/?cmd=login")).body
    )


@pytest.mark.parametrize("target", ["/?cmd=query", "/Orders?cmd=query", "/Orders?body=x"])
@pytest.mark.parametrize("token", ["", "wrong", "old"])
def test_a_person_without_a_known_token_is_sent_to_the_form(target: str, token: str) -> None:
    world, client = world_with(entry("old", "route", expires_ms=EPOCH_MS + 1))
    world.advance(1)
    shown = (f"cookie: token={token}",) if token else ()
    reply = client.request(http(target, *TYPED, *shown))
    assert (reply.status, reply.headers.get("location")) == (302, "/?cmd=login")
    # A script of a page, or a program, is told in words.
    script = ("sec-fetch-site: same-origin", "sec-fetch-mode: cors", "sec-fetch-dest: empty")
    assert client.request(http(target, *script, *shown)).status == 403
    assert client.request(http(target, *shown)).status == 403


def test_a_person_whose_token_lacks_a_right_is_told_so() -> None:
    _, client = world_with(entry("b", "route"))
    reply = client.request(http("/?cmd=query", *TYPED, "cookie: token=b"))
    text = "403: Command(query) Forbidden; log in anew at /?cmd=logout"
    assert (reply.status, reply.body.decode()) == (403, text)


def test_login_with_an_expired_token() -> None:
    world, client = world_with(entry("b", "route", expires_ms=EPOCH_MS + 1))
    assert login(client, b"token=b")[1] == "/"
    world.advance(1)
    assert login(client, b"token=b")[1] == "/?cmd=login"


def test_any_token_travels_through_form_and_cookie() -> None:
    strange = 'a b+c;"%41\\,=&\r\nset-cookie: x=y é'
    access = Access([Entry(make_grant("s", ["route"], {}), (digest(strange),))])
    client = World(access=access).connect()
    coded = b"".join(b"%%%02X" % byte for byte in strange.encode())
    _, location, cookie = login(client, b"a=b&token=" + coded)
    assert location == "/"
    assert set(cookie.partition("; ")[0]) <= set(map(chr, range(33, 127))) - set(' ",;\\')
    ok(client, http("/?cmd=version", "cookie: " + cookie.partition(";")[0]))


def test_login_without_access_control() -> None:
    client = World().connect()
    cookie = "token=abc; HttpOnly; SameSite=Strict; Path=/"
    assert login(client, b"token=abc") == (302, "/", cookie)
    assert client.request(http("/?cmd=logout")).status == 302


def test_login_as_stock_clients_would() -> None:
    _, client = world_with(entry("b", "route"))
    reply = client.request(cmd("login", "id: 1", body=b"token=b"))
    assert (reply.status, reply.headers["location"], reply.headers["id"]) == (302, "/", "1")


# -- a token is for the broker alone --------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "lines"),
    [
        ("/Orders", ["token: SECRET7"]),
        ("/Orders", ["cookie: a=1; token=SECRET7; b=2"]),
        ("/Orders", ["cookie: token=SECRET7"]),
        ("/Orders?token=SECRET7&x=1", []),
        ("/Orders?x=1&tok%65n=SECRET7", []),
        ("/Orders?TOKEN=SECRET7", []),
        ("/?token=SECRET7&topic=Orders&cmd=produce", []),
        ("/a?token=SECRET7", ["cmd: produce", "topic: Orders", "token: SECRET7"]),
    ],
)
@pytest.mark.parametrize("on", [True, False])
def test_no_token_reaches_a_message(target: str, lines: list[str], on: bool) -> None:
    if on:
        _, client = world_with(entry("SECRET7", "produce"), url_allowed=True)
    else:
        client = World().connect()
        ok(client, http("/Orders?cmd=declare"))
    ok(client, http(target, *lines, body=b"x"))
    delivered = client.request(http("/Orders?cmd=consume&timeout=0", ADMIN))
    assert delivered.status == 200
    assert "secret7" not in repr(delivered).lower()
    raw = client.request(http("/_log/Orders", ADMIN)).body
    assert b"secret7" not in raw.lower()


def test_no_table_no_guard() -> None:
    """Without tokens a plan is the plain plan: nothing is asked of any request."""
    world = World()
    client = world.connect()
    ok(client, http("/T?cmd=declare", "token: whatever"))
    assert pull(client).status == 204
    head, _ = world.dialect.heads.read(b"GET /T?cmd=consume HTTP/1.1\r\nhost: x")
    assert type(world.front.plan(head)).__name__ == "Consume"


class TestStreams:
    """Of server-sent events."""

    WANTED = ("accept: text/event-stream", "token: ann")

    def stream(self, world: World, target: str) -> Client:
        client = world.connect()
        client.send(http(target, *self.WANTED))
        world.settle()
        assert client.received.startswith(b"HTTP/1.1 200 OK")
        client.received = b""
        return client

    def test_following_needs_the_group_of_the_topic_s_name(self) -> None:
        ann = entry("ann", "consume", {"Orders": ["billing"]})
        world, _ = world_with(ann)
        reply = world.connect().request(http("/Orders?cmd=consume", *self.WANTED))
        assert reply.status == 403
        self.stream(world, "/Orders/billing?cmd=consume")

    @pytest.mark.parametrize("target", ["/Orders?cmd=consume", "/Orders/billing?cmd=consume"])
    def test_a_stream_ends_with_the_right_to_it(self, target: str) -> None:
        ann = entry("ann", "consume", {"Orders": []})
        world, client = world_with(ann)
        reader, other = self.stream(world, target), self.stream(world, "/Orders?cmd=consume")
        replace_table(world, ADMIN_ENTRY, ann)
        assert not reader.closed
        replace_table(world, ADMIN_ENTRY, entry("ann", "consume", {"Secret": []}))
        world.settle()
        ended = b"event: end\ndata: 403: Command(consume) Topic(Orders) Forbidden\n\n"
        assert reader.received == other.received == ended
        assert reader.closed
        ok(client, http("/Orders", ADMIN, body=b"x"))
        assert reader.received == ended
        world.broker.check()


# -- what a token of one group may not do to the others -------------------------------------------


def test_an_ack_of_another_group() -> None:
    world, client = world_with(entry("mine", "produce", {"Orders": ["billing"]}))
    ok(client, http("/Orders/audit?cmd=declare&group_mask=256", ADMIN))
    ok(client, http("/Orders?body=x", ADMIN))
    ok(client, http("/Orders/audit?cmd=consume", ADMIN))
    other = world.connect()
    for group in ("consume_group: audit", "group: AUDIT", "x: "):
        reply = other.request(cmd("ack", "topic: Orders", group, "offset: 0", "token: mine"))
        assert (reply.status, reply.body) == (403, b"403: Command(ack) Topic(Orders) Forbbiden")
    ok(other, http("/Orders/billing?cmd=ack&offset=0", "token: mine"))


@pytest.mark.parametrize(
    "line",
    [
        "retention_count: 1",
        "retention_ms: 1",
        "retention_bytes: 1",
        "retention_done: 1",
        "dedupe_ms: 1",
        "topic_mask: 2",
        "topic_mask: 8",
    ],
)
def test_a_declare_that_changes_the_topic(line: str) -> None:
    """It would take the messages of all groups."""
    _, client = world_with(
        entry("one", "declare", {"Orders": ["billing"]}), entry("all", "declare", {"ord*": []})
    )
    data = cmd("declare", "topic: ORDERS", "consume_group: billing", line, "token: one")
    before = document(ok(client, http("/Orders?cmd=query", ADMIN)))
    reply = client.request(data)
    assert reply.status == 403
    assert reply.body.decode() == (
        "403: this token covers only some groups of Topic(ORDERS)"
        "; changing a topic needs all of them"
    )
    assert document(ok(client, http("/Orders?cmd=query", ADMIN))) == before
    ok(client, data.replace(b"token: one", b"token: all"))
    ok(client, data)  # no change any more


def test_a_declare_that_changes_the_group() -> None:
    """As stock clients do it: masks and all."""
    _, client = world_with(entry("one", "declare", {"Orders": ["billing"], "New": ["mine"]}))
    more = ("topic_mask: 0", "group_mask: 256", "group_start_offset: 0", "token: one")
    ok(client, cmd("declare", "topic: Orders", "consume_group: billing", *more))
    ok(client, cmd("declare", "topic: New", "consume_group: mine", "topic_mask: 2", "token: one"))


def test_a_service_stays_when_others_rights_change() -> None:
    """A topic of services is one queue; its name is not the one that the service asked for."""
    mine = entry("mine", "consume", {"Calc": ["mine"]})
    world, client = world_with(mine)
    ok(client, http("/Calc?cmd=declare&topic_mask=2", ADMIN))
    service = world.connect()
    pull = cmd("consume", "topic: Calc", "consume_group: mine", "id: 1", "token: mine")
    assert not service.exchange(pull)
    replace_table(world, ADMIN_ENTRY, mine)
    assert not service.replies()
    replace_table(world, ADMIN_ENTRY, entry("mine", "consume", {"Other": ["mine"]}))
    assert [reply.status for reply in service.replies()] == [403]


@pytest.mark.parametrize(
    "request_bytes",
    [
        http("/Orders/billing?cmd=consume&offset=0", "token: one"),
        cmd("consume", "topic: Orders", "consume_group: billing", "offset: 0", "token: one"),
        http("/Orders?cmd=consume", "accept: text/event-stream", "token: own"),
        http("/Orders?cmd=read", "token: one"),
    ],
)
def test_the_log_is_for_those_who_may_all_groups(request_bytes: bytes) -> None:
    """A group may be told a part of it only."""
    world, client = world_with(
        entry("one", "consume", {"Orders": ["billing"]}),
        entry("own", "consume", {"Orders": ["Orders"]}),
        entry("all", "consume", {"Orders": []}),
    )
    ok(client, http("/Orders?body=x", ADMIN))
    assert refused_status(world.connect(), request_bytes) == 403
    whole = request_bytes.replace(b"token: one", b"token: all").replace(
        b"token: own", b"token: all"
    )
    other = world.connect()
    other.send(whole)
    world.settle()
    assert other.received.startswith(b"HTTP/1.1 200 OK\r\n")
