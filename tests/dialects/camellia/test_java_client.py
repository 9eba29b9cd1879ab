"""What the unmodified Java client sends, byte by byte, and what it needs of the answers."""

from __future__ import annotations

from typing import Any

import pytest

from tests.dialects.camellia.words import WorldTalk
from tests.dialects.talks import document

HEAD = (
    "POST /camellia/delayQueue/{} HTTP/1.1\r\n"
    "Content-Type: application/x-www-form-urlencoded; charset=utf-8\r\n"
    "Content-Length: {}\r\n"
    "Host: 127.0.0.1:8080\r\n"
    "Connection: Keep-Alive\r\n"
    "Accept-Encoding: gzip\r\n"
    "User-Agent: okhttp/3.14.9\r\n\r\n"
)


@pytest.fixture
def talk() -> WorldTalk:
    return WorldTalk()


def ask(talk: WorldTalk, name: str, body: str) -> Any:
    reply = talk.request((HEAD.format(name, len(body)) + body).encode())
    assert "transfer-encoding" not in reply.headers
    assert "content-encoding" not in reply.headers
    assert reply.headers["content-type"].endswith("charset=UTF-8")
    assert reply.headers["connection"] == "Keep-Alive"
    return document(reply)


def test_a_listener(talk: WorldTalk) -> None:
    """All of them on one connection, in the order of a hash map."""
    sent = ask(
        talk,
        "sendMsg",
        "msg=%E4%B8%AD%E6%96%87+%2B%26%3D%25&topic=topic1&ttlMillis=-1&maxRetry=-1&delayMillis=0",
    )["delayMsg"]
    assert (sent["msg"], sent["maxRetry"]) == ("中文 +&=%", 10)
    found = ask(
        talk,
        "longPollingMsg",
        "ackTimeoutMillis=30000&batch=1&topic=topic1&longPollingTimeoutMillis=10000",
    )
    [message] = found["delayMsgList"]
    assert message["msg"] == "中文 +&=%"
    id = message["msgId"]
    assert ask(talk, "ackMsg", f"msgId={id}&ack=false&topic=topic1")["code"] == 200
    [again] = ask(talk, "pullMsg", "ackTimeoutMillis=-1&batch=-1&topic=topic1")["delayMsgList"]
    assert (again["msgId"], again["retry"]) == (id, 2)
    assert ask(talk, "ackMsg", f"msgId={id}&ack=true&topic=topic1")["code"] == 200
    assert ask(talk, "getMsg", f"msgId={id}&topic=topic1")["delayMsg"]["status"] == 4


def test_results(talk: WorldTalk) -> None:
    """What is not there is false and null there, what is wrong an exception with its code."""
    assert ask(talk, "deleteMsg", "msgId=none&topic=topic1")["code"] == 404
    assert ask(talk, "getMsg", "msgId=none&topic=topic1")["code"] == 404
    assert ask(talk, "sendMsg", "msg=&topic=topic1&delayMillis=0")["code"] == 400


def test_a_poll_is_answered_in_time(talk: WorldTalk) -> None:
    """The client waits twice as long as it says."""
    poll = talk.poll(longPollingTimeoutMillis=10_000)
    talk.world.advance(10_000)
    assert poll.messages() == []
