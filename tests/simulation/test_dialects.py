"""Worlds in which other dialects take part: what their clients are promised holds."""

from __future__ import annotations

from random import Random

import pytest

from tests.limits import checked
from tests.simulation.adf import AdfWorld
from tests.simulation.camellia import CamelliaWorld
from tests.simulation.mqcloud import MqcloudWorld
from tests.simulation.simulation import Simulation
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


def _post(verb: str, form: str) -> bytes:
    return (
        f"POST /camellia/delayQueue/{verb} HTTP/1.1\r\nhost: localhost\r\n"
        f"content-type: application/x-www-form-urlencoded\r\ncontent-length: {len(form)}\r\n\r\n"
        f"{form}"
    ).encode()
