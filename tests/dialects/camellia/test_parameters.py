"""Parameters, wherever they stand, and what is refused: with which status and code."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import msgspec
import pytest

from tests.conformance.dialogue import TEN_YEARS_MS, World, http
from tests.dialects.camellia.words import QUEUE, WorldTalk, verb
from tests.dialects.talks import FORM, document, encoded
from zbus.dialects.camellia.settings import CamelliaSettings

SEND = {"topic": "T", "msg": "a b", "delayMillis": "0"}


def stored(world: World) -> int:
    topic = world.broker.topic("T")
    return 0 if topic is None else topic.depth()


# -- where they stand --------------------------------------------------------------------------


def parts(fields: dict[str, str], boundary: str = "xYz") -> tuple[str, bytes]:
    """The same as multipart/form-data."""
    body = "".join(
        f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
        for name, value in fields.items()
    )
    return (
        f"content-type: multipart/form-data; boundary={boundary}",
        f"{body}--{boundary}--".encode(),
    )


MULTIPART = parts(SEND)
QUERY = "?" + encoded(SEND).decode()

PLACED = {
    "form": http(QUEUE + "sendMsg", FORM, body=encoded(SEND), method="POST"),
    "form of curl": http(
        QUEUE + "sendMsg",
        "content-type: application/x-www-form-urlencoded",
        body=b"msg=a%20b&delayMillis=0&topic=T",
        method="POST",
    ),
    "query": http(QUEUE + "sendMsg" + QUERY, method="POST"),
    "both": http(
        QUEUE + "sendMsg?topic=T", FORM, body=b"delayMillis=0&msg=a+b&other=1", method="POST"
    ),
    "the query first": http(
        QUEUE + "sendMsg" + QUERY, FORM, body=b"msg=other&topic=Other", method="POST"
    ),
    "the first of two": http(
        QUEUE + "sendMsg", FORM, body=encoded(SEND) + b"&msg=other&delayMillis=5", method="POST"
    ),
    "parts": http(QUEUE + "sendMsg", MULTIPART[0], body=MULTIPART[1], method="POST"),
    "quoted boundary": http(
        QUEUE + "sendMsg",
        'content-type: Multipart/Form-Data; charset=utf-8; boundary="xYz"',
        body=b"preamble\r\n" + MULTIPART[1] + b"\r\nepilogue",
        method="POST",
    ),
}


@pytest.mark.parametrize("request_", PLACED.values(), ids=PLACED)
def test_where_they_stand(request_: bytes) -> None:
    talk = WorldTalk()
    message = document(talk.request(request_))["delayMsg"]
    assert (message["topic"], message["msg"], message["status"]) == ("T", "a b", 2)


@pytest.mark.parametrize(
    ("lines", "body"),
    [
        (("content-type: application/json",), msgspec.json.encode(SEND)),
        (("content-type: text/plain",), encoded(SEND)),
        ((), encoded(SEND)),
        (("content-type: multipart/form-data",), MULTIPART[1]),
        (("content-type: multipart/form-data; boundary=other",), MULTIPART[1]),
        ((MULTIPART[0],), b"--xYz\r\nno blank line--xYz--"),
        ((MULTIPART[0],), b"--xYz"),
        ((FORM,), b"&".join([b"a=1"] * 150)),
    ],
)
def test_what_is_no_form(lines: tuple[str, ...], body: bytes) -> None:
    talk = WorldTalk()
    reply = talk.request(http(QUEUE + "sendMsg", *lines, body=body, method="POST"))
    assert reply.status == 400
    assert b"is not present" in reply.body
    assert stored(talk.world) == 0


# -- what is refused by the framework ----------------------------------------------------------

LONG, INT = 1 << 63, 1 << 31
MISSING = [
    ("sendMsg", {"topic": "T", "msg": "a"}),
    ("sendMsg", {"topic": "T", "delayMillis": "0"}),
    ("sendMsg", {"msg": "a", "delayMillis": "0"}),
    ("sendMsg", {**SEND, "delayMillis": ""}),
    ("deleteMsg", {"topic": "T"}),
    ("deleteMsg", {"msgId": "a"}),
    ("pullMsg", {}),
    ("longPollingMsg", {"batch": "1"}),
    ("ackMsg", {"topic": "T", "ack": "true"}),
    ("ackMsg", {"msgId": "a", "ack": "true"}),
    ("getMsg", {"topic": "T"}),
]
NOT_NUMBERS = [
    "x",
    "1.5",
    "1e3",
    "0x10",
    "--1",
    "+",
    "1 2",
    "1_000",
    "٣",
    str(LONG),
    str(-LONG - 1),
]
INCONVERTIBLE = [
    *[("sendMsg", {**SEND, "delayMillis": value}) for value in NOT_NUMBERS],
    *[("sendMsg", {**SEND, "ttlMillis": value}) for value in NOT_NUMBERS],
    *[("sendMsg", {**SEND, "maxRetry": value}) for value in (*NOT_NUMBERS, str(INT))],
    *[("pullMsg", {"topic": "T", "batch": value}) for value in (*NOT_NUMBERS, str(INT))],
    *[("pullMsg", {"topic": "T", "ackTimeoutMillis": value}) for value in NOT_NUMBERS],
    *[("longPollingMsg", {"topic": "T", "longPollingTimeoutMillis": v}) for v in NOT_NUMBERS],
    *[("deleteMsg", {"topic": "T", "msgId": "a", "release": v}) for v in ("maybe", "2", "tru")],
    *[("ackMsg", {"topic": "T", "msgId": "a", "ack": value}) for value in ("maybe", "2", "t")],
]


def refused(talk: WorldTalk, data: bytes, status: int) -> Any:
    reply = talk.request(data)
    assert reply.status == status, reply
    found = msgspec.json.decode(reply.body)
    assert found["status"] == status
    assert set(found) == {"timestamp", "status", "error", "message", "path"}
    assert reply.headers["content-type"] == "application/json;charset=UTF-8"
    assert stored(talk.world) == 0
    assert talk.pull() == [], "the connection is still usable"
    return found


@pytest.mark.parametrize(("name", "fields"), MISSING + INCONVERTIBLE)
def test_what_cannot_be_converted(name: str, fields: dict[str, str]) -> None:
    found = refused(WorldTalk(), verb(name, **fields), 400)
    assert (found["error"], found["path"]) == ("Bad Request", QUEUE + name)
    assert found["timestamp"] == "2027-01-15T08:00:00.000+00:00"


PATHS = [
    *(("POST", path, 404) for path in ("/camellia", "/camellia/", "/camellia/delayQueue")),
    *(("POST", QUEUE + name, 404) for name in ("sendmsg", "nothing", "sendMsg/more")),
    ("GET", "/camellia/health", 404),
    ("GET", "/camellia/health/other", 404),
    ("GET", "/metrics/more", 404),
    *(
        (method, QUEUE + name, 405)
        for method in ("GET", "PUT", "DELETE", "PATCH")
        for name in ("sendMsg", "deleteMsg", "pullMsg", "longPollingMsg", "ackMsg", "getMsg")
    ),
    *(("POST", QUEUE + name, 405) for name in ("getMonitorData", "getTopicInfo?topic=T")),
    *(("POST", QUEUE + name, 405) for name in ("getTopicInfoList", "getMonitorString")),
    ("POST", "/metrics", 405),
    ("GET", QUEUE + "getTopicInfo", 400),
]


@pytest.mark.parametrize(("method", "path", "status"), PATHS)
def test_paths_and_methods(method: str, path: str, status: int) -> None:
    found = refused(WorldTalk(), http(path, method=method), status)
    assert found["path"] == path.partition("?")[0]


@pytest.mark.parametrize(
    ("line", "body"), [(FORM, b"topic=T"), parts({"topic": "T"})], ids=["form", "parts"]
)
@pytest.mark.parametrize("method", ["GET", "PUT"])
def test_a_form_is_the_body_of_a_post_alone(method: str, line: str, body: bytes) -> None:
    """As the original's servlets read it: another body is passed over."""
    asked = http(QUEUE + "getTopicInfo", line, body=body, method=method)
    refused(WorldTalk(), asked, 400 if method == "GET" else 405)


