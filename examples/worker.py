"""A worker: takes messages of a group, one after another, and never loses one.

    python examples/worker.py [URL]

Start a broker (`zbus serve`), as many workers as you like, and produce to the topic:

    $ zbus produce Orders 'two chairs'

Each message is leased to one worker, and done when the work on it came to its end. If the worker
dies, or loses its connection for good, the lease runs out and another worker gets the message. If
the work fails, the broker hands the message out again later, and after the third attempt puts it
into the topic `Orders.failed`. Look at it there, and when the reason is gone, have it done again:

    $ zbus redrive Orders.failed

Ctrl-C gives back what was not finished.
"""

from __future__ import annotations

import signal
import sys

from zbus.client import Held, Retries, connect

RETRY = Retries(max_attempts=3, backoff_ms=(1_000, 60_000), dead_letter="Orders.failed")


def work(order: Held) -> None:
    """Put your own work here. It may be done twice, so let it be the same as once."""
    if order.text == "the impossible":
        raise ValueError("nobody can do that")
    print("done:", order.text, flush=True)


def main(*url: str) -> None:
    with connect(*url) as bus:
        bus.declare("Orders.failed", "Orders.failed")
        bus.declare("Orders", "packing", ack=True, start="earliest")
        with bus.consume("Orders", "packing", retry=RETRY) as messages:
            print("working on Orders/packing", flush=True)
            for message in messages:
                try:
                    work(message)
                except Exception as error:  # of the work, whatever it is
                    print(f"failed: {message.text}: {error}", flush=True)
                    message.nack()


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a polite kill is a Ctrl-C
    try:
        main(*sys.argv[1:])
    except KeyboardInterrupt:
        print("stopped", flush=True)
