"""What the tests of the original check, and what its users ran into, as dialogues with any broker.

Every `wait` may be a restart of the broker in the middle. Times are in milliseconds; those of a
real broker pass for real, so they are short.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.dialects.camellia.words import Talk

Row = Callable[[Talk], None]


def sent_pulled_acknowledged(talk: Talk) -> None:
    sent = talk.send(ttlMillis=10_000, maxRetry=1)
    assert sent["status"] == 2
    talk.wait(10)
    [pulled] = talk.pull()
    assert (pulled["msgId"], pulled["msg"]) == (sent["msgId"], "abc")
    assert (pulled["status"], pulled["retry"]) == (3, 1)
    talk.wait(10)
    talk.ack(pulled)
    talk.wait(10)
    found = talk.get(sent)
    assert (found["status"], found["msg"], found["retry"]) == (4, "abc", 1)
    assert talk.pull() == []


def a_delay(talk: Talk) -> None:
    sent = talk.send(delayMillis=400)
    assert sent["status"] == 1
    assert talk.pull() == []
    assert talk.status(sent) == 1
    talk.wait(500)
    assert talk.status(sent) == 2
    [pulled] = talk.pull()
    assert (pulled["msgId"], pulled["retry"]) == (sent["msgId"], 1)


def nobody_acknowledges(talk: Talk) -> None:
    sent = talk.send(maxRetry=1)
    [first] = talk.pull(ackTimeoutMillis=300)
    assert first["retry"] == 1
    assert talk.pull() == []
    talk.wait(400)
    [second] = talk.pull(ackTimeoutMillis=300)
    assert (second["msgId"], second["retry"]) == (sent["msgId"], 2)


def attempts_are_used_up(talk: Talk) -> None:
    sent = talk.send(maxRetry=1)
    for retry in (1, 2):
        [pulled] = talk.pull(ackTimeoutMillis=100)
        assert pulled["retry"] == retry
        talk.wait(200)
    assert talk.pull() == []
    found = talk.get(sent)
    assert (found["status"], found["retry"]) == (6, 2)


def one_delivery(talk: Talk) -> None:
    sent = talk.send(maxRetry=0)
    [pulled] = talk.pull(ackTimeoutMillis=100)
    assert (pulled["retry"], pulled["maxRetry"]) == (1, 0)
    talk.wait(200)
    assert talk.pull() == []
    assert talk.status(sent) == 6


def deleted(talk: Talk) -> None:
    sent = talk.send()
    talk.wait(10)
    assert talk.delete(sent) == 200
    talk.wait(10)
    assert talk.status(sent) == 7
    assert talk.delete(sent) == 404
    assert talk.delete({"topic": "T", "msgId": "unknown"}) == 404
    assert talk.delete({"topic": "nowhere", "msgId": "unknown"}) == 404
    assert talk.pull() == []


def empty_and_sent_twice(talk: Talk) -> None:
    refused = talk.ask("sendMsg", topic="T", msg="", delayMillis=0)
    assert (refused["code"], refused["delayMsg"]) == (400, None)
    first = talk.send(msg="first", msgId="one")
    talk.wait(10)
    second = talk.send(msg="second", msgId="one", delayMillis=60_000)
    assert second == first, "the first, with its content and its times"
    [pulled] = talk.pull(batch=10)
    assert pulled["msg"] == "first"


def twenty_in_batches(talk: Talk) -> None:
    sent = [talk.send(msg=str(number))["msgId"] for number in range(20)]
    pulled = []
    for _ in range(4):
        messages = talk.pull(batch=5)
        pulled += [message["msgId"] for message in messages]
        talk.wait(10)
        for message in messages:
            talk.ack(message)
    assert pulled == sent, "each once, in the order in which they came"
    assert talk.pull(batch=5) == []


def ttl_counts_from_when_it_is_due(talk: Talk) -> None:
    sent = talk.send(delayMillis=300, ttlMillis=200)
    assert sent["triggerTime"] - sent["produceTime"] == 300
    assert sent["expireTime"] - sent["triggerTime"] == 200
    talk.wait(350)
    assert [message["msgId"] for message in talk.pull()] == [sent["msgId"]]


def expired_and_never_handed_out(talk: Talk) -> None:
    sent = talk.send(ttlMillis=100)
    talk.wait(300)
    found = talk.get(sent)
    assert (found["status"], found["retry"]) == (5, 0)
    assert talk.pull() == []
    assert talk.delete(sent) == 404


def expired_after_it_was_handed_out(talk: Talk) -> None:
    sent = talk.send(ttlMillis=300)
    [pulled] = talk.pull(ackTimeoutMillis=100)
    assert pulled["msgId"] == sent["msgId"]
    talk.wait(500)
    found = talk.get(sent)
    assert (found["status"], found["retry"]) == (6, 1)
    assert talk.pull() == []


def acknowledged_after_its_time(talk: Talk) -> None:
    sent = talk.send(ttlMillis=100)
    [pulled] = talk.pull()
    talk.wait(200)
    assert talk.status(sent) == 3, "it is in somebody's hands"
    talk.ack(pulled)
    assert talk.status(sent) == 4


def given_back_at_once(talk: Talk) -> None:
    sent, other = talk.send(msg="given back"), talk.send(msg="other")
    [pulled] = talk.pull()
    talk.nack(pulled)
    talk.wait(10)
    assert talk.status(sent) == 2
    again = talk.pull(batch=2)
    assert [(m["msgId"], m["retry"]) for m in again] == [(other["msgId"], 1), (sent["msgId"], 2)]


def given_back_too_often(talk: Talk) -> None:
    sent = talk.send(maxRetry=1)
    for _ in range(2):
        [pulled] = talk.pull()
        talk.nack(pulled)
        talk.wait(10)
    assert talk.status(sent) == 6, "as soon as it is"
    assert talk.pull() == []


def sent_again_after_each_end(talk: Talk) -> None:
    def once_more(msg: str) -> None:
        again = talk.send(msg=msg, msgId="one", ttlMillis=60_000)
        assert (again["msg"], again["retry"], again["status"]) == (msg, 0, 2)
        assert talk.get(again) == again

    first = talk.send(msg="first", msgId="one")
    [pulled] = talk.pull()
    talk.ack(pulled)
    talk.wait(10)
    once_more("after the ack")
    assert talk.delete(first) == 200
    talk.wait(10)
    once_more("after the deletion")
    assert talk.delete(first, release="true") == 200
    talk.wait(10)
    once_more("after the release")
    assert talk.delete(first) == 200
    talk.send(msg="short", msgId="one", ttlMillis=50)
    talk.wait(100)
    once_more("after the expiry")
    assert [message["msg"] for message in talk.pull(batch=10)] == ["after the expiry"]


def released(talk: Talk) -> None:
    sent = talk.send()
    assert talk.delete(sent, release="true") == 200
    talk.wait(10)
    assert talk.get(sent) is None
    assert talk.pull() == []
    ended = talk.send(msgId="named")
    assert talk.delete(ended) == 200
    assert talk.status(ended) == 7
    assert talk.delete(ended, release="true") == 404, "it is over; yet it is forgotten"
    talk.wait(10)
    assert talk.get(ended) is None


def deleted_in_somebodys_hands(talk: Talk) -> None:
    sent = talk.send()
    [pulled] = talk.pull(ackTimeoutMillis=100)
    assert talk.delete(pulled) == 200
    talk.ack(pulled)
    talk.nack(pulled)
    assert talk.status(sent) == 7, "and stays deleted"
    talk.wait(200)
    assert talk.pull() == []
    assert talk.status(sent) == 7


def deleted_and_sent_again(talk: Talk) -> None:
    first = talk.send(msg="first", msgId="one")
    assert talk.delete(first) == 200
    talk.send(msg="second", msgId="one")
    talk.wait(10)
    assert [message["msg"] for message in talk.pull(batch=10)] == ["second"]
    assert talk.pull() == []


def what_is_not_in_somebodys_hands(talk: Talk) -> None:
    """Neither an ack nor a nack of it does anything."""
    waiting, ready = talk.send(delayMillis=300), talk.send()
    unknown = {"topic": "T", "msgId": "unknown"}
    for message in (waiting, ready, unknown, {**unknown, "topic": "nowhere"}):
        talk.ack(message)
        talk.nack(message)
    assert (talk.status(waiting), talk.status(ready)) == (1, 2)
    assert [message["msgId"] for message in talk.pull(batch=10)] == [ready["msgId"]]
    talk.wait(400)
    assert [message["msgId"] for message in talk.pull(batch=10)] == [waiting["msgId"]]
    talk.ack(ready)
    talk.ack(ready)
    talk.nack(ready)
    assert talk.status(ready) == 4
    assert talk.pull() == []


def in_the_order_of_their_times(talk: Talk) -> None:
    """Though nobody asked in between, and whatever the order in which they were sent."""
    for delay_ms in (400, 200, 0, 300, 200):
        talk.send(msg=str(delay_ms), delayMillis=delay_ms)
    talk.wait(600)
    found = talk.pull(batch=10)
    assert [message["msg"] for message in found] == ["0", "200", "200", "300", "400"]
    times = [message["triggerTime"] for message in found]
    assert times == sorted(times)


def all_characters(talk: Talk) -> None:
    texts = ["中文 + & = % ✓", 'a"b\\c\n\td', "%2B+%26", "😀", " ", "x" * 100_000]
    for text in texts:
        sent = talk.send(msg=text, msgId=f"id of {text[:20]}")
        assert (sent["msg"], talk.get(sent)["msg"]) == (text, text)
    talk.wait(10)
    pulled = []
    while found := talk.pull(batch=10):
        for message in found:
            assert message["msgId"] == f"id of {message['msg'][:20]}"
            talk.ack(message)
            assert talk.status(message) == 4
        pulled += [message["msg"] for message in found]
    assert pulled == texts


def topics_have_nothing_to_do_with_each_other(talk: Talk) -> None:
    one, other = talk.send("One", msgId="same"), talk.send("Other", msg="other", msgId="same")
    assert talk.pull("nowhere") == []
    [pulled] = talk.pull("One")
    talk.ack(pulled)
    talk.wait(10)
    assert (talk.status(one), talk.status(other)) == (4, 2)
    assert talk.get({**one, "topic": "nowhere"}) is None


def parts_make_the_whole(talk: Talk) -> None:
    minute_ms = 60_000
    delays_ms = [minute * minute_ms for minute in (0.5, 5, 20, 45, 180, 800, 3_000, 20_000, 80_000)]
    for delay_ms in delays_ms:
        talk.send(delayMillis=int(delay_ms))
    talk.send()
    talk.send()
    talk.pull()
    talk.wait(10)
    info = talk.look("getTopicInfo?topic=T")
    assert info["waitingQueueSize"] == 9 == sum(info["waitingQueueInfo"].values())
    assert set(info["waitingQueueInfo"].values()) == {1}
    assert (info["readyQueueSize"], info["ackQueueSize"]) == (1, 1)


ROWS: tuple[Row, ...] = (
    sent_pulled_acknowledged,
    a_delay,
    nobody_acknowledges,
    attempts_are_used_up,
    one_delivery,
    deleted,
    empty_and_sent_twice,
    twenty_in_batches,
    ttl_counts_from_when_it_is_due,
    expired_and_never_handed_out,
    expired_after_it_was_handed_out,
    acknowledged_after_its_time,
    given_back_at_once,
    given_back_too_often,
    sent_again_after_each_end,
    released,
    deleted_in_somebodys_hands,
    deleted_and_sent_again,
    what_is_not_in_somebodys_hands,
    in_the_order_of_their_times,
    all_characters,
    topics_have_nothing_to_do_with_each_other,
    parts_make_the_whole,
)
