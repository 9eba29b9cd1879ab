"""The shortcuts against the obviously right way: a fresh judge, and h11 itself.

Heads are made of plausible and of nasty parts and read in random order by one `Heads` whose memos
get warm on the way. Whatever was read before, the verdict and every field must be the same.
"""

from __future__ import annotations

from random import Random

import h11
from hypothesis import example, given, settings
from hypothesis import strategies as st

from zbus.wire.errors import WireError
from zbus.wire.heads import Head, Heads
from zbus.wire.judge import judge
from zbus.wire.limits import WireLimits

NAMES = [
    b"cmd", b"Cmd", b"topic", b"id", b"ID", b"Id", b"a", b"A", b"x-id", b"content-length",
    b"Content-Length", b"Transfer-Encoding", b"transfer-encoding", b"Connection", b"connection",
    b"Host", b"host", b"Expect", b"Upgrade", b"TE", b"Keep-Alive", b"bad name", b"a ", b"",
]  # fmt: skip
VALUES = [
    b"", b"1", b"2", b"5, 5", b"+1", b"1_0", b"00", b"chunked", b"CHUNKED", b"gzip", b"close",
    b"keep-alive", b"Keep-Alive, TE", b"localhost:15555", b"a b", b"100-continue", b"\xe4\xb8\xad",
    b"a\tb", b"a\x00", b"a\rb", b"a\nb", b"\x7f", b"a:b", b"[::1]", b"v" * 40, b"produce",
]  # fmt: skip
STARTS = [
    b"GET / HTTP/1.1", b"GET /a?b=c HTTP/1.1", b"POST / HTTP/1.0", b"GET / HTTP/1.0",
    b"FOO * HTTP/1.1", b"GET http://a/ HTTP/1.1", b"GET / HTTP/1.2", b"GET /  HTTP/1.1",
    b"GET /\xe4 HTTP/1.1", b"get / http/1.1", b"HTTP/1.1 200 OK", b"G@T / HTTP/1.1",
    b"GET /" + b"a" * 60 + b" HTTP/1.1", b"",
]  # fmt: skip

separators = st.sampled_from([b": ", b": ", b": ", b":", b":  ", b" : ", b":\t"])
values = st.one_of(
    st.sampled_from(VALUES),
    st.integers(0, 10**20).map(lambda n: b"%d" % n),
    st.text("abc ,;=%é", max_size=12).map(str.encode),
)
lines = st.one_of(
    st.builds(lambda *parts: b"".join(parts), st.sampled_from(NAMES), separators, values),
    st.sampled_from([b"Host: localhost", b"cmd: x", b"id: 1", b"id: 2", b"a: b", b" folded"]),
)
starts = st.one_of(st.sampled_from(STARTS[:4]), st.sampled_from(STARTS))
plausible = st.builds(
    lambda start, host, rest: b"\r\n".join((start, *host, *rest)),
    starts,
    st.sampled_from([(), (b"Host: a",), (b"cmd: x",), (b"Host: a", b"cmd: x")]),
    st.lists(lines, max_size=5),
)
mutated = st.builds(
    lambda raw, at, piece: raw[: at % (len(raw) + 1)] + piece + raw[at % (len(raw) + 1) :],
    plausible,
    st.integers(0, 200),
    st.sampled_from(
        [b"\r", b"\n", b"\r\n", b"\x00", b" ", b":", b"\xff", b"\r\nid: 1", b"\r\nid:"]
    ),
)
sequences = st.lists(st.one_of(plausible, plausible, mutated), min_size=1, max_size=8)
limits = st.sampled_from(
    [WireLimits(), WireLimits(line_bytes_max=48, head_bytes_max=160, fields_max=4)]
)


def said(head: Head, id_: bytes) -> tuple[object, ...]:
    return (id_, *(getattr(head, name) for name in Head.__slots__ if name != "plan"))


def quickly(heads: Heads, raw: bytes) -> tuple[object, ...]:
    try:
        return said(*heads.read(raw))
    except WireError as error:
        return (error.status, error.text)


def carefully(raw: bytes, bounds: WireLimits, contained: bool) -> tuple[object, ...]:
    try:
        verdict = judge(raw, bounds, contained=contained)
    except WireError as error:
        return (error.status, error.text)
    return said(verdict.head, verdict.id)


@given(sequences, limits, st.booleans(), st.randoms(use_true_random=False))
@settings(max_examples=400, deadline=None)
def test_memos_never_change_a_verdict(
    raws: list[bytes], bounds: WireLimits, contained: bool, random: Random
) -> None:
    heads = Heads(bounds, contained=contained)
    order = raws * 3
    random.shuffle(order)
    for raw in order:
        assert quickly(heads, raw) == carefully(raw, bounds, contained)


def h11_reads(raw: bytes) -> h11.Request | None:
    connection = h11.Connection(h11.SERVER)
    connection.receive_data(raw + b"\r\n\r\n")
    try:
        event = connection.next_event()
    except h11.RemoteProtocolError:
        return None
    return event if isinstance(event, h11.Request) else None


@given(sequences)
@example([b"GET / HTTP/1.1\r\nHost: a\r\nConnection: a\r\nConnection: b"])
@settings(max_examples=400, deadline=None)
def test_what_is_accepted_is_what_h11_reads(raws: list[bytes]) -> None:
    heads = Heads()
    for raw in raws * 2:
        try:
            head, id_ = heads.read(raw)
        except WireError:
            continue
        host = b"" if b"host" in head.fields else b"\r\nhost: added"
        event = h11_reads(raw + host)
        assert event is not None
        assert (event.method, event.target) == (head.method, head.target)
        assert event.http_version == (b"1.1" if head.version_11 else b"1.0")
        fields = dict(event.headers)
        for name in (b"connection", b"upgrade"):
            repeated = [value for found, value in event.headers if found == name]
            if repeated:
                fields[name] = b", ".join(repeated)
        if host:
            del fields[b"host"]
        assert fields.pop(b"id", b"") == id_
        assert fields == head.fields
