"""Publish all flights: one message per flight, a thousand messages per request.

    python -m examples.flights.publish

Every message has

    id      2013-01-01.UA1545.EWR       the same each time this program runs
    tag     UA.EWR.IAH                  carrier, origin, destination: what groups filter by
    key     N14228                      the aircraft's tail number, where it is known
    flight, flight-date                 headers of our own
    body    {"year":2013,...}           the whole row as JSON, null where the table says NA

A batch is stored as a whole or not at all, and the broker's "200" means it is on the disk. We do
not wait for it before sending the next batch: some are always on their way. If the connection
breaks (try `kill -9` on the broker, and start it again), we connect anew and send again whatever
has not been acknowledged. So no flight is ever missing. A batch that was stored while its "200"
got lost is there twice, with the same ids.
"""

from __future__ import annotations

import argparse
import http.client
import json
import socket
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import NamedTuple

from examples.flights.client import TOPIC, URL, Broker, Refused, Reply, host_and_port
from examples.flights.data import Flight, flights

BATCH = 1_000
PIPELINE = 4  # batches under way at once
PATIENCE_S = 60.0  # how long we go on trying to reach a broker
BUSY = {429, 503, 507}  # too fast, stopping, disk full: worth another try

to_json = json.JSONEncoder(separators=(",", ":")).encode


def flight_id(flight: Flight) -> str:
    """Unique in the table: no flight number leaves the same airport twice on a day."""
    return "{year}-{month:02}-{day:02}.{carrier}{flight}.{origin}".format_map(flight)


def flight_tag(flight: Flight) -> str:
    return "{carrier}.{origin}.{dest}".format_map(flight)


def message(flight: Flight) -> bytes:
    """A flight as it stands in a batch: an HTTP message, which the broker takes apart."""
    body = to_json(flight).encode()
    key = f"key: {flight['tailnum']}\r\n" if flight["tailnum"] else ""
    head = (
        "POST / HTTP/1.1\r\n"
        f"id: {flight_id(flight)}\r\n"
        f"tag: {flight_tag(flight)}\r\n"
        f"{key}"
        f"flight: {flight['carrier']}{flight['flight']}\r\n"
        "flight-date: {year}-{month:02}-{day:02}\r\n"
        "content-type: application/json\r\n"
        f"content-length: {len(body)}\r\n"
        "\r\n"
    ).format_map(flight)
    return head.encode() + body


class Batch(NamedTuple):
    """Messages that are stored together."""

    first: int  # row of the table
    size: int
    body: bytes


def batches(rows: Iterable[Flight], size: int = BATCH) -> Iterator[Batch]:
    """The rows as batches."""
    first = 0
    remaining = iter(rows)
    while chunk := list(islice(remaining, size)):
        yield Batch(first, len(chunk), b"".join(map(message, chunk)))
        first += len(chunk)


def ignore(_batch: Batch) -> None:
    """What to do about an acknowledged batch, if nobody cares."""


class Publisher:
    """Sends batches to a topic until each of them has been acknowledged, in their order."""

    def __init__(
        self, url: str = URL, topic: str = TOPIC, acknowledged: Callable[[Batch], None] = ignore
    ) -> None:
        self.address = host_and_port(url)
        self.topic = topic
        self.acknowledged = acknowledged  # called with each batch that is safe
        self.sent_again: list[int] = []  # first rows of the batches that had to be
        self.durability = ""  # what the broker's "200" was worth
        self._under_way: deque[Batch] = deque()  # oldest first, as the broker answers
        self._connect()

    def publish(self, batches: Iterable[Batch]) -> None:
        """Returns when all of them are stored."""
        for batch in batches:
            self._under_way.append(batch)
            self._send(batch)
            while len(self._under_way) >= PIPELINE:
                self._await_one()
        while self._under_way:
            self._await_one()

    def close(self) -> None:
        self._replies.close()
        self._socket.close()

    def _connect(self) -> None:
        self._socket = socket.create_connection(self.address, timeout=30)
        self._replies = self._socket.makefile("rb")

    def _send(self, batch: Batch) -> None:
        try:
            self._write(batch)
        except OSError:
            self._send_again()

    def _await_one(self) -> None:
        """Wait until the oldest batch is acknowledged."""
        try:
            reply = self._read_reply()
        except (OSError, http.client.HTTPException):
            self._send_again()
            return
        if reply.status in BUSY:
            time.sleep(1)
            self._send_again()
            return
        if reply.status != 200:
            raise Refused(reply.body.decode())
        self.durability = reply.headers["durability"]
        self.acknowledged(self._under_way.popleft())

    def _send_again(self) -> None:
        """After trouble: a new connection, and on it all that was not acknowledged."""
        give_up_at = time.monotonic() + PATIENCE_S
        while True:
            self.close()
            try:
                self._connect()
                for batch in self._under_way:
                    self.sent_again.append(batch.first)
                    self._write(batch)
                return
            except OSError:
                if time.monotonic() > give_up_at:
                    raise
                time.sleep(0.1)

    def _write(self, batch: Batch) -> None:
        head = (
            f"POST /{self.topic} HTTP/1.1\r\n"
            f"host: {self.address[0]}\r\n"
            "content-type: application/vnd.zbus.messages\r\n"
            f"content-length: {len(batch.body)}\r\n"
            "\r\n"
        )
        self._socket.sendall(head.encode() + batch.body)

    def _read_reply(self) -> Reply:
        """Plain HTTP answers in the order of the requests, so this is the oldest batch's."""
        start = self._replies.readline()
        if not start.endswith(b"\n"):
            raise ConnectionResetError("the broker closed the connection")
        headers = http.client.parse_headers(self._replies)
        body = self._replies.read(int(headers["content-length"]))
        return Reply(int(start.split()[1]), headers, body)


def main() -> None:
    parser = argparse.ArgumentParser(description="Publish the flights of New York 2013.")
    parser.add_argument("--url", default=URL, help="where the broker is (default: %(default)s)")
    parser.add_argument("--topic", default=TOPIC, help="(default: %(default)s)")
    parser.add_argument("--batch", type=int, default=BATCH, help="(default: %(default)s)")
    parser.add_argument("--start", type=int, default=0, help="row to begin with")
    parser.add_argument("--count", type=int, help="how many rows (default: all)")
    arguments = parser.parse_args()

    broker = Broker(arguments.url)
    try:
        broker.demand(cmd="declare", topic=arguments.topic)
    except (OSError, Refused) as error:
        raise SystemExit(f"the broker at {arguments.url}: {error}") from None
    finally:
        broker.close()

    safe = arguments.start
    began = time.monotonic()

    def report(batch: Batch) -> None:
        nonlocal safe
        if (safe + batch.size) // 50_000 > safe // 50_000:
            print(f"{safe + batch.size:,} flights are safe", flush=True)
        safe += batch.size

    stop = None if arguments.count is None else arguments.start + arguments.count
    rows = islice(flights(), arguments.start, stop)
    publisher = Publisher(arguments.url, arguments.topic, report)
    try:
        publisher.publish(batches(rows, arguments.batch))
    except (KeyboardInterrupt, OSError, Refused) as error:
        raise SystemExit(f"{error!r}; to go on from here: --start {safe}") from None
    finally:
        publisher.close()
    took = time.monotonic() - began
    count = safe - arguments.start
    print(
        f"{count:,} flights in {took:.1f} s, {count / took:,.0f} a second, "
        f"durability {publisher.durability}, {len(publisher.sent_again)} batches sent again"
    )


if __name__ == "__main__":
    main()
