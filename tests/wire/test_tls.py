"""TLS without a network: two ends in memory, and bytes cut anywhere between them."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.authority import client_context, server_context
from tests.limits import examples
from zbus.wire.tls import TlsStream, principal_of

VERSIONS = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]
versions = pytest.mark.parametrize("version", VERSIONS)


class Client:
    """The other end: Python's own TLS."""

    def __init__(self, context: ssl.SSLContext, session: ssl.SSLSession | None = None) -> None:
        self.incoming = ssl.MemoryBIO()
        self.outgoing = ssl.MemoryBIO()
        self.tls = context.wrap_bio(
            self.incoming, self.outgoing, server_hostname="localhost", session=session
        )

    def step(self) -> None:
        """Whatever the handshake can do now."""
        try:
            self.tls.do_handshake()
        except ssl.SSLWantReadError:
            pass

    def finish(self) -> None:
        """The handshake to its end, and what came with it."""
        self.tls.do_handshake()
        self.read()

    def sent(self) -> bytes:
        return self.outgoing.read()

    def read(self) -> bytes:
        """All plaintext that has come."""
        data = b""
        try:
            while piece := self.tls.read(1 << 16):
                data += piece
        except ssl.SSLWantReadError:
            pass
        return data


class Ends:
    """A client, the server's end, and the bytes between them, handed over in any pieces."""

    def __init__(
        self, server: ssl.SSLContext, client: ssl.SSLContext, pieces: list[int] | None = None
    ) -> None:
        self.server = TlsStream(server)
        self.client = Client(client)
        self.pieces = pieces or [1 << 20]
        self._next = 0

    def cut(self, data: bytes) -> list[bytes]:
        found = []
        while data:
            size = self.pieces[self._next % len(self.pieces)]
            self._next += 1
            found.append(data[:size])
            data = data[size:]
        return found

    def shake(self) -> None:
        for _ in range(4):
            self.client.step()
            self.to_server()
            self.client.incoming.write(self.server.encrypt(b""))
            if self.server.error:
                return

    def to_server(self) -> bytes:
        return b"".join([self.server.receive(piece) for piece in self.cut(self.client.sent())])

    def to_client(self, data: bytes) -> bytes:
        sealed = self.server.encrypt(data)
        for piece in self.cut(sealed):
            self.client.incoming.write(piece)
        return self.client.read()


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> ssl.SSLContext:
    return server_context(tmp_path_factory.mktemp("tls"))


@versions
def test_a_dialogue(context: ssl.SSLContext, version: ssl.TLSVersion) -> None:
    ends = Ends(context, client_context(version=version))
    ends.shake()
    assert ends.server.established
    assert not ends.server.over
    assert not ends.server.speaks
    ends.client.tls.write(b"a request")
    assert ends.to_server() == b"a request"
    assert ends.to_client(b"a reply") == b"a reply"
    assert ends.client.tls.selected_alpn_protocol() is None
    assert ends.client.tls.compression() is None


sizes = st.lists(
    st.one_of(st.integers(1, 30), st.integers(1, 40_000), st.just(16_384)), min_size=1, max_size=8
)


@examples(60)
@given(
    pieces=sizes,
    requests=st.lists(st.integers(1, 70_000), max_size=5),
    replies=st.lists(st.integers(0, 70_000), max_size=5),
    version=st.sampled_from(VERSIONS),
)
def test_any_split_of_the_bytes_is_the_same_dialogue(
    context: ssl.SSLContext,
    pieces: list[int],
    requests: list[int],
    replies: list[int],
    version: ssl.TLSVersion,
) -> None:
    ends = Ends(context, client_context(version=version), pieces)
    ends.shake()
    assert ends.server.established
    for number, size in enumerate(requests):
        data = bytes([number]) * size
        view = memoryview(data)
        while view:
            view = view[ends.client.tls.write(view) :]
        assert ends.to_server() == data
    for number, size in enumerate(replies):
        data = bytes([number]) * size
        assert ends.to_client(data) == data
    ends.server.close()
    assert not ends.server.error