def test_the_methods_that_are_allowed() -> None:
    reply = WorldTalk().request(http(QUEUE + "sendMsg"))
    assert reply.headers["allow"] == "POST"


# -- what is refused by the application --------------------------------------------------------

BAD = [
    *(("sendMsg", {**SEND, name: ""}) for name in ("topic", "msg")),
    *(("deleteMsg", {"topic": "T", "msgId": "a", name: ""}) for name in ("topic", "msgId")),
    *(("getMsg", {"topic": "T", "msgId": "a", name: ""}) for name in ("topic", "msgId")),
    *(("ackMsg", {"topic": "T", "msgId": "a", name: ""}) for name in ("topic", "msgId")),
    ("pullMsg", {"topic": ""}),
    ("longPollingMsg", {"topic": "", "longPollingTimeoutMillis": "1"}),  # it is held back so long
    *(("sendMsg", {**SEND, "topic": name}) for name in ("a/b", "..", " a", "a\n", "x" * 201)),
    ("sendMsg", {**SEND, "delayMillis": str(TEN_YEARS_MS + 1)}),
    ("sendMsg", {**SEND, "msgId": "x" * 256}),
]


@pytest.mark.parametrize(("name", "fields"), BAD)
def test_what_makes_no_sense(name: str, fields: dict[str, str]) -> None:
    talk = WorldTalk()
    found = talk.ask(name, **fields)
    assert found["code"] == 400
    assert found["msg"], "with the reason"
    keys = {"sendMsg": "delayMsg", "getMsg": "delayMsg"}
    keys |= {"pullMsg": "delayMsgList", "longPollingMsg": "delayMsgList"}
    assert found.get(keys.get(name, ""), None) is None
    assert set(found) == {"code", "msg", *({keys[name]} if name in keys else ())}
    assert stored(talk.world) == 0


