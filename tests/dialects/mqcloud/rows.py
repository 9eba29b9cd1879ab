"""What was observed of the original, and what its users ran into, as dialogues with any broker.

Every `wait` may be a restart of the broker in the middle. Times are in milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.conformance.dialogue import http
from tests.dialects.mqcloud.words import (
    CONSUMER,
    TOPIC,
    Talk,
    closed,
    get,
    opened,
    told,
    told_again,
)
from tests.dialects.talks import post

Row = Callable[[Talk], None]


def produced_consumed_acknowledged_by_the_next_call(talk: Talk) -> None:
    talk.begin()
    sent = [talk.produce(f"m{n}", keys=f"k{n}") for n in range(3)]
    talk.wait(20)
    assert [one["queueOffset"] for one in sent] == [0, 1, 2]
    first = talk.message()
    assert first["status"] == "FOUND"
    assert told(first) == ["m0", "m1", "m2"]
    assert [m["messageId"] for m in first["msgList"]] == [one["msgId"] for one in sent]
    assert opened(first["requestId"])[:4] == ["zbus", "0", "0", "3"]
    assert len(opened(first["requestId"])) == 6
    second = talk.message(first["requestId"])
    assert (second["status"], second["ackInfo"]["status"]) == ("NO_NEW_MSG", 200)
    assert "requestId" not in second
    talk.wait(20)
    assert talk.committed() == [3]
    assert talk.message()["status"] == "NO_NEW_MSG"


def acknowledged_by_itself(talk: Talk) -> None:
    talk.begin()
    talk.produce()
    request_id = talk.message()["requestId"]
    said = talk.ack(request_id)
    assert (said["status"], said["message"][:3]) == (200, "ok ")
    talk.wait(20)
    again = talk.ack(request_id)
    assert (again["status"], again["message"][:14]) == (200, "lock not exist")
    assert talk.committed() == [1]


def five_fields_are_enough(talk: Talk) -> None:
    """As an older proxy writes them, with or without padding."""
    talk.begin()
    for padded in (True, False):
        talk.produce()
        short = closed(opened(talk.message()["requestId"])[:5])
        assert talk.ack(short if padded else short.rstrip("="))["message"][:3] == "ok "
    assert talk.committed() == [2]


def a_batch_has_a_size(talk: Talk) -> None:
    talk.begin()
    for number in range(40):
        talk.produce(f"m{number}")
    first = talk.message()
    assert first["msgListSize"] == 32
    second = talk.message(first["requestId"], maxPullSize=5)
    assert told(second) == [f"m{n}" for n in range(32, 37)]
    assert talk.configure(maxPullSize=2) == {"status": 200}
    talk.wait(20)
    if talk.ack(second["requestId"])["message"][:3] != "ok ":
        return  # a restart came in between: it is handed out again
    third = talk.message()
    assert told(third) == ["m37", "m38"]


def one_holder_of_a_queue(talk: Talk) -> None:
    talk.begin()
    talk.produce("a")
    held = talk.message()
    refused = talk.try_message()
    assert refused == {"status": 500, "message": "no consumerQueueOffsetResult"}
    talk.produce("b")
    assert talk.try_message()["status"] == 500, "nor what came meanwhile"
    assert talk.bodies(held["requestId"]) == ["b"]


def queues_are_taken_by_backlog(talk: Talk) -> None:
    talk.begin(queues=3)
    for order_id, count in (("a", 1), ("b", 3), ("c", 2)):
        for number in range(count):
            talk.produce(f"{order_id}{number}", orderId=order_id)
    sizes = [talk.message()["msgListSize"] for _ in range(3)]
    assert sizes == [3, 2, 1]
    assert talk.try_message()["status"] == 500


def order_ids_choose_the_queue(talk: Talk) -> None:
    """Java's hash of the text, and the remainder as Java has it."""
    talk.begin(queues=8)
    chosen = {
        order_id: talk.produce(orderId=order_id)["messageQueue"]["queueId"]
        for order_id in ("a", "order-1", "polygenelubricants", "订单", "\U0001f600")
    }
    assert chosen["a"] == 97 % 8
    assert chosen["polygenelubricants"] == 0  # the hash is -2147483648
    talk.wait(20)
    for order_id, queue in chosen.items():
        assert talk.produce(orderId=f" {order_id} ")["messageQueue"]["queueId"] == queue


def in_turn(talk: Talk) -> None:
    talk.begin(queues=3)
    for word in ("ordered", "roundRobin"):
        found = [
            talk.produce(**{word: True})["messageQueue"]["queueId"]  # type: ignore[arg-type]
            for _ in range(6)
        ]
        assert sorted(found[:3]) == [0, 1, 2]
        assert found[3:] == found[:3]


