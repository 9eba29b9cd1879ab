"""Polls that wait: woken by everything that may give them a message, and by nothing else."""

from __future__ import annotations

import pytest

from tests.conformance.dialogue import World, http, ok
from tests.dialects.camellia.words import WorldTalk, verb
from tests.dialects.talks import document
from zbus.dialects.camellia.parking import HELD_MS


@pytest.fixture
def talk() -> WorldTalk:
    return WorldTalk()


def test_what_is_there_is_given_at_once(talk: WorldTalk) -> None:
    talk.send()
    assert len(talk.poll().messages() or []) == 1


@pytest.mark.parametrize("known", [True, False])
def test_the_time_is_over(talk: WorldTalk, known: bool) -> None:
    if known:
        talk.ack(talk.send())
        talk.pull()
    named, unnamed, negative = (
        talk.poll(longPollingTimeoutMillis=500),
        talk.poll(),
        talk.poll(longPollingTimeoutMillis=-1),
    )
    talk.world.advance(499)
    assert named.messages() is None
    talk.world.advance(1)
    assert named.messages() == []
    talk.world.advance(9_499)
    assert (unnamed.messages(), negative.messages()) == (None, None)
    talk.world.advance(1)
    assert (unnamed.messages(), negative.messages()) == ([], [])


def test_woken_by_a_send(talk: WorldTalk) -> None:
    talk.send()
    talk.pull()
    poll = talk.poll()
    sent = talk.send()
    assert [message["msgId"] for message in poll.messages() or []] == [sent["msgId"]]


def test_woken_when_it_is_due_and_not_before(talk: WorldTalk) -> None:
    sent = talk.send(delayMillis=300)
    poll = talk.poll()
    talk.world.advance(299)
    assert poll.messages() is None
    talk.world.advance(1)
    [message] = poll.messages() or []
    assert (message["msgId"], message["status"], message["retry"]) == (sent["msgId"], 3, 1)


def test_woken_by_what_comes_back(talk: WorldTalk) -> None:
    talk.send()
    [pulled] = talk.pull()
    poll = talk.poll()
    talk.nack(pulled)
    [message] = poll.messages() or []
    assert message["retry"] == 2
    talk.pull()
    talk.world.advance(20_000)
    poll = talk.poll(longPollingTimeoutMillis=20_000)
    talk.world.advance(9_999)
    assert poll.messages() is None
    talk.world.advance(1)
    [message] = poll.messages() or []
    assert message["retry"] == 3


def test_first_come_first_served(talk: WorldTalk) -> None:
    polls = [talk.poll(batch=2) for _ in range(4)]
    for number in range(4):
        talk.send(msg=str(number))
    found = [poll.messages() for poll in polls]
    assert [[m["msg"] for m in messages or []] for messages in found] == [
        ["0"],
        ["1"],
        ["2"],
        ["3"],
    ]


def test_a_topic_that_nobody_has_sent_to(talk: WorldTalk) -> None:
    first, second = talk.poll("New", batch=5), talk.poll("New")
    assert talk.world.broker.topic("New") is None, "polls make no topics"
    talk.send("new", msg="first")
    assert [message["msg"] for message in first.messages() or []] == ["first"]
    talk.send("new", msg="second")
    assert [message["msg"] for message in second.messages() or []] == ["second"]


def test_a_topic_that_others_declare(talk: WorldTalk) -> None:
    poll = talk.poll("New")
    client = talk.world.connect()
    ok(client, http("/New?cmd=declare"))
    talk.world.advance(1_000)
    ok(client, http("/New", body=b"hello", method="POST"))
    [message] = poll.messages() or []
    assert (message["msg"], message["maxRetry"]) == ("hello", 10)
    talk.ack(message)
    assert talk.pull("New") == []


