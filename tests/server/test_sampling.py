"""How long replies take: which requests are followed, and by which names."""

from __future__ import annotations

from hashlib import sha256
from random import Random

import pytest

from tests.conformance.dialogue import World, http, ok
from zbus.dialects.plan_names import name_of
from zbus.dialects.zbus.settings import Timings
from zbus.edge.access import Access, Entry, make_grant
from zbus.server.loop.sampling import PAUSE_MS, Sampler
from zbus.testing.simulation.machine import Machine
from zbus.testing.simulation.network import Connection
from zbus.wire.heads.heads import Heads


class Rig:
    """A broker whose loop has a sampler."""

    def __init__(self) -> None:
        self.machine = Machine(Random(1))
        self.machine.start()
        self.timings = Timings()
        self._sampler = self.machine.running.loop.sampler = Sampler(self.timings, name_of)

    def connect(self) -> Connection:
        return self.machine.connect()

    def say(self, connection: Connection, data: bytes, turns: int = 8) -> None:
        """Send this, and have it answered; the next request may be a sample, too."""
        connection.send(data)
        self.pass_turns(turns)

    def pass_turns(self, turns: int) -> None:
        self.machine.jump(PAUSE_MS)
        for _ in range(turns):
            self.machine.running.work()
            self.machine.turn()
            self._sampler.turned(0)

    def counts(self) -> dict[str, int]:
        return {name: sum(found.counts) for name, found in self.timings.replies.items()}


def cmd(name: str, *lines: str) -> bytes:
    return "\r\n".join(("GET / HTTP/1.1", f"cmd: {name}", "topic: T", *lines, "", "")).encode()


@pytest.mark.parametrize(
    ("request_", "name"),
    [
        (cmd("ping", "id: 1"), "ping"),
        (http("/T", body=b"x"), "produce"),
        (cmd("consume", "timeout: 0"), "consume"),
        (cmd("query"), "query"),
        (http("/?cmd=version"), "version"),
        (http("/_openapi.json"), "openapi"),
        (http("/_connections"), "connections"),
        (cmd("cancel", "offset: 0"), "cancel"),
        (http("/_health/live"), "health"),
        (http("/_health/other"), "refused"),
        (http("/T?cmd=seek"), "refused"),
        (cmd("nothing"), "refused"),
        (http("/_pages/x"), "pages"),
        (http("/_console/"), "pages"),
        (http("/camellia/health/status"), "camellia"),
    ],
)
def test_names(request_: bytes, name: str) -> None:
    rig = Rig()
    connection = rig.connect()
    rig.say(connection, http("/T?cmd=declare&durability=memory"))
    rig.say(connection, request_)
    assert rig.counts() == {"declare": 1, name: 1}


def test_heads_that_never_come_again_are_known_too() -> None:
    """Such as that of an acknowledgement, which names an offset."""
    rig = Rig()
    connection = rig.connect()
    rig.say(connection, http("/T/g?cmd=declare&durability=memory&ack=true"))
    for number in range(5):
        rig.say(connection, http("/T", body=b"x"))
        rig.say(connection, http("/T/g?cmd=consume"))
        rig.say(connection, cmd("ack", "consume_group: g", f"offset: {number}", f"id: {number}"))
    assert rig.counts() == {"declare": 1, "produce": 5, "consume": 5, "ack": 5}


def test_what_waits_for_others_is_no_sample() -> None:
    rig = Rig()
    waiting, other = rig.connect(), rig.connect()
    rig.say(waiting, http("/T?cmd=declare&durability=memory"))
    rig.say(waiting, http("/T?cmd=consume"))
    assert rig.counts() == {"declare": 1}
    rig.say(other, http("/T", body=b"x"))
    assert rig.counts() == {"declare": 1, "produce": 1}


def test_names_of_those_with_tokens() -> None:
    entry = Entry(make_grant("p", ["produce"], {"T": []}), (sha256(b"p").digest(),))
    admin = Entry(make_grant("a", ["admin"], {}), (sha256(b"a").digest(),))
    world = World(access=Access([entry, admin]))
    client = world.connect()
    ok(client, http("/T?cmd=declare", "token: a"))
    for token, name in (("p", "produce"), ("x", "refused")):
        head, _ = Heads().read(http("/T", f"token: {token}").partition(b"\r\n\r\n")[0])
        plan = world.front.plan(head)
        plan.run(client.peer, b"1", b"x")
        assert name_of(plan) == name
