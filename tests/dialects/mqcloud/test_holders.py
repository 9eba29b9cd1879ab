"""Whose a batch is when several ask at once, when it took long to be read, and after a restart:
found by the simulation (`tests/simulation/mqcloud.py`)."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from tests.conformance.dialogue import http
from tests.dialects.mqcloud.words import (
    CONSUMER,
    PRODUCER,
    TOPIC,
    WorldTalk,
    closed,
    forged,
    get,
    opened,
    told,
    told_again,
)
from tests.dialects.talks import document, post
from zbus.dialects.mqcloud.locks import Lock, Queue
from zbus.testing.simulation.machine import Machine
from zbus.testing.simulation.network import Connection
from zbus.testing.world import Client, Reply

TIMEOUT_MS = 300_000
NONE = {"status": 500, "message": "no consumerQueueOffsetResult"}
ASKED = get("/mq/message", topic=TOPIC, consumer=CONSUMER, consumeTimeout=10)


def talk_with(*messages: str, queues: int = 1) -> WorldTalk:
    talk = WorldTalk()
    talk.begin(queues=queues)
    for message in messages:
        talk.produce(message, orderId="b")  # queue 0
    return talk


def test_a_queue_that_was_locked_while_another_was_tried_stays_its_holders() -> None:
    talk = talk_with("b0", "b1", "b2", queues=2)
    talk.produce("a0", orderId="a")
    assert talk.request(http(f"/{TOPIC}/{CONSUMER}?cmd=consume&timeout=0")).body == b"b0"
    first, second = [document(reply) for reply in talk.client.exchange(ASKED + ASKED)]
    assert first == NONE, "queue 0 is another dialect's, and queue 1 the second's"
    assert told(second["result"]) == ["a0"]
    assert talk.ack(second["result"]["requestId"])["message"][:3] == "ok "


def test_an_empty_queue_is_no_refusal_while_another_is_held() -> None:
    talk = talk_with("a", queues=2)
    for pop in (False, True):
        held = talk.message(pop=pop)
        assert told(held) + told_again(held) == ["a"]
        found = talk.message(pop=pop)
        assert found["status"] == "NO_NEW_MSG"
        assert "requestId" not in found
        talk.wait(TIMEOUT_MS + 1_000)


def test_in_pop_mode_a_reset_takes_what_is_handed_out_again_from_others() -> None:
    talk = talk_with("a", "b", "c", "d")
    talk.message(pop=True, maxPullSize=2)
    before = talk.message(pop=True, maxPullSize=2)
    assert told(before) == ["c", "d"]
    assert talk.configure(resetOffsetTimestamp=0) == {"status": 200}
    after = talk.message(pop=True)
    assert told(after) == ["a", "b", "c", "d"]
    assert talk.ack(before["requestId"], pop=True)["message"][:3] != "ok "
    assert talk.unlock(after["requestId"], pop=True)["message"].endswith("unlock:true")
    assert told_again(talk.message(pop=True)) == ["a", "b", "c", "d"]


def test_a_message_is_in_one_range_also_while_the_time_of_the_former_runs() -> None:
    queue, former, later = Queue(), Lock(0, 1_000), Lock(500, 1_500)
    former.begin, former.offsets = 2, {2: 1, 3: 1, 9: 1}
    later.begin, later.offsets = 0, {0: 2, 1: 2, 2: 2, 3: 2}
    queue.add_range(former, 0)
    assert former.held(500)
    queue.add_range(later, 500)
    assert [lock.offsets for lock in queue.locks()] == [{9: 1}, later.offsets]


def test_what_is_left_of_a_batch_comes_at_once() -> None:
    talk = talk_with("a", "b", "c")
    request_id = talk.message()["requestId"]
    assert talk.ack(forged(request_id, 3, 2))["message"][:3] == "ok "
    assert talk.bodies() == ["c"]


def test_after_a_restart_a_forged_id_does_not_reach_what_was_handed_out_since() -> None:
    talk = talk_with("a", "b")
    talk.restart()
    request_id = talk.message(pop=True)["requestId"]
    assert opened(request_id)[2:4] == ["0", "2"]
    inner = closed(["zbus", "0", "1", "2", "1"])
    assert talk.ack(inner, pop=True)["message"][:3] != "ok "
    assert talk.unlock(inner, pop=True)["message"].endswith("unlock:false")
    talk.wait(TIMEOUT_MS + 1_000)
    assert told_again(talk.message(pop=True)) == ["a", "b"]


def test_after_a_restart_a_forged_id_does_not_reach_what_was_given_back() -> None:
    """In the turn in which that is done."""
    talk = talk_with("a", "b")
    talk.restart()
    request_id = talk.message()["requestId"]
    asked = {"topic": TOPIC, "consumer": CONSUMER}
    unlock = get("/mq/unlock", requestId=request_id, **asked)
    stale = get("/mq/ack", requestId=forged(request_id, 4, 1), **asked)
    said = [document(reply)["message"] for reply in talk.client.exchange(unlock + stale)]
    assert said[0].endswith("unlock:true")
    assert said[1].startswith("lock not exist")
    assert talk.bodies() == ["a", "b"]


def native(
    talk: WorldTalk, words: str = "consume", client: Client | None = None, **params: object
) -> Reply:
    """A reader of zbus's own dialect, over a connection of its own if none is given."""
    more = "".join(f"&{name}={value}" for name, value in params.items())
    client = client or talk.world.connect()
    (reply,) = client.exchange(http(f"/{TOPIC}/{CONSUMER}?cmd={words}&timeout=0{more}"))
    return reply


