"""Whose a message is that was pulled, and what becomes of it (rows 10 to 13)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from random import Random
from socket import SHUT_WR

import pytest

from tests.conformance.dialogue import World, http, ok
from tests.dialects.adf.broker import (
    QUICK,
    broker,
    count_of,
    form,
    ids,
    new_id,
    pull,
    push,
    queue,
    speaker,
)
from tests.dialects.adf.speakers import CLOSE, FORMS, Speaker
from tests.process.broker import BrokerProcess
from zbus.testing.simulation import Machine
from zbus.testing.simulation.network import Connection

__all__ = ["broker", "form", "queue", "speaker"]

SETTLING = ("delete", "lcancel", "rcancel")
REFUSED = "message was not pulled."


@pytest.mark.parametrize("other", FORMS)
@pytest.mark.parametrize("action", SETTLING)
def test_nobody_settles_for_another(
    broker: BrokerProcess, speaker: Speaker, queue: str, other: str, action: str
) -> None:
    id = new_id()
    push(speaker, queue, b"x")
    pull(speaker, queue, id)
    told = Speaker(broker.port, other).ask(action, id, queue)
    both_http = speaker.socket is None and other.startswith("http")
    assert told.result == ("ok" if both_http else REFUSED), "HTTP has one scope for all"
    if not both_http:
        assert count_of(speaker, queue) == 0
        assert speaker.ask("delete", id, queue).result == "ok"


@pytest.mark.parametrize("action", SETTLING)
def test_a_wrong_queue(speaker: Speaker, queue: str, action: str) -> None:
    id = new_id()
    push(speaker, queue, b"x")
    push(speaker, queue + "/other", b"y")
    pull(speaker, queue, id)
    assert speaker.ask(action, id, queue + "/other").result == REFUSED
    assert speaker.ask(action, id, queue + "/missing").result == "queue not exists."
    assert count_of(speaker, queue + "/other") == 1
    assert speaker.ask(action, id, queue).result == "ok", "nothing has changed"


def test_an_id_that_waits_is_in_use(broker: BrokerProcess, speaker: Speaker, queue: str) -> None:
    id = new_id()
    waiting = speaker.tell("pull", id, queue).seated()
    refused = speaker.tell("pull", id, queue)
    other = Speaker(broker.port, "ws-bin")
    if speaker.socket is None:
        assert refused.take().result == "requestid exists."
        assert Speaker(broker.port, "http-bin").ask("pull", id, "/else").result == (
            "requestid exists."
        ), "over HTTP it is in use for all queues"
        push(other, queue, b"x", b"y")
        assert waiting.take().body == b"x"
    else:
        push(other, queue, b"x", b"y")
        assert {waiting.take().result, refused.take().result} == {"ok", "requestid exists."}
    assert count_of(speaker, queue) == 1, "nothing was taken for the second one"


@pytest.mark.parametrize("action", SETTLING)
def test_an_id_is_in_use_until_its_message_is_settled(
    speaker: Speaker, queue: str, action: str
) -> None:
    id = new_id()
    push(speaker, queue, b"x", b"y")
    pull(speaker, queue, id)
    assert speaker.ask("pull", id, queue).result == "requestid exists."
    for word in ("count", "rpush", "lpush"):
        body = b"z" if word.endswith("push") else None
        assert speaker.ask(word, id, queue, body).result == "ok", "others may repeat it"
    assert speaker.ask(action, id, queue).result == "ok"
    assert speaker.ask("pull", id, queue).result == "ok"


def test_each_connection_has_ids_of_its_own(broker: BrokerProcess, queue: str) -> None:
    speakers = [Speaker(broker.port, form) for form in FORMS[:2] * 2] + [
        Speaker(broker.port, "http-json")
    ]
    id = new_id()
    bodies = [b"%d" % number for number in range(len(speakers))]
    push(speakers[0], queue, *bodies)
    assert [pull(one, queue, id)[0] for one in speakers] == bodies
    assert [one.ask("delete", id, queue).result for one in speakers] == ["ok"] * len(speakers)


@pytest.mark.parametrize("end", ["closes TCP", "is killed", "sends a close frame"])
@pytest.mark.parametrize("form", ["ws-json", "ws-bin"])
def test_what_a_connection_held_returns_to_the_left(
    broker: BrokerProcess, form: str, queue: str, end: str
) -> None:
    """As a block, in the order in which it was handed out."""
    speaker, stayer = Speaker(broker.port, form), Speaker(broker.port, "ws-bin")
    bodies = [b"%d" % number for number in range(20)]
    given = push(speaker, queue, *bodies)
    names = ids(10)
    pull(speaker, queue, *names)
    for id in names[3:5]:
        assert speaker.ask("delete", id, queue).result == "ok"
    socket = speaker.socket
    assert socket is not None
    if end == "sends a close frame":
        socket.tell(CLOSE, (1000).to_bytes(2))
        assert socket.read() == (CLOSE, (1000).to_bytes(2))
        began = time.monotonic()
        assert socket.is_closed()
        assert time.monotonic() - began < 1, "at once"
    else:
        socket.reset() if end == "is killed" else socket.close()
    push(stayer, queue, b"later")
    left = [*range(3), *range(5, 10)]
    assert count_of(stayer, queue) == 8 + 10 + 1
    told = [stayer.ask("pull", id, queue) for id in ids(19)]
    expected = [*left, *range(10, 20)]
    assert [one.body for one in told] == [*(bodies[number] for number in expected), b"later"]
    assert [one.duplications for one in told] == [1] * 8 + [0] * 11
    assert [one.messageid for one in told[:-1]] == [given[number] for number in expected]


def test_it_wakes_who_waits(broker: BrokerProcess, speaker: Speaker, queue: str) -> None:
    holder = Speaker(broker.port, "ws-json")
    push(holder, queue, b"1", b"2")
    pull(holder, queue, "a", "b")
    waiting = [speaker.tell("pull", id, queue).seated() for id in ids(2)]
    holder.close()
    assert [one.take().body for one in waiting] == [b"1", b"2"]


def test_what_was_sent_before_the_end_is_done(broker: BrokerProcess, queue: str) -> None:
    speaker, stayer = Speaker(broker.port, "ws-bin"), Speaker(broker.port, "ws-bin")
    for number in range(50):
        speaker.tell("rpush", "1", queue, b"%d" % number)
    assert speaker.socket is not None
    speaker.socket.sock.shutdown(SHUT_WR)  # to close is to drop what is under way
    for number in range(50):
        assert stayer.ask("pull", str(number), queue).body == b"%d" % number


# -- over HTTP ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def impatient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One whose leases are short."""
    options = (*QUICK, "--set", "adf_http_lease_ms=400", "--set", "adf_first_duplications=1")
    with BrokerProcess(tmp_path_factory.mktemp("adf") / "data", *options) as process:
        yield process
        assert process.stop() == 0