@versions
def test_every_single_byte_alone(context: ssl.SSLContext, version: ssl.TLSVersion) -> None:
    ends = Ends(context, client_context(version=version), [1])
    ends.shake()
    ends.client.tls.write(b"GET / HTTP/1.1\r\n\r\n")
    assert ends.to_server() == b"GET / HTTP/1.1\r\n\r\n"


@versions
def test_the_last_step_of_the_handshake_and_the_first_request_in_one_piece(
    context: ssl.SSLContext, version: ssl.TLSVersion
) -> None:
    ends = Ends(context, client_context(version=version))
    server, client = ends.server, ends.client
    client.step()
    server.receive(client.sent())
    client.incoming.write(server.encrypt(b""))
    client.step()
    if version is ssl.TLSVersion.TLSv1_2:
        server.receive(client.sent())
        client.incoming.write(server.encrypt(b""))
        client.step()
    client.tls.write(b"first")
    assert server.receive(client.sent()) == b"first"
    assert server.established


def test_a_thousand_records_in_one_piece(context: ssl.SSLContext) -> None:
    ends = Ends(context, client_context())
    ends.shake()
    for number in range(1_000):
        ends.client.tls.write(b"%04d" % number)
    assert ends.to_server() == b"".join(b"%04d" % number for number in range(1_000))


def test_half_a_record_is_nothing_yet(context: ssl.SSLContext) -> None:
    ends = Ends(context, client_context())
    ends.shake()
    ends.client.tls.write(b"x" * 1_000)
    record = ends.client.sent()
    for position in range(len(record) - 1):
        assert ends.server.receive(record[position : position + 1]) == b""
    assert ends.server.receive(record[-1:]) == b"x" * 1_000


def test_a_plain_request_is_told_what_is_spoken_here(context: ssl.SSLContext) -> None:
    for first in (b"GET / HTTP/1.1\r\n\r\n", b"p", b"DELETE /T HTTP/1.1\r\n"):
        server = TlsStream(context)
        assert server.receive(first) == b""
        assert (server.error, server.over) == ("no TLS came", True)
        assert server.speaks
        answer = server.encrypt(b"")
        assert answer.startswith(b"HTTP/1.1 400 Bad Request\r\n")
        assert answer.endswith(b"\r\n\r\n400: this port speaks TLS: use https")
        assert server.close() == b""


@pytest.mark.parametrize("first", [b"\0", b"\x80\x2e\1\3\1", b"\xff", b"\r\n", b"\x15\3\1"])
def test_what_is_neither_tls_nor_http_gets_no_answer(context: ssl.SSLContext, first: bytes) -> None:
    server = TlsStream(context)
    assert server.receive(first) == b""
    assert server.error == "no TLS came"
    assert not server.speaks


@given(st.binary(max_size=300))
def test_no_bytes_do_harm(context: ssl.SSLContext, data: bytes) -> None:
    server = TlsStream(context)
    assert server.receive(b"\x16" + data) == b""
    assert not server.established
    server.encrypt(b"")
    server.close()


@given(position=st.integers(0, 10_000), flip=st.integers(1, 255), flight=st.integers(0, 2))
def test_a_byte_that_was_changed_on_the_way(
    context: ssl.SSLContext, position: int, flip: int, flight: int
) -> None:
    """It is found out, or it is one of the few that mean nothing; never does it get through."""
    ends = Ends(context, client_context())
    received = b""
    for number in range(3):
        try:
            ends.client.step()
            if number == 2:
                ends.client.tls.write(b"plain")
        except ssl.SSLError:
            return  # the client found out
        data = bytearray(ends.client.sent())
        if number == flight and data:
            data[position % len(data)] ^= flip
        received += ends.server.receive(bytes(data))
        ends.client.incoming.write(ends.server.encrypt(b""))
    assert received in (b"", b"plain")


