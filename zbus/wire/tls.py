"""TLS as bytes in and bytes out: one end of a connection, mostly the server's.

What a connection received goes through `receive`, which gives back the plaintext; what is to be
sent goes through `encrypt`. The handshake, session tickets and alerts also leave through `encrypt`:
it gives back whatever TLS has to say, so `encrypt(b"")` is how to say nothing else.

Nothing is raised for what a peer does: `error` says what it did wrong, and `over` that nothing more
will be understood from it.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from zbus.wire.replies import encode_reply

_RECORD_BYTES = 16 << 10
"""The most plaintext that one record holds (RFC 8446, section 5.1)."""

_HANDSHAKE_RECORD = 22
_HANDSHAKE_BYTES_MAX = 64 << 10
"""What a peer may send before the handshake is over; certificates are the most of it."""

_PLAIN_TEXT = b"400: this port speaks TLS: use https"


class TlsStream:
    """TLS of one connection. The context decides on tickets, ciphers and client certificates."""

    __slots__ = (
        "_closed",
        "_handshake_bytes",
        "_incoming",
        "_is_client",
        "_outgoing",
        "_tls",
        "_unsaid",
        "ended",
        "error",
        "established",
        "principal",
        "unsaid_bytes",
    )

    def __init__(self, context: ssl.SSLContext, *, client: bool = False) -> None:
        """`client`: it is the end that connects, and what is to be said waits for the handshake."""
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=not client)
        self._is_client = client
        self._unsaid: list[bytes] = []
        self.unsaid_bytes = 0  # of plaintext that waits for the handshake
        self._handshake_bytes = 0
        self._closed = False
        self.established = False  # the handshake is over
        self.ended = False  # the peer said that it sends no more
        self.error = ""  # what went wrong, for people; nothing is understood after it
        self.principal = ""  # whom the peer's certificate names, see `principal_of`
        if client:
            with suppress(ssl.SSLWantReadError):
                self._tls.do_handshake()

    @property
    def over(self) -> bool:
        """The peer sends no more, or nothing that could be understood."""
        return self.ended or bool(self.error)

    @property
    def speaks(self) -> bool:
        """TLS itself has something to send: a step of the handshake, a ticket, an alert."""
        return self._outgoing.pending > 0 or bool(self._unsaid and self.established)

    def receive(self, data: bytes) -> bytes:
        """Take what came from the peer; give back what it means, b"" for the time being or if it is
        `over`. However the bytes are split, the plaintext is the same."""
        if len(data) <= _RECORD_BYTES:
            return self._receive(data)
        # OpenSSL keeps the memory of the largest piece that it was ever given.
        view, steps = memoryview(data), range(0, len(data), _RECORD_BYTES)
        return b"".join([self._receive(view[at : at + _RECORD_BYTES]) for at in steps])

    def _receive(self, data: bytes | memoryview) -> bytes:
        if self.ended or self.error or self._closed:
            return b""
        incoming, plain = self._incoming, b""
        try:
            if self.established:
                incoming.write(data)
            elif not self._shake(data):
                return b""
            # One record a time; with nothing left here, there is nothing left in OpenSSL either.
            while incoming.pending:
                piece = self._tls.read(_RECORD_BYTES)
                if not piece:
                    self.ended = True
                    break
                plain = plain + piece if plain else piece
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            self._fail(error)
        return plain

    def _shake(self, data: bytes | memoryview) -> bool:
        """A step of the handshake; whether there may be plaintext behind it."""
        if not self._handshake_bytes and data and data[0] != _HANDSHAKE_RECORD:
            self.error = "no TLS came"
            # The beginning of a plain request: people read the answer.
            if bytes(data[:1]).isalpha() and not self._is_client:
                lines = b"content-type: text/plain\r\n"
                self._outgoing.write(encode_reply(400, lines, _PLAIN_TEXT, close=True))
            return False
        self._handshake_bytes += len(data)
        if self._handshake_bytes > _HANDSHAKE_BYTES_MAX:
            self.error = "the handshake is too long"
            return False
        self._incoming.write(data)
        self._tls.do_handshake()
        try:
            self.principal = principal_of(self._tls.getpeercert() or {})
        except ValueError:  # text in it that is none
            self.error = "the certificate cannot be read"
            return False
        self.established = True
        return True

    def encrypt(self, data: bytes) -> bytes:
        """What to send: the plaintext given, and before it whatever TLS itself has to say.

        After `close` or an `error` nothing can be said any more, and plaintext is dropped. A server
        has none before the handshake is over, because no request can have come.
        """
        if self._is_client and (self._unsaid or not self.established):
            if data:
                self._unsaid.append(data)
            if not self.established:
                self.unsaid_bytes += len(data)
                return self._outgoing.read()
            data, self._unsaid, self.unsaid_bytes = b"".join(self._unsaid), [], 0
        if not data or self.error or self._closed:
            return self._outgoing.read()
        assert self.established
        try:
            done = self._tls.write(data)  # one record
            if done == len(data):
                return self._outgoing.read()
            pieces, view = [self._outgoing.read()], memoryview(data)
            while done < len(data):
                done += self._tls.write(view[done : done + _RECORD_BYTES])
                # At once, for OpenSSL keeps the memory of all that was ever there.
                pieces.append(self._outgoing.read())
            return b"".join(pieces)
        except ssl.SSLError as error:
            self._fail(error)
            return self._outgoing.read()

    def close(self) -> bytes:
        """Say that nothing more comes; the bytes to send. Empty if that is known, or cannot be said
        because the handshake is not over."""
        if self.established and not self.error and not self._closed:
            try:
                self._tls.unwrap()
            except ssl.SSLError:
                pass  # the peer has not said the same yet
        self._closed = True
        return self._outgoing.read()

    def _fail(self, error: ssl.SSLError) -> None:
        """OpenSSL has put an alert into what is to be sent, if there is one."""
        text = getattr(error, "verify_message", "") or error.reason or str(error)
        self.error = text.lower().replace("_", " ")


def principal_of(certificate: Mapping[str, Any]) -> str:
    """Whom a certificate names: the one common name of its subject, as Unicode text.

    Empty if there is none, if there are several (which of them would be meant?), or if it holds
    what cannot be printed. `certificate` is as `ssl.SSLSocket.getpeercert` has it.
    """
    names = [
        str(value)
        for part in certificate.get("subject", ())
        for key, value in part
        if key == "commonName"
    ]
    return names[0] if len(names) == 1 and names[0].isprintable() else ""
