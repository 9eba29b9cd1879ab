"""Each dialect in the few requests that show what holds for all of them."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import attrs
import msgspec
import pytest

from tests.conformance.dialogue import Client, Reply, http
from tests.dialects.camellia.words import verb
from tests.dialects.mqcloud import words as mqcloud_words
from tests.dialects.talks import document, post
from tests.dialects.toy import ToyDialect
from zbus.dialects import registry
from zbus.dialects.mqcloud.dialect import MqcloudDialect
from zbus.dialects.mqcloud.settings import MqcloudSettings
from zbus.edge.dialect import Dialect, Parts

Request = Callable[..., bytes]


def _whole(reply: Reply) -> list[bytes]:
    return [reply.body] if reply.status == 200 else []


@attrs.frozen
class DialectCase:
    """`put(topic, body, *lines)` and `pull(topic, *lines)`, the latter waiting; and how to read the
    messages in what is answered to a pull."""

    name: str
    put: Request
    pull: Request
    bodies: Callable[[Reply], list[bytes]] = _whole
    read: Callable[[Reply], Reply] = lambda reply: reply
    # With the status that HTTP has for what it says, and the message as its body.
    tells_why: bool = True  # the status says why a put is not taken, and a header when it may be
    waits: bool = True  # a pull waits for messages

    def ask(self, client: Client, request: bytes) -> Reply:
        """The one reply to a request."""
        return self.read(client.request(request))

    def ok(self, client: Client, request: bytes) -> Reply:
        reply = self.ask(client, request)
        assert reply.status == 200, reply
        return reply

    def replies(self, client: Client) -> list[Reply]:
        """What has come since the last call."""
        return [self.read(reply) for reply in client.replies()]

    def __str__(self) -> str:
        return self.name


def dialect(name: str, path: str, query: str = "") -> DialectCase:
    """One that puts by POST and pulls by GET at this path."""

    def put(topic: str, body: bytes, *lines: str) -> bytes:
        return http(path.format(topic), *lines, body=body, method="POST")

    def pull(topic: str, *lines: str) -> bytes:
        return http(path.format(topic) + query, *lines)

    return DialectCase(name, put, pull)


_ADF_IDS = itertools.count()


def adf_path(action: str) -> Callable[[str], str]:
    """Each pull has an id of its own."""
    return lambda topic: f"/queue/{action}?queue={topic}&requestid={next(_ADF_IDS)}"


UNFIT = 'the body does not fit the schema of the topic: /n: "1" is not of type "integer"'
"""What a put of `{"n":"1"}` is told where `n` is an integer."""

NO_KEY = "T is compact, which keeps the newest message of each key: give key"
"""What a put without a key is told in a compact topic T."""


def read_adf(reply: Reply) -> Reply:
    """Its results all come with status 200."""
    if reply.headers.get("content-type") != "application/json":
        return reply
    told = msgspec.json.decode(reply.body)
    if "result" not in told:
        return reply  # of another dialect
    status = ADF_STATUS[told["result"]]
    return Reply(status, reply.headers, told.get("body", "").encode())


ADF_STATUS = {
    "ok": 200,
    UNFIT + ".": 422,
    NO_KEY + ".": 400,
    "body too long.": 413,
    "forbidden.": 403,
    "server busy.": 503,
}


def adf() -> DialectCase:
    put_path, pull_path = adf_path("rpush"), adf_path("pull")

    def put(topic: str, body: bytes, *lines: str) -> bytes:
        return http(put_path(topic), *lines, body=body, method="POST")

    def pull(topic: str, *lines: str) -> bytes:
        return http(pull_path(topic), *lines)

    return DialectCase("adf", put, pull, read=read_adf, tells_why=False)


def camellia() -> DialectCase:
    """Everything is in forms, and all that is pulled in lists."""

    def put(topic: str, body: bytes, *lines: str) -> bytes:
        said = [line for line in lines if not line.startswith("content-type")]  # messages have none
        return verb("sendMsg", *said, topic=topic, msg=body.decode(), delayMillis=0)

    def pull(topic: str, *lines: str) -> bytes:
        return verb("longPollingMsg", *lines, topic=topic)

    def bodies(reply: Reply) -> list[bytes]:
        return [message["msg"].encode() for message in document(reply)["delayMsgList"]]

    return DialectCase("camellia", put, pull, bodies)


def mqcloud() -> DialectCase:
    """A registered producer and consumer, made by their first requests; batches of one message, of
    which the next one need not wait for the acknowledgement."""

    def put(topic: str, body: bytes, *lines: str) -> bytes:
        said = [line for line in lines if not line.startswith("content-type")]
        fields = {"producer": f"{topic}-producer", "message": body.decode()}
        return post("/mq/produce", *said, **fields)

    def pull(topic: str, *lines: str) -> bytes:
        fields: dict[str, object] = {"topic": topic, "consumer": topic, "maxPullSize": 1}
        return mqcloud_words.get("/mq/message", *lines, pop=True, **fields)

    def bodies(reply: Reply) -> list[bytes]:
        result = msgspec.json.decode(reply.body)["result"]
        found = [*result.get("msgList", ()), *result.get("retryMsgList", ())]
        return [message["message"].encode() for message in found]

    return DialectCase("mqcloud", put, pull, bodies, read=read_mqcloud, waits=False)


def semq() -> DialectCase:
    """Messages to a topic's address; a topic is read in another dialect."""

    def put(topic: str, body: bytes, *lines: str) -> bytes:
        path = f"/semq?cmd=semq_send&savefwd=2&dst=0:1/{topic}"
        return http(path, *lines, body=body, method="POST")

    def pull(topic: str, *lines: str) -> bytes:
        return http(f"/{topic}?cmd=consume", *lines)

    return DialectCase("semq", put, pull)


def read_mqcloud(reply: Reply) -> Reply:
    """What the application refuses comes with status 200."""
    if not reply.headers.get("content-type", "").startswith("application/json"):
        return reply
    told = msgspec.json.decode(reply.body)
    if reply.status != 200 or told.get("status", 200) == 200:
        return reply
    too_large = "bytes" in told["message"]
    return Reply(413 if too_large else told["status"], reply.headers, reply.body)


def registering(parts: Parts) -> Dialect:
    """The face of MQCloud as people try it out."""
    settings = parts.settings or MqcloudSettings()
    assert isinstance(settings, MqcloudSettings)
    trying = attrs.evolve(settings, mqcloud_auto_register=True)
    return MqcloudDialect(attrs.evolve(parts, settings=trying))


DIALECTS = (
    dialect("native", "/{}", "?cmd=consume"),
    adf(),
    camellia(),
    mqcloud(),
    semq(),
    dialect("toy", "/toy/{}"),
)
"""A row for each of `DIALECTS`, and one that shows that a new one needs no more than its row
there."""

every_dialect = pytest.mark.parametrize("dialect", DIALECTS, ids=str)

every_dialect_that_waits = pytest.mark.parametrize(
    "dialect", [dialect for dialect in DIALECTS if dialect.waits], ids=str
)


@pytest.fixture
def with_toy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one line that a dialect has outside its folder."""
    monkeypatch.setitem(registry.DIALECTS, "toy", ToyDialect)
    monkeypatch.setitem(registry.DIALECTS, "mqcloud", registering)
