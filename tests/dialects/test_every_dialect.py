"""What holds for every dialect without its doing: rights, browsers, limits, slow readers, the end.

Each test is run for every face that there is, and for a toy.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from hashlib import sha256

import pytest

from tests.conformance.dialogue import Client, World, cmd, http, ok
from tests.dialects.dialects import (
    DIALECTS,
    NO_KEY,
    UNFIT,
    DialectCase,
    every_dialect,
    every_dialect_that_waits,
    with_toy,
)
from tests.dialects.toy import ToyDialect, ToyRequest
from zbus.core.model.errors import BrokerError, Refusal
from zbus.core.model.limits import Limits
from zbus.dialects import registry
from zbus.edge.access import Access, Entry, make_grant
from zbus.edge.connection import Connection, Plan
from zbus.edge.guard import GuardSettings
from zbus.testing.world import EPOCH_MS, HeldJournal
from zbus.wire.limits import WireLimits

__all__ = ["with_toy"]

pytestmark = pytest.mark.usefixtures("with_toy")


def entry(token: str, operations: str, topic: str, expires_ms: int = 1 << 62) -> Entry:
    grant = make_grant(token, operations.split(), {topic: []}, expires_ms)
    return Entry(grant, (sha256(token.encode()).digest(),))


TOKENS = (
    entry("admin", "admin", "*"),
    entry("both", "produce consume", "T"),
    entry("other", "produce consume", "Other"),
    entry("reader", "query", "T"),
    entry("short", "produce consume", "T", EPOCH_MS + 1_000),
)


def basic(user: str, password: str) -> str:
    return "authorization: Basic " + b64encode(f"{user}:{password}".encode()).decode()


def declared(world: World, *lines: str) -> Client:
    client = world.connect()
    ok(client, http("/T?cmd=declare", *lines))
    return client


def stored(world: World) -> int:
    """How many messages have come into the topic."""
    topic = world.broker.topic("T")
    assert topic is not None
    return sum(partition.end for partition in topic.partitions)


def test_every_face_is_in_the_table() -> None:
    assert {dialect.name for dialect in DIALECTS} == set(registry.DIALECTS) - {
        "pages",
        "console",
        "client",
    }  # of files alone


@every_dialect
def test_what_is_put_is_pulled(dialect: DialectCase) -> None:
    client = declared(World())
    dialect.ok(client, dialect.put("T", b"hello"))
    assert dialect.bodies(dialect.ok(client, dialect.pull("T"))) == [b"hello"]


@every_dialect
def test_a_body_that_does_not_fit_the_schema_of_its_topic(dialect: DialectCase) -> None:
    """Each says so as it says that a request is wrong, with the path of the fault."""
    world = World()
    client = declared(world)
    dialect.ok(client, dialect.put("T", b"x"))  # the topic is as the dialect needs it
    schema = b'{"type":"object","properties":{"n":{"type":"integer"}}}'
    ok(client, http("/T?cmd=declare&schema=body", body=schema, method="POST"))
    before = stored(world)
    found = dialect.ask(client, dialect.put("T", b'{"n":"1"}'))
    status, text = SAID_OF_UNFIT.get(dialect.name, (422, UNFIT.encode()))
    assert found.status == status
    assert text in found.body.replace(b'\\"', b'"')
    assert stored(world) == before
    dialect.ok(client, dialect.put("T", b'{"n":1}'))
    assert stored(world) == before + 1


SAID_OF_UNFIT = {
    "adf": (422, b""),
    "camellia": (200, b'{"code":400,"msg":"' + UNFIT.encode()),
    "mqcloud": (500, UNFIT.encode()),  # of its envelope; that of HTTP is 200
}


@every_dialect
def test_a_message_without_a_key_in_a_compact_topic(dialect: DialectCase) -> None:
    world = World()
    client = declared(world, "compact: true")
    found = dialect.ask(client, dialect.put("T", b"x"))
    status, text = SAID_OF_NO_KEY.get(dialect.name, (400, NO_KEY.encode()))
    assert found.status == status
    assert text in found.body
    assert stored(world) == 0


SAID_OF_NO_KEY = {
    "adf": (400, b""),
    "camellia": (200, b'{"code":400,"msg":"' + NO_KEY.encode()),
    "mqcloud": (500, NO_KEY.encode()),
}


# -- rights ------------------------------------------------------------------------------------


@every_dialect
@pytest.mark.parametrize("token", ["", "wrong", "other", "reader"])
def test_nobody_gets_past_the_tokens(dialect: DialectCase, token: str) -> None:
    world = World(access=Access(TOKENS))
    declared(world, "token: admin")
    client = world.connect()
    shown = ("token: {}", "authorization: Bearer {}", "cookie: token={}")
    for show in (*(show.format(token) for show in shown), basic("", token), basic(token, "x")):
        lines = [show] if token else []
        assert dialect.ask(client, dialect.put("T", b"x", *lines)).status == 403
        assert dialect.ask(client, dialect.pull("T", *lines)).status == 403
    assert stored(world) == 0
    assert not client.peer.groups


@every_dialect
def test_a_token_lets_its_bearer_in_until_it_expires(dialect: DialectCase) -> None:
    world = World(access=Access(TOKENS))
    declared(world, "token: admin")
    client = world.connect()
    lines = ("authorization: Bearer {}", basic("", "both"), basic("short", "x"))
    for token, line in zip(("both", "both", "short"), lines, strict=True):
        line = line.format(token)
        dialect.ok(client, dialect.put("T", token.encode(), line))
        assert dialect.bodies(dialect.ok(client, dialect.pull("T", line))) == [token.encode()]
    client.exchange(dialect.pull("T", "token: short"))
    world.advance(2_000)
    world.posted.append(world.front.upkeep)  # the server does so once a second
    world.settle()
    ended = [reply.status for reply in dialect.replies(client)]
    assert ended == ([403] if dialect.waits else []), "a pull that waits is ended"
    assert dialect.ask(client, dialect.put("T", b"late", "token: short")).status == 403


HEADS = (
    *(http("/toy/T", method=method) for method in ("GET", "POST", "PUT", "DELETE", "OPTIONS")),
    *(http("/toy/T", method=method) for method in ("HEAD", "PATCH", "BREW")),
    *(http(path) for path in ("/toy", "/toy/", "/toy/T/more", "/toy?token=other", "/toy//T")),
    *(http("/toy/T", line) for line in ("token: wrong", "cookie: token=; token=wrong")),
    *(http("/toy/T", line) for line in ("authorization: Basic YTpi", "authorization: Bearer")),
    http("/toy/T", "connection: upgrade", "upgrade: websocket", "sec-websocket-version: 13"),
    http("/toy/T", "topic: T"),
    http("/toy/T", "cmd: ping"),
    cmd("consume", "topic: T"),
    b"GET /toy/T HTTP/1.0\r\n\r\n",
)


class Spy(ToyRequest):
    ran = 0

    def run(self, peer: Connection, id: bytes, body: bytes) -> None:
        Spy.ran += 1
        super().run(peer, id, body)


@pytest.mark.parametrize("head", HEADS)
def test_no_plan_of_a_face_is_run_past_the_rights(
    head: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the head: the face has no say in it."""
    monkeypatch.setattr(ToyDialect, "read", lambda face, head: Spy(head, face.parts))
    Spy.ran = 0
    world = World(access=Access(TOKENS))
    declared(world, "token: admin")
    client = world.connect()
    client.exchange(head)
    assert Spy.ran == 0
    ok(world.connect(), http("/toy/T", "token: both", method="POST", body=b"x"))
    assert Spy.ran == 1, "the spy is in place"


