"""Count flights, through a consume group that sees all of them or just some.

    python -m examples.flights.consume united
    python -m examples.flights.consume kennedy --by carrier
    python -m examples.flights.consume mine --filter 'B6.*.BOS'

A group remembers how far it has read, each for itself. Run this twice: the second time there is
nothing left to count. Run two at once with the same group: they share the flights. Filters match
the tag `carrier.origin.dest`: `*` is one word, `#` any rest, `;` means or.

Messages are taken out as they are handed out: what is on its way while the broker or this program
dies is gone for this group. Where that is not good enough, declare the group with `group_ack: true`
and acknowledge each message by its offset with `cmd: ack`, within the group's `group_lease`: later
than that, it comes again.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

from examples.flights.client import TOPIC, URL, Broker, Refused

GROUPS = {
    "everything": "",
    "united": "UA.#",
    "kennedy": "*.JFK.*",
    "california": "*.*.LAX;*.*.SFO",
}
BATCH = 1_000
WORDS = {"carrier": slice(0, 1), "route": slice(1, 3), "all": slice(0, 3)}  # of a tag


def declare(broker: Broker, topic: str, group: str, group_filter: str = "") -> None:
    """Create the group, reading from the very first message; one that exists goes on as it is."""
    if broker.request(cmd="query", topic=topic, consume_group=group).status == 404:
        broker.demand(
            cmd="declare",
            topic=topic,
            consume_group=group,
            group_filter=group_filter,
            **{"from": "earliest"},
        )


def consume(
    broker: Broker, topic: str, group: str, batch: int = BATCH, wait_ms: int = 1_000
) -> Iterator[dict[str, Any]]:
    """The group's messages, until none comes for this long. Each is a dictionary with `id`, `tag`,
    `key`, `offset`, `headers`, `body` (text) and a few more."""
    while True:
        reply = broker.demand(
            cmd="consume",
            topic=topic,
            consume_group=group,
            batch=batch,
            timeout=wait_ms,
            accept="application/json",
        )
        if reply.status == 204:
            return
        yield from json.loads(reply.body)


def main() -> None:
    parser = argparse.ArgumentParser(description="Count flights, by carrier or by route.")
    parser.add_argument("group", help=f"{', '.join(GROUPS)}, or any other name")
    parser.add_argument("--filter", help="which tags, for a new group (default: all)")
    parser.add_argument("--by", choices=WORDS, default="carrier", help="(default: %(default)s)")
    parser.add_argument("--top", type=int, default=15, help="lines to print (default: %(default)s)")
    parser.add_argument("--url", default=URL, help="where the broker is (default: %(default)s)")
    parser.add_argument("--topic", default=TOPIC, help="(default: %(default)s)")
    arguments = parser.parse_args()

    broker = Broker(arguments.url)
    counts: Counter[str] = Counter()
    words = WORDS[arguments.by]
    began = time.monotonic()
    try:
        wanted = GROUPS.get(arguments.group, "") if arguments.filter is None else arguments.filter
        declare(broker, arguments.topic, arguments.group, wanted)
        for message in consume(broker, arguments.topic, arguments.group):
            counts[".".join(message["tag"].split(".")[words])] += 1
    except KeyboardInterrupt:
        pass  # what was counted until now is worth printing
    except (OSError, Refused) as error:
        raise SystemExit(f"the broker at {arguments.url}: {error}") from None
    finally:
        broker.close()
    took = time.monotonic() - began

    for name, count in counts.most_common(arguments.top):
        print(f"{name:12} {count:>8,}")
    print(f"{counts.total():,} flights, {len(counts)} lines, {took:.1f} s with a wait at the end")


if __name__ == "__main__":
    main()