def test_a_forged_record_ends_it_after_what_came_before(context: ssl.SSLContext) -> None:
    ends = Ends(context, client_context())
    ends.shake()
    ends.client.tls.write(b"good")
    good = ends.client.sent()
    ends.client.tls.write(b"evil")
    evil = bytearray(ends.client.sent())
    evil[-1] ^= 1
    assert ends.server.receive(good + bytes(evil)) == b"good"
    assert "bad record mac" in ends.server.error
    assert ends.server.receive(b"more") == b""
    alert = ends.server.encrypt(b"a reply that nobody gets")
    assert alert
    ends.client.incoming.write(alert)
    with pytest.raises(ssl.SSLError, match=r"(?i)alert bad record mac"):
        ends.client.read()


def test_a_handshake_without_end(context: ssl.SSLContext) -> None:
    """A hello that says that it is 120,000 bytes long, which OpenSSL would wait for."""
    server = TlsStream(context)
    hello = b"\1\1\xd4\xc0\3\3" + bytes(32) + b"\0\0\2\x13\1\1\0\xff\xff"
    server.receive(b"\x16\3\1\x40\0" + hello + bytes(0x4000 - len(hello)))
    assert not server.over
    for _ in range(4):
        server.receive(b"\x16\3\1\x40\0" + bytes(0x4000))
    assert server.error == "the handshake is too long"


@versions
def test_the_client_ends_it(context: ssl.SSLContext, version: ssl.TLSVersion) -> None:
    """What it said before is heard, and it may still be answered."""
    ends = Ends(context, client_context(version=version))
    ends.shake()
    ends.client.tls.write(b"last")
    with pytest.raises(ssl.SSLWantReadError):
        ends.client.tls.unwrap()
    assert ends.to_server() == b"last"
    assert ends.server.ended
    assert ends.server.over
    assert not ends.server.error
    assert ends.server.receive(b"whatever") == b""
    sealed = ends.server.encrypt(b"answer")
    assert sealed
    ends.client.incoming.write(sealed + ends.server.close())


@versions
def test_the_server_ends_it(context: ssl.SSLContext, version: ssl.TLSVersion) -> None:
    ends = Ends(context, client_context(version=version))
    ends.shake()
    sealed = ends.server.encrypt(b"last") + ends.server.close()
    ends.client.incoming.write(sealed)
    assert ends.client.tls.read(100) == b"last"
    assert ends.client.tls.read(100) == b""  # a clean end, no error
    assert ends.server.close() == b""
    assert ends.server.encrypt(b"dropped") == b""
    ends.client.tls.write(b"still talking")
    assert ends.to_server() == b""
    assert not ends.server.over


def test_nothing_is_said_before_the_handshake(context: ssl.SSLContext) -> None:
    server = TlsStream(context)
    assert server.encrypt(b"") == b""
    assert server.close() == b""
    ends = Ends(context, client_context())
    ends.client.step()
    ends.to_server()  # half of it
    assert ends.server.speaks
    assert ends.server.close()  # the half that there is
    assert not ends.server.established


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
def test_old_versions_are_refused(context: ssl.SSLContext) -> None:
    old = client_context(version=ssl.TLSVersion.TLSv1_1)
    old.set_ciphers("ALL:@SECLEVEL=0")
    ends = Ends(context, old)
    ends.shake()
    assert ends.server.error == "unsupported protocol"
    with pytest.raises(ssl.SSLError, match=r"(?i)protocol version"):
        ends.client.step()


@pytest.mark.parametrize(
    ("offered", "chosen"),
    [(["http/1.1"], "http/1.1"), (["h2", "http/1.1"], "http/1.1"), (["h2"], None)],
)
def test_alpn(context: ssl.SSLContext, offered: list[str], chosen: str | None) -> None:
    offering = client_context()
    offering.set_alpn_protocols(offered)
    ends = Ends(context, offering)
    ends.shake()
    assert ends.server.established
    assert ends.client.tls.selected_alpn_protocol() == chosen


# -- client certificates --------------------------------------------------------------------


@pytest.fixture(scope="module")
def demanding(tmp_path_factory: pytest.TempPathFactory) -> ssl.SSLContext:
    return server_context(tmp_path_factory.mktemp("required"), "required")


@versions
def test_a_client_certificate_names_a_principal(
    demanding: ssl.SSLContext, version: ssl.TLSVersion
) -> None:
    ends = Ends(demanding, client_context(principal="alice", version=version), [1])
    ends.shake()
    assert (ends.server.established, ends.server.principal) == (True, "alice")


