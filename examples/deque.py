"""A list of errands that several workers share: Adf's words, over HTTP, and no client.

    python examples/deque.py [URL]

Start a broker (`zbus serve`), as many workers as you like, and add errands to the list: to the
right what can wait, to the left what is urgent. Workers take from the left.

    $ curl 'http://127.0.0.1:15555/queue/rpush?queue=errands&requestid=1' -d 'buy milk'
    $ curl 'http://127.0.0.1:15555/queue/lpush?queue=errands&requestid=2' -d 'put out the fire'
    $ curl 'http://127.0.0.1:15555/queue/count?queue=errands&requestid=3'

An errand that is done is deleted. One that failed goes to the right end, so it does not hold up
the others, and after three times into the list `errands.failed`. What a worker has in its hands
when it is asked to stop goes back to the left. What a killed worker had goes there, too, when its
lease ends.
"""

from __future__ import annotations

import json
import signal
import sys
import uuid
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen

QUEUE, FAILED = "errands", "errands.failed"
ATTEMPTS_MAX = 3
LEASE_S = 60


def ask(url: str, action: str, queue: str, body: str = "", **more: object) -> dict[str, Any]:
    target = f"{url}/queue/{action}.json?{urlencode({'queue': queue, **more})}"
    with urlopen(target, body.encode() or None) as reply:  # a pull waits as long as it takes
        answer: dict[str, Any] = json.load(reply)
    if answer["result"] != "ok":
        raise RuntimeError(f"{action}: {answer['result']}")
    return answer


def run(errand: str) -> None:
    """Put your own work here. It may be done twice, so let it be the same as once."""
    if errand == "square the circle":
        raise ValueError("not with these compasses")
    print("done:", errand, flush=True)


def take_one(url: str) -> None:
    pull = uuid.uuid4().hex  # over HTTP no two pulls may have the same id: it names what was pulled
    pulled = ask(url, "pull", QUEUE, requestid=pull, lease=LEASE_S)
    settle = "lcancel"  # if somebody interrupts
    try:
        run(pulled["body"])
        settle = "delete"
    except Exception as error:  # of the work, whatever it is
        print(f"failed: {pulled['body']}: {error}", flush=True)
        settle = "rcancel"
        if pulled["duplications"] + 1 >= ATTEMPTS_MAX:
            ask(url, "rpush", FAILED, pulled["body"], requestid=pull)
            settle = "delete"
    finally:
        ask(url, settle, QUEUE, requestid=pull)


def main(url: str = "http://127.0.0.1:15555") -> None:
    print("working on", QUEUE, flush=True)
    while True:
        take_one(url)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a polite kill is a Ctrl-C
    try:
        main(*sys.argv[1:])
    except KeyboardInterrupt:
        print("stopped", flush=True)
