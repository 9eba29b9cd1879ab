"""Dead letters, redrives and transactions over the topics of three workers: each message once."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from tests.limits import WAIT_S
from tests.process.broker import Answer, BrokerProcess, eventually
from tests.process.test_workers import WORKERS, server, workers
from zbus.protocol.places import shard_of

FAILED = (OSError, EOFError)
MESSAGES = 400
KILLS = 6
OTHERS = pytest.mark.parametrize("target", range(WORKERS))
"""The source is of worker 0, so one of three targets is, too."""

_serial = count()


def names(*shards: int, start: str = "") -> list[str]:
    """New topics of these workers, or with `start` what there is such a topic for."""
    fresh = (f"n{next(_serial)}" for _ in count())
    return [
        next(name for name in fresh if shard_of(start + name, WORKERS) == each) for each in shards
    ]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with server(tmp_path_factory.mktemp("inner")) as started:
        yield started
        assert "Traceback" not in started.log()


def ok(broker: BrokerProcess, target: str, body: bytes = b"") -> Answer:
    """As a client that asks again while a worker starts."""
    end_s = time.monotonic() + WAIT_S
    while True:
        try:
            answer = broker.get(target, body=body)
        except FAILED:
            answer = Answer(503, {}, b"")
        if answer.status != 503:
            assert answer.status in (200, 204), answer
            return answer
        assert time.monotonic() < end_s
        time.sleep(0.02)


def dying(broker: BrokerProcess, source: str, dead: str, lease: str = "10m") -> None:
    """A group whose messages die of one attempt."""
    ok(broker, f"/{dead}?cmd=declare&group=r")
    options = f"group=g&ack=true&group_max_attempts=1&group_lease={lease}&group_window=999"
    ok(broker, f"/{source}?cmd=declare&{options}&group_dead_letter={dead}")


def die(broker: BrokerProcess, source: str, body: bytes) -> None:
    ok(broker, f"/{source}", body)
    answer = ok(broker, f"/{source}/g?cmd=consume&timeout=20000")
    assert answer.body == body
    ok(broker, f"/{source}/g?cmd=nack&offset={answer.headers['offset']}")


def taken(broker: BrokerProcess, topic: str, group: str = "r") -> list[bytes]:
    found: list[bytes] = []
    while (answer := ok(broker, f"/{topic}/{group}?cmd=consume&timeout=0")).status == 200:
        found.append(answer.body)
    return found


@OTHERS
def test_a_dead_letter_and_its_way_back(target: int, broker: BrokerProcess) -> None:
    source, dead = names(0, target)
    dying(broker, source, dead)
    die(broker, source, b"x")
    letter = ok(broker, f"/{dead}/r?cmd=consume&timeout=20000")
    assert (letter.body, letter.headers["dead_topic"]) == (b"x", source)
    assert letter.headers["dead_offset"] == "0"
    why = ok(broker, f"/{source}/g?cmd=why&offset=0").body.decode()
    assert f"put into {dead}" in why or (target and f"were not looked at: {dead}." in why)
    assert "idempotency-key" not in letter.headers, "it could not be sent on"
    ok(broker, f"/{dead}?cmd=declare&group=back&ack=true&from=earliest")
    moved = ok(broker, f"/{dead}?cmd=redrive&group=back")
    assert (moved.headers["count"], moved.headers["stayed"]) == ("1", "0")
    again = ok(broker, f"/{source}/g?cmd=consume&timeout=20000")
    assert (again.body, again.headers["offset"]) == (b"x", "1")
    assert "dead_topic" not in again.headers
    alarms = json.loads(ok(broker, "/_stats").body).get("warnings", [])
    assert not [each for each in alarms if "does not exist" in each["text"]]


@pytest.mark.parametrize("target", [0, 1])
def test_a_letter_stays_if_its_group_is_in_another_process(
    target: int, broker: BrokerProcess
) -> None:
    """Until it is put back for every group."""
    source, dead = names(0, target)
    ok(broker, f"/{dead}?cmd=declare&group=r&ack=true")
    options = "group=g&ack=true&group_max_attempts=1&group_dead_letter"
    ok(broker, f"/{source}?cmd=declare&{options}={dead}")
    die(broker, source, b"x")
    eventually(lambda: json.loads(ok(broker, f"/{dead}/r?cmd=peek").body) != [])
    moved = ok(broker, f"/{dead}?cmd=redrive&group=r&only_group=true")
    there = target == 0
    assert (moved.headers["count"], moved.headers["stayed"]) == (
        ("1", "0") if there else ("0", "1")
    )
    if not there:
        assert ok(broker, f"/{dead}?cmd=redrive&group=r").headers["count"] == "1"
    again = ok(broker, f"/{source}/g?cmd=consume&timeout=20000")
    assert (again.body, again.headers["offset"]) == (b"x", "0" if there else "1")


@pytest.mark.parametrize("target", [0, 1])
def test_a_search_is_passed_on(target: int, broker: BrokerProcess) -> None:
    _, topic = names(0, target)
    ok(broker, f"/{topic}?cmd=declare")
    for n in range(5):
        ok(broker, f"/{topic}?key=k{n % 2}", b"part %d" % n)
    found = ok(broker, f"/{topic}?cmd=read&newest=1&key=k0&scan=3")
    assert [each["offset"] for each in json.loads(found.body)] == [4, 2]
    assert (found.headers["scanned"], found.headers["next"]) == ("3", "2")


@OTHERS
def test_redriven_elsewhere(target: int, broker: BrokerProcess) -> None:
    dead, other = names(0, target)
    for topic in (dead, other):
        ok(broker, f"/{topic}?cmd=declare&group=r")
    ok(broker, f"/{dead}?cmd=declare&group=g&ack=true")
    bodies = [b"%d" % n for n in range(50)]
    for body in bodies:
        ok(broker, f"/{dead}", body)
    missing = broker.get(f"/{dead}?cmd=redrive&group=g&to={other}9")
    assert (missing.status, missing.body) == (404, f"404: Topic({other}9) Not Found".encode())
    moved = ok(broker, f"/{dead}?cmd=redrive&group=g&to={other}")
    assert (moved.headers["count"], moved.headers["stayed"]) == ("50", "0")
    assert taken(broker, other) == bodies
    assert taken(broker, dead, "g") == []


@pytest.mark.parametrize("shard", [0, 1])
def test_what_a_group_may_name(shard: int, broker: BrokerProcess) -> None:
    """As one process has it, wherever the other topic is."""
    source, missing, circle = names(0, shard, shard)
    options = "group=g&ack=true&group_max_attempts=1&group_dead_letter"
    answer = broker.get(f"/{source}?cmd=declare&{options}={missing}")
    assert answer.status == 404
    assert b"declare the dead-letter topic first" in answer.body
    ok(broker, f"/{source}?cmd=declare")
    ok(broker, f"/{circle}?cmd=declare&{options}={source}")
    answer = broker.get(f"/{source}?cmd=declare&{options}={circle}")
    assert answer.status == 400
    assert b"would return to it" in answer.body


def test_a_topic_that_is_removed_and_made_again(broker: BrokerProcess) -> None:
    source, dead = names(0, 1)
    dying(broker, source, dead)
    ok(broker, f"/{dead}?cmd=remove")
    die(broker, source, b"x")

    def warned() -> bool:
        rows = json.loads(ok(broker, "/_stats").body).get("warnings", [])
        return any(dead in row["text"] and row["group"] == "g" for row in rows)

    eventually(warned)
    ok(broker, f"/{dead}?cmd=declare&group=r")
    assert ok(broker, f"/{dead}/r?cmd=consume&timeout=20000").body == b"x"


def test_a_message_as_large_as_any(broker: BrokerProcess) -> None:
    source, dead = names(0, 1)
    dying(broker, source, dead)
    body = os.urandom(16 << 20)
    die(broker, source, body)
    assert ok(broker, f"/{dead}/r?cmd=consume&timeout=20000").body == body


def staged(broker: BrokerProcess, app: str, topic: str, *bodies: bytes) -> list[str]:
    wanted = f"/{topic}?cmd=txn_stage&txn={app}"
    return [ok(broker, wanted, body).headers["offset"] for body in bodies]


def commit(broker: BrokerProcess, app: str, batch: int, stages: dict[str, list[str]]) -> Answer:
    rows = [{"topic": topic, "offsets": ",".join(each)} for topic, each in stages.items()]
    target = f"/?cmd=txn_commit&txn={app}&batch={batch}"
    return ok(broker, target, json.dumps({"stages": rows}).encode())


def test_a_batch_for_topics_of_all(broker: BrokerProcess) -> None:
    topics = names(0, 1, 2)
    (app,) = names(0, start="txn.")
    bodies = [b"%d" % n for n in range(30)]
    for topic in topics:
        ok(broker, f"/{topic}?cmd=declare&group=r")
    stages = {topic: staged(broker, app, topic, *bodies) for topic in topics}
    assert [taken(broker, topic) for topic in topics] == [[]] * 3
    assert commit(broker, app, 1, stages).headers["count"] == "90"
    assert commit(broker, app, 1, stages).headers["duplicate"] == "1"
    assert [taken(broker, topic) for topic in topics] == [bodies] * 3
    here, *elsewhere = names(0, 1, 2)
    assert broker.get(f"/{here}?cmd=txn_stage&txn={app}", body=b"x").status == 404
    for topic in elsewhere:
        (row,) = staged(broker, app, topic, b"x")
        target = f"/{topic}?cmd=txn_commit&txn={app}&batch=2&offset={row}"
        assert broker.get(target).status == 404


def dead_count(query: bytes) -> int:
    """Of the group g."""
    groups = json.loads(query)["consumeGroupList"]
    found = next(group["deadCount"] for group in groups if group["groupName"] == "g")
    assert isinstance(found, int)
    return found


def test_a_worker_that_hangs_holds_up_what_is_for_it(tmp_path: Path) -> None:
    with server(tmp_path) as broker:
        pids = workers(broker)
        source, dead, fine = names(0, 1, 0)
        dying(broker, source, dead)
        dying(broker, fine, names(2)[0])
        wire = broker.connect()
        assert wire.get(f"/{source}?cmd=query").status == 200
        os.kill(pids[1], signal.SIGSTOP)
        try:
            for topic in (source, fine):
                assert wire.get(f"/{topic}", body=b"x").status == 200
                offset = wire.get(f"/{topic}/g?cmd=consume").headers["offset"]
                assert wire.get(f"/{topic}/g?cmd=nack&offset={offset}").status == 200
            eventually(lambda: dead_count(wire.get(f"/{fine}?cmd=query").body) == 1)
            assert dead_count(wire.get(f"/{source}?cmd=query").body) == 0
            assert wire.get(f"/{source}", body=b"y").status == 200, "nothing else waits"
        finally:
            os.kill(pids[1], signal.SIGCONT)
        wire.close()
        assert ok(broker, f"/{dead}/r?cmd=consume&timeout=20000").body == b"x"


# -- kills -------------------------------------------------------------------------------------


class Killing:
    """kill -9 of one of these workers after another, as long as something goes on."""

    def __init__(self, broker: BrokerProcess, *numbers: int) -> None:
        self._broker = broker
        self._numbers = numbers or tuple(range(WORKERS))
        self._pids = workers(broker)  # by their numbers, as they were begun
        self._over = threading.Event()
        self.kills = 0
        self._thread = threading.Thread(target=self._kill)

    def __enter__(self) -> Killing:
        self._thread.start()
        return self

    def __exit__(self, *failure: object) -> None:
        self._over.set()
        self._thread.join()

    def _kill(self) -> None:
        while not self._over.wait(0.4):
            number = self._numbers[self.kills % len(self._numbers)]
            os.kill(self._pids[number], signal.SIGKILL)
            eventually(self._began_again)
            (self._pids[number],) = set(workers(self._broker)) - set(self._pids)
            self.kills += 1

    def _began_again(self) -> bool:
        pids = set(workers(self._broker))
        return len(pids) == WORKERS and pids != set(self._pids)

    def until_enough(self, step: Callable[[], None]) -> None:
        while self.kills < KILLS:
            step()


def test_dead_letters_while_workers_are_killed(tmp_path: Path) -> None:
    """Each message dies, by a nack or by time, and is in the dead-letter topic once."""
    with server(tmp_path) as broker:
        source, dead = names(0, 1)
        dying(broker, source, dead, "1s")
        serial, put = count(), list[bytes]()

        def step() -> None:
            body = b"%d" % next(serial)
            ok(broker, f"/{source}", body)  # perhaps twice, as a client without a key has it
            put.append(body)
            answer = ok(broker, f"/{source}/g?cmd=consume&timeout=0")
            if answer.status == 200:
                broker_get(broker, f"/{source}/g?cmd=nack&offset={answer.headers['offset']}")

        with Killing(broker) as killing:
            killing.until_enough(step)
        stored = depth(broker, source)
        while ok(broker, f"/{source}/g?cmd=consume&timeout=0").status == 200:
            pass
        eventually(lambda: depth(broker, dead) >= stored)
        time.sleep(3)
        letters = everything(broker, dead)
        places = [letter.headers["dead_offset"] for letter in letters]
        assert sorted(map(int, places)) == list(range(stored))
        assert {letter.body for letter in letters} == set(put)
        assert "Traceback" not in broker.log()


def broker_get(broker: BrokerProcess, target: str) -> None:
    """It may be lost."""
    try:
        broker.get(target)
    except FAILED:
        pass


def depth(broker: BrokerProcess, topic: str) -> int:
    found = json.loads(ok(broker, f"/{topic}?cmd=query").body)["messageDepth"]
    assert isinstance(found, int)
    return found


def everything(broker: BrokerProcess, topic: str) -> list[Answer]:
    ok(broker, f"/{topic}?cmd=declare&group=all&from=earliest")
    found: list[Answer] = []
    while (answer := ok(broker, f"/{topic}/all?cmd=consume&timeout=0")).status == 200:
        found.append(answer)
    return found


def test_redrives_while_workers_are_killed(tmp_path: Path) -> None:
    with server(tmp_path) as broker:
        dead, other = names(0, 1)
        for topic in (dead, other):
            ok(broker, f"/{topic}?cmd=declare&group=r")
        ok(broker, f"/{dead}?cmd=declare&group=g&ack=true&from=earliest")
        bodies = [b"%d" % n for n in range(MESSAGES)]
        for body in bodies:
            ok(broker, f"/{dead}", body)
        redrive = f"/{dead}?cmd=redrive&group=g&to={other}"
        with Killing(broker, 1) as killing:  # what the source's worker had is leased for a minute
            killing.until_enough(lambda: broker_get(broker, f"{redrive}&count=20"))
        eventually(lambda: ok(broker, redrive).headers["count"] == "0")
        assert sorted(answer.body for answer in everything(broker, other)) == sorted(bodies)
        assert "Traceback" not in broker.log()


def test_batches_while_workers_are_killed(tmp_path: Path) -> None:
    with server(tmp_path) as broker:
        topics = names(0, 1, 2)
        (app,) = names(0, start="txn.")
        for topic in topics:
            ok(broker, f"/{topic}?cmd=declare&group=r")
        serial, put = count(1), list[bytes]()

        def step() -> None:
            batch = next(serial)
            bodies = [b"%d-%d" % (batch, n) for n in range(10)]
            stages = {topic: staged(broker, app, topic, *bodies) for topic in topics}
            commit(broker, app, batch, stages)
            put.extend(bodies)

        with Killing(broker) as killing:
            killing.until_enough(step)
        for topic in topics:
            eventually(lambda topic=topic: depth(broker, topic) >= len(put))  # type: ignore[misc]
            assert [answer.body for answer in everything(broker, topic)] == put
        assert "Traceback" not in broker.log()
