"""The connections of an endpoint: to the platform, to other endpoints, and from them.

That to the platform is made again whenever it ends. A direct one is made when the endpoint wants
it (`Connect`). A node that connects to us is authenticated by the endpoint, not here.
"""

from __future__ import annotations

import itertools
import logging
import random
import ssl
from collections.abc import Awaitable, Callable
from hashlib import sha256
from pathlib import Path
from typing import Final

import anyio
import attrs
from anyio.abc import ByteStream, Listener, SocketAttribute, SocketStream
from anyio.streams.tls import TLSAttribute, TLSStream

from zbus.client.links.async_link import BROKEN, open_stream
from zbus.client.options import Addresses, Options
from zbus.semq.endpoint.event_queue import EventQueue
from zbus.semq.endpoint.events import Came, Closed, Connect, Frame, Opened, Unreachable
from zbus.semq.program.connection import Connection
from zbus.semq.program.frames import (
    PLATFORM_BODY_BYTES_MAX,
    RequestFrames,
    ResponseFrames,
    encode_request,
    encode_response,
    limits,
)
from zbus.semq.protocol.words import PLATFORM
from zbus.wire.heads.heads import Heads
from zbus.wire.limits import WireLimits

ACCEPTED_MAX: Final = 1_000
"""Connections from other endpoints at one time."""

PAUSE_S: Final = 0.2
PAUSE_MAX_S: Final = 10.0
"""Between two attempts to reach the platform: twice as long each time, with jitter."""

LASTING_S: Final = 10.0
"""A connection that ended earlier has not shown that the next one will do better."""

_ALIVE: Final = Frame({"cmd": "heartbeat"})
_PORT_MAX: Final = 65_535
_CONNECT_S: Final = 5.0
_HANDSHAKE_S: Final = 10.0

log = logging.getLogger("zbus.semq")


@attrs.frozen(kw_only=True)
class Platform:
    """Where the platform and its standbys are, and how to get in. `options` has the token, and what
    TLS needs."""

    addresses: Addresses
    options: Options = attrs.field(factory=Options)

    def __str__(self) -> str:
        return ", ".join(map(str, self.addresses))


class Sockets:
    """`send` and `close` are for links by their number, which never comes again."""

    def __init__(
        self, arrived: EventQueue, limits: WireLimits, platform: Platform | None = None
    ) -> None:
        self._arrived = arrived
        self._limits = limits
        self._heads = Heads(limits)
        self._platform = platform
        self._numbers = itertools.count(1)
        self._open: dict[int, Connection] = {}
        self._platform_link = 0  # the one that stands
        self._accepted = 0

    # -- for the endpoint ---------------------------------------------------------------------

    def send(self, link: int, frame: Frame) -> None:
        """If the link is no more, the frame is lost."""
        connection = self._open.get(link)
        if connection is None:
            return
        if link == self._platform_link and frame.command == "semq_hello":
            frame = self._with_token(frame)
        connection.send(frame)

    def _with_token(self, frame: Frame) -> Frame:
        token = self._platform.options.token if self._platform is not None else None
        return frame._replace(fields={**frame.fields, "token": token}) if token else frame

    def close(self, link: int, why: str) -> None:
        """End it, when what was sent before is written."""
        connection = self._open.get(link)
        if connection is not None:
            log.info("link ended by us", extra={"peer": connection.peer, "why": why})
            connection.close(why)

    def send_goodbye(self) -> None:
        """The program stops. The platform gets a `bye`, so that it stores from now on."""
        self.send(self._platform_link, Frame({"cmd": "semq_bye"}))
        for connection in self._open.values():
            connection.close("the program stops")

    @property
    def connections(self) -> list[Connection]:
        return list(self._open.values())

    # -- to the platform ----------------------------------------------------------------------

    async def keep_platform(self) -> None:
        """Connect to it, again and again; if it has several addresses, to each in turn."""
        platform = self._platform
        if platform is None:
            return
        pause_s, logged = PAUSE_S, ""
        for address in itertools.cycle(platform.addresses):
            began_s = anyio.current_time()
            try:
                stream = await open_stream(address, platform.options)
            except OSError as error:
                why = f"{error.strerror or error}"
                if why != logged:  # once, however long it lasts
                    log.warning("no platform", extra={"at": address, "why": why})
                logged = why
            else:
                logged = ""
                log.info("connected", extra={"platform": address})
                number = next(self._numbers)
                self._platform_link = number
                try:
                    await self._run_called(stream, f"platform {address}",
                                           Opened(number, PLATFORM))  # fmt: skip
                finally:
                    self._platform_link = 0
            if anyio.current_time() - began_s >= LASTING_S:
                pause_s = PAUSE_S
            await anyio.sleep(pause_s * random.uniform(0.5, 1.0))
            pause_s = min(2 * pause_s, PAUSE_MAX_S)

    # -- to other endpoints -------------------------------------------------------------------

    async def connect(self, wanted: Connect) -> None:
        """Make a direct connection, and see it through; or tell that it cannot be made."""
        why = "it has no address"
        for address in wanted.addresses:
            try:
                stream = await _open_direct(address, wanted.fingerprint)
            except (OSError, ValueError) as error:
                why = f"{address}: {error}"
                continue
            opened = Opened(
                next(self._numbers),
                wanted.node,
                direct=True,
                ticket=wanted.ticket,
                key=wanted.key,
                certain=bool(wanted.fingerprint),
            )
            await self._run_called(stream, f"{wanted.node} at {address}", opened)
            return
        log.info("no direct connection", extra={"node": wanted.node, "why": why})
        self._arrived.post(Unreachable(wanted.node))

    async def _run_called(self, stream: ByteStream, peer: str, opened: Opened) -> None:
        bounds = self._limits if opened.direct else limits(PLATFORM_BODY_BYTES_MAX)
        reader = ResponseFrames(bounds)
        await self._run(Connection(stream, reader, encode_request, peer), opened)

    # -- from other endpoints -----------------------------------------------------------------

    async def accept(
        self, listener: Listener[SocketStream], context: ssl.SSLContext | None
    ) -> None:
        """Take what connects there."""

        async def take(stream: SocketStream) -> None:
            if self._accepted >= ACCEPTED_MAX:
                await anyio.aclose_forcefully(stream)
                return
            self._accepted += 1
            try:
                await self._take(stream, context)
            finally:
                self._accepted -= 1

        await serve(listener, take)

    async def _take(self, stream: ByteStream, context: ssl.SSLContext | None) -> None:
        peer = _name_of(stream)
        if context is not None:
            try:
                with anyio.fail_after(_HANDSHAKE_S):
                    stream = await TLSStream.wrap(
                        stream, server_side=True, ssl_context=context, standard_compatible=False
                    )
            except (*BROKEN, TimeoutError) as error:
                log.info("no TLS", extra={"peer": peer, "why": str(error) or "it ended early"})
                await anyio.aclose_forcefully(stream)
                return
        reader = RequestFrames(self._heads, self._limits)
        connection = Connection(stream, reader, encode_response, peer)
        await self._run(connection, Opened(next(self._numbers), "", direct=True))

    # -- all of them --------------------------------------------------------------------------

    async def _run(self, connection: Connection, opened: Opened) -> None:
        arrived, number = self._arrived, opened.link
        self._open[number] = connection
        arrived.post(opened)

        async def came(frame: Frame) -> None:
            await arrived.put(Came(number, frame))

        try:
            await connection.run(came, _ALIVE)
        finally:
            del self._open[number]
            arrived.post(Closed(number))
            log.info("link ended", extra={"peer": connection.peer, "why": connection.why})