def reset(talk: WorldTalk, ids: list[str]) -> None:
    assert talk.configure(resetOffsetTimestamp=0) == {"status": 200}


def outlast(talk: WorldTalk, ids: list[str]) -> None:
    talk.wait(TIMEOUT_MS + 1_000)


def retry(talk: WorldTalk, ids: list[str]) -> None:
    """As if they had never been handed out."""
    outlast(talk, ids)
    for id in reversed(ids):
        assert talk.configure(retryMsgId=id) == {"status": 200}


ENDS = [(reset, False), (reset, True), (outlast, False), (outlast, True), (retry, False)]
"""How it ends that somebody has a batch, and whether a proxy sends the requests of both readers
over one connection. With the last and that, nothing would tell the two from each other."""


@pytest.mark.parametrize("pop", [False, True])
@pytest.mark.parametrize(("ends", "proxied"), ENDS)
@pytest.mark.parametrize("verb", ["ack", "unlock", "message"])
def test_what_a_reader_of_another_dialect_has_by_now_is_his(
    verb: str, ends: Callable[[WorldTalk, list[str]], None], proxied: bool, pop: bool
) -> None:
    """Nothing that a stale requestId is used for settles it, or hands it out again."""
    talk = talk_with("a", "b")
    found = talk.message(pop=pop)
    request_id = found["requestId"]
    ends(talk, [message["messageId"] for message in found["msgList"]])
    assert native(talk, client=talk.client if proxied else None, batch=2).headers["count"] == "2"
    if verb == "message":
        talk.try_message(request_id, pop=pop)
    else:
        getattr(talk, verb)(request_id, pop=pop)
    assert native(talk).status == 204, "nothing is left, and nothing came back"
    assert talk.committed() == [0]
    assert native(talk, "ack", offset="0-1").status == 200
    assert talk.committed() == [2]


@pytest.mark.parametrize("pop", [False, True])
def test_whoever_asks_next_leaves_it_to_him_as_well(pop: bool) -> None:
    talk = talk_with("a", "b")
    talk.message(pop=pop)
    outlast(talk, [])
    assert native(talk, batch=2).headers["count"] == "2"
    talk.try_message(pop=pop)
    assert native(talk).status == 204
    assert native(talk, "ack", offset="0-1").status == 200