# -- what is taken -----------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["true", "TRUE", "on", "yes", "1", " true ", ""])
def test_yes(value: str) -> None:
    talk = WorldTalk()
    sent = talk.send()
    talk.pull()
    assert talk.ask("ackMsg", topic="T", msgId=sent["msgId"], ack=value)["code"] == 200
    assert talk.status(sent) == 4


@pytest.mark.parametrize("value", ["false", "False", "off", "no", "0"])
def test_no(value: str) -> None:
    talk = WorldTalk()
    sent = talk.send()
    talk.pull()
    assert talk.ask("ackMsg", topic="T", msgId=sent["msgId"], ack=value)["code"] == 200
    assert talk.status(sent) == 2


HOUR_MS = 3_600_000
TIMES = [
    ({}, 0, HOUR_MS, 10),
    ({"ttlMillis": "", "maxRetry": ""}, 0, HOUR_MS, 10),
    ({"ttlMillis": -1, "maxRetry": -1}, 0, HOUR_MS, 10),
    ({"ttlMillis": 0, "maxRetry": 0}, 0, HOUR_MS, 0),
    ({"delayMillis": -5, "ttlMillis": 7, "maxRetry": 3}, 0, 7, 3),
    ({"delayMillis": "+5", "ttlMillis": 7}, 5, 7, 10),
    ({"delayMillis": TEN_YEARS_MS}, TEN_YEARS_MS, HOUR_MS, 10),
    ({"delayMillis": 1, "maxRetry": 999_999}, 1, HOUR_MS, 999_999),
]


@pytest.mark.parametrize(("fields", "delay_ms", "ttl_ms", "max_retry"), TIMES)
def test_times_and_defaults(
    fields: dict[str, Any], delay_ms: int, ttl_ms: int, max_retry: int
) -> None:
    talk = WorldTalk()
    sent = talk.send(**fields)
    assert sent["produceTime"] == talk.world.now_ms
    assert sent["triggerTime"] - sent["produceTime"] == delay_ms
    assert sent["expireTime"] - sent["triggerTime"] == ttl_ms
    assert (sent["maxRetry"], sent["retry"]) == (max_retry, 0)
    assert sent["status"] == (1 if delay_ms else 2)
    assert talk.get(sent) == sent


def test_what_never_ends() -> None:
    talk = WorldTalk()
    sent = talk.send(ttlMillis=LONG - 1)
    assert sent["expireTime"] == (1 << 53) - 1, "a number that every reader of JSON has"
    talk.world.advance(10 * HOUR_MS)
    assert len(talk.pull()) == 1


def test_generated_ids() -> None:
    talk = WorldTalk()
    ids = [talk.send(msgId="")["msgId"], *(talk.send()["msgId"] for _ in range(3))]
    assert len(set(ids)) == 4
    for id in ids:
        assert len(id) == 32
        assert not id.strip("0123456789abcdef")
        assert talk.status({"topic": "T", "msgId": id}) == 2


def test_an_id_that_was_generated_may_be_sent_again() -> None:
    talk = WorldTalk()
    sent = talk.send()
    assert talk.send(msg="other", msgId=sent["msgId"]) == sent, "it is taken as any other"
    [pulled] = talk.pull(batch=10)
    talk.ack(pulled)
    again = talk.send(msg="again", msgId=sent["msgId"])
    assert (again["msg"], again["status"]) == ("again", 2)
    assert [message["msg"] for message in talk.pull(batch=10)] == ["again"]
    talk.ack(again)
    assert talk.get(sent)["msg"] == "again"


@pytest.mark.parametrize("id", ["a b", "100%", "%41", "a\r\nb", "中文", "0" * 32, "x" * 255, "\0"])
def test_any_id(id: str) -> None:
    talk = WorldTalk()
    sent = talk.send(msgId=id)
    assert sent["msgId"] == id
    [pulled] = talk.pull()
    assert pulled["msgId"] == id
    talk.ack(pulled)
    assert talk.status(sent) == 4


def test_batches_and_defaults() -> None:
    world = World(dialects={"camellia": CamelliaSettings(camellia_batch=3, camellia_ttl_ms=500)})
    talk = WorldTalk(world)
    for _ in range(12):
        talk.send()
    assert [len(talk.pull(batch=batch)) for batch in ("", -1, 0, 1, 2)] == [3, 3, 3, 1, 2]
    talk.send()
    world.advance(500)
    assert talk.pull() == []


def test_the_deadline_of_an_ack() -> None:
    talk = WorldTalk()
    for value in ("", -1, 0):
        talk.send()
        talk.pull(ackTimeoutMillis=value)
        talk.world.advance(29_999)
        assert talk.pull() == []
        talk.world.advance(1)
        [again] = talk.pull()
        talk.ack(again)


def test_a_body_that_is_no_text() -> None:
    """It is kept as it is; in JSON what is no text cannot be told."""
    talk = WorldTalk()
    body = b"topic=T&delayMillis=0&msg=" + quote(b"\xff\xfea").encode()
    reply = talk.request(http(QUEUE + "sendMsg", FORM, body=body, method="POST"))
    assert document(reply)["delayMsg"]["msg"] == "��a"
    reply = talk.client.request(http("/T?cmd=consume"))
    assert reply.body == b"\xff\xfea"
