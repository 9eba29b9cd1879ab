"""A service that anybody with curl can call: remote procedure calls over a queue.

Start a broker (`zbus serve`), start this program, and call it, as often and from as many places
as you like; start it twice and the two share the calls:

    python examples/rpc_service.py

    $ curl http://127.0.0.1:15555/myrpc/plus/1/2
    3
    $ curl http://127.0.0.1:15555/myrpc/echo/hello
    "hello"
    $ curl http://127.0.0.1:15555/myrpc -d '{"method": "plus", "params": [1.5, 2]}'
    3.5
    $ curl -i http://127.0.0.1:15555/myrpc/minus/1/2
    HTTP/1.1 600 ...
    minus method not found

How it works: a topic for calls keeps the caller waiting until somebody answers. The service takes
calls like any messages, and its answers are routed to whoever asked. If no service answers within
the caller's `timeout` (`curl -H 'timeout: 2000' ...`, milliseconds), it is told with status 504.

To make a service of your own, copy this file and change the functions (docs/howto/rpc.md).
"""

from __future__ import annotations

import argparse
import logging
import sys
from typing import Any

from zbus.client import DEFAULT_URL, Service

service = Service("myrpc")


@service.method
def plus(a: float, b: float) -> float:
    """The sum of two numbers."""
    return a + b


@service.method
def echo(*values: Any) -> Any:  # noqa: ANN401  # whatever JSON holds
    """What it was given."""
    return values[0] if len(values) == 1 else values


def main() -> None:
    parser = argparse.ArgumentParser(description="An RPC service.")
    parser.add_argument("--url", default=DEFAULT_URL, help="the broker (default: %(default)s)")
    parser.add_argument("--topic", default=service.topic, help="what callers call (%(default)s)")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
    service.topic = arguments.topic
    service.run(arguments.url)
    print("stopped")


if __name__ == "__main__":
    main()
