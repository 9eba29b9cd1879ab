"""Streams cut into requests: whole, split at every byte, and with trailing bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.limits import examples
from zbus.wire.heads.heads import Heads
from zbus.wire.http import HttpReader
from zbus.wire.limits import WireLimits

LIMITS = WireLimits(line_bytes_max=200, head_bytes_max=300, fields_max=5, body_bytes_max=64)
HOST = b" HTTP/1.1\r\nHost: a\r\n"
GET = b"GET /get" + HOST + b"\r\n"
NEXT = b"GET /next" + HOST + b"id: next\r\n\r\n"
CHUNKED = b"POST /chunked" + HOST + b"Transfer-Encoding: chunked\r\n\r\n"
ADF = b"GET /queue/json?a=b HTTP/1.1\nHost: 127.0.0.1\nConnection: Upgrade\nUpgrade: websocket\n"
WEBSOCKET = b"GET /ws" + HOST + b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
AB = b"GET /ab HTTP/1.0\r\nConnection: Keep-Alive\r\nHost: a\r\nAccept: */*\r\n\r\n"

Said = tuple[bytes, bytes, bytes]

GOOD: list[tuple[str, bytes, list[Said]]] = [
    ("nothing", b"", []),
    ("get", GET, [(b"/get", b"", b"")]),
    ("ab", AB, [(b"/ab", b"", b"")]),
    ("id", NEXT, [(b"/next", b"next", b"")]),
    ("two", GET + NEXT, [(b"/get", b"", b""), (b"/next", b"next", b"")]),
    ("empty line first", b"\r\n" + GET, [(b"/get", b"", b"")]),
    ("empty line between", GET + b"\r\n" + NEXT, [(b"/get", b"", b""), (b"/next", b"next", b"")]),
    ("only an empty line", b"\r\n", []),
    (
        "body on a get",
        b"GET /x HTTP/1.1\r\ncmd: produce\r\nid: 7\r\ncontent-length: 5\r\n\r\nhello",
        [(b"/x", b"7", b"hello")],
    ),
    (
        "body that looks like a request",
        b"POST /x" + HOST + b"content-length: %d\r\n\r\n" % len(GET) + GET,
        [(b"/x", b"", GET)],
    ),
    (
        "body that is an empty line",
        b"POST /x" + HOST + b"content-length: 4\r\n\r\n\r\n\r\n",
        [(b"/x", b"", b"\r\n\r\n")],
    ),
    ("largest body", b"PUT /x" + HOST + b"content-length: 64\r\n\r\n" + b"x" * 64,
     [(b"/x", b"", b"x" * 64)]),
    ("chunks", CHUNKED + b"5\r\nhello\r\n1;a=b\r\n!\r\n0\r\n\r\n", [(b"/chunked", b"", b"hello!")]),
    ("no chunks", CHUNKED + b"0\r\n\r\n", [(b"/chunked", b"", b"")]),
    ("trailers", CHUNKED + b"1\r\nx\r\n0\r\na: b\r\nc:\r\n\r\n", [(b"/chunked", b"", b"x")]),
    ("an upgrade to something else", GET.replace(b"\r\n\r\n", b"\r\nUpgrade: h2c\r\n\r\n"),
     [(b"/get", b"", b"")]),
]  # fmt: skip

LAST: list[tuple[str, bytes, list[Said]]] = [
    ("close", b"GET /x" + HOST + b"Connection: close\r\n\r\n", [(b"/x", b"", b"")]),
    ("websocket", WEBSOCKET, [(b"/ws", b"", b"")]),
    ("websocket second", GET + WEBSOCKET, [(b"/get", b"", b""), (b"/ws", b"", b"")]),
    ("adf handshake with bare LF", ADF + b"\n", [(b"/queue/json?a=b", b"", b"")]),
    (
        "adf handshake second",
        GET + ADF + b"\n",
        [(b"/get", b"", b""), (b"/queue/json?a=b", b"", b"")],
    ),
    ("http/1.0", b"GET /x HTTP/1.0\r\n\r\n", [(b"/x", b"", b"")]),
    (
        "http/1.0 with a body",
        b"GET /x HTTP/1.0\r\ncontent-length: 2\r\n\r\nab",
        [(b"/x", b"", b"ab")],
    ),
    (
        "chunked and close",
        CHUNKED[:-2] + b"Connection: close\r\n\r\n1\r\nx\r\n0\r\n\r\n",
        [(b"/chunked", b"", b"x")],
    ),
]

BAD: list[tuple[str, bytes, int]] = [
    ("two empty lines", b"\r\n\r\n", 400),
    ("garbage", b"\x16\x03\x01", 400),
    ("CR without LF first", b"\rGET", 400),
    ("bare LF", b"GET / HTTP/1.1\nHost: a\n\n", 400),
    ("bare LF in the second line", b"GET /" + HOST + b"a: b\nc: d\r\n\r\n", 400),
    ("bare LF that begins like adf", b"GET /queue/jsonx HTTP/1.1\nUpgrade: websocket\n\n", 400),
    ("bare LF and CR LF", ADF + b"a: b\r\n\n", 400),
    ("adf handshake with a length", ADF + b"content-length: 0\n\n", 400),
    ("adf path without upgrade", b"GET /queue/bin HTTP/1.1\nHost: a\n\n", 400),
    ("adf path with a post", b"POST /queue/bin HTTP/1.1\nHost: a\nUpgrade: websocket\n\n", 400),
    ("bad head", b"GET / HTTP/1.1\r\nbad\r\n\r\n", 400),
    ("version", b"GET / HTTP/3.0\r\nHost: a\r\n\r\n", 505),
    ("body too large", b"PUT /" + HOST + b"content-length: 65\r\n\r\n", 413),
    (
        "body too large that is here",
        b"PUT /" + HOST + b"content-length: 65\r\n\r\n" + b"x" * 65,
        413,
    ),
    ("request line too long", b"GET /" + b"a" * 200 + HOST + b"\r\n", 414),
    ("request line without end", b"GET /" + b"a" * 197, 414),
    ("head too long", b"GET /" + HOST + b"a: %b\r\nb: %b\r\n\r\n" % (b"a" * 150, b"b" * 150), 431),
    ("head without end", b"GET /" + HOST + b"a: %b\r\nb: %b" % (b"a" * 150, b"b" * 150), 431),
    ("too many fields", b"GET /" + HOST + b"a: b\r\n" * 5 + b"\r\n", 431),
    ("bad chunk size", CHUNKED + b"x\r\n", 400),
    ("chunked body too large", CHUNKED + b"40\r\n" + b"x" * 64 + b"\r\n1\r\n", 413),
]


class Outcome:
    """Everything a reader says about a stream given in these pieces."""

    def __init__(self, pieces: list[bytes], limits: WireLimits = LIMITS) -> None:
        self.reader = HttpReader(Heads(limits), limits)
        self.requests: list[Said] = []
        self.interims = b""
        for piece in pieces:
            found = self.reader.receive(piece)
            while self.reader.more:
                found += self.reader.receive(b"")
            self.requests += [(head.target, id_, body) for head, id_, body in found]
            self.interims += self.reader.interim
            self.reader.interim = b""

    @property
    def status(self) -> int:
        return self.reader.error.status if self.reader.error else 0


def by_byte(data: bytes) -> list[bytes]:
    return [data[at : at + 1] for at in range(len(data))]


def splits(data: bytes) -> list[list[bytes]]:
    """Whole, byte by byte, and in two at every place."""
    return [[data], by_byte(data), *([data[:at], data[at:]] for at in range(1, len(data)))]


@pytest.mark.parametrize(
    ("data", "requests"), [row[1:] for row in GOOD], ids=[row[0] for row in GOOD]
)
def test_good_streams(data: bytes, requests: list[Said]) -> None:
    for pieces in splits(data):
        outcome = Outcome(pieces)
        assert outcome.requests == requests
        assert outcome.status == 0
        assert outcome.reader.waiting_for() == "nothing"
        assert not outcome.reader.done
        assert outcome.reader._rest is None


@pytest.mark.parametrize(
    ("data", "requests"), [row[1:] for row in GOOD[1:]], ids=[row[0] for row in GOOD[1:]]
)
def test_trailing_bytes_are_the_next_request(data: bytes, requests: list[Said]) -> None:
    for pieces in splits(data + NEXT):
        assert Outcome(pieces).requests == [*requests, (b"/next", b"next", b"")]
    for pieces in splits(data + b"GET /ha"):
        outcome = Outcome(pieces)
        assert outcome.requests == requests
        assert outcome.reader.waiting_for() == "head"


def test_what_comes_behind_a_handshake_is_kept_for_another_reader() -> None:
    behind = b"GET this is no HTTP\n"
    for pieces in splits(GET + WEBSOCKET + behind):
        outcome = Outcome(pieces)
        assert len(outcome.requests) == 2
        assert (outcome.reader.done, outcome.reader.behind) == (True, behind)
    closing = Outcome([b"GET /x" + HOST + b"Connection: close\r\n\r\n" + behind])
    assert closing.reader.behind is None


@pytest.mark.parametrize(
    ("data", "requests"), [row[1:] for row in LAST], ids=[row[0] for row in LAST]
)
def test_the_last_request(data: bytes, requests: list[Said]) -> None:
    for trailing in (b"", NEXT, b"\r\n\r\n\r\n", b"\x00garbage\r\n\r\n"):
        for pieces in splits(data + trailing):
            outcome = Outcome([*pieces, NEXT])
            assert outcome.requests == requests
            assert outcome.reader.done
            assert outcome.status == 0
            assert outcome.reader.waiting_for() == "nothing"


@pytest.mark.parametrize(("data", "status"), [row[1:] for row in BAD], ids=[row[0] for row in BAD])
def test_bad_streams(data: bytes, status: int) -> None:
    for before, requests in ((b"", []), (NEXT, [(b"/next", b"next", b"")])):
        for pieces in splits(before + data):
            outcome = Outcome(pieces)
            assert outcome.requests == requests
            assert outcome.status == status
            assert outcome.reader.waiting_for() == "nothing"
            assert outcome.reader.receive(NEXT) == []
    for pieces in splits(data + NEXT):
        outcome = Outcome(pieces)
        assert outcome.requests == []
        assert outcome.status in (status, 400)


@pytest.mark.parametrize(
    ("data", "waiting"),
    [
        (b"\r", "head"),
        (b"\r\n", "nothing"),
        (b"G", "head"),
        (GET[:-1], "head"),
        (b"POST /" + HOST + b"content-length: 1\r\n\r\n", "body"),
        (CHUNKED, "body"),
        (CHUNKED + b"0\r\n", "body"),
        (GET + GET + b"G", "head"),
    ],
)
def test_waiting_for(data: bytes, waiting: str) -> None:
    for pieces in splits(data):
        assert Outcome(pieces).reader.waiting_for() == waiting


EXPECT = b"POST /x" + HOST + b"Expect: 100-continue\r\n"
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


@pytest.mark.parametrize(
    ("pieces", "interims"),
    [
        ([EXPECT + b"content-length: 1\r\n\r\n", b"x"], CONTINUE),
        (by_byte(EXPECT + b"content-length: 1\r\n\r\nx"), CONTINUE),
        ([EXPECT + b"content-length: 1\r\n\r\nx"], b""),
        ([EXPECT + b"content-length: 2\r\n\r\nx", b"x"], b""),
        ([EXPECT + b"content-length: 0\r\n\r\n"], b""),
        ([EXPECT + b"\r\n"], b""),
        ([EXPECT + b"Transfer-Encoding: chunked\r\n\r\n", b"0\r\n\r\n"], CONTINUE),
        ([EXPECT + b"content-length: 65\r\n\r\n"], b""),
        ([EXPECT.replace(b"/1.1", b"/1.0") + b"content-length: 1\r\n\r\n", b"x"], b""),
    ],
)
def test_interim(pieces: list[bytes], interims: bytes) -> None:
    assert Outcome(pieces).interims == interims


def test_a_body_in_large_pieces() -> None:
    limits = WireLimits()
    body = bytes(range(256)) * 65536
    data = b"POST /x" + HOST + b"content-length: %d\r\n\r\n" % len(body) + body
    pieces = [data[at : at + 65536] for at in range(0, len(data), 65536)]
    assert Outcome(pieces, limits).requests == [(b"/x", b"", body)]


def test_many_pipelined_requests() -> None:
    one = b"POST /x" + HOST + b"id: %d\r\ncontent-length: 2\r\n\r\nab"
    data = b"".join(one % number for number in range(2000))
    expected = [(b"/x", b"%d" % number, b"ab") for number in range(2000)]
    for size in (len(data), 65536, 1000, 7):
        pieces = [data[at : at + size] for at in range(0, len(data), size)]
        assert Outcome(pieces).requests == expected


@given(
    st.lists(st.sampled_from([row[1] for row in GOOD + BAD] + [AB[:9], b"\r", b"\n"]), max_size=4),
    st.lists(st.integers(1, 60), min_size=1, max_size=8),
)
@examples(300)
def test_no_split_changes_the_outcome(streams: list[bytes], sizes: list[int]) -> None:
    data = b"".join(streams)
    pieces: list[bytes] = []
    at = 0
    while at < len(data):
        size = sizes[len(pieces) % len(sizes)]
        pieces.append(data[at : at + size])
        at += size
    whole, cut = Outcome([data]), Outcome(pieces)
    assert cut.requests == whole.requests
    assert cut.reader.done == whole.reader.done
    # A fault in half a head may be seen at once or only with its end, depending on the split.
    if not (cut.status or whole.status):
        assert cut.reader.waiting_for() == whole.reader.waiting_for()
    if data.endswith(b"\r\n\r\n") and whole.reader.waiting_for() == "nothing":
        assert bool(cut.status) == bool(whole.status)
