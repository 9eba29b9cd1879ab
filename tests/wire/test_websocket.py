"""The WebSocket's bytes: handshakes, frames, what is wrong with them, and that no split matters."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from wsproto.frame_protocol import FrameProtocol

from tests.limits import fewer
from tests.wire import frame_fuzz
from tests.wire.websocket_frames import KEY, close, frame
from tests.wire.websocket_judge import Judge
from zbus.wire.bodies.budget import Budget
from zbus.wire.errors import WireError
from zbus.wire.heads.heads import Heads
from zbus.wire.websocket import (
    BINARY,
    CLOSE,
    FRAGMENTS_MAX,
    FRAMES_PER_STEP,
    PING,
    PONG,
    TEXT,
    Event,
    WebSocketReader,
    accept_handshake,
    encode_close,
    encode_frame,
    encode_message,
)

BYTES_MAX = 1_000

GOOD_LINES = (
    b"host: x",
    b"connection: keep-alive, Upgrade",
    b"upgrade: websocket",
    b"sec-websocket-version: 13",
    b"sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==",
)


def handshake(
    without: bytes = b"", instead: bytes = b"", start: bytes = b"GET /x HTTP/1.1"
) -> bytes:
    lines = [line for line in GOOD_LINES if not (without and line.startswith(without))]
    return b"\r\n".join([start, *lines, *([instead] if instead else [])])


def accepted(raw: bytes) -> bytes:
    return accept_handshake(Heads().read(raw)[0])


@pytest.mark.parametrize(
    "raw",
    [
        handshake(),
        handshake(b"upgrade", b"Upgrade: WebSocket"),
        handshake(b"upgrade", b"upgrade: h2c, websocket"),
        handshake(b"connection", b"Connection: UPGRADE"),
        handshake(instead=b"sec-websocket-extensions: permessage-deflate"),
        handshake(instead=b"sec-websocket-protocol: chat"),
        handshake(start=b"GET http://x/y?z HTTP/1.1"),
    ],
)
def test_a_handshake_is_accepted(raw: bytes) -> None:
    """The key and its answer are the example of RFC 6455, section 1.3."""
    assert accepted(raw) == (
        b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: Upgrade\r\n"
        b"cache-control: no-store\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n"
    )


@pytest.mark.parametrize(
    ("status", "raw"),
    [
        (400, handshake(start=b"POST /x HTTP/1.1")),
        (400, handshake(start=b"GET /x HTTP/1.0")),
        (400, handshake(instead=b"content-length: 1")),
        (400, handshake(instead=b"transfer-encoding: chunked")),
        (400, handshake(b"connection")),
        (400, handshake(b"connection", b"connection: keep-alive")),
        (426, handshake(b"sec-websocket-version")),
        (426, handshake(b"sec-websocket-version", b"sec-websocket-version: 8")),
        (426, handshake(b"sec-websocket-version", b"sec-websocket-version: 013")),
        (400, handshake(b"sec-websocket-key")),
        (400, handshake(b"sec-websocket-key", b"sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ=")),
        (400, handshake(b"sec-websocket-key", b"sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ!=")),
        (400, handshake(b"sec-websocket-key", b"sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAAAA")),
        (400, handshake(b"sec-websocket-key", b"sec-websocket-key: ========================")),
    ],
)
def test_a_handshake_is_refused(status: int, raw: bytes) -> None:
    with pytest.raises(WireError) as caught:
        accepted(raw)
    assert caught.value.status == status


def read(*pieces: bytes, bytes_max: int = BYTES_MAX) -> tuple[list[Event], int]:
    """The events, and the code of the error or 0."""
    reader = WebSocketReader(bytes_max)
    events = []
    for piece in pieces:
        events += reader.receive(piece)
        while reader.more:
            events += reader.receive(b"")
    return events, 0 if reader.error is None else reader.error.status


EURO = "€".encode()
SMILE = "\N{GRINNING FACE}".encode()
assert (len(EURO), len(SMILE)) == (3, 4)


def fragments(*sizes: int) -> bytes:
    return b"".join(frame(0, b"x" * size, fin=False) for size in sizes)


GOOD: list[tuple[str, bytes, list[Event]]] = [
    ("text", frame(TEXT, b"hello"), [(TEXT, b"hello")]),
    ("empty text", frame(TEXT), [(TEXT, b"")]),
    ("UTF-8", frame(TEXT, EURO), [(TEXT, EURO)]),
    ("binary", frame(BINARY, b"\xff\x00"), [(BINARY, b"\xff\x00")]),
    ("125 bytes", frame(BINARY, b"x" * 125), [(BINARY, b"x" * 125)]),
    ("126 bytes", frame(BINARY, b"x" * 126), [(BINARY, b"x" * 126)]),
    ("as large as may be", frame(BINARY, b"x" * BYTES_MAX), [(BINARY, b"x" * BYTES_MAX)]),
    ("a key of zeros", frame(TEXT, b"hello", key=bytes(4)), [(TEXT, b"hello")]),
    ("two", frame(TEXT, b"a") + frame(BINARY, b"b"), [(TEXT, b"a"), (BINARY, b"b")]),
    ("fragments", frame(1, b"a", fin=False) + frame(0, b"b"), [(TEXT, b"ab")]),
    (
        "a character in two fragments",
        frame(1, EURO[:1], fin=False) + frame(0, EURO[1:]),
        [(TEXT, EURO)],
    ),
    (
        "empty fragments",
        frame(2, fin=False) + frame(0, fin=False) + frame(0),
        [(BINARY, b"")],
    ),
    (
        "a ping between fragments",
        frame(1, b"a", fin=False) + frame(9, b"now") + frame(0, b"b"),
        [(PING, b"now"), (TEXT, b"ab")],
    ),
    ("ping of 125 bytes", frame(9, b"x" * 125), [(PING, b"x" * 125)]),
    ("a pong is nothing", frame(10, b"x") + frame(1, b"a"), [(TEXT, b"a")]),
    ("close", close(1000, b"bye"), [(CLOSE, b"\x03\xe8bye")]),
    ("close without a code", frame(8), [(CLOSE, b"")]),
    ("close with a private code", close(4999), [(CLOSE, b"\x13\x87")]),
    ("nothing after close", close(1000) + frame(1, b"a"), [(CLOSE, b"\x03\xe8")]),
    ("garbage after close", close(1000) + b"\xff\xff\xff", [(CLOSE, b"\x03\xe8")]),
    (
        "a character in four",
        frame(1, SMILE[:1], fin=False)
        + frame(0, SMILE[1:2], fin=False)
        + frame(0, SMILE[2:3], fin=False)
        + frame(0, SMILE[3:]),
        [(TEXT, SMILE)],
    ),
    (
        "fragments of all sizes",
        frame(2, fin=False) + fragments(1, 2, 125, 126, 0, 3) + frame(0, b"end"),
        [(BINARY, b"x" * 257 + b"end")],
    ),
    ("close amid fragments", frame(1, b"a", fin=False) + close(1001), [(CLOSE, b"\x03\xe9")]),
]

BEGUN = frame(1, b"a", fin=False)

BAD: list[tuple[str, bytes, int]] = [
    ("not masked", frame(1, b"a", key=b""), 1002),
    ("not masked, empty", frame(9, key=b""), 1002),
    ("not masked, long", frame(2, b"x" * 300, key=b""), 1002),
    *((f"rsv {rsv}", frame(1, b"a", rsv=rsv), 1002) for rsv in range(1, 8)),
    *((f"opcode {code}", frame(code, b"a"), 1002) for code in (3, 4, 5, 6, 7, 11, 12, 13, 14, 15)),
    ("continues nothing", frame(0, b"a"), 1002),
    ("text within fragments", frame(1, b"a", fin=False) + frame(1, b"b"), 1002),
    ("binary within fragments", frame(1, b"a", fin=False) + frame(2, b"b"), 1002),
    ("ping in fragments", frame(9, b"a", fin=False), 1002),
    ("close in fragments", frame(8, b"\x03\xe8", fin=False), 1002),
    ("ping of 126 bytes", frame(9, b"x" * 126), 1002),
    ("close of 126 bytes", frame(8, b"\x03\xe8" + b"x" * 124), 1002),
    ("length in two bytes", frame(1, b"a", length_bytes=2), 1002),
    ("125 in two bytes", frame(1, b"x" * 125, length_bytes=2), 1002),
    ("length in eight bytes", frame(1, b"x" * 200, length_bytes=8), 1002),
    ("length 0 in eight bytes", frame(1, length_bytes=8), 1002),
    ("length over 2^63", frame(2, length_bytes=8, length=(1 << 64) - 1), 1009),
    ("too large", frame(2, b"x" * (BYTES_MAX + 1)), 1009),
    ("announced too large", frame(2, length=BYTES_MAX + 1), 1009),
    ("too large together", frame(2, b"x" * 600, fin=False) + frame(0, b"x" * 600), 1009),
    ("no UTF-8", frame(1, b"\xff"), 1007),
    ("half a character", frame(1, EURO[:2]), 1007),
    ("a surrogate", frame(1, b"\xed\xa0\x80"), 1007),
    ("overlong", frame(1, b"\xc0\xaf"), 1007),
    ("no UTF-8 in a fragment", frame(1, b"a", fin=False) + frame(0, b"\xff", fin=False), 1007),
    ("no UTF-8 before a ping", BEGUN + frame(0, b"\xff", fin=False) + frame(9), 1007),
    ("no UTF-8 before what is worse", BEGUN + frame(0, b"\xff", fin=False) + frame(3), 1007),
    ("no UTF-8 before an end", BEGUN + frame(0, b"\xff", fin=False) + frame(0), 1007),
    ("no UTF-8 over fragments", BEGUN + frame(0, EURO[:2], fin=False) + frame(0, b"a"), 1007),
    ("half a character at the end", BEGUN + frame(0, EURO[:2], fin=False) + frame(0), 1007),
    ("a surrogate over two", frame(1, b"\xed\xa0", fin=False) + frame(0, b"\x80", fin=False), 1007),
    ("too large in small fragments", BEGUN + frame(0, b"x" * 125, fin=False) * 8, 1009),
    ("no UTF-8 in a half frame", frame(1, b"a\xff", length=200), 1007),
    ("close of one byte", frame(8, b"\x03"), 1002),
    *((f"close with {code}", close(code), 1002) for code in (0, 999, 1004, 1005, 1006, 1015, 5000)),
    ("close with no UTF-8", close(1000, b"\xff"), 1007),
]


@pytest.mark.parametrize(("name", "data", "events"), GOOD, ids=[case[0] for case in GOOD])
def test_good_frames(name: str, data: bytes, events: list[Event]) -> None:
    assert read(data) == (events, 0)
    assert read(*(data[at : at + 1] for at in range(len(data)))) == (events, 0)


@pytest.mark.parametrize(("name", "data", "code"), BAD, ids=[case[0] for case in BAD])
def test_bad_frames(name: str, data: bytes, code: int) -> None:
    """What is good before the bad is there, and nothing after it."""
    before, after = frame(1, b"before"), frame(1, b"after")
    assert read(before + data + after) == ([(TEXT, b"before")], code)
    pieces = [bytes([byte]) for byte in before + data + after]
    assert read(*pieces) == ([(TEXT, b"before")], code)


def test_text_that_cannot_become_utf8_is_refused_before_it_is_complete() -> None:
    reader = WebSocketReader(BYTES_MAX)
    assert not reader.receive(frame(1, b"a" * 10 + b"\xff" + b"a" * 200)[:20])
    assert reader.error is not None
    assert reader.error.status == 1007


def test_a_message_in_too_many_frames() -> None:
    data = frame(2, fin=False) + frame(0, fin=False) * FRAGMENTS_MAX
    assert read(data) == ([], 1008)
    assert read(frame(2, fin=False) + frame(0, fin=False) * 50 + frame(0)) == ([(BINARY, b"")], 0)
    most = frame(2, fin=False) + frame(0, fin=False) * (FRAGMENTS_MAX - 2) + frame(0)
    assert read(most + frame(2, fin=False) + frame(0)) == ([(BINARY, b"")] * 2, 0)


@pytest.mark.parametrize(
    "data",
    [
        frame(1, b"a") * 1_000,
        frame(9, b"a") * 1_000,
        frame(10, b"a") * 1_000,
        frame(2, fin=False) + fragments(1) * 998 + frame(0),
        frame(2, fin=False)
        + (frame(0, b"x" * 126, fin=False) + frame(0, fin=False)) * 499
        + frame(0),
    ],
    ids=["messages", "pings", "pongs", "fragments", "fragments of two sizes"],
)
def test_one_call_reads_so_many_frames(data: bytes) -> None:
    reader = WebSocketReader(100_000)
    expected, _ = read(data, bytes_max=100_000)
    events = reader.receive(data)
    steps = 1
    while reader.more:
        assert len(events) <= steps * FRAMES_PER_STEP
        assert steps * FRAMES_PER_STEP <= reader.spent <= steps * (FRAMES_PER_STEP + 40)
        events += reader.receive(b"")
        steps += 1
    assert steps == -(-1_000 // FRAMES_PER_STEP)
    assert events == expected
    assert not reader.midway
    assert reader.receive(b"") == []


def test_bytes_that_come_while_others_wait_are_read_after_them() -> None:
    reader = WebSocketReader(BYTES_MAX)
    events = reader.receive(frame(1, b"a") * (FRAMES_PER_STEP + 8) + frame(1, b"b")[:3])
    assert reader.more
    events += reader.receive(frame(1, b"b")[3:])
    assert not reader.more
    assert events == [(TEXT, b"a")] * (FRAMES_PER_STEP + 8) + [(TEXT, b"b")]


@pytest.mark.parametrize("end", [close(1000), frame(3)], ids=["close", "error"])
def test_nothing_is_left_after_the_end(end: bytes) -> None:
    reader = WebSocketReader(BYTES_MAX)
    reader.receive(end + frame(1, b"a") * 1_000)
    assert reader.closed
    assert not reader.more
    assert not reader.midway
    assert reader.receive(frame(1, b"a")) == []


def test_work_is_counted() -> None:
    reader = WebSocketReader(1 << 20)
    reader.receive(frame(1, b"a"))
    assert reader.spent == 2
    reader.spent = 0
    reader.receive(frame(1, b"x" * 100_000))
    assert 90 < reader.spent < 110


def test_midway() -> None:
    reader = WebSocketReader(BYTES_MAX)
    data = frame(1, b"hello")
    for piece in (data[:1], data[1:5], data[5:8]):
        reader.receive(piece)
        assert reader.midway
    reader.receive(data[8:])
    assert not reader.midway
    reader.receive(frame(1, b"a", fin=False))
    assert reader.midway
    reader.receive(frame(0))
    assert not reader.midway


def test_unfinished_messages_share_a_budget() -> None:
    budget = Budget(1_000)
    first, second = WebSocketReader(BYTES_MAX, budget), WebSocketReader(BYTES_MAX, budget)
    first.receive(frame(2, b"x" * 700, fin=False))
    assert budget.bytes_used == 700
    second.receive(frame(2, b"x" * 700, fin=False))
    assert second.error is not None
    assert second.error.status == 1013
    assert budget.bytes_used == 700
    assert first.receive(frame(0, b"x")) == [(BINARY, b"x" * 701)]
    assert budget.bytes_used == 0
    first.receive(frame(2, b"x" * 700, fin=False))
    first.close()
    assert budget.bytes_used == 0


# -- properties ---------------------------------------------------------------------------------

payloads = st.one_of(
    st.text(max_size=300).map(str.encode), st.binary(max_size=300), st.just(b"x" * 66_000)
)
keys = st.one_of(st.just(KEY), st.binary(min_size=4, max_size=4))


@st.composite
def messages(draw: st.DrawFn) -> tuple[int, bytes]:
    payload = draw(payloads)
    try:
        payload.decode()
    except UnicodeDecodeError:
        return BINARY, payload
    return draw(st.sampled_from((TEXT, BINARY))), payload


@st.composite
def fragmented(draw: st.DrawFn, message: tuple[int, bytes]) -> bytes:
    """The frames of a message, with pings between them."""
    kind, payload = message
    cuts = sorted(draw(st.lists(st.integers(0, len(payload)), max_size=3)))
    out = b""
    for number, (begin, end) in enumerate(zip((0, *cuts), (*cuts, len(payload)), strict=True)):
        last = number == len(cuts)
        out += frame(0 if number else kind, payload[begin:end], fin=last, key=draw(keys))
        if not last and draw(st.booleans()):
            out += frame(9, b"p")
    return out


@st.composite
def splits(draw: st.DrawFn, data: bytes) -> list[bytes]:
    cuts = sorted(draw(st.lists(st.integers(0, len(data)), max_size=6)))
    ends = zip((0, *cuts), (*cuts, len(data)), strict=True)
    return [data[begin:end] for begin, end in ends]


@given(st.data())
@settings(deadline=None)
def test_any_fragmentation_and_any_split_give_the_same_messages(data: st.DataObject) -> None:
    expected = data.draw(st.lists(messages(), max_size=4))
    stream = b"".join(data.draw(fragmented(message)) for message in expected)
    events, code = read(*data.draw(splits(stream)), bytes_max=100_000)
    assert code == 0
    assert [event for event in events if event[0] != PING] == expected


BITS = st.builds(
    frame,
    st.sampled_from((0, 1, 1, 1, 2, 2, 3, 8, 9, 10, 11)),
    st.one_of(st.binary(max_size=140), st.text(max_size=20).map(str.encode)),
    fin=st.sampled_from((True, True, True, False)),
    rsv=st.sampled_from((0, 0, 0, 0, 0, 1)),
    key=st.sampled_from((KEY, KEY, KEY, b"")),
    length_bytes=st.sampled_from((None, None, 2)),
)


@given(st.lists(st.one_of(BITS, st.binary(max_size=12)), max_size=8), st.data())
@settings(deadline=None)
def test_the_verdicts_are_those_of_wsproto(frames: list[bytes], data: st.DataObject) -> None:
    # A head that is cut off may already be wrong to the one and not yet to the other.
    stream = b"".join(frames) + bytes(14)
    judge = Judge()
    expected = judge.receive(stream)
    mine, code = read(*data.draw(splits(stream)), bytes_max=1 << 62)
    assert (mine, code != 0) == (expected, judge.code != 0)
    assert read(stream, bytes_max=1 << 62) == (mine, code)


def test_random_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["frame_fuzz", "--streams", str(fewer(1000)), "--seed", "7"])
    assert frame_fuzz.main() == 0


# -- out ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, 125, 126, 127, 65_535, 65_536, 200_000])
@pytest.mark.parametrize("kind", [TEXT, BINARY])
def test_frames_out_are_those_of_wsproto(kind: int, size: int) -> None:
    payload = b"x" * size
    server = FrameProtocol(client=False, extensions=[])
    expected = server.send_data(payload.decode() if kind == TEXT else payload)
    assert encode_frame(kind, payload) == expected


def test_a_message_is_text_if_it_is_utf8() -> None:
    assert encode_message(b"abc")[0] == 0x81
    assert encode_message("ä€".encode())[0] == 0x81
    assert encode_message(b"\xff")[0] == 0x82


@pytest.mark.parametrize("reason", ["", "because", "€" * 100])
def test_close_out(reason: str) -> None:
    client = FrameProtocol(client=True, extensions=[])
    client.receive_bytes(encode_close(1002, reason))
    (closing,) = client.received_frames()
    assert isinstance(closing.payload, tuple)
    code, said = closing.payload
    assert code == 1002
    assert reason.startswith(str(said))
    assert len(str(said).encode()) in (len(reason.encode()), 123)
    assert encode_frame(PONG, b"a") == b"\x8a\x01a"
