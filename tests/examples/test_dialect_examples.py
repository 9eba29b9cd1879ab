"""The examples in the words of other dialects, with a broker, real signals and curl."""

from __future__ import annotations

import json
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.examples.broker_process import ROOT, BrokerProcess, Program, lasting_port
from zbus.client import BlockingClient, Redriven, connect

HERE = "http://127.0.0.1:15555"

pytestmark = pytest.mark.skipif(shutil.which("curl") is None, reason="their work is given by curl")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "data") as process:
        yield process


@pytest.fixture
def bus(broker: BrokerProcess) -> Iterator[BlockingClient]:
    with connect(broker.url) as client:
        yield client


def curl(broker: BrokerProcess, example: str, number: int, **other: str) -> dict[str, Any]:
    """Run a curl that the docstring of an example shows, with other words if so asked."""
    text = (ROOT / "examples" / example).read_text(encoding="utf-8").split('"""')[1]
    lines = [line.strip() for line in text.replace("\\\n", "").splitlines()]
    command = [line[2:] for line in lines if line.startswith("$ curl ")][number]
    for old, new in other.items():
        assert old in command
        command = command.replace(old, new)
    words = shlex.split(command.replace(HERE, broker.url))
    done = subprocess.run([words[0], "-sS", *words[1:]], capture_output=True, check=True)
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def leave(program: Program) -> str:
    program.process.send_signal(signal.SIGINT)
    said = program.finish()
    assert said.endswith("stopped\n")
    return said


def wait_until_done(bus: BlockingClient, topic: str, group: str | None = None) -> None:
    """Nothing is left, and nobody has anything in its hands."""
    state = bus.query(topic, group or topic)
    while state.message_count or state.leased_count:
        state = bus.query(topic, group or topic)


# -- reminders -------------------------------------------------------------------------------------


def test_a_reminder_comes_when_it_is_due(broker: BrokerProcess) -> None:
    with Program("examples/reminder.py", "--url", broker.url) as waiting:
        waiting.wait_for("waiting for reminders")
        begin = time.monotonic()
        with Program("examples/reminder.py", "--url", broker.url, "--in", "0.7", "tea") as asking:
            assert asking.finish() == "in 0.7 s: tea\n"
        waiting.wait_for("now: tea")
        assert time.monotonic() - begin >= 0.7
        leave(waiting)


def set_two_and_take_one_back(broker: BrokerProcess) -> None:
    for name, delay_ms in (("tea", 60_000), ("toast", 300)):
        other = {"10000": str(delay_ms), "msgId=tea": f"msgId={name}"}
        sent = curl(broker, "reminder.py", 0, **other)
        assert (sent["code"], sent["delayMsg"]["msgId"]) == (200, name)
    assert curl(broker, "reminder.py", 1)["code"] == 200


def hear_one(waiting: Program) -> None:
    waiting.wait_for("now: take the tea out")  # of the toast: their words are the same
    assert leave(waiting).count("now: ") == 1


def test_a_reminder_of_curl_for_who_waits(broker: BrokerProcess) -> None:
    with Program("examples/reminder.py", "--url", broker.url) as waiting:
        waiting.wait_for("waiting for reminders")
        set_two_and_take_one_back(broker)
        hear_one(waiting)


def test_a_reminder_of_curl_before_anybody_waits(broker: BrokerProcess) -> None:
    set_two_and_take_one_back(broker)
    with Program("examples/reminder.py", "--url", broker.url) as waiting:
        hear_one(waiting)


# -- jobs ------------------------------------------------------------------------------------------


def test_jobs_are_done_or_put_aside(broker: BrokerProcess, bus: BlockingClient) -> None:
    with Program("examples/jobs.py", broker.url) as worker:
        worker.wait_for("working on Jobs")
        curl(
            broker,
            "jobs.py",
            0,
            **{"sweep the floor": "the impossible", "maxRetry=2": "maxRetry=1"},
        )
        curl(broker, "jobs.py", 0)
        for _ in range(2):
            worker.wait_for("failed: the impossible: nobody can do that")
        while not (dead := bus.read("Jobs.failed")):
            pass
        assert [(one.text, one.headers["dead_attempts"]) for one in dead] == [
            ("the impossible", "2")
        ]
        assert bus.redrive("Jobs.failed") == Redriven(1, 0)
        worker.wait_for("failed: the impossible: nobody can do that")
        assert worker.said.count("done: sweep the floor\n") == 1
        leave(worker)