def unlocked_and_delivered_again(talk: Talk) -> None:
    talk.begin()
    talk.produce("a")
    talk.produce("b")
    first = talk.message()
    said = talk.unlock(first["requestId"])
    assert (said["status"], said["message"][-11:]) == (200, "unlock:true")
    second = talk.message()
    assert told(second) == ["a", "b"]
    stale = talk.unlock(first["requestId"]) if second["requestId"] != first["requestId"] else None
    if stale is not None:
        assert stale["message"][-12:] == "unlock:false"
        assert talk.try_message()["status"] == 500, "a stale requestId frees nobody's lock"
    assert talk.ack(second["requestId"])["message"][:3] == "ok "
    assert talk.unlock(second["requestId"])["message"][-12:] == "unlock:false"
    assert talk.committed() == [2]


def paused(talk: Talk) -> None:
    talk.begin()
    talk.produce("a")
    held = talk.message()["requestId"]
    talk.produce("b")
    assert talk.configure(pause=1) == {"status": 200}
    assert talk.config()["pause"] is True
    found = talk.message(held)
    assert found["status"] == "PAUSED"
    assert found["ackInfo"]["message"][:3] == "ok "
    assert "requestId" not in found, "nothing is locked"
    talk.wait(20)
    assert talk.message()["status"] == "PAUSED"
    assert talk.configure(pause=0) == {"status": 200}
    found = talk.message()
    assert told(found) == ["b"], (found, talk.offsets())


def limited(talk: Talk) -> None:
    talk.begin()
    assert talk.configure(limitRate=5) == {"status": 200}
    for number in range(20):
        talk.produce(f"m{number}")
    first = talk.message()
    assert 1 <= first["msgListSize"] <= 5
    second = talk.message(first["requestId"])
    assert second["status"] == "RATE_LIMITED"
    assert "requestId" not in second, "nothing is locked"
    talk.wait(1_100)
    third = talk.message()
    assert third["status"] == "FOUND", "there is no debt to be paid back first"
    assert third["msgListSize"] <= 5
    assert talk.configure(rateLimitEnabled=0) == {"status": 200}
    fourth = talk.message(third["requestId"])
    assert fourth["msgListSize"] > 5
    assert talk.config()["rateLimierEnabled"] is False


def reset_by_time(talk: Talk) -> None:
    talk.begin()
    talk.produce("a")
    talk.wait(100)
    middle = talk.produce("b")
    stored = talk.ask(get("/mq/find", topic=TOPIC, id=middle["msgId"]))["result"]["timestamp"]
    assert talk.drain() == ["a", "b"]
    assert talk.configure(resetOffsetTimestamp=stored) == {"status": 200}
    found = talk.message()
    assert told(found) == ["b"], (found, talk.offsets())


def a_reset_wins_over_an_ack(talk: Talk) -> None:
    talk.begin()
    talk.produce("a")
    talk.produce("b")
    held = talk.message()["requestId"]
    assert talk.configure(resetOffsetTimestamp=0) == {"status": 200}
    found = talk.message(held)
    assert found["ackInfo"]["status"] == 200
    assert found["ackInfo"]["message"][:3] != "ok "
    assert told(found) == ["a", "b"]


def backlog_is_skipped(talk: Talk) -> None:
    talk.begin(queues=2)
    for number in range(6):
        talk.produce(f"m{number}", ordered=True)
    far = 4_000_000_000_000
    assert talk.configure(resetOffsetTimestamp=far) == {"status": 200}
    assert talk.drain() == []
    assert talk.committed() == [3, 3], talk.offsets()


def delivered_again_on_demand(talk: Talk) -> None:
    """By either id; covered by the acknowledgement, and not lost with the broker."""
    talk.begin()
    first = talk.produce("a")
    second = talk.produce("b")
    assert talk.drain() == ["a", "b"]
    assert talk.configure(retryMsgId=first["offsetMsgId"]) == {"status": 200}
    assert talk.configure(retryMsgId=second["msgId"]) == {"status": 200}
    talk.wait(20)
    talk.produce("c")
    found = talk.message()
    assert sorted(told_again(found)) == ["a", "b"]
    assert told(found) == ["c"]
    talk.unlock(found["requestId"])
    found = talk.message()
    assert sorted(told_again(found) + told(found)) == ["a", "b", "c"]
    assert talk.ack(found["requestId"])["message"][:3] == "ok "
    talk.wait(20)
    assert talk.message()["status"] == "NO_NEW_MSG"
    assert talk.configure(retryMsgId="A" * 32)["status"] == 500
    assert talk.configure(retryMsgId="nonsense")["status"] == 500


