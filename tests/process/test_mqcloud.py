"""The MQCloud dialect over real sockets, on disk, and with a broker that is killed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.dialects.mqcloud.rows import ROWS, Row
from tests.dialects.mqcloud.words import TOPIC, Talk, told
from tests.process.broker import BrokerProcess
from zbus.testing.world import Reply


class ProcessTalk(Talk):
    """Time passes for real here, and each request has a connection of its own, as those of the
    documented client."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.broker = broker

    def request(self, data: bytes) -> Reply:
        wire = self.broker.connect()
        try:
            wire.send(data)
            answer = wire.read()
        finally:
            wire.close()
        return Reply(answer.status, answer.headers, answer.body)

    def wait(self, ms: int) -> None:
        time.sleep(ms / 1000)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("mqcloud") / "data") as broker:
        yield broker


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.__name__)
def test_a_row(row: Row, broker: BrokerProcess) -> None:
    broker.get(f"/{TOPIC}?cmd=remove")
    row(ProcessTalk(broker))


def test_a_killed_broker_delivers_what_was_not_acknowledged(tmp_path: Path) -> None:
    bodies = [f"m{number}" for number in range(10)]
    with BrokerProcess(tmp_path / "data") as broker:
        talk = ProcessTalk(broker)
        talk.begin(queues=2)
        queues = [talk.produce(body, orderId=body)["messageQueue"] for body in bodies]
        first = talk.message(maxPullSize=3, consumeTimeout=10)
        assert talk.ack(first["requestId"])["message"][:3] == "ok "
        held = talk.message(maxPullSize=2, consumeTimeout=10)
        broker.kill()
    with BrokerProcess(tmp_path / "data") as broker:
        talk = ProcessTalk(broker)
        assert [talk.produce(body, orderId=body)["messageQueue"] for body in bodies] == queues
        late = talk.ack(held["requestId"])
        done = told(first) + (told(held) if late["message"][:3] == "ok " else [])
        talk.wait(11_000)
        assert sorted(talk.drain() + done) == sorted(bodies * 2)
