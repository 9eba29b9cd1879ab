"""The camellia dialect over real sockets, on disk, and with a broker that is killed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.dialects.camellia.rows import ROWS, Row
from tests.dialects.camellia.words import Poll, Talk, pulled, verb
from tests.dialects.talks import document
from tests.process.broker import BrokerProcess, Wire
from zbus.testing.world import Reply


class ProcessTalk(Talk):
    """Time passes for real here."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._port = broker.port
        self._wire = broker.connect()

    def request(self, data: bytes) -> Reply:
        self._wire.send(data)
        answer = self._wire.read()
        return Reply(answer.status, answer.headers, answer.body)

    def poll(self, topic: str = "T", **more: object) -> WirePoll:
        wire = Wire(self._port)
        wire.send(verb("longPollingMsg", topic=topic, **more))
        return WirePoll(wire)

    def wait(self, ms: int) -> None:
        time.sleep(ms / 1000)


class WirePoll(Poll):
    def __init__(self, wire: Wire) -> None:
        self.wire = wire

    def messages(self) -> list[Any]:
        """Waits for them."""
        answer = self.wire.read()
        return pulled(document(Reply(answer.status, answer.headers, answer.body)))


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("camellia") / "data") as broker:
        yield broker


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.__name__)
def test_a_row(row: Row, broker: BrokerProcess) -> None:
    for topic in ("T", "One", "Other"):
        broker.get(f"/{topic}?cmd=remove")
    row(ProcessTalk(broker))


def test_a_poll_waits_and_is_woken(broker: BrokerProcess) -> None:
    talk = ProcessTalk(broker)
    poll = talk.poll("Polled", longPollingTimeoutMillis=20_000, ackTimeoutMillis=300)
    sent = talk.send("Polled", msg="中文 + & = %", delayMillis=200)
    [first] = poll.messages()
    assert (first["msgId"], first["msg"]) == (sent["msgId"], "中文 + & = %")
    assert time.time() * 1000 >= sent["triggerTime"], "never early"
    [second] = talk.poll("Polled", longPollingTimeoutMillis=20_000).messages()
    assert (second["msgId"], second["retry"]) == (sent["msgId"], 2), "and by what comes back"
    assert talk.poll("Polled", longPollingTimeoutMillis=50).messages() == []


def test_a_client_that_is_gone_takes_nothing(broker: BrokerProcess) -> None:
    talk = ProcessTalk(broker)
    polls = [talk.poll("Left", longPollingTimeoutMillis=20_000) for _ in range(3)]
    polls[0].wire.close()
    polls[1].wire.reset()
    time.sleep(0.3)
    sent = talk.send("Left")
    [message] = polls[2].messages()
    assert (message["msgId"], message["retry"]) == (sent["msgId"], 1)


def test_a_broker_that_is_killed(tmp_path: Path) -> None:
    """All that was answered is there, whatever it was; on the same port, so clients just go on."""
    with BrokerProcess(tmp_path / "data") as broker:
        talk = ProcessTalk(broker)
        later = talk.send(msg="later", delayMillis=60_000, msgId="later")
        soon = talk.send(msg="soon", delayMillis=100)
        tried, held = talk.send(msg="tried", maxRetry=1), talk.send(msg="held")
        [first] = talk.pull(ackTimeoutMillis=1)
        talk.wait(100)
        assert first["msgId"] == tried["msgId"]
        done = [message for message in talk.pull(ackTimeoutMillis=600_000, batch=3)]
        assert [m["msg"] for m in done] == ["tried", "held", "soon"]
        ended, dropped = talk.send(msg="ended"), talk.send(msg="dropped")
        [pulled] = talk.pull()
        talk.ack(pulled)
        assert talk.delete(dropped) == 200
        broker.kill()
    with BrokerProcess(tmp_path / "data", port=broker.port) as broker:
        talk = ProcessTalk(broker)
        assert talk.pull(batch=10) == [], "who pulled them still has them"
        assert [talk.status(m) for m in (later, soon, tried, held, ended, dropped)] == [
            1,
            3,
            3,
            3,
            4,
            7,
        ]
        assert talk.get(tried)["retry"] == 2, "no attempt is forgotten"
        assert talk.send(msg="another", msgId="later") == later, "nor an id"
        talk.ack(held)
        talk.nack(soon)
        talk.nack(tried)
        assert [m["msg"] for m in talk.pull(batch=10)] == ["soon"]
        assert talk.poll(longPollingTimeoutMillis=100).messages() == []
        assert (talk.status(held), talk.status(tried)) == (4, 6)
        info = talk.look("getTopicInfo?topic=T")
        assert (info["waitingQueueSize"], info["readyQueueSize"], info["ackQueueSize"]) == (1, 0, 1)