def found_by_either_id(talk: Talk) -> None:
    talk.begin(queues=3)
    sent = [talk.produce(f"m{n}", keys="k", orderId=f"{n}") for n in range(20)]
    talk.wait(20)
    for number, one in enumerate(sent):
        for id in (one["msgId"], one["offsetMsgId"]):
            found = talk.ask(get("/mq/find", topic=TOPIC, id=id))
            assert found["status"] == 200, id
            result = found["result"]
            assert (result["message"], result["keys"]) == (f"m{number}", "k")
            assert result["messageId"] == one["msgId"]
            assert result["offsetMsgId"] == one["offsetMsgId"]
            assert result["messageQueue"] == one["messageQueue"]
    assert talk.ask(get("/mq/find", topic=TOPIC, id="A" * 32)) == {"status": 201}
    assert talk.ask(get("/mq/find", topic="nowhere", id="A" * 32)) == {"status": 201}


def broadcast(talk: Talk) -> None:
    talk.begin(way=1)
    talk.produce("a")
    one = talk.message(clientId="one")
    assert told(one) == ["a"]
    assert talk.bodies(clientId="two") == ["a"], "each of them sees all"
    assert talk.try_message(clientId="one")["status"] == 500
    assert talk.ack(one["requestId"], clientId="one")["message"][:3] == "ok "
    talk.wait(20)
    assert talk.message(clientId="one")["status"] == "NO_NEW_MSG"
    talk.produce("b")
    assert talk.bodies(clientId="one") == ["b"]
    found = talk.ask(get("/mq/broadcast/queue/offset", consumer=CONSUMER))["result"]
    assert {client: queues[0]["committedOffset"] for client, queues in found.items()} == {
        "one": 1,
        "two": 0,
    }


def from_the_end(talk: Talk) -> None:
    talk.begin()
    talk.produce("old")
    fields = {"topic": TOPIC, "consumer": "late", "first": "latest"}
    assert talk.ask(post("/mq/register", **fields)) == {"status": 200}
    found = talk.try_message(consumer="late")
    assert found["result"]["status"] == "NO_NEW_MSG"
    talk.wait(20)
    talk.produce("new")
    assert talk.bodies(consumer="late") == ["new"]


def a_cookie_instead(talk: Talk) -> None:
    talk.begin()
    talk.produce("a")
    path = f"/mq/message?topic={TOPIC}&consumer={CONSUMER}&useCookie=true"
    reply = talk.request(http(path))
    cookie = reply.headers["set-cookie"]
    assert cookie.startswith("rid=")
    assert cookie.endswith("; Path=/")
    value = cookie.partition(";")[0]
    reply = talk.request(http(path, f"cookie: other=1; {value}"))
    assert b'"ackInfo":{"status":200,"message":"ok ' in reply.body
    assert reply.headers["set-cookie"] == "rid=; Path=/; Max-Age=0"
    assert "set-cookie" not in talk.request(http(path.removesuffix("&useCookie=true"))).headers


def any_method_and_any_place(talk: Talk) -> None:
    """Parameters in the query, in the form, or mixed."""
    talk.begin()
    talk.produce("a")
    found = talk.ask(post(f"/mq/message?topic={TOPIC}", consumer=CONSUMER))
    request_id = found["result"]["requestId"]
    asked = http(f"/mq/ack?topic={TOPIC}&consumer={CONSUMER}&requestId={request_id}", method="PUT")
    assert talk.ask(asked)["message"][:3] == "ok "
    mixed = post("/mq/produce?producer=orders-producer&unknown=1", message="b")
    assert talk.ask(mixed)["status"] == 200
    talk.wait(20)
    found = talk.message()
    assert told(found) == ["b"], (found, talk.offsets())


def a_batch_is_produced(talk: Talk) -> None:
    talk.begin()
    messages = '["text", {"n": 1}, [2], 3, "\\u4e2d"]'
    found = talk.ask(post("/mq/produce/batch", producer="orders-producer", messages=messages))
    assert found == {"status": 200}
    talk.wait(20)
    assert talk.bodies() == ["text", '{"n": 1}', "[2]", "3", "中"]


def delays(talk: Talk) -> None:
    talk.begin()
    talk.produce("later", delayLevel=1)
    talk.produce("now")
    first = talk.message()
    assert told(first) == ["now"]
    assert talk.ack(first["requestId"])["message"][:3] == "ok "
    talk.wait(1_200)
    assert talk.bodies() == ["later"]


