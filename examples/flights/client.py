"""All of a zbus client that most programs need: one request, one reply, over plain HTTP."""

from __future__ import annotations

import http.client
from email.message import Message
from typing import NamedTuple
from urllib.parse import urlsplit

URL = "http://127.0.0.1:15555"
TOPIC = "flights"


class Reply(NamedTuple):
    """What the broker says to a request."""

    status: int
    headers: Message  # a mapping, looked up in any case: headers["offset"]
    body: bytes


class Refused(Exception):
    """The broker will not do that; the text says why."""


def host_and_port(url: str) -> tuple[str, int]:
    """Of `http://127.0.0.1:15555`."""
    parts = urlsplit(url)
    return parts.hostname or "127.0.0.1", parts.port or 15555


class Broker:
    """A connection to a broker. It is opened when needed, and again after it broke."""

    def __init__(self, url: str = URL, timeout_s: float = 60) -> None:
        self.url = url.rstrip("/")
        self._connection = http.client.HTTPConnection(*host_and_port(url), timeout=timeout_s)

    def request(self, body: bytes = b"", /, **headers: str | int) -> Reply:
        """Send a command, for example `request(cmd="query", topic="flights")`."""
        fields = {name: str(value) for name, value in headers.items()}
        try:
            self._connection.request("POST", "/", body, fields)
            response = self._connection.getresponse()
            return Reply(response.status, response.headers, response.read())
        except BaseException:
            self._connection.close()  # half a conversation cannot be continued
            raise

    def demand(self, body: bytes = b"", /, **headers: str | int) -> Reply:
        """A request that has to work: a refusal is an exception."""
        reply = self.request(body, **headers)
        if reply.status >= 400:
            raise Refused(reply.body.decode())
        return reply

    def close(self) -> None:
        self._connection.close()