def test_the_end_of_a_connection_settles_nothing(broker: BrokerProcess, queue: str) -> None:
    """Of HTTP: each of these requests has its own."""
    for one in FORMS[2:]:
        speaker, id = Speaker(broker.port, one), new_id()
        push(speaker, queue, b"x")
        pull(speaker, queue, id)
        assert count_of(speaker, queue) == 0
        assert speaker.ask("delete", id, queue).result == "ok"


@pytest.mark.parametrize("taken", [0, 1, 2])
def test_what_could_not_be_sent_was_not_pulled(taken: int) -> None:
    """It returns at once, in its order; what the client has taken stays its own."""
    world = World()
    client, other = world.connect(), world.connect()
    for body in (b"1", b"2", b"3"):
        ok(other, http("/queue/rpush?queue=q&requestid=1", body=body, method="POST"))
    for number in range(taken):
        ok(client, http(f"/queue/pull?queue=q&requestid=p{number}"))
    client.takes = False
    for number in range(taken, 3):
        client.send(http(f"/queue/pull?queue=q&requestid=p{number}"))
    world.settle()
    client.vanish()
    world.settle()
    assert (
        f'"count":{3 - taken}}}'.encode()
        in ok(other, http("/queue/count?queue=q&requestid=1")).body
    )
    for number in range(taken, 3):
        reply = ok(other, http(f"/queue/pull?queue=q&requestid=again{number}"))
        assert f'"body":"{number + 1}","duplications":1'.encode() in reply.body
    for number in range(taken):
        reply = ok(other, http(f"/queue/delete?queue=q&requestid=p{number}"))
        assert b'"result":"ok"' in reply.body


HEAD_BYTES = 160
"""A socket that takes so many takes the head of a reply to a pull, and not all of its body."""


def http_asking(action: str, queue: str, id: str, body: bytes = b"") -> bytes:
    method = "POST" if body else "GET"
    return http(f"/queue/{action}?queue={queue}&requestid={id}", body=body, method=method)


def result(machine: Machine, action: str, queue: str, id: str, body: bytes = b"") -> bytes:
    """Of a request on a connection of its own."""
    connection = machine.connect()
    connection.send(http_asking(action, queue, id, body))
    machine.settle()
    (reply,) = connection.replies()
    connection.reset()
    machine.settle()
    return reply.body


