"""What the tests of several dialects have in common: tokens, forms, and a broker to talk to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Any
from urllib.parse import urlencode

import msgspec

from tests.conformance.dialogue import http
from zbus.edge.access import Entry, make_grant
from zbus.testing.world import Reply, World

FORM = "content-type: application/x-www-form-urlencoded; charset=utf-8"


def entry(
    token: str,
    operations: str,
    *topics: str,
    groups: Iterable[str] = (),
    ends_ms: int = 1 << 62,
) -> Entry:
    """What this token, which is its own name, may do with these topics; without any, with all."""
    granted = dict.fromkeys(topics or ("*",), tuple(groups))
    grant = make_grant(token, operations.split(), granted, ends_ms)
    return Entry(grant, (sha256(token.encode()).digest(),))


def encoded(fields: Mapping[str, object]) -> bytes:
    """As `URLEncoder` of Java writes it."""
    return urlencode({name: str(value) for name, value in fields.items()}).encode()


def post(path: str, *lines: str, **fields: object) -> bytes:
    """A form."""
    return http(path, FORM, *lines, body=encoded(fields) or b"&", method="POST")


def document(reply: Reply) -> Any:
    """Of a reply with status 200."""
    assert reply.status == 200, reply
    assert reply.headers["content-type"] == "application/json;charset=UTF-8"
    return msgspec.json.decode(reply.body)


class InAWorld:
    """Somebody who speaks a dialect under virtual time."""

    def __init__(
        self,
        world: World | None = None,
        restarts: bool = False,
        dialects: Mapping[str, object] | None = None,
    ) -> None:
        self.dialects = dialects or {}
        self.world = world or World(dialects=self.dialects)
        self.client = self.world.connect()
        self._restarts = restarts

    def request(self, data: bytes) -> Reply:
        replies = self.client.exchange(data)
        for _ in range(10):  # storage is read in between
            if replies:
                break
            self.world.advance(1)
            replies = self.client.replies()
        assert len(replies) == 1, replies
        return replies[0]

    def wait(self, ms: int) -> None:
        """Time passes, with a restart in the middle of it if there are any."""
        half_ms = ms // 2
        self.world.advance(half_ms)
        if self._restarts:
            self.restart()
        self.world.advance(ms - half_ms)

    def restart(self) -> None:
        """As after a crash: what nobody waited for may be lost."""
        world = self.world
        world.broker.check()
        self.world = World(world.journal, now_ms=world.now_ms, dialects=self.dialects)
        self.world.broker.check()
        self.client = self.world.connect()
