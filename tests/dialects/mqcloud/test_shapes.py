"""Heads that differ in their requestId alone share a plan, and get the same answers."""

from __future__ import annotations

import pytest

from tests.dialects.mqcloud.words import CONSUMER, TOPIC, WorldTalk, closed
from zbus.testing.world import Reply
from zbus.wire.heads.shapes import Shape

ASKED = f"topic={TOPIC}&consumer={CONSUMER}&pop=true"


def head(query: str, path: str = "ack") -> bytes:
    return f"GET /mq/{path}?{query} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode()


def talk_with(count: int, *, seen: bool) -> tuple[WorldTalk, list[str]]:
    """A world, and requestIds of that many messages. `seen`: it has learned such heads."""
    talk = WorldTalk()
    talk.begin()
    for number in range(count):
        talk.produce(str(number))
    ids = [talk.message(pop=True, maxPullSize=1)["requestId"] for _ in range(count)]
    for number in range(3 * seen):
        unknown = closed(["zbus", "7", "0", "1", str(number)])
        for path in ("ack", "message", "unlock"):
            talk.request(head(f"{ASKED}&requestId={unknown}", path))
    return talk, ids


def is_shaped(talk: WorldTalk, data: bytes) -> bool:
    read = talk.world.dialect.heads.read
    return isinstance(read(data.removesuffix(b"\r\n\r\n"), True)[0], Shape)


def told(reply: Reply) -> tuple[int, bytes]:
    return reply.status, reply.body


@pytest.mark.parametrize("path", ["ack", "message", "unlock"])
def test_a_head_has_a_shape_once_others_like_it_were_seen(path: str) -> None:
    for seen in (False, True):
        talk, [request_id] = talk_with(1, seen=seen)
        assert is_shaped(talk, head(f"{ASKED}&requestId={request_id}", path)) == seen


def test_each_is_acknowledged_by_its_own_id() -> None:
    talk, ids = talk_with(5, seen=True)
    for request_id in ids[1:]:
        reply = talk.ask(head(f"{ASKED}&requestId={request_id}"))
        assert reply["message"][:3] == "ok "
    assert talk.committed() == [0]
    encoded = f"%{ord(ids[0][0]):02X}{ids[0][1:]}"
    assert talk.ask(head(f"{ASKED}&requestId={encoded}"))["message"][:3] == "ok "
    assert talk.committed() == [5]


@pytest.mark.parametrize(
    "query",
    [
        "requestId=",
        "requestId",
        "requestId=%",
        "requestId=%zz",
        "requestId=%00",
        "requestId=a+b",
        "requestId=a&requestId={}",
        "requestId={}&requestId=a",
        "requestid={}",
        "requestid=a&requestId={}",
        "request%49d={}",
        "requestId={}&pop=false",
        "requestId={}&clientId=x",
        "requestId=" + "a" * 1_025,
        "requestId=" + "%61" * 2_000,
    ],
)
def test_whatever_stands_there_it_is_told_the_same(query: str) -> None:
    replies = []
    for seen in (False, True):
        talk, [request_id] = talk_with(1, seen=seen)
        data = head(f"{ASKED}&{query.format(request_id)}")
        replies.append([told(talk.request(data)) for _ in range(3)])
        replies[-1].append((talk.committed()[0], b""))
    assert replies[0] == replies[1]