def pulling(room_bytes: int, *requests: bytes) -> tuple[Machine, Connection]:
    """A queue `q` with one message, and a client that takes so much of the replies."""
    machine = Machine(Random(0))
    machine.start()
    result(machine, "rpush", "q", "1", b"x")
    connection = machine.connect(room_bytes)
    connection.send(b"".join(requests))
    machine.settle()
    assert b'"count":0' in result(machine, "count", "q", "1"), "it is pulled"
    return machine, connection


@pytest.mark.parametrize("taken", [True, False])
def test_a_client_that_sends_no_more_keeps_what_it_pulled(taken: bool) -> None:
    """Its reply is still sent to it, unless it goes before it has taken that."""
    machine, client = pulling(HEAD_BYTES, http_asking("pull", "q", "p"))
    client.finish()
    machine.settle()
    assert b'"count":0' in result(machine, "count", "q", "1"), "the reply is on its way"
    found = client.replies()
    assert found == []
    if taken:
        while not found:
            machine.settle()
            found = client.replies()
        assert b'"body":"x"' in found[0].body
    client.reset()
    machine.settle()
    count = b'"count":0' if taken else b'"count":1'
    assert count in result(machine, "count", "q", "1")
    settled = b'"result":"ok"' if taken else REFUSED.encode()
    assert settled in result(machine, "delete", "q", "p")


def test_a_reply_that_was_sent_counts_though_later_ones_were_not() -> None:
    machine, client = pulling(4 * HEAD_BYTES, http_asking("pull", "q", "p"))
    assert b'"body":"x"' in client.replies()[0].body
    client.send(b"".join(http_asking("count", "q", str(number)) for number in range(20)))
    machine.settle()
    client.reset()
    machine.settle()
    assert b'"count":0' in result(machine, "count", "q", "1")
    assert b'"result":"ok"' in result(machine, "delete", "q", "p")


@pytest.mark.parametrize(
    ("turn", "more_bytes", "replies"),
    [(False, 0, 0), (True, 2 * HEAD_BYTES, 1), (True, 3 * HEAD_BYTES, 2)],
    ids=["not its turn", "not all of it", "all of it"],
)
def test_a_reply_that_waits_for_its_turn_is_not_sent_yet(
    turn: bool, more_bytes: int, replies: int
) -> None:
    """It comes behind one to a pull that waits, and before others that are not sent."""
    machine, client = pulling(
        64 << 10,
        http_asking("pull", "other", "w"),
        http_asking("pull", "q", "p"),
        *(http_asking("count", "q", str(number)) for number in range(20)),
    )
    client.socket.room_bytes = len(client.socket.outbound) + more_bytes
    if turn:
        result(machine, "rpush", "other", "1", b"y")
    assert len(client.replies()) == replies
    client.reset()
    machine.settle()
    count = b'"count":0' if replies == 2 else b'"count":1'
    assert count in result(machine, "count", "q", "1")


@pytest.mark.parametrize("form", FORMS[2:])
def test_a_lease_ends(impatient: BrokerProcess, form: str, queue: str) -> None:
    speaker = Speaker(impatient.port, form)
    given = push(speaker, queue, b"1", b"2", b"3")
    names = ids(2)
    told = [speaker.ask("pull", id, queue) for id in names]
    assert [one.duplications for one in told] == [1, 1], "as the option says"
    waiting = [speaker.tell("pull", id, queue) for id in ids(3)]
    assert waiting[0].take().body == b"3"
    again = [one.take() for one in waiting[1:]]
    assert [one.body for one in again] == [b"1", b"2"], "in the order that they had"
    assert [one.duplications for one in again] == [2, 2]
    assert [one.messageid for one in again] == given[:2]
    for action in SETTLING:
        assert speaker.ask(action, names[0], queue).result == REFUSED
    assert speaker.ask("delete", waiting[1].id, queue).result == "ok"
    assert speaker.ask("pull", names[0], queue).result == "ok", "the id is free"


@pytest.mark.parametrize("form", FORMS[2:])
def test_a_pull_may_say_how_long_it_holds(impatient: BrokerProcess, form: str, queue: str) -> None:
    speaker = Speaker(impatient.port, form)
    for wrong in ("0", "1", "65536", "x", "-2", "2.5"):
        assert speaker.ask("pull", new_id(), queue, lease=wrong).result == "lease invalid."
    push(speaker, queue, b"1", b"2")
    long, short = ids(2)
    assert speaker.ask("pull", long, queue, lease=65_535).body == b"1"
    assert speaker.ask("pull", short, queue).body == b"2"
    assert speaker.ask("pull", new_id(), queue).body == b"2"
    assert speaker.ask("delete", long, queue).result == "ok"