def test_who_is_gone_takes_nothing(talk: WorldTalk) -> None:
    for topic in ("Known", "New"):
        if topic == "Known":
            talk.ack(talk.send(topic))
            [pulled] = talk.pull(topic)
            talk.ack(pulled)
        gone, there = talk.poll(topic), talk.poll(topic)
        gone.client.vanish()
        sent = talk.send(topic)
        [message] = there.messages() or []
        assert (message["msgId"], message["retry"]) == (sent["msgId"], 1)
    talk.world.broker.check()


def test_the_end_of_the_broker(talk: WorldTalk) -> None:
    talk.send("Known")
    talk.pull("Known")
    polls = [talk.poll("Known"), talk.poll("New")]
    talk.world.posted.append(talk.world.broker.stop)
    talk.world.settle()
    assert [poll.messages() for poll in polls] == [[], []]
    assert not any(client.peer.open_tickets for client in talk.world.clients)
    assert talk.poll("New").messages() == []


def test_a_refusal_is_held_back(talk: WorldTalk) -> None:
    """The Java client asks again at once, whatever it hears."""
    client = talk.world.connect()
    ok(client, http("/Plain?cmd=declare&group=Plain"))
    assert talk.ask("pullMsg", topic="Plain")["code"] == 400
    client.send(verb("longPollingMsg", topic="Plain"))
    talk.world.settle()
    assert client.replies() == []
    talk.world.advance(HELD_MS)
    [reply] = client.replies()
    assert b'"code":400' in reply.body
    assert b"acknowledged on delivery" in reply.body
    gone = talk.world.connect()
    gone.send(verb("longPollingMsg", topic="Plain"))
    talk.world.settle()
    gone.vanish()
    talk.world.advance(HELD_MS)


def test_a_poll_without_a_name_is_held_back(talk: WorldTalk) -> None:
    """It is refused with the code of a pull, but not as fast."""
    client = talk.world.connect()
    refused = talk.ask("pullMsg", topic="")
    assert refused["code"] == 400
    client.send(verb("longPollingMsg", topic=""))
    talk.world.settle()
    assert client.replies() == []
    talk.world.advance(HELD_MS)
    [reply] = client.replies()
    assert document(reply) == refused
    gone = talk.world.connect()
    gone.send(verb("longPollingMsg", topic=""))
    talk.world.settle()
    gone.vanish()
    talk.world.advance(HELD_MS)
    talk.world.broker.timers.check()


def test_for_hours(talk: WorldTalk) -> None:
    """One poll after the other, and nothing of them stays."""
    client = talk.world.connect()
    for _ in range(720):
        assert client.exchange(verb("longPollingMsg", topic="New")) == []
        talk.world.advance(9_999)
        assert client.replies() == []
        talk.world.advance(1)
        assert len(client.replies()) == 1
    timers = talk.world.broker.timers
    timers.check()
    assert timers.count < 5
    assert not client.peer.open_waits


def test_replies_come_in_the_order_of_their_requests(talk: WorldTalk) -> None:
    client = talk.world.connect()
    client.send(verb("longPollingMsg", topic="New") + verb("getMsg", topic="New", msgId="one"))
    talk.world.settle()
    assert client.replies() == []
    talk.send("New")
    first, second = client.replies()
    assert (b"delayMsgList" in first.body, b"404" in second.body) == (True, True)


def test_many_wait(talk: WorldTalk) -> None:
    polls = [talk.poll("New", longPollingTimeoutMillis=60_000) for _ in range(300)]
    for number in range(300):
        talk.send("New", msg=str(number))
    assert [(poll.messages() or [])[0]["msg"] for poll in polls] == [str(n) for n in range(300)]


def test_a_connection_may_have_so_many(talk: WorldTalk) -> None:
    client = World().connect()
    data = verb("longPollingMsg", topic="New")
    for _ in range(1_025):
        client.send(data)
    client.world.settle()
    client.world.advance(10_000)
    replies = client.replies()
    assert {reply.status for reply in replies} == {200, 429}
