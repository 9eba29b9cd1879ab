"""`kill -9` of the broker, again and again, while flights are published and consumed."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from examples.flights.client import Broker, Refused
from examples.flights.consume import GROUPS, consume, declare
from examples.flights.data import COUNT, Flight, flights
from examples.flights.publish import Batch, Publisher, batches, flight_id
from tests.examples.broker_process import BrokerProcess, lasting_port
from tests.examples.test_flights import BELONGS
from tests.limits import WAIT_S, checked

TOPIC = "flights"
BATCH = 500
LEASE_MS = 2_000
KILLS_AT = (0.06, 0.18, 0.39, 0.4, 0.75, 0.98)  # so much of the flights acknowledged


class Killer(threading.Thread):
    """Kills the broker whenever one of the numbers is reached, and starts it again."""

    def __init__(self, data_dir: Path, kills_at: tuple[int, ...]) -> None:
        super().__init__(daemon=True)
        self.data_dir = data_dir
        self.kills_at = kills_at
        self.reached: SimpleQueue[int] = SimpleQueue()  # how far the load is
        self.kills = 0
        self.broker = BrokerProcess(data_dir, lasting_port())
        self.start()

    def run(self) -> None:
        for limit in self.kills_at:
            while self.reached.get() < limit:
                pass
            self.broker.kill()
            self.kills += 1
            self.broker = BrokerProcess(self.data_dir, self.broker.port)

    def finish(self) -> BrokerProcess:
        """The broker of the last start."""
        self.join(WAIT_S)
        assert self.kills == len(self.kills_at)
        return self.broker


def publish_under_fire(killer: Killer, rows: Iterable[Flight], count: int, size: int) -> Publisher:
    """So many rows, in batches; the killer hears of every acknowledgement."""
    safe = 0

    def acknowledged(batch: Batch) -> None:
        nonlocal safe
        assert batch.first == safe, "acknowledged in order, each batch once"
        safe += batch.size
        killer.reached.put(safe)

    publisher = Publisher(killer.broker.url, TOPIC, acknowledged)
    publisher.publish(batches(rows, size))
    publisher.close()
    assert safe == count
    return publisher


@pytest.mark.parametrize("count", [6_000, *checked([COUNT])])
def test_nothing_acknowledged_is_lost(tmp_path: Path, count: int) -> None:
    killer = Killer(tmp_path / "data", tuple(int(count * share) for share in KILLS_AT))
    url = killer.broker.url
    broker = Broker(url)
    for group in ("everything", "united", "california"):
        declare(broker, TOPIC, group, GROUPS[group])
    broker.close()

    began = time.monotonic()
    publisher = publish_under_fire(killer, islice(flights(), count), count, BATCH)
    print(f"\n{count:,} flights in, {killer.kills} kills: {time.monotonic() - began:.1f} s")

    ids = [flight_id(row) for row in islice(flights(), count)]
    with killer.finish():
        declare(broker, TOPIC, "kennedy", GROUPS["kennedy"])  # a group that was not there
        found = {
            group: [message["id"] for message in consume(broker, TOPIC, group)] for group in GROUPS
        }
        broker.close()

    counts = Counter(found["everything"])
    assert list(counts) == ids, "every flight, and no other, in the order of the table"
    again = Counter(publisher.sent_again)
    assert again, "the kills came in the middle of the load"
    stored_twice = 0
    for first in range(0, count, BATCH):
        times = {counts[id] for id in ids[first : first + BATCH]}
        assert len(times) == 1, "a batch is stored as a whole"
        assert times <= set(range(1, 2 + again[first])), "what was acknowledged, never again"
        stored_twice += times != {1}
    print(f"{len(again)} batches sent again, {stored_twice} of them stored twice")

    for group, belongs in BELONGS.items():
        wanted = {flight_id(row) for row in islice(flights(), count) if belongs(row)}
        assert found[group] == [id for id in found["everything"] if id in wanted], group


def test_a_consumer_that_acknowledges_misses_nothing(tmp_path: Path) -> None:
    """The group has leases: what was delivered and not acknowledged comes again."""
    rows = list(islice(flights(), 1_200))
    killer = Killer(tmp_path / "data", (200, 500, 800))
    broker = Broker(killer.broker.url)
    broker.demand(
        cmd="declare",
        topic=TOPIC,
        consume_group="careful",
        group_mask=64,
        group_ack_window=900,
        group_ack_timeout=LEASE_MS,
    )
    wanted = {flight_id(row) for row in rows}
    seen: set[str] = set()
    settled: set[int] = set()  # offsets acknowledged, and answered while the lease held for sure
    wrong: list[int] = []
    delivered = 0

    def work() -> None:
        nonlocal delivered
        group = {"topic": TOPIC, "consume_group": "careful"}
        messages: list[dict[str, Any]] = []
        while messages or not seen >= wanted:
            try:
                asked = time.monotonic()
                # Longer than any lease, so that "none" means none at all.
                reply = broker.demand(
                    **group,
                    cmd="consume",
                    batch=100,
                    timeout=LEASE_MS + 1_000,
                    accept="application/json",
                )
                messages = json.loads(reply.body or b"[]")
                delivered += len(messages)
                wrong.extend(m["offset"] for m in messages if m["offset"] in settled)
                for message in messages:
                    seen.add(message["id"])
                    broker.demand(**group, cmd="ack", offset=message["offset"])
                    if time.monotonic() - asked < LEASE_MS / 1_000:
                        settled.add(message["offset"])
            except OSError:
                pass  # killed again; it will be back

    worker = threading.Thread(target=work, daemon=True)
    worker.start()
    publish_under_fire(killer, rows, len(rows), 100)
    with killer.finish():
        worker.join(WAIT_S)
        broker.close()
    print(f"\n{delivered} deliveries, {len(settled)} acknowledged, {killer.kills} kills")
    assert not worker.is_alive()
    assert seen == wanted
    assert len(settled) > len(rows) / 2
    assert not wrong, "an acknowledgement survives as well"


def test_a_publisher_gives_up_on_a_refusal(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as process:
        publisher = Publisher(process.url, "nowhere")
        with pytest.raises(Refused, match="404"):
            publisher.publish(batches(islice(flights(), 10)))
        publisher.close()
