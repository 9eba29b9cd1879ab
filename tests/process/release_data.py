"""What a broker of a release leaves on disk, kept to be opened by all that come after it.

    python -m tests.process.release_data tests/data/release-0.1

fills a directory with whatever a broker stores, and writes beside it what can be seen of that. It
is run once for a release; tests open a copy with the broker of today.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

from tests.process.broker import BrokerProcess
from zbus.client import connect
from zbus.client.blocking import BlockingClient

NAMES = ("orders", "dead", "jobs", "Ümläut x", "written", "cron.reminders")


def fill(bus: BlockingClient) -> None:
    """Some of everything."""
    bus.declare("orders", partitions=2, retention_bytes=10**9, settled_ms=10**11, dedupe_ms=10**11)
    bus.declare("dead")
    bus.declare(
        "orders",
        "billing",
        ack=True,
        lease_ms=10**9,
        window=50,
        max_attempts=1,
        backoff_ms=(1_000, 60_000),
        dead_letter="dead",
        filter="a.*;b.*",
        rate=500,
    )
    bus.declare("orders", "audit", order="key", ack=True, retain=True, paused=True)
    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    url = "https://shop.invalid/orders"  # paused: nothing is sent while this is looked at
    bus.declare("orders", "hook", push_url=url, push_secret=secret, push_concurrency=3, paused=True)
    bus.declare("reminders")
    bus.schedule("reminders", "leap", "0 0 29 2 *", "a day more", zone="Europe/Berlin")
    for number in range(40):
        bus.produce(
            "orders",
            f"body {number}",
            id=f"id-{number}",
            tag="ab"[number % 2] + ".x",
            key=f"k{number % 3}",
            headers={"x-number": str(number)},
        )
    for message in bus.pull("orders", "billing", batch=10):
        partition, offset = message.partition or 0, message.offset
        settle = bus.nack if offset % 3 == 1 else bus.ack  # a lease would end before this is read
        settle("orders", "billing", offset, partition=partition)
    bus.declare("jobs", "workers", ack=True)
    bus.produce("jobs", "in nine years", delay_ms=3 * 10**11, tag="late")
    bus.produce("jobs", b"\x00\xff binary")
    bus.produce_many("jobs", [b"%d" % number * 50 for number in range(200)])
    bus.produce("jobs", "once", idempotency_key="once")
    bus.pull("jobs", "workers", batch=5)
    bus.declare("Ümläut x", "Grüppe", start="earliest")
    bus.produce("Ümläut x", "")
    bus.declare("written", durability="os")
    bus.produce("written", "and not synced")


def observe(bus: BlockingClient) -> dict[str, Any]:
    """What a client can see, but for what a restart changes: who is connected."""
    seen: dict[str, Any] = {}
    for name in NAMES:
        info = bus.query(name)
        messages = []
        for partition in range(info.partitions):
            offset = 0
            while some := bus.read(name, offset=offset, partition=partition, count=1_000):
                offset = some[-1].offset + 1
                messages += [
                    [partition, m.offset, m.id, m.tag, m.key, m.body.hex(), dict(m.headers)]
                    for m in some
                ]
        groups = {}
        for group in info.groups:
            groups[group.name] = {
                **{"open": group.message_count + group.leased_count},  # leases end
                **{"delayed": group.delayed_count, "dead": group.dead_count},
                **{"filter": group.filter, "paused": group.paused, "order": group.order},
                **{"max_attempts": group.max_attempts, "backoff_ms": group.backoff_ms},
                **{"dead_letter": group.dead_letter, "rate": group.rate, "retain": group.retain},
                **{"lease_ms": group.lease_ms, "window": group.window},
                "push": group.push and [group.push.url, group.push.concurrency, group.push.signed],
            }
        seen[name] = {"partitions": info.partitions, "messages": messages, "groups": groups}
    return seen


def main(target: Path) -> None:
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    data = target / "log"
    with BrokerProcess(data, "--set", "reserve_bytes=0") as broker:
        with connect(f"127.0.0.1:{broker.port}") as bus:
            fill(bus)
        assert broker.stop() == 0
    shutil.copytree(data, target / "copy")
    with BrokerProcess(target / "copy", "--set", "reserve_bytes=0") as broker:
        with connect(f"127.0.0.1:{broker.port}") as bus:
            seen = observe(bus)
        assert broker.stop() == 0
    text = json.dumps(seen, indent=1, ensure_ascii=False, sort_keys=True)
    (target / "seen.json").write_text(text + "\n", encoding="utf-8")
    for path in target.glob("*.log"):  # what the brokers said
        path.unlink()
    shutil.rmtree(target / "copy")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
