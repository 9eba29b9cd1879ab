"""Ask how late an airport's flights are, on average, with curl.

    python -m examples.flights.delays_service

    $ curl http://127.0.0.1:15555/flights-rpc/average_delay/JFK

The service keeps sums of all flights published so far. Before every answer it reads on in the log
from where it stopped (`cmd: read`, which needs no group), so an answer takes in every flight that
was acknowledged before the question.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
from collections import defaultdict
from typing import Any

from examples.flights.client import TOPIC, URL, Broker, Refused
from zbus.client import Service

COUNT = 5_000  # flights per read


class Mean:
    """An average that grows."""

    def __init__(self) -> None:
        self.sum = 0
        self.count = 0

    def add(self, value: int | None) -> None:
        if value is not None:
            self.sum += value
            self.count += 1

    @property
    def value(self) -> float | None:
        """Rounded to hundredths; None as long as there is nothing to divide by."""
        return round(self.sum / self.count, 2) if self.count else None


class Direction:
    """All flights from, or all flights to an airport."""

    def __init__(self) -> None:
        self.flights = 0
        self.departure = Mean()
        self.arrival = Mean()

    def add(self, flight: dict[str, Any]) -> None:
        self.flights += 1
        self.departure.add(flight["dep_delay"])
        self.arrival.add(flight["arr_delay"])

    def report(self) -> dict[str, int | float | None]:
        return {
            "flights": self.flights,
            "average_departure_delay": self.departure.value,
            "average_arrival_delay": self.arrival.value,
        }


class Delays:
    """The sums, and how far in the log they reach."""

    def __init__(self, broker: Broker, topic: str) -> None:
        self.broker = broker
        self.topic = topic
        self.offset = 0
        self.departing: defaultdict[str, Direction] = defaultdict(Direction)
        self.arriving: defaultdict[str, Direction] = defaultdict(Direction)
        self._seen: set[str] = set()  # a batch sent twice must not count twice

    def catch_up(self) -> None:
        """Read what was published since the last time."""
        while True:
            reply = self.broker.request(
                cmd="read",
                topic=self.topic,
                offset=self.offset,
                count=COUNT,
                accept="application/json",
            )
            if reply.status == 404:
                return  # nothing has been published yet
            if reply.status != 200:
                raise Refused(reply.body.decode())
            messages = json.loads(reply.body)
            if not messages:
                return
            for message in messages:
                if message["id"] not in self._seen:
                    self._seen.add(message["id"])
                    self._add(json.loads(message["body"]))
            self.offset = messages[-1]["offset"] + 1

    def _add(self, flight: dict[str, Any]) -> None:
        self.departing[flight["origin"]].add(flight)
        self.arriving[flight["dest"]].add(flight)

    def average_delay(self, airport: str) -> dict[str, Any]:
        """Average delays, in minutes, of the flights from and to an airport."""
        self.catch_up()
        if airport not in self.departing and airport not in self.arriving:
            raise LookupError(f"no flight from or to {airport}")
        return {
            "airport": airport,
            "from": self.departing.get(airport, Direction()).report(),
            "to": self.arriving.get(airport, Direction()).report(),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description="Average delays of airports, as a service.")
    parser.add_argument("--url", default=URL, help="where the broker is (default: %(default)s)")
    parser.add_argument("--flights", default=TOPIC, help="topic to read (default: %(default)s)")
    parser.add_argument(
        "--topic", default="flights-rpc", help="what callers call (default: %(default)s)"
    )
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)

    delays = Delays(Broker(arguments.url), arguments.flights)
    try:
        delays.catch_up()
    except OSError as error:
        raise SystemExit(f"the broker at {arguments.url}: {error}") from None
    print(f"{delays.offset:,} flights read", flush=True)
    service = Service(arguments.topic, concurrency=1)  # the sums are for one thread at a time
    service.method(delays.average_delay)
    service.run(arguments.url)


if __name__ == "__main__":
    main()
