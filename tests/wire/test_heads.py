"""The contract of the gate as tables, and the promise that a memo never changes a verdict."""

from __future__ import annotations

import pytest

from tests.wire.head_fuzz import said
from zbus.wire.errors import WireError
from zbus.wire.heads import heads as heads_module
from zbus.wire.heads.heads import Head, Heads
from zbus.wire.heads.judge import judge
from zbus.wire.limits import WireLimits

GET = b"GET / HTTP/1.1\r\n"
HOST = GET + b"Host: a\r\n"
LIMITS = WireLimits()

REFUSED = [
    # the request line
    ("nothing at all", b"", 400),
    ("empty line first", b"\r\nGET / HTTP/1.1\r\nHost: a", 400),
    ("HTTP/0.9", b"GET /", 400),
    ("two spaces", b"GET  / HTTP/1.1\r\nHost: a", 400),
    ("tab as separator", b"GET\t/\tHTTP/1.1\r\nHost: a", 400),
    ("space at the end", b"GET / HTTP/1.1 \r\nHost: a", 400),
    ("space first", b" GET / HTTP/1.1\r\nHost: a", 400),
    ("method with a colon", b"G:T / HTTP/1.1\r\nHost: a", 400),
    ("no target", b"GET HTTP/1.1\r\nHost: a", 400),
    ("space in the target", b"GET /a b HTTP/1.1\r\nHost: a", 400),
    ("control byte in the target", b"GET /\x01 HTTP/1.1\r\nHost: a", 400),
    ("raw UTF-8 in the target", b"GET /\xe4 HTTP/1.1\r\nHost: a", 400),
    ("TLS hello", b"\x16\x03\x01\x02\x00\x01", 400),
    ("version 2.0", b"GET / HTTP/2.0\r\nHost: a", 505),
    ("HTTP/2 preface", b"PRI * HTTP/2.0", 505),
    ("version 1.2", b"GET / HTTP/1.2\r\nHost: a", 505),
    ("version 0.9", b"GET / HTTP/0.9\r\nHost: a", 505),
    ("version 1.10", b"GET / HTTP/1.10\r\nHost: a", 505),
    ("lower-case version", b"GET / http/1.1\r\nHost: a", 400),
    ("no minor version", b"GET / HTTP/1\r\nHost: a", 400),
    ("version with a sign", b"GET / HTTP/+1.1\r\nHost: a", 400),
    ("status line", b"HTTP/1.1 200 OK\r\nHost: a", 400),
    # line ends
    ("bare LF behind the request line", b"GET / HTTP/1.1\nHost: a", 400),
    ("bare LF in a value", HOST + b"a: b\nc: d", 400),
    ("bare CR in a value", HOST + b"a: b\rc: d", 400),
    ("bare CR at the end", HOST + b"a: b\r", 400),
    ("CR CR LF", HOST + b"a: b\r\r\nc: d", 400),
    # header lines
    ("folded line", HOST + b"a: b\r\n c", 400),
    ("folded with tab", HOST + b"a: b\r\n\tc", 400),
    ("fold behind the request line", GET + b" Host: a", 400),
    ("space before the colon", HOST + b"a : b", 400),
    ("tab before the colon", HOST + b"a\t: b", 400),
    ("no colon", HOST + b"abc", 400),
    ("no colon behind a known name", HOST + b"a", 400),
    ("no colon behind the name of a known line", HOST + b"cmd", 400),
    ("no colon behind the id", HOST + b"id", 400),
    ("no colon before a length", HOST + b"content-length 1", 400),
    ("no name", HOST + b": b", 400),
    ("name with a space", HOST + b"a b: c", 400),
    ("name with a quote", HOST + b'"a": c', 400),
    ("name with UTF-8", HOST + b"\xe4\xb8\xad: c", 400),
    ("NUL in a value", HOST + b"a: \x00", 400),
    ("control byte in a value", HOST + b"a: b\x01c", 400),
    ("vertical tab in a value", HOST + b"a: b\x0bc", 400),
    ("DEL in a value", HOST + b"a: b\x7f", 400),
    # framing
    ("length and chunked", HOST + b"Content-Length: 3\r\nTransfer-Encoding: chunked", 400),
    ("chunked and length", HOST + b"transfer-encoding: chunked\r\ncontent-length: 3", 400),
    ("equal lengths", HOST + b"Content-Length: 3\r\ncontent-length: 3", 400),
    ("different lengths", HOST + b"Content-Length: 3\r\nContent-Length: 4", 400),
    ("list of lengths", HOST + b"Content-Length: 3, 3", 400),
    ("length with plus", HOST + b"Content-Length: +3", 400),
    ("length with minus", HOST + b"Content-Length: -3", 400),
    ("length with underscore", HOST + b"Content-Length: 1_0", 400),
    ("length in hex", HOST + b"Content-Length: 0x3", 400),
    ("length with a space", HOST + b"Content-Length: 1 0", 400),
    ("empty length", HOST + b"Content-Length:", 400),
    ("length in other digits", HOST + b"Content-Length: \xb2", 400),
    ("endless length", HOST + b"Content-Length: " + b"9" * 20, 400),
    ("chunked twice", HOST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", 400),
    ("chunked listed twice", HOST + b"Transfer-Encoding: chunked, chunked", 400),
    ("gzip, chunked", HOST + b"Transfer-Encoding: gzip, chunked", 400),
    ("identity", HOST + b"Transfer-Encoding: identity", 400),
    ("xchunked", HOST + b"Transfer-Encoding: xchunked", 400),
    ("chunked with vertical tab", HOST + b"Transfer-Encoding: \x0bchunked", 400),
    ("chunked with obs-text", HOST + b"Transfer-Encoding: chunked\xa0", 400),
    ("empty coding", HOST + b"Transfer-Encoding:", 400),
    ("chunked on HTTP/1.0", b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked", 400),
    ("connection with obs-text", HOST + b"Connection: clos\xe9", 400),
    ("another expectation", HOST + b"Expect: 200-ok", 417),
    ("empty expectation", HOST + b"Expect:", 417),
    ("repeated expectation", HOST + b"Expect: 100-continue\r\nExpect: 100-continue", 400),
    # a body without a length
    ("a type and no length", b"POST / HTTP/1.1\r\nContent-Type: a/b", 411),
    ("a coding and no length", b"PUT / HTTP/1.1\r\nContent-Encoding: gzip", 411),
    ("a patch", b"PATCH / HTTP/1.1\r\ncontent-type: a/b", 411),
    ("a type and a cmd", b"POST / HTTP/1.1\r\ncmd: produce\r\ncontent-type: a/b", 411),
    ("a type on HTTP/1.0", b"POST / HTTP/1.0\r\nContent-Type: a/b", 411),
    ("a coding on HTTP/1.0", b"PUT / HTTP/1.0\r\nContent-Encoding: gzip", 411),
    ("no length, kept alive", b"POST / HTTP/1.0\r\nConnection: keep-alive", 411),
    # Host
    ("two Hosts", HOST + b"Host: a", 400),
    ("two Hosts on HTTP/1.0", b"GET / HTTP/1.0\r\nHost: a\r\nHost: b", 400),
    ("two Hosts and a cmd", HOST + b"Host: b\r\ncmd: ping", 400),
    ("bad Host and a cmd", GET + b"Host: a b\r\ncmd: ping", 400),
]

BAD_HOSTS = [
    b"",
    b":80",
    b"a b",
    b"a,b c",
    b"a/b",
    b"a@b",
    b"a?b",
    b"a#b",
    b"http://a",
    b"a:b",
    b"a:80:80",
    b"a:+80",
    b"a:123456",
    b"a%",
    b"a%2",
    b"a%zz",
    b"a\xe4",
    b"[::1",
    b"[]",
    b"[::g]",
    b"[1.2.3.4]",
    b"[::1%25eth0]",
    b"[::1]80",
    b"[::1]:x",
    b"[" + b":" * 2000 + b"]",
    b"::1",
    b'"a"',
    b"a\\b",
    b"<a>",
]

GOOD_HOSTS = [
    b"a",
    b"localhost:15555",
    b"127.0.0.1",
    b"127.0.0.1:80",
    b"a_b.example.",
    b"a%20b",
    b"a:",
    b"[::1]",
    b"[::ffff:1.2.3.4]:15555",
    b"[2001:db8::1]:",
]


def read(raw: bytes, limits: WireLimits = LIMITS) -> tuple[Head, bytes]:
    """Read it cold, by lines and from the templates: always the same."""
    heads = Heads(limits)
    reads = [heads.read(raw) for _ in range(3)]
    verdict = judge(raw, limits)
    for head, id_ in reads:
        assert said(head, id_) == said(verdict.head, verdict.id)
    return reads[-1]


def refusal(heads: Heads, raw: bytes) -> WireError:
    with pytest.raises(WireError) as caught:
        heads.read(raw)
    return caught.value


@pytest.mark.parametrize(
    ("raw", "status"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED]
)
def test_refused(raw: bytes, status: int) -> None:
    heads = Heads()
    for warm in (
        HOST + b"a: b\r\ncontent-length: 1\r\nid: 1",
        GET + b"cmd: a\r\ncontent-length: 2",
    ):
        heads.read(warm)
    for _ in range(2):
        error = refusal(heads, raw)
        assert error.status == status
        assert error.text.isascii()
        assert error.text.isprintable()


@pytest.mark.parametrize("value", BAD_HOSTS)
def test_bad_host(value: bytes) -> None:
    assert refusal(Heads(), GET + b"Host: " + value).status == 400
    assert refusal(Heads(), b"GET / HTTP/1.0\r\nHost: " + value).status == 400


@pytest.mark.parametrize("value", GOOD_HOSTS)
def test_good_host(value: bytes) -> None:
    head, _ = read(GET + b"HOST:" + value + b" ")
    assert head.fields == {b"host": value}


ACCEPTED = [
    ("no Host", b"GET / HTTP/1.1", {}),
    ("no Host, a topic", GET + b"topic: a", {b"topic": b"a"}),
    ("no Host but a cmd", GET + b"cmd: ping", {b"cmd": b"ping"}),
    ("no Host but an empty cmd", GET + b"CMD:", {b"cmd": b""}),
    ("no Host on HTTP/1.0", b"GET / HTTP/1.0", {}),
    ("last repetition wins", GET + b"cmd: a\r\nA: 1\r\na: 2", {b"cmd": b"a", b"a": b"2"}),
    ("empty value", GET + b"cmd: x\r\na:", {b"cmd": b"x", b"a": b""}),
    ("only white space", GET + b"cmd: x\r\na: \t ", {b"cmd": b"x", b"a": b""}),
    ("white space around", GET + b"cmd:\t x y \t", {b"cmd": b"x y"}),
    ("tab inside", GET + b"cmd: x\ty", {b"cmd": b"x\ty"}),
    ("colons in a value", GET + b"cmd: a:b: c", {b"cmd": b"a:b: c"}),
    ("UTF-8 value", GET + "cmd: 主题".encode(), {b"cmd": "主题".encode()}),
    ("obs-text value", GET + b"cmd: \x80\xff", {b"cmd": b"\x80\xff"}),
    ("any method", b"F!O / HTTP/1.1\r\ncmd: x", {b"cmd": b"x"}),
    ("absolute form", b"GET http://a/b HTTP/1.1\r\ncmd: x", {b"cmd": b"x"}),
    ("asterisk form", b"OPTIONS * HTTP/1.1\r\ncmd: x", {b"cmd": b"x"}),
    ("authority form", b"CONNECT a:80 HTTP/1.1\r\ncmd: x", {b"cmd": b"x"}),
    ("chunked in capitals", GET + b"cmd: x\r\nTE: y\r\nTransfer-Encoding: CHUNKED", None),
    ("repeated list", GET + b"cmd: x\r\nConnection: a\r\nConnection: b", None),
]


@pytest.mark.parametrize(
    ("raw", "fields"), [row[1:] for row in ACCEPTED], ids=[row[0] for row in ACCEPTED]
)
def test_accepted(raw: bytes, fields: dict[bytes, bytes] | None) -> None:
    head, id_ = read(raw)
    assert id_ == b""
    assert [head.method, head.target] == raw.split(b"\r\n")[0].split(b" ")[:2]
    if fields is not None:
        assert head.fields == fields


@pytest.mark.parametrize(
    ("version", "lines", "keep_alive"),
    [
        (b"1.1", b"Connection: close\r\ncmd: x", True),
        (b"1.1", b"cmd: x\r\nConnection: te, close", True),
        (b"1.1", b"Connection: close\r\nx: cmd", False),
        (b"1.0", b"cmd: x", False),
        (b"1.0", b"cmd: x\r\nConnection: keep-alive, close", True),
    ],
)
def test_close_says_nothing_where_the_fields_are_a_messages(
    version: bytes, lines: bytes, keep_alive: bool
) -> None:
    raw = b"GET / HTTP/%b\r\nHost: a\r\n%b" % (version, lines)
    heads = Heads(marks=frozenset((b"cmd",)))
    for _ in range(3):
        assert heads.read(raw)[0].keep_alive is keep_alive


@pytest.mark.parametrize(
    ("version", "lines", "keep_alive"),
    [
        (b"1.1", b"", True),
        (b"1.1", b"\r\nConnection: Keep-Alive", True),
        (b"1.1", b"\r\nConnection: close", False),
        (b"1.1", b"\r\nConnection: Upgrade, CLOSE", False),
        (b"1.1", b"\r\nConnection: close\r\nconnection: x", False),
        (b"1.1", b"\r\nConnection: closed", True),
        (b"1.0", b"", False),
        (b"1.0", b"\r\nConnection: Keep-Alive", True),
        (b"1.0", b"\r\nConnection: TE ,\tkeep-alive", True),
        (b"1.0", b"\r\nConnection: keep-alive, close", False),
    ],
)
def test_keep_alive(version: bytes, lines: bytes, keep_alive: bool) -> None:
    head, _ = read(b"GET / HTTP/" + version + b"\r\ncmd: x" + lines)
    assert head.keep_alive == keep_alive
    assert head.version_11 == (version == b"1.1")


@pytest.mark.parametrize(
    ("lines", "length", "chunked", "expects"),
    [
        (b"", 0, False, False),
        (b"Content-Length: 007", 7, False, False),
        (b"content-length: 123456789012345", 123456789012345, False, False),
        (b"content-length: 1234567890123456789", 1234567890123456789, False, False),
        (b"Transfer-Encoding: Chunked", 0, True, False),
        (b"content-length: 5\r\nExpect: 100-Continue", 5, False, True),
    ],
)
def test_framing(lines: bytes, length: int, chunked: bool, expects: bool) -> None:
    head, _ = read((GET + b"cmd: x\r\n" + lines).removesuffix(b"\r\n"))
    assert (head.content_length, head.chunked, head.expects_continue) == (length, chunked, expects)


def test_http_10_expects_nothing() -> None:
    head, _ = read(b"POST / HTTP/1.0\r\ncontent-length: 1\r\nExpect: 100-continue")
    assert not head.expects_continue


@pytest.mark.parametrize(
    ("lines", "id_"),
    [
        (b"id: 1", b"1"),
        (b"id: 1\r\ncmd: x", b"1"),
        (b"cmd: x\r\nid: 1\r\na: b", b"1"),
        (b"ID: 1", b"1"),
        (b"id:1", b"1"),
        (b"id:  1 ", b"1"),
        (b"id: a b", b"a b"),
        (b"id:", b""),
        (b"id: ", b""),
        (b"id: \xe4\xb8\xad", b"\xe4\xb8\xad"),
        (b"id: " + b"7" * 1024, b"7" * 1024),
        (b"id: " + b"7" * 1025, b"7" * 1025),
        (b"id: 1\r\nid: 2", b"2"),
        (b"id: 1\r\nID: 2", b"2"),
        (b"Id: 1\r\nid: 2", b"2"),
        (b"id: 1\r\ncmd: x\r\nid:", b""),
        (b"x: 1\r\nxid: 3", b""),
    ],
)
def test_id(lines: bytes, id_: bytes) -> None:
    head, found = read(HOST + lines)
    assert found == id_
    assert b"id" not in head.fields


def test_heads_that_differ_in_the_id_share_one_head_and_its_plan() -> None:
    heads = Heads()
    first, _ = heads.read(HOST + b"id: 1\r\ncmd: x")
    first.plan = "worked out"
    second, id_ = heads.read(HOST + b"id: 2\r\ncmd: x")
    assert second is first
    assert id_ == b"2"
    assert heads.read(HOST + b"cmd: x") == (first, b"")


def test_a_bad_id_is_refused_though_the_template_is_known() -> None:
    heads = Heads()
    heads.read(HOST + b"id: 1\r\ncmd: x")
    for bad in (b"\x01", b"a\nb", b"a\rb", b"a\x7f"):
        assert refusal(heads, HOST + b"id: " + bad + b"\r\ncmd: x").status == 400


def test_a_new_value_of_a_steering_header_is_judged() -> None:
    heads = Heads()
    heads.read(HOST + b"Connection: close\r\nExpect: 100-continue\r\ncontent-length: 1")
    assert refusal(heads, GET + b"Host: a b").status == 400
    assert refusal(heads, HOST + b"Expect: more").status == 417
    assert refusal(heads, HOST + b"content-length: 1, 1").status == 400
    assert refusal(heads, HOST + b"content-length: " + b"1" * 20).status == 400
    assert heads.read(HOST + b"content-length: 77")[0].content_length == 77


LIMIT_CASES = [
    ("request line that fits", b"GET /" + b"a" * 46 + b" HTTP/1.1\r\ncmd: x", 0),
    ("request line too long", b"GET /" + b"a" * 47 + b" HTTP/1.1\r\ncmd: x", 414),
    ("header line that fits", GET + b"cmd: " + b"a" * 55, 0),
    ("header line too long", GET + b"cmd: " + b"a" * 56, 431),
    ("id line that fits", GET + b"cmd: x\r\nid: " + b"a" * 56, 0),
    ("id line too long", GET + b"cmd: x\r\nid: " + b"a" * 57, 431),
    ("fields that fit", GET + b"cmd: x" + b"\r\na: b" * 4, 0),
    ("too many fields", GET + b"cmd: x" + b"\r\na: b" * 5, 431),
    ("too many with the id", GET + b"cmd: x" + b"\r\na: b" * 4 + b"\r\nid: 1", 431),
    ("head that fits", GET + b"cmd: " + b"a" * 54 + (b"\r\nb: " + b"b" * 56) * 2, 0),
    ("head too long", GET + b"cmd: " + b"a" * 55 + (b"\r\nb: " + b"b" * 56) * 2, 431),
]


@pytest.mark.parametrize(
    ("raw", "status"), [row[1:] for row in LIMIT_CASES], ids=[row[0] for row in LIMIT_CASES]
)
def test_limits(raw: bytes, status: int) -> None:
    limits = WireLimits(line_bytes_max=60, head_bytes_max=197, fields_max=5)
    heads = Heads(limits)
    for warm in (b"cmd: x" + b"\r\na: b" * 4, b"cmd: x\r\nb: c\r\nid: 1", b"cmd: x\r\nid: 2"):
        for _ in range(2):
            heads.read(GET + warm)
    if status:
        assert refusal(heads, raw).status == status
    else:
        read(raw, limits)


def test_the_memos_are_bounded() -> None:
    heads = Heads()
    for number in range(heads_module._TEMPLATES_MAX + 1000):
        text = b"%d" % number
        raw = b"M%b /%b HTTP/1.1\r\ncmd: x\r\nname%b: %b" % (text, text, text, text)
        heads.read(raw)
        heads.read(raw)
    assert len(heads._templates) <= heads_module._TEMPLATES_MAX
    assert len(heads._lines) <= heads_module._LINES_MAX
    assert len(heads._starts) <= heads_module._STARTS_MAX
    assert len(heads._names) <= heads_module._NAMES_MAX
    assert len(heads._methods) <= heads_module._METHODS_MAX


def test_long_heads_are_fewer() -> None:
    """A memo for many short heads must not hold as many long ones."""
    heads = Heads()
    most = heads_module._MEMO_BYTES_MAX
    for number in range(most // 1000 + 100):
        heads.read(GET + b"host: x\r\nx-%d: %b" % (number, b"y" * 1000))
    assert sum(map(heads_module._size, heads._templates)) == heads._memo_bytes <= most


def test_what_is_not_used_is_dropped() -> None:
    heads = Heads()
    used = GET + b"host: x\r\nx: used"
    heads.read(used)
    for number in range(2_000):
        heads.read(GET + b"host: x\r\nx-%d: y" % number)
    head = heads.read(used)[0]
    full = heads.bytes_used
    heads.age()
    assert heads.read(used)[0] is head
    heads.age()
    heads.drop(100_000)
    assert heads.bytes_used < full // 100
    assert heads.read(used)[0] is head
    heads.age()  # what takes so little may stay
    heads.age()
    assert heads.read(used)[0] is head
    heads.forget()
    assert heads.bytes_used == 0
    assert heads.read(used)[0] is not head


def test_large_parts_are_not_remembered() -> None:
    heads = Heads()
    large = GET + b"cmd: x" + b"".join(b"\r\na%d: %b" % (n, b"v" * 600) for n in range(4))
    for _ in range(3):
        heads.read(large)
    assert large not in heads._templates
    assert all(len(line) <= 512 for line in heads._lines)
