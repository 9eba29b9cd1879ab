"""A job queue with retries and dead letters that needs no client: camellia's words, over HTTP.

    python examples/jobs.py [URL]

Start a broker (`zbus serve`), as many of these as you like, and give them jobs with curl:

    $ curl http://127.0.0.1:15555/camellia/delayQueue/sendMsg \
        -d topic=Jobs -d delayMillis=0 -d maxRetry=2 -d 'msg=sweep the floor'

A job is one worker's for `ackTimeoutMillis`; if that worker dies, another one gets it. A job that
fails comes again after a second, then after two, at most `maxRetry` times. Then it is dead, and the
broker puts it into the topic `Jobs.failed`, where it can be looked at and sent back. (One that
nobody took for an hour is dropped, unless it was sent with a longer `ttlMillis`.)

    $ zbus redrive Jobs.failed

`examples/worker.py` is the same with the Python client, which also keeps leases of long work.
"""

from __future__ import annotations

import json
import signal
import sys
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen

TOPIC = "Jobs"
LEASE_MS = 30_000
WAIT_MS = 10_000


class Broker:
    """The verbs of camellia's delay queue."""

    def __init__(self, url: str = "http://127.0.0.1:15555") -> None:
        self.url = url

    def ask(self, verb: str, **fields: object) -> dict[str, Any]:
        form = urlencode({"topic": TOPIC, **fields}).encode()
        with urlopen(f"{self.url}/camellia/delayQueue/{verb}", form, timeout=60) as reply:
            answer: dict[str, Any] = json.load(reply)
        if answer["code"] != 200:
            raise RuntimeError(f"{verb}: {answer}")
        return answer

    def declare(self, path: str, **options: object) -> None:
        """What camellia has no words for: where dead jobs go, in zbus's."""
        urlopen(f"{self.url}/{path}?cmd=declare&{urlencode(options)}", timeout=60).close()


def work(job: str) -> None:
    """Put your own work here. It may be done twice, so let it be the same as once."""
    if job == "the impossible":
        raise ValueError("nobody can do that")
    print("done:", job, flush=True)


def take_one(broker: Broker) -> None:
    asked = {"ackTimeoutMillis": LEASE_MS, "longPollingTimeoutMillis": WAIT_MS}
    for message in broker.ask("longPollingMsg", **asked)["delayMsgList"]:
        try:
            work(message["msg"])
        except Exception as error:  # of the work, whatever it is
            print(f"failed: {message['msg']}: {error}", flush=True)
            broker.ask("ackMsg", msgId=message["msgId"], ack="false")
        else:
            broker.ask("ackMsg", msgId=message["msgId"], ack="true")


def main(*url: str) -> None:
    broker = Broker(*url)
    broker.declare("Jobs.failed/Jobs.failed")
    retries = {"group_max_attempts": 3, "group_backoff": "1000,60000"}
    options = {"ack": "true", "dedupe_live": "true", "group_dead_letter": "Jobs.failed", **retries}
    broker.declare(f"{TOPIC}/{TOPIC}", **options)
    print("working on", TOPIC, flush=True)
    while True:
        take_one(broker)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a polite kill is a Ctrl-C
    try:
        main(*sys.argv[1:])
    except KeyboardInterrupt:
        print("stopped", flush=True)
