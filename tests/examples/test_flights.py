"""Flights of New York 2013 through a real broker, and every one of them looked for: the first
40,000, and with `make check` all.

What is expected comes from the rows of the table by plain Python; what is found comes from the
broker by the programs in `examples/flights`.
"""

from __future__ import annotations

import csv
import io
import json
import subprocess
import time
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import pytest

from examples.flights.client import Broker
from examples.flights.consume import GROUPS, consume, declare
from examples.flights.data import COUNT, Flight, flights, source
from examples.flights.publish import Publisher, batches
from tests.examples.broker_process import BrokerProcess, Program
from tests.limits import checked

TOPIC = "flights"
BELONGS: dict[str, Callable[[Flight], bool]] = {
    "everything": lambda flight: True,
    "united": lambda flight: flight["carrier"] == "UA",
    "kennedy": lambda flight: flight["origin"] == "JFK",
    "california": lambda flight: flight["dest"] in ("LAX", "SFO"),
}
SIZES = {"everything": 336_776, "united": 58_665, "kennedy": 111_279, "california": 29_505}
SIZES_TRIED = [15_000, *checked([COUNT])]


def identity(flight: Flight) -> str:
    day = f"{flight['year']}-{flight['month']:02}-{flight['day']:02}"
    return f"{day}.{flight['carrier']}{flight['flight']}.{flight['origin']}"


def route(flight: Flight) -> str:
    return f"{flight['carrier']}.{flight['origin']}.{flight['dest']}"


class Published(NamedTuple):
    """A broker that has been given so many flights."""

    url: str
    size: int

    def flights(self) -> Iterator[Flight]:
        return islice(flights(), self.size)


@pytest.fixture(scope="module", params=SIZES_TRIED)
def published(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Published]:
    """One group is declared afterwards."""
    with BrokerProcess(tmp_path_factory.mktemp("flights") / "data") as process:
        broker = Broker(process.url)
        for group in ("united", "kennedy", "california"):
            declare(broker, TOPIC, group, GROUPS[group])
        broker.close()
        began = time.monotonic()
        publisher = Publisher(process.url, TOPIC)
        given = Published(process.url, request.param)
        publisher.publish(batches(given.flights()))
        publisher.close()
        print(f"\n{given.size:,} flights in: {time.monotonic() - began:.1f} s")
        assert (publisher.durability, publisher.sent_again) == ("disk", [])
        yield given
        assert process.stop() == 0


@pytest.mark.parametrize("size", SIZES_TRIED)
def test_the_rows_are_those_of_the_table(size: int) -> None:
    with zipfile.ZipFile(source()) as archive, archive.open("flights.csv") as raw:
        table = csv.reader(io.TextIOWrapper(raw, "utf-8", newline=""))
        names = next(table)
        count = 0
        for row, flight in islice(zip(table, flights(), strict=True), size + 1):
            assert list(flight) == names
            assert ["NA" if v is None else str(v) for v in flight.values()] == row
            count += 1
    assert count == min(size + 1, COUNT)


@pytest.mark.parametrize("group", BELONGS)
def test_a_group_gets_its_flights(published: Published, group: str) -> None:
    """Each once, in the order of the table, and nobody else's."""
    expected = [(identity(row), route(row)) for row in published.flights() if BELONGS[group](row)]
    assert len(expected) == len(set(expected)) > 1_000
    assert published.size < COUNT or len(expected) == SIZES[group]

    began = time.monotonic()
    broker = Broker(published.url)
    declare(broker, TOPIC, group, GROUPS[group])
    found = [(message["id"], message["tag"]) for message in consume(broker, TOPIC, group)]
    print(f"\n{len(found):,} flights out to {group}: {time.monotonic() - began:.1f} s")
    state = json.loads(broker.demand(cmd="query", topic=TOPIC, consume_group=group).body)
    broker.close()

    assert Counter(tag for _, tag in found) == Counter(tag for _, tag in expected)
    assert found == expected
    assert state["messageCount"] == 0


def test_a_message_is_its_row(published: Published) -> None:
    broker = Broker(published.url)
    declare(broker, TOPIC, "readers")
    offset = 0
    for offset, (message, row) in enumerate(
        zip(consume(broker, TOPIC, "readers", batch=5_000), published.flights(), strict=True)
    ):
        assert message["offset"] == offset
        assert json.loads(message["body"]) == row
        assert message.get("key") == row["tailnum"]
        headers = message["headers"]
        assert headers["flight"] == f"{row['carrier']}{row['flight']}"
        assert headers["flight-date"] == message["id"][:10]
        assert headers["content-type"] == "application/json"
    broker.close()
    assert offset == published.size - 1


def mean(values: list[int | str | None]) -> float | None:
    known = [value for value in values if isinstance(value, int)]
    return round(sum(known) / len(known), 2) if known else None


def test_average_delays_by_curl(published: Published) -> None:
    delays: dict[str, dict[str, list[tuple[int | str | None, int | str | None]]]] = {}
    for row in published.flights():
        for end, airport in (("from", row["origin"]), ("to", row["dest"])):
            ends = delays.setdefault(str(airport), {"from": [], "to": []})
            ends[end].append((row["dep_delay"], row["arr_delay"]))
    with Program("-m", "examples.flights.delays_service", "--url", published.url) as service:
        service.wait_for(f"{published.size:,} flights read")
        service.wait_for("serving")
        url = f"{published.url}/flights-rpc/average_delay"
        urls = [f"{url}/{airport}" for airport in delays]
        answers = subprocess.run(
            ["curl", "-sS", "--max-time", "30", "-w", "\n", *urls], capture_output=True, check=True
        )
        found = [json.loads(line) for line in answers.stdout.splitlines()]
        assert service.stop() == 0
    assert found == [
        {
            "airport": airport,
            **{
                end: {
                    "flights": len(pairs),
                    "average_departure_delay": mean([departure for departure, _ in pairs]),
                    "average_arrival_delay": mean([arrival for _, arrival in pairs]),
                }
                for end, pairs in ends.items()
            },
        }
        for airport, ends in delays.items()
    ]
    assert len(found) == 107 or published.size < COUNT


def test_the_programs_as_people_run_them(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        url = ("--url", broker.url)
        publish = ("-m", "examples.flights.publish", *url)
        with Program(*publish, "--count", "5000") as program:
            assert "5,000 flights in" in program.finish()
        with Program(*publish, "--start", "5000", "--count", "5") as program:
            assert "5 flights in" in program.finish()
        united = sum(row["carrier"] == "UA" for row in islice(flights(), 5_005))
        consume_united = ("-m", "examples.flights.consume", "united", *url)
        with Program(*consume_united) as program:
            assert f"{united:,} flights, 1 lines" in program.finish()
        with Program(*consume_united) as program:
            assert "0 flights, 0 lines" in program.finish(), "the group has read them all"
        assert broker.stop() == 0
