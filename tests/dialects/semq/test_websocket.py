"""Frames in messages of a WebSocket at `/semq`."""

from __future__ import annotations

import pytest

from tests.conformance.dialogue import Reply, http
from tests.conformance.websocket_client import WebSocketClient, handshake, read_http, upgraded
from tests.dialects.semq.test_rights import table
from tests.dialects.semq.words import EPOCH, A, B, Platform, frame, mid_fields, send_fields
from zbus.dialects.semq.settings import SemqSettings
from zbus.edge.websocket import WebSocket


def opened(platform: Platform, *lines: str) -> WebSocketClient:
    return upgraded(platform.world.connect(), handshake("/semq", *lines))


def told(socket: WebSocketClient, data: bytes = b"") -> list[Reply]:
    """What comes for a frame, or by itself; each message is one frame."""
    if data:
        found = socket.exchange(socket.frame(data))
    else:
        socket.client.world.settle()
        found = socket.messages()
    assert not any(one.is_text for one in found)
    return [read_http(one.data) for one in found]


def test_frames() -> None:
    platform = Platform()
    branch, socket = platform.node(B), opened(platform)
    branch.hello()
    (hello,) = told(socket, frame("semq_hello", id="h", node=A, epoch=EPOCH))
    assert (hello.status, hello.headers["id"]) == (200, "h")
    body = b"\x00\xff\r\n\r\n"
    found = told(socket, frame("semq_send", body, id="m", **send_fields(A, B, 1)))
    assert {one.headers.get("cmd", one.headers.get("flag")) for one in found} == {
        "semq_presence",
        "1",
    }
    assert branch.delivered() == [body]
    assert branch.flag(A, 1, body) == "Ack-Fwd"
    (came,) = told(socket)
    assert (came.headers["cmd"], came.body) == ("semq_deliver", body)
    asked = mid_fields(A, 9, src=A, about="send", topic=f"semq/{B}")
    (answer,) = told(socket, frame("semq_inquiry", **asked))
    assert answer.headers["result"] == "0"


def test_any_path_will_do() -> None:
    """A WebSocket of the native dialect takes these frames, too, beside its own."""
    platform = Platform()
    socket = upgraded(platform.world.connect(), handshake("/"))

    def told(data: bytes = b"") -> list[Reply]:
        found = socket.exchange(socket.frame(data.decode())) if data else socket.messages()
        return [read_http(one.data) for one in found]

    (hello,) = told(frame("semq_hello", id="h", node=A, epoch=EPOCH))
    assert (hello.status, hello.headers["platform"]) == (200, "0:1")
    branch = platform.node(B)
    branch.hello()
    branch.send(A, 1, b"x")
    socket.client.world.settle()
    (came,) = told()
    assert (came.headers["cmd"], came.body) == ("semq_deliver", b"x")
    (pong,) = told(b"GET / HTTP/1.1\r\ncmd: ping\r\nid: p\r\n\r\n")
    assert (pong.status, pong.headers["id"]) == (200, "p")


def test_these_frames_are_no_json() -> None:
    socket = upgraded(Platform().world.connect(), handshake("/"))
    (message,) = socket.exchange(socket.frame('{"cmd": "semq_hello", "node": "1:1", "id": 1}'))
    assert b'"status":404' in message.data or b'"status":400' in message.data


def test_text_will_do() -> None:
    platform, data = Platform(), frame("heartbeat", id="h").decode()
    socket = opened(platform)
    (message,) = socket.exchange(socket.frame(data))
    assert read_http(message.data).headers["id"] == "h"


BAD = {
    "no head": b"hello",
    "half a head": b"POST /semq HTTP/1.1\r\ncmd: heartbeat\r\n",
    "another length": b"POST /semq HTTP/1.1\r\ncontent-length: 5\r\n\r\nx",
    "chunks": b"POST /semq HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    "two": 2 * frame("heartbeat", id="h"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_no_frame(case: str) -> None:
    socket = opened(Platform())
    assert socket.exchange(socket.frame(BAD[case])) == []
    socket.client.world.settle()
    assert socket.messages() == []
    assert socket.close is not None
    assert socket.close[0] == 1007


def test_the_newest_connection_wins_here_too() -> None:
    platform = Platform()
    socket = opened(platform)
    told(socket, frame("semq_hello", id="h", node=A, epoch=EPOCH))
    platform.node(A).hello()
    (bye,) = told(socket)
    assert bye.headers["reason"] == "replaced"
    assert socket.close is not None


def test_other_dialects_are_not_spoken_here() -> None:
    socket = opened(Platform())
    (reply,) = told(socket, b"GET / HTTP/1.1\r\ncmd: ping\r\nid: p\r\n\r\n")
    assert (reply.status, reply.headers["reason"]) == (400, "malformed")


def test_the_token_of_the_handshake() -> None:
    platform = Platform(SemqSettings(semq_nodes=B), table())
    socket = opened(platform, "token: head")
    data = frame("semq_hello", id="h", node=A, epoch=EPOCH)
    assert [one.status for one in told(socket, data)] == [200]
    assert isinstance(socket.client.peer.framing, WebSocket)
    refused = opened(platform, "token: branch")
    assert [one.status for one in told(refused, data)] == [403]


@pytest.mark.parametrize("path", ["/semq/1:1", "/semq?cmd=semq_stat&node=1:1"])
def test_where_there_is_none(path: str) -> None:
    platform = Platform()
    reply = platform.ask(handshake(path))
    assert reply.status in (400, 404)
    assert platform.ask(http("/semq")).status == 400