def pop(talk: Talk) -> None:
    """Ranges of one queue go to several at once."""
    talk.begin()
    for number in range(6):
        talk.produce(f"m{number}")
    first = talk.message(pop="True", maxPullSize=2)
    second = talk.message(pop=True, maxPullSize=2)
    third = talk.message(pop="true", maxPullSize=2)
    assert [told(one) for one in (first, second, third)] == [
        ["m0", "m1"],
        ["m2", "m3"],
        ["m4", "m5"],
    ]
    held = talk.ask(get("/mq/clustering/pop/ack", consumer=CONSUMER))["result"]
    assert held["total"] == 3
    assert [one["offset"] for one in held["list"]] == [0, 2, 4]
    assert talk.ack(second["requestId"], pop=True)["message"][:3] == "ok "
    assert talk.unlock(first["requestId"], pop=True)["message"][-11:] == "unlock:true"
    again = talk.message(third["requestId"], pop=True)
    assert told_again(again) == ["m0", "m1"]
    assert talk.ack(again["requestId"], pop=True)["message"][:3] == "ok "
    talk.wait(20)
    assert talk.message(pop=True)["status"] == "NO_NEW_MSG"
    assert talk.committed() == [6]


def registered_and_not_any_more(talk: Talk) -> None:
    talk.begin()
    talk.wait(20)
    assert talk.ask(get("/topic/httpProducer")) == [{"topic": TOPIC, "producer": "orders-producer"}]
    listed = talk.ask(get("/topic/httpConsumer"))
    assert listed == [{"topic": TOPIC, "consumer": CONSUMER, "consumeWay": 0}]
    talk.produce("a")
    held = talk.message()["requestId"]
    assert talk.ask(post("/mq/unregister", consumer=CONSUMER)) == {"status": 200}
    assert talk.ack(held)["status"] == 500
    assert talk.try_message()["status"] == 500
    assert talk.ask(post("/mq/unregister", producer="orders-producer")) == {"status": 200}
    talk.wait(20)
    assert talk.ask(post("/mq/produce", producer="orders-producer", message="b"))["status"] == 500
    assert talk.ask(get("/topic/httpProducer")) == []
    assert talk.ask(get("/topic/httpConsumer")) == []
    assert talk.ask(get(f"/mq/config/{CONSUMER}")) == {"status": 201}


def a_consumer_of_another_dialect_has_the_queue(talk: Talk) -> None:
    talk.begin()
    talk.produce("a")
    pulled = talk.request(http(f"/{TOPIC}/{CONSUMER}?cmd=consume&timeout=0"))
    assert (pulled.status, pulled.body) == (200, b"a")
    talk.produce("b")
    assert talk.try_message()["status"] == 500
    acked = talk.request(http(f"/{TOPIC}/{CONSUMER}?cmd=ack&offset=0"))
    assert acked.status == 200
    found = talk.message()
    assert told(found) == ["b"], (found, talk.offsets())


def who_holds_it_is_shown(talk: Talk) -> None:
    talk.begin()
    talk.produce("a")
    for lines in ((), ("x-real-ip: 10.0.0.3",), ("x-forwarded-for: 10.0.0.1, 10.0.0.2",)):
        found = talk.message("", *lines)
        [queue] = talk.offsets()
        assert queue["lastConsumeClientIp"] == "127.0.0.1"  # of anybody it is not believed
        assert str(queue["lockTimestamp"]) == opened(found["requestId"])[4]
        assert found["queueInfo"]["messageQueue"]["brokerName"] == "zbus"
        talk.unlock(found["requestId"])
    assert talk.message(clientIp="10.9.9.9")["queueInfo"]["lastConsumeClientIp"] == "10.9.9.9"


ROWS: tuple[Row, ...] = (
    produced_consumed_acknowledged_by_the_next_call,
    acknowledged_by_itself,
    five_fields_are_enough,
    a_batch_has_a_size,
    one_holder_of_a_queue,
    queues_are_taken_by_backlog,
    order_ids_choose_the_queue,
    in_turn,
    unlocked_and_delivered_again,
    paused,
    limited,
    reset_by_time,
    a_reset_wins_over_an_ack,
    backlog_is_skipped,
    delivered_again_on_demand,
    found_by_either_id,
    broadcast,
    from_the_end,
    a_cookie_instead,
    any_method_and_any_place,
    a_batch_is_produced,
    delays,
    pop,
    registered_and_not_any_more,
    a_consumer_of_another_dialect_has_the_queue,
    who_holds_it_is_shown,
)