@versions
@pytest.mark.parametrize(
    ("principal", "error"), [("", "did not return a certificate"), ("alice", "unable to get")]
)
def test_a_client_without_a_good_certificate(
    demanding: ssl.SSLContext, version: ssl.TLSVersion, principal: str, error: str
) -> None:
    """None at all, and one of an authority that is not trusted."""
    context = client_context(principal=principal, signed_by="strangers", version=version)
    ends = Ends(demanding, context)
    ends.shake()
    with pytest.raises(ssl.SSLError, match=r"(?i)alert"):
        ends.client.finish()
    assert error in ends.server.error
    assert not ends.server.established
    assert ends.server.principal == ""


def test_an_optional_certificate(tmp_path: Path) -> None:
    context = server_context(tmp_path, "optional")
    for principal in ("", "bob"):
        ends = Ends(context, client_context(principal=principal))
        ends.shake()
        assert (ends.server.established, ends.server.principal) == (True, principal)
    ends = Ends(context, client_context(principal="bob", signed_by="strangers"))
    ends.shake()
    assert ends.server.error


@versions
def test_a_resumed_session_is_the_same_principal(
    demanding: ssl.SSLContext, version: ssl.TLSVersion
) -> None:
    context = client_context(principal="alice", version=version)
    first = Ends(demanding, context)
    first.shake()
    first.to_client(b"x")
    second = Ends(demanding, context)
    second.client = Client(context, first.client.tls.session)
    second.shake()
    assert second.client.tls.session_reused
    assert (second.server.established, second.server.principal) == (True, "alice")


@pytest.mark.parametrize(
    ("subject", "principal"),
    [
        ([[("commonName", "alice")]], "alice"),
        ([[("organizationName", "o")], [("commonName", "Bob B.")]], "Bob B."),
        ([[("commonName", "günther")]], "günther"),
        ([], ""),
        ([[("organizationName", "o")]], ""),
        ([[("commonName", "alice")], [("commonName", "root")]], ""),
        ([[("commonName", "alice"), ("commonName", "root")]], ""),
        ([[("commonName", "alice\0")]], ""),
        ([[("commonName", "alice\nlog line")]], ""),
    ],
)
def test_whom_a_certificate_names(subject: Any, principal: str) -> None:
    assert principal_of({"subject": subject}) == principal


def test_a_certificate_without_subject() -> None:
    assert principal_of({}) == ""


@examples(60)
@given(pieces=sizes, said=st.lists(st.binary(max_size=300), max_size=6))
def test_the_end_that_connects(
    context: ssl.SSLContext, pieces: list[int], said: list[bytes]
) -> None:
    """What it says before the handshake is over arrives behind it, once and in order."""
    connecting = client_context()
    connecting.check_hostname = False
    ends = [TlsStream(connecting, client=True), TlsStream(context)]
    came = [b"", b""]
    wires = [ends[0].encrypt(b""), b""]
    waiting, turn = list(said), 0
    while any(wires) or waiting or any(end.speaks for end in ends):
        if waiting:
            wires[0] += ends[0].encrypt(waiting.pop(0))
        for one, other in ((0, 1), (1, 0)):
            size = pieces[turn % len(pieces)]
            data, wires[one] = wires[one][:size], wires[one][size:]
            came[other] += ends[other].receive(data) if data else b""
            wires[other] += ends[other].encrypt(b"")
        turn += 1
    assert [end.error for end in ends] == ["", ""]
    assert came[1] == b"".join(said)
    wires[1] = ends[1].encrypt(b"an answer")
    assert ends[0].receive(wires[1]) == b"an answer"


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x15\x03\x03\0\2\2\x28"])
def test_the_other_end_speaks_no_tls(answer: bytes) -> None:
    context = client_context()
    context.check_hostname = False
    end = TlsStream(context, client=True)
    end.encrypt(b"a request")
    assert end.receive(answer) == b""
    assert end.error
    assert b"400" not in end.encrypt(b"")
