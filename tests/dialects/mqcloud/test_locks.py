"""Who has a queue, for how long, and what a requestId is worth: by the specification, section 4."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.dialogue import http
from tests.dialects.mqcloud.words import (
    CONSUMER,
    TOPIC,
    WorldTalk,
    closed,
    forged,
    get,
    opened,
    told,
    told_again,
)

TIMEOUT_MS = 300_000


def talk_with(*messages: str, way: int = 0) -> WorldTalk:
    talk = WorldTalk()
    talk.begin(way=way)
    for message in messages:
        talk.produce(message)
    return talk


def test_a_batch_is_delivered_again_when_its_time_is_over() -> None:
    talk = talk_with("a", "b")
    first = talk.message()["requestId"]
    talk.wait(TIMEOUT_MS - 1_000)
    assert talk.try_message()["status"] == 500
    talk.wait(1_001)
    talk.produce("c")
    second = talk.message()
    assert told(second) == ["a", "b", "c"], "from the same place"
    late = talk.ack(first)
    assert (late["status"], late["message"].split(" ")[:3]) == (200, ["ack", "lockTime", "small"])
    assert talk.committed() == [0]
    assert talk.ack(second["requestId"])["message"][:3] == "ok "
    assert talk.committed() == [3]


def test_a_late_ack_counts_while_nobody_has_taken_the_queue() -> None:
    talk = talk_with("a", "b")
    request_id = talk.message()["requestId"]
    talk.wait(2 * TIMEOUT_MS)
    assert talk.ack(request_id)["message"][:3] == "ok "
    assert talk.committed() == [2]
    assert talk.message()["status"] == "NO_NEW_MSG"


def test_a_consume_timeout_of_one_request() -> None:
    talk = talk_with("a")
    talk.message(consumeTimeout=10)
    talk.wait(10_001)
    assert talk.bodies() == ["a"]


def test_a_consume_timeout_of_a_consumer() -> None:
    talk = talk_with("a")
    assert talk.configure(consumeTimeoutInMillis=20_000) == {"status": 200}
    assert talk.config()["consumeTimeoutInMillis"] == 20_000
    talk.message()
    talk.wait(19_000)
    assert talk.try_message()["status"] == 500
    talk.wait(1_001)
    assert talk.bodies() == ["a"]


FORGERIES: dict[str, tuple[int, object, str, list[int]]] = {
    "another broker": (0, "broker-a", "lock not exist", [0]),
    "another queue": (1, 1, "lock not exist", [0]),
    "a queue that is not there": (1, 99, "lock not exist", [0]),
    "a negative queue": (1, -1, "lock not exist", [0]),
    "another offset": (2, 1, "not the locked batch", [0]),
    "an offset beyond the end": (2, 3, "not the locked batch", [0]),
    "a part of the batch": (3, 2, "ok", [2]),
    "more than the batch": (3, 9_000, "ok", [3]),
    "nothing of the batch": (3, 0, "ok", [0]),
    "an earlier lock": (4, 1, "ack lockTime small", [0]),
    "a later lock": (4, 1 << 62, "ok", [3]),
    "force": (5, "true", "ok", [3]),
    "no word of force": (5, "perhaps", "ok", [3]),
}


@pytest.mark.parametrize("case", FORGERIES)
def test_a_forged_field_settles_nothing_that_was_not_handed_out(case: str) -> None:
    field, value, said, committed = FORGERIES[case]
    talk = WorldTalk()
    talk.begin(queues=2)
    for body in "abc":
        talk.produce(body, orderId="b")  # its hash is even
    talk.produce("other", orderId="a")
    request_id = talk.message()["requestId"]
    assert opened(request_id)[1] == "0"
    found = talk.ack(forged(request_id, field, value))
    assert found["status"] == 200
    assert found["message"].startswith(said), found
    assert talk.committed() == [*committed, 0]
    talk.wait(TIMEOUT_MS + 1_000)
    left = ["a", "b", "c"][committed[0] :]
    assert sorted(talk.drain()) == sorted([*left, "other"]), "nothing is skipped"


def test_nothing_is_acknowledged_that_came_later() -> None:
    """Who says that his batch ends later than it does gets no more than his batch."""
    talk = talk_with("a")
    request_id = talk.message()["requestId"]
    talk.produce("b")
    assert talk.ack(forged(request_id, 3, 2))["message"][:3] == "ok "
    assert talk.drain() == ["b"]


ILLEGAL = {
    "a negative offset": (2, -1),
    "an end before the beginning": (3, -1),
}


@pytest.mark.parametrize("case", ILLEGAL)
def test_an_illegal_request_id_is_refused_and_changes_nothing(case: str) -> None:
    field, value = ILLEGAL[case]
    talk = talk_with("a", "b")
    request_id = talk.message()["requestId"]
    bad = forged(forged(request_id, 2, 1), field, value)
    for said in (talk.ack(bad), talk.unlock(bad)):
        assert said["status"] == 400
        assert said["message"].startswith("ack illegal")
    info = talk.try_message(bad)
    assert info["status"] == 500, "the queue is still locked"
    assert talk.ack(request_id)["message"][:3] == "ok "


MALFORMED = {
    "no base64": "***",
    "no text": "gICAgICA",
    "four fields": closed(["zbus", "0", "0", "1"]),
    "seven fields": closed(["zbus", "0", "0", "1", "2", "false", "x"]),
    "no number": closed(["zbus", "0", "x", "1", "2"]),
    "an empty number": closed(["zbus", "0", "", "1", "2"]),
    "a number with a space": closed(["zbus", "0", " 1", "1", "2"]),
    "a number in other digits": closed(["zbus", "0", "\u0661", "1", "2"]),
    "a number beyond all": closed(["zbus", "0", "1" * 30, "1", "2"]),
    "a queue beyond all": closed(["zbus", "99999999999", "0", "1", "2"]),
    "too long": closed(["z" * 2_000, "0", "0", "1", "2"]),
}


@pytest.mark.parametrize("case", MALFORMED)
def test_a_malformed_request_id_is_refused_and_changes_nothing(case: str) -> None:
    talk = talk_with("a")
    assert talk.ack(MALFORMED[case])["status"] == 500
    assert talk.unlock(MALFORMED[case])["status"] == 400
    found = talk.message(MALFORMED[case])
    assert found["ackInfo"]["status"] == 500
    assert told(found) == ["a"], "the outcome of the ack never fails the call"


def test_a_blank_request_id_is_none() -> None:
    talk = talk_with("a")
    found = talk.ask(get("/mq/message", topic=TOPIC, consumer=CONSUMER, requestId="  "))["result"]
    assert "ackInfo" not in found
    assert talk.ack("")["status"] == 400
    assert talk.unlock("")["status"] == 400


def test_another_groups_request_id_is_worth_nothing() -> None:
    talk = talk_with("a")
    talk.register(consumer="other")
    theirs = talk.message(consumer="other")["requestId"]
    mine = talk.message()["requestId"]
    if theirs != mine:
        assert talk.ack(theirs)["message"][:3] != "ok "
    assert talk.committed() in ([0], [1])
    assert talk.ack(mine, consumer="other")["status"] == 200
    found = talk.ask(get("/mq/clustering/queue/offset", consumer="other"))["result"]
    assert found[0]["committedOffset"] <= 1


def test_a_restart_with_a_lock_held() -> None:
    """What was delivered and not acknowledged is delivered again, or acknowledged by its id."""
    for acknowledged in (False, True):
        talk = talk_with("a", "b")
        request_id = talk.message()["requestId"]
        talk.wait(1_000)
        talk.restart()
        if acknowledged:
            assert talk.ack(request_id)["status"] == 200
        talk.wait(TIMEOUT_MS + 1_000)
        left = [] if acknowledged else ["a", "b"]
        assert talk.drain() == left


def test_a_batch_of_delayed_messages_does_not_end_them() -> None:
    """What lies between the messages of a batch and was not due is not settled with it."""
    talk = WorldTalk()
    talk.begin()
    talk.produce("a")
    talk.produce("later", delayLevel=5)
    talk.produce("b")
    found = talk.message()
    assert told(found) == ["a", "b"]
    talk.wait(1_000)
    talk.restart()
    talk.ack(found["requestId"])
    talk.wait(TIMEOUT_MS + 60_000)
    assert "later" in talk.drain()


def test_who_empties_a_topic_moves_its_consumers() -> None:
    talk = talk_with("a", "b", "c")
    assert talk.ack(talk.message(maxPullSize=1)["requestId"])["message"][:3] == "ok "
    assert talk.request(http(f"/{TOPIC}?cmd=empty")).status == 200
    talk.produce("d")
    assert talk.bodies() == ["d"]
    assert talk.committed() == [3]


def test_retention_takes_what_was_not_consumed() -> None:
    talk = WorldTalk()
    declare = f"/{TOPIC}?cmd=declare&retention_count=2&partitions=1"
    assert talk.request(http(declare)).status == 200
    talk.register(producer="orders-producer")
    talk.register(consumer=CONSUMER)
    for number in range(10):
        talk.produce(f"m{number}" + "x" * 3_000_000)
        talk.wait(60_000)
    found = talk.message()
    assert found["status"] == "OFFSET_ILLEGAL"
    fields = opened(found["requestId"])
    assert fields[5] == "true"
    assert talk.try_message()["status"] == 500, "until that is confirmed"
    again = talk.message(found["requestId"])
    assert again["status"] == "FOUND"
    assert again["queueInfo"]["committedOffset"] == int(fields[3])
    assert opened(again["requestId"])[5] == "false", "force is of one requestId only"


def test_what_a_filter_drops_is_told() -> None:
    talk = talk_with()
    declare = f"/{TOPIC}/{CONSUMER}?cmd=declare&group_filter=wanted"
    assert talk.request(http(declare)).status == 200
    assert talk.request(http(f"/{TOPIC}?cmd=produce&tag=other", body=b"x")).status == 200
    found = talk.message()
    assert found["status"] == "NO_MATCHED_MSG"
    assert opened(found["requestId"])[2:4] == ["1", "1"]
    assert talk.request(http(f"/{TOPIC}?cmd=produce&tag=wanted", body=b"y")).status == 200
    assert talk.bodies(found["requestId"]) == ["y"]


def test_messages_of_others_that_are_no_text() -> None:
    talk = talk_with()
    assert talk.request(http(f"/{TOPIC}?cmd=produce", body=b"\xff\x00")).status == 200
    [message] = talk.message()["msgList"]
    assert message["messageBase64"] == "/wA="
    assert len(message["messageId"]) > 0


def test_a_client_that_leaves_keeps_its_batch() -> None:
    """The documented client has a connection for each call."""
    talk = talk_with("a")
    request_id = talk.message()["requestId"]
    talk.client.vanish()
    talk.client = talk.world.connect()
    assert talk.try_message()["status"] == 500
    assert talk.ack(request_id)["message"][:3] == "ok "


def test_pop_ranges_that_nobody_acknowledged() -> None:
    talk = talk_with("a", "b", "c")
    first = talk.message(pop=True, maxPullSize=2)
    assert told(first) == ["a", "b"]
    talk.wait(TIMEOUT_MS + 1)
    second = talk.message(pop=True)
    assert told_again(second) == ["a", "b"]
    assert told(second) == ["c"]
    late: Any = talk.ack(first["requestId"], pop=True)
    assert late["message"][:3] != "ok "
    assert talk.ack(second["requestId"], pop=True)["message"][:3] == "ok "
    assert talk.committed() == [3]


def test_broadcast_clients_have_locks_of_their_own() -> None:
    talk = talk_with("a", way=1)
    one = talk.message(clientId="one")["requestId"]
    two = talk.message(clientId="two")["requestId"]
    if one != two:
        assert talk.ack(one, clientId="two")["message"][:3] != "ok "
    assert talk.ack(two, clientId="three")["message"].startswith("lock not exist")
    assert talk.configure(resetOffsetTimestamp=0, clientId="one") == {"status": 200}
    assert talk.configure(resetOffsetTimestamp=0, clientId="nobody")["status"] == 500