def test_the_time_of_a_batch_begins_when_it_is_handed_out() -> None:
    """However long its messages took to be read."""
    machine = Machine(Random(0))
    machine.start()
    one = machine.connect()
    for request in (
        http(f"/{TOPIC}?cmd=declare&durability=disk"),
        post("/mq/register", topic=TOPIC, producer=PRODUCER),
        post("/mq/register", topic=TOPIC, consumer=CONSUMER),
        post("/mq/produce", producer=PRODUCER, message="a"),
    ):
        _ask(machine, one, request)
    machine.kill()
    machine.start()
    one, two = machine.connect(), machine.connect()
    one.send(ASKED)
    machine.turn()
    machine.jump(20_000)
    machine.settle()
    (reply,) = one.replies()
    found = document(reply)["result"]
    assert told(found) == ["a"]
    assert document(_ask(machine, two, ASKED)) == NONE
    asked = {"topic": TOPIC, "consumer": CONSUMER, "requestId": found["requestId"]}
    assert document(_ask(machine, two, get("/mq/ack", **asked)))["message"][:3] == "ok "


def test_who_leaves_while_his_ack_is_written_is_handed_nothing() -> None:
    machine = Machine(Random(0))
    machine.start()
    one = machine.connect()
    for request in (
        http(f"/{TOPIC}?cmd=declare&durability=disk"),
        post("/mq/register", topic=TOPIC, producer=PRODUCER),
        post("/mq/register", topic=TOPIC, consumer=CONSUMER),
        *[post("/mq/produce", producer=PRODUCER, message=message) for message in "ab"],
    ):
        _ask(machine, one, request)
    first = get("/mq/message", topic=TOPIC, consumer=CONSUMER, maxPullSize=1)
    asked = {"topic": TOPIC, "consumer": CONSUMER}
    request_id = document(_ask(machine, one, first))["result"]["requestId"]
    one.send(get("/mq/message", requestId=request_id, **asked))
    machine.turn()
    one.reset()
    machine.turn()
    machine.settle()
    group = machine.broker.topics[TOPIC].group(CONSUMER)
    assert group is not None
    assert not group.readers
    other = machine.connect()
    assert told(document(_ask(machine, other, get("/mq/message", **asked)))["result"]) == ["b"]


def _ask(machine: Machine, connection: Connection, request: bytes) -> Any:
    connection.send(request)
    machine.settle()
    (reply,) = connection.replies()
    assert reply.status == 200, reply
    return reply


@pytest.mark.parametrize("pop", ["false", "true"])
@pytest.mark.parametrize("size", [1, 10, 128])
@pytest.mark.parametrize("how", ["in hand", "unlocked before", "unlocked after"])
def test_after_a_restart_a_batch_comes_again_as_one(how: str, size: int, pop: str) -> None:
    """It is read back from storage then, where each message was written by itself."""
    machine = Machine(Random(0))
    machine.start()
    asked = {"topic": TOPIC, "consumer": CONSUMER, "pop": pop}
    batch = [f"m{number}" for number in range(size)]
    one = machine.connect()
    for request in (
        http(f"/{TOPIC}?cmd=declare&durability=disk"),
        post("/mq/register", topic=TOPIC, producer=PRODUCER),
        post("/mq/register", topic=TOPIC, consumer=CONSUMER),
        *[post("/mq/produce", producer=PRODUCER, message=message) for message in batch],
    ):
        _ask(machine, one, request)
    first = document(_ask(machine, one, get("/mq/message", maxPullSize=128, **asked)))["result"]
    assert told(first) == batch
    unlock = get("/mq/unlock", requestId=first["requestId"], **asked)
    if how == "unlocked before":
        _ask(machine, one, unlock)
    last = post("/mq/produce", producer=PRODUCER, message="last")
    _ask(machine, one, last)  # what was before it is written down, too
    machine.kill()
    machine.start()
    if how == "unlocked after":
        _ask(machine, machine.connect(), unlock)
    elif how == "in hand":
        machine.jump(TIMEOUT_MS + 1_000)
        machine.settle()
    two = machine.connect()
    found = document(_ask(machine, two, get("/mq/message", maxPullSize=128, **asked)))["result"]
    again = told(found) + told_again(found)
    assert again[:size] == batch
    assert again[size:] in ([], ["last"])
