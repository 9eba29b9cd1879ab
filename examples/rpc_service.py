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

How it works: a topic with mask 3 (memory 1 + RPC 2) keeps the caller waiting until somebody
answers. The service consumes calls like any messages, and sends each answer with `cmd: route` to
the `sender` of the call, under the id of the call. If no service answers within the caller's
`timeout` (`curl -H 'timeout: 2000' ...`, milliseconds), the caller is told with status 504.

To make a service of your own, copy this file and change `METHODS`.
"""

from __future__ import annotations

import argparse
import http.client
import json
import signal
import time
from collections.abc import Callable, Mapping
from email.message import Message
from typing import Any, NamedTuple
from urllib.parse import urlsplit

URL = "http://127.0.0.1:15555"
MASK_MEMORY_RPC = 3
PULL_MS = 60_000  # how long the broker may keep us waiting for a call before it says "none"
APPLICATION_ERROR = 600

Method = Callable[..., Any]


def plus(a: float, b: float) -> float:
    """The sum of two numbers."""
    return a + b


def echo(*values: Any) -> Any:  # noqa: ANN401  # whatever JSON holds
    """What it was given."""
    return values[0] if len(values) == 1 else values


METHODS: dict[str, Method] = {"plus": plus, "echo": echo}


class Reply(NamedTuple):
    """What the broker says to a request."""

    status: int
    headers: Message  # a mapping, looked up in any case: headers["sender"]
    body: bytes


class Service:
    """Answers the calls of one topic with the given methods."""

    def __init__(self, url: str, topic: str, methods: Mapping[str, Method]) -> None:
        self.url = url.rstrip("/")
        self.topic = topic
        self.methods = methods
        parts = urlsplit(url)
        # A little more patient than the broker, so that it is the broker who ends a wait.
        self._connection = http.client.HTTPConnection(
            parts.hostname or "127.0.0.1", parts.port or 15555, timeout=PULL_MS / 1000 + 10
        )

    def run(self) -> None:
        """Serve until Ctrl-C; if the broker goes away, wait until it is back."""
        while True:
            try:
                self._declare()
                while True:
                    self._serve_one()
            except (OSError, http.client.HTTPException) as error:
                self._connection.close()
                print(f"no broker at {self.url}, trying again: {error!r}", flush=True)
                time.sleep(0.5)
            except KeyboardInterrupt:
                self._connection.close()  # the broker gives our next call to somebody else
                print("stopped", flush=True)
                return

    def _declare(self) -> None:
        """Create the topic, unless it is there already. It lives in memory: calls are not kept."""
        reply = self._request(
            {"cmd": "declare", "topic": self.topic, "topic_mask": str(MASK_MEMORY_RPC)}
        )
        if reply.status != 200:
            raise SystemExit(f"cannot declare {self.topic}: {reply.body.decode()}")
        print(f"serving {self.url}/{self.topic} ({', '.join(self.methods)})", flush=True)

    def _serve_one(self) -> None:
        """Wait for a call, do it, send the answer back."""
        call = self._request({"cmd": "consume", "topic": self.topic, "timeout": str(PULL_MS)})
        if call.status == 204:
            return  # nobody called; ask again
        if call.status == 404:
            self._declare()  # somebody removed the topic
            return
        if call.status != 200:
            raise OSError(f"{call.status} {call.body.decode()}")
        status, content_type, body = self.answer(call.body)
        # Without `ack` a route is never answered. With it we hear 200, or 404 if the caller has
        # gone, which is no concern of ours.
        self._request(
            {
                "cmd": "route",
                "ack": "1",
                "topic": self.topic,
                "recver": call.headers["sender"],
                "id": call.headers["origin_id"],
                "origin_status": str(status),
                "content-type": content_type,
            },
            body,
        )

    def answer(self, body: bytes) -> tuple[int, str, bytes]:
        """Status, content type and body for a call: `{"method": "plus", "params": [1, 2]}`."""
        try:
            call = json.loads(body)
            name = call.get("method") or "index"
            if name not in self.methods:
                raise LookupError(f"{name} method not found")
            result = self.methods[name](*call.get("params", ()))
            return 200, "application/json", json.dumps(result).encode()
        except Exception as error:  # whatever the method raises is the caller's answer
            text = str(error) or type(error).__name__
            return APPLICATION_ERROR, "text/plain; charset=utf-8", text.encode()

    def _request(self, headers: Mapping[str, str], body: bytes = b"") -> Reply:
        self._connection.request("POST", "/", body, dict(headers))
        response = self._connection.getresponse()
        return Reply(response.status, response.headers, response.read())


def main() -> None:
    parser = argparse.ArgumentParser(description="An RPC service with the methods plus and echo.")
    parser.add_argument("--url", default=URL, help="where the broker is (default: %(default)s)")
    parser.add_argument("--topic", default="myrpc", help="what callers call (default: %(default)s)")
    arguments = parser.parse_args()
    for number in (signal.SIGINT, signal.SIGTERM):  # a polite kill is a Ctrl-C from afar
        signal.signal(number, signal.default_int_handler)
    Service(arguments.url, arguments.topic, METHODS).run()


if __name__ == "__main__":
    main()
