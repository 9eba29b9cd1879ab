"""A counter that serves people with tickets: MQCloud's words over HTTP, and no client.

    python examples/mqcloud/counter.py [URL [SECONDS]]

Start a broker with the page beside this program, and as many of these as you like:

    zbus serve --set pages=examples/mqcloud

Open http://127.0.0.1:15555/_pages/, which is one more counter, and draw tickets there, or by curl:

    $ curl http://127.0.0.1:15555/mq/produce -d producer=tickets-producer -d 'message=a stamp'

Each ticket comes to one counter. A counter says that somebody was served by asking for the next
one. One that is told to stop says so by itself, for the last one. What a counter had that was
killed comes to another one after the consume timeout, which is five minutes.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode
from urllib.request import urlopen

TOPIC, PRODUCER, CONSUMER = "tickets", "tickets-producer", "counters"
WORK = {"topic": TOPIC, "consumer": CONSUMER}
TIMEOUT_S = 10


class Later(Exception):
    """It was not done, and may be another time."""


def ask(url: str, path: str, fields: dict[str, object], post: bool = False) -> dict[str, Any]:
    """The result of the envelope."""
    form = urlencode(fields)
    target, body = (url + path, form.encode()) if post else (f"{url}{path}?{form}", None)
    try:
        with urlopen(target, body, TIMEOUT_S) as reply:
            answer: dict[str, Any] = json.load(reply)
    except HTTPError as error:
        error.close()
        raise Later(f"status {error.code}") from error  # the broker is busy, or stops
    except (URLError, OSError) as error:
        raise Later(str(error)) from error
    if answer["status"] != 200:
        raise Later(answer["message"])
    result: dict[str, Any] = answer.get("result", {})
    return result


class Counter:
    """`request_id` is of who is being served; empty = nobody."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._request_id = ""

    def open(self) -> None:
        for name, value in (("producer", PRODUCER), ("consumer", CONSUMER)):
            ask(self._url, "/mq/register", {"topic": TOPIC, name: value}, post=True)
        print("the counter is open", flush=True)

    def serve(self) -> None:
        """The next one. To ask for it says that those before are done."""
        fields = {**WORK, "maxPullSize": 1, "requestId": self._request_id}
        found = ask(self._url, "/mq/message", fields)
        self._request_id = found.get("requestId", "")
        for message in (*found.get("retryMsgList", ()), *found.get("msgList", ())):
            print("served:", message["message"], flush=True)

    def close(self) -> None:
        if self._request_id:
            ask(self._url, "/mq/ack", {**WORK, "requestId": self._request_id})


def main(url: str = "http://127.0.0.1:15555", pause_s: str = "1") -> None:
    counter = Counter(url)
    step = counter.open
    try:
        while True:
            try:
                step()
                step = counter.serve
            except Later as reason:  # others have all queues, or there is no broker
                if step == counter.open:
                    print("not yet:", reason, flush=True)
            time.sleep(float(pause_s))
    finally:
        counter.close()


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a polite kill is a Ctrl-C
    try:
        main(*sys.argv[1:])
    except KeyboardInterrupt:
        print("stopped", flush=True)
