"""Each dialect in the few requests that show what holds for all of them."""

from __future__ import annotations

from collections.abc import Callable

import attrs
import pytest

from tests.conformance.dialogue import Reply, http
from tests.faces.camellia.words import document, verb
from tests.faces.toy import ToyFace
from zbus.faces import FACES

Request = Callable[..., bytes]


def _whole(reply: Reply) -> list[bytes]:
    return [reply.body] if reply.status == 200 else []


@attrs.frozen
class Dialect:
    """`put(topic, body, *lines)` and `pull(topic, *lines)`, the latter waiting; and how to read the
    messages in what is answered to a pull."""

    name: str
    put: Request
    pull: Request
    bodies: Callable[[Reply], list[bytes]] = _whole

    def __str__(self) -> str:
        return self.name


def dialect(name: str, path: str, query: str = "") -> Dialect:
    """One that puts by POST and pulls by GET at this path."""

    def put(topic: str, body: bytes, *lines: str) -> bytes:
        return http(path.format(topic), *lines, body=body, method="POST")

    def pull(topic: str, *lines: str) -> bytes:
        return http(path.format(topic) + query, *lines)

    return Dialect(name, put, pull)


def camellia() -> Dialect:
    """Everything is in forms, and all that is pulled in lists."""

    def put(topic: str, body: bytes, *lines: str) -> bytes:
        said = [line for line in lines if not line.startswith("content-type")]  # messages have none
        return verb("sendMsg", *said, topic=topic, msg=body.decode(), delayMillis=0)

    def pull(topic: str, *lines: str) -> bytes:
        return verb("longPollingMsg", *lines, topic=topic)

    def bodies(reply: Reply) -> list[bytes]:
        return [message["msg"].encode() for message in document(reply)["delayMsgList"]]

    return Dialect("camellia", put, pull, bodies)


DIALECTS = (
    dialect("native", "/{}", "?cmd=consume"),
    camellia(),
    dialect("toy", "/toy/{}"),
)
"""A row for each of FACES, and one that shows that a new one needs no more than its row there."""

every_dialect = pytest.mark.parametrize("dialect", DIALECTS, ids=str)


@pytest.fixture
def with_toy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one line that a dialect has outside its folder."""
    monkeypatch.setitem(FACES, "toy", ToyFace)
