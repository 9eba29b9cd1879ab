"""Requests that differ in values, to two brokers: one that learns shapes, and one that does not.

Whatever the values are and however the bytes are split, both must say and store the same, byte for
byte: `python -m tests.dialects.zbus.shape_fuzz --heads N --seed S`. A client repeats a few heads,
as clients do, so most are taken by their shape; every fifth value or so is one that no shape may
take, or that looks like something else.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from hashlib import sha256
from random import Random

from tests.wire.websocket_frames import frame
from zbus.edge.access import Access, Entry, make_grant
from zbus.testing.world import Client, World

Make = Callable[[Random], bytes]

UPGRADE = (
    b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\nupgrade: websocket\r\n"
    b"sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    b"token: one\r\n\r\n"
)
"""What comes after it stands in frames."""

NASTY = [
    b"", b" ", b"a b", b"a ", b" a", b"\t", b"a\tb", b"a\x00b", b"a\rb", b"a\nb", b"\xe4",
    b"\xc3\xa4", b"%", b"%41", b"%zz", b"%2541", b"a+b", b"a&key=b", b"a#b", b'"a"', b'"a', b"a\\b",
    b"a=b", b"a;b", b"a\r\nkey: b", b"a\r\n\r\nGET / HTTP/1.1\r\n\r\n", b"none", b"true", b"-1",
    b"+1", b"1.5", b"1_0", b"007", b"0", b"9" * 15, b"9" * 16, b"9" * 20, b"30s", b"1h",
    b"2027-01-15T08:00:00Z", b"1800000000", b"1800000000000", b"x" * 39, b"x" * 40, b"x" * 127,
    b"x" * 128, b"x" * 255, b"x" * 256, b"x" * 1024, b"x" * 1025, b"x" * 3000, b"x" * 9000,
    b"3,5-9", b"5-3", b"~", b"\x7f",
]  # fmt: skip
WORDS: Make = lambda r: b"v%d" % r.randint(0, 99)  # noqa: E731
SMALL: Make = lambda r: b"%d" % r.randint(0, 20)  # noqa: E731
PLAIN: dict[bytes, Make] = {
    b"x-forwarded-for": lambda r: b"192.0.2.%d" % r.randint(0, 99),
    b"partition": lambda r: b"%d" % r.randint(0, 3),
    b"offset": SMALL,
    b"expected_offset": SMALL,
    b"max_attempts": lambda r: b"%d" % r.randint(1, 5),
    b"priority": lambda r: b"%d" % r.randint(0, 9),
    b"delay": lambda r: b"%d" % r.randint(0, 9000),
    b"ttl": lambda r: b"%d" % r.randint(1000, 90000),
    b"timeout": lambda r: b"0",
    **dict.fromkeys((b"batch", b"consume_window"), lambda r: b"%d" % r.randint(1, 20)),
    **dict.fromkeys((b"lease", b"group_lease"), lambda r: b"%d" % r.randint(1, 9000)),
    **dict.fromkeys((b"on_loss", b"on-loss"), lambda r: r.choice((b"front", b"keep"))),
    **dict.fromkeys((b"strict", b"standby", b"front"), lambda r: r.choice((b"true", b"false"))),
    b"deliver_at": lambda r: b"%d" % (1_800_000_000_000 + r.randint(0, 10**7)),
    b"body": lambda r: r.choice((b"hello%d", b"a%%20b%d", b"a+b%d")) % r.randint(0, 9),
}
CLIENTS = [
    b"", b"user-agent: curl/8.5.0\r\naccept: */*\r\n",
    b"user-agent: Mozilla/5.0 (X11) Firefox/1\r\naccept: */*\r\nsec-fetch-site: same-origin\r\n"
    b"origin: http://localhost\r\n",
    b"connection: keep-alive\r\naccept-encoding: gzip\r\n", b"x-forwarded-for: 192.0.2.1\r\n",
    b"authorization: Bearer one\r\n", b"token: two\r\n", b"token: one\r\n",
    b"token: no\r\n", b"cookie: a=b\r\n", b"zbus-header-x: y\r\n",
    b"x-long: " + b"y" * 1200 + b"\r\n", b"connection: x-hop\r\nx-hop: 1\r\n",
    b"ack: false\r\n", b"idempotent: true\r\n",
    b"content-type: application/json\r\n", b"content-type: application/x-ndjson\r\n",
]  # fmt: skip
PUT = [
    b"key", b"tag", b"id", b"idempotency-key", b"traceparent", b"x-request-id", b"ce-id", b"delay",
    b"ttl", b"deliver_at", b"deliver-at", b"partition", b"max_attempts", b"max-attempts",
    b"expected_offset", b"expected-offset", b"timeout", b"body", b"x-real-ip",
    b"x-forwarded-for", b"X-App", b"offset",
]  # fmt: skip
TAKE = [
    b"offset", b"partition", b"delay", b"id", b"x-request-id", b"timeout", b"cf-ray", b"batch",
    b"lease", b"group_lease", b"consume_window", b"strict", b"standby", b"on_loss", b"on-loss",
    b"front", b"count", b"ack",
]  # fmt: skip
TOPICS = [b"A", b"a", b"P", b"S", b"D", b"R", b"L", b"L/g", b"P/g", b"nope"]
COMMANDS = [b"", b"", b"", b"ack", b"nack", b"consume", b"extend", b"peek", b"read"]


class Template:
    """A head with places for values."""

    def __init__(self, random: Random) -> None:
        pick = random.choice
        self.topic, self.cmd = pick(TOPICS), pick(COMMANDS)
        names = PUT if not self.cmd else TAKE
        self.query = random.sample(names, pick((0, 0, 1, 1, 2, 3)))
        self.lines = random.sample(names, pick((0, 1, 1, 2, 3)))
        if random.random() < 0.1 and self.query:
            self.lines.append(self.query[0])  # one name in both
        if random.random() < 0.05 and self.lines:
            self.lines.append(pick(self.lines))
        if self.cmd and b"offset" not in (*self.query, *self.lines):
            self.query.append(b"offset")
        self.rest = pick(CLIENTS)
        self.method = pick((b"POST", b"POST", b"GET", b"PUT"))
        self.named = random.random() < 0.2  # the command and topic are header lines
        self.spelling = pick((bytes, bytes.title, bytes.upper))
        self.nasty = pick((0.0, 0.02, 0.2))

    def make(self, random: Random) -> bytes:
        cmd = self.cmd or b"produce"
        pairs = [b"%b=%b" % (name, self._value(name, random)) for name in self.query]
        if self.cmd:
            pairs.insert(0, b"cmd=" + cmd)
        path = b"/" + self.topic
        target = path + b"?" + b"&".join(pairs) if pairs else path
        head = b"%b %b HTTP/1.1\r\nhost: localhost\r\n%b" % (self.method, target, self.rest)
        if self.named:
            head += b"cmd: %b\r\ntopic: %b\r\n" % (cmd, self.topic.partition(b"/")[0])
        for name in self.lines:
            head += b"%b: %b\r\n" % (self.spelling(name), self._value(name, random))
        body = b"" if self.cmd or self.method == b"GET" else b"b" * random.randint(0, 30)
        if self.method != b"GET":
            length = b"%d" % len(body)
            if random.random() < self.nasty / 4:
                length = random.choice((b"", b"+1", b"01", b"9" * 19, b"1, 1", b"x", b"-1"))
            head += b"content-length: %b\r\n" % length
        return head + b"\r\n" + body

    def make_frame(self, random: Random) -> bytes:
        """The same as a message of a WebSocket."""
        return frame(1, self.make(random))

    def make_json(self, random: Random) -> bytes:
        """The same as a JSON object."""
        members: dict[str, object] = {"cmd": (self.cmd or b"produce").decode()}
        members["topic"], _, group = self.topic.decode().partition("/")
        if group:
            members["consume_group"] = group
        for name in (*self.query, *self.lines):
            value: object = self._value(name, random).decode("latin-1")
            if random.random() < self.nasty:
                value = random.choice((None, True, 7, 1.5, {}, [1], "a\nb", "\u00e4", '"', "\\"))
            members[self.spelling(name).decode()] = value
        if random.random() < 0.5:
            members["body"] = random.choice(("b", "a\\nb", {"a": 1}, [1], 7, None, "\u20ac", ""))
        return frame(1, json.dumps(members, ensure_ascii=random.random() < 0.5).encode())

    def _value(self, name: bytes, random: Random) -> bytes:
        if random.random() < self.nasty:
            return random.choice(NASTY)
        return PLAIN.get(name, WORDS)(random)


def _world(guarded: bool) -> World:
    if not guarded:
        return World()
    everything = make_grant("one", ["admin"], {"*": []})
    some = make_grant("two", ["produce", "consume"], {"A": [], "P": []})
    entries = [
        Entry(grant, (sha256(grant.name.encode()).digest(),)) for grant in (everything, some)
    ]
    return World(access=Access(entries), allow_url_token=True, trusted_proxies="127.0.0.0/8")


class Pair:
    """The two brokers."""

    def __init__(self, guarded: bool) -> None:
        self.quick, self.careful = (_world(guarded) for _ in range(2))
        self.careful.dialect.heads.shapes = None
        for world in (self.quick, self.careful):
            declare = world.connect()
            for target in (
                b"A", b"P?partitions=3", b"S?sender_headers=true", b"D?dedupe_ms=60000",
                b"R?rpc=true", b"L/g?ack=true&group_window=500", b"P/g?ack=true",
            ):  # fmt: skip
                mark = b"&" if b"?" in target else b"?"
                head = b"GET /%b%bcmd=declare HTTP/1.1\r\nhost: localhost\r\ntoken: one\r\n\r\n"
                head %= target, mark
                assert declare.request(head).status == 200
        self.clients, self.opening = self._connect(), b""
        shapes = self.quick.dialect.heads.shapes
        assert shapes is not None
        self.shapes = shapes

    def _connect(self) -> tuple[Client, Client]:
        return self.quick.connect(), self.careful.connect()

    def exchange(self, pieces: list[bytes]) -> None:
        """Both get the same bytes, in the same pieces, and answer the same."""
        for piece in pieces:
            for client in self.clients:
                client.send(piece)
                client.world.turn()
        quick, careful = self.clients
        for client in self.clients:
            client.world.settle()
        if quick.received != careful.received:
            both = zip(quick.received, careful.received, strict=False)
            at = next((at for at, (one, other) in enumerate(both) if one != other), 0)
            near = slice(max(0, at - 300), at + 200)
            raise AssertionError((pieces, quick.received[near], careful.received[near]))
        assert quick.peer.address == careful.peer.address, pieces
        closed = quick.peer.closing, quick.peer.broken
        assert closed == (careful.peer.closing, careful.peer.broken), pieces
        quick.received = careful.received = b""
        if any(closed):
            self.reconnect(self.opening)

    def reconnect(self, opening: bytes = b"") -> None:
        """New connections, which begin with these bytes."""
        for client in self.clients:
            client.vanish()
        self.clients, self.opening = self._connect(), opening
        if opening:
            self.exchange([opening])

    def check(self) -> None:
        """What is stored is the same, too."""
        self.reconnect()
        for topic in (b"A", b"P", b"S", b"D", b"L"):
            for partition in range(3 if topic == b"P" else 1):
                head = (
                    b"GET /%b?cmd=read&count=100000&partition=%d HTTP/1.1\r\nhost: localhost\r\n"
                    b"token: one\r\n\r\n"
                )
                self.exchange([head % (topic, partition)])
        self.reconnect()

    def pass_time(self, ms: int) -> None:
        for client in self.clients:
            client.world.advance(ms)


PLAIN_HTTP, IN_FRAMES = [Template.make], [Template.make_frame, Template.make_json]


def round_of(random: Random, pair: Pair, count: int) -> int:
    """A client with a few heads; returns how many it sent."""
    templates = [Template(random) for _ in range(random.choice((1, 2, 3, 5)))]
    kinds = random.choice(
        (PLAIN_HTTP, PLAIN_HTTP, [Template.make_frame], [Template.make_json], IN_FRAMES)
    )
    if kinds is not PLAIN_HTTP:
        pair.reconnect(UPGRADE)
    sent = 0
    while sent < count:
        burst = random.choice((1, 1, 2, 5, 20))
        data = b"".join(
            [random.choice(kinds)(random.choice(templates), random) for _ in range(burst)]
        )
        sent += burst
        cuts = sorted(random.randint(0, len(data)) for _ in range(random.choice((0, 0, 0, 1, 3))))
        pieces = [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]
        pair.exchange([piece for piece in pieces if piece])
    pair.reconnect()
    pair.pass_time(random.choice((0, 1, 500)))
    return sent


def run(seed: int, heads: int, tell: Callable[[str], None], first: int = 0) -> int:
    """Send `heads` heads, numbered from `first`; returns how many shapes were learned."""
    sent, began_s, learned = 0, time.monotonic(), 0
    while sent < heads:
        # Each pair has its own seed: `--seed 7 --first 120000` tries one again that differed.
        random = Random(f"{seed}-{first + sent}")
        pair = Pair(guarded=random.random() < 0.5)
        for _ in range(20):
            sent += round_of(random, pair, 150)
        pair.check()
        learned += pair.shapes.count
        tell(f"{first + sent} heads, {learned} shapes, {time.monotonic() - began_s:.0f} s")
    return learned


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--heads", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="number of the first head")
    asked = parser.parse_args()
    run(asked.seed, asked.heads, lambda text: print(text, flush=True), asked.first)


if __name__ == "__main__":
    main()