# -- errands ---------------------------------------------------------------------------------------


def test_what_is_urgent_comes_first(broker: BrokerProcess, bus: BlockingClient) -> None:
    assert curl(broker, "deque.py", 0)["result"] == "ok"
    assert curl(broker, "deque.py", 1)["result"] == "ok"
    assert curl(broker, "deque.py", 2)["count"] == 2
    with Program("examples/deque.py", broker.url) as worker:
        worker.wait_for("done: buy milk")
        wait_until_done(bus, "errands")
        assert leave(worker) == (
            "working on errands\ndone: put out the fire\ndone: buy milk\nstopped\n"
        )


def test_what_fails_does_not_hold_up_the_others(broker: BrokerProcess, bus: BlockingClient) -> None:
    curl(broker, "deque.py", 0, **{"buy milk": "square the circle"})
    curl(broker, "deque.py", 0)
    with Program("examples/deque.py", broker.url) as worker:
        for said in ("failed: ", "done: buy milk", "failed: ", "failed: "):
            worker.wait_for(said)
        wait_until_done(bus, "errands")
        assert [one.text for one in bus.read("errands.failed")] == ["square the circle"]
        assert leave(worker).count("failed: square the circle") == 3


def test_two_workers_share_the_errands(broker: BrokerProcess, bus: BlockingClient) -> None:
    with (
        Program("examples/deque.py", broker.url) as first,
        Program("examples/deque.py", broker.url) as second,
    ):
        for worker in (first, second):
            worker.wait_for("working on errands")
        for number in range(40):
            curl(broker, "deque.py", 0, **{"buy milk": f"errand {number}"})
        wait_until_done(bus, "errands")
        said = leave(first) + leave(second)
    done = [line.removeprefix("done: ") for line in said.splitlines() if "done: " in line]
    assert sorted(done) == sorted(f"errand {number}" for number in range(40))


# -- tickets ---------------------------------------------------------------------------------------


def counter(broker: BrokerProcess) -> Program:
    return Program("examples/mqcloud/counter.py", broker.url, "0.05")


def draw(broker: BrokerProcess, *wishes: str) -> None:
    for wish in wishes:
        answer = curl(broker, "mqcloud/counter.py", 0, **{"a stamp": wish})
        assert (answer["status"], answer["result"]["sendStatus"]) == (200, "SEND_OK")


def served(said: str) -> list[str]:
    return [line.removeprefix("served: ") for line in said.splitlines() if "served: " in line]


def test_counters_share_the_tickets(broker: BrokerProcess, bus: BlockingClient) -> None:
    wishes = [f"stamp {number}" for number in range(20)]
    with counter(broker) as first, counter(broker) as second:
        for each in (first, second):
            each.wait_for("the counter is open")
        draw(broker, *wishes)
        wait_until_done(bus, "tickets", "counters")
        both = served(leave(first)), served(leave(second))
    assert sorted(both[0] + both[1]) == sorted(wishes)
    assert all(both), "each of them had some"


def test_a_counter_that_leaves_has_served_the_last_one(
    broker: BrokerProcess, bus: BlockingClient
) -> None:
    with counter(broker) as first:
        first.wait_for("the counter is open")
        draw(broker, "a stamp")
        first.wait_for("served: a stamp")
        leave(first)
    state = bus.query("tickets", "counters")
    assert (state.message_count, state.leased_count) == (0, 0)


def test_a_counter_waits_for_a_broker(tmp_path: Path) -> None:
    port = lasting_port()
    url = f"http://127.0.0.1:{port}"
    with Program("examples/mqcloud/counter.py", url, "0.05") as waiting:
        waiting.wait_for("not yet: ")
        with BrokerProcess(tmp_path / "data", port) as broker:
            waiting.wait_for("the counter is open")
            draw(broker, "a stamp")
            waiting.wait_for("served: a stamp")
            broker.kill()
        with BrokerProcess(tmp_path / "data", port) as broker:
            draw(broker, "a parcel")
            waiting.wait_for("served: a parcel")
            leave(waiting)