async def serve(
    listener: Listener[SocketStream], take: Callable[[SocketStream], Awaitable[None]]
) -> None:
    """Take connections for ever. A moment without file descriptors, or a mistake with one
    connection, is not the end of all."""

    async def take_one(stream: SocketStream) -> None:
        try:
            await take(stream)
        except Exception:
            log.exception("a connection ended by a mistake in this program")

    while True:
        try:
            await listener.serve(take_one)
        except OSError as error:
            log.error("cannot listen, so nothing can connect", extra={"why": str(error)})
            await anyio.sleep(1)


def _name_of(stream: ByteStream) -> str:
    address = stream.extra(SocketAttribute.remote_address, "")
    return f"{address[0]}:{address[1]}" if isinstance(address, tuple) else str(address)


async def _open_direct(address: str, fingerprint: str) -> ByteStream:
    """Connect to `host:port`, with TLS if there is a fingerprint to hold against the certificate.
    Raises OSError, ValueError."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or len(port) > 5 or int(port) > _PORT_MAX:
        raise ValueError("it is not of the form host:port")
    with anyio.move_on_after(_CONNECT_S):
        if not fingerprint:
            return await anyio.connect_tcp(host.strip("[]"), int(port))
        try:
            stream = await anyio.connect_tcp(
                host.strip("[]"),
                int(port),
                tls=True,
                ssl_context=pinned_context(),
                tls_standard_compatible=False,
            )
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            raise OSError("it was closed during the TLS handshake") from None
        shown = stream.extra(TLSAttribute.peer_certificate_binary) or b""
        if not same_fingerprint(sha256(shown).hexdigest(), fingerprint):
            await anyio.aclose_forcefully(stream)
            raise OSError("its certificate is not the one that the platform told of")
        return stream
    raise OSError("it does not answer")


def pinned_context() -> ssl.SSLContext:
    """Any certificate will do: it is compared with the one fingerprint that is known."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def same_fingerprint(one: str, other: str) -> bool:
    """With colons or without, in capitals or not."""
    return one.replace(":", "").lower() == other.replace(":", "").lower()


def server_context(file: Path) -> tuple[ssl.SSLContext, str]:
    """For the listener: of a PEM file with certificate and key. Returns the fingerprint that others
    are told, too. Raises OSError, ValueError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(file)
    begin, end = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
    text = file.read_text()
    first = text[text.index(begin) : text.index(end) + len(end)]
    return context, sha256(ssl.PEM_cert_to_DER_cert(first)).hexdigest()
