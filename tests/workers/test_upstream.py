"""What comes from another worker is cut into answers, whatever way its bytes are split."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zbus.edge.connection import Connection
from zbus.edge.websocket import Frame
from zbus.wire.replies import (
    encode_late_body,
    encode_late_head,
    encode_reply,
    encode_stream_head,
)
from zbus.wire.websocket import (
    BINARY,
    CLOSE,
    PING,
    PONG,
    TEXT,
    WebSocketReader,
    encode_close,
    encode_frame,
)
from zbus.workers.frames import FrameUpstream, mask
from zbus.workers.upstream import HEAD_BYTES_MAX, Upstream


class Asker:
    """Takes the answers."""

    def __init__(self) -> None:
        self.came: list[bytes] = []
        self.streamed = b""
        self.stalled = False
        self.told = 0

    def answered(self, response: bytes) -> None:
        self.came.append(response)

    def begins(self, head: bytes) -> None:
        self.came.append(head)

    def streams(self, head: bytes) -> None:
        self.came.append(head)

    def more(self, data: bytes) -> None:
        self.streamed += data

    def closes(self, frame: bytes) -> None:
        self.came.append(frame)

    def drained(self) -> None:
        self.told += 1

    def ended(self) -> None: ...


@pytest.fixture(scope="module")
def pair() -> Iterator[socket.socket]:
    one, other = socket.socketpair()
    yield one
    one.close()
    other.close()


class Planner:
    def plan(self, head: object) -> object: ...
    def plan_unread(self, head: object) -> None: ...
    def push(self, peer: Connection, routed: object) -> bool: ...  # type: ignore[empty-body]


def upstream(
    asker: Asker, sock: socket.socket, kind: type[Upstream] = Upstream, *, head_only: bool = False
) -> Upstream:
    ready: list[object] = []
    planner: object = Planner()
    return kind(sock, "", asker, planner, ready.append, 1_000, 0, head_only)  # type: ignore[arg-type]


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({cut % (len(data) + 1) for cut in cuts})
    return [data[a:b] for a, b in zip([0, *places], [*places, len(data)], strict=True) if a < b]


ANSWERS = [
    encode_reply(200, b"id: 1\r\n", b"hello"),
    encode_reply(204, b"empty: reached\r\n"),
    encode_reply(200, b"", b""),
    encode_reply(404, b"content-type: text/plain\r\n", b"\r\n\r\nHTTP/1.1 200 OK\r\n\r\n" * 40),
    encode_reply(304),
]


@given(
    st.lists(st.sampled_from(ANSWERS), min_size=1, max_size=6),
    st.lists(st.integers(0, 10_000), max_size=12),
)
def test_answers(answers: list[bytes], cuts: list[int]) -> None:
    asker = Asker()
    with socket.socket() as sock:
        link = upstream(asker, sock)
        for piece in pieces(b"".join(answers), cuts):
            link.receive(piece)
    assert asker.came == answers


@given(st.lists(st.integers(0, 10_000), max_size=8))
def test_an_answer_whose_body_comes_later(cuts: list[int]) -> None:
    """Its head is told before it."""
    head, body = encode_late_head(b"", close=False), encode_late_body(b"\r\n0\r\n\r\n" * 40)
    asker = Asker()
    with socket.socket() as sock:
        link = upstream(asker, sock)
        for piece in pieces(ANSWERS[0] + head + body + head + body + ANSWERS[0], cuts):
            link.receive(piece)
    assert asker.came == [ANSWERS[0], head, body, head, body, ANSWERS[0]]


def test_answers_to_head_have_no_body(pair: socket.socket) -> None:
    asker = Asker()
    answers = [encode_reply(200, b"", b"x" * 100, head_only=True)] * 2
    upstream(asker, pair, head_only=True).receive(b"".join(answers))
    assert asker.came == answers


@given(st.lists(st.integers(0, 10_000), max_size=6))
def test_a_stream_has_no_end(cuts: list[int]) -> None:
    asker, head = Asker(), encode_stream_head(b"")
    with socket.socket() as sock:
        link = upstream(asker, sock)
        for piece in pieces(ANSWERS[0] + head + b"data: 1\n\ndata: 2\n\n", cuts):
            link.receive(piece)
    assert asker.came == [ANSWERS[0], head]
    assert asker.streamed == b"data: 1\n\ndata: 2\n\n"


def test_what_is_no_answer_does_not_take_all_memory(pair: socket.socket) -> None:
    link = upstream(Asker(), pair)
    with pytest.raises(ValueError, match="no answer"):
        link.receive(b"x" * (HEAD_BYTES_MAX + 1))


def test_the_client_decides_what_is_read_and_the_worker_what_is_asked(pair: socket.socket) -> None:
    """Never both wait: an upstream that takes no requests is heard all the same."""
    asker = Asker()
    link = upstream(asker, pair)
    link.write(b"x" * 5_000)
    assert not link.stalled
    assert not link.crowded(10)
    link.out_bytes = 400
    assert not link.crowded(10)
    assert asker.told == 1, "only now"
    asker.stalled = True
    assert link.crowded(10)


FRAMES = [
    encode_frame(TEXT, b"{}"),
    encode_frame(BINARY, b"\0" * 200),
    encode_frame(TEXT, b"x" * 70_000),
    encode_frame(TEXT, b""),
]
OPENED = b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\n\r\n"


@given(st.lists(st.sampled_from(FRAMES), max_size=6), st.lists(st.integers(0, 100_000), max_size=9))
def test_frames(frames: list[bytes], cuts: list[int]) -> None:
    asker = Asker()
    with socket.socket() as sock:
        link = upstream(asker, sock, FrameUpstream)
        for piece in pieces(OPENED + b"".join(frames), cuts):
            link.receive(piece)
    assert asker.came == frames
    assert all(type(frame) is Frame for frame in asker.came)


def test_a_ping_is_answered(pair: socket.socket) -> None:
    link = upstream(Asker(), pair, FrameUpstream)
    link.receive(OPENED + encode_frame(PING, b"there?"))
    assert link.out == [mask(encode_frame(PONG, b"there?"))]


def test_a_websocket_that_is_refused(pair: socket.socket) -> None:
    with pytest.raises(ValueError, match="WebSocket"):
        upstream(Asker(), pair, FrameUpstream).receive(b"HTTP/1.1 403 Forbidden\r\n\r\n")


def test_a_websocket_to_a_shard_that_has_moved_meanwhile(pair: socket.socket) -> None:
    """The client connects again, as after an owner has ended."""
    asker = Asker()
    upstream(asker, pair, FrameUpstream).receive(b"HTTP/1.1 503 Service Unavailable\r\n\r\n")
    assert asker.came == [encode_close(1013, "a worker has ended")]


def test_why_a_websocket_is_closed(pair: socket.socket) -> None:
    asker, close = Asker(), encode_frame(CLOSE, b"\x03\xe9the broker is stopping")
    upstream(asker, pair, FrameUpstream).receive(OPENED + close + encode_frame(TEXT, b"more"))
    assert asker.came == [close]


@pytest.mark.parametrize("size", [0, 1, 125, 126, 65_535, 65_536, 100_000])
def test_a_masked_frame_is_what_a_client_sends(size: int) -> None:
    payload = bytes(range(256)) * (size // 256 + 1)
    reader = WebSocketReader(1 << 20)
    assert [*reader.receive(mask(encode_frame(BINARY, payload[:size])))] == [
        (BINARY, payload[:size])
    ]
    assert reader.error is None
