"""A worker: takes messages of a group, one after another, and never loses one.

    python examples/worker.py

Start a broker (`zbus serve`), as many workers as you like, and produce to the topic:

    $ zbus produce Orders 'two chairs'

Each message is leased to one worker, and done when the work on it came to its end. If the worker
dies, or loses its connection for good, the lease runs out and another worker gets the message. If
the work fails, the message is tried again later, at most `--attempts` times; then it goes to the
topic `Orders.failed`, for somebody to look at. Ctrl-C gives back what was not finished.
"""

from __future__ import annotations

import argparse
import signal
from collections.abc import Callable

from zbus.client import DEFAULT_URL, BlockingClient, Held, connect

RETRY_MS = 1_000
"""The first pause before a failed message is tried again; each is twice the one before."""


def work(order: Held) -> None:
    """Put your own work here. It may be done twice, so let it be the same as once."""
    if order.text == "the impossible":
        raise ValueError("nobody can do that")
    print("done:", order.text, flush=True)


def serve(
    bus: BlockingClient, topic: str, group: str, attempts: int, work: Callable[[Held], None]
) -> None:
    """Work until interrupted."""
    bus.declare(topic, group, ack=True, start="earliest")
    bus.declare(f"{topic}.failed")
    with bus.consume(topic, group) as messages:
        print(f"working on {topic}/{group}", flush=True)
        for message in messages:
            try:
                work(message)
            except Exception as error:  # of the work, whatever it is
                print(f"failed: {message.text}: {error}", flush=True)
                if message.retry + 1 < attempts:
                    message.nack(delay_ms=RETRY_MS << message.retry)
                else:
                    # If this was done and the message comes again all the same, it is stored once.
                    name = f"{group}-{message.partition}-{message.offset}"
                    bus.produce(f"{topic}.failed", message.body, idempotency_key=name)


def main() -> None:
    parser = argparse.ArgumentParser(description="A worker that never loses a message.")
    parser.add_argument("--url", default=DEFAULT_URL, help="the broker (default: %(default)s)")
    parser.add_argument("--topic", default="Orders", help="(default: %(default)s)")
    parser.add_argument("--group", default="packing", help="(default: %(default)s)")
    parser.add_argument("--attempts", type=int, default=3, help="(default: %(default)s)")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a polite kill is a Ctrl-C
    try:
        with connect(arguments.url) as bus:
            serve(bus, arguments.topic, arguments.group, arguments.attempts, work)
    except KeyboardInterrupt:
        print("stopped", flush=True)


if __name__ == "__main__":
    main()
