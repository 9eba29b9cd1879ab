"""With tokens: what each verb needs, though the topic is mostly not said in the head. And what
pages of other origins may do."""

from __future__ import annotations

from hashlib import sha256

import pytest

from tests.conformance.dialogue import World, http
from tests.dialects.mqcloud.words import CONSUMER, PRODUCER, TOPIC, WorldTalk, get
from tests.dialects.talks import entry, post
from zbus.edge.access import Access, Entry, make_grant
from zbus.edge.guard import GuardSettings

ACCESS = (
    entry("admin", "admin"),
    entry("producer", "produce", TOPIC),
    entry("consumer", "consume", TOPIC),
    entry("maker", "declare", TOPIC),
    entry("remover", "remove", TOPIC),
    entry("watcher", "query", TOPIC),
    Entry(
        make_grant("own", ["consume", "declare", "query"], {TOPIC: [CONSUMER]}),
        (sha256(b"own").digest(),),
    ),
    entry("elsewhere", "produce consume declare remove query", "other"),
)
TOKENS = ("nobody", "admin", "producer", "consumer", "maker", "remover", "watcher", "elsewhere")

READS = {"topic": TOPIC, "consumer": CONSUMER}
CONFIG = http("/mq/consumer/config", "token: {}", body=b'{"consumer":"billing"}', method="POST")
REQUESTS: dict[str, tuple[bytes, str]] = {
    "produce": (post("/mq/produce", "token: {}", producer=PRODUCER, message="m"), "producer"),
    "batch": (
        post("/mq/produce/batch", "token: {}", producer=PRODUCER, messages="[1]"),
        "producer",
    ),
    "message": (get("/mq/message", "token: {}", **READS), "consumer"),
    "ack": (get("/mq/ack", "token: {}", **READS), "consumer"),
    "unlock": (get("/mq/unlock", "token: {}", **READS), "consumer"),
    "find": (get("/mq/find", "token: {}", topic=TOPIC, id="A" * 32), "consumer"),
    "register a producer": (
        post("/mq/register", "token: {}", topic=TOPIC, producer="p"),
        "maker",
    ),
    "register a consumer": (
        post("/mq/register", "token: {}", topic=TOPIC, consumer="c"),
        "maker",
    ),
    "settings": (CONFIG, "maker"),
    "unregister a producer": (post("/mq/unregister", "token: {}", producer=PRODUCER), "remover"),
    "unregister a consumer": (post("/mq/unregister", "token: {}", consumer=CONSUMER), "remover"),
    "config": (get(f"/mq/config/{CONSUMER}", "token: {}"), "watcher"),
    "offsets": (get("/mq/clustering/queue/offset", "token: {}", consumer=CONSUMER), "watcher"),
    "ranges": (get("/mq/clustering/pop/ack", "token: {}", consumer=CONSUMER), "watcher"),
}
"""With the one who may, beside an administrator."""


@pytest.fixture
def talk() -> WorldTalk:
    talk = WorldTalk(World(access=Access(ACCESS)))
    for fields in ({"producer": PRODUCER}, {"consumer": CONSUMER}):
        asked = post("/mq/register", "token: admin", topic=TOPIC, **fields)
        assert talk.request(asked).status == 200
    return talk


@pytest.mark.parametrize("token", TOKENS)
@pytest.mark.parametrize("name", REQUESTS)
def test_a_verb(talk: WorldTalk, name: str, token: str) -> None:
    request, allowed = REQUESTS[name]
    reply = talk.request(request.replace(b"{}", token.encode()))
    assert reply.status == (200 if token in (allowed, "admin") else 403)
    if token not in (allowed, "admin", "nobody"):
        assert TOPIC.encode() not in reply.body, "nor is he told of it"


@pytest.mark.parametrize("path", ["/topic/httpProducer", "/topic/httpConsumer"])
def test_lists_show_what_is_granted(talk: WorldTalk, path: str) -> None:
    for token, shown in (("watcher", True), ("elsewhere", False)):
        reply = talk.request(get(path, f"token: {token}"))
        assert reply.status == 200
        assert (TOPIC.encode() in reply.body) is shown
    assert talk.request(get(path, "token: producer")).status == 403


OF_GROUPS = {
    "register": (post("/mq/register", "token: own", topic=TOPIC, consumer="c"), 403),
    "register again": (post("/mq/register", "token: own", topic=TOPIC, consumer=CONSUMER), 200),
    "register a producer": (post("/mq/register", "token: own", topic=TOPIC, producer="p"), 403),
    "find": (get("/mq/find", "token: own", topic=TOPIC, id="A" * 32), 403),
    "message": (get("/mq/message", "token: own", **READS), 200),
    "config": (get(f"/mq/config/{CONSUMER}", "token: own"), 200),
}
"""Of a token that may do things to one group of the topic alone."""


@pytest.mark.parametrize("name", OF_GROUPS)
def test_a_token_of_one_group(talk: WorldTalk, name: str) -> None:
    request, status = OF_GROUPS[name]
    assert talk.request(request).status == status


PAGE = "https://page.example"
ORIGINS = {"": False, PAGE: True, "*": True, "https://other.example": False}


@pytest.mark.parametrize("listed", ORIGINS)
def test_a_page_of_another_origin(listed: str) -> None:
    """The documented page: a form, and a query, with an Origin that the browser adds."""
    guard = GuardSettings(hosts=("*",), cors_origins=(listed,) if listed else ())
    talk = WorldTalk(World(guard=guard))
    talk.begin()
    origin, may = f"origin: {PAGE}", ORIGINS[listed]
    sent = talk.request(post("/mq/produce", origin, producer=PRODUCER, message="m"))
    read = talk.request(get("/mq/message", origin, **READS))
    preflight = http("/mq/produce", origin, "access-control-request-method: POST", method="OPTIONS")
    asked = talk.request(preflight)
    assert sent.status == read.status == (200 if may else 403)
    assert asked.status == (204 if may else 403)
    for reply in (sent, read, asked):
        told = reply.headers.get("access-control-allow-origin")
        if reply is not asked or may:
            assert told == ({PAGE: PAGE, "*": "*"}.get(listed) if may else None)
    assert talk.world.broker.topics[TOPIC].depth() == may
