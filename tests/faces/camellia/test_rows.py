"""What the tests of the original check, as dialogues (specification, section 11)."""

from __future__ import annotations

import pytest

from tests.conformance.dialogue import World
from tests.faces.camellia.words import Talk


@pytest.fixture
def talk() -> Talk:
    return Talk(World().connect())


def test_sent_pulled_acknowledged(talk: Talk) -> None:
    sent = talk.send(ttlMillis=1_000, maxRetry=1)
    assert sent["status"] == 2
    [pulled] = talk.pull()
    assert (pulled["msgId"], pulled["msg"]) == (sent["msgId"], "abc")
    assert (pulled["status"], pulled["retry"]) == (3, 1)
    talk.ack(pulled)
    found = talk.get(sent)
    assert (found["status"], found["msg"]) == (4, "abc")
    assert talk.pull() == []


def test_a_delay(talk: Talk) -> None:
    sent = talk.send(delayMillis=200)
    assert sent["status"] == 1
    assert talk.pull() == []
    talk.world.advance(199)
    assert talk.pull() == [], "never early"
    talk.world.advance(1)
    [pulled] = talk.pull()
    assert pulled["msgId"] == sent["msgId"]


def test_nobody_acknowledges(talk: Talk) -> None:
    sent = talk.send(maxRetry=1)
    [first] = talk.pull(ackTimeoutMillis=20)
    assert first["retry"] == 1
    assert talk.pull() == []
    talk.world.advance(60)
    [second] = talk.pull(ackTimeoutMillis=20)
    assert (second["msgId"], second["retry"]) == (sent["msgId"], 2)


def test_one_delivery(talk: Talk) -> None:
    sent = talk.send(maxRetry=0)
    [pulled] = talk.pull(ackTimeoutMillis=20)
    assert pulled["retry"] == 1
    talk.world.advance(60)
    assert talk.pull() == []
    assert talk.get(sent)["status"] == 6


def test_deleted(talk: Talk) -> None:
    sent = talk.send()
    assert talk.delete(sent) == 200
    assert talk.get(sent)["status"] == 7
    assert talk.delete({"topic": "T", "msgId": "unknown"}) == 404
    assert talk.pull() == []


def test_empty_and_sent_twice(talk: Talk) -> None:
    refused = talk.ask("sendMsg", topic="T", msg="", delayMillis=0)
    assert (refused["code"], refused["delayMsg"]) == (400, None)
    first = talk.send(msg="first", msgId="one")
    second = talk.send(msg="second", msgId="one")
    assert (second["msg"], second["msgId"]) == ("first", "one")
    assert second == first
    assert [message["msg"] for message in talk.pull(batch=10)] == ["first"]


def test_twenty_in_batches(talk: Talk) -> None:
    sent = [talk.send(msg=str(number))["msgId"] for number in range(20)]
    pulled = []
    for _ in range(4):
        messages = talk.pull(batch=5)
        pulled += [message["msgId"] for message in messages]
        for message in messages:
            talk.ack(message)
    assert pulled == sent, "each once, in the order in which they came"
    assert talk.pull(batch=5) == []
