"""Clients that are inherited: by children of `fork`, `multiprocessing` and gunicorn."""

from __future__ import annotations

import json
from typing import Any

import pytest

import zbus.client
from tests.examples.broker_process import BrokerProcess, Program

PROGRAM = "tests/process/forked_client.py"


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data") as process:
        yield process.url


def saw(*arguments: str) -> Any:
    with Program("-m", "tests.process.forked_client", *arguments) as program:
        said = program.finish()
    return json.loads(said.rpartition("saw ")[2])


def test_each_message_of_all_processes_is_stored_once(url: str) -> None:
    answers = saw("produce_everywhere", url)
    stored = {body: offset for answer in answers for body, offset, _ in answer}
    assert not any(duplicate for answer in answers for _, _, duplicate in answer)
    assert sorted(stored, key=int) == [str(number) for number in range(1_000)]
    with zbus.client.connect(url) as bus:
        found = bus.read("Everywhere", count=1_001)
    assert {message.text: message.offset for message in found} == stored
    assert len(found) == 1_000


def test_the_same_body_of_several_children_is_several_messages(url: str) -> None:
    assert saw("same_body", url) == [False] * 5
    with zbus.client.connect(url) as bus:
        assert len(bus.read("Ticks")) == 5


def test_forks_while_other_threads_are_at_work(url: str) -> None:
    assert saw("in_the_middle", url) == [5] * 20


def test_what_is_begun_belongs_to_the_parent(url: str) -> None:
    answers = saw("things_of_the_parent", url)
    for what in ("next", "ack"):
        assert answers[what].startswith("RuntimeError: this consumer belongs to process ")
    assert answers["watch"].startswith("RuntimeError: this watch belongs to process ")
    assert answers["close"] is answers["close watch"] is None
    assert answers["pending"].startswith("ConnectionLost: it was begun by process ")
    assert answers["pending"].endswith("whether the request was done is not known")
    assert answers["own"] == ["one", "two", "three"]
    assert answers["rest"] == answers["watched"] == ["one", "two", "three", "four"]
    assert answers["left"] == 0


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_asynchronous_clients(url: str, backend: str) -> None:
    refused, parent, idle = saw("asynchronous", url, backend)
    assert refused.startswith("RuntimeError: this client belongs to process ")
    assert idle == parent + 1


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_multiprocessing(url: str, method: str) -> None:
    offsets, refused = saw("started", url, method)
    assert offsets == list(range(offsets[0], offsets[0] + 3))
    assert refused.startswith("BlockingClient has a connection and cannot be")