def test_for_who_may_not_no_plan_is_even_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be kept with the head, which anybody can send."""
    made: list[ToyRequest] = []

    def plan(asked: ToyRequest) -> Plan:
        made.append(asked)
        return asked

    monkeypatch.setattr(ToyRequest, "plan", plan)
    world = World(access=Access(TOKENS))
    declared(world, "token: admin")
    client = world.connect()
    assert client.request(http("/toy/T", "token: wrong")).status == 403
    assert made == []


# -- browsers ----------------------------------------------------------------------------------

FOREIGN = (
    ("origin: https://evil.example",),
    ("sec-fetch-site: cross-site", "sec-fetch-mode: no-cors", "sec-fetch-dest: image"),
    ("user-agent: Mozilla/5.0", "accept: */*", "referer: https://evil.example/page"),
)


@every_dialect
@pytest.mark.parametrize("lines", FOREIGN)
def test_another_page_cannot_have_a_browser_do_it(
    dialect: DialectCase, lines: tuple[str, ...]
) -> None:
    world = World()
    client = declared(world)
    assert dialect.ask(client, dialect.put("T", b"x", *lines)).status == 403
    assert stored(world) == 0
    dialect.ok(client, dialect.put("T", b"kept"))
    assert dialect.ask(client, dialect.pull("T", *lines)).status == 403
    assert dialect.bodies(dialect.ok(client, dialect.pull("T"))) == [b"kept"]


@every_dialect
def test_a_name_of_others_leads_nowhere(dialect: DialectCase) -> None:
    client = declared(World(guard=GuardSettings()))
    request = dialect.put("T", b"x").replace(b"host: localhost", b"host: evil.example")
    assert dialect.ask(client, request).status == 421


@every_dialect
def test_a_browser_is_told_to_do_nothing_with_messages(dialect: DialectCase) -> None:
    client = declared(World())
    dialect.ok(client, dialect.put("T", b"<script>alert(1)</script>", "content-type: text/html"))
    page = ("sec-fetch-site: same-origin", "sec-fetch-mode: cors", "origin: http://localhost")
    reply = dialect.ok(client, dialect.pull("T", *page))
    assert reply.headers["x-content-type-options"] == "nosniff"
    assert reply.headers["content-security-policy"].startswith("sandbox")
    assert not reply.headers["content-type"].startswith("text/html")


# -- limits ------------------------------------------------------------------------------------


@every_dialect
def test_a_body_over_the_limit(dialect: DialectCase) -> None:
    world = World(wire_limits=WireLimits(body_bytes_max=100))
    client = declared(world)
    assert dialect.ask(client, dialect.put("T", b"x" * 101)).status == 413
    assert client.closed
    assert stored(world) == 0


@every_dialect
def test_a_message_over_the_limit(dialect: DialectCase) -> None:
    world = World(limits=Limits(message_bytes_max=100))
    client = declared(world)
    assert dialect.ask(client, dialect.put("T", b"x" * 101)).status == 413
    dialect.ok(client, dialect.put("T", b"x" * 100))


@every_dialect
@pytest.mark.parametrize(("refusal", "status"), [("FULL", 507), ("OVERLOADED", 503)])
def test_when_disk_or_memory_are_short(dialect: DialectCase, refusal: str, status: int) -> None:
    world = World()
    client = declared(world)
    dialect.ok(client, dialect.put("T", b"before"))
    world.broker.refuse_puts(BrokerError(Refusal[refusal], "there is no room"), None)
    reply = dialect.ask(client, dialect.put("T", b"x"))
    if dialect.tells_why:
        assert (reply.status, reply.headers["retry-after"]) == (status, "1")
    else:
        assert reply.status == 503
    assert dialect.bodies(dialect.ok(client, dialect.pull("T"))) == [b"before"], "reading goes on"


@every_dialect
def test_who_reads_nothing_is_given_no_more(dialect: DialectCase) -> None:
    world = World()
    client, slow = declared(world), world.connect()
    bodies = [b"%d" % number + b"x" * 50_000 for number in range(40)]
    for body in bodies:
        dialect.ok(client, dialect.put("T", body))
    slow.takes = False
    for _ in bodies:
        slow.send(dialect.pull("T"))
        world.turn()
    assert slow.peer.out_bytes <= slow.peer.out_bytes_max + 60_000
    slow.takes = True
    world.settle()
    found = [dialect.bodies(reply) for reply in dialect.replies(slow)]
    while [] in found:  # who does not wait asks again
        assert not dialect.waits
        found.remove([])
        found.append(dialect.bodies(dialect.ok(slow, dialect.pull("T"))))
    assert found == [[body] for body in bodies]


# -- waiting and the end -----------------------------------------------------------------------


@every_dialect_that_waits
def test_a_pull_waits_and_replies_come_in_order(dialect: DialectCase) -> None:
    client = declared(World())
    assert client.exchange(dialect.pull("T")) == []
    client.send(dialect.put("T", b"x"))
    client.world.settle()
    pulled, done = dialect.replies(client)
    assert dialect.bodies(pulled) == [b"x"], "asked first, told first"
    assert done.status == 200


@every_dialect
def test_no_reply_before_the_sync(dialect: DialectCase) -> None:
    journal = HeldJournal()
    world = World(journal)
    client = world.connect()
    client.exchange(http("/T?cmd=declare"))
    journal.release()
    world.settle()
    assert [reply.status for reply in dialect.replies(client)] == [200]
    assert client.exchange(dialect.put("T", b"x")) == []
    journal.release()
    world.settle()
    assert [reply.status for reply in dialect.replies(client)] == [200]


@pytest.fixture
def stopped() -> Iterator[World]:
    world = World()
    yield world
    assert not any(client.peer.open_tickets for client in world.clients), "all are answered"


@every_dialect_that_waits
def test_at_the_stop_who_waits_is_told(dialect: DialectCase, stopped: World) -> None:
    client = declared(stopped)
    assert client.exchange(dialect.pull("T")) == []
    stopped.posted.append(stopped.broker.stop)
    stopped.settle()
    [reply] = dialect.replies(client)
    assert dialect.bodies(reply) == []
    assert dialect.ask(client, dialect.pull("T")).status == 503


@every_dialect
def test_a_topic_that_grows_amid_its_requests(dialect: DialectCase) -> None:
    """Who speaks to it notices nothing, and is given what others put into the new partitions."""
    world = World()
    client, reader = world.connect(), world.connect()
    ok(client, http("/T?cmd=declare"))
    dialect.ok(client, dialect.put("T", b"old"))
    assert taken(world, dialect, reader, 1) == [b"old"]
    count = len(world.broker.topics["t"].partitions) * 2
    ok(client, http(f"/T?cmd=declare&partitions={count}&partitions_order=none"))
    dialect.ok(client, dialect.put("T", b"new"))
    ok(client, http(f"/T?partition={count - 1}", body=b"of others"))
    assert sorted(taken(world, dialect, reader, 2)) == [b"new", b"of others"]


def taken(world: World, dialect: DialectCase, reader: Client, count: int) -> list[bytes]:
    """That many messages, one after another."""
    found: list[bytes] = []
    while len(found) < count:
        found += dialect.bodies(dialect.ok(reader, dialect.pull("T")))
        world.advance(10)
    return found
