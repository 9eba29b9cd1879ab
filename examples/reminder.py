"""Reminders: each comes when it is due, never earlier, also if the broker was away meanwhile.

    python examples/reminder.py                             # prints what is due, until Ctrl-C
    python examples/reminder.py --in 10 'take the tea out'  # seconds from now

A reminder that was set cannot be forgotten: it is on the disk before the program ends. Whoever has
no Python sets one with curl, in the words of camellia's delay queue, and takes it back by its id:

    $ curl http://127.0.0.1:15555/camellia/delayQueue/sendMsg \
        -d topic=Reminders -d msgId=tea -d delayMillis=10000 -d 'msg=take the tea out'
    $ curl http://127.0.0.1:15555/camellia/delayQueue/deleteMsg -d topic=Reminders -d msgId=tea

These are reminders like the others: one topic, two dialects (docs/howto/coming-from-camellia.md).
But for this: such a one is dropped if it is not taken within an hour after its time, unless it was
set with a longer `ttlMillis`.
"""

from __future__ import annotations

import argparse
import signal

from zbus.client import DEFAULT_URL, BlockingClient, connect

TOPIC = "Reminders"


def set_one(bus: BlockingClient, text: str, delay_s: float) -> None:
    bus.produce(TOPIC, text, delay_ms=round(delay_s * 1_000))
    print(f"in {delay_s:g} s: {text}", flush=True)


def say_what_is_due(bus: BlockingClient) -> None:
    """Several of these programs share the reminders: each is said once."""
    with bus.consume(TOPIC, TOPIC) as reminders:
        print("waiting for reminders", flush=True)
        for reminder in reminders:  # done when the next one is asked for
            print("now:", reminder.text, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Set a reminder, or wait for all of them.")
    parser.add_argument("text", nargs="*", help="of the reminder")
    parser.add_argument("--in", dest="delay_s", type=float, default=0, help="seconds from now")
    parser.add_argument("--url", default=DEFAULT_URL, help="the broker (default: %(default)s)")
    asked = parser.parse_args()
    with connect(asked.url) as bus:
        # The group that all dialects use, in a topic that knows the ids of what is not done.
        bus.declare(TOPIC, TOPIC, ack=True, dedupe_live=True)
        if asked.text:
            set_one(bus, " ".join(asked.text), asked.delay_s)
        else:
            say_what_is_due(bus)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a polite kill is a Ctrl-C
    try:
        main()
    except KeyboardInterrupt:
        print("stopped", flush=True)
