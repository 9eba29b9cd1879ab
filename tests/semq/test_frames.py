"""Frames as bytes, both ways, however they are split; and bytes that are no frames."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from zbus.semq.endpoint.events import Frame
from zbus.semq.program.frames import (
    FrameReader,
    RequestFrames,
    ResponseFrames,
    encode_request,
    encode_response,
    limits,
)
from zbus.wire.heads.heads import Heads

LIMITS = limits(1_000)


def requests() -> FrameReader:
    return RequestFrames(Heads(LIMITS), LIMITS)


def responses() -> FrameReader:
    return ResponseFrames(LIMITS)


FORMS = [
    pytest.param(requests, encode_request, 0, id="request"),
    pytest.param(responses, encode_response, 200, id="response"),
]
FRAMES = [
    ({"cmd": "semq_hello", "id": "1", "node": "1:10008"}, b""),
    (
        {"cmd": "semq_send", "id": "m1.1", "app_key": "Nr. 7, ä", "src": "1:1/böb"},
        b"\0\r\n",
    ),
    ({"cmd": "heartbeat"}, b"x" * 1_000),
    ({"cmd": "semq_inquiry", "seqs": ",".join(str(2 * n + 1) for n in range(2_000))}, b""),
]
Reader = Callable[[], FrameReader]
Encode = Callable[[Frame], bytes]


@pytest.mark.parametrize(("reader", "encode", "status"), FORMS)
@pytest.mark.parametrize("piece", [1, 2, 7, 4_096, 1 << 20])
def test_what_is_written_is_read(reader: Reader, encode: Encode, status: int, piece: int) -> None:
    data = b"".join(encode(Frame(fields, body)) for fields, body in FRAMES)
    found, frames = reader(), []
    for begin in range(0, len(data), piece):
        frames += found.receive(data[begin : begin + piece])
    assert [(frame.fields, frame.body) for frame in frames] == FRAMES
    assert {frame.status for frame in frames} == {status}
    assert found.error is None
    assert found.between


@pytest.mark.parametrize(("reader", "encode", "status"), FORMS)
def test_half_a_frame_is_noticed(reader: Reader, encode: Encode, status: int) -> None:
    data = encode(Frame({"cmd": "semq_send"}, b"hello"))
    for size in range(1, len(data)):
        found = reader()
        assert not found.receive(data[:size])
        assert not found.between
        assert len(found.receive(data[size:])) == 1
        assert found.between


def test_many_frames_at_once() -> None:
    """More than a reader of requests takes in one go."""
    data = encode_request(Frame({"cmd": "heartbeat", "id": "7"})) * 5_000
    assert len(requests().receive(data)) == 5_000


@pytest.mark.parametrize(
    ("status", "fields", "body"),
    [(200, {"id": "1"}, b""), (204, {"id": "2"}, b""), (507, {"id": "3"}, b"full")],
)
def test_answers_have_a_status(status: int, fields: dict[str, str], body: bytes) -> None:
    assert responses().receive(encode_response(Frame(fields, body, status))) == [
        Frame(fields, body, status)
    ]


def test_whoever_connected_answers_nothing() -> None:
    assert encode_request(Frame({"id": "7"}, b"", 200)) == b""


@pytest.mark.parametrize("encode", [encode_request, encode_response])
@pytest.mark.parametrize(
    "fields",
    [
        {"app_key": "a\r\ncmd: semq_bye"},
        {"app_key": "a\nb"},
        {"app_key": "\0"},
        {"app_key": "\x7f"},
        {"app_key": "\ud800"},
        {"a b": "c"},
        {"a:b": "c"},
        {"Cmd": "c"},
        {"": "c"},
    ],
)
def test_what_cannot_be_said(encode: Encode, fields: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"field|surrogate"):
        encode(Frame(fields))


@pytest.mark.parametrize(
    ("reader", "start"),
    [(requests, b"POST /semq HTTP/1.1\r\n"), (responses, b"HTTP/1.1 200 OK\r\n")],
)
@pytest.mark.parametrize("name", [b"app_key", b"tag", b"src"])
def test_one_bad_field_does_not_end_the_link(reader: Reader, start: bytes, name: bytes) -> None:
    found = reader()
    data = start + b"content-length: 1\r\n" + name + b": K\xf6ln \xed\xa0\x80\r\n\r\nx"
    (frame,) = found.receive(data)
    assert frame.fields[name.decode()] == "K\ufffdln \ufffd\ufffd\ufffd"
    assert frame.body == b"x"
    assert found.error is None


def test_framing_is_nobodys_to_say() -> None:
    fields = {"cmd": "heartbeat", "content-length": "77", "connection": "close"}
    assert requests().receive(encode_request(Frame(fields))) == [Frame({"cmd": "heartbeat"})]


BAD = [
    (requests, b"\x16\x03\x01\x02\x00", 400),
    (requests, b"POST /semq HTTP/1.1\r\ncontent-length: 1001\r\n\r\n", 413),
    (requests, b"POST /semq HTTP/1.1\r\ncontent-length: -1\r\n\r\n", 400),
    (requests, b"POST /semq HTTP/1.1\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n", 400),
    (requests, b"POST /semq HTTP/1.1\r\n" + b"a: b\r\n" * 300 + b"\r\n", 431),
    (requests, b"POST /semq HTTP/1.1\r\na: " + b"b" * 140_000, 431),
    (responses, b"\x15\x03\x01\x00\x02\r\n\r\n", 400),
    (responses, b"HTTP/1.1 200 OK\r\n\r\n", 400),
    (responses, b"HTTP/1.1 200 OK\r\ncontent-length: 1001\r\n\r\n", 413),
    (responses, b"HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\n", 400),
    (responses, b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", 400),
    (responses, b"POST /semq HTTP/1.1\r\ncontent-length: 0\r\n\r\n", 400),
    (responses, b"HTTP/1.1 200 OK\r\na: " + b"b" * 140_000, 431),
]


@pytest.mark.parametrize(("reader", "data", "status"), BAD)
@pytest.mark.parametrize("piece", [1_000, 1 << 20])
def test_what_is_no_frame(reader: Reader, data: bytes, status: int, piece: int) -> None:
    found = reader()
    for begin in range(0, len(data), piece):
        assert not found.receive(data[begin : begin + piece])
    assert found.error is not None
    assert found.error.status == status
    assert not found.between
    assert not found.receive(b"POST /semq HTTP/1.1\r\ncontent-length: 0\r\n\r\n")


def test_what_came_before_a_bad_frame_counts() -> None:
    good = encode_response(Frame({"cmd": "heartbeat"}))
    found = responses()
    assert len(found.receive(good + good + b"nonsense\r\n\r\n")) == 2
    assert found.error is not None
