"""Worlds in which other dialects take part: what their clients are promised holds."""

from __future__ import annotations

from random import Random

import pytest

from tests.limits import checked
from tests.records import Record
from tests.simulation.adf import (
    BUSY,
    IN_USE,
    NO_QUEUE,
    NOT_PULLED,
    AdfClient,
    AdfWorld,
    Answer,
    BinaryClient,
    Call,
    HttpClient,
)
from tests.simulation.camellia import CamelliaWorld
from tests.simulation.delays import DELETED, Delays, Fate, Mail
from tests.simulation.deques import Deques
from tests.simulation.mqcloud import MqcloudWorld
from tests.simulation.simulation import Simulation
from zbus.core.model.message import Message
from zbus.testing.simulation.machine import Machine

SEEDS = [0, 1, *checked(range(2, 40))]


class Mostly(Simulation):
    """A world with one dialect."""

    kind: type[AdfWorld] | type[CamelliaWorld] | type[MqcloudWorld]

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        dialects = self.dialects
        dialects.worlds = [self.kind(dialects.random, self.machine, self.say, self.book.check)]


class Adf(Mostly):
    """With Adf."""

    kind = AdfWorld


class Camellia(Mostly):
    """With camellia."""

    kind = CamelliaWorld


class Mqcloud(Mostly):
    """With MQCloud."""

    kind = MqcloudWorld


@pytest.mark.parametrize("seed", SEEDS)
def test_adf(seed: int) -> None:
    Adf(seed).run()


@pytest.mark.parametrize("seed", SEEDS)
def test_camellia(seed: int) -> None:
    Camellia(seed).run()


@pytest.mark.parametrize("seed", SEEDS)
def test_mqcloud(seed: int) -> None:
    Mqcloud(seed).run()


@pytest.mark.parametrize("known", [True, False])
def test_a_long_poll_of_who_sends_no_more_is_answered(known: bool) -> None:
    machine = Machine(Random(0))
    machine.start()
    connection = machine.connect()
    sent = _post("sendMsg", "topic=T&msg=m&delayMillis=100000")
    poll = _post("longPollingMsg", "topic=T")
    connection.send(sent * known + poll)
    machine.settle()
    connection.finish()
    machine.settle()
    *_, reply = connection.replies()
    assert reply.status == 200
    assert b'"delayMsgList":[]' in reply.body
    assert not connection.alive


@pytest.mark.parametrize(("code", "wrong"), [(200, 0), (503, 0), (0, 0), (404, 1)])
def test_of_two_that_delete_a_message_one_may_miss_it(code: int, wrong: int) -> None:
    """Whichever asked first, if the other was not told that it is missing, too."""
    found: list[str] = []
    topic = Delays("T", lambda right, text: None if right else found.append(text))
    mail = Mail(1, "id", b"1:", 0, 1_000, 3, sent_ms=1, fate=Fate.LIVE, produced_ms=1)
    topic.mails[1] = mail
    first, second = topic.attempt("id", DELETED, 2), topic.attempt("id", DELETED, 2)
    topic.attempted(second, code, 3)
    topic.attempted(first, 404, 4)
    assert len(found) == wrong


def test_what_is_removed_behind_a_pull_that_waits_is_not_owed() -> None:
    """Its client left before it could be told that the queue is removed."""
    simulation = Adf(0)
    simulation.machine.start()
    (world,) = simulation.dialects.worlds
    assert isinstance(world, AdfWorld)
    client = HttpClient(world, simulation.machine.connect(), 1)
    world.clients[client.number] = client
    empty, queue = world.book.queues["/q/1"], world.book.queues["volatile"]
    simulation.crowd.clients.append(client)
    client.push(queue)
    simulation.crowd.exchange(client)
    AdfClient.pull(client, empty, 0)
    AdfClient.pull(client, queue, 0)
    client.drop(queue, "deletequeue")
    client.connection.send(bytes(client.unsent[:-1]))
    del client.unsent[:-1]
    simulation.crowd.settle()  # the message is pulled, and then the queue is removed
    simulation.finish()


def test_replies_to_pulls_with_one_id_are_known_by_their_queue() -> None:
    """The first one failed, and its client has not read that: so the id was free again."""
    simulation = Adf(0)
    simulation.machine.start()
    (world,) = simulation.dialects.worlds
    assert isinstance(world, AdfWorld)
    client = BinaryClient(world, simulation.machine.connect(), 1)
    volatile, other = world.book.queues["volatile"], world.book.queues["/q/1"]
    other.there = True
    client.send(Call("pull", volatile, "1", None))
    client.send(Call("pull", volatile, "1", None, in_use=True))
    client.send(Call("pull", other, "1", None, in_use=True))
    for queue, result in ((volatile, BUSY[0]), (other, IN_USE), (volatile, NO_QUEUE)):
        client.take(Answer("pull", "1", queue.name, result))
    assert (simulation.book.problem, client.calls) == ("", [])


@pytest.mark.parametrize("read", [True, False])
@pytest.mark.parametrize("cleared", [True, False])
def test_what_was_pulled_over_http_is_lost_only_if_the_reply_may_be(
    read: bool, cleared: bool
) -> None:
    found: list[str] = []
    book = Deques(["/q"], lambda right, text: None if right else found.append(text))
    queue = book.queues["/q"]
    item = book.push(queue, left=False, body=b"")
    book.pushed(queue, item, 1)
    record = Record(0, 0, Message(b"", body=item.body), 1)
    book.pick(queue, record, 7, 0, 5_000)
    book.hand_out(queue, record, 7)
    (handed,) = book.handed[7]
    if read:
        book.pulled(7, item.body, 0, 1)
    book.settle(handed, "delete")
    if cleared:
        book.drop(queue, whole=False)
    book.closed(7)
    book.settled(handed, "delete", NOT_PULLED, 1)
    assert len(found) == read


def _post(verb: str, form: str) -> bytes:
    return (
        f"POST /camellia/delayQueue/{verb} HTTP/1.1\r\nhost: localhost\r\n"
        f"content-type: application/x-www-form-urlencoded\r\ncontent-length: {len(form)}\r\n\r\n"
        f"{form}"
    ).encode()
