"""Requests as clients send them: templates with slots that have another value each time.

One request that is repeated for ever, as `ab` and `wrk` send it, shows how fast a broker recognises
it. Real requests carry keys, ids and traces. A slot is a word in braces: `key: user-{user}`. All
generators have the same templates: Python fills them here, wrk in `templates.lua`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import count
from pathlib import Path
from random import Random
from typing import NamedTuple

HERE = Path(__file__).parent
SCRIPT = HERE / "templates.lua"
BODY_END = b"\n--end--"  # ends the bodies that differ, and is nowhere else in a request
SLOT = re.compile(rb"\{(\w+)\}")
BETWEEN_TEMPLATES, BETWEEN_CLIENTS = b"\x1f", b"\x1e"  # as `templates.lua` has them

SLOTS: dict[bytes, Callable[[int, Random], bytes]] = {
    b"n": lambda n, random: b"%d" % n,
    b"kind": lambda n, random: b"kind%d" % (n % 20),
    b"user": lambda n, random: b"user-%05d" % random.randrange(100_000),
    b"delay": lambda n, random: b"%d" % random.randrange(60_000, 900_000),
    b"span": lambda n, random: b"%016x" % random.getrandbits(64),
    b"id": lambda n, random: b"%016x" % random.getrandbits(64),
    b"trace": lambda n, random: b"%032x" % random.getrandbits(128),
    b"body": lambda n, random: b"x" * random.randrange(1, 201) + BODY_END,
    b"length": lambda n, random: b"",  # it is known last
}


class Template(NamedTuple):
    """A request in pieces: what is fixed, and between them the names of slots."""

    pieces: Sequence[bytes]
    length_at: int  # of the slot for the length of the body among the pieces, or -1

    @classmethod
    def of(cls, text: bytes) -> Template:
        pieces = SLOT.split(text)
        return cls(pieces, pieces.index(b"length") if b"length" in pieces[1::2] else -1)

    def fill(self, n: int, random: Random, **given: bytes) -> bytes:
        """The n-th request; `given` are values of further slots."""
        parts = list(self.pieces)
        for at in range(1, len(parts), 2):
            name = parts[at]
            make = SLOTS.get(name)
            parts[at] = given[name.decode()] if make is None else make(n, random)
        if self.length_at >= 0:
            _, _, body = b"".join(parts).partition(b"\r\n\r\n")
            parts[self.length_at] = b"%d" % len(body)
        return b"".join(parts)


def get(target: str, *lines: str, host: str = "localhost") -> bytes:
    """The text of a request without a body."""
    return "\r\n".join([f"GET {target} HTTP/1.1", f"host: {host}", *lines, "", ""]).encode()


def post(target: str, *lines: str, body: str = "hello", host: str = "localhost") -> bytes:
    """The text of one with a body."""
    length = "{length}" if "{" in body else len(body)
    head = [f"POST {target} HTTP/1.1", f"host: {host}", *lines, f"content-length: {length}"]
    return "\r\n".join([*head, "", body]).encode()


MODES = ("fixed", "tag", "key", "traceparent", "?body=", "id", "crowd")
"""What differs between the produces of a run; a crowd is one of many clients."""


def produces(mode: str, topic: str, port: int, connections: int = 32) -> list[list[bytes]]:
    """For each client of wrk the templates that it sends in turn."""
    path, host = f"/{topic}", f"127.0.0.1:{port}"
    if mode == "crowd":
        return crowd(path, host, connections)
    lines = {
        "tag": ["tag: {kind}"],
        "key": ["key: {user}"],
        "traceparent": ["traceparent: 00-{trace}-{span}-01"],
        "id": ["id: {id}"],
    }
    if mode == "?body=":
        return [[get(path + "?body=hello{n}", host=host)]]
    return [[post(path, *lines.get(mode, []), host=host)]]


# -- a crowd of clients ------------------------------------------------------------------------

MESSAGES = (
    ("key: {user}", "id: {id}"),
    ("traceparent: 00-{trace}-{span}-01", "tag: {kind}"),
    ("idempotency-key: {id}",),
)
"""The lines of a message; a client of the crowd sends one kind after the other."""


@cache
def client_lines() -> dict[str, list[str]]:
    """By client, its header lines."""
    paragraphs = (HERE / "clients.txt").read_text().strip().split("\n\n")[1:]
    return {name: lines for name, *lines in (one.split("\n") for one in paragraphs)}


def crowd(target: str, host: str, connections: int) -> list[list[bytes]]:
    """For each connection the templates that it sends in turn: those of one client, whose lines
    are in an order of their own. Bodies differ in length."""
    clients = list(client_lines().values())
    return [
        _client(clients[number % len(clients)], target, host, Random(number))
        for number in range(connections)
    ]


def _client(fixed: list[str], target: str, host: str, random: Random) -> list[bytes]:
    templates = []
    order = {line: random.random() for line in fixed}
    for message in MESSAGES:
        lines = [*fixed, *message, "Content-Length: {length}"]
        lines.sort(key=lambda line: order.setdefault(line, random.random()))
        head = "\r\n".join([f"POST {target} HTTP/1.1", *lines, "", "{body}"])
        templates.append(head.replace("{host}", host).encode())
    return templates


def crowd_requests(target: str, host: str, connections: int) -> Iterator[bytes]:
    """Requests for the connections in turn, without end."""
    clients = [[Template.of(text) for text in texts] for texts in crowd(target, host, connections)]
    random = Random()  # an idempotency key of a round before would store nothing
    for n in count():
        texts = clients[n % connections]
        yield texts[n // connections % len(texts)].fill(n, random)


def for_wrk(clients: Sequence[Sequence[bytes]]) -> bytes:
    """What `templates.lua` reads: each thread is one of the clients."""
    return BETWEEN_CLIENTS.join(BETWEEN_TEMPLATES.join(texts) for texts in clients)
