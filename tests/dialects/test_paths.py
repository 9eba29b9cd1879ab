"""How the paths of all dialects are compared: a slash at the end, one too many, another case, and a
letter in percent-encoding. Adf's are exact, as its original has them. The others pass over empty
segments. The first segment says whose a path is, as it is written; what is nobody else's is zbus's,
where it names a topic that is not there."""

from __future__ import annotations

import pytest

from tests.conformance.dialogue import World, http
from tests.conformance.websocket_client import handshake

UPGRADED = 101

ROWS = [
    # path                     as it is, /, doubled within, doubled at the start, case, encoded
    ("/queue/json", (426, 404, 404, 404, 404, 426)),
    ("/queue/bin", (426, 404, 404, 404, 404, 426)),
    ("/queue/count?queue=q&requestid=1", (200, 404, 404, 404, 404, 200)),
    ("/queue/count.bin?queue=q&requestid=1", (200, 404, 404, 404, 404, 200)),
    ("/queue/pull?queue=/q/&requestid=1", (200, 404, 404, 404, 404, 200)),
    ("/camellia/health/status", (200, 200, 200, 404, 404, 200)),
    ("/camellia/delayQueue/sendMsg", (405, 405, 405, 404, 404, 405)),
    ("/camellia/delayQueue/unknown", (404, 404, 404, 404, 404, 404)),
    ("/mq/produce", (200, 200, 200, 404, 404, 200)),
    ("/mq/message?topic=t&consumer=c", (200, 200, 200, 404, 404, 200)),
    ("/mq/unknown", (404, 404, 404, 404, 404, 404)),
    ("/topic/httpProducer", (200, 404, 404, 404, 404, 404)),
    ("/semq/dead", (400, 400, 400, 404, 404, 400)),
    ("/_health/live", (200, 200, 200, 404, 404, 200)),
    ("/known/known?cmd=query", (200, 200, 200, 200, 200, 200)),
    ("/unknown/unknown?cmd=query", (404, 404, 404, 404, 404, 404)),
]
"""Of `GET`. Names of zbus's topics and groups have any case."""

OPENINGS = [
    ("/queue/json", (UPGRADED, 404, 404, UPGRADED, UPGRADED, UPGRADED)),
    ("/queue/bin", (UPGRADED, 404, 404, UPGRADED, UPGRADED, UPGRADED)),
    ("/queue/json?a=/b/", (UPGRADED, 404, 404, UPGRADED, UPGRADED, UPGRADED)),
    ("/queue/text", (404, 404, 404, UPGRADED, UPGRADED, 404)),
    ("/known", (UPGRADED, UPGRADED, UPGRADED, UPGRADED, UPGRADED, UPGRADED)),
    ("/", (UPGRADED, UPGRADED, UPGRADED, UPGRADED, UPGRADED, UPGRADED)),
]
"""Of a WebSocket's handshake. zbus takes one at any path."""


def variants(target: str) -> list[str]:
    path, _, query = target.partition("?")
    start, _, last = path.rpartition("/")
    encoded = f"{start}/%{ord(last[0]):02x}{last[1:]}" if last else path
    more = f"?{query}" if query else ""
    paths = (path, path + "/", f"{start}//{last}", "/" + path, path.upper(), encoded)
    return [one + more for one in paths]


def status(data: bytes) -> int:
    """Of the reply's first line."""
    world = World()
    client = world.connect()
    client.exchange(http("/known/known?cmd=declare"))
    client.send(data)
    world.settle()
    return int(client.received.split(b" ", 2)[1])


@pytest.mark.parametrize(("target", "expected"), ROWS)
def test_paths(target: str, expected: tuple[int, ...]) -> None:
    assert tuple(status(http(one)) for one in variants(target)) == expected


@pytest.mark.parametrize(("target", "expected"), OPENINGS)
def test_paths_of_websockets(target: str, expected: tuple[int, ...]) -> None:
    assert tuple(status(handshake(one)) for one in variants(target)) == expected
